//! The answer about a PyTorch program, from what the recorder saw.

use std::collections::BTreeMap;

use estimator::{Breakdown, Bytes, CardSpec, LayerMemory, Overhead, Phase, PhaseMemory};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use torch_memory::allocator::AllocatorConfig;
use torch_memory::analysis::Analysis;
use torch_memory::replay::{Refused, Replay, least_capacity};
use torch_memory::stream::{self, Process, Recording};
use torch_memory::trace::{self, Approximation, Trace};

use super::alternatives::{Alternative, alternatives};
use super::job::TorchJob;
use crate::cli::Advise;
use crate::job_info::{GpuName, SCHEMA};
use crate::report::Verdict;
use crate::resolve::Card;
use crate::user_error::UserError;

/// The answer of `run` about a PyTorch program.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct TorchReport {
    /// Version of this interface.
    pub schema: u32,
    /// The program and its arguments, or the name of a network.
    pub program: String,
    /// The training step, if the options of the command say all of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job: Option<TorchJob>,
    /// The card with whose kernels the step was recorded beforehand; none if it was recorded now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recorded_on: Option<String>,
    /// The batches at which it was recorded beforehand; the one after each was recorded too.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub recorded_batches: Vec<u64>,
    /// The versions that decide the answer.
    pub torch: Torch,
    /// Optimizer steps that were recorded.
    pub steps: usize,
    /// One entry for each process that used the GPU, by rank.
    pub processes: Vec<ProcessReport>,
    /// What was not followed exactly, the largest first.
    pub approximations: Vec<Approximation>,
    /// What the recorder found out about the program: the class of its optimizer, for instance.
    pub information: BTreeMap<String, Value>,
}

/// PyTorch and what belongs to it.
#[derive(Clone, Debug, Default, JsonSchema, Serialize)]
pub struct Torch {
    /// PyTorch's version.
    pub version: String,
    /// The version of CUDA that it was built for; none for a build without CUDA.
    pub cuda: Option<String>,
    /// Python's version.
    pub python: String,
    /// The versions of the packages that the program imported.
    pub packages: BTreeMap<String, String>,
    /// The configuration of its allocator; empty for the default.
    pub allocator_conf: String,
}

/// The most memory that a process had.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct TorchPeak {
    /// `torch.cuda.max_memory_allocated()`.
    pub allocated_bytes: Bytes,
    /// `torch.cuda.max_memory_reserved()` on a card with enough memory.
    pub reserved_bytes: Bytes,
    /// The least memory with which the steps complete.
    pub required_bytes: Bytes,
    /// The most that `nvidia-smi` would show: `reserved_bytes`, up to what the card has for them, and the memory that a process
    /// takes beside PyTorch's allocator.
    pub device_bytes: Bytes,
    /// The phase in which the most memory is allocated; none if the program tells none.
    pub phase: Option<Phase>,
    /// Optimizer steps before it.
    pub step: usize,
    /// The module that allocates then.
    pub module: Option<String>,
    /// The operator that allocates then.
    pub operator: Option<String>,
}

/// One process.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct ProcessReport {
    /// Its rank.
    pub rank: u32,
    /// Whether it fits on its card; none if no card was named.
    #[serde(flatten)]
    pub verdict: Option<Verdict>,
    /// The verdicts on all cards, if several were named for this one process.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cards: Vec<Verdict>,
    /// The memory that the process takes beside PyTorch's allocator.
    pub overhead_bytes: Bytes,
    /// The most memory that it had.
    pub peak: TorchPeak,
    /// What is allocated at the peak, by category; none if the program tells no phases.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at_peak: Option<Breakdown>,
    /// The phases of the last step.
    pub phases: Vec<PhaseMemory>,
    /// The modules, in the order in which they first allocate.
    pub layers: Vec<LayerMemory>,
    /// The error that PyTorch would raise; none if it fits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub out_of_memory: Option<String>,
    /// What would make it fit, or the cards that are enough; empty if it fits, unless they were asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub alternatives: Vec<Alternative>,
}

impl TorchReport {
    /// The report on `recordings` of `program`, each on the card with the index of its device.
    ///
    /// # Errors
    ///
    /// A process uses several cards, or one that is not there; the allocator's configuration is not PyTorch's.
    pub fn new(
        program: String,
        recordings: &[Recording],
        cards: &[Card],
        advise: Advise,
    ) -> Result<Self, UserError> {
        let processes = recordings.iter().map(|recording| {
            let card = card_of(recording, cards)?;
            let config = allocator_config(&recording.process)?;
            Ok(ProcessReport::new(recording, Some(card), &config, advise))
        });
        let processes = processes.collect::<Result<_, UserError>>()?;
        let first = recordings.first();
        Ok(Self {
            schema: SCHEMA,
            program,
            job: None,
            recorded_on: None,
            recorded_batches: Vec::new(),
            torch: first
                .map(|first| Torch::of(&first.process))
                .unwrap_or_default(),
            steps: recordings
                .iter()
                .map(|recording| recording.steps)
                .max()
                .unwrap_or_default(),
            processes,
            approximations: first
                .map(|first| first.approximations.clone())
                .into_iter()
                .flatten()
                .chain(one_step(recordings))
                .collect(),
            information: first
                .map(|first| first.information.clone())
                .unwrap_or_default(),
        })
    }

