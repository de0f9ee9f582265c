//! Values of options, read from what was typed.

use std::str::FromStr;
use std::time::Duration;

use estimator::Bytes;

use crate::user_error::{UserError, either};

/// The value of `option` that `text` names, one of `known`.
///
/// # Errors
///
/// It names none.
pub fn choice<T: FromStr>(option: &str, text: &str, known: &[&str]) -> Result<T, UserError> {
    text.to_lowercase().parse().map_err(|_| {
        UserError::new(format!("`{text}` is no value of {option}"))
            .hint(format!("{option} is {}", either(known)))
    })
}

/// A [`count`], if one was typed.
///
/// # Errors
///
/// What was typed is none.
pub fn optional_count(option: &str, text: Option<&str>) -> Result<Option<usize>, UserError> {
    text.map(|text| count(option, text)).transpose()
}

/// A whole number from 1 on that burn can count with.
///
/// # Errors
///
/// It is none.
pub fn count(option: &str, text: &str) -> Result<usize, UserError> {
    let invalid = || UserError::new(format!("`{text}` is no value of {option}"));
    match text.parse::<u64>() {
        Ok(0) => Err(invalid().hint(format!("{option} is at least 1"))),
        Ok(number) if number > u64::from(u32::MAX) => {
            Err(invalid().hint(format!("{option} is at most {}", u32::MAX)))
        }
        Ok(number) => Ok(number as usize),
        Err(_) => Err(invalid().hint(format!("{option} is a whole number from 1 on"))),
    }
}

/// A whole number of seconds.
///
/// # Errors
///
/// It is none.
pub fn seconds(option: &str, text: &str) -> Result<Duration, UserError> {
    Ok(Duration::from_secs(count(option, text)? as u64))
}

/// An amount of memory.
///
/// # Errors
///
/// It is none.
pub fn memory(text: &str) -> Result<Bytes, UserError> {
    text.parse()
        .map_err(|error: estimator::SizeError| error.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_whole_numbers_from_one_to_what_burn_counts_with() {
        assert_eq!(count("--batch", "4294967295").unwrap(), 4_294_967_295);
        for wrong in ["0", "-1", "4294967296", "1.5", "many"] {
            assert!(count("--batch", wrong).is_err(), "{wrong}");
        }
    }
}
