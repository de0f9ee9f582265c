//! Compares a weights file with a network.

use std::collections::HashMap;

use model_zoo::PublishedTensors;
use schemars::JsonSchema;
use serde::Serialize;

use super::checkpoint::Checkpoint;

/// The confidence that the simulated network is the model of the files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema, Serialize, strum::Display)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum Confidence {
    /// The file and the network have the same tensors.
    High,
    /// There is no weights file to compare with.
    Medium,
    /// They differ.
    Low,
}

/// The differences between a weights file and the network that its configuration describes.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema, Serialize)]
pub struct WeightsCheck {
    /// The confidence in the estimate that follows.
    pub confidence: Confidence,
    /// The number of equal tensors.
    pub matching: usize,
    /// Tensors of the network that the file does not hold.
    pub missing: Vec<String>,
    /// Tensors of the file that the network does not have.
    pub unexpected: Vec<String>,
    /// Tensors whose shapes differ, with the shape in the file and in the network.
    pub other_shape: Vec<String>,
    /// What else the configuration says that the job does not follow, a sentence each.
    pub notes: Vec<String>,
}

impl WeightsCheck {
    /// The check of a network that comes without weights.
    pub fn without_weights() -> Self {
        Self {
            confidence: Confidence::Medium,
            matching: 0,
            missing: Vec::new(),
            unexpected: Vec::new(),
            other_shape: Vec::new(),
            notes: Vec::new(),
        }
    }

    /// Compares the tensors of a network with those of its weights file.
    pub fn of(published: &PublishedTensors, checkpoint: &Checkpoint) -> Self {
        let mut stored: HashMap<String, &[usize]> = checkpoint
            .tensors
            .iter()
            .map(|tensor| (current(&tensor.name), tensor.shape.as_slice()))
            .collect();
        let mut check = Self::without_weights();
        for tensor in &published.tensors {
            let shape = tensor.published_shape();
            for name in &tensor.names {
                let short = || published.in_base(name);
                let found = stored
                    .remove(name)
                    .or_else(|| short().and_then(|short| stored.remove(short)));
                match found {
                    None => check.missing.push(name.clone()),
                    Some(there) if there == shape => check.matching += 1,
                    Some(there) => check
                        .other_shape
                        .push(format!("{name}: {there:?} in the file, {shape:?} expected")),
                }
            }
        }
        check.unexpected = stored
            .into_keys()
            .filter(|name| !published.is_redundant(name))
            .collect();
        check.unexpected.sort();
        check.confidence = match check.differences() {
            0 => Confidence::High,
            _ => Confidence::Low,
        };
        check
    }

    /// The number of tensors that differ.
    pub fn differences(&self) -> usize {
        self.missing.len() + self.unexpected.len() + self.other_shape.len()
    }
}

/// `name` as transformers writes it today. Files that were converted from TensorFlow name the tensors of
/// normalisations gamma and beta; transformers renames them when it loads them.
pub(super) fn current(name: &str) -> String {
    match name.rsplit_once('.') {
        Some((module, "gamma")) => format!("{module}.weight"),
        Some((module, "beta")) => format!("{module}.bias"),
        _ => name.into(),
    }
}
