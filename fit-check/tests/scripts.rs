//! Tests what `docs/scripts.md` promises to scripts: its commands are run as they are typed there.

use std::path::Path;
use std::process::{Command, Output};

const PAGE: &str = include_str!("../../docs/scripts.md");

/// Runs `script` in a shell that knows the program by its name, in the folder `at`.
fn sh(script: &str, at: &Path) -> Output {
    let program = Path::new(env!("CARGO_BIN_EXE_fit-check"));
    let path = std::env::var("PATH").unwrap_or_default();
    let folder = program.parent().unwrap().display();
    Command::new("sh")
        .args(["-ec", script])
        .env("PATH", format!("{folder}:{path}"))
        .env("HOME", at)
        .env_remove("XDG_CACHE_HOME")
        .env_remove("FIT_CHECK_CACHE_DIR")
        .current_dir(at)
        .output()
        .unwrap()
}

/// The blocks of the page in `language`.
fn blocks(language: &str) -> Vec<&'static str> {
    let fence = format!(
        "```{language}
"
    );
    let blocks = PAGE.split(fence.as_str()).skip(1);
    blocks
        .map(|block| block.split("```").next().unwrap())
        .collect()
}

#[test]
fn the_gate_passes_what_fits_and_fails_what_does_not() {
    let folder = tempfile::tempdir().unwrap();
    let gates: Vec<_> = blocks("sh")
        .into_iter()
        .filter(|b| b.contains("estimate "))
        .collect();
    let gates: Vec<_> = gates
        .into_iter()
        .filter(|b| b.contains("--batch"))
        .collect();
    assert_eq!(gates.len(), 2, "a gate for the card and one for a limit");
    for gate in gates {
        let fits = sh(gate, folder.path());
        assert_eq!(fits.status.code(), Some(0), "{gate}: {fits:?}");
        assert!(fits.stderr.is_empty(), "{fits:?}");
        let larger = gate.replace("--batch ", "--batch 9");
        let grown = sh(&larger, folder.path());
        assert_eq!(grown.status.code(), Some(1), "{larger}: {grown:?}");
        assert!(grown.stderr.is_empty(), "{grown:?}");
    }
    let wrong = sh(
        "fit-check estimate bert-base --gpu l5 --quiet",
        folder.path(),
    );
    assert_eq!(wrong.status.code(), Some(2));
    assert!(wrong.stdout.is_empty());
}

#[test]
fn the_gate_of_the_workflow_passes_and_keeps_a_picture() {
    let folder = tempfile::tempdir().unwrap();
    let model =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/own_models/tiny-bert/config.json");
    std::fs::create_dir(folder.path().join("train")).unwrap();
    std::fs::copy(model, folder.path().join("train/config.json")).unwrap();
    let [workflow] = blocks("yaml")[..] else {
        panic!("one workflow");
    };
    // It installs the program from the repository that the manifest names.
    let source = concat!("--git ", env!("CARGO_PKG_REPOSITORY"), " ");
    assert!(workflow.contains(source), "{workflow}");
    let step = workflow
        .lines()
        .find_map(|line| line.trim().strip_prefix("- run: "))
        .unwrap();
    let output = sh(step, folder.path());
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(folder.path().join("step.html").is_file());
}

#[test]
fn completions_and_manual_pages_are_written_as_described() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    std::fs::create_dir_all(at(".local/share/bash-completion/completions")).unwrap();
    for script in blocks("sh").iter().filter(|b| b.contains(" > ")) {
        let output = sh(script, folder.path());
        assert_eq!(output.status.code(), Some(0), "{script}: {output:?}");
    }
    let main = std::fs::read_to_string(at("fit-check.1")).unwrap();
    assert!(main.contains(".TH fit-check 1") && main.contains("max\\-batch"));
    let estimate = std::fs::read_to_string(at("fit-check-estimate.1")).unwrap();
    assert!(estimate.contains("\\-\\-html"));
    // The shell itself asks the script for completions.
    let asked = sh(
        "exec bash -c '. ~/.local/share/bash-completion/completions/fit-check
             COMP_WORDS=(fit-check max) COMP_CWORD=1
             completes=$(complete -p fit-check | sed \"s/.* -F //; s/ .*//\")
             $completes fit-check max fit-check && echo \"${COMPREPLY[@]}\"'",
        folder.path(),
    );
    let found = String::from_utf8(asked.stdout).unwrap();
    let has_bash = sh("command -v bash", folder.path()).status.success();
    let needed = std::env::var_os("FIT_CHECK_NEEDS_DEVICE").is_some();
    assert!(has_bash || !needed, "there is no bash");
    assert!(!has_bash || found.contains("max-batch"), "{found}");
    let all = sh("fit-check completions fish", folder.path()).stdout;
    let all = String::from_utf8(all).unwrap();
    assert!(
        all.contains("\"verify\"") && !all.contains("\"measure\""),
        "{all}"
    );
}
