//! A random job on a random card.
//!
//! The file is long because each kind of network, request and layer has its own range of values.

use std::collections::BTreeMap;

use estimator::{Gpu, Runtime, Tuning};
use fit_check::model_source::{self, AnyModel};
use fit_check::user_error::UserError;
use model_zoo::{
    BaseFormat, ConfigModel, Defaults, Error, Job, LoraRequest, Model, Observer, OptimizerKind,
    Precision, Request,
};
use proptest::prelude::*;
use proptest::sample::select;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use burn::tensor::Device;

use super::layer::LayerSpec;
use super::network::{BlockSpec, RandomNetwork, Source};

/// A job, the card that it runs on, and how.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Case {
    /// The network.
    pub network: NetworkSpec,
    /// How it is trained.
    pub request: Request,
    /// The card, by its name in the catalogue.
    pub gpu: String,
    /// Whether burn fuses operations, where it is built with `fusion`.
    pub fused: bool,
    /// Whether burn's tuner knows the kernels beforehand, where it is built with `autotune`.
    pub tuning: Tuning,
    /// How long each launch blocks the device's thread, in microseconds: the more, the further the program
    /// runs ahead of that thread.
    pub launch_delay_us: u64,
    /// The card's memory as a percentage of what the step reserves where there is room; none if there is no
    /// limit.
    pub memory_percent: Option<u32>,
}

/// A network of the zoo, one of a configuration, or a random one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NetworkSpec {
    /// A network of the zoo, by its name.
    Zoo(String),
    /// A network with the dimensions of a `config.json`: its text.
    Config(String),
    /// A random network.
    Random(RandomNetwork),
}

/// The network of a case, to train.
#[derive(Clone, Debug)]
pub enum CaseModel {
    /// A network of the zoo, or of a configuration.
    Zoo(Box<AnyModel>),
    /// A random network.
    Random(RandomNetwork),
}

impl NetworkSpec {
    /// The text by which the child process finds the network.
    pub fn text(&self) -> String {
        serde_json::to_string(self).expect("a network is JSON")
    }

    /// The network with this [text](Self::text).
    ///
    /// # Errors
    ///
    /// The text is not one of a network, or there is no such network.
    pub fn find(text: &str) -> anyhow::Result<CaseModel> {
        Ok(serde_json::from_str::<Self>(text)?.model()?)
    }

    /// Whether it is a random network, and not one of the zoo.
    pub fn is_random(&self) -> bool {
        matches!(self, Self::Random(_))
    }

    /// The network.
    ///
    /// # Errors
    ///
    /// The zoo has no such network.
    pub fn model(&self) -> Result<CaseModel, UserError> {
        let of_config = |model| AnyModel::ConfigModel(Box::new(model));
        Ok(match self {
            Self::Config(text) => CaseModel::Zoo(Box::new(of_config(ConfigModel::read(
                "configuration",
                text,
            )?))),
            Self::Zoo(name) => CaseModel::Zoo(Box::new(model_source::find(name, true)?.0)),
            Self::Random(network) => CaseModel::Random(network.clone()),
        })
    }
}

impl Model for CaseModel {
    fn name(&self) -> &str {
        match self {
            Self::Zoo(model) => model.name(),
            Self::Random(network) => network.name(),
        }
    }

    fn defaults(&self) -> Defaults {
        match self {
            Self::Zoo(model) => model.defaults(),
            Self::Random(network) => network.defaults(),
        }
    }

    fn file(&self) -> Option<&'static str> {
        match self {
            Self::Zoo(model) => model.file(),
            Self::Random(network) => network.file(),
        }
    }

    fn check(&self, job: &Job) -> Result<(), Error> {
        match self {
            Self::Zoo(model) => model.check(job),
            Self::Random(network) => network.check(job),
        }
    }

    fn train<O: Observer>(
        &self,
        job: &Job,
        device: &Device,
        steps: usize,
        observer: &mut O,
    ) -> Result<(), O::Stop> {
        match self {
            Self::Zoo(model) => model.train(job, device, steps, observer),
            Self::Random(network) => network.train(job, device, steps, observer),
        }
    }
}

