//! `fit-check run`: a program on the counting driver. The program is `examples/cuda_calls`.
#![cfg(target_os = "linux")]

mod waiting;

use std::path::PathBuf;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use serde_json::Value;
use waiting::{command_lines, wait_until};

/// The program that makes the calls in its arguments.
fn calls() -> PathBuf {
    let program = std::path::Path::new(env!("CARGO_BIN_EXE_fit-check"));
    program.with_file_name("examples").join("cuda_calls")
}

/// Runs `program` with `fit-check run` and these options, in a temporary folder of its own, which must be
/// empty in the end. The program may write: not every system can keep it from that.
fn run(options: &str, program: &std::path::Path, arguments: &str) -> Output {
    let temporary = tempfile::tempdir().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_fit-check"))
        .args(["run", "--allow-writes"])
        .args(options.split_whitespace())
        .arg("--")
        .arg(program)
        .args(arguments.split_whitespace())
        .env("TMPDIR", temporary.path())
        .output()
        .unwrap();
    let left: Vec<_> = std::fs::read_dir(temporary.path()).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
    output
}

/// The answer about the one card of such a run, and the exit status.
fn answer(options: &str, arguments: &str) -> (Value, i32) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("answer");
    let options = format!("{options} --format json --output {}", file.display());
    let output = run(&options, &calls(), arguments);
    let text = std::fs::read_to_string(&file)
        .unwrap_or_else(|_| panic!("no answer: {}", String::from_utf8_lossy(&output.stderr)));
    let answer: Value = serde_json::from_str(&text).unwrap();
    (answer, output.status.code().unwrap())
}

const MIB: u64 = 1 << 20;

#[test]
fn the_most_is_what_the_program_had_at_once() {
    let (answer, status) = answer("--memory 1GiB", "allocate 100 allocate 50 free allocate 10");
    let card = &answer["cards"][0];
    assert_eq!(status, 0);
    assert_eq!(
        answer["ended"],
        serde_json::json!({ "how": "exited", "what": 0 })
    );
    assert_eq!(card["fits"], true);
    assert_eq!(card["peak_bytes"], 150 * MIB);
    assert_eq!(card["end_bytes"], 60 * MIB);
    assert_eq!(card["headroom_bytes"], (1024 - 150) * MIB);
    assert_eq!(card["allocations"], 3);
}

/// A card of 1.5 GiB holds three times 512 MiB; a card with one byte less does not.
#[test]
fn a_card_that_is_one_byte_too_small_does_not_fit() {
    let twice = "allocate 512 allocate 512 allocate 512";
    let (fits, status) = answer("--memory 1610612736B", twice);
    assert_eq!((status, &fits["cards"][0]["fits"]), (0, &true.into()));
    // The program repeats the refused request, as CubeCL does.
    let again = format!("{twice} allocate 512");
    let (refused, status) = answer("--memory 1610612735B", &again);
    assert_eq!((status, &refused["cards"][0]["fits"]), (1, &false.into()));
    let refusal = &refused["cards"][0]["refused"][0];
    assert_eq!(refusal["bytes"], 512 * MIB);
    assert_eq!(refusal["used_bytes"], 1024 * MIB);
    // A refused request that succeeds after the program freed memory is made good.
    let freed = format!("{twice} free allocate 512");
    let (good, status) = answer("--memory 1610612735B", &freed);
    assert_eq!((status, &good["cards"][0]["made_good"]), (0, &1.into()));
}

/// A program that was refused memory and asks for less, or for none, has not fitted.
#[test]
fn memory_that_is_refused_and_not_asked_for_again_is_no_fit() {
    for calls in [
        "allocate 512 allocate 900 free",
        "allocate 512 allocate 900 allocate 100",
    ] {
        let (answer, status) = answer("--memory 1GiB", calls);
        assert_eq!(
            (status, &answer["cards"][0]["fits"]),
            (2, &Value::Null),
            "{calls}"
        );
        assert_eq!(answer["cards"][0]["given_up"], 1, "{calls}");
    }
}

