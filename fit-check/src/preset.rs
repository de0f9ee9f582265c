//! Published tables of largest batches, whose rows and columns `table --preset` uses.

use estimator::{Gpu, Runtime, Tuning};
use model_zoo::{Input, OptimizerKind, Precision, Request};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::{Display, EnumString, VariantNames};

use crate::resolve::Card;

/// A published table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[derive(Display, EnumString, VariantNames)]
#[strum(serialize_all = "kebab-case")]
pub enum Preset {
    /// Lambda, "Choosing the Best GPU for Deep Learning in 2020".
    #[serde(rename = "lambda-2020")]
    #[strum(serialize = "lambda-2020")]
    Lambda2020,
}

/// The unit in which a batch is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema, Serialize, Deserialize, Display)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum Unit {
    /// Images, sequences, pairs of sentences.
    Samples,
    /// Tokens; for a translation, those of the longer side.
    Tokens,
}

/// A row of a published table, from `data/lambda_2020.csv`.
#[derive(Clone, Debug, Deserialize)]
pub struct Published {
    /// The table that it is in.
    pub table: String,
    /// Its name in the table.
    pub name: String,
    /// The most similar model of the zoo.
    pub model: String,
    /// Its optimizer, if it is not that of the model's recipe.
    pub optimizer: Option<OptimizerKind>,
    /// The height and width of its images, if they are not those of the recipe.
    pub image: Option<usize>,
    /// The tokens of its sequences, if they are not those of the recipe.
    pub seq: Option<usize>,
    /// The unit of its batches.
    pub unit: Unit,
    /// The number formats of the measurement.
    pub precision: Precision,
    /// Its name in the list of tried batches.
    pub bracket: String,
    /// How its network differs from ours.
    pub differences: String,
    /// The largest batch, by column.
    #[serde(skip)]
    pub batches: Vec<u64>,
}

impl Published {
    /// The settings that differ from the recipe of the model.
    pub fn request(&self) -> Request {
        Request {
            optimizer: self.optimizer,
            precision: self.precision,
            input: Input {
                image: self.image.map(|side| [side, side]),
                seq: self.seq,
                ..Input::default()
            },
            ..Request::default()
        }
    }
}

/// A column of a published table.
#[derive(Debug, Deserialize)]
pub struct Column {
    /// The card, as a user types it.
    pub card: String,
    /// The memory that a process could take of the card when the table was made, in MiB.
    pub total_mib: u64,
}

const READ: &str = "the data is read by a test";

fn reader(text: &'static str) -> csv::Reader<&'static [u8]> {
    csv::ReaderBuilder::new()
        .comment(Some(b'#'))
        .from_reader(text.as_bytes())
}

/// The rows of Lambda's two tables.
pub fn lambda_2020() -> Vec<Published> {
    let mut reader = reader(include_str!("../data/lambda_2020.csv"));
    let headers = reader.headers().expect(READ).clone();
    let cards = columns().len();
    let published = |record: csv::StringRecord| {
        let batches = record.iter().skip(headers.len() - cards);
        Published {
            batches: batches.map(|text| text.parse().expect(READ)).collect(),
            ..record.deserialize(Some(&headers)).expect(READ)
        }
    };
    let records: Vec<_> = reader.records().map(|record| record.expect(READ)).collect();
    records.into_iter().map(published).collect()
}

/// The columns of Lambda's tables.
pub fn columns() -> Vec<Column> {
    let mut reader = reader(include_str!("../data/lambda_2020_cards.csv"));
    reader.deserialize().map(|row| row.expect(READ)).collect()
}

/// The cards of the columns, as `runtime` drives them, about which burn's tuner knows what `tuning` says.
pub fn cards(runtime: Runtime, tuning: Tuning) -> Vec<Card> {
    columns()
        .iter()
        .map(|column| Card::of(Gpu::find(&column.card).expect(READ), runtime, tuning))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resolve::job_of;

    #[test]
    fn the_data_names_models_cards_and_options_that_there_are() {
        let columns = columns();
        assert_eq!(cards(Runtime::Cuda, Tuning::Warm).len(), columns.len());
        let header = reader(include_str!("../data/lambda_2020.csv"))
            .headers()
            .unwrap()
            .clone();
        let named: Vec<_> = header.iter().skip(header.len() - columns.len()).collect();
        let cards: Vec<_> = columns.iter().map(|column| &column.card).collect();
        assert_eq!(named, cards);
        let rows = lambda_2020();
        assert_eq!(rows.len(), 12);
        for row in rows {
            let model = model_zoo::find(&row.model).unwrap();
            job_of(&model, row.request()).unwrap();
        }
    }
}
