//! Weights of which no more is known than their names and shapes.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use burn::module::{Module, Param, ParamId};
use burn::nn::{Embedding, EmbeddingConfig, Initializer};
use burn::optim::GradientsParams;
use burn::tensor::{Device, Tensor};

use crate::{Error, Input, Job, Model, OptimizerKind, Phase, Recipe, Trainee, Watcher};

/// A tensor of a weights file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WeightTensor {
    /// Its name, for instance `model.layers.0.mlp.up_proj.weight`.
    pub name: String,
    /// Its shape.
    pub shape: Vec<usize>,
}

impl WeightTensor {
    /// Whether it is kept but never trained: the running statistics of torch's
    /// normalisations, and the constants that transformers has written to its files.
    pub fn is_buffer(&self) -> bool {
        const ENDINGS: [&str; 8] = [
            "running_mean",
            "running_var",
            "num_batches_tracked",
            "position_ids",
            "token_type_ids",
            "inv_freq",
            "attn.bias",
            "masked_bias",
        ];
        ENDINGS.iter().any(|ending| self.name.ends_with(ending))
    }

    /// Whether it is the table of an embedding, by the names that are usual for one.
    fn is_table(&self) -> bool {
        const PARTS: [&str; 3] = ["embed", "wte", "wpe"];
        self.shape.len() == 2 && PARTS.iter().any(|part| self.name.contains(part))
    }

    fn is_below(&self, prefixes: &[String]) -> bool {
        prefixes.iter().any(|prefix| {
            let rest = self.name.strip_prefix(prefix.as_str());
            rest.is_some_and(|rest| prefix.is_empty() || rest.is_empty() || rest.starts_with('.'))
        })
    }
}

/// Weights, their gradients and the optimizer's state: a training step without the network.
///
/// The step is a real one but for two things: nothing is computed from the weights, and the
/// gradients are zeros. What it takes is what any step with these weights takes at least.
#[derive(Clone, Debug)]
pub struct Weights {
    name: String,
    tensors: Vec<WeightTensor>,
}

impl Weights {
    /// Weights that people call `name`.
    pub fn new(name: &str, tensors: Vec<WeightTensor>) -> Self {
        Self {
            name: name.into(),
            tensors,
        }
    }

    /// How many tensors there are.
    pub fn tensors(&self) -> usize {
        self.tensors.len()
    }

    /// Each kind of tensor that a step which freezes what is below `freeze` treats alike, as
    /// weights with one of it, and how many there are.
    pub fn kinds(&self, freeze: &[String]) -> Vec<(Self, u64)> {
        let mut places: HashMap<_, usize> = HashMap::new();
        let mut kinds: Vec<(Self, u64)> = Vec::new();
        for tensor in &self.tensors {
            let traits = (
                tensor.is_buffer(),
                tensor.is_table(),
                tensor.is_below(freeze),
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

    fn recipe(&self) -> Recipe {
        Recipe {
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

    fn train<W: Watcher>(
        &self,
        job: &Job,
        device: &Device,
        steps: usize,
        watcher: &mut W,
    ) -> Result<(), W::Stop> {
        let mut trainee = Trainee::new(Tensors::new(&self.tensors, job, device), job);
        trainee.module().touch();
        trainee.show(watcher);
        watcher.end(Phase::Init)?;
        for _ in 0..steps {
            for empty in [Phase::Data, Phase::Forward] {
                trainee.show(watcher);
                watcher.end(empty)?;
            }
            let gradients = trainee.module().gradients();
            watcher.gradients(trainee.module(), &gradients);
            trainee.show(watcher);
            watcher.end(Phase::Backward)?;
            trainee = trainee.update(gradients);
            trainee.show(watcher);
            watcher.end(Phase::Optimizer)?;
        }
        Ok(())
    }
}

/// Tensors without a network. What an optimizer does with a tensor can depend on its rank and
/// on whether it is a table of words.
#[derive(Module, Debug)]
struct Tensors {
    vectors: Vec<Param<Tensor<1>>>,
    matrices: Vec<Param<Tensor<2>>>,
    tables: Vec<Embedding>,
    cubes: Vec<Param<Tensor<3>>>,
    kernels: Vec<Param<Tensor<4>>>,
    statistics: Vec<Statistic>,
}

/// A tensor that is kept but never trained. It is named as burn's batch normalisation names
/// one of its statistics.
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
            // An empty tensor takes nothing.
            if !tensor.shape.contains(&0) {
                all.push(tensor, job, device);
            }
        }
        all
    }

    fn push(&mut self, tensor: &WeightTensor, job: &Job, device: &Device) {
        let frozen = tensor.is_below(&job.freeze);
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
            // Of more than four dimensions the first are taken together.
            [ref first @ .., a, b, c] => {
                let shape = [first.iter().product(), a, b, c];
                self.kernels.push(zeros(shape, frozen, device));
            }
        }
    }

    /// Makes what burn would make when it is first used.
    fn touch(&self) {
        struct Touch;
        impl burn::module::ModuleVisitor for Touch {
            fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
                let _ = param.val();
            }
        }
        self.visit(&mut Touch);
    }

    /// A gradient for each tensor that is trained.
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

/// The last of the dimensions of `shape`, and the product of the others.
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