/// A program that takes over a terminal: it finds none, and what it switched on is off when it has ended.
#[test]
fn a_terminal_is_as_it_was_before() {
    let terminal = |command: &str| {
        let mut script = Command::new("script");
        script.args(["-qec", command, "/dev/null"]);
        script.output().ok()
    };
    if terminal("true").is_none() {
        assert!(
            std::env::var_os("FIT_CHECK_NEEDS_DEVICE").is_none(),
            "there is no `script`"
        );
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("takes-over");
    let takes_over = format!(
        "[ -t 0 ] || [ -t 1 ] || [ -t 2 ] || echo piped; stty raw -echo </dev/tty || echo none; \
         printf '\\033[?1049h\\033[?1003h'; exec {} allocate 1",
        calls().display()
    );
    std::fs::write(&program, takes_over).unwrap();
    let fit_check = env!("CARGO_BIN_EXE_fit-check");
    let command = format!(
        "stty -a >{0}/before; {fit_check} run --allow-writes --memory 1GiB -- sh {0}/takes-over; stty -a >{0}/after",
        folder.path().display()
    );
    let output = terminal(&command).unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("piped") && text.contains("none"), "{text}");
    let on = text.find("\x1b[?1049h").unwrap();
    let off = text.find("\x1b[?1049l").unwrap();
    assert!(on < off && off < text.find("fits").unwrap(), "{text}");
    let settings = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
    assert_eq!(settings("before"), settings("after"));
}

/// What a program writes is gone when it ends, and it finds what it wrote, as the command after it does.
#[test]
fn the_files_of_the_user_stay_as_they_are() {
    let folder = tempfile::tempdir().unwrap();
    let weights = folder.path().join("weights");
    let script = format!(
        "echo zeros > weights; cat weights; {} allocate 1",
        calls().display()
    );
    for (options, kept) in [("", true), ("--allow-writes", false)] {
        std::fs::write(&weights, "trained\n").unwrap();
        let output = Command::new(env!("CARGO_BIN_EXE_fit-check"))
            .args(["run", "--memory", "1GiB"])
            .args(options.split_whitespace())
            .args(["--", "sh", "-c", &script])
            .current_dir(folder.path())
            .output()
            .unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        if kept && output.status.code() == Some(2) {
            // A system without namespaces: the program was not started.
            let error = String::from_utf8(output.stderr).unwrap();
            assert!(error.contains("hint: --allow-writes"), "{error}");
        } else {
            assert!(text.starts_with("zeros\n"), "{text}");
        }
        let left = std::fs::read_to_string(&weights).unwrap();
        assert_eq!(left == "trained\n", kept, "{left}");
    }
}

/// A card of the catalogue keeps memory for the process: at least 3,897 MiB of a GTX 1650 are usable, and the
/// process takes 6 MiB of that for each of its 14 multiprocessors (`gpus.csv`, `Overhead::of`).
#[test]
fn a_card_has_what_its_process_leaves() {
    let (_, status) = answer("--gpu gtx-1650", "allocate 3813");
    assert_eq!(status, 0);
    let (_, status) = answer("--gpu gtx-1650", "allocate 3814 allocate 3814");
    assert_eq!(status, 1);
}

#[test]
fn the_output_of_the_program_goes_through_and_what_it_reads_is_zero() {
    let output = run("--memory 1GiB", &calls(), "allocate 1 read");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.starts_with("read 0\n"), "{text}");
    assert!(text.contains("no GPU"), "{text}");
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn an_answer_for_a_program_is_alone_on_stdout() {
    let output = run("--memory 1GiB --format json", &calls(), "allocate 1 read");
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(answer["cards"][0]["peak_bytes"], MIB);
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains("read 0\n"), "{text}");
}

/// The folder for temporary files does not exist.
#[test]
fn a_driver_that_cannot_be_written_gets_a_hint() {
    let output = Command::new(env!("CARGO_BIN_EXE_fit-check"))
        .args(["run", "--allow-writes", "--memory", "1GiB", "--", "true"])
        .env("TMPDIR", "/nowhere")
        .output()
        .unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(text.contains("cannot be written into /nowhere"), "{text}");
    assert!(text.contains("hint: TMPDIR names another folder"), "{text}");
}

#[test]
fn a_program_that_does_not_come_to_its_end_gets_an_answer() {
    for (calls, how, what) in [
        ("allocate 7 exit 3", "exited", 3),
        ("allocate 7 abort", "signalled", 6),
        ("allocate 7 sleep 60", "timed_out", 1),
    ] {
        let began = Instant::now();
        let (answer, status) = answer("--memory 1GiB --timeout 1", calls);
        assert_eq!(status, 2, "{calls}");
        assert_eq!(answer["ended"]["how"], how);
        assert_eq!(answer["ended"]["what"], what);
        assert_eq!(answer["cards"][0]["peak_bytes"], 7 * MIB);
        assert_eq!(answer["cards"][0]["fits"], Value::Null);
        assert!(began.elapsed() < Duration::from_secs(30));
    }
}

