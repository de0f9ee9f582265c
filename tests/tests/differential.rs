//! Random jobs: they train on a simulated card, and the estimates are those that were measured on CUDA's own
//! runtime.

use std::collections::BTreeSet;

use estimator::{DeviceSpec, Runtime, Tuning};
use fit_check::simulate_step;
use fit_check_tests::differential::{CaseRecord, NetworkSpec, draw, small_jobs, switches};
use model_zoo::Model;

/// The cases in `data/differential.jsonl` are random networks: networks of the zoo take too long without
/// optimization. Those of burn's default features are of `--seed 6`, but for four of `--seed 60` (16-bit floats on cards
/// before Volta), those of the plain configuration of `--seed 3`; all were run with `--no-shrink`.
#[cfg(any(
    all(feature = "fusion", feature = "autotune"),
    not(any(feature = "fusion", feature = "autotune"))
))]
#[test]
fn estimates_are_those_measured_on_cudas_runtime() {
    let lines = include_str!("../data/differential.jsonl").lines();
    let lines = lines.map(|line| serde_json::from_str::<CaseRecord>(line).unwrap());
    let lines: Vec<_> = lines.filter(|line| line.burn == switches()).collect();
    assert_eq!(lines.len(), if cfg!(feature = "fusion") { 37 } else { 24 });
    let apart = lines.iter().filter_map(|line| {
        let measured = line.measured.as_ref().expect("recorded with `--figures`");
        let outcome = line.case.compare(measured).unwrap();
        let name = format!("seed {}, case {}", line.seed, line.number);
        (!outcome.agrees()).then(|| format!("{name}: {outcome:?}"))
    });
    let apart: Vec<_> = apart.collect();
    assert!(apart.is_empty(), "{}", apart.join("\n"));
}

#[test]
fn every_file_of_the_zoo_has_a_small_job() {
    let files = small_jobs().into_iter().filter_map(|case| {
        let model = case.network.model().unwrap();
        let job = case.request.resolve(&model).unwrap();
        assert_eq!(model.check(&job), Ok(()), "{case:?}");
        model.file()
    });
    let variants = model_zoo::variants();
    let all: BTreeSet<_> = variants.iter().map(|variant| variant.file).collect();
    assert_eq!(files.collect::<BTreeSet<_>>(), all);
}

/// A mistake in a random network would look like a difference between two runtimes.
#[test]
fn random_networks_and_configurations_train_on_a_simulated_card() {
    let mut trained = 0;
    for number in 0..40 {
        let case = draw(1, number).current();
        let model = case.network.model().unwrap();
        let job = case.request.resolve(&model).unwrap();
        assert_eq!(model.check(&job), Ok(()), "{case:?}");
        if matches!(case.network, NetworkSpec::Zoo(_)) {
            continue;
        }
        let device = DeviceSpec::unlimited(Runtime::Cuda)
            .with_tuning(Tuning::Cold)
            .unfused();
        match simulate_step(&model, &job, device) {
            Ok(simulated) => assert_eq!(simulated.outcome(), Ok(()), "{case:?}"),
            // burn has no backward pass of a bilinear or bicubic interpolation on GPUs.
            Err(error) if error.to_string().contains("is not supported") => continue,
            Err(error) => panic!("{error}: {case:?}"),
        }
        trained += 1;
    }
    assert!(trained > 20, "{trained}");
}
