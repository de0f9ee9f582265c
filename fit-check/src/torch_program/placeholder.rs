//! `{batch}` in a command: where the batch goes.

use std::ffi::{OsStr, OsString};

use crate::user_error::UserError;

/// The text in a command that stands for the batch.
pub const BATCH: &str = "{batch}";

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

/// `command` with a batch.
pub fn with_batch(command: &[OsString], batch: u64) -> Vec<OsString> {
    let batch = batch.to_string();
    let word = |word: &OsString| match word.to_str() {
        Some(text) => OsString::from(text.replace(BATCH, &batch)),
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
        let error = check(&command[..2]).unwrap_err().to_string();
        assert!(error.contains("hint: write {batch}"), "{error}");
    }
}
