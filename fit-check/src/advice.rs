//! Advice: changes to a job that would make it fit, each simulated.
//!
//! The file is long because each kind of change is a method of one `Adviser`.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use estimator::{
    Bytes, Error, Estimate, Gpu, LargestBatch, Proposer, StepRuns, largest_batch, parallel_map,
};
use model_zoo::{
    BaseFormat, Input, InputSize, Job, LoraRequest, Model, OptimizerKind, Precision,
    Rank as GpuRank, Request, Strategy,
};
use schemars::JsonSchema;
use serde::Serialize;

use crate::gpu_search::fitting_gpus;
use crate::input_options::SizeOption;
use crate::job_info::GpuName;
use crate::resolve::{Card, ResolvedRequest};
use crate::several_gpus::{GpuGroup, Nccl};
use crate::step::training_job;

/// Changes to a job that help, the best first.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct Advice {
    /// The card on which the job should fit.
    pub gpu: GpuName,
    /// Whether every change was simulated: false if the time was over, or Ctrl-C came first.
    pub complete: bool,
    /// The changes that help.
    pub changes: Vec<Change>,
}

/// One change that helps.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct Change {
    /// The description for people.
    pub what: String,
    /// The options to type in place of those that were typed.
    pub flags: String,
    /// Samples in the simulated batch.
    pub batch: u64,
    /// The least memory with which the step completes, as `estimate` says; if it does not fit with tuned kernels, with these alone.
    pub required_bytes: Bytes,
    /// Whether the batch fits on the card.
    pub fits: bool,
    #[serde(skip)]
    rank: Rank,
}

/// The order of changes, among those that make the job fit and among those that do not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    /// The result of training stays the same.
    Same,
    /// Training changes.
    Changed,
    /// Only the card changes.
    Card,
}

/// A change to simulate.
#[derive(Clone)]
struct Candidate {
    what: String,
    flags: String,
    job: Job,
    rank: Rank,
}

impl Candidate {
    fn new(what: impl Into<String>, flags: impl Into<String>, job: Job) -> Self {
        Self {
            what: what.into(),
            flags: flags.into(),
            job,
            rank: Rank::Changed,
        }
    }
}

/// How much should fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Goal {
    /// The batch of the job.
    Batch,
    /// As many samples as possible.
    Most,
}

/// The search for a smaller image or sequence goes down by an eighth at a time, to a half, and then by halves.
const EIGHTHS: usize = 8;

/// The most halves after the first.
const HALVES: u32 = 10;

/// How long changes are simulated; one that has begun is not waited for. Chosen.
pub const TIME: Duration = Duration::from_secs(55);

/// A way to make samples smaller.
struct Smaller {
    what: &'static str,
    /// The sizes that it changes.
    sizes: &'static [InputSize],
    /// The input with a part of these sizes: so many of so many; none if it does not have them.
    part: fn(Input, usize, usize) -> Option<Input>,
}

const SMALLER: [Smaller; 2] = [
    Smaller {
        what: "a smaller image",
        sizes: &[InputSize::Image],
        part: smaller_image,
    },
    Smaller {
        what: "shorter sequences",
        sizes: &[InputSize::SrcSeq, InputSize::Seq],
        part: shorter_sequences,
    },
];

fn smaller_image(input: Input, part: usize, of: usize) -> Option<Input> {
    // Networks halve their images several times, so the sides stay multiples of 32.
    let side = |side: usize| match side.is_multiple_of(32) {
        true => (side * part / of).next_multiple_of(32),
        false => side * part / of,
    };
    Some(Input {
        image: Some(input.image?.map(side)),
        ..input
    })
}

fn shorter_sequences(input: Input, part: usize, of: usize) -> Option<Input> {
    let part = |size: usize| size * part / of;
    Some(Input {
        seq: Some(part(input.seq?)),
        src_seq: input.src_seq.map(part),
        ..input
    })
}

/// The largest number of parts into which a batch is divided; the simulation runs each of them.
const MAX_PARTS: u64 = 32;

/// The rank of the proposed adapters: that of the LoRA paper's tables for GPT-2 and of most recipes since (Hu
/// et al. 2021, arXiv 2106.09685).
const RANK: usize = 8;

/// The changes that are known so far, the best first.
#[derive(Debug)]
pub struct Known {
    changes: Mutex<Vec<Change>>,
    until: Instant,
}