/// The case with this number of the sequence `seed`, and how to make it smaller.
pub fn draw(seed: u64, number: u64) -> Box<dyn ValueTree<Value = Case>> {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    bytes[8..16].copy_from_slice(&number.to_le_bytes());
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    let tree = case().new_tree(&mut runner);
    Box::new(tree.expect("no value of a case is rejected"))
}

/// A small job of each file of the zoo in the order of their names, and one of a random network: fp32, on an
/// RTX 3090.
pub fn small_jobs() -> Vec<Case> {
    let mut smallest = BTreeMap::new();
    // A tiny network if there is one, or else that with the fewest parameters.
    for variant in model_zoo::variants() {
        let parameters = variant.counts.trainable;
        let known = smallest.entry(variant.file);
        let known = known.or_insert((parameters, variant.name));
        *known = (*known).min((parameters, variant.name));
    }
    for tiny in model_zoo::tiny_models() {
        if let Some(file) = tiny.file() {
            smallest.insert(file, (0, tiny.name));
        }
    }
    let of_zoo = smallest.into_values().map(|(_, name)| {
        let network = NetworkSpec::Zoo(name.into());
        let request = accepted(&network, ((32, 32), 5, 5, 10, 1000), None);
        (network, request)
    });
    let drawn = (0..).map(|number| draw(1, number).current().network);
    let random = drawn.into_iter().find(NetworkSpec::is_random);
    let random = random.expect("most networks are random");
    let jobs = of_zoo.chain([(random, Request::default())]);
    jobs.map(|(network, request)| Case {
        network,
        request: Request {
            batch: Some(2),
            ..request
        },
        gpu: "GeForce RTX 3090".into(),
        fused: true,
        tuning: Tuning::Warm,
        launch_delay_us: 0,
        memory_percent: None,
    })
    .collect()
}

fn case() -> impl Strategy<Value = Case> {
    // One case in eight is a network of the zoo, which takes longer, or of a configuration.
    let job = prop_oneof![
        14 => random_network().prop_flat_map(|network| {
            let request = request(1..=8, Request::default());
            (Just(NetworkSpec::Random(network)), request)
        }),
        1 => zoo(),
        1 => configuration(),
    ];
    let gpus: Vec<String> = Gpu::all()
        .iter()
        .filter(|gpu| gpu.is_driven_by(Runtime::Cuda))
        .map(|gpu| gpu.name.clone())
        .collect();
    let memory = prop_oneof![Just(None), (50_u32..=100).prop_map(Some)];
    let delay = prop_oneof![2 => Just(0_u64), 1 => 1_u64..200];
    let tuning = select(vec![Tuning::Cold, Tuning::Warm]);
    let settings = (select(gpus), any::<bool>(), tuning, delay, memory);
    (job, settings).prop_map(
        |((network, request), (gpu, fused, tuning, launch_delay_us, memory_percent))| Case {
            network,
            request,
            gpu,
            fused,
            tuning,
            launch_delay_us,
            memory_percent,
        },
    )
}

/// A request that changes what any network allows to change.
fn request(
    batch: std::ops::RangeInclusive<usize>,
    fixed: Request,
) -> impl Strategy<Value = Request> {
    let precision = select(vec![
        Precision::Fp32,
        Precision::Mixed,
        Precision::Fp16,
        Precision::Bf16,
    ]);
    let optimizer = select(vec![
        OptimizerKind::Sgd,
        OptimizerKind::Momentum,
        OptimizerKind::Adam,
        OptimizerKind::AdamW,
        OptimizerKind::RmsProp,
        OptimizerKind::AdaGrad,
        OptimizerKind::Lion,
        OptimizerKind::Adafactor,
        OptimizerKind::Lamb,
        OptimizerKind::Adan,
        OptimizerKind::Muon,
    ]);
    let frozen = prop_oneof![
        3 => Just(Vec::new()),
        1 => select(vec!["blocks.0", "blocks.1", "head", "layer1", "encoder", "conv1"])
            .prop_map(|path| vec![path.to_string()]),
    ];
    (
        batch,
        precision,
        optimizer,
        1_usize..=3,
        any::<bool>(),
        frozen,
    )
        .prop_map(
            move |(batch, precision, optimizer, accumulate, checkpointing, freeze)| Request {
                batch: Some(batch),
                precision,
                optimizer: Some(optimizer),
                accumulate,
                checkpointing,
                freeze,
                ..fixed.clone()
            },
        )
}

