//! Answers are written to files of every kind, and everything else stays as it was.
#![cfg(unix)]

#[cfg(target_os = "linux")]
mod full_disk;

use std::fs;
use std::os::unix::fs::{FileTypeExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Output};

/// `fit-check gpus l4 --output PATH`, an answer of a few lines.
fn write_to(path: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fit-check"));
    command.args(["gpus", "l4", "--output"]).arg(path);
    command
}

fn is_written(path: &Path) {
    assert!(fs::read_to_string(path).unwrap().contains("L4"));
}

fn message(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into()
}

#[test]
fn a_file_keeps_its_permissions_and_leaves_nothing_beside_it() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("answer");
    fs::write(&file, "before").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
    assert!(write_to(&file).status().unwrap().success());
    is_written(&file);
    assert_eq!(
        fs::metadata(&file).unwrap().permissions().mode() & 0o777,
        0o640
    );
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn a_new_file_has_the_usual_permissions() {
    let folder = tempfile::tempdir().unwrap();
    let [ours, usual] = ["ours", "usual"].map(|name| folder.path().join(name));
    fs::write(&usual, "").unwrap();
    assert!(write_to(&ours).status().unwrap().success());
    let mode = |path| fs::metadata(path).unwrap().permissions().mode();
    assert_eq!(mode(&ours), mode(&usual));
}

#[test]
fn a_link_stays_and_what_it_points_to_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let [file, link, dangling] = ["file", "link", "dangling"].map(|name| folder.path().join(name));
    fs::write(&file, "before").unwrap();
    symlink("file", &link).unwrap();
    symlink("not-there-yet", &dangling).unwrap();
    for link in [&link, &dangling] {
        assert!(write_to(link).status().unwrap().success());
        assert!(fs::symlink_metadata(link).unwrap().is_symlink());
    }
    is_written(&file);
    is_written(&folder.path().join("not-there-yet"));
}

#[test]
fn standard_output_by_name_is_written_to() {
    let before = fs::symlink_metadata("/dev/stdout").unwrap().file_type();
    let output = write_to(Path::new("/dev/stdout")).output().unwrap();
    assert!(String::from_utf8_lossy(&output.stdout).contains("L4"));
    let after = fs::symlink_metadata("/dev/stdout").unwrap().file_type();
    assert_eq!(before.is_symlink(), after.is_symlink());
}

#[test]
fn standard_output_that_is_a_file_keeps_what_is_in_it() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("log");
    fs::write(&file, "before\n").unwrap();
    let log = fs::OpenOptions::new().append(true).open(&file).unwrap();
    let status = write_to(Path::new("/dev/stdout")).stdout(log).status();
    assert!(status.unwrap().success());
    assert!(fs::read_to_string(&file).unwrap().starts_with("before\n"));
    is_written(&file);
}

#[test]
fn a_pipe_with_a_name_reaches_its_reader() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    assert!(
        Command::new("mkfifo")
            .arg(&pipe)
            .status()
            .unwrap()
            .success()
    );
    let reader = {
        let pipe = pipe.clone();
        std::thread::spawn(move || fs::read_to_string(pipe).unwrap())
    };
    assert!(write_to(&pipe).status().unwrap().success());
    assert!(reader.join().unwrap().contains("L4"));
    assert!(fs::metadata(&pipe).unwrap().file_type().is_fifo());
}

#[test]
fn a_full_device_is_an_error_and_stays_a_device() {
    if !Path::new("/dev/full").exists() {
        return;
    }
    let output = write_to(Path::new("/dev/full")).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let stderr = message(&output);
    assert!(
        stderr.starts_with("error: cannot write /dev/full: No space left"),
        "{stderr}"
    );
    assert!(stderr.contains("hint: "), "{stderr}");
    let full = fs::metadata("/dev/full").unwrap().file_type();
    assert!(full.is_char_device());
}

#[test]
fn a_full_standard_output_is_an_error() {
    let Ok(full) = fs::OpenOptions::new().write(true).open("/dev/full") else {
        return;
    };
    let mut command = Command::new(env!("CARGO_BIN_EXE_fit-check"));
    let output = command.args(["gpus", "l4"]).stdout(full).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(
        message(&output).starts_with("error: "),
        "{}",
        message(&output)
    );
}