impl Default for Known {
    fn default() -> Self {
        Self {
            changes: Mutex::default(),
            until: Instant::now() + TIME,
        }
    }
}

impl Known {
    /// The advice for `card`, from what is known; it is `complete` if every change was simulated.
    pub fn advice(&self, gpu: GpuName, complete: bool) -> Advice {
        let changes = self.changes.lock().unwrap_or_else(PoisonError::into_inner);
        let mut changes = changes.clone();
        changes.sort_by_key(|change| (!change.fits, change.rank, change.required_bytes));
        Advice {
            gpu,
            complete,
            changes,
        }
    }

    /// Whether there is time for another change.
    fn has_time(&self) -> bool {
        Instant::now() < self.until
    }

    fn add(&self, change: Change) {
        let mut changes = self.changes.lock().unwrap_or_else(PoisonError::into_inner);
        changes.push(change);
    }
}

/// Finds changes that would make the job of `request` fit on `card`, and adds each to `known` as soon as it is known to help, and
/// passes it to `found`. `layers` are the paths of its layers with parameters, in the order of first use. Returns whether every
/// change was simulated in time.
///
/// A change that cannot be simulated, or that does not help, is left out.
///
/// # Errors
///
/// The job itself cannot be simulated.
pub fn advise<M: Model + Sync>(
    request: &ResolvedRequest<M>,
    card: &Card,
    layers: &[String],
    goal: Goal,
    known: &Known,
    found: impl Fn(&Change) + Sync,
) -> Result<bool, Error> {
    let adviser = Adviser {
        request,
        card,
        goal,
    };
    let now = adviser.now()?;
    let add = |change: Option<Change>| {
        let helps = |change: &Change| match goal {
            Goal::Batch => change.fits || change.required_bytes < now.required,
            Goal::Most => change.batch > now.batch,
        };
        if let Some(change) = change.filter(helps) {
            found(&change);
            known.add(change);
        }
    };
    // What needs no other training comes first, and what takes long comes last.
    let parts = || adviser.parts(known);
    add(parts());
    let candidates = adviser.candidates(layers);
    parallel_map(&candidates, |candidate| {
        if known.has_time() {
            add(adviser.change(candidate));
        }
    });
    for smaller in &SMALLER {
        add(adviser.smaller(smaller, known));
    }
    if known.has_time() {
        add(adviser.least_card(&now));
    }
    add(adviser.more_gpus(known));
    Ok(known.has_time())
}

/// What the job without any change takes.
struct Now {
    /// The largest batch that fits, if as many samples as possible should fit.
    batch: u64,
    next: u64,
    required: Bytes,
}

/// The paths of the layers with parameters, in the order of first use.
pub fn layers_with_parameters(estimate: &Estimate) -> Vec<String> {
    let layers = estimate.layers.iter();
    let trained = layers.filter(|layer| layer.parameter_bytes > Bytes::ZERO);
    trained.map(|layer| layer.path.clone()).collect()
}

struct Adviser<'a, M> {
    request: &'a ResolvedRequest<M>,
    card: &'a Card,
    goal: Goal,
}

