//! The sizes of one sample: [`Input`] holds them, [`InputSize`] is the table of what they are.

use std::fmt;

use serde::{Deserialize, Serialize};
use strum::VariantArray;

use crate::{Error, Model};

/// The sizes of one sample. A size is `None` if the network has no such size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
pub struct Input {
    /// Height and width of an image, in pixels.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<[usize; 2]>,
    /// Tokens in a sequence; of a translation, tokens in the target sequence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seq: Option<usize>,
    /// Tokens in a source sequence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub src_seq: Option<usize>,
    /// Classes of the output.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub classes: Option<usize>,
    /// Words in the vocabulary.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vocab: Option<usize>,
}

/// A field of [`Input`]. It is displayed as its plain name, for instance `image size`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, strum::Display, strum::VariantArray)]
pub enum InputSize {
    /// [`Input::image`].
    #[strum(to_string = "image size")]
    Image,
    /// [`Input::seq`].
    #[strum(to_string = "sequence length")]
    Seq,
    /// [`Input::src_seq`].
    #[strum(to_string = "source sequence length")]
    SrcSeq,
    /// [`Input::classes`].
    #[strum(to_string = "number of classes")]
    Classes,
    /// [`Input::vocab`].
    #[strum(to_string = "vocabulary size")]
    Vocab,
}

impl InputSize {
    /// Every size, in the order of the fields.
    pub const ALL: &'static [Self] = Self::VARIANTS;

    /// Whether its value is a height and a width, and not one number.
    pub fn is_image(self) -> bool {
        self == Self::Image
    }
}

/// The value of an [`InputSize`]. It is displayed as `512` or as `224x224`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SizeValue {
    /// One number: of tokens, classes or words.
    Count(usize),
    /// Height and width, in pixels.
    Pixels([usize; 2]),
}

impl SizeValue {
    /// The one number, or height and width.
    pub fn numbers(self) -> Vec<usize> {
        match self {
            Self::Count(count) => vec![count],
            Self::Pixels(sides) => sides.to_vec(),
        }
    }
}

impl fmt::Display for SizeValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Count(count) => write!(f, "{count}"),
            Self::Pixels([height, width]) => write!(f, "{height}x{width}"),
        }
    }
}

impl Input {
    /// No size at all.
    pub(crate) const NONE: Self = Self {
        image: None,
        seq: None,
        src_seq: None,
        classes: None,
        vocab: None,
    };

    /// The value of `size`; `None` if the network has no such size.
    pub fn get(&self, size: InputSize) -> Option<SizeValue> {
        match size {
            InputSize::Image => self.image.map(SizeValue::Pixels),
            InputSize::Seq => self.seq.map(SizeValue::Count),
            InputSize::SrcSeq => self.src_seq.map(SizeValue::Count),
            InputSize::Classes => self.classes.map(SizeValue::Count),
            InputSize::Vocab => self.vocab.map(SizeValue::Count),
        }
    }

    /// Changes the value of `size`.
    ///
    /// # Errors
    ///
    /// [`Error::Size`] if `value` is one number where `size` is a height and a width, or the
    /// reverse.
    pub fn set(&mut self, size: InputSize, value: SizeValue) -> Result<(), Error> {
        match (size, value) {
            (InputSize::Image, SizeValue::Pixels(sides)) => self.image = Some(sides),
            (InputSize::Seq, SizeValue::Count(tokens)) => self.seq = Some(tokens),
            (InputSize::SrcSeq, SizeValue::Count(tokens)) => self.src_seq = Some(tokens),
            (InputSize::Classes, SizeValue::Count(classes)) => self.classes = Some(classes),
            (InputSize::Vocab, SizeValue::Count(words)) => self.vocab = Some(words),
            (InputSize::Image, SizeValue::Count(_)) => {
                return Err(wrong(size, "a height and a width", value));
            }
            (_, SizeValue::Pixels(_)) => return Err(wrong(size, "one number", value)),
        }
        Ok(())
    }

    /// The sizes that `self` has, in the order of [`InputSize::ALL`].
    pub fn sizes(&self) -> Vec<InputSize> {
        let all = InputSize::ALL.iter().copied();
        all.filter(|size| self.get(*size).is_some()).collect()
    }