#[test]
fn a_reader_that_has_seen_enough_is_no_error() {
    let mut plain = Command::new(env!("CARGO_BIN_EXE_fit-check"));
    plain.args(["gpus", "l4"]);
    for mut command in [plain, write_to(Path::new("/dev/stdout"))] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = command.stdout(writer).output().unwrap();
        assert_eq!(message(&output), "");
        assert!(output.status.success());
    }
}

#[test]
#[cfg(target_os = "linux")]
fn on_a_full_disk_the_file_stays_as_it_was() {
    for (command, option) in [
        ("gpus", "--output"),
        ("estimate alexnet-mini --batch 2", "--output"),
        ("estimate alexnet-mini --batch 2", "--html"),
        ("estimate alexnet-mini --batch 2", "--svg"),
        ("estimate alexnet-mini --batch 2", "--trace"),
    ] {
        let mut fit_check = Command::new(env!("CARGO_BIN_EXE_fit-check"));
        let arguments = command.split_whitespace();
        fit_check.args(arguments).args([option, full_disk::FILE]);
        let Some(output) = full_disk::run(&fit_check) else {
            return;
        };
        let stderr = message(&output);
        assert_eq!(
            output.status.code(),
            Some(2),
            "{command} {option}: {stderr}"
        );
        let said = "No space left on device (os error 28)\nhint: choose another ";
        let said = format!("error: cannot write {}: {said}{option}", full_disk::FILE);
        assert!(stderr.contains(&said), "{command} {option}: {stderr}");
        // A file that cannot be written costs the file and not the answer.
        let answer = String::from_utf8_lossy(&output.stdout);
        assert!(!answer.is_empty(), "{command} {option}");
    }
}

#[test]
fn a_folder_is_refused_before_any_work() {
    let folder = tempfile::tempdir().unwrap();
    let output = write_to(folder.path()).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(message(&output).contains("it is a folder"));
}

#[test]
fn a_path_that_names_a_folder_is_refused_before_any_work() {
    let folder = tempfile::tempdir().unwrap();
    symlink("results/", folder.path().join("link")).unwrap();
    for name in ["results/", "results/.", "link"] {
        let output = write_to(&folder.path().join(name)).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{name}");
        let stderr = message(&output);
        assert!(stderr.contains("it names a folder"), "{name}: {stderr}");
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn a_file_in_shared_memory_is_replaced_as_any_other() {
    let Ok(folder) = tempfile::tempdir_in("/dev/shm") else {
        return;
    };
    let [file, link] = ["file", "link"].map(|name| folder.path().join(name));
    symlink("file", &link).unwrap();
    assert!(write_to(&file).status().unwrap().success());
    is_written(&file);
    let once = fs::read_to_string(&file).unwrap();
    for path in [&file, &link] {
        assert!(write_to(path).status().unwrap().success());
        assert_eq!(fs::read_to_string(&file).unwrap(), once);
    }
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
}

#[test]
fn two_options_of_run_cannot_name_one_file() {
    let folder = tempfile::tempdir().unwrap();
    symlink("page", folder.path().join("link")).unwrap();
    for other in ["page", "./page", "link"] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_fit-check"));
        command
            .args(["run", "--memory", "1GiB", "--output", "page"])
            .args(["--html", other, "--", "true"])
            .current_dir(folder.path());
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{other}");
        let said = format!("error: --output and --html both name {other}\n");
        assert!(message(&output).starts_with(&said), "{}", message(&output));
    }
}

/// A page that cannot be written costs the page and not the answer.
#[test]
#[cfg(target_os = "linux")]
fn on_a_full_disk_run_answers_without_its_page() {
    let fit_check = Path::new(env!("CARGO_BIN_EXE_fit-check"));
    let mut command = Command::new(fit_check);
    command
        .args(["run", "--allow-writes", "--memory", "1GiB", "--html"])
        .args([full_disk::FILE, "--"])
        .arg(fit_check.with_file_name("examples").join("cuda_calls"))
        .args(["allocate", "7"]);
    let Some(output) = full_disk::run(&command) else {
        return;
    };
    let stderr = message(&output);
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains("choose another --html"), "{stderr}");
    let answer = String::from_utf8_lossy(&output.stdout);
    assert!(answer.contains("7.00 MiB"), "{answer}");
}
