//! The tensors of a model's weights files, read off their headers.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use super::header::{self, StoredTensor};
use super::model_files::unreadable;
use crate::output::terminal::grouped;
use crate::user_error::UserError;

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

    /// The elements of the tensors of each type, the most first.
    pub fn by_dtype(&self) -> Vec<(String, u64)> {
        let mut sums: BTreeMap<String, u64> = BTreeMap::new();
        for tensor in &self.tensors {
            *sums.entry(tensor.dtype.to_string()).or_default() += tensor.elements();
        }
        let mut sums: Vec<_> = sums.into_iter().collect();
        sums.sort_by_key(|(_, elements)| std::cmp::Reverse(*elements));
        sums
    }
}

/// Its parameters by type: `49,152 parameters in F16`.
impl fmt::Display for Checkpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (dtype, elements)) in self.by_dtype().into_iter().enumerate() {
            let (before, what) = match index {
                0 => ("", "parameters in"),
                _ => (", ", "in"),
            };
            write!(f, "{before}{} {what} {dtype}", grouped(elements))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use safetensors::Dtype;

    use super::*;

    #[test]
    fn parameters_are_told_by_type() {
        let tensor = |name: &str, dtype, side| StoredTensor {
            name: name.into(),
            dtype,
            shape: vec![side, 1_000],
        };
        let tensors = vec![tensor("a", Dtype::F32, 3), tensor("b", Dtype::F16, 40)];
        let text = Checkpoint { tensors }.to_string();
        assert_eq!(text, "40,000 parameters in F16, 3,000 in F32");
    }
}
