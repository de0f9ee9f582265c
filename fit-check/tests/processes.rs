//! What the program's processes do when it is killed, interrupted, or started many times at once.
#![cfg(target_os = "linux")]

mod command;
mod waiting;

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use wait_timeout::ChildExt;
use waiting::{command_lines, wait_until};

fn fit_check(arguments: &[&str]) -> Command {
    let mut command = command::fit_check();
    command.args(arguments);
    command
}

fn send(signal: Signal, child: &Child) {
    kill(Pid::from_raw(child.id() as i32), signal).unwrap();
}

/// Kills `fit-check run` while it starts its program, and while that runs.
#[test]
fn the_program_of_run_ends_when_fit_check_is_killed() {
    for runs in [false, true] {
        let mark = format!("8{:05}{}", std::process::id(), u8::from(runs));
        let line = format!("sleep\0{mark}\0");
        let mut child = fit_check(&[
            "run",
            "--allow-writes",
            "--memory",
            "1GiB",
            "--",
            "sleep",
            &mark,
        ])
        .spawn()
        .unwrap();
        wait_until(
            "the program starts",
            Duration::from_secs(20),
            || match runs {
                // The process may still have the command line of `fit-check`.
                false => !children(child.id()).is_empty(),
                true => command_lines().contains(&line),
            },
        );
        child.kill().unwrap();
        child.wait().unwrap();
        wait_until("the program ends", Duration::from_secs(5), || {
            !command_lines().iter().any(|line| line.contains(&mark))
        });
    }
}

/// The processes that the threads of `process` started.
fn children(process: u32) -> Vec<String> {
    let threads = std::fs::read_dir(format!("/proc/{process}/task"));
    let threads = threads.into_iter().flatten().filter_map(Result::ok);
    let texts = threads
        .map(|thread| std::fs::read_to_string(thread.path().join("children")).unwrap_or_default());
    let children = texts.flat_map(|text| {
        let numbers = text.split_whitespace().map(String::from);
        numbers.collect::<Vec<_>>()
    });
    children.collect()
}

/// The system may kill the process of a row, for instance for want of memory.
#[test]
fn a_table_says_that_the_process_of_a_row_was_killed() {
    let child = fit_check(&[
        "table",
        "nasnet-a-large",
        "--gpu",
        "24GB",
        "--format",
        "json",
    ])
    .stdout(Stdio::piped())
    .stderr(Stdio::null())
    .spawn()
    .unwrap();
    wait_until("the row begins", Duration::from_secs(20), || {
        !children(child.id()).is_empty()
    });
    for row in children(child.id()) {
        kill(Pid::from_raw(row.parse().unwrap()), Signal::SIGKILL).unwrap();
    }
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let error = &report["rows"][0]["cells"][0]["error"];
    assert_eq!(
        error,
        "the process that simulates the step ended too early (signal: 9 (SIGKILL))"
    );
}

/// A person ends a program by Ctrl-C; `timeout` and a cluster's scheduler send SIGTERM.
const SIGNALS: [Signal; 2] = [Signal::SIGINT, Signal::SIGTERM];

/// Runs `fit-check` until it is `ready`, interrupts it by `signal`, and returns its output and how long it took to end.
fn interrupted(
    arguments: &[&str],
    signal: Signal,
    ready: impl FnMut(u32, &str) -> bool,
) -> (Output, Duration) {
    interrupt(&mut fit_check(arguments), &[signal], ready)
}

/// Runs the command until it is `ready`, which its process and what it has said on stderr tell, sends it `signals`, one
/// after the other, and returns its output and how long it took to end after the last. It must not leave anything in its
/// temporary folder.
fn interrupt(
    command: &mut Command,
    signals: &[Signal],
    mut ready: impl FnMut(u32, &str) -> bool,
) -> (Output, Duration) {
    let temporary = tempfile::tempdir().unwrap();
    let stderr = tempfile::NamedTempFile::new().unwrap();
    let said = || std::fs::read(stderr.path()).unwrap();
    let mut child = command
        .env("TMPDIR", temporary.path())
        .stdout(Stdio::piped())
        .stderr(stderr.reopen().unwrap())
        .spawn()
        .unwrap();
    wait_until("the command is at work", Duration::from_secs(60), || {
        ready(child.id(), &String::from_utf8_lossy(&said()))
    });
    for signal in signals {
        std::thread::sleep(Duration::from_millis(300));
        send(*signal, &child);
    }
    let began = Instant::now();
    let ended = child.wait_timeout(Duration::from_secs(20)).unwrap();
    let took = began.elapsed();
    assert!(ended.is_some(), "the command goes on");
    let mut output = child.wait_with_output().unwrap();
    output.stderr = said();
    let left: Vec<_> = std::fs::read_dir(temporary.path()).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
    (output, took)
}