/// The processes that a program starts end with it.
#[test]
fn no_process_is_left() {
    let mark = format!("7{:05}", std::process::id());
    let script = format!("(sleep {mark}; :) & {} allocate 1", calls().display());
    let output = Command::new(env!("CARGO_BIN_EXE_fit-check"))
        .args([
            "run",
            "--allow-writes",
            "--memory",
            "1GiB",
            "--",
            "sh",
            "-c",
            &script,
        ])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0));
    let line = format!("sleep\0{mark}\0");
    wait_until("no process is left", Duration::from_secs(5), || {
        !command_lines().contains(&line)
    });
}

#[test]
fn the_curve_is_a_page_for_a_browser() {
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("run.html");
    let options = format!("--memory 1GiB --html {}", page.display());
    let output = run(&options, &calls(), "allocate 100 allocate 50 free");
    assert_eq!(output.status.code(), Some(0));
    let text = std::fs::read_to_string(page).unwrap();
    assert!(
        text.contains("150.0 MiB") && text.contains("<svg"),
        "{text}"
    );
}

/// A script that runs two processes at once, which allocate so many MiB each. The second begins when the first has its
/// memory, which is when `begun` is written, and has five seconds for it.
fn at_once(first: u64, second: u64, begun: &std::path::Path) -> String {
    let (calls, begun) = (calls(), begun.display());
    let calls = calls.display();
    format!(
        "{calls} allocate {first} read sleep 5 > {begun} & \
         until [ -s {begun} ]; do sleep 0.02; done; {calls} allocate {second}; wait"
    )
}

/// The answer adds up the memory of all processes of a program on one card.
#[test]
fn several_processes_are_added_up() {
    let begun = tempfile::NamedTempFile::new().unwrap();
    let script = at_once(100, 50, begun.path());
    let output = Command::new(env!("CARGO_BIN_EXE_fit-check"))
        .args([
            "run",
            "--allow-writes",
            "--memory",
            "1GiB",
            "--timeout",
            "60",
        ])
        .args(["--format", "csv", "--", "sh", "-c", &script])
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains(&(150 * MIB).to_string()), "{text}");
}

/// Each process has room for its 600 MiB, and the card of 1 GiB has not room for both.
#[test]
fn processes_that_do_not_fit_together_do_not_fit() {
    let begun = tempfile::NamedTempFile::new().unwrap();
    let calls = calls();
    let calls = calls.display();
    for (script, status) in [
        (at_once(600, 600, begun.path()), 1),
        (format!("{calls} allocate 600; {calls} allocate 600"), 0),
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_fit-check"))
            .args([
                "run",
                "--allow-writes",
                "--memory",
                "1GiB",
                "--timeout",
                "60",
            ])
            .args(["--", "sh", "-c", &script])
            .output()
            .unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert_eq!(output.status.code(), Some(status), "{text}");
        assert_eq!(text.contains("2 processes together"), status == 1, "{text}");
    }
}

/// With burn's feature `persistence` CubeCL keeps what it measured in a database of the user's, from which a real GPU
/// would get it. What it measures by the counting driver's clock goes into another database, which does not stay.
#[test]
fn what_is_measured_on_the_counting_driver_is_not_kept() {
    let folder = tempfile::tempdir().unwrap();
    let databases = folder.path().join("cubecl");
    std::fs::create_dir(&databases).unwrap();
    std::fs::write(databases.join("default.db"), "the user's").unwrap();
    let script = "echo $CUBECL_ENVIRONMENT; touch $XDG_CACHE_HOME/cubecl/$CUBECL_ENVIRONMENT.db";
    let output = Command::new(env!("CARGO_BIN_EXE_fit-check"))
        .args([
            "run",
            "--allow-writes",
            "--memory",
            "1GiB",
            "--",
            "sh",
            "-c",
            script,
        ])
        .current_dir(folder.path())
        .env("XDG_CACHE_HOME", folder.path())
        .env_remove("CUBECL_ENVIRONMENT")
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.starts_with("fit-check-"), "{text}");
    let left = std::fs::read_dir(&databases).unwrap();
    let left: Vec<_> = left.map(|file| file.unwrap().file_name()).collect();
    assert_eq!(left, ["default.db"]);
}
