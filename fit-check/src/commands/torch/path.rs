//! A `config.json` in PyTorch (`--framework pytorch`), or a network of the zoo with other options than it was recorded with: a public
//! package in the person's own Python builds it, and a training step that fit-check carries trains it under the recorder.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::rc::Rc;

use estimator::{DeviceSpec, Runtime};
use model_zoo::{BaseFormat, ConfigModel, Input, Model, Precision, Variant};
use serde_json::Value;
use strum::VariantNames;
use torch_memory::stream::Recording;

use super::Typed;
use crate::cli::{self, Advise};
use crate::model_source::{self, Configuration};
use crate::progress::Progress;
use crate::resolve::Card;
use crate::torch_program::alternatives::Alternative;
use crate::torch_program::batches::{
    Followed, Found, Record, kernels_of, largest_batches, recordings,
};
use crate::torch_program::job::TorchJob;
use crate::torch_program::placeholder::{self, BATCH};
use crate::torch_program::python;
use crate::torch_program::report::allocator_config;
use crate::torch_program::source::{Source, Step};
use crate::torch_program::training_step::TrainingStep;
use crate::user_error::{UserError, either};
use crate::values;

/// The optimizers that it knows.
const OPTIMIZERS: [&str; 9] = [
    "sgd",
    "momentum",
    "adam",
    "adamw",
    "rmsprop",
    "adagrad",
    "adafactor",
    "adamw8bit",
    "pagedadamw8bit",
];

/// The longest sequence of the default: as for burn (`model-zoo/src/from_config`).
const USUAL_TOKENS: usize = 2048;

/// The training step of a network that a public package builds.
pub(super) struct Configured<'a> {
    job: TorchJob,
    /// The default batch.
    batch: u64,
    /// The Python that trains it.
    python: PathBuf,
    /// The arguments of the training step, with a place for the batch.
    arguments: Vec<OsString>,
    /// What records it.
    training: &'a TrainingStep,
    /// Whether no progress is shown.
    quiet: bool,
    /// What the script reads.
    _configuration: Configuration,
}

/// What the options do not say of a step.
struct Usual {
    batch: u64,
    input: Input,
    optimizer: String,
    note: Option<String>,
}

impl<'a> Configured<'a> {
    /// The step of the network that `model` names: a path, or a name on the Hugging Face Hub. It is trained as `typed`.
    ///
    /// # Errors
    ///
    /// There is no configuration, no Python, or an option has no such value.
    pub(super) fn of_path(model: &str, typed: &Typed<'a>) -> Result<Self, UserError> {
        let configuration = model_source::configuration(model, typed.offline)?;
        let Configuration {
            name, path, text, ..
        } = &configuration;
        let config: Value = serde_json::from_str(text)
            .map_err(|error| UserError::new(format!("{}: {error}", path.display())))?;
        let in_burn = ConfigModel::read(name, text).ok();
        let (batch, input) = defaults(in_burn.as_ref(), &config);
        let note = in_burn.and_then(|network| network.absent());
        let usual = Usual {
            batch,
            input,
            optimizer: "adamw".into(),
            note: note.or_else(|| dtype_note(&config, typed.precision)),
        };
        Self::new(configuration, usual, typed)
    }

    /// The step of the network `variant` of the zoo, with this `definition` of a public package. It is trained as `typed`.
    ///
    /// # Errors
    ///
    /// There is no Python, or an option has no such value.
    pub(super) fn of_zoo(
        variant: &Variant,
        definition: String,
        typed: &Typed<'a>,
    ) -> Result<Self, UserError> {
        let Input {
            image,
            seq,
            classes,
            ..
        } = variant.input;
        let usual = Usual {
            batch: variant.batch as u64,
            input: Input {
                image,
                seq,
                classes,
                ..Input::default()
            },
            optimizer: variant.optimizer.to_string(),
            note: None,
        };
        Self::new(
            model_source::written(variant.name, definition)?,
            usual,
            typed,
        )
    }

