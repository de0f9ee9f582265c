//! The user's configuration of burn and CubeCL changes no answer and adds nothing to it.
//!
//! burn 0.22.1 or CubeCL 0.11.3 reads each file and variable here. Each value changes what a program does
//! that reads it.

use std::path::Path;
use std::process::{Command, Output};

const BURN: &str = r#"
[fusion.beam_search]
max_explorations = 0
max_blocks = 1
[fusion.logger]
level = "full"
stdout = true
stderr = true
[autodiff.logger]
level = "full"
stdout = true
"#;

const CUBECL: &str = r#"
[autotune]
level = "minimal"
[autotune.logger]
level = "full"
stdout = true
[compilation.logger]
level = "full"
stdout = true
[profiling.logger]
level = "full"
stdout = true
[memory]
persistent_memory = "disabled"
[memory.logger]
level = "full"
stdout = true
[streaming]
max_streams = 1
"#;

const VARIABLES: [(&str, &str); 12] = [
    ("BURN_DEVICE", "cpu"),
    ("BURN_FUSION_LOG", "full"),
    ("BURN_FUSION_MAX_EXPLORATIONS", "0"),
    ("BURN_REMOTE_LOG", "full"),
    ("CUBECL_AUTOTUNE_LEVEL", "minimal"),
    ("CUBECL_CUDA_DUMP_PTX", "1"),
    ("CUBECL_DEBUG_LOG", "stdout"),
    ("CUBECL_DEBUG_OPTION", "debug-full"),
    ("CUBECL_DEBUG_PLIRON", "1"),
    ("CUBECL_ENVIRONMENT", "elsewhere"),
    ("CUBECL_ENVIRONMENT_RECORDS", "1"),
    ("CUBECL_WGPU_MAX_TASKS", "1"),
];

/// The answer to a question, in `folder`. The step is fused and tuned if burn does so.
fn answer(folder: &Path, variables: &[(&str, &str)]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fit-check"));
    command
        .args(["max-batch", "alexnet", "--gpu", "24GB"])
        .args(["--format", "json", "--quiet", "--no-cache"])
        .envs(variables.iter().copied())
        .current_dir(folder);
    command.output().unwrap()
}

#[test]
fn neither_files_nor_variables_change_an_answer() {
    let clean = tempfile::tempdir().unwrap();
    let expected = answer(clean.path(), &[]);
    assert!(expected.status.success());
    let configured = tempfile::tempdir().unwrap();
    for (name, text) in [
        ("burn.toml", BURN),
        ("Burn.toml", BURN),
        ("cubecl.toml", CUBECL),
        ("CubeCL.toml", CUBECL),
    ] {
        std::fs::write(configured.path().join(name), text).unwrap();
    }
    let below = configured.path().join("below");
    std::fs::create_dir(&below).unwrap();
    for folder in [configured.path(), &below] {
        let found = answer(folder, &VARIABLES);
        assert_eq!(String::from_utf8_lossy(&found.stderr), "");
        assert_eq!(found.stdout, expected.stdout);
    }
    let names = |folder: &Path| {
        let files = std::fs::read_dir(folder).unwrap();
        files
            .map(|file| file.unwrap().file_name())
            .collect::<Vec<_>>()
    };
    assert_eq!(names(&below).len(), 0);
    assert_eq!(names(configured.path()).len(), 5);
}

/// The user's own cache of CubeCL would change answers, so the program neither reads nor writes it.
#[test]
fn nothing_is_written_into_the_users_home() {
    let home = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_fit-check"));
    let output = command
        .args(["estimate", "resnet-20", "--quiet", "--no-cache"])
        .env("HOME", home.path())
        .env_remove("XDG_CACHE_HOME")
        .env_remove("XDG_DATA_HOME")
        .current_dir(home.path())
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let left: Vec<_> = std::fs::read_dir(home.path()).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
}
