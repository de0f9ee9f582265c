//! Compares today's estimates with measurements on a GPU, and on CUDA's own runtime with the counting driver:
//! `data/records.jsonl` and `data/largest_batches.jsonl`. `.ci/run` cannot measure them again, since that
//! takes a GPU, or a build with LLVM (`.ci/cuda.sh`).

use std::collections::{BTreeMap, BTreeSet};

use docs::records::Records;
use estimator::{Bytes, DeviceSpec, Gpu, Runtime, Tuning};
use fit_check::comparison::Figures;
use fit_check::counting_driver::UNLIMITED;
use fit_check::measure::DeviceKind;
use fit_check::preset;
use fit_check::records::{LargestBatchRecord, Record, RecordedOutcome};
use fit_check::simulate_step;
use model_zoo::{Precision, Request};

/// The networks of the zoo that were measured in every configuration.
const MEASURED: usize = 52;

/// Networks that this test leaves out, since their step takes seconds to simulate.
const SLOW: [&str; 9] = [
    "awd-lstm-ptb",
    "awd-lstm-wt2",
    "bilstm-cnn-crf",
    "char-lm-enwik8",
    "char-lm-ptb",
    "elmo-bilm",
    "infersent",
    "nasnet-a-large",
    "stylegan",
];

/// The networks that are run in a build that fuses and tunes, where a step takes many times as long.
const TUNED: [&str; 3] = ["resnet-20", "resnet-18", "gpt2"];

fn measured_on(kind: DeviceKind) -> Vec<Record> {
    let mut records = Records::read().unwrap().steps;
    records.retain(|record| record.device.kind == kind);
    records
}

fn counted() -> Vec<Record> {
    measured_on(DeviceKind::Counting)
}

/// The card of `record`, without a limit.
fn card(record: &Record) -> DeviceSpec {
    if record.device.kind == DeviceKind::Gpu {
        let gpu = Gpu::find(record.device.name.trim_start_matches("NVIDIA ")).unwrap();
        return gpu.spec(Runtime::Cuda);
    }
    let mut card = DeviceSpec::unlimited(Runtime::Cuda);
    card.card.name = record.device.name.clone();
    card.card.total = Some(UNLIMITED);
    card
}

fn estimated(record: &Record) -> Figures {
    let variant = model_zoo::find(&record.model).unwrap();
    let request = Request {
        batch: Some(record.batch),
        precision: record.precision,
        optimizer: Some(record.optimizer),
        input: record.input,
        ..Request::default()
    };
    let job = request.resolve(&variant).unwrap();
    let tuning = record.burn.tuning.unwrap_or(Tuning::Cold);
    let card = card(record).with_tuning(tuning);
    Figures::estimated(&simulate_step(&variant, &job, card).unwrap(), None)
}

#[test]
fn estimates_are_still_those_that_were_held_against_the_runtime() {
    let tuned = cfg!(feature = "autotune");
    let mut records = counted();
    records.retain(|record| {
        let (burn, model) = (&record.burn, record.model.as_str());
        let same_build = burn.autotune == tuned && burn.fusion == cfg!(feature = "fusion");
        let quick = if tuned {
            TUNED.contains(&model)
        } else {
            !SLOW.contains(&model)
        };
        same_build && quick
    });
    let models: BTreeSet<_> = records.iter().map(|record| &record.model).collect();
    let least = if tuned {
        TUNED.len()
    } else {
        MEASURED - SLOW.len()
    };
    assert!(models.len() >= least, "only {models:?}");
    for record in &records {
        assert_estimate_is_still_that_of(record);
    }
}

fn assert_estimate_is_still_that_of(record: &Record) {
    let today = estimated(record);
    let phases = [&today, &record.estimated].map(|figures| figures.phases.len());
    assert_eq!(phases[0], phases[1], "{}", record.model);
    for (now, then) in today.zip_phases(&record.estimated) {
        assert_eq!(
            (now.allocations, now.live_bytes, now.reserved_bytes),
            (then.allocations, then.live_bytes, then.reserved_bytes),
            "{} {}, {} of step {}",
            record.model,
            record.precision,
            now.phase,
            now.step
        );
    }
    assert_eq!(
        today.peak_reserved_bytes, record.estimated.peak_reserved_bytes,
        "{}",
        record.model
    );
}

/// What GPUs had in use at the end of every phase is as estimated, but for the metadata of launches.
#[test]
#[cfg(all(feature = "fusion", feature = "autotune"))]
fn gpus_had_in_use_what_is_estimated() {
    let records = measured_on(DeviceKind::Gpu);
    assert!(!records.is_empty());
    for record in &records {
        assert_estimate_is_still_that_of(record);
        for (estimated, measured) in record.estimated.zip_phases(&record.measured) {
            let apart = estimated.live_bytes.0.abs_diff(measured.live_bytes.0);
            assert!(apart <= 1024, "{}: {apart} bytes", record.model);
        }
    }
}

