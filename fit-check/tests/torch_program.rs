//! `fit-check run`, `max-batch` and `table` with a PyTorch program. What the recorder sends is data here (`examples/torch_lines`); with
//! FIT_CHECK_TORCH_PYTHON, the path of a Python with PyTorch, a real one is run as well.
#![cfg(target_os = "linux")]

mod waiting;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use serde_json::Value;
use waiting::{command_lines, wait_until};

/// One step: 4 MiB of weights, 16 MiB for each sample, and the workspace of cuBLAS. The weights are in a segment of 20 MiB with
/// the workspace.
const STEP: &str = r#"["hello", {"version": 1, "torch": "2.15.0", "python": "3.11.7", "argv": ["train.py"]}]
["n", 0, "fc.weight"]
["n", 1, "aten::mm"]
["n", 2, "fc"]
["n", 3, "Linear"]
["m", 0, 2, 3]
["p", "init", 0]
["a", 0, 4194304, -1, 0, 0, 0, 0]
["r", 0, "parameter", 0]
["p", "forward", 0]
["a", 1, 8519680, 1, 0, 0, 1, 0]
["a", 2, @16777216, 1, 0, 0, 0, 0]
["p", "backward", 0]
["f", 2]
["p", "optimizer", 0]
["p", "data", 1]
["x", "value read as zero", "a scalar at train.py:3", 0, 2]
["i", {"optimizer": "SGD"}]
"#;

fn lines(folder: &Path, ending: &str) -> PathBuf {
    let path = folder.join("lines.jsonl");
    std::fs::write(&path, format!("{STEP}{ending}\n")).unwrap();
    path
}

const STEPS: &str = r#"["bye", {"reason": "steps", "steps": 2}]"#;

fn program() -> PathBuf {
    let program = Path::new(env!("CARGO_BIN_EXE_fit-check"));
    program.with_file_name("examples").join("torch_lines")
}

/// `fit-check COMMAND` with a program that sends [`STEP`] and `ending`. Its temporary folder must be empty in the end.
fn fit_check(command: &str, ending: &str, words: &str) -> Output {
    let folder = tempfile::tempdir().unwrap();
    let temporary = tempfile::tempdir().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_fit-check"))
        .args(command.split_whitespace())
        .arg("--")
        .arg(program())
        .arg(lines(folder.path(), ending))
        .args(words.split_whitespace())
        .env("TMPDIR", temporary.path())
        .env("FIT_CHECK_NO_PROGRESS", "1")
        .env_remove("PYTORCH_CUDA_ALLOC_CONF")
        .env_remove("PYTORCH_ALLOC_CONF")
        .output()
        .unwrap();
    let left: Vec<_> = std::fs::read_dir(temporary.path()).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
    output
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", text(&output.stderr)))
}

const MIB: u64 = 1 << 20;

#[test]
fn the_recorder_answers_for_a_program_that_uses_pytorchs_cuda() {
    let output = fit_check("run --memory 1GiB --format json", STEPS, "4");
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let answer = json(&output);
    let process = &answer["processes"][0];
    // 4 MiB, 8.125 MiB of workspace and 64 MiB for four samples; the first two share 20 MiB.
    assert_eq!(
        process["peak"]["allocated_bytes"],
        72 * MIB + 131_072 + 4 * MIB
    );
    assert_eq!(process["peak"]["reserved_bytes"], 84 * MIB);
    assert_eq!(process["required_bytes"], 84 * MIB);
    assert_eq!(process["at_peak"]["activations"], 64 * MIB);
    assert_eq!(process["at_peak"]["workspaces"], 8_519_680);
    assert_eq!(process["peak"]["operator"], "aten::mm");
    assert_eq!(answer["torch"]["version"], "2.15.0");
    assert_eq!(answer["approximations"][0]["kind"], "value read as zero");
    // With --format json the program's own output goes to stderr.
    assert!(text(&output.stderr).contains("the program's own output"));
}

