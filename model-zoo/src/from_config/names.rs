//! The names of the tensors of a network in transformers.

use std::convert::Infallible;

use burn::module::{Module, ModuleVisitor, Param};
use burn::tensor::Tensor;

use crate::{Observer, Phase};

/// Our path of a module or parameter, and its names in transformers; `*` stands for the number
/// of a layer. A parameter with several names is the concatenation of those tensors in its last
/// dimension. A `#` in them stands for each number in its first dimension: it is a stack of such tensors, which
/// a linear layer of each expert has in files.
pub(super) type Row = (String, Vec<String>);

/// The rows of `text`. Each of its lines is one: our path, ` = `, and the names with blanks between
/// them.
pub(super) fn rows(text: &str) -> Vec<Row> {
    let row = |line: &str| -> Row {
        let (path, names) = line.split_once(" = ").expect("a path and its names");
        (path.into(), names.split(' ').map(String::from).collect())
    };
    let lines = text.lines().map(str::trim);
    lines.filter(|line| !line.is_empty()).map(row).collect()
}

/// The names of the tensors of a `model_type` in transformers.
#[derive(Clone, Debug, Default)]
pub(super) struct Names {
    /// The prefix of all names outside the head. The file of a network without a head leaves it
    /// out.
    pub prefix: &'static str,
    /// Our paths and their names.
    pub rows: Vec<Row>,
    /// Whether files store the weights of linear layers as `[out, in]`, as torch does, and not as
    /// `[in, out]`, as burn and the `Conv1D` of GPT-2 do.
    pub transposed: bool,
    /// Endings of further names that a file may have: those of constants, and of second copies of
    /// tied tensors (`_keys_to_ignore_on_load_unexpected` and `_tied_weights_keys` of
    /// transformers).
    pub redundant: &'static [&'static str],
}

impl Names {
    /// The names of the tensor at `path`; empty if the table has no row for it.
    fn of(&self, path: &str) -> Vec<String> {
        if let Some(names) = self.named(path) {
            return names;
        }
        let (module, leaf) = path.rsplit_once('.').unwrap_or(("", path));
        // The gamma and beta of burn's normalisations are the weight and bias of torch's.
        let leaf = match leaf {
            "gamma" => "weight",
            "beta" => "bias",
            leaf => leaf,
        };
        let names = self.named(module).unwrap_or_default();
        let names = names.into_iter();
        names.map(|name| format!("{name}.{leaf}")).collect()
    }

    fn named(&self, path: &str) -> Option<Vec<String>> {
        self.rows.iter().find_map(|(pattern, names)| {
            let number = matched(pattern, path)?;
            let names = names.iter().map(|name| name.replace('*', number));
            Some(names.collect())
        })
    }
}

/// The part of `path` at the `*` of `pattern`, if it is a number and all else is the same.
fn matched<'a>(pattern: &str, path: &'a str) -> Option<&'a str> {
    let Some((before, after)) = pattern.split_once('*') else {
        return (pattern == path).then_some("");
    };
    let number = path.strip_prefix(before)?.strip_suffix(after)?;
    number.bytes().all(|b| b.is_ascii_digit()).then_some(number)
}

/// A tensor of a network, and its names in transformers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublishedTensor {
    /// Its path in the module tree. If the step has several modules, it begins with the name of the
    /// module.
    pub path: String,
    /// Its shape in the module tree.
    pub shape: Vec<usize>,
    /// Its names in transformers. If there are several, each of those tensors is an equal share
    /// of the last dimension of `shape`.
    pub names: Vec<String>,
    /// Whether transformers stores it with its two dimensions swapped.
    pub transposed: bool,
    /// Whether it is a stack along its first dimension, of which transformers stores each part by itself. The names of
    /// a part follow each other.
    pub stacked: bool,
}

impl PublishedTensor {
    /// The shape of each of its tensors in transformers.
    pub fn published_shape(&self) -> Vec<usize> {
        let mut shape = self.shape.clone();
        let parts = if self.stacked { shape.remove(0) } else { 1 };
        if let Some(last) = shape.last_mut() {
            *last /= (self.names.len() / parts).max(1);
        }
        if self.transposed {
            shape.reverse();
        }
        shape
    }
}

