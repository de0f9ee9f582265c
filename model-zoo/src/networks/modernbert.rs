//! ModernBERT, an encoder with rotary positions and windows. See `variants` for paper, reference and differences.

use burn::module::{Module, Param};
use burn::nn::activation::{Activation, ActivationConfig};
use burn::nn::{
    Dropout, DropoutConfig, Embedding, EmbeddingConfig, Initializer, LayerNorm, LayerNormConfig,
    Linear, LinearConfig, RotaryEncoding, RotaryEncodingConfig,
};
use burn::tensor::{Bool, Device, Int, Tensor, s};

use super::Network;
use crate::blocks::attention::{around_mask, attend, join_heads, split_heads};
use crate::blocks::cross_entropy;
use crate::blocks::tokens::{tied_scores, words};
use crate::{Counts, Error, Input, Job, Observer, OptimizerKind, Variant, supervised};

/// The configuration of a [`ModernBert`]; the fields are those of a `config.json`.
#[derive(Clone, Debug)]
pub(crate) struct ModernBertConfig {
    /// Words in the vocabulary: 50,368.
    pub vocab: usize,
    /// Width of the model.
    pub d_model: usize,
    /// The layers; true if a query sees only a window: two of three, from the second on.
    pub local: Vec<bool>,
    /// Attention heads.
    pub heads: usize,
    /// Width of the feed-forward block's hidden layer.
    pub d_ff: usize,
    /// Positions that the published network was made for, without a table of them: 8,192.
    pub positions: usize,
    /// The width of a window: 128 tokens, half of them on each side.
    pub window: usize,
    /// Dropout on the embeddings: none.
    pub dropout: f64,
    /// Dropout on the attention weights: none.
    pub attention_dropout: f64,
    /// Dropout within the feed-forward block: none.
    pub mlp_dropout: f64,
    /// Dropout before the classifier: none.
    pub head_dropout: f64,
    /// Epsilon of the normalisations: 1e-5.
    pub epsilon: f64,
    /// Whether normalisations have a bias: no.
    pub norm_bias: bool,
    /// Whether the projections of attention have a bias: no.
    pub attention_bias: bool,
    /// Whether the feed-forward block has biases: no.
    pub mlp_bias: bool,
    /// Whether the layer of the head has a bias: no.
    pub head_bias: bool,
    /// Whether the scores of words have a bias: yes.
    pub word_bias: bool,
    /// Activation of the feed-forward block: exact GELU.
    pub activation: ActivationConfig,
    /// Activation of the head: exact GELU.
    pub head_activation: ActivationConfig,
    /// Whether a text is classified by the mean of its words, and not by the first: no.
    pub mean: bool,
}

impl ModernBertConfig {
    /// ModernBERT base.
    pub fn base(vocab: usize) -> Self {
        Self {
            vocab,
            d_model: 768,
            local: Self::pattern(22, 3),
            heads: 12,
            d_ff: 1152,
            positions: 8192,
            window: 128,
            dropout: 0.0,
            attention_dropout: 0.0,
            mlp_dropout: 0.0,
            head_dropout: 0.0,
            epsilon: 1e-5,
            norm_bias: false,
            attention_bias: false,
            mlp_bias: false,
            head_bias: false,
            word_bias: true,
            activation: ActivationConfig::Gelu,
            head_activation: ActivationConfig::Gelu,
            mean: false,
        }
    }

    /// ModernBERT large.
    pub fn large(vocab: usize) -> Self {
        Self {
            d_model: 1024,
            local: Self::pattern(28, 3),
            heads: 16,
            d_ff: 2624,
            ..Self::base(vocab)
        }
    }

    /// `layers` layers of which the first and each `every`-th after it see all words.
    pub fn pattern(layers: usize, every: usize) -> Vec<bool> {
        (0..layers)
            .map(|layer| !layer.is_multiple_of(every))
            .collect()
    }

    /// The same network with small numbers, of which any device trains a step within seconds.
    fn tiny(self) -> Self {
        Self {
            d_model: 16,
            local: Self::pattern(2, 3),
            heads: 2,
            d_ff: 24,
            window: 4,
            ..self
        }
    }

    fn norm(&self, device: &Device) -> LayerNorm {
        LayerNormConfig::new(self.d_model)
            .with_epsilon(self.epsilon)
            .with_bias(self.norm_bias)
            .init(device)
    }