    /// The step of a network, trained as `typed`, or as is `usual`.
    fn new(
        configuration: Configuration,
        usual: Usual,
        typed: &Typed<'a>,
    ) -> Result<Self, UserError> {
        let Typed { options, torch, .. } = *typed;
        let input = input(options, usual.input)?;
        let precision: Precision =
            values::choice("--precision", typed.precision, Precision::VARIANTS)?;
        let optimizer = options.optimizer.clone().unwrap_or(usual.optimizer);
        let optimizer = optimizer.to_lowercase();
        if !OPTIMIZERS.contains(&optimizer.as_str()) {
            return Err(UserError::invalid_value("--optimizer", &optimizer).hint(format!(
                "with --framework pytorch it is {}; `fit-check run --gpu CARD -- python train.py` follows any",
                either(&OPTIMIZERS)
            )));
        }
        let base: BaseFormat =
            values::choice("--lora-base", &options.lora_base, BaseFormat::VARIANTS)?;
        if base == BaseFormat::Bits8 {
            return Err(UserError::new(
                "--lora-base 8bit is not followed with --framework pytorch",
            )
            .hint("--lora-base 4bit is: nf4 by bitsandbytes, as QLoRA has it"));
        }
        let count = |option, text: &Option<String>| {
            let count = values::optional_count(option, text.as_deref())?;
            Ok::<_, UserError>(count.map(|count| count as u64))
        };
        let job = TorchJob {
            model: configuration.name.clone(),
            batch: None,
            input,
            precision: precision.to_string(),
            optimizer,
            accumulate: count("--accumulate", &options.accumulate)?.filter(|count| *count > 1),
            checkpointing: options.checkpointing,
            freeze: options.freeze.clone(),
            lora: count("--lora", &options.lora)?,
            lora_targets: options.lora_targets.clone(),
            lora_base: (base != BaseFormat::Dense).then(|| base.to_string()),
            attention: torch.attention.clone(),
            note: usual.note,
        };
        let mut arguments: Vec<OsString> = vec![configuration.path.clone().into()];
        arguments.extend(words(&job).into_iter().map(OsString::from));
        Ok(Self {
            job,
            batch: usual.batch,
            python: python::find(torch.python.as_deref())?,
            arguments,
            training: typed.training,
            quiet: typed.quiet,
            _configuration: configuration,
        })
    }

    /// What it does with `batch` on `card`, and with these arguments `more`.
    fn with(&self, card: &Card, batch: u64, more: &[&str]) -> Result<Recording, UserError> {
        let mut arguments = placeholder::with_batch(&self.arguments, batch);
        arguments.extend(more.iter().map(OsString::from));
        let about = &self.job.model;
        self.training.record(&self.python, about, &arguments, card)
    }
}

impl Record for &Configured<'_> {
    fn record(&mut self, card: &Card, batch: u64) -> Result<Recording, UserError> {
        self.with(card, batch, &[])
    }
}

impl Source for Configured<'_> {
    fn name(&self) -> &str {
        &self.job.model
    }

    fn job(&self, batch: Option<u64>) -> Option<TorchJob> {
        Some(TorchJob {
            batch,
            ..self.job.clone()
        })
    }

    fn usual_batch(&self) -> Result<u64, UserError> {
        Ok(self.batch)
    }

    /// The step on each generation of cards is recorded: kernels, and with them what they allocate, depend on it.
    fn steps(&self, batch: u64, cards: &[Card]) -> Result<Vec<Rc<Step>>, UserError> {
        let unlimited = [unlimited()];
        let cards = if cards.is_empty() { &unlimited } else { cards };
        let generation = |card: &Card| card.device.card.compute_capability;
        let mut largest = BTreeMap::new();
        for card in cards {
            // The program is told how much memory the card has, and most is the least in its way.
            let most = largest.entry(generation(card)).or_insert(card);
            if card.usable() > most.usable() {
                *most = card;
            }
        }
        let progress = Progress::new(self.quiet, largest.len() as u64);
        let recorded = largest.into_iter().map(|(generation, card)| {
            progress.at(&format!(
                "training {} on a card that does not exist",
                self.job.model
            ));
            let recording = self.with(card, batch, &[])?;
            let config = allocator_config(&recording.process)?;
            let recorded_on = kernels_of(card);
            let step = Step::recorded(recording, recorded_on, config);
            Ok((generation, Rc::new(step)))
        });
        let recorded: BTreeMap<_, _> = recorded.collect::<Result<_, UserError>>()?;
        progress.done();
        let of_card = |card| recorded[&generation(card)].clone();
        Ok(cards.iter().map(of_card).collect())
    }

    fn is_kept(&self) -> bool {
        false
    }

    /// With checkpointing and with frozen weights in 4 bits, if they were not asked for and the network has them; with both, if one is
    /// not enough.
    fn with_changes(&self, batch: u64, card: &Card) -> Vec<Alternative> {
        const CHECKPOINTING: &str = "--checkpointing";
        const IN_4_BITS: &str = "--lora-base=4bit";
        let mut single = Vec::new();
        if !self.job.checkpointing {
            single.push(CHECKPOINTING);
        }
        if self.job.lora.is_some() && self.job.lora_base.is_none() {
            single.push(IN_4_BITS);
        }
        let with = |change: &[&str]| {
            let recording = self.with(card, batch, change).ok()?;
            let config = allocator_config(&recording.process).ok()?;
            let name = change.join(" ").replace('=', " ");
            Some(Alternative::of(name, &recording.trace, &config, card))
        };
        let changes = single.iter().map(std::slice::from_ref);
        let mut found: Vec<_> = changes.filter_map(with).collect();
        if found.len() > 1 && !found.iter().any(|change| change.fits) {
            found.extend(with(&single));
        }
        found
    }

    fn largest_batches(&self, cards: &[Card], advise: Advise) -> Result<Found, UserError> {
        let progress = Progress::new(self.quiet, recordings(cards));
        let mut step = Followed {
            program: self,
            progress: &progress,
        };
        let job = self.job.clone();
        let found = largest_batches(job.model.clone(), Some(job), cards, advise, &mut step)?;
        progress.done();
        Ok(found)
    }
}

