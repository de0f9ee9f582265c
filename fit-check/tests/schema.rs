//! Answers in JSON are what `docs/schema.json` says, and it says all that is in them.

use std::process::Command;

use estimator::record::{Event, KernelId, Recording};
use estimator::{Account, Bytes, Gpu, Runtime, Tuning};
use fit_check::ask::Card;
use fit_check::cargo::ProgramReport;
use fit_check::comparison::Errors;
use fit_check::counting_driver::{CardUsage, Ended, Moment, Refusal, RunReport, Usage};
use fit_check::measure::Ending;
use fit_check::records;
use fit_check::report::{Asked, BatchRun, GpuName, LimitReport, SCHEMA, VerifyReport};
use model_zoo::Request;
use serde_json::{Value, json};

fn schema() -> Value {
    serde_json::from_str(include_str!("../../docs/schema.json")).unwrap()
}

#[test]
fn answers_are_what_the_schema_says() {
    let answers: [(&str, &str); 13] = [
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
        (
            "lower_bound",
            "estimate tests/own_models/weights-only --gpu 24GB",
        ),
        ("max_batch", "max-batch resnet-20 --gpu 24GB"),
        ("max_batch", "max-batch vgg-16 --memory 100MB"),
        ("max_batch", "max-batch gpt2 --seq 64 --gpu 24GB --gpu l4"),
        (
            "table",
            "table unet --gpus l4,m60 --precision mixed --precision fp32",
        ),
        ("table", "table unet --gpus rtx-3090,l4 --powers-of-two"),
        ("gpus_fits", "gpus --fits resnet-20 --batch 4"),
        ("models", "models"),
        ("gpus", "gpus"),
    ];
    for (definition, command) in answers {
        let output = Command::new(env!("CARGO_BIN_EXE_fit-check"))
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .args(command.split(' '))
            .args(["--format", "json", "--quiet"])
            .output()
            .unwrap();
        assert!(output.stderr.is_empty(), "{command}: {output:?}");
        let answer = serde_json::from_slice(&output.stdout).unwrap();
        let problems = problems(definition, &answer);
        assert!(problems.is_empty(), "{command}: {problems:#?}");
    }
}