    /// The encoder on `device`, for sequences of `seq` words.
    fn init(&self, seq: usize, device: &Device) -> ModernBert {
        // The scale of the reference: tied output scores are small at the start.
        let small = Initializer::Normal {
            mean: 0.0,
            std: 0.02,
        };
        let rotary = |is_local: bool, theta: f32| {
            self.local.contains(&is_local).then(|| {
                RotaryEncodingConfig::new(seq, self.d_model / self.heads)
                    .with_theta(theta)
                    .init(device)
            })
        };
        ModernBert {
            words: EmbeddingConfig::new(self.vocab, self.d_model)
                .with_initializer(small)
                .init(device),
            norm: self.norm(device),
            dropout: DropoutConfig::new(self.dropout).init(),
            full: rotary(false, 160_000.0),
            local: rotary(true, 10_000.0),
            layers: (0..self.local.len())
                .map(|layer| self.layer(layer, device))
                .collect(),
            final_norm: self.norm(device),
            window: self.window,
        }
    }

    fn layer(&self, layer: usize, device: &Device) -> EncoderLayer {
        let linear = |sides: [usize; 2], bias| {
            LinearConfig::new(sides[0], sides[1])
                .with_bias(bias)
                .init(device)
        };
        let (d_model, d_ff) = (self.d_model, self.d_ff);
        EncoderLayer {
            // The embeddings are normalised before the first layer.
            norm_1: (layer > 0).then(|| self.norm(device)),
            attention: Attention {
                qkv: linear([d_model, 3 * d_model], self.attention_bias),
                output: linear([d_model, d_model], self.attention_bias),
                dropout: DropoutConfig::new(self.attention_dropout).init(),
                heads: self.heads,
            },
            norm_2: self.norm(device),
            mlp: GatedFeedForward {
                inner: linear([d_model, 2 * d_ff], self.mlp_bias),
                outer: linear([d_ff, d_model], self.mlp_bias),
                activation: self.activation.init(device),
                dropout: DropoutConfig::new(self.mlp_dropout).init(),
            },
            local: self.local[layer],
        }
    }

    fn head(&self, device: &Device) -> Head {
        Head {
            dense: LinearConfig::new(self.d_model, self.d_model)
                .with_bias(self.head_bias)
                .init(device),
            activation: self.head_activation.init(device),
            norm: self.norm(device),
        }
    }

    fn classifier(&self, seq: usize, classes: usize, device: &Device) -> Classifier {
        Classifier {
            bert: self.init(seq, device),
            head: self.head(device),
            dropout: DropoutConfig::new(self.head_dropout).init(),
            classifier: LinearConfig::new(self.d_model, classes).init(device),
            mean: self.mean,
        }
    }

    fn masked_words(&self, seq: usize, device: &Device) -> MaskedWords {
        MaskedWords {
            bert: self.init(seq, device),
            head: self.head(device),
            bias: self
                .word_bias
                .then(|| Initializer::Zeros.init([self.vocab], device)),
        }
    }
}

/// The encoder.
#[derive(Module, Debug)]
pub(crate) struct ModernBert {
    words: Embedding,
    norm: LayerNorm,
    dropout: Dropout,
    full: Option<RotaryEncoding>,
    local: Option<RotaryEncoding>,
    layers: Vec<EncoderLayer>,
    final_norm: LayerNorm,
    window: usize,
}

impl ModernBert {
    /// Hidden states `[batch, seq, d_model]` of `words: [batch, seq]`; `padding`, of the same shape, is true at
    /// padding words.
    fn forward(&self, words: Tensor<2, Int>, padding: Tensor<2, Bool>) -> Tensor<3> {
        let [batch, seq] = words.dims();
        let full: Tensor<4, Bool> = padding.reshape([batch, 1, 1, seq]);
        let local = self
            .local
            .as_ref()
            .map(|_| around_mask(seq, self.window / 2, &words.device()).bool_or(full.clone()));
        let x = self.norm.forward(self.words.forward(words));
        let mut x = self.dropout.forward(x);
        for layer in &self.layers {
            let (rotary, mask) = match (layer.local, &local) {
                (true, Some(mask)) => (&self.local, mask),
                _ => (&self.full, &full),
            };
            x = layer.forward(x, rotary.as_ref(), mask.clone());
        }
        self.final_norm.forward(x)
    }
}

/// Attention and gated feed-forward block, each after a normalisation.
#[derive(Module, Debug)]
struct EncoderLayer {
    norm_1: Option<LayerNorm>,
    attention: Attention,
    norm_2: LayerNorm,
    mlp: GatedFeedForward,
    local: bool,
}

impl EncoderLayer {
    /// `[batch, seq, d_model]` from `x` of the same shape; `mask`, true where a key is hidden, broadcasts to `[batch,
    /// heads, seq, seq]`.
    fn forward(
        &self,
        x: Tensor<3>,
        rotary: Option<&RotaryEncoding>,
        mask: Tensor<4, Bool>,
    ) -> Tensor<3> {
        let normal = match &self.norm_1 {
            Some(norm) => norm.forward(x.clone()),
            None => x.clone(),
        };
        let x = x + self.attention.forward(normal, rotary, mask);
        let fed = self.mlp.forward(self.norm_2.forward(x.clone()));
        x + fed
    }
}