#[test]
fn what_does_not_fit_has_pytorchs_error_and_a_way_out() {
    let output = fit_check("run --memory 80MiB", STEPS, "4");
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    // Lines are wrapped to the width of the terminal.
    let page = text(&output.stdout);
    let page = page.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(page.contains("the program's own output"), "{page}");
    assert!(
        page.contains(
            "does not fit on 80.0 MiB of memory needs 84.0 MiB of 80.0 MiB, 4.00 MiB short"
        ),
        "{page}"
    );
    // The terminal of a test has 80 columns.
    let lines = text(&output.stdout);
    assert!(
        lines.lines().all(|line| line.chars().count() <= 80),
        "{lines}"
    );
    assert!(page.contains("CUDA out of memory. Tried to allocate 64.00 MiB. GPU 0 has a total capacity of 80.00 MiB of which 60.00 MiB is free."), "{page}");
    assert!(page.contains("expandable_segments:True"), "{page}");
    assert!(
        page.contains("in the forward phase, at fc, for aten::mm"),
        "{page}"
    );
}

#[test]
fn a_reading_of_ones_own_takes_the_place_of_the_constant() {
    let output = fit_check(
        "run --gpu rtx-3090 --overhead 1GiB --format json",
        STEPS,
        "4",
    );
    let answer = json(&output);
    assert_eq!(
        answer["processes"][0]["peak"]["device_bytes"],
        84 * MIB + 1024 * MIB
    );
}

/// 84 MiB are needed, so every card is enough, and the ones with the least memory are named.
#[test]
fn advice_names_cards_that_are_enough() {
    let advised = fit_check("run --memory 1GiB --advise", STEPS, "4");
    let page = text(&advised.stdout);
    assert_eq!(page.matches("--gpu ").count(), 3, "{page}");
    let without = fit_check("run --memory 80MiB --advise=never", STEPS, "4");
    assert_eq!(without.status.code(), Some(1));
    assert!(!text(&without.stdout).contains("--gpu "));
}

#[test]
fn modules_plots_and_tables_are_those_of_burn() {
    let folder = tempfile::tempdir().unwrap();
    let files = ["page.html", "chart.svg", "trace.json"].map(|name| folder.path().join(name));
    let [html, svg, trace] = files.each_ref().map(|path| path.display().to_string());
    let command = format!(
        "run --memory 1GiB --layers --html {html} --svg {svg} --trace {trace} --format csv"
    );
    let output = fit_check(&command, STEPS, "4");
    let csv = text(&output.stdout);
    assert!(csv.starts_with("layer,kind,parameters_bytes,"), "{csv}");
    assert!(csv.contains("fc,Linear,4194304,67108864,0,0"), "{csv}");
    let read = |path: &Path| std::fs::read_to_string(path).unwrap();
    assert!(read(&files[0]).contains("Not followed exactly"));
    assert!(read(&files[1]).contains("class=\"workspaces\""));
    let trace: Value = serde_json::from_str(&read(&files[2])).unwrap();
    assert!(
        trace["traceEvents"]
            .as_array()
            .unwrap()
            .iter()
            .any(|event| event["name"] == "fc")
    );
}

#[test]
fn a_program_that_fails_is_an_error_with_its_line() {
    let error = r#"["bye", {"reason": "error", "steps": 0, "error": {"type": "RuntimeError", "message": "shape", "file": "train.py", "line": 12}}]"#;
    for (ending, words, wanted) in [
        (
            error,
            "1 fail",
            "error: train.py:12: RuntimeError: shape\nhint: ",
        ),
        (
            "",
            "1 fail",
            "it ended with status 3 before it had made enough optimizer steps\nhint: ",
        ),
        (
            r#"["f", 99]"#,
            "1",
            "error: the recorder in PyTorch failed: line 19 of the recording",
        ),
    ] {
        // Its step is over, so what it took until then is said, and the status is that of no answer.
        let output = fit_check("run --memory 1GiB", ending, words);
        assert_eq!(output.status.code(), Some(2));
        assert!(
            text(&output.stderr).contains(wanted),
            "{}",
            text(&output.stderr)
        );
    }
}