/// Answers about a device, made of a stored measurement.
#[test]
fn answers_about_a_device_are_what_the_schema_says() {
    let record = records::all().unwrap().remove(0);
    let variant = model_zoo::find("resnet-20").unwrap();
    let job = Request::default().resolve(&variant).unwrap();
    let asked = Asked::of(&variant, &job, Runtime::Wgpu, Tuning::Cold, Some(4));
    let endings = [
        Ending::Trained,
        Ending::OutOfMemory("no room".into()),
        Ending::Killed(9),
    ];
    for ending in endings {
        let report = VerifyReport {
            asked: asked.clone(),
            device: record.device.clone(),
            mode: record.mode,
            ending: ending.clone(),
            error: Errors::of(&record.estimated, &record.measured),
            estimated: record.estimated.clone(),
            measured: record.measured.clone(),
            tolerance: 0.02,
            agrees: true,
        };
        let found = problems("verify", &json!(report));
        assert!(found.is_empty(), "{found:#?}");
        let run = BatchRun {
            batch: 4,
            required_bytes: Bytes(1),
            fits: true,
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

/// The answer about a program that did little, and that needs not be built for it.
#[test]
fn answers_about_a_program_are_what_the_schema_says() {
    let mut recording = Recording::default();
    recording.kernels.push("matmul");
    let buffer = recording.add_buffer(Bytes::mib(3), false);
    recording.events.push(Event::Allocate(buffer));
    recording.add_launch(KernelId(0), None, &[], &[buffer]);
    let card = Card::of(Gpu::find("l4").unwrap(), Runtime::Cuda);
    for steps in [vec![1..2, 1..2], Vec::new()] {
        let account = Account {
            ending: estimator::Ending::Time,
            steps,
            tuned: false,
            recording: recording.clone(),
        };
        let spec = card.spec.without_limit();
        let report = ProgramReport::new("train", &spec, std::slice::from_ref(&card), account);
        let found = problems("program", &json!(report));
        assert!(found.is_empty(), "{found:#?}");
    }
}

/// The answer about a program on a card of which only a journal is known.
#[test]
fn answers_about_a_run_are_what_the_schema_says() {
    let card = Card::of(Gpu::find("l4").unwrap(), Runtime::Cuda);
    let usage = Usage {
        refused: vec![Refusal {
            bytes: Bytes(5),
            used_bytes: Bytes(1),
            moment: Moment::default(),
        }],
        ..Usage::default()
    };
    let endings = [
        Ended::Exited(0),
        Ended::Signalled(9),
        Ended::TimedOut(600),
        Ended::Interrupted,
    ];
    for ended in endings {
        let report = RunReport {
            schema: SCHEMA,
            program: "train".into(),
            ended,
            cards: vec![CardUsage::new(GpuName::new(&card), usage.clone())],
        };
        assert!(!report.fits());
        let found = problems("run", &json!(report));
        assert!(found.is_empty(), "{found:#?}");
    }
}

#[test]
fn what_is_wrong_is_found() {
    let gpu = json!({ "name": "L4", "usable_bytes": 1, "overhead_bytes": 1 });
    assert!(problems("gpu", &gpu).is_empty());
    for (field, value) in [
        ("name", json!(4)),
        ("usable_bytes", json!(-1)),
        ("overhead_bytes", Value::Null),
        ("provenance", json!("guessed")),
        ("undescribed", json!(1)),
    ] {
        let mut wrong = gpu.clone();
        wrong[field] = value;
        assert_eq!(problems("gpu", &wrong).len(), 1, "{field}");
    }
    assert_eq!(problems("gpu", &json!({})).len(), 3);
}

/// Where `value` is not what the schema defines, or holds more than it describes.
fn problems(definition: &str, value: &Value) -> Vec<String> {
    let schema = schema();
    let mut check = Check {
        definitions: &schema["$defs"],
        problems: Vec::new(),
    };
    check.value(&schema["$defs"][definition], value, definition);
    check.problems
}

/// The part of JSON Schema 2020-12 that `docs/schema.json` uses.
struct Check<'a> {
    definitions: &'a Value,
    problems: Vec<String>,
}

impl Check<'_> {
    fn value(&mut self, schema: &Value, value: &Value, at: &str) {
        for (keyword, wanted) in schema.as_object().expect("a schema is an object") {
            match keyword.as_str() {
                "description" | "properties" | "maxItems" => {}
                "$ref" => {
                    let name = wanted.as_str().unwrap().trim_start_matches("#/$defs/");
                    let definition = self.definitions.get(name);
                    self.value(definition.expect("what is referred to"), value, at);
                }
                "anyOf" => {
                    let fits = |one: &Value| {
                        let mut check = Check {
                            definitions: self.definitions,
                            problems: Vec::new(),
                        };
                        check.value(one, value, at);
                        check.problems.is_empty()
                    };
                    let any = wanted.as_array().unwrap().iter().any(fits);
                    self.expect(any, at, "none of those that it can be");
                }
                "type" => {
                    let types = wanted.as_array().cloned();
                    let types = types.unwrap_or_else(|| vec![wanted.clone()]);
                    let any = types.iter().any(|name| is(name.as_str().unwrap(), value));
                    self.expect(any, at, &format!("no {wanted}"));
                }
                "enum" => {
                    let any = wanted.as_array().unwrap().contains(value);
                    self.expect(any, at, &format!("none of {wanted}"));
                }
                "const" => self.expect(wanted == value, at, &format!("not {wanted}")),
                "minimum" => {
                    let least = wanted.as_i64().unwrap();
                    let below = value.as_i64().is_some_and(|value| value < least);
                    self.expect(!below, at, &format!("less than {least}"));
                }
                "minItems" => {
                    let items = value.as_array().map_or(0, Vec::len) as u64;
                    let exact = [wanted, &schema["maxItems"]];
                    let all = exact.iter().all(|count| **count == json!(items));
                    self.expect(all, at, &format!("not {wanted} items"));
                }
                "items" => {
                    for (index, item) in value.as_array().into_iter().flatten().enumerate() {
                        self.value(wanted, item, &format!("{at}[{index}]"));
                    }
                }
                "required" => {
                    for name in wanted.as_array().unwrap() {
                        let there = value.get(name.as_str().unwrap()).is_some();
                        self.expect(there, at, &format!("without {name}"));
                    }
                }
                _ => panic!("{keyword} is not checked"),
            }
        }
        if let (Some(known), Some(fields)) = (schema.get("properties"), value.as_object()) {
            for (name, field) in fields {
                let at = format!("{at}.{name}");
                match known.get(name) {
                    Some(schema) => self.value(schema, field, &at),
                    None => self.problems.push(format!("{at} is not described")),
                }
            }
        }
    }

    fn expect(&mut self, holds: bool, at: &str, otherwise: &str) {
        if !holds {
            self.problems.push(format!("{at} is {otherwise}"));
        }
    }
}

fn is(name: &str, value: &Value) -> bool {
    match name {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        "number" => value.is_number(),
        "integer" => value.is_u64() || value.is_i64(),
        _ => panic!("{name} is no type of JSON"),
    }
}
