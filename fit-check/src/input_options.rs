//! The options that change the sizes of a sample, one row for each.

use clap::{Arg, ArgMatches, Args, Command, FromArgMatches};
use model_zoo::{Input, InputSize, SizeValue};

use crate::user_error::UserError;
use crate::values::count;

/// The option for a size of a sample, and the text with which people read the size.
#[derive(Debug)]
pub struct SizeOption {
    /// The size.
    pub size: InputSize,
    /// The name of the option.
    pub name: &'static str,
    /// The name of its value in the help.
    value_name: &'static str,
    help: &'static str,
    /// The unit that follows the number for people.
    pub unit: &'static str,
    /// The unit in the headline of a job, if the headline contains the size.
    pub headline_unit: Option<&'static str>,
}

/// Every size, in the order in which people read them.
pub const SIZES: [SizeOption; 5] = [
    SizeOption {
        size: InputSize::Image,
        name: "image",
        value_name: "SIZE",
        help: "Image size in pixels: SIZE or HEIGHTxWIDTH",
        unit: "",
        headline_unit: Some(" px"),
    },
    SizeOption {
        size: InputSize::SrcSeq,
        name: "src-seq",
        value_name: "N",
        help: "Tokens in a source sequence",
        unit: " source tokens",
        headline_unit: Some(" source tokens"),
    },
    SizeOption {
        size: InputSize::Seq,
        name: "seq",
        value_name: "N",
        help: "Tokens in a sequence",
        unit: " tokens",
        headline_unit: Some(" tokens"),
    },
    SizeOption {
        size: InputSize::Classes,
        name: "classes",
        value_name: "N",
        help: "Classes of the output",
        unit: " classes",
        headline_unit: None,
    },
    SizeOption {
        size: InputSize::Vocab,
        name: "vocab",
        value_name: "N",
        help: "Words in the vocabulary",
        unit: " words",
        headline_unit: None,
    },
];

impl SizeOption {
    /// The option for `size`.
    pub fn of(size: InputSize) -> &'static Self {
        let found = SIZES.iter().find(|option| option.size == size);
        found.expect("every size has a row")
    }

    /// The option with `value`, as a user types it: `--image 224`.
    pub fn typed(&self, value: SizeValue) -> String {
        match value {
            SizeValue::Pixels([height, width]) if height == width => {
                format!("--{} {height}", self.name)
            }
            value => format!("--{} {value}", self.name),
        }
    }

    /// Parses the value of the option.
    ///
    /// # Errors
    ///
    /// The text is not a valid value.
    pub fn parse(&self, text: &str) -> Result<SizeValue, UserError> {
        let option = format!("--{}", self.name);
        if !self.size.is_image() {
            return Ok(SizeValue::Count(count(&option, text)?));
        }
        let lower = text.to_lowercase();
        let (height, width) = lower.split_once('x').unwrap_or((&lower, &lower));
        let side = |side| count(&option, side);
        side(height)
            .and_then(|height| Ok(SizeValue::Pixels([height, side(width)?])))
            .map_err(|_| {
                UserError::new(format!("`{text}` is no value of {option}")).hint(format!(
                    "{option} is 224, or HEIGHTxWIDTH such as 480x640, each at least 1"
                ))
            })
    }
}

/// The sizes on the command line, as typed.
#[derive(Clone, Debug, Default)]
pub struct TypedSizes(Vec<(&'static SizeOption, String)>);

impl TypedSizes {
    /// Parses the sizes; those that were not typed are none.
    ///
    /// # Errors
    ///
    /// A value is invalid.
    pub fn input(&self) -> Result<Input, UserError> {
        let mut input = Input::default();
        for (option, text) in &self.0 {
            input.set(option.size, option.parse(text)?)?;
        }
        Ok(input)
    }
}

impl FromArgMatches for TypedSizes {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let typed = SIZES.iter().filter_map(|option| {
            let text = matches.get_one::<String>(option.name)?;
            Some((option, text.clone()))
        });
        Ok(Self(typed.collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Args for TypedSizes {
    fn augment_args(command: Command) -> Command {
        command.args(SIZES.iter().map(|option| {
            Arg::new(option.name)
                .long(option.name)
                .value_name(option.value_name)
                .help(option.help)
                .allow_hyphen_values(true)
        }))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_size_has_one_row() {
        for size in InputSize::ALL {
            let rows = SIZES.iter().filter(|option| option.size == *size);
            assert_eq!(rows.count(), 1, "{size}");
        }
    }

    #[test]
    fn what_is_typed_is_read() {
        let image = SizeOption::of(InputSize::Image);
        for (text, sides) in [("224", [224, 224]), ("480x640", [480, 640])] {
            assert_eq!(image.parse(text).unwrap(), SizeValue::Pixels(sides));
        }
        assert_eq!(image.typed(SizeValue::Pixels([32, 64])), "--image 32x64");
        let seq = SizeOption::of(InputSize::Seq);
        assert_eq!(seq.parse("128").unwrap(), SizeValue::Count(128));
        assert!(seq.parse("12x8").is_err() && image.parse("0").is_err());
    }
}