#[test]
fn a_program_that_goes_on_is_ended() {
    let output = fit_check("run --memory 1GiB", STEPS, "1 stay");
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let own = program().display().to_string();
    let is_own = |line: &String| line.contains(&own) && line.contains("stay");
    let limit = Duration::from_secs(5);
    wait_until("the program is ended", limit, || {
        !command_lines().iter().any(is_own)
    });
}

/// 1 GiB less 20 MiB for weights and workspace is room for 62 samples of 16 MiB.
#[test]
fn two_small_batches_tell_the_largest() {
    let output = fit_check("max-batch --memory 1GiB --format json", STEPS, "{batch}");
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let answer = json(&output);
    let card = &answer["cards"][0];
    assert_eq!(
        (&card["max_batch"], &card["next"]["batch"]),
        (&62.into(), &63.into())
    );
    assert!(card.get("unconfirmed").is_none());
    let table = fit_check("table --gpus l4,a10 --format csv", STEPS, "{batch}");
    let csv = text(&table.stdout);
    assert_eq!(csv.lines().count(), 3, "{csv}");
}

/// What [`STEP`] says follows from its numbers: 62 samples fit in 1 GiB, and 30 need 20 MiB and 30 times 16.
#[test]
fn what_was_saved_answers_without_the_program() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("job.fit");
    let file = file.to_str().unwrap();
    let save = format!("max-batch --memory 2GiB --save {file}");
    let output = fit_check(&save, STEPS, "{batch}");
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let ask = |command: &str| {
        let output = Command::new(env!("CARGO_BIN_EXE_fit-check"))
            .args(
                command
                    .split_whitespace()
                    .map(|word| word.replace("FILE", file)),
            )
            .env("FIT_CHECK_NO_PROGRESS", "1")
            .output()
            .unwrap();
        let error = text(&output.stderr);
        (output.status.code(), text(&output.stdout), error)
    };
    let (status, answer, error) = ask("max-batch FILE --memory 1GiB --format json");
    assert_eq!(status, Some(0), "{error}");
    let answer: Value = serde_json::from_str(&answer).unwrap();
    assert_eq!(answer["cards"][0]["max_batch"], 62);
    assert_eq!(answer["optimizer"], "SGD");
    let (status, answer, error) = ask("estimate FILE --batch 30 --memory 1GiB --format json");
    assert_eq!(status, Some(0), "{error}");
    let answer: Value = serde_json::from_str(&answer).unwrap();
    let required = &answer["processes"][0]["peak"]["required_bytes"];
    assert_eq!(*required, (20_u64 + 30 * 16) << 20);
    assert_eq!(answer["approximations"][0]["kind"], "value read as zero");
    let program = answer["program"].as_str().unwrap();
    assert!(program.ends_with(" 30"), "{program}");
    assert_eq!(ask("estimate FILE --batch 63 --memory 1GiB").0, Some(1));
    // 16 GiB for samples: a card of 16 GB is too small.
    let (status, cards, error) = ask("gpus --fits FILE --batch 1024 --format csv");
    assert_eq!(status, Some(0), "{error}");
    assert!(cards.contains("l4") && !cards.contains("t4"), "{cards}");
    let (_, table, _) = ask("table FILE --gpus l4 --format csv");
    let (_, largest, _) = ask("max-batch FILE --gpu l4 --format json");
    let largest: Value = serde_json::from_str(&largest).unwrap();
    let batch = largest["cards"][0]["max_batch"].to_string();
    assert!(table.trim_end().ends_with(&batch), "{table}");
    for (command, hint) in [
        ("estimate FILE", "hint: --batch N says which"),
        (
            "estimate FILE --batch 2 --optimizer sgd",
            "hint: leave it out",
        ),
        (
            "estimate FILE --batch 2 --precision bf16",
            "hint: leave it out",
        ),
        (
            "max-batch FILE --gpu l4 --save FILE",
            "hint: leave --save out",
        ),
        (
            "verify FILE --batch 2",
            "hint: if `max-batch --save` wrote it",
        ),
    ] {
        let (status, _, error) = ask(command);
        assert_eq!(status, Some(2), "{command}");
        assert!(error.contains(hint), "{command}: {error}");
    }
}

