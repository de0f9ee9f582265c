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
    // It names no address on a code host, which may be another's.
    assert!(
        workflow.contains("uses: YOUR_COPY_OF_FIT_CHECK@"),
        "{workflow}"
    );
    assert!(!workflow.contains("github.com") && env!("CARGO_PKG_REPOSITORY").is_empty());
    let arguments = workflow
        .lines()
        .find_map(|line| line.trim().strip_prefix("arguments: "))
        .unwrap();
    let output = sh(&format!("fit-check {arguments} --quiet"), folder.path());
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
}

/// What the shell offers after `typed`: the shell runs the script of `fit-check completions`.
fn offered(shell: &str, typed: &str) -> Option<Vec<String>> {
    let folder = tempfile::tempdir().unwrap();
    let is_there = sh(&format!("command -v {shell}"), folder.path())
        .status
        .success();
    let needed = std::env::var_os("FIT_CHECK_NEEDS_DEVICE").is_some();
    assert!(is_there || !needed, "there is no {shell}");
    let words = typed.split(' ').count();
    let script = match shell {
        "fish" => format!("fish -c 'fit-check completions fish | source; complete -C \"{typed}\"'"),
        _ => format!(
            "exec bash -c '. <(fit-check completions bash)
             COMP_WORDS=({}) COMP_CWORD={} COMP_TYPE=9
             completes=$(complete -p fit-check | sed \"s/.* -F //; s/ .*//\")
             $completes fit-check \"${{COMP_WORDS[-1]}}\" \"${{COMP_WORDS[-2]}}\"
             printf \"%s\\n\" \"${{COMPREPLY[@]}}\"'",
            typed.replace("  ", " ").trim_end().to_string()
                + if typed.ends_with(' ') { " \"\"" } else { "" },
            words - 1
        ),
    };
    let output = sh(&script, folder.path());
    let text = String::from_utf8(output.stdout).unwrap();
    let first = |line: &str| {
        line.split(['\t', ' '])
            .next()
            .unwrap_or_default()
            .to_string()
    };
    is_there.then(|| text.lines().map(first).collect())
}

#[test]
fn shells_offer_commands_and_values() {
    for shell in ["bash", "fish"] {
        for (typed, offers, never) in [
            ("fit-check m", "max-batch", "measure"),
            (
                "fit-check estimate resnet-50 --format ",
                "json",
                "Cargo.toml",
            ),
            ("fit-check estimate resnet-50 --precision ", "mixed", "fp8"),
            (
                "fit-check estimate resnet-50 --gpu rtx-30",
                "rtx-3090",
                "rtx-4090",
            ),
            (
                "fit-check estimate resnet-50 --gpu g5",
                "g5.xlarge",
                "g6.xlarge",
            ),
            ("fit-check estimate resn", "resnet-50", "vgg-16"),
            ("fit-check completions ", "zsh", "csh"),
        ] {
            let Some(offered) = offered(shell, typed) else {
                continue;
            };
            let has = |word: &str| offered.iter().any(|offer| offer == word);
            assert!(has(offers) && !has(never), "{shell}: {typed}: {offered:?}");
        }
    }
}
