//! Asks the device's pools at the end of every phase.

use std::collections::HashMap;

use burn::module::{Module, ModuleVisitor, Param, ParamId};
use burn::optim::GradientsParams;
use burn::tensor::kind::Basic;
use burn::tensor::{Device, Tensor};
use estimator::{Bytes, TensorBuffer, TensorKind, buffer_of, visit_tensors};
use model_zoo::{Phase, Watcher};

use super::sampler::Sampler;
use super::{Mark, Pools, Roles, process};
use crate::step::estimator_phase;

/// The device could not do what it was given.
#[derive(Debug)]
pub(super) struct DeviceFailed(pub String);

/// Follows a training step on a real device.
pub(super) struct Watch<F> {
    device: Device,
    step: usize,
    /// What the buffers that were named since the last mark are for.
    named: HashMap<TensorBuffer, Role>,
    sampler: Option<Sampler>,
    whole: Box<dyn Fn() -> Option<Bytes>>,
    tell: F,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    Parameter,
    Statistic,
    Gradient,
    Input,
}

impl<F: FnMut(Mark)> Watch<F> {
    /// Tells `tell` of every phase on `device`; what goes on within them too if `sampled`;
    /// `whole` is in use on the whole device, where that is known.
    pub(super) fn new(
        device: Device,
        sampled: bool,
        whole: impl Fn() -> Option<Bytes> + 'static,
        tell: F,
    ) -> Self {
        Self {
            step: 0,
            named: HashMap::new(),
            sampler: sampled.then(|| Sampler::new(device.clone())),
            whole: Box::new(whole),
            device,
            tell,
        }
    }

    /// A parameter stays one, whatever else the same buffer is called.
    fn name(&mut self, buffer: Option<TensorBuffer>, role: Role) {
        let Some(buffer) = buffer else { return };
        let known = self.named.entry(buffer).or_insert(role);
        if *known != Role::Parameter {
            *known = role;
        }
    }
}

impl<F: FnMut(Mark)> Watcher for Watch<F> {
    type Stop = DeviceFailed;

    fn module<M: Module>(&mut self, name: &str, module: &M) {
        visit_tensors(name, module, |tensor| {
            let role = match tensor.kind {
                TensorKind::Statistic => Role::Statistic,
                TensorKind::Trainable | TensorKind::Frozen => Role::Parameter,
            };
            self.name(tensor.buffer, role);
        });
    }

    fn gradients<M: Module>(&mut self, module: &M, gradients: &GradientsParams) {
        struct Walk<'a, F> {
            watch: &'a mut Watch<F>,
            gradients: &'a GradientsParams,
        }
        impl<F: FnMut(Mark)> ModuleVisitor for Walk<'_, F> {
            fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
                let id: ParamId = param.id;
                if let Some(gradient) = self.gradients.get::<D>(id) {
                    self.watch.name(buffer_of(&gradient), Role::Gradient);
                }
            }
        }
        module.visit(&mut Walk {
            watch: self,
            gradients,
        });
    }

    fn input<const D: usize, K: Basic>(&mut self, tensor: &Tensor<D, K>) {
        self.name(buffer_of(tensor), Role::Input);
    }

    fn loss(&mut self, _loss: &Tensor<1>) {}

    fn end(&mut self, phase: Phase) -> Result<(), DeviceFailed> {
        let synced = self.device.sync();
        synced.map_err(|error| DeviceFailed(error.to_string()))?;
        let usage = self.device.memory_pool_usage();
        let pools = usage.map_or_else(Pools::default, |usage| Pools {
            allocations: usage.number_allocs,
            in_use: Bytes(usage.bytes_in_use),
            reserved: Bytes(usage.bytes_reserved),
        });
        let mut said = Roles::default();
        for (buffer, role) in self.named.drain() {
            *match role {
                Role::Parameter => &mut said.parameters,
                Role::Statistic => &mut said.buffers,
                Role::Gradient => &mut said.gradients,
                Role::Input => &mut said.inputs,
            } += buffer.bytes;
        }
        (self.tell)(Mark {
            phase: estimator_phase(phase),
            step: self.step,
            pools,
            said,
            sampled: self
                .sampler
                .as_ref()
                .map(|sampler| sampler.take(pools.in_use)),
            process: process::memory(),
            device: (self.whole)(),
        });
        if phase == Phase::Optimizer {
            self.step += 1;
        }
        Ok(())
    }
}
