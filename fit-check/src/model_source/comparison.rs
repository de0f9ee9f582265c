//! Whether a weights file is the one of a network.

use std::collections::HashMap;

use model_zoo::PublishedTensors;
use schemars::JsonSchema;
use serde::Serialize;

use super::checkpoint::Checkpoint;

/// How far the network that is simulated is known to be the model of the files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema, Serialize, strum::Display)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum Confidence {
    /// Every tensor of the file is one of the network's, and the other way round.
    High,
    /// There is no weights file to compare with.
    Medium,
    /// They differ.
    Low,
}

/// The differences between a weights file and the network that its configuration describes.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema, Serialize)]
pub struct Comparison {
    /// What it says about the estimate.
    pub confidence: Confidence,
    /// Tensors that agree.
    pub matching: usize,
    /// Tensors of the network that the file does not hold.
    pub missing: Vec<String>,
    /// Tensors of the file that the network does not have.
    pub unexpected: Vec<String>,
    /// Tensors whose shapes differ, with that of the file and that of the network.
    pub other_shape: Vec<String>,
}

impl Comparison {
    /// Of a network that comes without weights.
    pub fn without_weights() -> Self {
        Self {
            confidence: Confidence::Medium,
            matching: 0,
            missing: Vec::new(),
            unexpected: Vec::new(),
            other_shape: Vec::new(),
        }
    }

    /// Of the tensors of a network and those of its weights file.
    pub fn of(published: &PublishedTensors, checkpoint: &Checkpoint) -> Self {
        let mut stored: HashMap<String, &[usize]> = checkpoint
            .tensors
            .iter()
            .map(|tensor| (current(&tensor.name), tensor.shape.as_slice()))
            .collect();
        let mut comparison = Self::without_weights();
        for tensor in &published.tensors {
            let shape = tensor.published_shape();
            for name in &tensor.names {
                let short = || published.in_base(name);
                let found = stored
                    .remove(name)
                    .or_else(|| short().and_then(|short| stored.remove(short)));
                match found {
                    None => comparison.missing.push(name.clone()),
                    Some(there) if there == shape => comparison.matching += 1,
                    Some(there) => comparison
                        .other_shape
                        .push(format!("{name}: {there:?} in the file, {shape:?} expected")),
                }
            }
        }
        comparison.unexpected = stored
            .into_keys()
            .filter(|name| !published.is_redundant(name))
            .collect();
        comparison.unexpected.sort();
        comparison.confidence = match comparison.differences() {
            0 => Confidence::High,
            _ => Confidence::Low,
        };
        comparison
    }

    /// Tensors that differ.
    pub fn differences(&self) -> usize {
        self.missing.len() + self.unexpected.len() + self.other_shape.len()
    }
}

/// `name` as transformers writes it today: files that were converted from TensorFlow have the
/// gamma and beta of its normalisations, which transformers renames when it loads them.
pub(super) fn current(name: &str) -> String {
    match name.rsplit_once('.') {
        Some((module, "gamma")) => format!("{module}.weight"),
        Some((module, "beta")) => format!("{module}.bias"),
        _ => name.into(),
    }
}
