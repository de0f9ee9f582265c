//! The report on a program that does not mark its phases. The field names are the program's JSON interface.

use std::collections::HashMap;

use estimator::{
    Bytes, DeviceSpec, RunReport, Runtime, Simulated, StopReason, kernel_name, replay,
};
use recording::analysis::{Lifetime, Lifetimes, Timeline};
use recording::{Event, Recording, Refusal};
use schemars::JsonSchema;
use serde::Serialize;

use crate::job_info::{GpuName, SCHEMA};
use crate::report::Verdict;
use crate::resolve::Card;

/// The most kinds of buffers that are shown.
const SHOWN: usize = 10;

/// The answer of `cargo fit-check`.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct ProgramReport {
    /// Version of this interface.
    pub schema: u32,
    /// The program's name.
    pub program: String,
    /// Simulated runtime.
    pub runtime: Runtime,
    /// Why the recording ended.
    pub ending: StopReason,
    /// The number of kernel launches.
    pub launches: usize,
    /// The equal steps at the end of the recording; none if there were not as many in a row as `--steps` asks for.
    pub steps: Option<Steps>,
    /// Whether burn's tuner tried kernels during the run.
    pub tuned: bool,
    /// A buffer with which the program runs on no card, however much memory that has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub too_large: Option<TooLarge>,
    /// The memory that the program takes.
    pub peak: Peak,
    /// Buffers in use at the peak, by size and by the kernel that first wrote them; the most bytes first.
    pub held: Vec<HeldBuffers>,
    /// The verdict on each card.
    pub cards: Vec<Verdict>,
}

/// Equal training steps in a row, at the end of the recording.
#[derive(Clone, Copy, Debug, JsonSchema, Serialize)]
pub struct Steps {
    /// The number of steps.
    pub count: usize,
    /// Kernel launches in each step.
    pub launches: usize,
    /// The most bytes in use during the steps; before them there may have been more.
    pub live_bytes: Bytes,
}

/// The memory that a program takes.
#[derive(Clone, Debug, JsonSchema, Serialize)]
#[schemars(rename = "ProgramPeak")]
pub struct Peak {
    /// The most bytes in use at once.
    pub live_bytes: Bytes,
    /// The most bytes that the pools reserved on an unlimited card.
    pub reserved_bytes: Bytes,
    /// The least memory with which the recorded calls complete.
    pub required_bytes: Bytes,
    /// The first kernel that was launched after the peak.
    pub kernel: Option<String>,
}

/// Buffers of one size that one kernel wrote.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema, Serialize)]
pub struct HeldBuffers {
    /// The bytes of all of them.
    pub bytes: Bytes,
    /// The number of buffers.
    pub count: usize,
    /// The bytes of each of them.
    pub each_bytes: Bytes,
    /// The kernel; none if the host wrote the data, or if nothing was written yet.
    pub written_by: Option<String>,
}

/// A buffer that is larger than any that a shader can bind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema, Serialize)]
#[schemars(rename = "TooLargeBuffer")]
pub struct TooLarge {
    /// Its size.
    pub bytes: Bytes,
    /// The largest that a shader can bind.
    pub largest_bytes: Bytes,
}

impl TooLarge {
    /// The largest buffer of `recording`, if `device`, whose memory has no limit, does not have such a one.
    fn find(device: &DeviceSpec, recording: &Recording) -> Option<Self> {
        let bytes = recording.buffers.iter().map(|buffer| buffer.bytes).max()?;
        let largest_bytes = device.largest_page();
        (bytes > largest_bytes).then_some(Self {
            bytes,
            largest_bytes,
        })
    }
}

impl ProgramReport {
    /// The report on the program `name`, from its `run_report` on a card like `device`.
    pub fn new(name: &str, device: &DeviceSpec, cards: &[Card], run_report: RunReport) -> Self {
        let recording = run_report.recording;
        let bytes = |buffer| recording.buffer(buffer).bytes;
        let reserved = replay(device, &recording, bytes).reserved;
        let lifetimes = Lifetimes::of(&recording);
        let timeline = Timeline::of(&recording);
        let position = timeline.peak(&recording).map_or(0, |peak| peak.position);
        let steps = run_report.steps.first().map(|step| Steps {
            count: run_report.steps.len(),
            launches: launches(&recording.events[step.clone()]),
            live_bytes: (step.start..recording.events.len())
                .map(|position| timeline.live(position))
                .max()
                .unwrap_or_default(),
        });
        let simulated = Simulated {
            reserved,
            ..Simulated::of(device.clone(), recording.clone())
        };
        let required = simulated.required();
        let cards = cards.iter();
        Self {
            schema: SCHEMA,
            program: name.into(),
            runtime: device.runtime,
            ending: run_report.ending,
            launches: launches(&recording.events),
            steps,
            tuned: run_report.tuned,
            too_large: TooLarge::find(device, &recording),
            peak: Peak {
                live_bytes: timeline.most(),
                reserved_bytes: reserved,
                required_bytes: required,
                kernel: recording
                    .next_launch(position)
                    .map(|(_, launch)| kernel_name(recording.kernel(launch))),
            },
            held: held(&recording, &lifetimes, position),
            cards: cards
                .map(|card| verdict(card, &recording, required))
                .collect(),
        }
    }

