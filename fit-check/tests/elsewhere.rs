//! A simulation in a process of its own finds what one in this process finds.

use std::io::Write;
use std::process::{Child, Command, Stdio};

use estimator::{CardSpec, Favour, Runtime, Simulated};
use fit_check::elsewhere::Task;
use fit_check::simulate_step;
use model_zoo::{LoraRequest, Model, Precision, Request};

/// The other process, told `task`.
fn told(task: &str) -> Child {
    let mut child = Command::new(env!("CARGO_BIN_EXE_fit-check"))
        .arg("simulate")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    writeln!(child.stdin.as_mut().unwrap(), "{task}").unwrap();
    child
}

#[test]
fn another_process_finds_the_same() {
    let alexnet = model_zoo::find("alexnet").unwrap();
    let request = Request {
        batch: Some(5),
        precision: Precision::Mixed,
        ..Request::default()
    };
    let job = request.resolve(&alexnet).unwrap();
    for favour in [Favour::Expected, Favour::MostMemory] {
        let card = CardSpec {
            favour,
            ..CardSpec::endless(Runtime::Cuda)
        };
        let here = simulate_step(&alexnet, &job, card.clone()).unwrap();
        let task = Task {
            model: alexnet.published().unwrap().into(),
            request: job.request(),
            card,
        };
        let mut child = told(&serde_json::to_string(&task).unwrap());
        // Open until it has answered: it would end.
        let _stdin = child.stdin.take();
        let output = child.wait_with_output().unwrap();
        let there: Simulated = serde_json::from_slice(&output.stdout).unwrap();
        let rest = |simulated: &Simulated| {
            let recording = &simulated.recording;
            (
                recording.events.len(),
                recording.buffers.clone(),
                recording.marks.clone(),
                simulated.parameters,
                simulated.reserved,
            )
        };
        assert_eq!(there.most_in_use(), here.most_in_use(), "{favour:?}");
        assert_eq!(rest(&there), rest(&here), "{favour:?}");
    }
}

#[test]
fn a_job_is_asked_for_as_it_is() {
    let gpt2 = model_zoo::find("gpt2").unwrap();
    let request = Request {
        tokens: Some(4096),
        lora: Some(LoraRequest {
            rank: 4,
            targets: Vec::new(),
            base: Default::default(),
        }),
        freeze: vec!["embedding".into()],
        accumulate: 3,
        ..Request::default()
    };
    let job = request.resolve(&gpt2).unwrap();
    assert_eq!(job.request().resolve(&gpt2).unwrap(), job);
}

#[test]
fn one_that_is_told_nonsense_says_so() {
    let output = told("train something").wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(output.stdout.is_empty());
    assert!(output.stderr.starts_with(b"error:"), "{output:?}");
}

#[test]
fn one_whose_parent_is_gone_ends() {
    let resnet = model_zoo::find("resnet-152").unwrap();
    let task = Task {
        model: resnet.published().unwrap().into(),
        request: Request::default(),
        card: CardSpec::endless(Runtime::Cuda),
    };
    let mut child = told(&serde_json::to_string(&task).unwrap());
    drop(child.stdin.take());
    assert_eq!(child.wait().unwrap().code(), Some(1));
}