/// With `{batch}{seq}` in one word a batch of 6 and a sequence of 1 are 61 samples of [`STEP`]; 62 fit.
#[test]
fn each_length_of_a_sequence_is_a_row() {
    let output = fit_check(
        "table --seq 1,5 --memory 1GiB --format csv",
        STEPS,
        "{batch}{seq}",
    );
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let csv = text(&output.stdout);
    let rows: Vec<_> = csv.lines().skip(1).collect();
    assert!(
        rows[0].ends_with(",1,6") && rows[1].ends_with(",5,5"),
        "{csv}"
    );
    for (command, words, hint) in [
        ("table --memory 1GiB", "{batch}{seq}", "hint: add --seq 512"),
        (
            "table --memory 1GiB --seq 1,2",
            "{batch}",
            "hint: write {seq}",
        ),
        (
            "max-batch --memory 1GiB --seq 1,2",
            "{batch}{seq}",
            "hint: `fit-check table`",
        ),
        (
            "max-batch --memory 1GiB --timeout 0",
            "{batch}",
            "hint: --timeout is at least 1",
        ),
    ] {
        let output = fit_check(command, STEPS, words);
        assert_eq!(output.status.code(), Some(2), "{command}");
        let error = text(&output.stderr);
        assert!(error.contains(hint), "{command}: {error}");
    }
}

#[test]
fn a_command_without_a_place_for_the_batch_is_refused() {
    let output = fit_check("max-batch --memory 1GiB", STEPS, "8");
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("hint: write {batch} in its place"));
}

/// A folder with a program called `python`, which is the shell `script`.
fn python(script: &str) -> tempfile::TempDir {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("python");
    std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    folder
}

/// `fit-check COMMAND` where the only `python` is the shell `script`. Its temporary folder must be empty in the end.
fn with_python(script: &str, command: &str) -> (Option<i32>, String) {
    let folder = python(script);
    let temporary = tempfile::tempdir().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_fit-check"))
        .args(command.split_whitespace())
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .env("PATH", folder.path())
        .env_remove("VIRTUAL_ENV")
        .env("TMPDIR", temporary.path())
        .env("FIT_CHECK_NO_PROGRESS", "1")
        .output()
        .unwrap();
    let left: Vec<_> = std::fs::read_dir(temporary.path()).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
    (output.status.code(), text(&output.stderr))
}

#[test]
fn a_python_that_comes_to_no_gpu_is_an_error_with_a_way_out() {
    // The search for torch is `python -c …`.
    for (script, wanted) in [
        (
            "exit 1",
            "error: python has no torch\nhint: activate the environment",
        ),
        (
            "exit 0",
            "error: python train.py: it used no GPU through PyTorch\nhint: the model has to be on the GPU",
        ),
        (
            "[ \"$1\" = -c ] && exit 0; exit 7",
            "error: python train.py: it ended with status 7 and used no GPU through PyTorch\nhint: what it wrote",
        ),
        (
            "[ \"$1\" = -c ] && exit 0; kill -9 $$",
            "error: python train.py: it was ended by signal 9 (SIGKILL) before it had made enough optimizer steps\nhint: the system ends",
        ),
    ] {
        let (status, error) = with_python(script, "run --memory 1GiB -- python train.py");
        assert_eq!(status, Some(2), "{script}");
        assert!(error.contains(wanted), "{script}: {error}");
        let (status, error) =
            with_python(script, "max-batch --memory 1GiB -- python train.py {batch}");
        let wanted = wanted.replace("train.py", "train.py 2");
        assert_eq!(status, Some(2), "{script}");
        assert!(error.contains(&wanted), "{script}: {error}");
    }
    let (status, error) = with_python("exit 0", "run --memory 1GiB -- python4 train.py");
    assert_eq!(status, Some(2));
    assert!(
        error.contains("error: there is no program `python4`\nhint: "),
        "{error}"
    );
}