/// A network of the zoo at sizes that it accepts.
fn zoo() -> impl Strategy<Value = (NetworkSpec, Request)> {
    let published = model_zoo::variants()
        .into_iter()
        .map(|variant| variant.name);
    let tiny = model_zoo::tiny_models().into_iter().map(|tiny| tiny.name);
    // Half a minute and more for each on two cores: they have thousands of operations.
    let slow = [
        "nasnet-a-large",
        "char-lm-enwik8",
        "char-lm-ptb",
        "awd-lstm-wt2",
        "awd-lstm-ptb",
        "stylegan",
        "mt-dnn-large",
        "gpt2-xl",
        "xlm-mt-en-fr",
        "elmo-bilm",
        "infersent",
        "mask-rcnn-r50-fpn",
    ];
    let names: Vec<_> = published
        .chain(tiny)
        .filter(|name| !slow.contains(name))
        .collect();
    let sides = select(vec![32_usize, 48, 64, 96, 128]);
    let sizes = (
        (sides.clone(), sides),
        2_usize..=32,
        2_usize..=32,
        2_usize..=1000,
        50_usize..=5000,
    );
    let lora = prop_oneof![3 => Just(None), 1 => (1_usize..=16).prop_map(Some)];
    (select(names), sizes, lora).prop_flat_map(|(name, sizes, rank)| {
        let network = NetworkSpec::Zoo(name.into());
        let fixed = accepted(&network, sizes, rank);
        (Just(network), request(1..=4, fixed))
    })
}

/// A network of a small configuration, with sizes that it accepts.
fn configuration() -> impl Strategy<Value = (NetworkSpec, Request)> {
    let config = prop_oneof![2 => decoder(), 1 => encoder(), 1 => image_classifier()];
    let lora = prop_oneof![3 => Just(None), 1 => (1_usize..=16).prop_map(Some)];
    (config, 2_usize..=32, lora).prop_flat_map(|(config, seq, rank)| {
        let network = NetworkSpec::Config(config.to_string());
        let fixed = accepted(&network, ((64, 48), seq, seq, 10, 100), rank);
        (Just(network), request(1..=4, fixed))
    })
}

fn decoder() -> BoxedStrategy<Value> {
    let kind = select(vec![
        "llama",
        "qwen2",
        "qwen3",
        "mistral",
        "gemma",
        "gemma2",
        "gemma3_text",
        "phi3",
        "olmo2",
        "smollm3",
        "qwen3_moe",
        "gpt_oss",
    ]);
    // A head of Phi has rotated channels in pairs, and so every even number.
    let heads = (1_usize..=3, 1_usize..=3, 1_usize..=8);
    let widths = (1_usize..=8, 8_usize..=64, 50_usize..=300, 1_usize..=3);
    let experts = (2_usize..=9, 1_usize..=3, 4_usize..=32);
    let switches = (any::<bool>(), any::<bool>(), any::<bool>(), 2_usize..=16);
    (kind, heads, widths, experts, switches)
        .prop_map(
            |(
                kind,
                (kv_heads, shared, half_head),
                (width, d_ff, vocab, layers),
                (experts, taken, d_expert),
                (tied, bias, normalised, window),
            )| {
                let heads = kv_heads * shared;
                json!({
                    "model_type": kind,
                    "hidden_size": heads * width,
                    "intermediate_size": d_ff,
                    "vocab_size": vocab,
                    "num_hidden_layers": layers,
                    "num_attention_heads": heads,
                    "num_key_value_heads": kv_heads,
                    "head_dim": 2 * half_head,
                    "max_position_embeddings": 32,
                    "tie_word_embeddings": tied,
                    "attention_bias": bias,
                    "sliding_window": window,
                    "num_experts": experts,
                    "num_experts_per_tok": taken.min(experts),
                    "moe_intermediate_size": d_expert,
                    "norm_topk_prob": normalised,
                })
            },
        )
        .boxed()
}

