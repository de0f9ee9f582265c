//! A simulation in a process of its own finds what one in this process finds.

use std::io::Write;
use std::process::{Command, Output, Stdio};

use clap::Parser;
use estimator::{Bytes, CardSpec, Favour, Runtime};
use fit_check::cli::{self, Cli};
use fit_check::elsewhere::Task;
use fit_check::simulate_step;
use model_zoo::Request;

/// What the other process says when it is told `task`.
fn said(task: &[u8]) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_fit-check"))
        .arg("simulate")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(task).unwrap();
    child.wait_with_output().unwrap()
}

/// How a model is trained if nothing is typed.
fn usual() -> cli::Step {
    match Cli::parse_from(["fit-check", "estimate", "alexnet"]).command {
        cli::Command::Estimate(raw) => raw.job.step,
        other => panic!("{other:?}"),
    }
}

#[test]
fn another_process_finds_the_same() {
    let model = &model_zoo::find("alexnet").unwrap();
    let mut job = Request::default().resolve(model).unwrap();
    job.batch = 5;
    for favour in [Favour::LeastMemory, Favour::MostMemory] {
        let card = CardSpec {
            favour,
            ..CardSpec::endless(Runtime::Cuda)
        };
        let here = simulate_step(model, &job, card.clone()).unwrap();
        let task = Task {
            model: "alexnet".into(),
            step: usual(),
            batch: 5,
            card,
        };
        let output = said(&serde_json::to_vec(&task).unwrap());
        let there: Bytes = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(there, here.most_in_use(), "{favour:?}");
    }
}

#[test]
fn one_that_is_told_nonsense_says_so() {
    let output = said(b"train something");
    assert_eq!(output.status.code(), Some(2));
    assert!(output.stdout.is_empty());
    assert!(output.stderr.starts_with(b"error:"), "{output:?}");
}