/// The arguments of the script for `job`, but for the configuration.
fn words(job: &TorchJob) -> Vec<String> {
    let mut words = vec!["--batch".to_string(), BATCH.into()];
    let mut option = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            words.push(format!("{name}={value}"));
        }
    };
    option("--seq", job.input.seq.map(|seq| seq.to_string()));
    let image = job.input.image;
    option(
        "--image",
        image.map(|[height, width]| format!("{height}x{width}")),
    );
    let classes = job.input.classes;
    option("--classes", classes.map(|classes| classes.to_string()));
    option("--precision", Some(job.precision.clone()));
    option("--optimizer", Some(job.optimizer.clone()));
    option(
        "--accumulate",
        job.accumulate.map(|count| count.to_string()),
    );
    option("--attention", job.attention.clone());
    option("--lora", job.lora.map(|rank| rank.to_string()));
    option("--lora-targets", job.lora_targets.clone());
    option("--lora-base", job.lora_base.clone());
    for prefix in &job.freeze {
        option("--freeze", Some(prefix.clone()));
    }
    if job.checkpointing {
        words.push("--checkpointing".into());
    }
    words
}

/// The default batch and sizes of a sample: those of burn's answer for the same file, where burn has the network.
fn defaults(in_burn: Option<&ConfigModel>, config: &Value) -> (u64, Input) {
    if let Some(known) = in_burn {
        let defaults = known.defaults();
        let Input { image, seq, .. } = defaults.input;
        let input = Input {
            image,
            seq,
            ..Input::default()
        };
        return (defaults.batch as u64, input);
    }
    let text = config.get("text_config").unwrap_or(config);
    let number = |names: &[&str]| {
        let mut found = names.iter().filter_map(|name| text.get(name)?.as_u64());
        found.next().map(|number| number as usize)
    };
    // Of timm: channels, height and width.
    let of_timm = || config.pointer("/pretrained_cfg/input_size/1")?.as_u64();
    let image = number(&["image_size"]).filter(|_| text.get("vocab_size").is_none());
    let image = image.or_else(|| of_timm().map(|side| side as usize));
    let positions = number(&[
        "max_position_embeddings",
        "n_positions",
        "max_target_positions",
    ]);
    let input = match image {
        Some(side) => Input {
            image: Some([side, side]),
            ..Input::default()
        },
        None => Input {
            seq: Some(positions.unwrap_or(USUAL_TOKENS).min(USUAL_TOKENS)),
            ..Input::default()
        },
    };
    (1, input)
}

/// The typed sizes of a sample, and the `usual` ones where none were typed.
fn input(options: &cli::Options, usual: Input) -> Result<Input, UserError> {
    let typed = options.sizes.input()?;
    let refused = [
        ("--src-seq", typed.src_seq.is_some()),
        (
            "--classes",
            typed.classes.is_some() && usual.classes.is_none(),
        ),
        ("--vocab", typed.vocab.is_some()),
        ("--seq", typed.seq.is_some() && usual.seq.is_none()),
        ("--image", typed.image.is_some() && usual.image.is_none()),
    ];
    if let Some((option, _)) = refused.into_iter().find(|(_, refused)| *refused) {
        return Err(UserError::new(format!(
            "{option} is not followed with --framework pytorch for this network"
        ))
        .hint("--seq is for texts, --image for images; other sizes are a part of the network, in its config.json"));
    }
    Ok(Input {
        seq: typed.seq.or(usual.seq),
        image: typed.image.or(usual.image),
        classes: typed.classes.or(usual.classes),
        ..Input::default()
    })
}

/// That the file names another number format than the one in which the weights are trained.
fn dtype_note(config: &Value, precision: &str) -> Option<String> {
    let dtype = config.get("dtype").or_else(|| config.get("torch_dtype"))?;
    let option = match dtype.as_str()? {
        "bfloat16" => "bf16",
        "float16" => "fp16",
        _ => return None,
    };
    (precision == Precision::Fp32.to_string()).then(|| {
        format!(
            "config.json has {}: --precision {option} trains the weights in it",
            dtype.as_str().unwrap_or_default()
        )
    })
}

/// A card without a limit, for an answer without one.
fn unlimited() -> Card {
    Card::sized(DeviceSpec::unlimited(Runtime::Cuda))
}
