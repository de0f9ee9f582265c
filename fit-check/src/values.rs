//! Parses the values of options.

use std::str::FromStr;
use std::time::Duration;

use estimator::Bytes;

use crate::user_error::{UserError, either};

/// Parses `text` as the value of `option`, which is one of `known`.
///
/// # Errors
///
/// The text is not a known value.
pub fn choice<T: FromStr>(option: &str, text: &str, known: &[&str]) -> Result<T, UserError> {
    text.to_lowercase().parse().map_err(|_| {
        UserError::invalid_value(option, text).hint(format!("{option} is {}", either(known)))
    })
}

/// A [`count`], if one was typed.
///
/// # Errors
///
/// The text is not a count.
pub fn optional_count(option: &str, text: Option<&str>) -> Result<Option<usize>, UserError> {
    text.map(|text| count(option, text)).transpose()
}

/// A whole number from 1 to the most that burn can count.
///
/// # Errors
///
/// The text is not such a number.
pub fn count(option: &str, text: &str) -> Result<usize, UserError> {
    let invalid = || UserError::invalid_value(option, text);
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
/// The text is not such a number.
pub fn seconds(option: &str, text: &str) -> Result<Duration, UserError> {
    Ok(Duration::from_secs(count(option, text)? as u64))
}

/// The most memory that a job may have: some fifty times the largest card of the catalogue. With much more, a
/// batch has tensors of more elements than the kernels of a small batch count, and a search takes minutes.
const MAX_MEMORY: Bytes = Bytes(16 << 40);

/// An amount of memory.
///
/// # Errors
///
/// The text is not an amount of memory, or it is more than any device has.
pub fn memory(text: &str) -> Result<Bytes, UserError> {
    let memory = text.parse::<Bytes>()?;
    match memory <= MAX_MEMORY {
        true => Ok(memory),
        false => Err(
            UserError::new(format!("`{text}` is more memory than any device has")).hint(format!(
                "the most is {MAX_MEMORY}; `fit-check estimate` says what a job needs, without any limit"
            )),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_at_most_what_a_device_could_have() {
        assert_eq!(memory("16TiB").unwrap(), Bytes(16 << 40));
        assert!(memory("17TiB").is_err() && memory("much").is_err());
    }

    #[test]
    fn counts_are_whole_numbers_from_one_to_what_burn_counts_with() {
        assert_eq!(count("--batch", "4294967295").unwrap(), 4_294_967_295);
        for wrong in ["0", "-1", "4294967296", "1.5", "many"] {
            assert!(count("--batch", wrong).is_err(), "{wrong}");
        }
    }
}