#[test]
fn a_path_without_the_packages_for_it_is_an_error_with_a_way_out() {
    let command = "estimate tests/own_models/tiny-llama --framework pytorch";
    let says = "echo 'error: python has no transformers' >&2; echo 'hint: pip install' >&2; exit 2";
    for (script, options, wanted) in [
        (
            says,
            "",
            "error: python has no transformers\nhint: pip install\n",
        ),
        (
            "exit 5",
            "",
            "the training step ended with status 5 without PyTorch\nhint: --python",
        ),
        (
            "exit 0",
            " --python no/python",
            "error: there is no Python at no/python\nhint: install",
        ),
        (
            "exit 0",
            " --optimizer muon",
            "error: `muon` is no value of --optimizer\nhint: with",
        ),
        ("exit 0", " --image 64", "error: --image is not followed"),
        (
            "exit 0",
            " --lora 8 --lora-base 8bit",
            "error: --lora-base 8bit is not followed",
        ),
        (
            "exit 0",
            " --batch 2 --tokens 64",
            "error: --batch and --tokens exclude each other",
        ),
        (
            "exit 0",
            " --tokens 8",
            "error: one sample of tiny-llama has 64 tokens\nhint: --tokens",
        ),
    ] {
        let (status, error) = with_python(script, &format!("{command}{options}"));
        assert_eq!(status, Some(2), "{options}");
        assert!(error.contains(wanted), "{options}: {error}");
    }
    let output = Command::new(env!("CARGO_BIN_EXE_fit-check"))
        .args(command.split_whitespace())
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .env("PATH", "/nowhere")
        .env_remove("VIRTUAL_ENV")
        .output()
        .unwrap();
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        error.contains("error: there is no Python in PATH\nhint: "),
        "{error}"
    );
}

/// A training step of `tiny-llama`, as somebody writes it who uses transformers.
const BY_HAND: &str = r#"
import sys, torch, transformers
config = transformers.AutoConfig.from_pretrained(sys.argv[1], use_cache=False)
model = transformers.AutoModelForCausalLM.from_config(config).cuda()
print("parameters", sum(p.numel() for p in model.parameters()), len(list(model.parameters())))
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(5):
    texts = {name: torch.randint(config.vocab_size, (4, 64)) for name in ("input_ids", "labels")}
    batch = {name: text.cuda() for name, text in texts.items()}
    loss = model(**batch).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"#;

