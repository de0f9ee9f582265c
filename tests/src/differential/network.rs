//! Random networks: compositions of burn's layers, as a program of somebody's own could have them.

use burn::module::Module;
use burn::nn::loss::CrossEntropyLossConfig;
use burn::nn::{Embedding, EmbeddingConfig, Linear, LinearConfig};
use burn::tensor::{Device, Distribution, Int, Tensor};
use model_zoo::{Defaults, Error, Input, Job, Model, Observer, OptimizerKind, supervised};
use serde::{Deserialize, Serialize};

use super::layer::{Layer, LayerSpec, Shape, Value};

/// A random network, as it is drawn. It classifies its samples.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RandomNetwork {
    /// What it reads.
    pub source: Source,
    /// Its blocks, in the order in which data meets them.
    pub blocks: Vec<BlockSpec>,
    /// Classes of the output.
    pub classes: usize,
}

/// The samples of a random network.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// Images of random pixels: channels, height, width.
    Image([usize; 3]),
    /// Sequences of words, each of which becomes so many features.
    Words {
        /// Words in the vocabulary.
        vocab: usize,
        /// Words in a sequence.
        positions: usize,
        /// Features of a word.
        features: usize,
    },
}

/// One layer, or a branch of layers beside a shortcut.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BlockSpec {
    /// One layer.
    Layer(LayerSpec),
    /// Layers whose output is added to their input, if the shapes are equal.
    Add(Vec<LayerSpec>),
    /// Layers whose output is joined to their input along the channels, if the other sides are equal.
    Join(Vec<LayerSpec>),
}

/// A random network with its parameters.
#[derive(Module, Debug)]
struct Classifier {
    words: Option<Embedding>,
    blocks: Vec<Block>,
    head: Linear,
}

#[derive(Module, Debug)]
struct Block {
    layers: Vec<Layer>,
    #[module(skip)]
    shortcut: Shortcut,
}

/// What becomes of the input of a block.
#[derive(Clone, Copy, Debug)]
enum Shortcut {
    Dropped,
    Added,
    Joined,
}

impl Source {
    fn shape(&self) -> Shape {
        match *self {
            Self::Image(shape) => Shape::Image(shape),
            Self::Words {
                positions,
                features,
                ..
            } => Shape::Sequence([positions, features]),
        }
    }
}

impl BlockSpec {
    /// The block for an input of `shape`, and the shape of its output; `None` if none of its layers can work with
    /// `shape`.
    fn init(&self, shape: Shape, device: &Device) -> Option<(Block, Shape)> {
        let specs = match self {
            Self::Layer(layer) => std::slice::from_ref(layer),
            Self::Add(layers) | Self::Join(layers) => layers,
        };
        let (mut layers, mut out) = (Vec::new(), shape);
        for spec in specs {
            if let Some((layer, next)) = spec.init(out, device) {
                layers.push(layer);
                out = next;
            }
        }
        if layers.is_empty() {
            return None;
        }
        let (shortcut, out) = match self {
            Self::Add(_) if out == shape => (Shortcut::Added, out),
            Self::Join(_) => match joined(shape, out) {
                Some(joined) => (Shortcut::Joined, joined),
                None => (Shortcut::Dropped, out),
            },
            _ => (Shortcut::Dropped, out),
        };
        Some((Block { layers, shortcut }, out))
    }
}

/// The shape of two values side by side; `None` if they do not match.
fn joined(a: Shape, b: Shape) -> Option<Shape> {
    match (a, b) {
        (Shape::Image([a, height, width]), Shape::Image([b, h, w]))
            if [height, width] == [h, w] =>
        {
            Some(Shape::Image([a + b, h, w]))
        }
        (Shape::Sequence([positions, a]), Shape::Sequence([p, b])) if positions == p => {
            Some(Shape::Sequence([p, a + b]))
        }
        _ => None,
    }
}

