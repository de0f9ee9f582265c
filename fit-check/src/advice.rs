//! Advice: changes to a job that would make it fit, each simulated.
//!
//! The file is long because each kind of change is a method of one `Adviser`.

use estimator::{
    Bytes, DeviceSpec, Estimate, Gpu, LargestFit, Program, Proposer, largest_fit, parallel_map,
};
use model_zoo::{
    BaseFormat, Input, InputSize, Job, LoraRequest, Model, OptimizerKind, Precision, Request,
};
use schemars::JsonSchema;
use serde::Serialize;

use crate::gpu_search::fitting_gpus;
use crate::input_options::SizeOption;
use crate::job_info::GpuName;
use crate::resolve::{Card, ResolvedRequest};
use crate::step::training_job;

/// Changes to a job that help, the best first.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct Advice {
    /// The card on which the job should fit.
    pub gpu: GpuName,
    /// The largest batch without any change.
    pub max_batch: u64,
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
    /// The least memory with which the step completes.
    pub required_bytes: Bytes,
    /// The bytes in use at the peak of the step.
    pub live_bytes: Bytes,
    /// Whether the batch fits on the card.
    pub fits: bool,
    /// The largest batch on the card with this change.
    pub max_batch: u64,
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
struct Candidate {
    what: String,
    flags: String,
    job: Job,
}