fn encoder() -> BoxedStrategy<Value> {
    let kind = select(vec![
        ("bert", "Bert"),
        ("roberta", "Roberta"),
        ("distilbert", "DistilBert"),
        ("modernbert", "ModernBert"),
    ]);
    let head = select(vec![
        "SequenceClassification",
        "TokenClassification",
        "MaskedLM",
    ]);
    let widths = (1_usize..=4, 1_usize..=8, 8_usize..=64, 50_usize..=300);
    (kind, head, widths, 1_usize..=3, any::<bool>())
        .prop_map(
            |((kind, class), head, (heads, half_head, d_ff, vocab), layers, flag)| {
                json!({
                    "model_type": kind,
                    "architectures": [format!("{class}For{head}")],
                    "hidden_size": heads * 2 * half_head,
                    "intermediate_size": d_ff,
                    "vocab_size": vocab,
                    "num_hidden_layers": layers,
                    "num_attention_heads": heads,
                    "max_position_embeddings": 64,
                    "local_attention": 4,
                    "norm_bias": flag,
                    "mlp_bias": !flag,
                    "classifier_pooling": if flag { "mean" } else { "cls" },
                })
            },
        )
        .boxed()
}

fn image_classifier() -> BoxedStrategy<Value> {
    let kind = select(vec!["vit", "deit", "swin", "convnext"]);
    let sizes = (1_usize..=4, 1_usize..=8, 8_usize..=64, 1_usize..=3);
    (kind, sizes, 2_usize..=4, any::<bool>())
        .prop_map(|(kind, (heads, d_head, d_ff, layers), window, flag)| {
            let width = heads * d_head;
            json!({
                "model_type": kind,
                "image_size": [64, 48],
                "patch_size": 4,
                "hidden_size": width,
                "intermediate_size": d_ff,
                "num_hidden_layers": if kind == "convnext" { 2 } else { layers },
                "num_attention_heads": heads,
                "num_labels": 10,
                "embed_dim": width,
                "depths": [layers, 1],
                "num_heads": [heads, 2 * heads],
                "window_size": window,
                "hidden_sizes": [width, 2 * width],
                "use_absolute_embeddings": flag,
                "layer_scale_init_value": if flag { 0.0 } else { 1e-6 },
                "drop_path_rate": if flag { 0.0 } else { 0.1 },
            })
        })
        .boxed()
}

/// A request of those sizes and adapters that `network` accepts.
fn accepted(
    network: &NetworkSpec,
    ((height, width), seq, src_seq, classes, vocab): ((usize, usize), usize, usize, usize, usize),
    rank: Option<usize>,
) -> Request {
    let Ok(model) = network.model() else {
        return Request::default();
    };
    let accepts = |request: &Request| {
        let job = request.resolve(&model);
        job.is_ok_and(|job| model.check(&job).is_ok())
    };
    let mut request = Request {
        batch: Some(4),
        ..Request::default()
    };
    let changes: [fn(&mut Request, [usize; 6]); 5] = [
        |request, [height, width, ..]| request.input.image = Some([height, width]),
        |request, [_, _, seq, ..]| request.input.seq = Some(seq),
        |request, [_, _, _, src_seq, ..]| request.input.src_seq = Some(src_seq),
        |request, [_, _, _, _, classes, _]| request.input.classes = Some(classes),
        |request, [.., vocab]| request.input.vocab = Some(vocab),
    ];
    let mut keep = |change: &dyn Fn(&mut Request)| {
        let mut changed = request.clone();
        change(&mut changed);
        if accepts(&changed) {
            request = changed;
        }
    };
    for change in changes {
        keep(&|request| change(request, [height, width, seq, src_seq, classes, vocab]));
    }
    if let Some(rank) = rank {
        keep(&|request| {
            request.lora = Some(LoraRequest {
                rank,
                targets: Vec::new(),
                base: BaseFormat::Dense,
            });
        });
    }
    request
}

