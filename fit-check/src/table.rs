//! Largest batches of models x cards x precisions, as every format shows them.

use estimator::{LargestFit, Limit, Method};
use model_zoo::{Job, Variant};
use schemars::JsonSchema;
use serde::{Serialize, Serializer};

use crate::job_info::{GpuName, JobInfo};
use crate::preset::{Preset, Unit};
use crate::resolve::Card;
use crate::torch_program::kept::TorchBatch;

/// The answer of `table`.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct TableReport {
    /// Version of this interface.
    pub schema: u32,
    /// The published table whose rows and columns it has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preset: Option<Preset>,
    /// Whether every cell was looked at; false if Ctrl-C came first.
    pub complete: bool,
    /// Columns.
    pub cards: Vec<Column>,
    /// Rows.
    pub rows: Vec<Row>,
}

/// A card.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct Column {
    /// The header of its column.
    pub label: String,
    /// The card.
    #[serde(flatten)]
    pub gpu: GpuName,
}

impl Column {
    /// The column of `card`.
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
    /// The job.
    #[serde(flatten)]
    pub asked: JobInfo,
    /// Its name in the published table.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub published_as: Option<String>,
    /// The unit in which its batches are shown.
    pub unit: Unit,
    /// One cell for each column.
    pub cells: Vec<BatchCell>,
    /// PyTorch's largest batches of the same job, if they were asked for and it was recorded beforehand.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pytorch: Option<TorchCells>,
}

/// PyTorch's largest batches of a job.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct TorchCells {
    /// PyTorch's version.
    pub version: String,
    /// Samples in the largest batch for each column; none where this PyTorch does not run.
    pub max_batches: Vec<Option<u64>>,
}

impl TorchCells {
    /// PyTorch's largest batches of `job` on `cards`; none as for [`TorchBatch::of`], or if it runs on none of them.
    pub fn of(published: Option<&Variant>, job: &Job, cards: &[Card]) -> Option<Self> {
        let found = cards
            .iter()
            .map(|card| TorchBatch::of(published, job, card));
        let found: Vec<_> = found.collect();
        let version = found.iter().flatten().next()?.version.clone();
        let batches = found.into_iter();
        Some(Self {
            version,
            max_batches: batches.map(|found| Some(found?.max_batch)).collect(),
        })
    }
}

/// The largest batch of a model in one precision on one card.
#[derive(Clone, Debug, Default, JsonSchema, Serialize)]
pub struct BatchCell {
    /// Samples in it; 0 if not even one fits, none if it is not known.
    pub max_batch: Option<u64>,
    /// Tokens in it, if samples are made of tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u64>,
    /// What prevents a larger batch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<Limit>,
    /// The allocation that the card refused with one more sample.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
    /// How it was found.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub method: Option<Method>,
    /// Why it is not known.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "error_text")]
    #[schemars(with = "Option<String>")]
    pub error: Option<estimator::Error>,
}

/// Writes an error as people read it.
fn error_text<S: Serializer>(error: &Option<estimator::Error>, to: S) -> Result<S::Ok, S::Error> {
    error.as_ref().map(ToString::to_string).serialize(to)
}

impl BatchCell {
    /// The cell for what was found with `method`; `tokens` are those of a sample.
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
    /// Whether a cell has no answer for another reason than that the card cannot run the step in this number
    /// format.
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
