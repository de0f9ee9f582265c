//! `docs/schema.json` allows the answers in JSON, and describes all of their fields.

mod command;

use command::fit_check;
use estimator::{Bytes, Gpu, RunReport, Runtime, Tuning};
use fit_check::cargo::ProgramReport;
use fit_check::comparison::Errors;
use fit_check::counting_driver::{
    CallPosition, CardUsage, Ended, ProgramMemoryReport, Refusal, Usage,
};
use fit_check::job_info::{GpuName, JobInfo, SCHEMA};
use fit_check::measure::Outcome;
use fit_check::records::Record;
use fit_check::report::{BatchRun, LimitReport, VerifyReport};
use fit_check::resolve::Card;
use fit_check::torch_program::measured::Measured;
use fit_check::torch_program::verify_report::{TorchVerifyReport, UsedGpu};
use model_zoo::Request;
use recording::{Event, KernelId, Recording};
use serde_json::{Value, json};
use torch_memory::allocator::AllocatorConfig;
use torch_memory::counters::Counters;
use torch_memory::stream;

fn schema() -> Value {
    serde_json::from_str(include_str!("../../docs/schema.json")).unwrap()
}

#[test]
fn the_schema_is_that_of_the_types() {
    assert!(
        fit_check::schema::schema() == schema(),
        "docs/schema.json is stale: run `cargo run -p docs -- schema > docs/schema.json`"
    );
}

#[test]
fn answers_are_what_the_schema_says() {
    let answers: [(&str, &str); 14] = [
        ("estimate", "estimate resnet-20"),
        (
            "estimate",
            "estimate bert-base --batch 1 --lora 4 --gpu l4 --gpu 8GB --accumulate 2",
        ),
        (
            "estimate",
            "estimate unet --memory 1GiB --checkpointing --freeze up",
        ),
        ("estimate", "estimate tests/own_models/tiny-bert"),
        ("max_batch", "max-batch alexnet --gpu 24GB"),
        ("max_batch", "max-batch vgg-16 --memory 100MB"),
        ("max_batch", "max-batch alexnet --memory 1GiB"),
        ("max_batch", "max-batch gpt2 --seq 64 --gpu 24GB --gpu l4"),
        (
            "table",
            "table unet --gpus l4,m60 --precision mixed --precision fp32",
        ),
        ("table", "table unet --gpus rtx-3090,l4"),
        ("gpus_fits", "gpus --fits alexnet --batch 4"),
        ("models", "models"),
        ("gpus", "gpus"),
        ("verify_list", "verify --list"),
    ];
    for (definition, command) in answers {
        let problems = problems(definition, &answer(command));
        assert!(problems.is_empty(), "{command}: {problems:#?}");
    }
}

