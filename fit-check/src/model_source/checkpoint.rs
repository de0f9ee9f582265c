//! The tensors of a model's weights files, read off their headers.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::header::{self, StoredTensor};
use super::model_files::unreadable;
use crate::user_error::UserError;
use estimator::Bytes;
use model_zoo::WeightTensor;

/// A count of tensors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    /// The number of tensors.
    pub tensors: u64,
    /// The elements of all of them.
    pub elements: u64,
    /// The bytes of all of them in the file.
    pub bytes: Bytes,
}

/// All tensors of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// The tensors file by file, in the order of each file.
    pub tensors: Vec<StoredTensor>,
}

impl Checkpoint {
    /// Reads the tensors of `files`, from their headers only.
    ///
    /// # Errors
    ///
    /// A file cannot be read, or two of them hold a tensor of the same name.
    pub fn read(files: &[PathBuf]) -> Result<Self, UserError> {
        let mut tensors = Vec::new();
        for file in files {
            tensors.extend(header::read(file)?);
            if tensors.len() > header::MAX_TENSORS {
                let why = format!(
                    "with it the model has more than {} tensors",
                    header::MAX_TENSORS
                );
                return Err(unreadable(file, &why));
            }
        }
        let elements = |tensor: &StoredTensor| tensor.elements();
        if let ([.., last], 0) = (files, tensors.iter().map(elements).max().unwrap_or(0)) {
            return Err(unreadable(last, "there are no values in it"));
        }
        let mut names: Vec<_> = tensors.iter().map(|tensor| &tensor.name).collect();
        names.sort();
        if let (Some(pair), [.., last]) = (names.windows(2).find(|p| p[0] == p[1]), files) {
            let why = format!("`{}` is in an earlier part too", pair[0]);
            return Err(unreadable(last, &why));
        }
        Ok(Self { tensors })
    }

    /// The tensors, counted by the type of their elements.
    pub fn by_dtype(&self) -> Vec<(String, Sum)> {
        self.by(|tensor| tensor.dtype.to_string())
    }

    /// The tensors, counted by the first part of their names; by the first two parts where there are at most
    /// two different first parts, as `model.` in the files of transformers.
    pub fn by_module(&self) -> Vec<(String, Sum)> {
        let first = self.by(|tensor| beginning(&tensor.name, 1));
        match first.len() {
            0..=2 => self.by(|tensor| beginning(&tensor.name, 2)),
            _ => first,
        }
    }

    fn by(&self, key: impl Fn(&StoredTensor) -> String) -> Vec<(String, Sum)> {
        let mut sums: BTreeMap<String, Sum> = BTreeMap::new();
        for tensor in &self.tensors {
            let sum = sums.entry(key(tensor)).or_default();
            sum.tensors += 1;
            sum.elements += tensor.elements();
            sum.bytes += tensor.bytes();
        }
        let mut sums: Vec<_> = sums.into_iter().collect();
        sums.sort_by_key(|(_, sum)| std::cmp::Reverse(sum.bytes));
        sums
    }

    /// The tensors of floats in the form that the zoo takes. No optimizer trains the others: positions, counters and
    /// attention masks, which a program need not hold, and packed weights, of which it is not known how it holds them.
    pub(super) fn weight_tensors(&self) -> Vec<WeightTensor> {
        let floats = self.tensors.iter().filter(|tensor| tensor.is_float());
        let tensors = floats.map(|tensor| WeightTensor {
            name: tensor.name.clone(),
            shape: tensor.shape.clone(),
        });
        tensors.collect()
    }
}

/// The first `parts` of `name`, without the last part, which is the tensor itself.
fn beginning(name: &str, parts: usize) -> String {
    let all: Vec<_> = name.split('.').collect();
    let parts = parts.min(all.len().saturating_sub(1)).max(1);
    all[..parts].join(".")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_are_the_beginnings_of_names() {
        assert_eq!(beginning("model.layers.0.weight", 2), "model.layers");
        assert_eq!(beginning("wte.weight", 2), "wte");
        assert_eq!(beginning("bias", 1), "bias");
    }
}