    /// The default sizes of `model`, replaced by those that `self` has.
    ///
    /// # Errors
    ///
    /// [`Error::NotApplicable`] if `self` has a size that `model` does not have,
    /// [`Error::Size`] if a size is zero.
    pub fn resolve(self, model: &impl Model) -> Result<Self, Error> {
        let defaults = model.defaults().input;
        let mut resolved = defaults;
        for &size in InputSize::ALL {
            let Some(value) = self.get(size) else {
                continue;
            };
            if defaults.get(size).is_none() {
                return Err(Error::NotApplicable {
                    what: size.into(),
                    model: model.name().into(),
                    applicable: defaults.sizes(),
                });
            }
            if value.numbers().contains(&0) {
                return Err(wrong(size, "at least 1", SizeValue::Count(0)));
            }
            resolved.set(size, value)?;
        }
        Ok(resolved)
    }

    /// Tokens of one sample, if it consists of tokens. A translation has the tokens of its
    /// longer side, as fairseq counts them for `--max-tokens` (`num_tokens` of
    /// `language_pair_dataset.py`).
    pub fn tokens(&self) -> Option<usize> {
        self.seq.max(self.src_seq)
    }

    /// The first size that `self` and `other` do not share, with both values.
    pub(crate) fn first_difference(&self, other: &Self) -> Option<(InputSize, String, String)> {
        let shown = |value: Option<SizeValue>| match value {
            Some(value) => value.to_string(),
            None => "none".into(),
        };
        InputSize::ALL
            .iter()
            .map(|&size| (size, self.get(size), other.get(size)))
            .find(|(_, own, others)| own != others)
            .map(|(size, own, others)| (size, shown(own), shown(others)))
    }
}

fn wrong(size: InputSize, must: &str, got: SizeValue) -> Error {
    Error::Size {
        what: size.into(),
        must: must.into(),
        got: got.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(size: InputSize, number: usize) -> SizeValue {
        match size.is_image() {
            true => SizeValue::Pixels([number, number + 1]),
            false => SizeValue::Count(number),
        }
    }

    /// The JSON has a field for each size, so nothing of it is missing in the table.
    #[test]
    fn every_field_is_in_the_table() {
        let mut input = Input::default();
        for (number, &size) in InputSize::ALL.iter().enumerate() {
            assert_eq!(input.get(size), None);
            input.set(size, value(size, number + 1)).unwrap();
            assert_eq!(input.get(size), Some(value(size, number + 1)));
        }
        assert_eq!(input.sizes(), InputSize::ALL);
        let json = serde_json::to_string(&input).unwrap();
        let expected = r#"{"image":[1,2],"seq":2,"src_seq":3,"classes":4,"vocab":5}"#;
        assert_eq!(json, expected);
    }

    #[test]
    fn a_number_is_no_image_size_and_an_image_size_no_number() {
        for &size in InputSize::ALL {
            let other = match size.is_image() {
                true => SizeValue::Count(1),
                false => SizeValue::Pixels([1, 1]),
            };
            let mut input = Input::default();
            assert!(matches!(input.set(size, other), Err(Error::Size { .. })));
            assert_eq!(input, Input::default());
        }
    }

    #[test]
    fn a_size_is_refused_if_it_is_zero_or_the_network_has_none() {
        let resnet = crate::find("resnet-50").unwrap();
        let image = |image| Input {
            image: Some(image),
            ..Input::default()
        };
        let resolved = image([32, 64]).resolve(&resnet).unwrap();
        assert_eq!(
            (resolved.image, resolved.classes),
            (Some([32, 64]), Some(1000))
        );
        let error = image([0, 64]).resolve(&resnet).unwrap_err();
        assert_eq!(error.to_string(), "image size must be at least 1, not 0");
        let words = Input {
            vocab: Some(5),
            ..Input::default()
        };
        let Err(Error::NotApplicable { applicable, .. }) = words.resolve(&resnet) else {
            panic!("an image network has no vocabulary");
        };
        assert_eq!(applicable, [InputSize::Image, InputSize::Classes]);
    }
}
