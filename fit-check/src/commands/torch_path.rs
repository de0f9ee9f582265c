//! A `config.json` in PyTorch (`--framework pytorch`): the person's own transformers builds its network, and a training step
//! that fit-check carries trains it under the recorder.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::time::Duration;

use estimator::{DeviceSpec, Runtime};
use model_zoo::{ConfigModel, Input, Model, Precision};
use serde_json::Value;
use strum::VariantNames;
use torch_memory::allocator::AllocatorConfig;
use torch_memory::stream::Recording;

use crate::cli;
use crate::exit_status::{DOES_NOT_FIT, FITS};
use crate::interrupt;
use crate::job_info::SCHEMA;
use crate::model_source::{self, Configuration};
use crate::output;
use crate::output::torch::WithModules;
use crate::progress::Progress;
use crate::resolve::Card;
use crate::torch_program::alternatives::Alternative;
use crate::torch_program::batches::{TorchBatchReport, largest_batches};
use crate::torch_program::job::TorchJob;
use crate::torch_program::placeholder::BATCH;
use crate::torch_program::plot::{layer_names, plot};
use crate::torch_program::report::{ProcessReport, Torch, allocator_config, approximations};
use crate::torch_program::silent::{Followed, Script, Silent};
use crate::torch_program::{TorchReport, python};
use crate::user_error::{UserError, either};
use crate::user_program::GRACE;
use crate::values;

/// The training step.
const SCRIPT: &str = include_str!("../torch_program/training_step.py");

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

/// How long one recording may take.
const TIMEOUT: Duration = Duration::from_secs(600);

/// The longest sequence of the default: as for burn (`model-zoo/src/from_config`).
const USUAL_TOKENS: usize = 2048;

/// The training step of a `config.json`.
pub(super) struct Configured {
    job: TorchJob,
    /// The default batch.
    batch: u64,
    /// Python and the arguments of the script, with a place for the batch.
    command: Vec<OsString>,
    /// What the script reads.
    _configuration: Configuration,
}

impl Configured {
    /// The step of the network that `model` names: a path, or a name on the Hugging Face Hub, which `offline` keeps from being asked.
    ///
    /// # Errors
    ///
    /// There is no configuration, no Python, or an option has no such value.
    pub(super) fn new(
        model: &str,
        offline: bool,
        precision: &str,
        options: &cli::Options,
        torch: &cli::TorchOptions,
    ) -> Result<Self, UserError> {
        let configuration = model_source::configuration(model, offline)?;
        let Configuration {
            name, path, text, ..
        } = &configuration;
        let config: Value = serde_json::from_str(text)
            .map_err(|error| UserError::new(format!("{}: {error}", path.display())))?;
        let in_burn = ConfigModel::read(name, text).ok();
        let (batch, usual) = defaults(in_burn.as_ref(), &config);
        let input = input(options, usual)?;
        let known: Precision = values::choice("--precision", precision, Precision::VARIANTS)?;
        let optimizer = options.optimizer.as_deref().unwrap_or("adamw");
        let optimizer = optimizer.to_lowercase();
        if !OPTIMIZERS.contains(&optimizer.as_str()) {
            return Err(UserError::invalid_value("--optimizer", &optimizer).hint(format!(
                "with --framework pytorch it is {}; `fit-check run --gpu CARD -- python train.py` follows any",
                either(&OPTIMIZERS)
            )));
        }
        if options.lora.is_some() && options.lora_base != "dense" {
            return Err(
                UserError::new("--lora-base is not followed with --framework pytorch").hint(
                    "`fit-check run --gpu CARD -- python train.py` follows a program that loads 4 or 8 bits",
                ),
            );
        }
        let count = |option, text: &Option<String>| {
            let count = values::optional_count(option, text.as_deref())?;
            Ok::<_, UserError>(count.map(|count| count as u64))
        };
        let job = TorchJob {
            model: name.clone(),
            batch: None,
            input,
            precision: known.to_string(),
            optimizer,
            accumulate: count("--accumulate", &options.accumulate)?.filter(|count| *count > 1),
            checkpointing: options.checkpointing,
            freeze: options.freeze.clone(),
            lora: count("--lora", &options.lora)?,
            lora_targets: options.lora_targets.clone(),
            attention: torch.attention.clone(),
            note: in_burn
                .and_then(|network| network.absent())
                .or_else(|| dtype_note(&config, known)),
        };
        let python = python::find(torch.python.as_deref())?;
        let mut command = vec![python.into_os_string(), path.into()];
        command.extend(arguments(&job).into_iter().map(OsString::from));
        Ok(Self {
            job,
            batch,
            command,
            _configuration: configuration,
        })
    }