/// Attention with rotary positions.
#[derive(Module, Debug)]
struct Attention {
    qkv: Linear,
    output: Linear,
    dropout: Dropout,
    heads: usize,
}

impl Attention {
    fn forward(
        &self,
        x: Tensor<3>,
        rotary: Option<&RotaryEncoding>,
        mask: Tensor<4, Bool>,
    ) -> Tensor<3> {
        let parts: [Tensor<3>; 3] = self
            .qkv
            .forward(x)
            .chunk(3, 2)
            .try_into()
            .expect("the projection is three times as wide as the model");
        let [query, key, value] = parts.map(|part| split_heads(part, self.heads));
        let rotate = |x: Tensor<4>| match rotary {
            Some(rotary) => rotary.forward(x),
            None => x,
        };
        let attended = attend(
            [rotate(query), rotate(key), value],
            Some(mask),
            &self.dropout,
        );
        self.output.forward(join_heads(attended))
    }
}

/// `outer(activation(input) * gate)`, both halves of one projection.
#[derive(Module, Debug)]
struct GatedFeedForward {
    inner: Linear,
    outer: Linear,
    activation: Activation,
    dropout: Dropout,
}

impl GatedFeedForward {
    fn forward(&self, x: Tensor<3>) -> Tensor<3> {
        let both = self.inner.forward(x);
        let wide = both.dims()[2] / 2;
        let (input, gate) = (both.clone().narrow(2, 0, wide), both.narrow(2, wide, wide));
        let hidden = self.activation.forward(input) * gate;
        self.outer.forward(self.dropout.forward(hidden))
    }
}

/// What stands between the encoder and an output layer.
#[derive(Module, Debug)]
struct Head {
    dense: Linear,
    activation: Activation,
    norm: LayerNorm,
}

impl Head {
    fn forward<const D: usize>(&self, x: Tensor<D>) -> Tensor<D> {
        self.norm
            .forward(self.activation.forward(self.dense.forward(x)))
    }
}

/// ModernBERT with a classifier on each text (`ModernBertForSequenceClassification`) or on each word
/// (`ModernBertForTokenClassification`).
#[derive(Module, Debug)]
struct Classifier {
    bert: ModernBert,
    head: Head,
    dropout: Dropout,
    classifier: Linear,
    mean: bool,
}

impl Classifier {
    /// Class scores `[batch, classes]` of texts; the arguments are those of [`ModernBert::forward`].
    fn of_texts(&self, words: Tensor<2, Int>, padding: Tensor<2, Bool>) -> Tensor<2> {
        let [batch, seq] = words.dims();
        let hidden = self.bert.forward(words, padding.clone());
        let pooled: Tensor<2> = match self.mean {
            true => {
                let counts = padding.bool_not().float().reshape([batch, seq, 1]);
                let sum = (hidden * counts.clone()).sum_dim(1);
                (sum / counts.sum_dim(1)).squeeze_dim(1)
            }
            false => hidden.slice(s![.., 0..1, ..]).squeeze_dim(1),
        };
        let pooled = self.dropout.forward(self.head.forward(pooled));
        self.classifier.forward(pooled)
    }

    /// Class scores `[batch * seq, classes]` of words.
    fn of_words(&self, words: Tensor<2, Int>, padding: Tensor<2, Bool>) -> Tensor<2> {
        let hidden = self.head.forward(self.bert.forward(words, padding));
        let scores = self.classifier.forward(self.dropout.forward(hidden));
        scores.flatten(0, 1)
    }
}

/// ModernBERT with its masked-word head (`ModernBertForMaskedLM`), which scores all words.
#[derive(Module, Debug)]
struct MaskedWords {
    bert: ModernBert,
    head: Head,
    bias: Option<Param<Tensor<1>>>,
}

impl MaskedWords {
    /// Word scores `[batch * seq, vocab]`; the arguments are those of [`ModernBert::forward`].
    fn forward(&self, words: Tensor<2, Int>, padding: Tensor<2, Bool>) -> Tensor<2> {
        let hidden = self.head.forward(self.bert.forward(words, padding));
        let scores = tied_scores(hidden.flatten(0, 1), &self.bert.words);
        match &self.bias {
            Some(bias) => scores + bias.val().unsqueeze(),
            None => scores,
        }
    }
}

/// What the network is trained on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Task {
    /// A class for a text.
    Classify,
    /// A class for each word.
    ClassifyWords,
    /// Masked words.
    MaskedWords,
}