/// The tensors of a network, and their names in transformers.
#[derive(Clone, Debug, Default)]
pub struct PublishedTensors {
    names: Names,
    /// The tensors, in the order of the module tree.
    pub tensors: Vec<PublishedTensor>,
}

impl PublishedTensors {
    /// No tensors yet.
    pub(super) fn new(names: Names) -> Self {
        Self {
            names,
            tensors: Vec::new(),
        }
    }

    /// Whether a weights file may have a tensor called `name` without a parameter of the network:
    /// a constant, or a second copy of a tied tensor.
    pub fn is_redundant(&self, name: &str) -> bool {
        self.names
            .redundant
            .iter()
            .any(|ending| name.ends_with(ending))
    }

    /// `name` as it is in the file of a network without a head, which leaves a prefix out; `None`
    /// if `name` does not have the prefix.
    pub fn in_base<'a>(&self, name: &'a str) -> Option<&'a str> {
        name.strip_prefix(self.names.prefix)
    }
}

/// Collects the tensors of the modules that a step reports; it creates none of these tensors.
impl Observer for PublishedTensors {
    type Stop = Infallible;

    fn module<M: Module>(&mut self, name: &str, module: &M) {
        let path = match name {
            "" => Vec::new(),
            name => vec![name.into()],
        };
        module.visit(&mut Walk {
            seen: self,
            path,
            container: String::new(),
        });
    }

    fn end(&mut self, _phase: Phase) -> Result<(), Infallible> {
        Ok(())
    }
}

struct Walk<'a> {
    seen: &'a mut PublishedTensors,
    path: Vec<String>,
    /// The type of the module that holds the tensor.
    container: String,
}

impl ModuleVisitor for Walk<'_> {
    fn enter_module(&mut self, name: &str, container: &str) {
        self.path.push(name.into());
        self.container = container.into();
    }

    fn exit_module(&mut self, _name: &str, _container: &str) {
        self.path.pop();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let path = self.path.join(".");
        let is_linear = D == 2 && self.container.ends_with(":Linear");
        let shape = param.lazy_shape().to_vec();
        let names = self.seen.names.of(&path);
        let stacked = names.iter().any(|name| name.contains('#'));
        let part = |part: usize| {
            names
                .iter()
                .map(move |name| name.replace('#', &part.to_string()))
        };
        self.seen.tensors.push(PublishedTensor {
            names: match stacked {
                true => (0..shape[0]).flat_map(part).collect(),
                false => names,
            },
            shape,
            transposed: (is_linear || stacked) && self.seen.names.transposed,
            stacked,
            path,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_the_number_of_a_layer() {
        assert_eq!(matched("layers.*.key", "layers.12.key"), Some("12"));
        assert_eq!(matched("layers.*.key", "layers.a.key"), None);
        assert_eq!(matched("layers.*.key", "layers.1.2.key"), None);
        assert_eq!(matched("norm", "norm"), Some(""));
        assert_eq!(matched("norm", "norm_1"), None);
    }

    #[test]
    fn fused_tensors_are_divided_before_they_are_transposed() {
        let fused = PublishedTensor {
            path: "qkv.weight".into(),
            shape: vec![8, 24],
            names: ["q", "k", "v"].map(String::from).to_vec(),
            transposed: true,
            stacked: false,
        };
        assert_eq!(fused.published_shape(), [8, 8]);
        let narrow = PublishedTensor {
            shape: vec![4, 24],
            ..fused
        };
        assert_eq!(narrow.published_shape(), [8, 4]);
        // Two experts, each with a gate and a projection beside it.
        let experts = PublishedTensor {
            shape: vec![2, 4, 24],
            names: ["0.gate", "0.up", "1.gate", "1.up"]
                .map(String::from)
                .to_vec(),
            stacked: true,
            ..narrow
        };
        assert_eq!(experts.published_shape(), [12, 4]);
    }
}
