//! A training step of weights whose network is not known, only their names and shapes.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use burn::module::{Module, Param, ParamId};
use burn::nn::{Embedding, EmbeddingConfig, Initializer};
use burn::optim::GradientsParams;
use burn::tensor::{Device, Tensor};

use crate::trainer::is_below;
use crate::{Defaults, Error, Input, Job, Model, Observer, OptimizerKind, Phase, Trainer};

/// A tensor of a weights file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WeightTensor {
    /// Its name, for instance `model.layers.0.mlp.up_proj.weight`.
    pub name: String,
    /// Its shape.
    pub shape: Vec<usize>,
}

impl WeightTensor {
    /// Whether no optimizer changes it: it is a running statistic of a normalisation of torch,
    /// or a constant that transformers writes to its files.
    fn is_buffer(&self) -> bool {
        const ENDINGS: [&str; 8] = [
            "running_mean",
            "running_var",
            "num_batches_tracked",
            "position_ids",
            "token_type_ids",
            "inv_freq",
            // Not the bias of `c_attn`.
            ".attn.bias",
            "masked_bias",
        ];
        ENDINGS.iter().any(|ending| self.name.ends_with(ending))
    }

    /// Whether it is an embedding table, which it is if it has a usual name of one.
    fn is_table(&self) -> bool {
        const PARTS: [&str; 3] = ["embed", "wte", "wpe"];
        self.shape.len() == 2 && PARTS.iter().any(|part| self.name.contains(part))
    }

    fn is_below_any(&self, prefixes: &[String]) -> bool {
        prefixes.iter().any(|prefix| is_below(&self.name, prefix))
    }
}

/// Weights, their gradients and the optimizer's state: a training step without the network.
///
/// The step computes nothing from the weights, and its gradients are zeros; otherwise it is a
/// complete training step. Any step with these weights needs at least as much memory.
#[derive(Clone, Debug)]
pub struct Weights {
    name: String,
    tensors: Vec<WeightTensor>,
}

impl Weights {
    /// Weights whose model is called `name`.
    pub fn new(name: &str, tensors: Vec<WeightTensor>) -> Self {
        Self {
            name: name.into(),
            tensors,
        }
    }

    /// The number of tensors.
    pub fn tensors(&self) -> usize {
        self.tensors.len()
    }

    /// The tensors in groups: a step that freezes the path prefixes `freeze` treats the tensors
    /// of a group in the same way. Each group is given as [`Weights`] with one of its tensors, and
    /// the number of its tensors.
    pub fn kinds(&self, freeze: &[String]) -> Vec<(Self, u64)> {
        let mut places: HashMap<_, usize> = HashMap::new();
        let mut kinds: Vec<(Self, u64)> = Vec::new();
        for tensor in &self.tensors {
            let traits = (
                tensor.is_buffer(),
                tensor.is_table(),
                tensor.is_below_any(freeze),
            );
            match places.entry((&tensor.shape, traits)) {
                Entry::Occupied(place) => kinds[*place.get()].1 += 1,
                Entry::Vacant(place) => {
                    place.insert(kinds.len());
                    kinds.push((Self::new(&self.name, vec![tensor.clone()]), 1));
                }
            }
        }
        kinds
    }
}

impl Model for Weights {
    fn name(&self) -> &str {
        &self.name
    }

    fn defaults(&self) -> Defaults {
        Defaults {
            input: Input::default(),
            batch: 1,
            optimizer: OptimizerKind::AdamW,
        }
    }

    fn file(&self) -> Option<&'static str> {
        None
    }

    fn check(&self, _job: &Job) -> Result<(), Error> {
        Ok(())
    }

    fn train<O: Observer>(
        &self,
        job: &Job,
        device: &Device,
        steps: usize,
        observer: &mut O,
    ) -> Result<(), O::Stop> {
        let mut trainer = Trainer::new(Tensors::new(&self.tensors, job, device), job);
        trainer.module().touch();
        trainer.show(observer);
        observer.end(Phase::Init)?;
        for _ in 0..steps {
            for phase in [Phase::Data, Phase::Forward] {
                trainer.show(observer);
                observer.end(phase)?;
            }
            let gradients = trainer.module().gradients();
            observer.gradients(trainer.module(), &gradients);
            trainer.show(observer);
            observer.end(Phase::Backward)?;
            trainer = trainer.update(gradients);
            trainer.show(observer);
            observer.end(Phase::Optimizer)?;
        }
        Ok(())
    }
}

