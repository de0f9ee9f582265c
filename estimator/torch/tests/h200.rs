//! The allocator beside PyTorch's own: what 37 training jobs allocated and freed on an H200 (PyTorch 2.11.0+cu130,
//! `torch.cuda.memory._record_memory_history`), and which segments PyTorch's allocator took for it.

use serde::Deserialize;
use torch_memory::allocator::{
    Allocator, AllocatorConfig, CachingAllocator, Refusal, SegmentEvent,
};
use torch_memory::compressed::decompress;

/// A job, or the same job with less memory.
#[derive(Deserialize)]
struct Job {
    job: String,
    conf: String,
    /// The calls: an allocation is `[bytes]`, or `[bytes, stream]` on another stream than the default one; a release is the number of the
    /// allocation.
    #[serde(default)]
    calls: Vec<Call>,
    /// What was taken from the device (positive) and given back (negative).
    #[serde(default)]
    segments: Vec<i64>,
    #[serde(default)]
    max_allocated: u64,
    #[serde(default)]
    max_reserved: u64,
    /// The memory that the job was allowed, and whether it trained.
    allowed_mib: Option<u64>,
    #[serde(default)]
    trained: bool,
    message: Option<String>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Call {
    Free(usize),
    Allocate(Vec<u64>),
    /// `null`: the program, or cuDNN after its trials, called `empty_cache`.
    EmptyCache(()),
}

fn jobs() -> Vec<Job> {
    let text = decompress(include_bytes!("../data/h200.jsonl.zst")).unwrap();
    let lines = text
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty());
    lines
        .map(|line| serde_json::from_slice(line).unwrap())
        .collect()
}

/// Replays the calls; returns the allocator, and whether it had enough.
fn replay(job: &Job, conf: &str, capacity: u64) -> (CachingAllocator, Option<Refusal>) {
    let config: AllocatorConfig = conf.parse().unwrap();
    let mut allocator = CachingAllocator::new(config, capacity);
    let mut blocks = Vec::new();
    for call in &job.calls {
        match call {
            Call::Allocate(call) => {
                let stream = call.get(1).copied().unwrap_or(0);
                match allocator.allocate(call[0], stream as u32) {
                    Ok(block) => blocks.push(block),
                    Err(refusal) => return (allocator, Some(refusal)),
                }
            }
            Call::Free(block) => allocator.free(blocks[*block]),
            Call::EmptyCache(()) => allocator.empty_cache(),
        }
    }
    (allocator, None)
}

/// The jobs whose segments are not all the real ones. The blocks that are free then have equal sizes, and which of them is taken
/// depends on their addresses: those of the context and of libraries, which take addresses too, are not known. `benchmark` gives segments
/// back between cuDNN's trials.
const OTHER_SEGMENTS: [&str; 7] = [
    "unet-b16",
    "unet-b16-bf16",
    "transformer-b32-bf16",
    "resnet50-b128-channels-last",
    "resnet50-b128-benchmark",
    "swin-t-b32",
    "gpt2-b8-fp32-checkpointing",
];

#[test]
fn every_segment_is_the_real_one() {
    let jobs = jobs();
    let mut other = Vec::new();
    for job in jobs.iter().filter(|job| !job.calls.is_empty()) {
        let (allocator, refused) = replay(job, &job.conf, u64::MAX);
        assert_eq!(refused, None);
        let segments = allocator.segments().iter().map(|event| match event {
            SegmentEvent::Taken(bytes) => *bytes as i64,
            SegmentEvent::GivenBack(bytes) => -(*bytes as i64),
        });
        let segments: Vec<i64> = segments.collect();
        let allocated = (allocator.max_allocated_bytes(), job.max_allocated);
        let reserved = (allocator.max_reserved_bytes(), job.max_reserved);
        if segments != job.segments || allocated.0 != allocated.1 || reserved.0 != reserved.1 {
            other.push(job.job.as_str());
            assert!(
                allocated.0.abs_diff(allocated.1) < 3 << 20,
                "{}: {allocated:?}",
                job.job
            );
            assert!(
                reserved.0.abs_diff(reserved.1) <= 2 << 20,
                "{}: {reserved:?}",
                job.job
            );
        }
    }
    assert_eq!(other, OTHER_SEGMENTS);
}

/// GPT-2 trains on the device with as much memory as in the replay, and not with less. ResNet-50 does with 3,120 MiB and not with 3,118;
/// the replay of what it does without a limit needs 3,166, since cuDNN takes other workspaces where memory is short.
#[test]
fn a_job_trains_with_as_much_memory_as_it_did() {
    let jobs = jobs();
    let mut tried = 0;
    for limited in jobs.iter().filter(|job| job.job == "gpt2-b4-bf16") {
        let Some(mib) = limited.allowed_mib else {
            continue;
        };
        let same = |job: &&Job| job.job == limited.job && !job.calls.is_empty();
        let job = jobs.iter().find(same).unwrap();
        let (_, refused) = replay(job, "", mib << 20);
        assert_eq!(refused.is_none(), limited.trained, "{mib} MiB");
        tried += 1;
    }
    assert_eq!(tried, 5);
}

/// The error of GPT-2 with 5,280 MiB on the device, and that of the replay.
#[test]
fn the_error_has_the_figures_of_pytorchs() {
    let jobs = jobs();
    let limited = jobs
        .iter()
        .find(|job| job.allowed_mib == Some(5280))
        .unwrap();
    let job = jobs
        .iter()
        .find(|job| job.job == limited.job && !job.calls.is_empty())
        .unwrap();
    let (_, refused) = replay(job, "", 5280 << 20);
    let total = 150_109_880_320;
    // What the process had on the device before PyTorch's allocator took anything: 5.55 GiB less the reserved 4.81.
    let ours = refused.unwrap().message(0, total, 794 << 20);
    let real = limited.message.as_ref().unwrap();
    for figure in [
        "Tried to allocate 394.00 MiB. GPU 0 has a total capacity of 139.80 GiB of which ",
        "Of the allocated memory 4.47 GiB is allocated by PyTorch, and 347.76 MiB is reserved by PyTorch but unallocated.",
    ] {
        assert!(real.contains(figure), "{real}");
        assert!(ours.contains(figure), "{ours}");
    }
}
