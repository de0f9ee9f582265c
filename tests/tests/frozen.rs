//! Frozen parameters have no gradients and no optimizer state.

use estimator::{Analysis, Bytes, Category, DeviceSpec, Estimate, Phase, Runtime, Simulated};
use fit_check::simulate_step;
use model_zoo::{Input, OptimizerKind, Request, find};

/// A step with Adam, on a card that lays tensors out without padding.
fn run(name: &str, side: Option<usize>, freeze: &[&str]) -> (Simulated, Estimate) {
    let variant = find(name).unwrap();
    let request = Request {
        batch: Some(1),
        optimizer: Some(OptimizerKind::Adam),
        input: Input {
            image: side.map(|side| [side, side]),
            ..Input::default()
        },
        freeze: freeze.iter().map(|path| path.to_string()).collect(),
        ..Request::default()
    };
    let job = request.resolve(&variant).unwrap();
    let spec = DeviceSpec::unlimited(Runtime::Wgpu);
    let simulated = simulate_step(&variant, &job, spec.clone()).unwrap();
    let estimate = simulated.estimate().unwrap();
    (simulated, estimate)
}

/// The bytes in use for `wanted` when `phase` ends for the last time.
fn at_end(simulated: &Simulated, phase: Phase, wanted: Category) -> Bytes {
    let recording = &simulated.recording;
    let mark = recording.marks.iter().rposition(|mark| mark.phase == phase);
    let categories = Analysis::of(recording).categories;
    let there = categories.buffers_at(mark.unwrap());
    there
        .filter(|(_, category)| *category == wanted)
        .map(|(buffer, _)| recording.buffer(buffer).bytes)
        .sum()
}

/// Adam keeps two fp32 numbers for each trained parameter, and none for a frozen one. The runtime rounds each
/// tensor up to its alignment of 32 bytes.
fn assert_adam_remembers_only_what_is_trained(simulated: &Simulated) {
    let remembered = at_end(simulated, Phase::Optimizer, Category::Optimizer);
    let parameters = simulated.parameters;
    let numbers = 2 * 4 * parameters.trainable;
    let rounding = 2 * 32 * parameters.tensors;
    assert!(
        (numbers..=numbers + rounding).contains(&remembered.0),
        "{remembered} of {numbers}"
    );
}

/// The layers below `path` have weights, but neither gradients nor optimizer state; some other layer has
/// both.
fn assert_frozen(estimate: &Estimate, path: &str) {
    let below = |layer: &&estimator::LayerMemory| layer.path.starts_with(path);
    let (frozen, trained): (Vec<_>, Vec<_>) = estimate.layers.iter().partition(below);
    assert!(frozen.iter().any(|layer| layer.parameter_bytes.0 > 0));
    for layer in frozen {
        assert_eq!(layer.gradient_bytes.0, 0, "{}", layer.path);
        assert_eq!(layer.optimizer_bytes.0, 0, "{}", layer.path);
    }
    let trains =
        |layer: &&estimator::LayerMemory| layer.gradient_bytes.0 > 0 && layer.optimizer_bytes.0 > 0;
    assert!(trained.iter().any(trains));
}

#[test]
fn vgg_in_pix2pixhd() {
    let (simulated, estimate) = run("pix2pixhd-512p", Some(64), &[]);
    assert_frozen(&estimate, "vgg.");
    assert_adam_remembers_only_what_is_trained(&simulated);
    // `features[:30]` of torchvision's VGG-19.
    assert_eq!(estimate.parameters.frozen, 12_944_960);
}

#[test]
fn stages_of_mask_rcnn() {
    let (simulated, estimate) = run("mask-rcnn-r50-fpn", Some(256), &[]);
    for path in ["body.conv1", "body.layer1.", "body.bn1"] {
        assert_frozen(&estimate, path);
    }
    assert_adam_remembers_only_what_is_trained(&simulated);
    // All 44,401,393 parameters of torchvision's `maskrcnn_resnet50_fpn`, of which its recipe trains
    // 44,178,993. The scales and shifts of its frozen normalisations are buffers there and frozen parameters
    // here: 53,120, two for each of 26,560 channels.
    assert_eq!(estimate.parameters.trainable, 44_178_993);
    assert_eq!(estimate.parameters.frozen, 44_401_393 - 44_178_993 + 53_120);
}

#[test]
fn what_the_user_freezes() {
    let (_, all) = run("resnet-18", Some(64), &[]);
    let (simulated, estimate) = run("resnet-18", Some(64), &["layer1", "layer2.0.conv1"]);
    for path in ["layer1.", "layer2.0.conv1"] {
        assert_frozen(&estimate, path);
    }
    assert_adam_remembers_only_what_is_trained(&simulated);
    // Frozen weights stay weights.
    let weights = |estimate: &Estimate| {
        let parameters = estimate.parameters;
        parameters.trainable + parameters.frozen
    };
    assert_eq!(weights(&estimate), weights(&all));
    assert_eq!(all.parameters.frozen, 0);
}

/// In the reference, the noise of the finished generator and the average style are buffers.
#[test]
fn the_fixed_noise_of_stylegan_is_no_weight() {
    let (_, estimate) = run("stylegan-256", None, &[]);
    let counts = find("stylegan-256").unwrap().counts;
    // The moving average of the generator, whose count Karras et al. publish with the discriminator's.
    assert_eq!(estimate.parameters.frozen, 26_086_229);
    assert_eq!(estimate.parameters.trainable, counts.trainable);
    // The generator has noise and an average style, and so has its moving average.
    assert_eq!(estimate.parameters.buffers, 2 * counts.buffers);
}