/// Tensors without a network, by what an optimizer can treat differently: their rank, and
/// whether they are embedding tables.
#[derive(Module, Debug)]
struct Tensors {
    vectors: Vec<Param<Tensor<1>>>,
    matrices: Vec<Param<Tensor<2>>>,
    tables: Vec<Embedding>,
    cubes: Vec<Param<Tensor<3>>>,
    kernels: Vec<Param<Tensor<4>>>,
    statistics: Vec<Statistic>,
}

/// A tensor that no optimizer changes. Its field has the name of a statistic of burn's batch
/// normalisation.
#[derive(Module, Debug)]
struct Statistic {
    running_mean: Param<Tensor<2>>,
}

impl Tensors {
    fn new(tensors: &[WeightTensor], job: &Job, device: &Device) -> Self {
        let mut all = Self {
            vectors: Vec::new(),
            matrices: Vec::new(),
            tables: Vec::new(),
            cubes: Vec::new(),
            kernels: Vec::new(),
            statistics: Vec::new(),
        };
        for tensor in tensors {
            // An empty tensor needs no memory.
            if !tensor.shape.contains(&0) {
                all.push(tensor, job, device);
            }
        }
        all
    }

    fn push(&mut self, tensor: &WeightTensor, job: &Job, device: &Device) {
        let frozen = tensor.is_below_any(&job.freeze);
        if tensor.is_buffer() {
            let running_mean = zeros(two(&tensor.shape), true, device);
            return self.statistics.push(Statistic { running_mean });
        }
        match *tensor.shape {
            [] => self.vectors.push(zeros([1], frozen, device)),
            [a] => self.vectors.push(zeros([a], frozen, device)),
            [words, width] if tensor.is_table() => {
                let table = EmbeddingConfig::new(words, width)
                    .with_initializer(Initializer::Zeros)
                    .init(device);
                self.tables.push(match frozen {
                    true => table.no_grad(),
                    false => table,
                });
            }
            [a, b] => self.matrices.push(zeros([a, b], frozen, device)),
            [a, b, c] => self.cubes.push(zeros([a, b, c], frozen, device)),
            // The first of more than four dimensions are merged.
            [ref first @ .., a, b, c] => {
                let shape = [first.iter().product(), a, b, c];
                self.kernels.push(zeros(shape, frozen, device));
            }
        }
    }

    /// Uses each tensor once, since burn creates a parameter at its first use.
    fn touch(&self) {
        struct Touch;
        impl burn::module::ModuleVisitor for Touch {
            fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
                let _ = param.val();
            }
        }
        self.visit(&mut Touch);
    }

    /// A gradient of zeros for each tensor that is trained.
    fn gradients(&self) -> GradientsParams {
        struct Zeros(GradientsParams);
        impl burn::module::ModuleVisitor for Zeros {
            fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
                let value = param.val();
                if value.is_require_grad() {
                    self.0.register(param.id, value.inner().zeros_like());
                }
            }
        }
        let mut zeros = Zeros(GradientsParams::new());
        self.visit(&mut zeros);
        zeros.0
    }
}

/// `shape` as two dimensions: the product of all but the last, and the last.
fn two(shape: &[usize]) -> [usize; 2] {
    match shape {
        [] => [1, 1],
        [first @ .., last] => [first.iter().product(), *last],
    }
}

fn zeros<const D: usize>(shape: [usize; D], frozen: bool, device: &Device) -> Param<Tensor<D>> {
    Param::uninitialized(
        ParamId::new(),
        move |device, trained| {
            device.memory_persistent_allocations((), |_| {
                let zeros = Tensor::zeros(shape, device);
                match trained {
                    true => zeros.require_grad(),
                    false => zeros,
                }
            })
        },
        device.clone(),
        !frozen,
        shape.into(),
    )
}