    fn program(&self) -> Silent<'_> {
        self.program_of(&self.command)
    }

    /// The step, as `command` starts it.
    fn program_of<'a>(&'a self, command: &'a [OsString]) -> Silent<'a> {
        Silent {
            command,
            script: Some(Script {
                text: SCRIPT,
                about: &self.job.model,
            }),
            steps: None,
            allow_writes: false,
            timeout: TIMEOUT,
        }
    }

    /// What the step needs on `card` with checkpointing; none if that was asked for, or if the network does not have it.
    fn with_checkpointing(
        &self,
        card: &Card,
        batch: u64,
        config: &AllocatorConfig,
    ) -> Option<Alternative> {
        if self.job.checkpointing {
            return None;
        }
        let command = [self.command.as_slice(), &["--checkpointing".into()]].concat();
        let recording = self.program_of(&command).record(card, batch).ok()?;
        Some(Alternative::of(
            "--checkpointing".into(),
            &recording.trace,
            config,
            card,
        ))
    }

    /// The largest batch on each of `cards`.
    ///
    /// # Errors
    ///
    /// The step cannot be recorded.
    pub(super) fn largest_batches(
        &self,
        cards: &[Card],
        advise: cli::Advise,
        progress: &Progress,
    ) -> Result<TorchBatchReport, UserError> {
        let mut program = Followed {
            program: self.program(),
            progress,
        };
        let job = self.job.clone();
        largest_batches(job.model.clone(), Some(job), cards, advise, &mut program)
    }

    /// The step, as a row of a table names it.
    pub(super) fn job(&self) -> &TorchJob {
        &self.job
    }
}

/// The arguments of the script for `job`, but for the configuration.
fn arguments(job: &TorchJob) -> Vec<String> {
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
    option("--precision", Some(job.precision.clone()));
    option("--optimizer", Some(job.optimizer.clone()));
    option(
        "--accumulate",
        job.accumulate.map(|count| count.to_string()),
    );
    option("--attention", job.attention.clone());
    option("--lora", job.lora.map(|rank| rank.to_string()));
    option("--lora-targets", job.lora_targets.clone());
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
    let image = number(&["image_size"]).filter(|_| text.get("vocab_size").is_none());
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
        ("--classes", typed.classes.is_some()),
        ("--vocab", typed.vocab.is_some()),
        ("--seq", typed.seq.is_some() && usual.seq.is_none()),
        ("--image", typed.image.is_some() && usual.image.is_none()),
    ];
    if let Some((option, _)) = refused.into_iter().find(|(_, refused)| *refused) {
        return Err(UserError::new(format!(
            "{option} is not followed with --framework pytorch for this network"
        ))
        .hint("config.json has the sizes of the network; --seq is for texts, --image for images"));
    }
    Ok(Input {
        seq: typed.seq.or(usual.seq),
        image: typed.image.or(usual.image),
        ..Input::default()
    })
}