/// Trains the network that `config` describes, with the head of `task`. The other arguments are those of
/// [`Network::train`].
///
/// # Errors
///
/// The error of the observer, if it stops the step.
pub(crate) fn train_on<O: Observer>(
    config: &ModernBertConfig,
    task: Task,
    job: &Job,
    device: &Device,
    steps: usize,
    observer: &mut O,
) -> Result<(), O::Stop> {
    let (batch, seq) = (job.batch, job.seq());
    let padding = |device: &Device| Tensor::<2, Int>::zeros([batch, seq], device).bool();
    if task == Task::MaskedWords {
        return supervised(
            config.masked_words(seq, device),
            job,
            device,
            steps,
            observer,
            |device| {
                (
                    words(batch, seq, device),
                    padding(device),
                    words(batch, seq, device),
                )
            },
            |network, (words, padding, hidden)| {
                cross_entropy(network.forward(words, padding), hidden.flatten(0, 1))
            },
        );
    }
    let labels = match task {
        Task::Classify => batch,
        _ => batch * seq,
    };
    supervised(
        config.classifier(seq, job.classes(), device),
        job,
        device,
        steps,
        observer,
        |device| {
            (
                words(batch, seq, device),
                padding(device),
                Tensor::<1, Int>::zeros([labels], device),
            )
        },
        |network, (words, padding, labels)| {
            let scores = match task {
                Task::Classify => network.of_texts(words, padding),
                _ => network.of_words(words, padding),
            };
            cross_entropy(scores, labels)
        },
    )
}

impl Network for ModernBert {
    const OUTPUT_LAYERS: &'static [&'static str] = &["classifier"];

    fn variants(file: &'static str) -> Vec<Variant> {
        let tuned = |name, trainable, tensors| Variant {
            name,
            family: "ModernBERT",
            file,
            paper: "Warner et al. 2024, Smarter, Better, Faster, Longer: A Modern Bidirectional Encoder for Fast, Memory Efficient, and Long Context Finetuning and Inference, arXiv 2412.13663",
            reference: "transformers ModernBertForSequenceClassification",
            counts: Counts {
                trainable,
                tensors,
                buffers: 0,
            },
            input: Input {
                seq: Some(128),
                classes: Some(2),
                vocab: Some(50_368),
                ..Input::default()
            },
            batch: 32,
            optimizer: OptimizerKind::AdamW,
            recipe: "GLUE fine-tuning, 32 sequences of 128 tokens, cross-entropy on the output of the first word, AdamW",
            differences: &[
                "attention scores are computed as a tensor, also of what a window hides; the reference has fused attention, and packs sequences of other lengths",
                "the rotary encoding turns pairs of neighbouring channels and makes a tensor twice as large as the queries, freed at once",
                "gradient clipping and weight decay are left out: they need no memory that outlives an operation",
            ],
        };
        vec![
            tuned("modernbert-base", 149_606_402, 138),
            tuned("modernbert-large", 395_833_346, 174),
        ]
    }

    fn train<O: Observer>(
        variant: &Variant,
        job: &Job,
        device: &Device,
        steps: usize,
        observer: &mut O,
    ) -> Result<(), O::Stop> {
        let config = match variant.name {
            "modernbert-base" => ModernBertConfig::base(job.vocab()),
            "modernbert-large" => ModernBertConfig::large(job.vocab()),
            "modernbert-mini" => ModernBertConfig::base(job.vocab()).tiny(),
            other => unreachable!("{other} is not a variant of this file"),
        };
        train_on(&config, Task::Classify, job, device, steps, observer)
    }

    fn check(_variant: &Variant, _job: &Job) -> Result<(), Error> {
        // The network computes rotations for as many positions as the sequence has.
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Request, test_support};

    fn tiny() -> ModernBertConfig {
        ModernBertConfig::base(50).tiny()
    }

    #[test]
    fn scores_have_the_shapes_of_the_heads() {
        let device = test_support::flex();
        let text = || words(3, 8, &device);
        let padding = || text().equal_elem(1);
        for mean in [false, true] {
            let config = ModernBertConfig { mean, ..tiny() };
            let classifier = config.classifier(8, 5, &device);
            assert_eq!(classifier.of_texts(text(), padding()).dims(), [3, 5]);
            assert_eq!(classifier.of_words(text(), padding()).dims(), [3 * 8, 5]);
        }
        let words = tiny().masked_words(8, &device);
        assert_eq!(words.forward(text(), padding()).dims(), [3 * 8, 50]);
    }

    #[test]
    fn trains() {
        let request = Request {
            batch: Some(2),
            input: Input {
                seq: Some(8),
                vocab: Some(50),
                ..Input::default()
            },
            ..Request::default()
        };
        for task in [Task::Classify, Task::ClassifyWords, Task::MaskedWords] {
            test_support::assert_loss_decreases(
                "modernbert-base",
                &request,
                |job, device, _, losses| train_on(&tiny(), task, job, device, 4, losses),
            );
        }
    }
}