impl<M: Model + Sync> Adviser<'_, M> {
    fn now(&self) -> Result<Now, Error> {
        let job = &self.request.job;
        Ok(match self.goal {
            Goal::Batch => Now {
                batch: job.batch as u64,
                next: job.batch as u64,
                required: self.fitted(job)?.required_bytes,
            },
            Goal::Most => {
                let found = self.largest(job)?;
                Now {
                    batch: found.batch,
                    next: found.next.batch,
                    required: Bytes::ZERO,
                }
            }
        })
    }

    /// The largest batch of `job` on the card.
    fn largest(&self, job: &Job) -> Result<LargestBatch, Error> {
        let program = training_job(&self.request.model, job);
        let program = program.only(self.request.only).without_first_runs();
        let proposer = Proposer::learn(&program, &self.card.device)?;
        largest_batch(&program, &proposer, &self.card.device)
    }

    /// Whether `job` fits on the card with its batch.
    fn fitted(&self, job: &Job) -> Result<Fitted, Error> {
        let program = training_job(&self.request.model, job);
        let program = program.only(self.request.only).without_first_runs();
        let runs = StepRuns::of(&program, job.batch as u64, &self.card.device)?;
        let verdict = runs.verdict(&self.card.device)?;
        Ok(Fitted {
            fits: verdict.fits(),
            required_bytes: verdict.required_bytes,
        })
    }

    /// Candidates that change one thing each.
    fn candidates(&self, layers: &[String]) -> Vec<Candidate> {
        let job = &self.request.job;
        let mut all = Vec::new();
        let narrower: &[(Precision, &str)] = match job.precision {
            Precision::Fp32 => &[
                (Precision::Mixed, "16 bits with fp32 master weights"),
                (Precision::Fp16, "everything in fp16"),
                (Precision::Bf16, "everything in bf16"),
            ],
            Precision::Mixed => &[
                (Precision::Fp16, "everything in fp16"),
                (Precision::Bf16, "everything in bf16"),
            ],
            Precision::Fp16 | Precision::Bf16 => &[],
        };
        for (precision, what) in narrower {
            let precision = *precision;
            let job = Job {
                precision,
                ..job.clone()
            };
            all.push(Candidate::new(
                *what,
                format!("--precision {precision}"),
                job,
            ));
        }
        if !job.checkpointing {
            let checkpointing = Job {
                checkpointing: true,
                ..job.clone()
            };
            let what = "some activations computed again";
            all.push(Candidate::new(what, "--checkpointing", checkpointing));
        }
        for (optimizer, what) in [
            (OptimizerKind::Adafactor, "an optimizer with less state"),
            (OptimizerKind::Momentum, "an optimizer with less state"),
            (OptimizerKind::Sgd, "an optimizer without state"),
        ] {
            if optimizer != job.optimizer {
                let job = Job {
                    optimizer,
                    ..job.clone()
                };
                all.push(Candidate::new(
                    what,
                    format!("--optimizer {optimizer}"),
                    job,
                ));
            }
        }
        all.extend(self.frozen(layers));
        all.extend(self.adapters());
        all
    }

    /// Freezes everything but the last part of the network, as for a new task.
    fn frozen(&self, layers: &[String]) -> Option<Candidate> {
        let mut parts: Vec<String> = Vec::new();
        for path in layers {
            let part = path.split('.').next().unwrap_or_default().to_string();
            if !part.is_empty() && !parts.contains(&part) {
                parts.push(part);
            }
        }
        let last = parts.pop()?;
        if parts.is_empty()
            || !self.request.job.freeze.is_empty()
            || self.request.job.lora.is_some()
        {
            return None;
        }
        let flags: Vec<_> = parts
            .iter()
            .map(|part| format!("--freeze {part}"))
            .collect();
        let job = Job {
            freeze: parts,
            ..self.request.job.clone()
        };
        let what = format!("only `{last}` trained");
        Some(Candidate::new(what, flags.join(" "), job))
    }

    /// Trains low-rank adapters in place of the weights.
    fn adapters(&self) -> Option<Candidate> {
        let job = &self.request.job;
        if job.lora.is_some() {
            return None;
        }
        let request = Request {
            lora: Some(LoraRequest {
                rank: RANK,
                targets: Vec::new(),
                base: BaseFormat::Dense,
            }),
            ..Request::default()
        };
        let job = Job {
            lora: request.resolve(&self.request.model).ok()?.lora,
            ..job.clone()
        };
        self.request.model.check(&job).ok()?;
        let what = "low-rank adapters trained in place of the weights";
        Some(Candidate::new(what, format!("--lora {RANK}"), job))
    }

    /// The largest smaller image or the longest shorter sequence with which the batch fits. Half of it for [`Goal::Most`]. If the
    /// batch fits with none that is simulated in time, the smallest.
    fn smaller(&self, smaller: &Smaller, known: &Known) -> Option<Change> {
        let sizes: Vec<(usize, usize)> = match self.goal {
            Goal::Batch => {
                let eighths = (EIGHTHS / 2..EIGHTHS).rev().map(|part| (part, EIGHTHS));
                let halves = (2..=HALVES).map(|halves| (1, 1 << halves));
                eighths.chain(halves).collect()
            }
            Goal::Most => vec![(1, 2)],
        };
        let mut last: Option<Change> = None;
        for (part, of) in sizes {
            let input = (smaller.part)(self.request.job.input, part, of)?;
            let job = Job {
                input,
                ..self.request.job.clone()
            };
            if input == self.request.job.input || self.request.model.check(&job).is_err() {
                continue;
            }
            if !known.has_time() {
                break;
            }
            let flags = self.flags(smaller.sizes, &input);
            let candidate = Candidate::new(smaller.what, flags, job);
            last = self.change(&candidate).or(last);
            if last.as_ref().is_some_and(|change| change.fits) {
                break;
            }
        }
        last
    }

    /// The options for these sizes of `input`. For [`Goal::Batch`] the batch is among them if samples are made of tokens:
    /// with `--tokens`, shorter sequences would be a larger batch.
    fn flags(&self, sizes: &[InputSize], input: &Input) -> String {
        let keeps_batch = self.goal == Goal::Batch && input.tokens().is_some();
        let batch = keeps_batch.then(|| format!("--batch {}", self.request.job.batch));
        let sizes = sizes.iter().filter_map(|size| {
            let value = input.get(*size)?;
            Some(SizeOption::of(*size).typed(value))
        });
        let flags: Vec<_> = batch.into_iter().chain(sizes).collect();
        flags.join(" ")
    }

    /// Divides the batch into as few parts as fit, and accumulates their gradients.
    fn parts(&self, known: &Known) -> Option<Change> {
        let job = &self.request.job;
        if self.goal == Goal::Most {
            return None;
        }
        let wanted = job.batch as u64;
        let in_parts = |parts: u64| {
            let sizes = wanted.div_ceil(parts)..wanted;
            let jobs = sizes.map(|batch| Job {
                batch: batch as usize,
                accumulate: job.accumulate * parts as usize,
                ..job.clone()
            });
            let mut jobs = jobs.filter(|job| self.request.model.check(job).is_ok());
            let job = jobs.next()?;
            let flags = format!("--batch {} --accumulate {}", job.batch, job.accumulate);
            let what = format!("the batch in {parts} parts");
            let candidate = Candidate {
                rank: Rank::Same,
                ..Candidate::new(what, flags, job)
            };
            self.change(&candidate)
        };
        // Doubled until they fit, and then halved between what fits and what does not.
        let (mut few, mut fitting) = (1, None);
        let mut parts = 2;
        while parts <= MAX_PARTS && parts <= wanted && known.has_time() {
            match in_parts(parts).filter(|change| change.fits) {
                Some(change) => {
                    fitting = Some((parts, change));
                    break;
                }
                None => few = parts,
            }
            parts *= 2;
        }
        while let Some((many, _)) = &fitting
            && many - few > 1
            && known.has_time()
        {
            let middle = few + (many - few) / 2;
            match in_parts(middle).filter(|change| change.fits) {
                Some(change) => fitting = Some((middle, change)),
                None => few = middle,
            }
        }
        fitting.map(|(_, change)| change)
    }

    /// The card with the least memory on which the unchanged job fits.
    fn least_card(&self, now: &Now) -> Option<Change> {
        let job = Job {
            batch: now.next as usize,
            ..self.request.job.clone()
        };
        let group = self.card.group;
        let found = fitting_gpus(&self.request.model, &job, self.request.runtime, group);
        let least = found.cards.first()?;
        let gpu = Gpu::find(least.alias).ok()?;
        let tuning = self.request.only.unwrap_or_default();
        let card = Card::of(gpu, self.request.runtime, tuning);
        if card.available() <= self.card.available() {
            return None;
        }
        let what = format!("the least card that does: {}", least.gpu.name);
        Some(Change {
            what,
            flags: match group {
                None => format!("--gpu {}", least.alias),
                Some(group) => format!("--gpu {}x{}", group.count, least.alias),
            },
            batch: now.next,
            required_bytes: least.required_bytes,
            fits: true,
            rank: Rank::Card,
        })
    }

    /// The fewest GPUs like the card, up to eight, on which the batch fits in parts; none if it does not, or without time.
    fn more_gpus(&self, known: &Known) -> Option<Change> {
        let gpu = self.card.gpu?;
        let now = &self.request.job;
        let is_one = self.card.group.is_none() && self.goal == Goal::Batch;
        if !is_one || !self.request.runtime.reduces_between_cards() {
            return None;
        }
        for count in [2, 4, 8] {
            let job = Job {
                batch: now.batch / count,
                strategy: Strategy::Ddp(GpuRank::First),
                ..now.clone()
            };
            let divides = now.batch.is_multiple_of(count) && now.batch >= count;
            if !divides || self.request.model.check(&job).is_err() || !known.has_time() {
                return None;
            }
            let nccl = Nccl::MEASURED;
            let card = self.card.clone().in_group(GpuGroup { count, nccl });
            let adviser = Adviser {
                card: &card,
                ..*self
            };
            let fitted = adviser.fitted(&job).ok()?;
            if fitted.fits {
                let batch = job.batch;
                return Some(Change {
                    what: format!("{count} of the card, with a batch of {batch} on each"),
                    flags: format!(
                        "--batch {batch} --gpu {count}x{} --strategy ddp",
                        gpu.alias()
                    ),
                    batch: batch as u64,
                    required_bytes: fitted.required_bytes,
                    fits: true,
                    rank: Rank::Card,
                });
            }
        }
        None
    }

    /// The memory that `candidate` takes; none if it cannot be simulated.
    fn change(&self, candidate: &Candidate) -> Option<Change> {
        let (batch, fitted) = match self.goal {
            Goal::Batch => (
                candidate.job.batch as u64,
                self.fitted(&candidate.job).ok()?,
            ),
            Goal::Most => {
                let found = self.largest(&candidate.job).ok()?;
                let peak = found.at_max?.peak;
                let fitted = Fitted {
                    fits: true,
                    required_bytes: peak.required_bytes,
                };
                (found.batch, fitted)
            }
        };
        Some(Change {
            what: candidate.what.clone(),
            flags: candidate.flags.clone(),
            batch,
            required_bytes: fitted.required_bytes,
            fits: fitted.fits,
            rank: candidate.rank,
        })
    }
}