/// That the file names another number format than the one in which the weights are trained.
fn dtype_note(config: &Value, precision: Precision) -> Option<String> {
    let dtype = config.get("dtype").or_else(|| config.get("torch_dtype"))?;
    let option = match dtype.as_str()? {
        "bfloat16" => "bf16",
        "float16" => "fp16",
        _ => return None,
    };
    (precision == Precision::Fp32).then(|| {
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

/// The answer of `estimate`.
pub(super) fn estimate(raw: &cli::Estimate) -> anyhow::Result<u8> {
    output::check(&raw.output)?;
    raw.plots.check(&raw.output)?;
    let step = &raw.job.step;
    let mut asked = Configured::new(
        &raw.job.model,
        raw.job.hub.offline,
        &step.precision,
        &step.options,
        &raw.job.torch,
    )?;
    let batch = batch(raw.batch.as_deref(), raw.tokens.as_deref(), &asked.job)?;
    let batch = batch.unwrap_or(asked.batch);
    asked.job.batch = Some(batch);
    let named = &raw.job.cards;
    let cards = super::run::cards(&named.gpu, named.memory.as_deref())?;
    interrupt::watch(GRACE)?;
    let recordings = record(&asked, &cards, batch, raw.output.quiet)?;
    let first_card = cards.first();
    let of = |card: &Card| &recordings[&card.device.card.compute_capability];
    let first = of(first_card.unwrap_or(&unlimited()));
    let torch = Torch::of(&first.process);
    torch.check(&cards)?;
    let config = allocator_config(&first.process)?;
    let process = ProcessReport::new(first, first_card, &config, raw.advise);
    let others = cards.iter().skip(1);
    let mut process = others.fold(process, |process, card| {
        process.on(of(card), card, &config, raw.advise)
    });
    // Where advice is given, this is the change that helps most of all that cost no other card.
    if let Some(card) = first_card.filter(|_| !process.alternatives.is_empty()) {
        let with = asked.with_checkpointing(card, batch, &config);
        process.alternatives.splice(0..0, with);
    }
    interrupt::disarm();
    let report = TorchReport {
        schema: SCHEMA,
        program: asked.job.model.clone(),
        job: Some(asked.job),
        recorded_on: None,
        torch,
        steps: first.steps,
        processes: vec![process],
        approximations: approximations(first),
        information: first.information.clone(),
    };
    match raw.layers {
        true => output::write(&WithModules(&report), &raw.output)?,
        false => output::write(&report, &raw.output)?,
    }
    if raw.plots.any() {
        let names = layer_names(&first.trace);
        let process = &report.processes[0];
        raw.plots
            .write(&plot(&report, process, &first.trace, &config, &names))?;
    }
    Ok(if report.fits() { FITS } else { DOES_NOT_FIT })
}

/// What the step does on each generation of `cards`, by compute capability: kernels, and with them what they allocate,
/// depend on it.
fn record(
    asked: &Configured,
    cards: &[Card],
    batch: u64,
    quiet: bool,
) -> Result<BTreeMap<u32, Recording>, UserError> {
    let unlimited = [unlimited()];
    let cards = if cards.is_empty() { &unlimited } else { cards };
    let mut generations = BTreeMap::new();
    for card in cards {
        // The program is told how much memory the card has, and most is the least in its way.
        let most = generations
            .entry(card.device.card.compute_capability)
            .or_insert(card);
        if card.usable() > most.usable() {
            *most = card;
        }
    }
    let progress = Progress::new(quiet, generations.len() as u64);
    let recordings = generations.into_iter().map(|(capability, card)| {
        progress.at(&format!(
            "training {} on a card that does not exist",
            asked.job.model
        ));
        Ok((capability, asked.program().record(card, batch)?))
    });
    let recordings = recordings.collect();
    progress.done();
    recordings
}

/// The batch that was typed, in samples or in tokens.
///
/// # Errors
///
/// It is no number, both were typed, or a sample has no tokens.
pub(super) fn batch(
    samples: Option<&str>,
    tokens: Option<&str>,
    job: &TorchJob,
) -> Result<Option<u64>, UserError> {
    let samples = values::optional_count("--batch", samples)?;
    let Some(tokens) = values::optional_count("--tokens", tokens)? else {
        return Ok(samples.map(|samples| samples as u64));
    };
    if samples.is_some() {
        return Err(
            UserError::new("--batch and --tokens exclude each other").hint(
                "--batch counts samples; --tokens N is as many samples as have at most N tokens",
            ),
        );
    }
    match job.input.tokens() {
        None => Err(
            UserError::new(format!("samples of {} have no tokens", job.model))
                .hint("--batch N says how many samples"),
        ),
        Some(each) if each > tokens => Err(UserError::new(format!(
            "one sample of {} has {each} tokens",
            job.model
        ))
        .hint(format!("--tokens is at least {each}"))),
        Some(each) => Ok(Some((tokens / each) as u64)),
    }
}

/// The answer of `max-batch`.
pub(super) fn max_batch(raw: &cli::MaxBatch) -> anyhow::Result<u8> {
    output::check(&raw.output)?;
    let named = &raw.job.cards;
    let cards = super::run::cards(&named.gpu, named.memory.as_deref())?;
    if cards.is_empty() {
        return Err(UserError::no_card("max-batch needs a card").into());
    }
    let step = &raw.job.step;
    let asked = Configured::new(
        &raw.job.model,
        raw.job.hub.offline,
        &step.precision,
        &step.options,
        &raw.job.torch,
    )?;
    interrupt::watch(GRACE)?;
    let progress = Progress::new(raw.output.quiet, 2 + 2 * cards.len() as u64);
    let report = asked.largest_batches(&cards, raw.advise, &progress)?;
    progress.done();
    interrupt::disarm();
    report.torch.check(&cards)?;
    output::write(&report, &raw.output)?;
    Ok(match report.cards.iter().all(|card| card.max_batch > 0) {
        true => FITS,
        false => DOES_NOT_FIT,
    })
}
