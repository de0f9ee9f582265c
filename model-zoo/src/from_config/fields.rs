//! The fields of a `config.json`, with limits that no network exceeds.

use serde_json::{Map, Value};

use crate::Error;

/// The largest width: Llama 3.1 405B has 53,248 (table 3 of arXiv 2407.21783).
const WIDEST: usize = 1 << 16;
/// The most rows of a table: the 10,485,760 positions of Llama 4 Scout's published `config.json`.
const LONGEST: usize = 10_485_760;
/// The most layers: twice the 126 of Llama 3.1 405B, and more than the 152 of the deepest
/// ResNet.
const DEEPEST: usize = 256;

/// The largest value of a field, by what the field counts.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Limit {
    /// A width, or a number of heads or channels.
    Width,
    /// Rows of a table: words, positions, classes.
    Rows,
    /// Layers.
    Depth,
}

impl Limit {
    fn largest(self) -> usize {
        match self {
            Self::Width => WIDEST,
            Self::Rows => LONGEST,
            Self::Depth => DEEPEST,
        }
    }
}

/// The fields of a `config.json`. A field that is null counts as absent.
#[derive(Clone, Debug)]
pub(crate) struct Fields(Map<String, Value>);

impl Fields {
    /// The fields of the file with the text `text`.
    ///
    /// # Errors
    ///
    /// [`Error::NotJson`] if it is not one JSON object.
    pub fn parse(text: &str) -> Result<Self, Error> {
        match serde_json::from_str(text) {
            Ok(fields) => Ok(Self(fields)),
            Err(error) => Err(Error::NotJson(error.to_string())),
        }
    }

    fn get(&self, field: &str) -> Option<&Value> {
        self.0.get(field).filter(|value| !value.is_null())
    }

    /// A whole number from 1 on; `default` if the field is absent.
    pub fn size(&self, field: &str, limit: Limit, default: usize) -> Result<usize, Error> {
        match self.get(field) {
            None => Ok(default),
            Some(value) => within(field, value, limit),
        }
    }

    /// Whole numbers from 1 on, at most `most` of them.
    pub fn sizes(
        &self,
        field: &str,
        limit: Limit,
        most: usize,
        default: &[usize],
    ) -> Result<Vec<usize>, Error> {
        match self.get(field) {
            None => Ok(default.to_vec()),
            Some(Value::Array(values)) if (1..=most).contains(&values.len()) => values
                .iter()
                .map(|value| within(field, value, limit))
                .collect(),
            Some(other) => Err(wrong(field, format!("1 to {most} whole numbers"), other)),
        }
    }

    /// A share, from 0 to below 1.
    pub fn share(&self, field: &str, default: f64) -> Result<f64, Error> {
        self.number(field, 0.0..1.0, default)
    }

    /// The epsilon of a normalisation, from 0 to below 1.
    pub fn epsilon(&self, field: &str, default: f64) -> Result<f64, Error> {
        self.number(field, 0.0..1.0, default)
    }

    fn number(&self, field: &str, range: std::ops::Range<f64>, default: f64) -> Result<f64, Error> {
        let Some(value) = self.get(field) else {
            return Ok(default);
        };
        match value.as_f64() {
            Some(number) if range.contains(&number) => Ok(number),
            _ => {
                let must = format!("a number from {} to below {}", range.start, range.end);
                Err(wrong(field, must, value))
            }
        }
    }

    /// True or false.
    pub fn flag(&self, field: &str, default: bool) -> Result<bool, Error> {
        match self.get(field) {
            None => Ok(default),
            Some(Value::Bool(flag)) => Ok(*flag),
            Some(other) => Err(wrong(field, "true or false".into(), other)),
        }
    }

    /// A word.
    pub fn text<'a>(&'a self, field: &str, default: &'a str) -> Result<&'a str, Error> {
        match self.get(field) {
            None => Ok(default),
            Some(Value::String(text)) => Ok(text),
            Some(other) => Err(wrong(field, "a word".into(), other)),
        }
    }

    /// The value that `known` has for the word in the field.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] if `known` does not have that word.
    pub fn choice<T: Clone>(
        &self,
        field: &str,
        default: &str,
        known: &[(&str, T)],
    ) -> Result<T, Error> {
        let text = self.text(field, default)?;
        let chosen = known.iter().find(|(name, _)| *name == text);
        match chosen {
            Some((_, chosen)) => Ok(chosen.clone()),
            None => Err(Error::Unsupported {
                what: format!("{field} {}", shown(&Value::from(text))),
                supported: known.iter().map(|(name, _)| name.to_string()).collect(),
            }),
        }
    }

