//! The same question again is answered from the kept answers, and exactly like the first time.

mod command;
#[cfg(target_os = "linux")]
mod full_disk;

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

fn fit_check(folder: &Path, arguments: &str) -> Command {
    let mut command = command::fit_check();
    command
        .args(arguments.split(' '))
        .env("FIT_CHECK_CACHE_DIR", folder);
    command
}

fn answer(folder: &Path, arguments: &str) -> Output {
    fit_check(folder, arguments).output().unwrap()
}

/// The files of answers in `folder`.
fn entries(folder: &Path) -> Vec<std::path::PathBuf> {
    let files = fs::read_dir(folder).into_iter().flatten();
    files.map(|file| file.unwrap().path()).collect()
}

#[test]
fn the_second_answer_is_the_first_in_every_form() {
    let folder = tempfile::tempdir().unwrap();
    // The job does not fit on this card: the exit status is kept too.
    for question in [
        "estimate alexnet --memory 1GB",
        "max-batch alexnet --memory 3GB",
        "table alexnet --gpus t4,24GB",
        "gpus --fits alexnet --batch 100000",
    ] {
        let first = answer(folder.path(), question);
        for form in ["table", "json", "csv", "markdown"] {
            let formed = format!("{question} --format {form}");
            let anew = answer(folder.path(), &format!("{formed} --no-cache"));
            let kept = answer(folder.path(), &formed);
            assert_eq!(kept.stdout, anew.stdout, "{formed}");
            assert_eq!(kept.status, anew.status, "{formed}");
            assert_eq!(kept.status, first.status, "{formed}");
        }
    }
    assert_eq!(entries(folder.path()).len(), 4);
}

/// What is kept is shown, and not simulated again. Only `--no-cache` simulates.
#[test]
fn the_second_answer_is_the_kept_one() {
    let folder = tempfile::tempdir().unwrap();
    let question = "estimate alexnet --batch 2";
    let first = answer(folder.path(), question);
    let entry = entries(folder.path()).pop().unwrap();
    let mut kept: serde_json::Value = serde_json::from_slice(&fs::read(&entry).unwrap()).unwrap();
    assert!(kept["value"]["rendered"]["table"].is_string(), "{kept}");
    kept["value"]["rendered"]["table"] = "a mark\n".into();
    kept["value"]["status"] = 1.into();
    fs::write(&entry, kept.to_string()).unwrap();
    let second = answer(folder.path(), question);
    assert_eq!(String::from_utf8_lossy(&second.stdout), "a mark\n");
    assert_eq!(second.status.code(), Some(1));
    let anew = answer(folder.path(), &format!("{question} --no-cache"));
    assert_eq!(anew.stdout, first.stdout);
    assert_eq!(anew.status.code(), Some(0));
}

#[test]
fn another_question_is_not_answered_by_it() {
    let folder = tempfile::tempdir().unwrap();
    let questions = [
        "estimate alexnet --batch 2",
        "estimate alexnet --batch 3",
        "estimate alexnet --batch 2 --layers",
        "estimate alexnet --batch 2 --precision mixed",
        "estimate alexnet --batch 2 --gpu l4",
        "estimate alexnet --batch 2 --tuning cold",
        "estimate alexnet --batch 2 --runtime wgpu",
        "estimate alexnet --batch 2 --optimizer sgd",
        "estimate alexnet --batch 2 --image 128",
        "estimate alexnet --batch 2 --memory 100MiB",
        "estimate alexnet --batch 2 --details",
    ];
    for (before, question) in questions.into_iter().enumerate() {
        answer(folder.path(), question);
        assert_eq!(entries(folder.path()).len(), before + 1, "{question}");
    }
}

/// An entry that another user could have written counts as none, and a pipe in the place of one does not stop the program.
#[test]
#[cfg(unix)]
fn what_others_could_have_written_is_no_entry() {
    use std::os::unix::fs::PermissionsExt;

    let folder = tempfile::tempdir().unwrap();
    let question = "estimate alexnet --batch 2";
    let first = answer(folder.path(), question);
    let entry = entries(folder.path()).pop().unwrap();
    let mut kept: serde_json::Value = serde_json::from_slice(&fs::read(&entry).unwrap()).unwrap();
    kept["value"]["rendered"]["table"] = "a mark\n".into();
    fs::write(&entry, kept.to_string()).unwrap();
    assert_eq!(answer(folder.path(), question).stdout, b"a mark\n");
    fs::set_permissions(&entry, fs::Permissions::from_mode(0o666)).unwrap();
    assert_eq!(answer(folder.path(), question).stdout, first.stdout);
    fs::remove_file(&entry).unwrap();
    nix::unistd::mkfifo(&entry, nix::sys::stat::Mode::S_IRWXU).unwrap();
    assert_eq!(answer(folder.path(), question).stdout, first.stdout);
}

#[test]
fn a_damaged_entry_is_made_anew_without_a_word() {
    let folder = tempfile::tempdir().unwrap();
    let question = "estimate alexnet --batch 2";
    let first = answer(folder.path(), question);
    let entry = entries(folder.path()).pop().unwrap();
    let whole = fs::read(&entry).unwrap();
    for damage in [&whole[..whole.len() / 2], b"", b"\xff\xfe"] {
        fs::write(&entry, damage).unwrap();
        let again = answer(folder.path(), question);
        assert_eq!(again.stdout, first.stdout);
        assert_eq!(String::from_utf8_lossy(&again.stderr), "");
        assert_eq!(fs::read(&entry).unwrap(), whole);
    }
}

#[test]
fn programs_at_once_do_no_harm() {
    let folder = tempfile::tempdir().unwrap();
    let question = "estimate alexnet --batch 2";
    let children: Vec<_> = (0..4)
        .map(|_| {
            let mut command = fit_check(folder.path(), question);
            command.stdout(std::process::Stdio::piped());
            command.spawn().unwrap()
        })
        .collect();
    let answers: Vec<_> = children
        .into_iter()
        .map(|child| child.wait_with_output().unwrap().stdout)
        .collect();
    assert!(answers.windows(2).all(|pair| pair[0] == pair[1]));
    assert_eq!(entries(folder.path()).len(), 1);
    assert_eq!(answer(folder.path(), question).stdout, answers[0]);
}

#[test]
fn a_folder_that_cannot_be_written_to_costs_the_entry_and_not_the_answer() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let output = answer(&file.path().join("below"), "estimate alexnet --batch 2");
    assert!(output.status.success());
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}

#[test]
#[cfg(target_os = "linux")]
fn a_full_disk_costs_the_entry_and_not_the_answer() {
    let folder = Path::new(full_disk::FILE).parent().unwrap();
    let Some(output) = full_disk::run(&fit_check(folder, "estimate alexnet --batch 2")) else {
        return;
    };
    assert!(output.status.success());
    assert!(String::from_utf8_lossy(&output.stdout).contains("alexnet"));
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}

#[test]
fn it_can_be_looked_at_and_cleared() {
    let folder = tempfile::tempdir().unwrap();
    answer(folder.path(), "estimate alexnet --batch 2");
    let answers = |arguments: &str| {
        let output = answer(folder.path(), arguments);
        assert!(output.status.success());
        serde_json::from_slice::<serde_json::Value>(&output.stdout).unwrap()["entries"].clone()
    };
    assert_eq!(answers("cache --format json"), 1);
    assert_eq!(answers("cache --clear --format json"), 1);
    assert_eq!(answers("cache --format json"), 0);
}
