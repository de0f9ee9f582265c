//! Mixed precision: a module in 16 bits and master weights in fp32.
//!
//! Micikevicius et al. 2018, "Mixed Precision Training", arXiv 1710.03740: weights,
//! activations and gradients in 16 bits; a copy of the weights and the optimizer
//! state in fp32; the loss scaled before the backward pass.

use burn::module::{Module, ModuleMapper, ModuleVisitor, Param};
use burn::optim::GradientsParams;
use burn::tensor::{DType, FloatDType, Tensor};

/// Within the range that section 3.2 of the paper used, 8 to 32K.
const LOSS_SCALE: f64 = 1024.0;

/// The fp32 master weights, by the id of their parameters.
pub(crate) struct Master(GradientsParams);

impl Master {
    /// A copy of the trained parameters of `module`, in fp32.
    pub fn of<M: Module>(module: &M) -> Self {
        struct Widen(GradientsParams);
        impl ModuleVisitor for Widen {
            fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
                let tensor = param.val();
                if tensor.is_require_grad() {
                    self.0
                        .register(param.id, tensor.inner().cast(FloatDType::F32));
                }
            }
        }
        let mut widen = Widen(GradientsParams::new());
        module.visit(&mut widen);
        Self(widen.0)
    }

    /// `loss` times the loss scale. The backward pass starts from it.
    pub fn scaled(loss: &Tensor<1>) -> Tensor<1> {
        loss.clone().mul_scalar(LOSS_SCALE)
    }

    /// The gradients of the loss in fp32, from `gradients` of the scaled loss.
    pub fn unscaled<M: Module>(module: &M, gradients: GradientsParams) -> GradientsParams {
        struct Unscale {
            from: GradientsParams,
            to: GradientsParams,
        }
        impl ModuleVisitor for Unscale {
            fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
                if let Some(gradient) = self.from.remove::<D>(param.id) {
                    let wide = gradient.cast(FloatDType::F32).div_scalar(LOSS_SCALE);
                    self.to.register(param.id, wide);
                }
            }
        }
        let mut unscale = Unscale {
            from: gradients,
            to: GradientsParams::new(),
        };
        module.visit(&mut unscale);
        unscale.to
    }

    /// A copy of `module` with these fp32 weights as its parameters.
    pub fn into_module<M: Module>(self, module: &M) -> M {
        struct Replace(GradientsParams);
        impl ModuleMapper for Replace {
            fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
                match self.0.remove::<D>(param.id) {
                    Some(wide) => param.map(|_| Tensor::from_inner(wide).require_grad()),
                    None => param,
                }
            }
        }
        module.clone().map(&mut Replace(self.0))
    }

    /// `module` with 16-bit copies of these weights as its parameters.
    pub fn narrowed<M: Module>(&self, module: M) -> M {
        struct Narrow<'a>(&'a GradientsParams);
        impl ModuleMapper for Narrow<'_> {
            fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
                match self.0.get::<D>(param.id) {
                    Some(wide) => param.map(|old| {
                        let narrow = wide.cast(narrow_type(old.dtype()));
                        // A new tensor does not checkpoint, and burn refuses to mix it with
                        // tensors that do.
                        let strategy = old.gradient_checkpointing_strategy();
                        Tensor::from_inner(narrow)
                            .with_gradient_checkpointing_strategy(strategy.unwrap_or_default())
                            .require_grad()
                    }),
                    None => param,
                }
            }
        }
        module.map(&mut Narrow(&self.0))
    }
}

/// The float type of a parameter whose type is `dtype`.
fn narrow_type(dtype: DType) -> FloatDType {
    match dtype {
        DType::BF16 => FloatDType::BF16,
        DType::F16 => FloatDType::F16,
        _ => FloatDType::F32,
    }
}

#[cfg(test)]
mod tests {
    use burn::nn::LinearConfig;

    use super::*;
    use crate::{Precision, Request, find, supervised, test_support};

    #[test]
    fn a_second_step_can_checkpoint_too() {
        let request = Request {
            precision: Precision::Mixed,
            ..Request::default()
        };
        let job = request.resolve(&find("resnet-20").unwrap()).unwrap();
        let device = test_support::flex().autodiff().gradient_checkpointing();
        let mut losses = test_support::Losses::on(&device);
        let Ok(()) = supervised(
            LinearConfig::new(3, 1).init(&device),
            &job,
            &device,
            3,
            &mut losses,
            |device| (Tensor::<2>::ones([2, 3], device),),
            |linear, (x,)| (linear.forward(x) - 7.0).square().mean(),
        );
        losses.assert_fall(test_support::Kind::ONLY);
    }
}