/// Whether a job fits, and what it takes.
struct Fitted {
    fits: bool,
    required_bytes: Bytes,
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use estimator::Runtime;

    use super::*;
    use crate::cli::{Cli, Command};
    use crate::resolve::Batch;

    /// What a user asks `estimate` with these words.
    fn request(words: &str) -> ResolvedRequest {
        let words = format!("fit-check estimate {words}");
        let Command::Estimate(raw) = Cli::parse_from(words.split(' ')).command else {
            unreachable!("the command is estimate");
        };
        ResolvedRequest::new(&raw.job, Batch::typed(&raw.batch, &raw.tokens)).unwrap()
    }

    #[test]
    fn shorter_sequences_are_of_the_same_batch() {
        let request = request("gpt2 --tokens 4096 --seq 512 --memory 1GB");
        let shorter = shorter_sequences(request.job.input, 1, 2).unwrap();
        let flags = |goal| {
            let adviser = Adviser {
                request: &request,
                card: &request.cards[0],
                goal,
            };
            adviser.flags(&[InputSize::SrcSeq, InputSize::Seq], &shorter)
        };
        assert_eq!(flags(Goal::Batch), "--batch 8 --seq 256");
        assert_eq!(flags(Goal::Most), "--seq 256");
    }

    /// The step is mostly activations, so 16-bit numbers help, and so do parts of the batch with accumulated
    /// gradients. Changes that make the batch fit come first; of those, the ones that leave training as it
    /// is.
    #[test]
    fn changes_help_and_the_best_come_first() {
        let request = request("resnet-20 --batch 512 --memory 300MB");
        assert_eq!(request.runtime, Runtime::Cuda);
        // However slow this machine is.
        let known = Known {
            until: Instant::now() + 20 * TIME,
            ..Known::default()
        };
        let card = &request.cards[0];
        assert!(advise(&request, card, &[], Goal::Batch, &known, |_| {}).unwrap());
        let advice = known.advice(GpuName::new(card), true);
        let ranks: Vec<_> = advice
            .changes
            .iter()
            .map(|change| (!change.fits, change.rank))
            .collect();
        assert!(ranks.is_sorted(), "{ranks:?}");
        let [parts, ..] = advice.changes.as_slice() else {
            panic!("no change helps");
        };
        assert!(parts.fits && parts.rank == Rank::Same);
        assert!(parts.batch < 512 && parts.flags.contains("--accumulate"));
        let mut changes = advice.changes.iter();
        assert!(changes.any(|change| change.flags == "--precision fp16"));
    }
}
