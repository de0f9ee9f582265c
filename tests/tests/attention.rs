//! The activations of attention grow with the square of the sequence, all others linearly.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use estimator::{Analysis, Bytes, Category, DeviceSpec, Phase, Runtime, simulate};
use fit_check::{SimulatedObserver, training_device};
use model_zoo::{BertConfig, Input, Request, find, train_bert_classifier};
use recording::Recording;

/// Each length is twice the one before.
const LENGTHS: [usize; 4] = [128, 256, 512, 1024];

/// The step with each length.
static RECORDED: LazyLock<[Recording; 4]> = LazyLock::new(|| LENGTHS.map(bert));

/// A fine-tuning step of BERT base with one sequence of `seq` tokens. Published BERT has 512
/// positions; this one has as many as the longest sequence here, so that nothing but the
/// sequence changes.
fn bert(seq: usize) -> Recording {
    let variant = find("bert-base").unwrap();
    let request = Request {
        batch: Some(1),
        input: Input {
            seq: Some(seq),
            ..Input::default()
        },
        ..Request::default()
    };
    let job = request.resolve(&variant).unwrap();
    let config = BertConfig {
        positions: LENGTHS[3],
        ..BertConfig::base(job.vocab())
    };
    // wgpu lays tensors out without padding, so buffers have the sizes of their elements.
    let spec = DeviceSpec::unlimited(Runtime::Wgpu);
    let simulated = simulate(spec, job.precision.float_type(), |run| {
        let device = training_device(run.device(), &job);
        let observer = &mut SimulatedObserver::new(run);
        let _ = train_bert_classifier(&config, &job, &device, 1, observer);
    });
    simulated.unwrap().recording
}

/// The sizes of the buffers that the forward pass keeps for the backward pass, each with its count.
fn kept(recording: &Recording) -> BTreeMap<Bytes, u64> {
    let marks = &recording.marks;
    let forward = marks.iter().rposition(|mark| mark.phase == Phase::Forward);
    let categories = Analysis::of(recording).categories;
    let mut sizes = BTreeMap::new();
    for (buffer, category) in categories.buffers_at(forward.unwrap()) {
        if category == Category::Activations {
            *sizes.entry(recording.buffer(buffer).bytes).or_default() += 1;
        }
    }
    sizes
}

fn total(kept: &BTreeMap<Bytes, u64>) -> i64 {
    kept.iter()
        .map(|(bytes, n)| bytes.0 as i64 * *n as i64)
        .sum()
}

/// If a step keeps `a + b s + c s^2` bytes for `s` tokens, then the bytes for twice the tokens less twice the
/// bytes for `s` are `2 c s^2 - a`, whatever `b` is. The differences of that are `6 c s^2` and `24 c s^2`:
/// one to four. Any other term would change that ratio.
#[test]
fn kept_bytes_are_quadratic_in_the_sequence() {
    let kept = RECORDED.each_ref().map(|recording| total(&kept(recording)));
    let doubled: Vec<_> = kept.windows(2).map(|pair| pair[1] - 2 * pair[0]).collect();
    let [first, second] = [doubled[1] - doubled[0], doubled[2] - doubled[1]];
    assert_eq!(second, 4 * first);
    // 12 layers of 12 heads keep matrices of `s` by `s` fp32 numbers, and nothing else is
    // quadratic: `c` is a whole number of such matrices.
    let matrices = 12 * 12 * 4;
    let seq = LENGTHS[0] as i64;
    assert_eq!(first % (6 * seq * seq * matrices), 0);
    assert!(first > 0);
}

/// Buffer by buffer: with twice the tokens, those of attention are four times as large, and all others twice
/// as large or as large as before.
#[test]
fn only_attention_matrices_are_quadratic() {
    for (pair, recorded) in LENGTHS.windows(2).zip(RECORDED.windows(2)) {
        let [few, more] = [&recorded[0], &recorded[1]];
        assert_eq!(few.events.len(), more.events.len(), "the same calls");
        let forward = few
            .marks
            .iter()
            .rposition(|mark| mark.phase == Phase::Forward);
        let categories = Analysis::of(few).categories;
        for (buffer, category) in categories.buffers_at(forward.unwrap()) {
            if category != Category::Activations {
                continue;
            }
            let [before, after] = [few, more].map(|recording| recording.buffer(buffer).bytes);
            // 12 heads, each with an fp32 number for each pair of tokens.
            let matrix = before.0 == (12 * pair[0] * pair[0] * 4) as u64;
            match after.0 / before.0 {
                1 | 2 => assert_eq!(after.0 % before.0, 0),
                growth => assert!(matrix && growth == 4, "{before} became {after}"),
            }
        }
    }
}