/// The step that fit-check carries takes what the same step takes when it is written by hand, and transformers counts as
/// many parameters as its memory has.
#[test]
fn a_path_takes_what_a_script_by_hand_takes() {
    let Some(python) = std::env::var_os("FIT_CHECK_TORCH_PYTHON") else {
        eprintln!("skipped: FIT_CHECK_TORCH_PYTHON names no Python with PyTorch");
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("by_hand.py");
    std::fs::write(&script, BY_HAND).unwrap();
    let model = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/own_models/tiny-llama");
    let own = Command::new(env!("CARGO_BIN_EXE_fit-check"))
        .args(["estimate", model, "--framework", "pytorch", "--batch", "4"])
        .args(["--gpu", "rtx-3090", "--format", "json", "--python"])
        .arg(&python)
        .output()
        .unwrap();
    let run = Command::new(env!("CARGO_BIN_EXE_fit-check"))
        .args(["run", "--gpu", "rtx-3090", "--format", "json", "--"])
        .arg(&python)
        .arg(&script)
        .arg(model)
        .output()
        .unwrap();
    let written = text(&run.stderr);
    let (own, run) = (json(&own), json(&run));
    let (own, run) = (&own["processes"][0], &run["processes"][0]);
    let bytes = |process: &Value, of: &str| process["at_peak"][of].as_u64().unwrap();
    assert_eq!(bytes(own, "parameters"), bytes(run, "parameters"));
    assert_eq!(bytes(own, "optimizer"), bytes(run, "optimizer"));
    let [most, by_hand] =
        [own, run].map(|process| process["peak"]["allocated_bytes"].as_u64().unwrap());
    assert_eq!(most, by_hand);
    let line = written
        .lines()
        .find_map(|line| line.strip_prefix("parameters "));
    let counts: Vec<u64> = line
        .unwrap()
        .split(' ')
        .map(|n| n.parse().unwrap())
        .collect();
    // Blocks are multiples of 512 bytes.
    let parameters = bytes(own, "parameters");
    assert!(parameters >= 4 * counts[0] && parameters < 4 * counts[0] + 512 * counts[1]);
}

/// A network of the zoo that was recorded beforehand takes the same as its program does now, with cuDNN's workspaces, and where the
/// embedding has another kernel than in a small batch.
#[test]
fn a_real_program_takes_what_was_recorded_beforehand() {
    let Some(python) = std::env::var_os("FIT_CHECK_TORCH_PYTHON") else {
        eprintln!("skipped: FIT_CHECK_TORCH_PYTHON names no Python with PyTorch");
        return;
    };
    let train = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../estimator/torch/zoo/train.py"
    );
    for (network, batch, precision) in [
        ("bert-base", "4", "fp32"),
        ("resnet-18", "4", "fp32"),
        ("bert-base", "32", "mixed"),
    ] {
        let run = Command::new(env!("CARGO_BIN_EXE_fit-check"))
            .args([
                "run", "--gpu", "rtx-3090", "--steps", "2", "--format", "json", "--",
            ])
            .arg(&python)
            .args([train, network, batch, precision])
            .output()
            .unwrap();
        let estimate = |more: &[&OsStr]| {
            let output = Command::new(env!("CARGO_BIN_EXE_fit-check"))
                .args(["estimate", network, "--framework", "pytorch"])
                .args(["--batch", batch, "--precision", precision])
                .args(["--gpu", "rtx-3090", "--format", "json"])
                .args(more)
                .output()
                .unwrap();
            json(&output)["processes"][0]["peak"].clone()
        };
        let kept = estimate(&[]);
        assert_eq!(
            json(&run)["processes"][0]["peak"],
            kept,
            "{network}, batch {batch}, {precision}"
        );
        // What public packages build is the same network, and the step that fit-check carries the same step.
        let now = estimate(&[OsStr::new("--python"), &python]);
        assert_eq!(now, kept, "{network}, batch {batch}, {precision}");
    }
}

/// What was recorded answers without Python. Another step needs one, with the package that builds the network.
#[test]
fn a_network_with_other_options_than_its_recipe_needs_python() {
    let says = "echo 'error: python has no torchvision' >&2; echo 'hint: pip install' >&2; exit 2";
    let command = "estimate resnet-50 --framework pytorch";
    for recipe in [
        "",
        " --optimizer momentum --image 224",
        " --precision mixed",
    ] {
        let (status, error) = with_python(says, &format!("{command}{recipe}"));
        assert_eq!((status, error.as_str()), (Some(0), ""), "{recipe}");
    }
    for other in [" --optimizer adam", " --image 320", " --precision bf16"] {
        let (status, error) = with_python(says, &format!("{command}{other}"));
        assert_eq!(status, Some(2), "{other}");
        assert!(
            error.contains("error: python has no torchvision\nhint: pip install\n"),
            "{other}: {error}"
        );
    }
}