impl Block {
    fn forward(&self, input: Value) -> Value {
        let layers = self.layers.iter();
        let output = layers.fold(input.clone(), |value, layer| layer.forward(value));
        match (self.shortcut, input, output) {
            (Shortcut::Dropped, _, output) => output,
            (Shortcut::Added, Value::Image(a), Value::Image(b)) => Value::Image(a + b),
            (Shortcut::Added, Value::Sequence(a), Value::Sequence(b)) => Value::Sequence(a + b),
            (Shortcut::Joined, Value::Image(a), Value::Image(b)) => {
                Value::Image(Tensor::cat(vec![a, b], 1))
            }
            (Shortcut::Joined, Value::Sequence(a), Value::Sequence(b)) => {
                Value::Sequence(Tensor::cat(vec![a, b], 2))
            }
            _ => unreachable!("a shortcut joins values of one kind"),
        }
    }
}

/// The samples of a batch.
#[derive(Clone, Debug)]
enum Samples {
    Images(Tensor<4>),
    Words(Tensor<2, Int>),
}

impl Classifier {
    fn new(network: &RandomNetwork, device: &Device) -> Self {
        let mut shape = network.source.shape();
        let words = match network.source {
            Source::Image(_) => None,
            Source::Words {
                vocab, features, ..
            } => Some(EmbeddingConfig::new(vocab, features).init(device)),
        };
        let mut blocks = Vec::new();
        for spec in &network.blocks {
            if let Some((block, out)) = spec.init(shape, device) {
                shape = out;
                blocks.push(block);
            }
        }
        let features = match shape {
            Shape::Image([channels, _, _]) => channels,
            Shape::Sequence([_, features]) => features,
        };
        Self {
            words,
            blocks,
            head: LinearConfig::new(features, network.classes).init(device),
        }
    }

    /// The scores `[batch, classes]`.
    fn forward(&self, samples: Samples) -> Tensor<2> {
        let value = match (samples, &self.words) {
            (Samples::Images(images), _) => Value::Image(images),
            (Samples::Words(words), Some(table)) => Value::Sequence(table.forward(words)),
            (Samples::Words(_), None) => unreachable!("a network of words has a table of them"),
        };
        let blocks = self.blocks.iter();
        let features: Tensor<2> = match blocks.fold(value, |value, block| block.forward(value)) {
            Value::Image(x) => x.mean_dim(3).mean_dim(2).flatten::<3>(2, 3).squeeze_dim(2),
            Value::Sequence(x) => x.mean_dim(1).squeeze_dim(1),
        };
        self.head.forward(features)
    }
}

impl RandomNetwork {
    /// A batch: samples and their classes `[batch]`.
    fn batch(&self, batch: usize, device: &Device) -> (Samples, Tensor<1, Int>) {
        let samples = match self.source {
            Source::Image([channels, height, width]) => {
                let shape = [batch, channels, height, width];
                Samples::Images(Tensor::random(shape, Distribution::Default, device))
            }
            Source::Words { positions, .. } => {
                Samples::Words(Tensor::zeros([batch, positions], device))
            }
        };
        (samples, Tensor::zeros([batch], device))
    }
}

/// The tensors of a batch, for the observer.
struct Labelled {
    samples: Samples,
    labels: Tensor<1, Int>,
}

impl model_zoo::Batch for Labelled {
    fn show<O: Observer>(&self, observer: &mut O) {
        match &self.samples {
            Samples::Images(images) => observer.input(images),
            Samples::Words(words) => observer.input(words),
        }
        observer.input(&self.labels);
    }
}

impl Model for RandomNetwork {
    fn name(&self) -> &str {
        "random"
    }

    fn defaults(&self) -> Defaults {
        Defaults {
            input: Input::default(),
            batch: 1,
            optimizer: OptimizerKind::Sgd,
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
        supervised(
            Classifier::new(self, device),
            job,
            device,
            steps,
            observer,
            |device| {
                let (samples, labels) = self.batch(job.batch, device);
                Labelled { samples, labels }
            },
            |network, batch| {
                let scores = network.forward(batch.samples);
                CrossEntropyLossConfig::new()
                    .init(&scores.device())
                    .forward(scores, batch.labels)
            },
        )
    }
}