/// Whether a program of these tests has said that it runs.
fn begins(_process: u32, said: &str) -> bool {
    said.contains("begins")
}

/// Whether the process of a row, which `table` starts, has ended: that row is filled.
fn fills_a_row() -> impl FnMut(u32, &str) -> bool {
    let mut rows = BTreeSet::new();
    move |process, _said| {
        rows.extend(children(process));
        let ended = |row: &String| !Path::new("/proc").join(row).exists();
        rows.iter().any(ended)
    }
}

/// Whether `process` handles Ctrl-C itself (`SigCgt` in proc(5): the mask of the signals that it catches).
fn handles_interrupts(process: u32, _said: &str) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask & (1_u64 << (Signal::SIGINT as u32 - 1)) != 0)
}

/// A second, and what a busy machine adds.
const SOON: Duration = Duration::from_secs(3);

#[test]
fn an_interrupted_table_shows_what_it_has() {
    let table = [
        "table",
        "resnet-20",
        "nasnet-a-large",
        "mt-dnn-large",
        "xlm-mt-en-fr",
        "--gpu",
        "24GB",
        "--format",
        "json",
    ];
    for signal in SIGNALS {
        let (output, took) = interrupted(&table, signal, fills_a_row());
        assert!(took < SOON, "{took:?}");
        assert_eq!(output.status.code(), Some(2), "{signal}");
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(report["complete"], false);
        let cell = |row: usize| &report["rows"][row]["cells"][0];
        assert!(cell(0)["max_batch"].as_u64() > Some(0), "{report}");
        assert_eq!(cell(1)["error"], "interrupted", "{report}");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(stderr.contains("the table is not complete"), "{stderr}");
    }
}

/// The counting driver lies in a temporary folder while a program uses it.
#[test]
fn an_interrupted_program_leaves_nothing() {
    let script = "echo begins >&2; exec sleep 60";
    let run = [
        "run",
        "--allow-writes",
        "--memory",
        "1GiB",
        "--",
        "sh",
        "-c",
        script,
    ];
    for signal in SIGNALS {
        let (output, took) = interrupted(&run, signal, begins);
        assert!(took < SOON, "{took:?}");
        assert_eq!(output.status.code(), Some(2), "{signal}");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(stderr.contains("it was interrupted"), "{stderr}");
    }
}

/// Neither the program nor the process that it starts ends when it is asked to.
#[test]
fn a_second_signal_leaves_no_process_of_a_program() {
    let mark = format!("9{:05}", std::process::id());
    let script = format!("trap '' TERM; sleep {mark} >/dev/null 2>&1 & echo begins >&2; wait");
    let run = [
        "run",
        "--allow-writes",
        "--memory",
        "1GiB",
        "--",
        "sh",
        "-c",
        &script,
    ];
    let signals = [Signal::SIGINT, Signal::SIGINT];
    let (output, took) = interrupt(&mut fit_check(&run), &signals, begins);
    assert!(took < SOON, "{took:?}");
    assert_eq!(output.status.code(), Some(130));
    let line = format!("sleep\0{mark}\0");
    wait_until("no process is left", SOON, || {
        !command_lines().contains(&line)
    });
}

/// The lock file of [`project`].
const LOCK: &str = "version = 4\n\n[[package]]\nname = \"trainer\"\nversion = \"0.1.0\"\n";

/// The manifest of [`project`].
const MANIFEST: &str = "[package]\nname = \"trainer\"\nversion = \"0.1.0\"\nedition = \"2024\"\n\n\
                        [dependencies]\nburn = \"0.22\"\n";

