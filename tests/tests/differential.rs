//! Random jobs: they train on a simulated card, and the estimates are those that were measured on CUDA's own
//! runtime.

use estimator::{DeviceSpec, Runtime, Tuning};
use fit_check::simulate_step;
use fit_check_tests::differential::{Case, CaseModel, MeasuredRun, draw};
use model_zoo::Model;

/// The cases in `data/differential.jsonl` were measured on CUDA's own runtime with burn's default features: the
/// first 24 random networks of `differential --seed 3 --cases 48 --no-shrink --figures --record FILE`. Networks
/// of the zoo take too long without optimization.
#[cfg(all(feature = "fusion", feature = "autotune"))]
#[ignore = "takes more than a minute without optimization, and how long was not found out"]
#[test]
fn estimates_are_those_measured_on_cudas_runtime() {
    #[derive(serde::Deserialize)]
    struct Line {
        number: u64,
        case: Case,
        measured: MeasuredRun,
    }
    let lines: Vec<Line> = include_str!("../data/differential.jsonl")
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(lines.len(), 24);
    let apart = lines.iter().filter_map(|line| {
        let outcome = line.case.compare(&line.measured).unwrap();
        (!outcome.agrees()).then(|| format!("case {}: {outcome:?}", line.number))
    });
    let apart: Vec<_> = apart.collect();
    assert!(apart.is_empty(), "{}", apart.join("\n"));
}

/// A mistake in a random network would look like a difference between two runtimes.
#[test]
fn random_networks_train_on_a_simulated_card() {
    let mut trained = 0;
    for number in 0..60 {
        let case = draw(1, number).current();
        let model = case.network.model().unwrap();
        let job = case.request.resolve(&model).unwrap();
        assert_eq!(model.check(&job), Ok(()), "{case:?}");
        if matches!(model, CaseModel::Zoo(_)) {
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
    assert!(trained > 30, "{trained}");
}