/// The answer to a command in JSON.
fn answer(command: &str) -> Value {
    let output = fit_check()
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .args(command.split(' '))
        .args(["--format", "json", "--quiet"])
        .output()
        .unwrap();
    assert!(output.stderr.is_empty(), "{command}: {output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Only a build that tunes chooses between kernels.
#[test]
#[cfg(feature = "autotune")]
fn an_answer_about_kernels_is_what_the_schema_says() {
    let answer = answer("estimate resnet-20 --kernels");
    let problems = problems("estimate", &answer);
    assert!(problems.is_empty(), "{problems:#?}");
    assert!(
        answer["kernels"]
            .as_array()
            .is_some_and(|kernels| !kernels.is_empty())
    );
    let [least, most] = ["least_bytes", "most_bytes"].map(|end| answer["range"][end].as_u64());
    assert!(Some(0) < least && least <= most, "{least:?} to {most:?}");
}

/// Answers about a device, from a stored measurement.
#[test]
fn answers_about_a_device_are_what_the_schema_says() {
    let record = include_str!("../../docs/data/records.jsonl")
        .lines()
        .next()
        .unwrap();
    let record: Record = serde_json::from_str(record).unwrap();
    let variant = model_zoo::find("resnet-20").unwrap();
    let job = Request::default().resolve(&variant).unwrap();
    let asked = JobInfo::of(&variant, &job, Runtime::Wgpu, Some(Tuning::Cold), Some(4));
    let endings = [
        Outcome::Trained,
        Outcome::OutOfMemory("no room".into()),
        Outcome::Killed(9),
    ];
    for ending in endings {
        let report = VerifyReport {
            asked: asked.clone(),
            device: record.device.clone(),
            mode: record.mode,
            ending: ending.clone(),
            error: (ending == Outcome::Trained)
                .then(|| Errors::of(&record.estimated, &record.measured)),
            estimated: record.estimated.clone(),
            other_run: None,
            measured: record.measured.clone(),
            tuner_requests: Some(3),
            tolerance: 0.02,
            agrees: true,
        };
        let found = problems("verify", &json!(report));
        assert!(found.is_empty(), "{found:#?}");
        let run = BatchRun {
            batch: 4,
            required_bytes: Bytes(1),
            fits: true,
            may_fit: true,
            tuner_requests: Some(3),
            ending,
        };
        let report = LimitReport {
            asked: asked.clone(),
            device: record.device.clone(),
            budget_bytes: Bytes(1),
            overhead_bytes: Bytes(1),
            runs: [run.clone(), run],
            agrees: true,
        };
        let found = problems("verify_max_batch", &json!(report));
        assert!(found.is_empty(), "{found:#?}");
    }
}

/// The answer about a program, from a small recording instead of a build.
#[test]
fn answers_about_a_program_are_what_the_schema_says() {
    let mut recording = Recording::default();
    recording.kernels.push("matmul".into());
    let buffer = recording.add_buffer(Bytes::mib(3), false);
    recording.events.push(Event::Allocate(buffer));
    recording.add_launch(KernelId(0), None, &[], &[buffer]);
    let card = Card::of(Gpu::find("l4").unwrap(), Runtime::Cuda, Tuning::Warm);
    for steps in [vec![1..2, 1..2], Vec::new()] {
        let run_report = RunReport {
            ending: estimator::StopReason::Time,
            steps,
            tuned: false,
            recording: recording.clone(),
        };
        let spec = card.device.without_limit();
        let report = ProgramReport::new("train", &spec, std::slice::from_ref(&card), run_report);
        let found = problems("program", &json!(report));
        assert!(found.is_empty(), "{found:#?}");
    }
}

/// The answer of `run` about a program, without running one.
#[test]
fn answers_about_a_run_are_what_the_schema_says() {
    let card = Card::of(Gpu::find("l4").unwrap(), Runtime::Cuda, Tuning::Warm);
    let usage = Usage {
        refused: vec![Refusal {
            bytes: Bytes(5),
            used_bytes: Bytes(1),
            moment: CallPosition::default(),
        }],
        ..Usage::default()
    };
    let endings = [
        Ended::Exited(0),
        Ended::Signalled(9),
        Ended::TimedOut(600),
        Ended::Interrupted,
    ];
    let fits = CardUsage::new(GpuName::new(&card), Usage::default(), Ended::Exited(0));
    assert_eq!(fits.fits, Some(true));
    let unknown = CardUsage::new(GpuName::new(&card), Usage::default(), Ended::Exited(1));
    assert_eq!(unknown.fits, None);
    for ended in endings {
        let report = ProgramMemoryReport {
            schema: SCHEMA,
            program: "train".into(),
            ended,
            cards: vec![CardUsage::new(GpuName::new(&card), usage.clone(), ended)],
        };
        assert_eq!(report.fits(), Some(false));
        let found = problems("run", &json!(report));
        assert!(found.is_empty(), "{found:#?}");
    }
}

/// The answer of `verify` about a program in PyTorch, with the counters of a replay in the place of a GPU's.
#[test]
fn answers_about_a_measured_program_are_what_the_schema_says() {
    let lines = include_bytes!("../../estimator/torch/data/linear.jsonl");
    let recording = stream::read(&lines[..]).unwrap();
    let counters = Counters::of(&recording.trace, &AllocatorConfig::default(), u64::MAX);
    assert!(!counters.is_empty());
    for ending in [Outcome::Trained, Outcome::OutOfMemory("no room".into())] {
        for free in [Bytes::gib(8), Bytes::mib(1)] {
            let measured = Measured {
                recording: stream::Recording {
                    counters: counters.clone(),
                    ..recording.clone()
                },
                ending: ending.clone(),
                device: Some(Bytes::gib(1)),
            };
            let gpu = UsedGpu {
                name: "NVIDIA L4".into(),
                free,
                overhead: Bytes::ZERO,
            };
            let report = TorchVerifyReport::new("train.py".into(), gpu, &recording, measured, 0.02);
            let found = problems("verify_torch", &json!(report.unwrap()));
            assert!(found.is_empty(), "{found:#?}");
        }
    }
}

#[test]
fn what_is_wrong_is_found() {
    let gpu = json!({ "name": "L4", "usable_bytes": 1, "overhead_bytes": 1 });
    assert!(problems("GpuName", &gpu).is_empty());
    for (field, value) in [
        ("name", json!(4)),
        ("usable_bytes", json!(-1)),
        ("overhead_bytes", Value::Null),
        ("provenance", json!("guessed")),
        ("undescribed", json!(1)),
    ] {
        let mut wrong = gpu.clone();
        wrong[field] = value;
        assert!(!problems("GpuName", &wrong).is_empty(), "{field}");
    }
    assert!(!problems("GpuName", &json!({})).is_empty());
}

/// The places where `value` does not match the schema, or has fields that the schema does not describe.
fn problems(definition: &str, value: &Value) -> Vec<String> {
    let mut schema = schema();
    forbid_undescribed(&mut schema);
    schema["anyOf"] = json!([{ "$ref": format!("#/$defs/{definition}") }]);
    let validator = jsonschema::draft202012::new(&schema).expect("a schema");
    let errors = validator.iter_errors(value);
    errors
        .map(|error| format!("{}: {error}", error.instance_path()))
        .collect()
}

/// Forbids all fields that `schema` does not describe.
fn forbid_undescribed(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            fields.values_mut().for_each(forbid_undescribed);
            if fields.get("properties").is_some_and(Value::is_object) && fields.contains_key("type")
            {
                fields.insert("unevaluatedProperties".into(), json!(false));
            }
        }
        Value::Array(items) => items.iter_mut().for_each(forbid_undescribed),
        _ => {}
    }
}