    /// Whether every process fits.
    pub fn fits(&self) -> bool {
        let mut verdicts = self.processes.iter().flat_map(ProcessReport::verdicts);
        verdicts.all(|verdict| verdict.fits)
    }

    /// The process that needs the most memory.
    pub fn largest(&self) -> Option<&ProcessReport> {
        let processes = self.processes.iter().rev();
        processes.max_by_key(|process| process.peak.required_bytes)
    }
}

impl Torch {
    /// The versions of `process`.
    pub fn of(process: &Process) -> Self {
        Self {
            version: process.torch.clone(),
            cuda: process.cuda.clone(),
            python: process.python.clone(),
            packages: process.packages.clone(),
            allocator_conf: conf(process).to_string(),
        }
    }
}

fn conf(process: &Process) -> &str {
    let conf = process.settings.get("allocator_conf");
    conf.and_then(Value::as_str).unwrap_or_default()
}

/// The configuration of the allocator of `process`.
///
/// # Errors
///
/// PyTorch would refuse it, or another allocator takes its place.
pub fn allocator_config(process: &Process) -> Result<AllocatorConfig, UserError> {
    parsed_config(conf(process))
}

/// The configuration that PyTorch's variable describes with this text.
///
/// # Errors
///
/// PyTorch would refuse it, or another allocator takes its place.
pub fn parsed_config(text: &str) -> Result<AllocatorConfig, UserError> {
    text.parse().map_err(|error| {
        UserError::new(format!("{}={text}: {error}", AllocatorConfig::VARIABLES[0]))
            .hint("unset it, or write it as PyTorch's page \"CUDA semantics\" says")
    })
}

/// The card of the device that `recording` used.
///
/// # Errors
///
/// It used several, or one that is not there.
pub fn card_of<'a>(recording: &Recording, cards: &'a [Card]) -> Result<&'a Card, UserError> {
    let mut devices = recording.devices.iter();
    let device = devices.next().copied().unwrap_or(0);
    if let Some(second) = devices.next() {
        return Err(UserError::new(format!(
            "one process of the program uses cuda:{device} and cuda:{second}"
        ))
        .hint("memory is followed for one GPU of a process; start one process for each GPU, as torchrun does"));
    }
    cards.get(device as usize).ok_or_else(|| {
        UserError::new(format!(
            "the program uses cuda:{device}, and {} named",
            count(cards.len())
        ))
        .hint("name a card for each GPU: repeat --gpu")
    })
}

fn count(cards: usize) -> String {
    match cards {
        1 => "one card is".into(),
        cards => format!("{cards} cards are"),
    }
}

/// That a program ended after one step: its optimizer's state is there only from the second on.
fn one_step(recordings: &[Recording]) -> Option<Approximation> {
    let mut recordings = recordings.iter();
    let one = recordings
        .any(|recording| recording.steps == 1 && recording.ended == Some(stream::Ended::Exit));
    one.then(|| Approximation {
        kind: "one optimizer step".into(),
        text: "later steps also hold the optimizer's state in forward and backward".into(),
        bytes: Bytes::ZERO,
        count: 1,
    })
}

impl ProcessReport {
    /// The report on `recording`, on `card` if there is one.
    pub fn new(
        recording: &Recording,
        card: Option<&Card>,
        config: &AllocatorConfig,
        advise: Advise,
    ) -> Self {
        let trace = &recording.trace;
        let unlimited = Replay::of(trace, config, u64::MAX);
        let analysis = Analysis::new(trace, &unlimited);
        let required = Bytes(least_capacity(trace, config));
        let overhead = overhead(card);
        let tells_phases = !trace.phases.is_empty();
        let last_step = analysis.last_step().iter();
        let report = Self {
            rank: recording.process.rank,
            verdict: None,
            cards: Vec::new(),
            overhead_bytes: overhead,
            peak: TorchPeak {
                allocated_bytes: Bytes(unlimited.max_allocated_bytes),
                reserved_bytes: Bytes(unlimited.max_reserved_bytes),
                required_bytes: required,
                device_bytes: shown(trace, config, card, unlimited.max_reserved_bytes),
                ..TorchPeak::at(trace, unlimited.peak)
            },
            at_peak: tells_phases.then(|| analysis.at_peak()),
            phases: last_step.map(|phase| phase.memory).collect(),
            layers: analysis.modules(),
            alternatives: Vec::new(),
            out_of_memory: None,
        };
        match card {
            Some(card) => report.on(recording, card, config, advise),
            None => report,
        }
    }

