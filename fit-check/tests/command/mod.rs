//! The program, away from the settings and the kept answers of whoever runs the tests.

use std::process::Command;

/// The variables that change what the program shows, or where it and the crates below it keep files.
const SETTINGS: [&str; 5] = [
    "CLICOLOR_FORCE",
    "COLUMNS",
    "FIT_CHECK_NO_PROGRESS",
    "XDG_CACHE_HOME",
    "XDG_DATA_HOME",
];

/// `fit-check`, which keeps no answers.
pub fn fit_check() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fit-check"));
    for setting in SETTINGS {
        command.env_remove(setting);
    }
    command.env("FIT_CHECK_CACHE_DIR", "");
    command.env("HF_HUB_OFFLINE", "1");
    command
}
