//! Largest batches of models x cards x precisions, as every format shows them.

use estimator::{LargestFit, Limit, Method};
use schemars::JsonSchema;
use serde::{Serialize, Serializer};

use crate::job_info::{GpuName, JobInfo};
use crate::preset::{Preset, Unit};
use crate::resolve::Card;

/// The answer of `table`.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct TableReport {
    /// Version of this interface.
    pub schema: u32,
    /// The published table that it has the rows and columns of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preset: Option<Preset>,
    /// Whether every cell was looked at: not if Ctrl-C came first.
    pub complete: bool,
    /// Columns.
    pub cards: Vec<Column>,
    /// Rows.
    pub rows: Vec<Row>,
}

/// A card.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct Column {
    /// What it is called above its column.
    pub label: String,
    /// The card.
    #[serde(flatten)]
    pub gpu: GpuName,
}

impl Column {
    /// Of `card`.
    pub fn new(card: &Card) -> Self {
        Self {
            label: card.label(),
            gpu: GpuName::new(card),
        }
    }
}

/// A model in one precision.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct Row {
    /// What was asked.
    #[serde(flatten)]
    pub asked: JobInfo,
    /// What it is called where it was published.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub published_as: Option<String>,
    /// What its batches are counted in where they are shown.
    pub unit: Unit,
    /// One for each column.
    pub cells: Vec<BatchCell>,
}

/// The largest batch of a model in one precision on one card.
#[derive(Clone, Debug, Default, JsonSchema, Serialize)]
pub struct BatchCell {
    /// Samples in it; 0 if not even one fits, none if that is not known.
    pub max_batch: Option<u64>,
    /// Tokens in it, where samples are made of tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u64>,
    /// What stands against a larger one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<Limit>,
    /// What the card refused of a batch with one sample more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
    /// How it was found.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub method: Option<Method>,
    /// Why it is not known, if it is not.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "said")]
    #[schemars(with = "Option<String>")]
    pub error: Option<estimator::Error>,
}

/// An error is written as people read it.
fn said<S: Serializer>(error: &Option<estimator::Error>, to: S) -> Result<S::Ok, S::Error> {
    error.as_ref().map(ToString::to_string).serialize(to)
}

impl BatchCell {
    /// From what was found, and how; `tokens` are those of a sample.
    pub fn new(
        found: Result<LargestFit, estimator::Error>,
        method: Method,
        tokens: Option<usize>,
    ) -> Self {
        match found {
            Ok(fit) => Self {
                max_batch: Some(fit.batch),
                max_tokens: tokens.map(|tokens| fit.batch * tokens as u64),
                limit: Some(fit.limit()),
                refused: Some(fit.refused.to_string()),
                method: Some(method),
                error: None,
            },
            Err(error) => Self {
                error: Some(error),
                ..Self::default()
            },
        }
    }

    /// The batch in `unit`.
    pub fn in_unit(&self, unit: Unit) -> Option<u64> {
        match unit {
            Unit::Samples => self.max_batch,
            Unit::Tokens => self.max_tokens,
        }
    }
}

impl TableReport {
    /// Whether it could not be told of a cell, for another reason than that the step cannot be
    /// run in this number format on the card.
    pub fn lacks_cells(&self) -> bool {
        let errors = self.cells().filter_map(|cell| cell.error.as_ref());
        let mut errors = errors.filter(|error| {
            !matches!(
                error,
                estimator::Error::Precision(_) | estimator::Error::NoKernel(_)
            )
        });
        errors.next().is_some()
    }

    /// Every cell, row by row.
    pub fn cells(&self) -> impl Iterator<Item = &BatchCell> {
        self.rows.iter().flat_map(|row| &row.cells)
    }
}