/// Writes a program that executes `lines` to `path`.
fn write_script(path: &Path, lines: &str) {
    std::fs::write(path, format!("#!/bin/sh\n{lines}\n")).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

/// A folder with a program, and with a `cargo` that changes the lock file, as a build with a simulated card does, and
/// then executes `build`.
fn project(build: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    std::fs::create_dir(path("src")).unwrap();
    std::fs::write(path("src/main.rs"), "fn main() {}\n").unwrap();
    std::fs::write(path("Cargo.toml"), MANIFEST).unwrap();
    std::fs::write(path("Cargo.lock"), LOCK).unwrap();
    let cargo = env!("CARGO");
    let changed = r#"printf '[[package]]\nname = "simulated-card"\n' >> Cargo.lock"#;
    let other = format!(
        "[ \"$1\" != tree ] || exec echo 'burn v0.22.1'; [ \"$1\" = build ] || exec '{cargo}' \"$@\""
    );
    write_script(&path("cargo"), &format!("{other}\n{changed}\n{build}"));
    folder
}

/// Interrupts `cargo fit-check` while cargo builds, and while the program runs.
#[test]
fn an_interrupted_cargo_fit_check_leaves_nothing() {
    let mark = format!("6{:05}", std::process::id());
    let goes_on = format!("echo begins >&2; exec sleep {mark} >/dev/null 2>&1");
    let programs = tempfile::tempdir().unwrap();
    let program = programs.path().join("trainer");
    write_script(&program, &goes_on);
    let artifact = serde_json::json!({
        "reason": "compiler-artifact",
        "package_id": "trainer",
        "target": { "name": "trainer", "kind": ["bin"], "src_path": "src/main.rs" },
        "profile": {
            "opt_level": "0",
            "debug_assertions": true,
            "overflow_checks": true,
            "test": false,
        },
        "features": [],
        "filenames": [],
        "executable": program,
        "fresh": false,
    });
    let builds = format!("printf '%s\\n' '{artifact}'");
    for build in [&goes_on, &builds] {
        let project = project(build);
        let mut command = Command::new(env!("CARGO_BIN_EXE_cargo-fit-check"));
        command
            .arg("fit-check")
            .current_dir(project.path())
            .env("CARGO", project.path().join("cargo"))
            .env_remove("CARGO_TARGET_DIR");
        let (output, took) = interrupt(&mut command, &[Signal::SIGTERM], begins);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(took < SOON, "{took:?}");
        assert_eq!(output.status.code(), Some(143), "{build}: {stderr}");
        let lock = std::fs::read_to_string(project.path().join("Cargo.lock")).unwrap();
        assert_eq!(lock, LOCK, "{build}");
        let line = format!("sleep\0{mark}\0");
        wait_until("no process is left", SOON, || {
            !command_lines().contains(&line)
        });
    }
}

/// The answer is there before the advice is, and `max-batch` handles Ctrl-C from then on.
#[test]
fn interrupted_advice_leaves_the_answer() {
    let max_batch = [
        "max-batch",
        "bert-base",
        "--gpu",
        "24GB",
        "--advise",
        "--format",
        "json",
        "--no-cache",
    ];
    let (output, took) = interrupted(&max_batch, Signal::SIGINT, handles_interrupts);
    assert!(took < SOON, "{took:?}");
    assert_eq!(output.status.code(), Some(2));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(report["cards"][0]["max_batch"].as_u64() > Some(0));
    assert_eq!(report["advice"]["complete"], false);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(
        stderr.contains("interrupted: some changes are not in this answer"),
        "{stderr}"
    );
}

#[test]
fn an_interrupted_verification_ends_soon() {
    // burn's tuner takes minutes for it on a software device; without any device there is nothing to test.
    let list = fit_check(&["verify", "--list"]).output().unwrap();
    if !list.status.success() {
        assert!(std::env::var_os("FIT_CHECK_NEEDS_DEVICE").is_none());
        return;
    }
    let says_something = |_: u32, said: &str| !said.is_empty();
    let (output, took) = interrupted(&["verify", "resnet-56"], Signal::SIGTERM, says_something);
    assert!(took < SOON, "{took:?}");
    assert_ne!(output.status.code(), Some(0));
    assert_ne!(output.status.code(), Some(1));
}

/// Estimates in eight processes at once are those of one process after the other.
#[test]
fn many_processes_at_once_give_the_same_answers() {
    let jobs = ["resnet-20", "alexnet", "dcgan", "vgg-mini", "unet"];
    let estimate = |job: &str| {
        let arguments = ["estimate", job, "--format", "json", "--no-cache", "--quiet"];
        let output = fit_check(&arguments).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        assert!(!output.stdout.is_empty(), "{output:?}");
        output.stdout
    };
    let alone: Vec<_> = jobs.iter().map(|job| estimate(job)).collect();
    std::thread::scope(|scope| {
        for first in 0..8 {
            let (alone, estimate) = (&alone, &estimate);
            scope.spawn(move || {
                for turn in 0..jobs.len() {
                    let job = (first + turn) % jobs.len();
                    assert_eq!(estimate(jobs[job]), alone[job], "{}", jobs[job]);
                }
            });
        }
    });
}