fn random_network() -> impl Strategy<Value = RandomNetwork> {
    let images = (
        ([1_usize..=4, 4_usize..=40, 4_usize..=40])
            .prop_map(|[channels, height, width]| Source::Image([channels, height, width])),
        prop::collection::vec(block(image_layer().boxed()), 1..=6),
        prop::collection::vec(block(sequence_layer().boxed()), 0..=2),
    );
    let words = (
        (2_usize..=200, 1_usize..=12, 1_usize..=48).prop_map(|(vocab, positions, features)| {
            Source::Words {
                vocab,
                positions,
                features,
            }
        }),
        prop::collection::vec(block(sequence_layer().boxed()), 1..=5),
        Just(Vec::new()),
    );
    let drawn = prop_oneof![
        images.prop_map(|drawn| drawn),
        words.prop_map(|drawn| drawn),
    ];
    (drawn, 2_usize..=20).prop_map(|((source, mut blocks, after), classes)| {
        if !after.is_empty() {
            blocks.push(BlockSpec::Layer(LayerSpec::Flatten));
            blocks.extend(after);
        }
        RandomNetwork {
            source,
            blocks,
            classes,
        }
    })
}

fn block(layer: BoxedStrategy<LayerSpec>) -> impl Strategy<Value = BlockSpec> {
    let layers = prop::collection::vec(layer.clone(), 1..=3);
    prop_oneof![
        4 => layer.prop_map(BlockSpec::Layer),
        1 => layers.clone().prop_map(BlockSpec::Add),
        1 => layers.prop_map(BlockSpec::Join),
    ]
}

fn any_layer() -> impl Strategy<Value = LayerSpec> {
    prop_oneof![
        (0_u8..5).prop_map(|function| LayerSpec::Activation { function }),
        (1_u8..60).prop_map(|percent| LayerSpec::Dropout { percent }),
    ]
}

fn image_layer() -> impl Strategy<Value = LayerSpec> {
    let channels = || 1_usize..=48;
    let odd = || select(vec![1_usize, 3, 5, 7]);
    let stride = || 1_usize..=2;
    prop_oneof![
        4 => (channels(), odd(), stride(), 1_usize..=2, select(vec![1_usize, 1, 2, 4, 48])).prop_map(
            |(channels, kernel, stride, dilation, groups)| LayerSpec::Conv {
                channels,
                kernel,
                stride,
                dilation,
                groups,
            }
        ),
        1 => (channels(), 1_usize..=4, stride()).prop_map(|(channels, kernel, stride)| {
            LayerSpec::ConvTranspose {
                channels,
                kernel,
                stride,
            }
        }),
        1 => (1_usize..=3).prop_map(|channels| LayerSpec::Conv3d { channels }),
        1 => (channels(), any::<bool>())
            .prop_map(|(channels, masked)| LayerSpec::Deform { channels, masked }),
        1 => (1_usize..=3, stride())
            .prop_map(|(kernel, stride)| LayerSpec::MaxPool { kernel, stride }),
        1 => (1_usize..=3, stride())
            .prop_map(|(kernel, stride)| LayerSpec::AvgPool { kernel, stride }),
        1 => (1_usize..=7).prop_map(|side| LayerSpec::AdaptivePool { side }),
        1 => (0_u8..3, 1_usize..=40)
            .prop_map(|(mode, side)| LayerSpec::Interpolate { mode, side }),
        2 => Just(LayerSpec::BatchNorm),
        1 => (1_usize..=8).prop_map(|groups| LayerSpec::GroupNorm { groups }),
        1 => Just(LayerSpec::InstanceNorm),
        3 => any_layer(),
    ]
}

fn sequence_layer() -> impl Strategy<Value = LayerSpec> {
    let features = || 1_usize..=64;
    let heads = || 1_usize..=8;
    prop_oneof![
        3 => features().prop_map(|features| LayerSpec::Linear { features }),
        1 => (features(), select(vec![1_usize, 3, 5]), 1_usize..=2).prop_map(
            |(features, kernel, stride)| LayerSpec::Conv1d {
                features,
                kernel,
                stride,
            }
        ),
        1 => Just(LayerSpec::LayerNorm),
        1 => Just(LayerSpec::RmsNorm),
        2 => (heads(), any::<bool>())
            .prop_map(|(heads, causal)| LayerSpec::Attention { heads, causal }),
        1 => (heads(), features(), any::<bool>()).prop_map(|(heads, features, norm_first)| {
            LayerSpec::Encoder {
                heads,
                features,
                norm_first,
            }
        }),
        1 => (features(), any::<bool>())
            .prop_map(|(features, both)| LayerSpec::Lstm { features, both }),
        1 => (features(), any::<bool>())
            .prop_map(|(features, both)| LayerSpec::Gru { features, both }),
        3 => any_layer(),
    ]
}
