//! Lists the tensors of a module, with burn's module visitor.

use burn::module::{Module, ModuleVisitor, Param, ParamId};
use burn::optim::GradientsParams;
use burn::tensor::{Bool, Int, Tensor};
use recording::{Bytes, Layer};

use crate::tensor::{BufferHandle, handle_of};

/// The purpose of a tensor of a module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A parameter that receives a gradient.
    Trainable,
    /// A weight that receives no gradient.
    Frozen,
    /// A running statistic: a tensor that a step keeps and no optimizer updates.
    Statistic,
}

/// A tensor of a module.
#[derive(Clone, Debug)]
pub struct ModuleTensor {
    /// The id of the parameter in burn.
    pub id: ParamId,
    /// The leaf module that holds it.
    pub layer: Layer,
    /// The purpose of the tensor. A parameter that does not exist yet counts as trainable.
    pub kind: Kind,
    /// Number of elements.
    pub elements: u64,
    /// Bytes of the elements; zero while the tensor does not exist.
    pub bytes: Bytes,
    /// The buffer under the tensor, once it exists.
    pub handle: Option<BufferHandle>,
}

/// Calls `see` with every tensor of `module`, without creating any; `name` is the prefix of the paths.
///
/// `see` is no type parameter, so that burn's visit of a module is compiled once and not for each caller.
pub fn visit_tensors<M: Module>(name: &str, module: &M, see: &mut dyn FnMut(ModuleTensor)) {
    module.visit(&mut Walk {
        path: match name {
            "" => Vec::new(),
            name => vec![(name.to_string(), String::new())],
        },
        see,
    });
}

/// Calls `see` with each parameter of `module` that has one of `gradients`, and with a function that finds the buffer
/// under the gradient: with fusion, it first executes what is still held back.
pub fn visit_gradients<M: Module>(module: &M, gradients: &GradientsParams, see: SeeGradient<'_>) {
    module.visit(&mut GradientWalk { gradients, see });
}

/// What is called with each parameter that has a gradient.
pub type SeeGradient<'a> = &'a mut dyn FnMut(ParamId, &dyn Fn() -> Option<BufferHandle>);

struct GradientWalk<'a> {
    gradients: &'a GradientsParams,
    see: SeeGradient<'a>,
}

impl ModuleVisitor for GradientWalk<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        if let Some(gradient) = self.gradients.get::<D>(param.id) {
            (self.see)(param.id, &|| handle_of(&gradient));
        }
    }
}

/// The prefix of the names of fields of the type `RunningState`, as in `burn::nn::BatchNorm` 0.22.1. burn
/// shows them to a visitor as parameters that are not trained, and only the name tells them from frozen
/// weights.
const STATISTIC: &str = "running_";

struct Walk<'a> {
    /// Name of each module on the path, and the type of its container.
    path: Vec<(String, String)>,
    see: &'a mut dyn FnMut(ModuleTensor),
}

impl Walk<'_> {
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

impl ModuleVisitor for Walk<'_> {
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