impl Candidate {
    fn new(what: impl Into<String>, flags: impl Into<String>, job: Job) -> Self {
        Self {
            what: what.into(),
            flags: flags.into(),
            job,
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

/// The search for a smaller image or sequence goes down by an eighth at a time.
const EIGHTHS: usize = 8;

/// A way to make samples smaller.
struct Smaller {
    what: &'static str,
    /// The sizes that it changes.
    sizes: &'static [InputSize],
    /// The input with so many eighths of these sizes; none if it does not have them.
    part: fn(Input, usize) -> Option<Input>,
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

fn smaller_image(input: Input, eighths: usize) -> Option<Input> {
    // Networks halve their images several times, so the sides stay multiples of 32.
    let side = |side: usize| match side.is_multiple_of(32) {
        true => (side * eighths / EIGHTHS).next_multiple_of(32),
        false => side * eighths / EIGHTHS,
    };
    Some(Input {
        image: Some(input.image?.map(side)),
        ..input
    })
}

fn shorter_sequences(input: Input, eighths: usize) -> Option<Input> {
    let part = |size: usize| size * eighths / EIGHTHS;
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

/// Finds changes that would make the job of `request` fit on `card`. `layers` are the paths of its layers
/// with parameters, in the order of first use.
///
/// A change that cannot be simulated, or that allows no larger batch, is left out.
///
/// # Errors
///
/// The job itself cannot be simulated.
pub fn advise<M: Model + Sync>(
    request: &ResolvedRequest<M>,
    card: &Card,
    layers: &[String],
    goal: Goal,
) -> Result<Advice, estimator::Error> {
    let adviser = Adviser {
        request,
        card,
        goal,
    };
    let now = adviser.largest(&request.job)?;
    let candidates = adviser.candidates(layers);
    let mut changes: Vec<Change> = parallel_map(&candidates, |candidate| {
        let largest = adviser.largest(&candidate.job).ok()?;
        let helps = largest.batch > now.batch;
        helps.then(|| adviser.change(candidate, &largest)).flatten()
    })
    .into_iter()
    .flatten()
    .collect();
    changes.extend(adviser.smaller(&now));
    changes.extend(adviser.parts(&now));
    changes.extend(adviser.least_card(&now));
    changes.sort_by_key(|change| {
        let largest = std::cmp::Reverse(change.max_batch);
        (!change.fits, change.rank, largest)
    });
    Ok(Advice {
        gpu: GpuName::new(card),
        max_batch: now.batch,
        changes,
    })
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
    fn largest(&self, job: &Job) -> Result<LargestFit, estimator::Error> {
        largest(&self.request.model, job, &self.card.device)
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

    /// The largest smaller image and the longest shorter sequence, in eighths, with which the batch fits.
    /// Half of it for [`Goal::Most`], or if the batch fits with none.
    fn smaller(&self, now: &LargestFit) -> Vec<Change> {
        let job = &self.request.job;
        SMALLER
            .iter()
            .filter_map(|smaller| {
                let mut last: Option<Change> = None;
                let from = match self.goal {
                    Goal::Batch => EIGHTHS - 1,
                    Goal::Most => EIGHTHS / 2,
                };
                for eighths in (EIGHTHS / 2..=from).rev() {
                    let input = (smaller.part)(job.input, eighths)?;
                    let job = Job {
                        input,
                        ..job.clone()
                    };
                    if input == self.request.job.input || self.request.model.check(&job).is_err() {
                        continue;
                    }
                    let flags = self.flags(smaller.sizes, &input);
                    let candidate = Candidate::new(smaller.what, flags, job);
                    let largest = self.largest(&candidate.job).ok()?;
                    if largest.batch > now.batch {
                        last = self.change(&candidate, &largest);
                    }
                    if last.as_ref().is_some_and(|change| change.fits) {
                        break;
                    }
                }
                last
            })
            .collect()
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

    /// Divides the batch into parts and accumulates their gradients.
    fn parts(&self, now: &LargestFit) -> Option<Change> {
        let job = &self.request.job;
        if self.goal == Goal::Most || now.batch >= job.batch as u64 {
            return None;
        }
        let in_parts = |batch: u64, parts: u64| Job {
            batch: batch as usize,
            accumulate: job.accumulate * parts as usize,
            ..job.clone()
        };
        // The accumulated gradients take memory beside the gradients of a part, so fewer samples fit.
        let largest = self.largest(&in_parts(1, 2)).ok()?;
        let wanted = job.batch as u64;
        let parts = wanted.div_ceil(largest.batch.max(1));
        let accepted = |batch: &u64| self.request.model.check(&in_parts(*batch, parts)).is_ok();
        let batch = (wanted.div_ceil(parts)..=largest.batch).find(accepted)?;
        if parts > MAX_PARTS {
            return None;
        }
        let job = in_parts(batch, parts);
        let flags = format!("--batch {batch} --accumulate {}", job.accumulate);
        let what = format!("the batch in {parts} parts");
        let change = self.change(&Candidate::new(what, flags, job), &largest)?;
        Some(Change {
            rank: Rank::Same,
            ..change
        })
    }

    /// The card with the least memory on which the unchanged job fits.
    fn least_card(&self, now: &LargestFit) -> Option<Change> {
        let job = Job {
            batch: match self.goal {
                Goal::Batch => self.request.job.batch,
                Goal::Most => now.next as usize,
            },
            ..self.request.job.clone()
        };
        if now.batch >= job.batch as u64 {
            return None;
        }
        let (model, runtime) = (&self.request.model, self.request.runtime);
        let (cards, _) = fitting_gpus(model, &job, runtime);
        // The search replays, and on a card that is tuned in the same run the kernels may be others.
        cards.iter().find_map(|least| {
            let gpu = Gpu::find(least.alias).ok()?;
            let card = Card::of(gpu, runtime, self.request.tuning);
            let largest = largest(model, &job, &card.device).ok()?;
            let what = format!("the least card that does: {}", least.gpu.name);
            let candidate = Candidate::new(what, format!("--gpu {}", least.alias), job.clone());
            let adviser = Adviser {
                request: self.request,
                card: &card,
                goal: Goal::Batch,
            };
            let change = adviser.change(&candidate, &largest)?;
            change.fits.then_some(Change {
                rank: Rank::Card,
                ..change
            })
        })
    }

    /// The memory that `candidate` takes; `largest` is its largest batch.
    fn change(&self, candidate: &Candidate, largest: &LargestFit) -> Option<Change> {
        let (batch, estimate, fits) = match (self.goal, &largest.at_max) {
            (Goal::Most, Some(at_max)) => (largest.batch, at_max.estimate().ok()?, true),
            _ => {
                let batch = candidate.job.batch as u64;
                let device = &self.card.device;
                let program = training_job(&self.request.model, &candidate.job);
                let simulated = program.simulate_unlimited(batch, device).ok()?;
                let fits = match batch < largest.batch {
                    // With a smaller batch the pools have pages of other sizes, so it need not fit.
                    true => {
                        let run = program.simulate(batch, device.clone()).ok()?;
                        run.outcome().is_ok()
                    }
                    false => batch == largest.batch,
                };
                (batch, simulated.estimate().ok()?, fits)
            }
        };
        Some(Change {
            what: candidate.what.clone(),
            flags: candidate.flags.clone(),
            batch,
            required_bytes: estimate.peak.required_bytes,
            live_bytes: estimate.peak.live_bytes,
            fits,
            max_batch: largest.batch,
            rank: Rank::Changed,
        })
    }
}

fn largest<M: Model + Sync>(
    model: &M,
    job: &Job,
    device: &DeviceSpec,
) -> Result<LargestFit, estimator::Error> {
    let program = training_job(model, job).without_first_runs();
    let proposer = Proposer::learn(&program, device)?;
    largest_fit(&program, &proposer, device)
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
        let shorter = shorter_sequences(request.job.input, EIGHTHS / 2).unwrap();
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
        let advice = advise(&request, &request.cards[0], &[], Goal::Batch).unwrap();
        assert!(advice.max_batch < 512);
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
        assert!(parts.batch <= parts.max_batch && parts.flags.contains("--accumulate"));
        let fp16 = advice
            .changes
            .iter()
            .find(|change| change.flags == "--precision fp16");
        assert!(fp16.is_some_and(|fp16| fp16.max_batch > advice.max_batch));
    }
}
