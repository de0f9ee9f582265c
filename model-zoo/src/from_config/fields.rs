//! The fields of a `config.json`, with limits that no network exceeds.

use serde_json::{Map, Value};

use crate::Error;

/// The largest width: Llama 3.1 405B has 53,248 (table 3 of arXiv 2407.21783).
const WIDEST: usize = 1 << 16;
/// The longest side of a patch: four times the 32 of ViT-B/32. From 1,024 on burn's convolution takes
/// more than 0.6 GB of the processor's memory.
const LARGEST_PATCH: usize = 128;
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
    /// The side of a patch of an image.
    Patch,
    /// Rows of a table: words, positions, classes.
    Rows,
    /// Layers.
    Depth,
}

impl Limit {
    fn largest(self) -> usize {
        match self {
            Self::Width => WIDEST,
            Self::Patch => LARGEST_PATCH,
            Self::Rows => LONGEST,
            Self::Depth => DEEPEST,
        }
    }
}

/// The fields of a `config.json`, read as transformers 5.24 reads them.
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

    /// The value of `field`; none if it is absent or null.
    fn get(&self, field: &str) -> Option<&Value> {
        self.0.get(field).filter(|value| !value.is_null())
    }

    /// Whether the file has `field`, whatever its value.
    pub fn contains(&self, field: &str) -> bool {
        self.0.contains_key(field)
    }

    /// Whether the file has `field`, with a value other than null.
    pub fn has(&self, field: &str) -> bool {
        self.get(field).is_some()
    }

    /// The name under which the file has a field with two names. transformers gives its own name
    /// to a `general` one (`attribute_map`), after all other fields: the general one wins.
    pub fn spelled<'a>(&self, own: &'a str, general: &'a str) -> &'a str {
        match self.contains(general) {
            true => general,
            false => own,
        }
    }

    /// The object in `field`, with fields of its own; none if the field is absent or null.
    ///
    /// # Errors
    ///
    /// [`Error::Field`] if it is no object.
    pub fn object(&self, field: &str) -> Result<Option<Self>, Error> {
        match self.get(field) {
            None => Ok(None),
            Some(Value::Object(fields)) => Ok(Some(Self(fields.clone()))),
            Some(other) => Err(wrong(field, "an object".into(), other)),
        }
    }

    /// These fields, with the `value` of `field` in place of their own.
    pub fn with(mut self, field: &str, value: impl Into<Value>) -> Self {
        self.0.insert(field.into(), value.into());
        self
    }

    /// A whole number from 1 on; `default` if the field is absent. transformers refuses null.
    pub fn size(&self, field: &str, limit: Limit, default: usize) -> Result<usize, Error> {
        match self.0.get(field) {
            None => Ok(default),
            Some(value) => within(field, value, limit),
        }
    }

    /// As [`Fields::size`], for a field that can be null: none if it is.
    pub fn optional_size(
        &self,
        field: &str,
        limit: Limit,
        default: Option<usize>,
    ) -> Result<Option<usize>, Error> {
        match self.0.get(field) {
            None => Ok(default),
            Some(Value::Null) => Ok(None),
            Some(value) => within(field, value, limit).map(Some),
        }
    }

    /// A height and a width: one number for both, or a list of the two.
    pub fn sides(&self, field: &str, limit: Limit, default: usize) -> Result<[usize; 2], Error> {
        match self.0.get(field) {
            Some(Value::Array(sides)) => match sides.as_slice() {
                [height, width] => {
                    Ok([within(field, height, limit)?, within(field, width, limit)?])
                }
                _ => {
                    let must = "a whole number, or a list of a height and a width".into();
                    Err(wrong(field, must, &Value::from(sides.clone())))
                }
            },
            _ => self.size(field, limit, default).map(|side| [side; 2]),
        }
    }

    /// Words, of which `known` gives the values; none if the field is absent or null.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] if `known` does not have a word of the list.
    pub fn words<T: Clone>(
        &self,
        field: &str,
        known: &[(&str, T)],
    ) -> Result<Option<Vec<T>>, Error> {
        let Some(value) = self.get(field) else {
            return Ok(None);
        };
        let Value::Array(words) = value else {
            return Err(wrong(field, "a list of words".into(), value));
        };
        let value = |word: &Value| {
            let found = known.iter().find(|(name, _)| word == name);
            found
                .map(|(_, value)| value.clone())
                .ok_or_else(|| Error::Unsupported {
                    what: format!("{field} {}", shown(word)),
                    supported: known.iter().map(|(name, _)| name.to_string()).collect(),
                })
        };
        words.iter().map(value).collect::<Result<_, _>>().map(Some)
    }

    /// A list of truth values, as 0 and 1 or as false and true; none if the field is absent or null.
    pub fn flags(&self, field: &str) -> Result<Option<Vec<bool>>, Error> {
        let Some(value) = self.get(field) else {
            return Ok(None);
        };
        let flag = |value: &Value| value.as_bool().or_else(|| value.as_u64().map(|n| n != 0));
        let flags = value.as_array().map(|all| all.iter().map(flag).collect());
        flags
            .unwrap_or(None)
            .map(Some)
            .ok_or_else(|| wrong(field, "a list of 0 and 1".into(), value))
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

    /// Whole numbers from 0 on; none of them if the field is absent or null.
    pub fn indices(&self, field: &str, limit: Limit) -> Result<Vec<usize>, Error> {
        let Some(value) = self.get(field) else {
            return Ok(Vec::new());
        };
        let index = |value: &Value| Some(value.as_u64()? as usize).filter(|n| *n < limit.largest());
        let indices = value.as_array().map(|all| all.iter().map(index).collect());
        indices.unwrap_or(None).ok_or_else(|| {
            let must = format!("a list of whole numbers below {}", limit.largest());
            wrong(field, must, value)
        })
    }

    /// A whole number from 0 on.
    pub fn index(&self, field: &str, limit: Limit, default: usize) -> Result<usize, Error> {
        match self.0.get(field) {
            Some(value) if value.as_u64() == Some(0) => Ok(0),
            _ => self.size(field, limit, default),
        }
    }

    /// A share, above 0 and up to 1, which an absent field has.
    pub fn share_of_all(&self, field: &str) -> Result<f64, Error> {
        let holds = |number: f64| number > 0.0 && number <= 1.0;
        self.number(field, "a number above 0 and at most 1", holds, 1.0)
    }

    /// A share, from 0 to below 1.
    pub fn share(&self, field: &str, default: f64) -> Result<f64, Error> {
        let holds = |number: f64| (0.0..1.0).contains(&number);
        self.number(field, "a number from 0 to below 1", holds, default)
    }

    /// The epsilon of a normalisation, above 0 and below 1. burn has no normalisation with 0.
    pub fn epsilon(&self, field: &str, default: f64) -> Result<f64, Error> {
        let holds = |number: f64| number > 0.0 && number < 1.0;
        self.number(field, "a number above 0 and below 1", holds, default)
    }

    /// A number from 0 on.
    pub fn at_least_zero(&self, field: &str, default: f64) -> Result<f64, Error> {
        let holds = |number: f64| number >= 0.0 && number.is_finite();
        self.number(field, "a number from 0 on", holds, default)
    }

    /// A positive number. transformers refuses null.
    pub fn positive(&self, field: &str, default: f64) -> Result<f64, Error> {
        let holds = |number: f64| number > 0.0 && number.is_finite();
        self.number(field, "a number above 0", holds, default)
    }

    /// A positive number; none if the field is null, and `default` if it is absent.
    pub fn optional_positive(
        &self,
        field: &str,
        default: Option<f64>,
    ) -> Result<Option<f64>, Error> {
        match self.0.get(field) {
            None => Ok(default),
            Some(Value::Null) => Ok(None),
            Some(_) => self.positive(field, 1.0).map(Some),
        }
    }

    /// The number in `field`, for which `holds` is true; `must` says it in words.
    fn number(
        &self,
        field: &str,
        must: &str,
        holds: impl Fn(f64) -> bool,
        default: f64,
    ) -> Result<f64, Error> {
        let Some(value) = self.0.get(field) else {
            return Ok(default);
        };
        match value.as_f64() {
            Some(number) if holds(number) => Ok(number),
            _ => Err(wrong(field, must.into(), value)),
        }
    }

    /// True or false.
    pub fn flag(&self, field: &str, default: bool) -> Result<bool, Error> {
        match self.0.get(field) {
            None => Ok(default),
            Some(Value::Bool(flag)) => Ok(*flag),
            Some(other) => Err(wrong(field, "true or false".into(), other)),
        }
    }

    /// A word; `default` if the field is absent or null.
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

    /// The value that `known` has for the class of transformers that wrote the file, the first of
    /// `architectures`; `default` if the file names none. Another class has another head and
    /// another loss.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] if `known` does not have the class.
    pub fn head<T: Clone>(&self, default: T, known: &[(&str, T)]) -> Result<T, Error> {
        let named = self.get("architectures").and_then(|names| names.get(0));
        let Some(class) = named.and_then(Value::as_str) else {
            return Ok(default);
        };
        let found = known.iter().find(|(name, _)| *name == class);
        found
            .map(|(_, head)| head.clone())
            .ok_or_else(|| Error::Unsupported {
                what: format!("architectures {}", shown(&Value::from(class))),
                supported: known.iter().map(|(name, _)| name.to_string()).collect(),
            })
    }

    /// Checks that the class that wrote the file, if the file names one, is one of `known`.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] if it is another.
    pub fn class_among(&self, known: &[&str]) -> Result<(), Error> {
        let known: Vec<_> = known.iter().map(|name| (*name, ())).collect();
        self.head((), &known)
    }

    /// The number format of the weights, such as `bfloat16`; none if the file does not say it.
    pub fn dtype(&self) -> Option<String> {
        let value = self.get("dtype").or_else(|| self.get("torch_dtype"))?;
        let name = value.as_str()?;
        Some(name.strip_prefix("torch.").unwrap_or(name).into())
    }

    /// How the weights are quantized, such as `mxfp4`; none if they are not.
    pub fn quantized(&self) -> Option<String> {
        let method = self.get("quantization_config")?.get("quant_method")?;
        method.as_str().map(String::from)
    }

    /// Classes of the output: `num_labels`, else the number of labels, else 2, as in
    /// transformers' `PreTrainedConfig`.
    pub fn classes(&self) -> Result<usize, Error> {
        let labels = match self.get("id2label") {
            Some(Value::Object(labels)) => labels.len(),
            _ => 2,
        };
        let classes = self.size("num_labels", Limit::Rows, labels)?;
        match classes {
            0 => Err(Error::Field {
                field: "id2label".into(),
                must: "a label for each class".into(),
                got: "empty".into(),
            }),
            _ => Ok(classes),
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

    /// transformers 5.24.0: `GPT2Config.from_dict({"n_inner": None})` is a configuration,
    /// `LlamaConfig.from_dict({"hidden_size": None})` raises StrictDataclassFieldValidationError.
    #[test]
    fn null_is_a_value_of_some_fields_only() {
        let fields = fields(r#"{"width": null}"#);
        assert_eq!(
            fields.optional_size("width", Limit::Width, Some(7)),
            Ok(None)
        );
        assert_eq!(
            fields.optional_size("other", Limit::Width, Some(7)),
            Ok(Some(7))
        );
        assert!(fields.size("width", Limit::Width, 7).is_err());
    }

    /// transformers 5.24.0: `BertConfig.from_dict({"num_labels": 7, "id2label": {"0": "a", "1":
    /// "b"}}).num_labels` is 7.
    #[test]
    fn the_number_of_labels_wins_over_their_names() {
        let classes = |text| fields(text).classes();
        assert_eq!(
            classes(r#"{"num_labels": 7, "id2label": {"0": "a", "1": "b"}}"#),
            Ok(7)
        );
        assert_eq!(
            classes(r#"{"id2label": {"0": "a", "1": "b", "2": "c"}}"#),
            Ok(3)
        );
        assert_eq!(classes("{}"), Ok(2));
        assert!(classes(r#"{"id2label": {}}"#).is_err());
    }

    #[test]
    fn an_epsilon_of_zero_is_refused_by_name() {
        for zero in ["0", "0.0", "null", "-1e-6", "1"] {
            let fields = fields(&format!(r#"{{"rms_norm_eps": {zero}}}"#));
            let refused = fields.epsilon("rms_norm_eps", 1e-6).unwrap_err();
            assert!(refused.to_string().contains("`rms_norm_eps`"), "{refused}");
        }
    }

    #[test]
    fn a_side_stands_for_both() {
        let sides = |text| fields(text).sides("side", Limit::Width, 224);
        assert_eq!(sides("{}"), Ok([224, 224]));
        assert_eq!(sides(r#"{"side": 32}"#), Ok([32, 32]));
        assert_eq!(sides(r#"{"side": [32, 48]}"#), Ok([32, 48]));
        assert!(sides(r#"{"side": [32]}"#).is_err());
        assert!(sides(r#"{"side": [32, 48, 3]}"#).is_err());
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
                    let _ = fields.sides(name, Limit::Width, 1);
                    let _ = fields.flags(name);
                    let _ = fields.indices(name, Limit::Depth);
                }
                let _ = (fields.classes(), fields.class_among(&[]));
            }
        }
    }
}
