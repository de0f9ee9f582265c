//! What a module says about its tensors, as burn's visitor walks it.

use burn::module::{Module, ModuleVisitor, Param, ParamId};
use burn::tensor::{Bool, Int, Tensor};

use crate::Bytes;
use crate::record::Layer;
use crate::tensor::{BufferHandle, handle_of};

/// What a tensor of a module is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It receives a gradient.
    Trainable,
    /// A weight that receives none.
    Frozen,
    /// A running statistic, or what else a step keeps and no optimizer sees.
    Statistic,
}

/// A tensor of a module.
#[derive(Clone, Debug)]
pub struct ModuleTensor {
    /// burn's number for it.
    pub id: ParamId,
    /// The leaf module that holds it.
    pub layer: Layer,
    /// What it is for. A parameter that does not exist yet counts as trainable.
    pub kind: Kind,
    /// Elements in it.
    pub elements: u64,
    /// Bytes of the elements; none while it does not exist.
    pub bytes: Bytes,
    /// The buffer that it is in, once it exists.
    pub handle: Option<BufferHandle>,
}

/// Shows every tensor of `module` to `see`, without creating any; `name` is put before
/// the paths.
pub fn visit_tensors<M: Module>(name: &str, module: &M, see: impl FnMut(ModuleTensor)) {
    module.visit(&mut Walk {
        path: match name {
            "" => Vec::new(),
            name => vec![(name.to_string(), String::new())],
        },
        see,
    });
}

/// How the name of what is kept in burn's `RunningState` begins, as in `burn::nn::BatchNorm`
/// 0.22.1. burn shows it to a visitor as a parameter that is not trained, and nothing but the
/// name tells it from a frozen weight.
const STATISTIC: &str = "running_";

struct Walk<F> {
    /// Name of each module on the way, and the type of what contains it.
    path: Vec<(String, String)>,
    see: F,
}

impl<F: FnMut(ModuleTensor)> Walk<F> {
    fn layer(&self) -> Layer {
        let parents = &self.path[..self.path.len().saturating_sub(1)];
        let names: Vec<_> = parents.iter().map(|(name, _)| name.as_str()).collect();
        let kind = self.path.last().map_or("", |(_, container)| container);
        Layer {
            path: names.join("."),
            kind: kind.rsplit(':').next().unwrap_or(kind).to_string(),
        }
    }

    fn show(
        &mut self,
        id: ParamId,
        elements: usize,
        tensor: Option<(bool, usize, Option<BufferHandle>)>,
    ) {
        let name = self.path.last().map_or("", |(name, _)| name);
        let (trainable, size, handle) = tensor.unwrap_or((true, 0, None));
        let kind = match trainable {
            true => Kind::Trainable,
            false if name.starts_with(STATISTIC) => Kind::Statistic,
            false => Kind::Frozen,
        };
        let layer = self.layer();
        (self.see)(ModuleTensor {
            id,
            layer,
            kind,
            elements: elements as u64,
            bytes: Bytes((elements * size) as u64),
            handle,
        });
    }
}

impl<F: FnMut(ModuleTensor)> ModuleVisitor for Walk<F> {
    fn enter_module(&mut self, name: &str, container_type: &str) {
        self.path.push((name.into(), container_type.into()));
    }

    fn exit_module(&mut self, _name: &str, _container_type: &str) {
        self.path.pop();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let tensor = param.is_initialized().then(|| {
            let tensor = param.val();
            let size = tensor.dtype().size();
            (tensor.is_require_grad(), size, handle_of(&tensor))
        });
        self.show(param.id, param.lazy_shape().num_elements(), tensor);
    }

    fn visit_int<const D: usize>(&mut self, param: &Param<Tensor<D, Int>>) {
        let tensor = param.is_initialized().then(|| {
            let tensor = param.val();
            (false, tensor.dtype().size(), handle_of(&tensor))
        });
        self.show(param.id, param.lazy_shape().num_elements(), tensor);
    }

    fn visit_bool<const D: usize>(&mut self, param: &Param<Tensor<D, Bool>>) {
        let tensor = param.is_initialized().then(|| {
            let tensor = param.val();
            (false, tensor.dtype().size(), handle_of(&tensor))
        });
        self.show(param.id, param.lazy_shape().num_elements(), tensor);
    }
}