    /// Whether the program fits on every named card, and on some card at all.
    pub fn fits(&self) -> bool {
        self.too_large.is_none() && self.cards.iter().all(|verdict| verdict.fits)
    }
}

fn launches(events: &[Event]) -> usize {
    let launches = events
        .iter()
        .filter(|event| matches!(event, Event::Launch(_)));
    launches.count()
}

/// Whether the recorded calls complete on `card`.
fn verdict(card: &Card, recording: &Recording, required: Bytes) -> Verdict {
    let outcome = replay(&card.device, recording, |id| recording.buffer(id).bytes);
    let reason = outcome.failure.map(|failure| {
        let bytes = recording.buffer(failure.buffer).bytes;
        let writer = writer(recording, Lifetimes::of(recording).get(failure.buffer));
        let writer = writer.map(|kernel| format!(" for kernel {kernel}"));
        let limit = match failure.refusal {
            Refusal::TooLarge { largest } => format!(": one buffer has at most {largest} there"),
            _ => String::new(),
        };
        format!(
            "an allocation of {bytes}{} does not fit{limit}",
            writer.unwrap_or_default()
        )
    });
    Verdict {
        gpu: GpuName::new(card),
        fits: outcome.completed(),
        required_bytes: required,
        headroom_bytes: card.available().signed_difference(required),
        reason,
    }
}

/// The kernel that first wrote a buffer with this lifetime.
fn writer(recording: &Recording, life: Lifetime) -> Option<String> {
    match &recording.events[life.first_written?] {
        Event::Launch(launch) => Some(kernel_name(recording.kernel(*launch))),
        _ => None,
    }
}

/// The buffers in use right after the event at `position`.
fn held(recording: &Recording, lifetimes: &Lifetimes, position: usize) -> Vec<HeldBuffers> {
    let mut kinds: HashMap<(Bytes, Option<String>), usize> = HashMap::new();
    for buffer in Timeline::buffers(recording, lifetimes, position) {
        let writer = writer(recording, lifetimes.get(buffer));
        let bytes = recording.buffer(buffer).bytes;
        *kinds.entry((bytes, writer)).or_default() += 1;
    }
    let kinds = kinds.into_iter();
    let mut held: Vec<_> = kinds
        .map(|((size, written_by), count)| HeldBuffers {
            bytes: size * count as u64,
            count,
            each_bytes: size,
            written_by,
        })
        .collect();
    held.sort_by(|a, b| (b.bytes, &a.written_by).cmp(&(a.bytes, &b.written_by)));
    held.truncate(SHOWN);
    held
}

#[cfg(test)]
mod tests {
    use recording::KernelId;

    use super::*;

    /// `wgpu` lets a shader bind 2^31 - 1 bytes, in whole words (`CardSpec::LARGEST_BINDING`); CUDA has no such limit.
    #[test]
    fn a_buffer_that_no_shader_binds_is_named_with_the_limit() {
        let mut recording = Recording::default();
        let buffer = recording.add_buffer(Bytes::gib(4), false);
        recording.events.push(Event::Allocate(buffer));
        let found = |runtime| TooLarge::find(&DeviceSpec::unlimited(runtime), &recording);
        let limit = TooLarge {
            bytes: Bytes::gib(4),
            largest_bytes: Bytes(2_147_483_644),
        };
        assert_eq!(found(Runtime::Wgpu), Some(limit));
        assert_eq!(found(Runtime::Cuda), None);
        let device = DeviceSpec::unlimited(Runtime::Wgpu).with_memory(Bytes::gib(400), Bytes::ZERO);
        let card = Card::sized(device);
        let verdict = verdict(&card, &recording, Bytes::gib(4));
        let reason = verdict.reason.unwrap();
        assert!(
            !verdict.fits && reason.ends_with("at most 2.00 GiB there"),
            "{reason}"
        );
    }

    #[test]
    fn what_is_held_is_counted_by_size_and_writer() {
        let mut recording = Recording::default();
        recording
            .kernels
            .push("some_crate::matmul::matmul_entry<f32>".into());
        let mut buffers = Vec::new();
        for bytes in [100, 100, 100, 70] {
            let buffer = recording.add_buffer(Bytes(bytes), false);
            recording.events.push(Event::Allocate(buffer));
            buffers.push(buffer);
        }
        recording.add_launch(KernelId(0), None, &[], &buffers[..2]);
        let lifetimes = Lifetimes::of(&recording);
        let held = held(&recording, &lifetimes, recording.events.len() - 1);
        let of = |bytes, count, size, writer: Option<&str>| HeldBuffers {
            bytes: Bytes(bytes),
            count,
            each_bytes: Bytes(size),
            written_by: writer.map(str::to_string),
        };
        let expected = [
            of(200, 2, 100, Some("matmul")),
            of(100, 1, 100, None),
            of(70, 1, 70, None),
        ];
        assert_eq!(held, expected);
    }
}
