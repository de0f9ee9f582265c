//! An observer that reads the device's pools at the end of every phase.

use std::collections::HashMap;

use burn::module::Module;
use burn::optim::GradientsParams;
use burn::tensor::kind::Basic;
use burn::tensor::{Device, Tensor};
use estimator::pools_of;
use estimator::{
    Breakdown, BufferHandle, Bytes, Category, TensorBuffer, TensorKind, check_written, handle_of,
    tuner_requests, visit_gradients, visit_tensors,
};
use model_zoo::{Observer, Phase};
use recording::Pools;

use super::sampler::Sampler;
use super::{Mark, by_category, process};
use crate::counting_driver::{self, JournalSpan};
use crate::step::estimator_phase;

/// The device could not execute the step.
#[derive(Debug)]
pub(super) struct DeviceFailed(pub String);

/// Observes a training step on a real device.
pub(super) struct DeviceObserver {
    device: Device,
    /// What the pools held before the step, for another program of this process.
    before: Pools,
    step: usize,
    /// The buffers of each module, by its name, as the program last reported them. They hold at every mark
    /// until the program reports the module again.
    modules: HashMap<String, Vec<(TensorBuffer, Category)>>,
    /// The buffers of gradients and inputs, for the next mark.
    named: Vec<(TensorBuffer, Category)>,
    /// The tensors that the program holds at the next mark and would read: the loss, gradients, modules.
    results: Vec<BufferHandle>,
    sampler: Option<Sampler>,
    /// Length of the counting driver's journal at the last mark, if the process is on that driver.
    journal: Option<u64>,
    /// How often burn's tuner was asked before the step.
    asked_before: u64,
    whole: Box<dyn Fn() -> Option<Bytes>>,
    on_mark: Box<dyn FnMut(Mark)>,
}

impl DeviceObserver {
    /// Reports every phase on `device` to `on_mark`; its pools held `before` already. If `sampled`, the pools
    /// are also sampled within phases. `whole` reads the memory in use on the whole device, if known.
    pub(super) fn new(
        device: Device,
        before: Pools,
        sampled: bool,
        whole: impl Fn() -> Option<Bytes> + 'static,
        on_mark: impl FnMut(Mark) + 'static,
    ) -> Self {
        Self {
            before,
            step: 0,
            modules: HashMap::new(),
            named: Vec::new(),
            results: Vec::new(),
            sampler: sampled.then(|| Sampler::new(device.clone())),
            journal: counting_driver::journal_length(),
            asked_before: tuner_requests(),
            whole: Box::new(whole),
            device,
            on_mark: Box::new(on_mark),
        }
    }

    /// Bytes of the buffers that the program named.
    fn roles(&mut self) -> Breakdown {
        let of_modules = self.modules.values().flatten().copied();
        let named = of_modules.chain(self.named.drain(..));
        by_category(named.map(|(buffer, category)| (buffer, category, buffer.bytes)))
    }
}

impl Observer for DeviceObserver {
    type Stop = DeviceFailed;

    fn module<M: Module>(&mut self, name: &str, module: &M) {
        let mut roles = Vec::new();
        let results = &mut self.results;
        visit_tensors(name, module, &mut |tensor| {
            let role = match tensor.kind {
                TensorKind::Statistic => Category::Buffers,
                TensorKind::Trainable | TensorKind::Frozen => Category::Parameters,
            };
            roles.extend(tensor.handle.iter().map(|handle| (handle.buffer(), role)));
            results.extend(tensor.handle);
        });
        self.modules.insert(name.to_string(), roles);
    }

    fn gradients<M: Module>(&mut self, module: &M, gradients: &GradientsParams) {
        visit_gradients(module, gradients, &mut |_, handle| {
            if let Some(handle) = handle() {
                self.named.push((handle.buffer(), Category::Gradients));
                self.results.push(handle);
            }
        });
    }

    fn input<const D: usize, K: Basic>(&mut self, tensor: &Tensor<D, K>) {
        let handle = handle_of(tensor);
        self.named
            .extend(handle.map(|handle| (handle.buffer(), Category::Inputs)));
    }

    fn loss(&mut self, loss: &Tensor<1>) {
        self.results.extend(handle_of(loss));
    }

    fn end(&mut self, phase: Phase) -> Result<(), DeviceFailed> {
        let synced = self.device.sync();
        synced.map_err(|error| DeviceFailed(error.to_string()))?;
        let pools = pools_of(&self.device);
        let pools = Pools {
            allocations: pools.allocations.saturating_sub(self.before.allocations),
            in_use: pools.in_use.saturating_sub(self.before.in_use),
            reserved: pools.reserved.saturating_sub(self.before.reserved),
        };
        // A runtime goes on after memory was refused, and its pools then describe no step. Only tensors that
        // depend on the refused buffer show the failure.
        check_written(&std::mem::take(&mut self.results)).map_err(DeviceFailed)?;
        let said = self.roles();
        let begin = std::mem::replace(&mut self.journal, counting_driver::journal_length());
        let journal = begin
            .zip(self.journal)
            .map(|(begin, end)| JournalSpan { begin, end });
        (self.on_mark)(Mark {
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
            journal,
            tuner_requests: tuner_requests() - self.asked_before,
        });
        if phase == Phase::Optimizer {
            self.step += 1;
        }
        Ok(())
    }
}
