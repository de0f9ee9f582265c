//! A number of bytes.

use std::fmt;
use std::ops::{Add, AddAssign, Div, Mul, Sub, SubAssign};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A number of bytes.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[serde(transparent)]
pub struct Bytes(pub u64);

impl Bytes {
    /// Zero bytes.
    pub const ZERO: Self = Self(0);

    /// `count` times 2^20 bytes.
    pub const fn mib(count: u64) -> Self {
        Self(count << 20)
    }

    /// `count` times 2^30 bytes.
    pub const fn gib(count: u64) -> Self {
        Self(count << 30)
    }

    /// The number as a float, for ratios.
    pub fn as_f64(self) -> f64 {
        self.0 as f64
    }

    /// `self - other`, or zero if `other` is larger.
    pub fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }

    /// How far `self` is above `other`; negative when it is below. What no `i64` can hold, such as the memory that a
    /// card without a limit leaves free, is the nearest `i64`.
    pub fn signed_difference(self, other: Self) -> i64 {
        let difference = i128::from(self.0) - i128::from(other.0);
        difference.clamp(i64::MIN.into(), i64::MAX.into()) as i64
    }
}

impl Add for Bytes {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0 + other.0)
    }
}

impl AddAssign for Bytes {
    fn add_assign(&mut self, other: Self) {
        self.0 += other.0;
    }
}

impl Sub for Bytes {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self(self.0 - other.0)
    }
}

impl SubAssign for Bytes {
    fn sub_assign(&mut self, other: Self) {
        self.0 -= other.0;
    }
}

impl Mul<u64> for Bytes {
    type Output = Self;
    fn mul(self, factor: u64) -> Self {
        Self(self.0 * factor)
    }
}

impl Div<u64> for Bytes {
    type Output = Self;
    fn div(self, divisor: u64) -> Self {
        Self(self.0 / divisor)
    }
}

impl std::iter::Sum for Bytes {
    fn sum<I: Iterator<Item = Self>>(bytes: I) -> Self {
        Self(bytes.map(|b| b.0).sum())
    }
}

/// Writes the number in the binary unit that fits: `4.31 GiB`, `87.5 MiB`, `512 B`.
impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
        if self.0 < 1024 {
            return f.pad(&format!("{} B", self.0));
        }
        let mut value = self.0 as f64 / 1024.0;
        let mut unit = 0;
        // 999.95 would be shown as 1000.0.
        while value >= 999.95 && unit + 1 < UNITS.len() {
            value /= 1024.0;
            unit += 1;
        }
        let digits = if value < 10.0 { 2 } else { 1 };
        f.pad(&format!("{value:.digits$} {}", UNITS[unit]))
    }
}

/// Why a text is not a size.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SizeError {
    /// The text is not a number, or not a number with a known unit.
    #[error("`{0}` is not a size")]
    NotASize(String),
    /// The unit is in bits: `b` is a bit, `B` a byte.
    #[error("`{0}` is in bits: `b` is a bit, `B` a byte")]
    Bits(String),
    /// A number so small that bytes are hardly meant, without a unit.
    #[error("`{0}` has no unit")]
    NoUnit(String),
    /// The size is below one byte, or more than 64 bits can count.
    #[error("`{0}` is out of range")]
    OutOfRange(String),
}

/// Reads `24GB` as 24 · 10^9 bytes and `24GiB` as 24 · 2^30. A number without a unit is in bytes, if it is at least a
/// million: people who write `24` mean gigabytes, and those who write `24576` mebibytes.
impl FromStr for Bytes {
    type Err = SizeError;

    fn from_str(text: &str) -> Result<Self, SizeError> {
        let trimmed = text.trim();
        let split = trimmed
            .find(|c: char| !(c.is_ascii_digit() || c == '.' || c == '_'))
            .unwrap_or(trimmed.len());
        let (number, unit) = trimmed.split_at(split);
        let unit = unit.trim();
        if matches!(number, "" | ".") {
            return Err(SizeError::NotASize(text.into()));
        }
        // People who write `gb` mean bytes; those who write `Gb` may mean bits.
        if unit.starts_with(char::is_uppercase) && unit.ends_with('b') {
            return Err(SizeError::Bits(text.into()));
        }
        let factor: u64 = match unit.to_ascii_lowercase().as_str() {
            "" | "b" => 1,
            "kb" | "k" => 1_000,
            "mb" | "m" => 1_000_000,
            "gb" | "g" => 1_000_000_000,
            "tb" | "t" => 1_000_000_000_000,
            "kib" => 1 << 10,
            "mib" => 1 << 20,
            "gib" => 1 << 30,
            "tib" => 1 << 40,
            _ => return Err(SizeError::NotASize(text.into())),
        };
        let number: f64 = number
            .replace('_', "")
            .parse()
            .map_err(|_| SizeError::NotASize(text.into()))?;
        if unit.is_empty() && (1.0..1e6).contains(&number) {
            return Err(SizeError::NoUnit(text.into()));
        }
        let bytes = number * factor as f64;
        if !(1.0..=u64::MAX as f64 / 4.0).contains(&bytes) {
            return Err(SizeError::OutOfRange(text.into()));
        }
        Ok(Self(bytes.round() as u64))
    }
}

#[cfg(test)]
mod tests {
    use crate::*;

    #[test]
    fn sizes_are_read_as_people_type_them() {
        assert_eq!("24GB".parse(), Ok(Bytes(24_000_000_000)));
        assert_eq!("24 GiB".parse(), Ok(Bytes::gib(24)));
        assert_eq!("1.5gib".parse(), Ok(Bytes::mib(1536)));
        assert_eq!("4300MiB".parse(), Ok(Bytes::mib(4300)));
        assert_eq!("1000 B".parse(), Ok(Bytes(1000)));
        assert_eq!("25769803776".parse(), Ok(Bytes::gib(24)));
    }

    #[test]
    fn what_is_no_size_is_refused() {
        for text in [
            "",
            "GB",
            "NaN",
            "-1GB",
            "1e99GB",
            "24 potatoes",
            ".",
            "1.2.3GB",
        ] {
            assert!(
                matches!(text.parse::<Bytes>(), Err(SizeError::NotASize(_))),
                "{text}"
            );
        }
        assert!(matches!("24 Gb".parse::<Bytes>(), Err(SizeError::Bits(_))));
        for text in ["24", "24576"] {
            let error = text.parse::<Bytes>();
            assert!(matches!(error, Err(SizeError::NoUnit(_))), "{text}");
        }
        let huge = "99999999999999999999GB";
        assert!(matches!(
            huge.parse::<Bytes>(),
            Err(SizeError::OutOfRange(_))
        ));
        assert!(matches!(
            "0GB".parse::<Bytes>(),
            Err(SizeError::OutOfRange(_))
        ));
    }

    #[test]
    fn sizes_are_shown_in_the_unit_that_fits() {
        assert_eq!(Bytes(512).to_string(), "512 B");
        assert_eq!(Bytes::mib(1).to_string(), "1.00 MiB");
        assert_eq!(Bytes(4_366_499_840).to_string(), "4.07 GiB");
    }

    #[test]
    fn what_a_card_without_a_limit_leaves_free_is_not_negative() {
        assert_eq!(Bytes(3).signed_difference(Bytes(5)), -2);
        let free = Bytes(u64::MAX).signed_difference(Bytes(5));
        assert_eq!(free, i64::MAX);
    }
}