    /// Checks that `field` has the only `value` that the zoo's network supports. An absent field
    /// has this value.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] if it has another value.
    pub fn only<V: Into<Value>>(&self, field: &str, value: V) -> Result<(), Error> {
        let value = value.into();
        match self.get(field) {
            Some(other) if *other != value => Err(Error::Unsupported {
                what: format!("{field} {}", shown(other)),
                supported: vec![value.to_string()],
            }),
            _ => Ok(()),
        }
    }

    /// The name of the class that wrote the file, for instance `BertForPreTraining`; empty if the
    /// file has none.
    pub fn class(&self) -> &str {
        let named = self.get("architectures").and_then(|names| names.get(0));
        named.and_then(Value::as_str).unwrap_or_default()
    }

    /// Checks that the class that wrote the file, if the file names one, is one of `known`. Another
    /// class has another head and another loss.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] if it is another.
    pub fn class_among(&self, known: &[&str]) -> Result<(), Error> {
        let class = self.class();
        if class.is_empty() || known.contains(&class) {
            return Ok(());
        }
        Err(Error::Unsupported {
            what: format!("architectures {}", shown(&Value::from(class))),
            supported: known.iter().map(ToString::to_string).collect(),
        })
    }

    /// Classes of the output: the number of labels, else `num_labels`, else 2, the default of
    /// transformers' `PretrainedConfig`.
    pub fn classes(&self) -> Result<usize, Error> {
        match self.get("id2label") {
            Some(Value::Object(labels)) if !labels.is_empty() => Ok(labels.len()),
            _ => self.size("num_labels", Limit::Rows, 2),
        }
    }
}

fn within(field: &str, value: &Value, limit: Limit) -> Result<usize, Error> {
    let largest = limit.largest();
    match value.as_u64() {
        Some(number) if (1..=largest as u64).contains(&number) => Ok(number as usize),
        _ => {
            let must = format!("a whole number from 1 to {largest}");
            Err(wrong(field, must, value))
        }
    }
}

fn wrong(field: &str, must: String, value: &Value) -> Error {
    Error::Field {
        field: field.into(),
        must,
        got: shown(value),
    }
}

/// `value` as JSON, which escapes control characters; only its beginning if it is long.
fn shown(value: &Value) -> String {
    const LONG: usize = 40;
    let text = value.to_string();
    match text.char_indices().nth(LONG) {
        None => text,
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn fields(text: &str) -> Fields {
        Fields::parse(text).unwrap()
    }

    #[test]
    fn a_word_where_a_number_belongs_is_refused() {
        let Err(Error::Field { got, .. }) =
            fields(r#"{"hidden_size": "768"}"#).size("hidden_size", Limit::Width, 1)
        else {
            panic!("a word is no size");
        };
        assert_eq!(got, "\"768\"");
    }

    #[test]
    fn sizes_have_limits() {
        for value in [
            "-1",
            "0",
            "1.5",
            "65537",
            "1e300",
            "18446744073709551616",
            "[]",
        ] {
            let fields = fields(&format!(r#"{{"width": {value}}}"#));
            assert!(fields.size("width", Limit::Width, 1).is_err(), "{value}");
        }
        let widest = fields(r#"{"width": 65536}"#);
        assert_eq!(widest.size("width", Limit::Width, 1), Ok(65_536));
    }

    #[test]
    fn null_is_as_absent() {
        let fields = fields(r#"{"n_inner": null}"#);
        assert_eq!(fields.size("n_inner", Limit::Width, 7), Ok(7));
    }

    #[test]
    fn shown_values_are_escaped_and_short() {
        let long = shown(&Value::from(format!("\u{1b}[2J{}", "x".repeat(1_000))));
        assert!(long.starts_with(r#""\u001b[2J"#), "{long}");
        assert!(long.len() < 100);
    }

    proptest! {
        /// Reading ends with a value or an error, whatever text the file has.
        #[test]
        fn reading_never_panics(text in r#"(\{"[a-z_]{1,12}": ?[-0-9a-z\[\]{}"\\.,e]{0,20}\}|.{0,60})"#) {
            if let Ok(fields) = Fields::parse(&text) {
                for name in fields.0.keys() {
                    let _ = fields.size(name, Limit::Rows, 1);
                    let _ = fields.sizes(name, Limit::Depth, 4, &[]);
                    let _ = fields.share(name, 0.5);
                    let _ = fields.text(name, "");
                }
                let _ = (fields.classes(), fields.class());
            }
        }
    }
}