/// With burn's default features and in the plain configuration, in fp32 and in mixed precision, at least 50 of 52
/// published networks at their recipes have the estimated bytes in use at the end of every phase.
#[test]
fn nearly_every_network_is_the_same_to_the_byte() {
    let mut found: BTreeMap<_, (usize, BTreeSet<_>)> = BTreeMap::new();
    for record in counted() {
        if record.burn.tuning == Some(Tuning::Warm) {
            continue;
        }
        let (estimated, measured) = (&record.estimated, &record.measured);
        let equal = estimated.phases.len() == measured.phases.len()
            && estimated
                .zip_phases(measured)
                .all(|(e, m)| e.live_bytes == m.live_bytes);
        let (different, models) = found
            .entry((record.burn.autotune, record.precision.to_string()))
            .or_default();
        *different += usize::from(!equal);
        models.insert(record.model);
    }
    for tuned in [false, true] {
        for precision in ["fp32", "mixed"] {
            let (different, models) = &found[&(tuned, precision.to_string())];
            assert!(models.len() >= MEASURED, "{models:?}");
            assert!(*different <= 2, "{found:?}");
        }
    }
}

/// Every figure is the estimated one, but for seven steps, whose pages are those of another moment (docs/accuracy.md).
#[test]
fn other_pages_than_estimated_are_known() {
    let counted = counted();
    let apart = counted.iter().filter_map(|record| {
        let bytes = record.estimated.distance(&record.measured);
        let precision = record.precision.to_string();
        (bytes > Bytes::ZERO).then_some((record.model.as_str(), precision))
    });
    let known = [
        ("vgg-19", "fp32"),
        ("nasnet-a-large", "mixed"),
        ("pix2pixhd", "mixed"),
        ("stylegan-256", "mixed"),
        ("xlm-mt-en-fr", "mixed"),
        ("alexnet", "fp32"),
        ("unet", "fp32"),
    ];
    let known = known.map(|(model, precision)| (model, precision.to_string()));
    assert_eq!(apart.collect::<Vec<_>>(), known);
}

/// Every recorded largest batch trained, but for two, which docs/accuracy.md names: each trained in another run.
#[test]
fn every_false_fit_is_known() {
    let records = Records::read().unwrap().largest_batches;
    let counted: Vec<_> = records
        .iter()
        .filter(|record| record.device.kind == DeviceKind::Counting)
        .collect();
    assert!(counted.len() >= 300, "{} cells", counted.len());
    let false_fits = counted
        .iter()
        .filter(|record| record.ending != RecordedOutcome::Trained)
        .map(|record| {
            let precision = record.precision.to_string();
            let (model, card) = (record.model.as_str(), record.device.name.as_str());
            (model, precision, card, record.batch)
        });
    let fp32 = || "fp32".to_string();
    let known = [
        ("xlm-mt-en-fr", fp32(), "NVIDIA TITAN RTX", 114),
        ("stylegan", fp32(), "NVIDIA GeForce GTX 1080 Ti", 8),
    ];
    assert_eq!(false_fits.collect::<Vec<_>>(), known);
}

/// With burn's default features, tuned beforehand, every cell of the preset `lambda-2020` in fp32 and mixed precision was
/// trained, but for those in which not one batch fits.
#[test]
fn every_cell_of_the_preset_was_trained() {
    let records = Records::read().unwrap().largest_batches;
    let mut missing = Vec::new();
    for row in preset::lambda_2020() {
        let variant = model_zoo::find(&row.model).unwrap();
        for precision in [Precision::Fp32, Precision::Mixed] {
            let request = Request {
                precision,
                ..row.request()
            };
            let job = request.resolve(&variant).unwrap();
            for card in preset::columns() {
                let card = Gpu::find(&card.card).unwrap().name.as_str();
                let is_of_cell = |record: &LargestBatchRecord| {
                    record.burn.tuning == Some(Tuning::Warm)
                        && record.device.name == format!("NVIDIA {card}")
                        && record.model == row.model
                        && record.precision == precision
                        && record.optimizer == job.optimizer
                        && record.input == job.input
                };
                if !records.iter().any(is_of_cell) {
                    missing.push((row.model.clone(), precision.to_string(), card));
                }
            }
        }
    }
    let small = [
        "GeForce RTX 2060",
        "GeForce RTX 2070",
        "GeForce RTX 2080",
        "GeForce GTX 1080 Ti",
        "GeForce RTX 2080 Ti",
    ];
    let both = ["fp32", "mixed"];
    let hd = both.iter().flat_map(|precision| {
        let cell = move |card| ("pix2pixhd".to_string(), precision.to_string(), card);
        small.map(cell)
    });
    let of_2060 = [
        ("deeplabv3-r101", "fp32"),
        ("mt-dnn-large", "fp32"),
        ("mt-dnn-large", "mixed"),
        ("xlm-mt-en-fr", "mixed"),
    ];
    let of_2060 = of_2060.map(|(model, precision)| (model.into(), precision.into(), small[0]));
    let mut nothing_fits: Vec<_> = hd.chain(of_2060).collect();
    nothing_fits.sort();
    missing.sort();
    assert_eq!(missing, nothing_fits);
}
