//! A file system of two pages, both taken, for tests of what happens where nothing more can be written.

use std::process::{Command, Output};

/// A file on the full file system whose content must stay. A few bytes of its page are free.
pub const FILE: &str = "/mnt/answer";

/// Mounts the file system in a namespace of its own, where nobody else sees it, runs the arguments there, and ends
/// with a line that says what is left on it.
const SCRIPT: &str = r#"
    mount -t tmpfs -o size=8k,mode=700 none /mnt || exit 77
    printf '%4090s' before > /mnt/answer && head -c 4096 /dev/zero > /mnt/other || exit 77
    "$@"
    status=$?
    printf '\n%s%s %s' "$(ls -A /mnt | tr '\n' ' ')" "$(wc -c < /mnt/answer)" "$(tail -c 6 /mnt/answer)"
    exit $status
"#;

/// The exit status of the script where such a file system cannot be had.
const NOT_TO_BE_HAD: i32 = 77;

/// Runs `command` where the file system at `/mnt` is full, and asserts that it leaves [`FILE`] as it was and nothing
/// beside it. `None`: the system lets this user mount nothing, which is an error where `FIT_CHECK_NEEDS_DEVICE` is set.
pub fn run(command: &Command) -> Option<Output> {
    let mut inside = Command::new("unshare");
    inside
        .args(["--mount", "--map-root-user", "sh", "-c", SCRIPT, "sh"])
        .arg(command.get_program())
        .args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => inside.env(name, value),
            None => inside.env_remove(name),
        };
    }
    let nothing = |why: &str| {
        let needed = std::env::var_os("FIT_CHECK_NEEDS_DEVICE").is_some();
        assert!(!needed, "this user may not mount a file system: {why}");
        eprintln!("nothing is shown: this user may not mount a file system: {why}");
        None
    };
    let mut output = match inside.output() {
        Ok(output) => output,
        Err(error) => return nothing(&error.to_string()),
    };
    let stderr = String::from_utf8_lossy(&output.stderr);
    if output.status.code() == Some(NOT_TO_BE_HAD) || stderr.starts_with("unshare:") {
        return nothing(&stderr);
    }
    let mut bytes = output.stdout.iter();
    let end = bytes.rposition(|byte| *byte == b'\n');
    let end = end.expect("a line that says what is left");
    let left = output.stdout.split_off(end);
    assert_eq!(String::from_utf8_lossy(&left), "\nanswer other 4090 before");
    Some(output)
}
