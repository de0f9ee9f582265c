//! `{batch}` and `{seq}` in a command: where the batch goes, and the length of a sequence.

use std::ffi::{OsStr, OsString};

use crate::user_error::UserError;

/// The text in a command that stands for the batch.
pub const BATCH: &str = "{batch}";

/// The text in a command that stands for the length of a sequence.
pub const SEQ: &str = "{seq}";

/// Checks that `command` says where the batch goes.
///
/// # Errors
///
/// It does not.
pub fn check(command: &[OsString]) -> Result<(), UserError> {
    let has = |word: &OsString| word.to_string_lossy().contains(BATCH);
    match command.iter().any(has) {
        true => Ok(()),
        false => Err(UserError::new("the command does not say where the batch goes").hint(
            "write {batch} in its place: fit-check max-batch --gpu 24GB -- python train.py --batch-size {batch}",
        )),
    }
}

/// Checks that `command` has a place for the length of a sequence if one was typed, and none if not.
///
/// # Errors
///
/// It has one without the other.
pub fn check_seq(command: &[OsString], is_typed: bool) -> Result<(), UserError> {
    let has = |word: &OsString| word.to_string_lossy().contains(SEQ);
    match (command.iter().any(has), is_typed) {
        (true, false) => Err(
            UserError::new("the command has {seq}, and no length was typed")
                .hint("add --seq 512, or several lengths to `table`: --seq 512,1024"),
        ),
        (false, true) => Err(UserError::new(
            "the command does not say where the length of a sequence goes",
        )
        .hint("write {seq} in its place, or leave --seq out")),
        _ => Ok(()),
    }
}

/// `command` with a batch.
pub fn with_batch(command: &[OsString], batch: u64) -> Vec<OsString> {
    with(command, BATCH, batch)
}

/// `command` with the length of a sequence.
pub fn with_seq(command: &[OsString], seq: u64) -> Vec<OsString> {
    with(command, SEQ, seq)
}

fn with(command: &[OsString], placeholder: &str, value: u64) -> Vec<OsString> {
    let value = value.to_string();
    let word = |word: &OsString| match word.to_str() {
        Some(text) => OsString::from(text.replace(placeholder, &value)),
        None => word.clone(),
    };
    command.iter().map(word).collect()
}

/// `command` as a person typed it, near enough to read.
pub fn shown<S: AsRef<OsStr>>(command: &[S]) -> String {
    let words = command.iter().map(|word| word.as_ref().to_string_lossy());
    words.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_batch_takes_its_place() {
        let command: Vec<OsString> = ["python", "train.py", "--data=x{batch}", "{batch}"]
            .map(Into::into)
            .to_vec();
        assert!(check(&command).is_ok());
        assert_eq!(
            shown(&with_batch(&command, 12)),
            "python train.py --data=x12 12"
        );
        assert!(check_seq(&command, false).is_ok() && check_seq(&command, true).is_err());
        let command = [command, vec!["--length={seq}".into()]].concat();
        assert!(check_seq(&command, true).is_ok() && check_seq(&command, false).is_err());
        assert_eq!(with_seq(&command, 512)[4], "--length=512");
        let error = check(&command[..2]).unwrap_err().to_string();
        assert!(error.contains("hint: write {batch}"), "{error}");
    }
}