    /// The report with a verdict on one more card: `recording` is what the process does on it.
    pub fn on(
        mut self,
        recording: &Recording,
        card: &Card,
        config: &AllocatorConfig,
        advise: Advise,
    ) -> Self {
        let trace = &recording.trace;
        let required = Bytes(least_capacity(trace, config));
        let refused = Replay::of(trace, config, card.available().0).refused;
        let verdict = verdict(card, required, trace, refused.as_ref());
        let advises = match advise {
            Advise::Always => true,
            Advise::Auto => refused.is_some(),
            Advise::Never => false,
        };
        if advises && self.alternatives.is_empty() {
            let torch = Torch::of(&recording.process);
            self.alternatives = alternatives(trace, config, &torch, card);
        }
        if let Some(refused) = refused.filter(|_| self.out_of_memory.is_none()) {
            let device = recording.devices.first().copied().unwrap_or(0);
            let (total, overhead) = (card.usable().0, card.device.card.overhead.0);
            self.out_of_memory = Some(refused.refusal.message(device, total, overhead));
        }
        match &self.verdict {
            None => self.verdict = Some(verdict),
            Some(first) => {
                if self.cards.is_empty() {
                    self.cards.push(first.clone());
                }
                self.cards.push(verdict);
            }
        }
        self
    }

    /// The verdicts, card by card.
    pub fn verdicts(&self) -> &[Verdict] {
        match self.cards.is_empty() {
            true => self.verdict.as_slice(),
            false => &self.cards,
        }
    }
}

/// The memory that a process takes beside PyTorch's allocator: the line through what PyTorch's errors told of 26 cards
/// (`Overhead`), or what the user typed. Without a card, that of a card like those that most people have.
fn overhead(card: Option<&Card>) -> Bytes {
    match card {
        Some(card) => card.device.card.overhead,
        None => Overhead::of(CardSpec::unlimited().multiprocessors).cautious_bytes,
    }
}

/// The most that `nvidia-smi` would show of a process that made `trace` on `card`; it reserves `unlimited` bytes where there is
/// room for them.
pub fn shown(
    trace: &Trace,
    config: &AllocatorConfig,
    card: Option<&Card>,
    unlimited: u64,
) -> Bytes {
    let overhead = overhead(card);
    let Some(card) = card else {
        return Bytes(unlimited) + overhead;
    };
    let available = card.available().0;
    let replay = Replay::of(trace, config, available);
    let reserved = match replay.refused {
        None => replay.max_reserved_bytes,
        Some(_) => unlimited.min(available),
    };
    Bytes(reserved) + overhead
}

impl TorchPeak {
    /// What happens at the event at `position`, without any figure.
    fn at(trace: &Trace, position: usize) -> Self {
        let block = match trace.events.get(position) {
            Some(trace::Event::Allocate(block)) => Some(*block),
            _ => None,
        };
        let phase = block.and_then(|_| trace.phase_at(position));
        let text = |text: Option<&str>| text.filter(|text| !text.is_empty()).map(str::to_string);
        Self {
            allocated_bytes: Bytes::ZERO,
            reserved_bytes: Bytes::ZERO,
            required_bytes: Bytes::ZERO,
            device_bytes: Bytes::ZERO,
            phase: phase.map(|phase| phase.phase),
            step: phase.map_or(0, |phase| phase.step),
            module: text(block.and_then(|block| trace.module_path(block))),
            operator: text(block.and_then(|block| trace.operator(block))),
        }
    }

    /// `in the backward phase`, `at layer1.0`, `for aten::convolution_backward`: as far as it is known.
    pub fn words(&self) -> Vec<String> {
        let phase = self.phase.map(|phase| format!("in the {phase} phase"));
        let module = self.module.as_ref().map(|module| format!("at {module}"));
        let operator = self.operator.as_ref();
        let operator = operator.map(|operator| format!("for {operator}"));
        [phase, module, operator].into_iter().flatten().collect()
    }
}

/// The verdict on `card`, which refused an allocation or did not.
pub fn verdict(card: &Card, required: Bytes, trace: &Trace, refused: Option<&Refused>) -> Verdict {
    Verdict {
        gpu: GpuName::new(card),
        fits: refused.is_none(),
        required_bytes: required,
        headroom_bytes: card.available().signed_difference(required),
        reason: refused.map(|refused| reason(trace, refused)),
    }
}

/// `an allocation of 2.00 MiB in the backward phase, at fc, for aten::mm, with 1.00 GiB allocated and 1.20 GiB reserved`
pub fn reason(trace: &Trace, refused: &Refused) -> String {
    let bytes = Bytes(trace.block(refused.block).bytes);
    let allocated = Bytes(refused.refusal.allocated_bytes);
    let reserved = Bytes(refused.refusal.reserved_bytes);
    let words = TorchPeak::at(trace, refused.position).words();
    let moment = match words.is_empty() {
        true => String::new(),
        false => format!(" {},", words.join(", ")),
    };
    format!("an allocation of {bytes}{moment} with {allocated} allocated and {reserved} reserved")
}
