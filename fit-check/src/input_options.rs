//! The options that change the sizes of a sample, one row for each.

use clap::Args;
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
        unit: "",
        headline_unit: Some(" px"),
    },
    SizeOption {
        size: InputSize::SrcSeq,
        name: "src-seq",
        unit: " source tokens",
        headline_unit: Some(" source tokens"),
    },
    SizeOption {
        size: InputSize::Seq,
        name: "seq",
        unit: " tokens",
        headline_unit: Some(" tokens"),
    },
    SizeOption {
        size: InputSize::Classes,
        name: "classes",
        unit: " classes",
        headline_unit: None,
    },
    SizeOption {
        size: InputSize::Vocab,
        name: "vocab",
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
        if text.contains(',') {
            return Err(UserError::invalid_value(&option, text).hint(format!(
                "an answer is about one; `fit-check table` has a row for each of {option} {text}"
            )));
        }
        if !self.size.is_image() {
            return Ok(SizeValue::Count(count(&option, text)?));
        }
        let lower = text.to_lowercase();
        let (height, width) = lower.split_once('x').unwrap_or((&lower, &lower));
        let side = |side| count(&option, side);
        side(height)
            .and_then(|height| Ok(SizeValue::Pixels([height, side(width)?])))
            .map_err(|_| {
                UserError::invalid_value(&option, text).hint(format!(
                    "{option} is 224, or HEIGHTxWIDTH such as 480x640, each at least 1"
                ))
            })
    }
}

/// The sizes on the command line, as typed.
#[derive(Clone, Debug, Default, Args)]
// As a group they would all be in the usage of an error about another option.
#[group(skip)]
pub struct TypedSizes {
    /// Image size in pixels: SIZE or HEIGHTxWIDTH; in `table` also several with commas, as the other sizes
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    image: Option<String>,
    /// Tokens in a source sequence
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    src_seq: Option<String>,
    /// Tokens in a sequence; in `table` also several with commas: 512,1024,2048
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    seq: Option<String>,
    /// Classes of the output
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    classes: Option<String>,
    /// Words in the vocabulary
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    vocab: Option<String>,
}

impl TypedSizes {
    /// The option of a size that was typed.
    pub fn typed(&self) -> Option<&'static str> {
        let all = [
            (&self.image, "--image"),
            (&self.src_seq, "--src-seq"),
            (&self.seq, "--seq"),
            (&self.classes, "--classes"),
            (&self.vocab, "--vocab"),
        ];
        let mut typed = all.into_iter().filter(|(value, _)| value.is_some());
        typed.next().map(|(_, option)| option)
    }

    /// Whether there are several lengths of a sequence, or sizes of an image.
    pub fn are_swept(&self) -> bool {
        let mut lists = self.seq.iter().chain(&self.image);
        lists.any(|list| list.contains(','))
    }

    /// The sizes, once for each value of lists such as `--seq 512,1024`.
    pub fn each(&self) -> Vec<Self> {
        let fields: [fn(&mut Self) -> &mut Option<String>; 5] = [
            |sizes| &mut sizes.image,
            |sizes| &mut sizes.src_seq,
            |sizes| &mut sizes.seq,
            |sizes| &mut sizes.classes,
            |sizes| &mut sizes.vocab,
        ];
        let mut all = vec![self.clone()];
        for field in fields {
            let Some(list) = field(&mut all[0]).clone() else {
                continue;
            };
            let values: Vec<_> = list.split(',').map(str::trim).collect();
            let with = |sizes: &Self, value: &str| {
                let mut sizes = sizes.clone();
                *field(&mut sizes) = Some(value.into());
                sizes
            };
            all = all
                .iter()
                .flat_map(|sizes| values.iter().map(move |value| with(sizes, value)))
                .collect();
        }
        all
    }

    /// The lengths of a sequence, with commas between them; empty if none was typed.
    ///
    /// # Errors
    ///
    /// One is no length.
    pub fn seqs(&self) -> Result<Vec<u64>, UserError> {
        let texts = self.seq.iter().flat_map(|list| list.split(','));
        let texts = texts.map(str::trim).filter(|text| !text.is_empty());
        let seqs = texts.map(|text| count("--seq", text).map(|seq| seq as u64));
        seqs.collect()
    }

    /// Parses the sizes; those that were not typed are none.
    ///
    /// # Errors
    ///
    /// A value is invalid.
    pub fn input(&self) -> Result<Input, UserError> {
        let mut input = Input::default();
        for option in &SIZES {
            let typed = match option.size {
                InputSize::Image => &self.image,
                InputSize::SrcSeq => &self.src_seq,
                InputSize::Seq => &self.seq,
                InputSize::Classes => &self.classes,
                InputSize::Vocab => &self.vocab,
            };
            if let Some(text) = typed {
                input.set(option.size, option.parse(text)?)?;
            }
        }
        Ok(input)
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

    #[test]
    fn lists_are_taken_apart() {
        let typed = TypedSizes {
            image: Some("224".into()),
            seq: Some("512, 1024".into()),
            vocab: Some("100,200,300".into()),
            ..TypedSizes::default()
        };
        let each = typed.each();
        let read: Vec<_> = each
            .iter()
            .map(|sizes| {
                let input = sizes.input().unwrap();
                (input.seq.unwrap(), input.vocab.unwrap())
            })
            .collect();
        let expected = [512_usize, 1024].map(|seq| [100_usize, 200, 300].map(|vocab| (seq, vocab)));
        assert_eq!(read, expected.as_flattened());
        assert!(typed.input().is_err(), "a list is no size");
        assert_eq!(TypedSizes::default().each().len(), 1);
    }
}
