//! Lines about a job that several answers share: the job, its configuration of burn, whether it fits.

use estimator::{Bytes, Tuning};
use model_zoo::{BaseFormat, Precision, Rank};

use super::terminal::{BAD, FAINT, GOOD, TITLE, grouped, styled, wrapped, wrapped_lines};
use super::weights_check::{lines, mismatch};
use crate::input_options::SIZES;
use crate::job_info::{Burn, GpuName, JobInfo};
use crate::report::Verdict;
use crate::several_gpus::Nccl;

/// `resnet-50 in burn 0.22.1: batch 32, 224x224 px, fp32, adam`: the framework, and all that decides the figures.
pub(crate) fn headline(asked: &JobInfo) -> String {
    let job = styled(TITLE, &asked.model);
    let recipe = recipe(asked);
    format!("{job} in burn {}: {recipe}", asked.burn.version)
}

/// `batch 32, 224x224 px, fp32, adam`
pub(crate) fn recipe(asked: &JobInfo) -> String {
    let mut parts = Vec::new();
    if let Some(batch) = asked.batch {
        let tokens = asked.tokens.map(|tokens| tokens as u64);
        parts.push(format!("batch {batch}{}", in_tokens(tokens)));
        if asked.accumulate > 1 {
            let samples = batch * asked.accumulate;
            parts.push(format!(
                "{} batches = {samples} samples a step",
                asked.accumulate
            ));
        }
    } else if asked.accumulate > 1 {
        parts.push(format!("{} batches a step", asked.accumulate));
    }
    parts.extend(sample(asked));
    parts.push(number_format(asked.precision).into());
    parts.push(asked.optimizer.to_string());
    if asked.checkpointing {
        parts.push("checkpointing".into());
    }
    if let Some(lora) = &asked.lora {
        let base = match lora.base {
            BaseFormat::Dense => String::new(),
            base => format!(" over {base} weights"),
        };
        let targets = lora.targets.join(",");
        parts.push(format!("LoRA of rank {} on {targets}{base}", lora.rank));
    }
    parts.extend(strategy(asked).map(String::from));
    if !asked.freeze.is_empty() {
        parts.push(format!("{} frozen", asked.freeze.join(", ")));
    }
    parts.join(", ")
}

/// Whose loop trains on how many GPUs; nothing of a user's own loop on one GPU.
pub(crate) fn strategy(asked: &JobInfo) -> Option<&'static str> {
    match asked.strategy? {
        "ddp" => Some("on each GPU (burn-train's DDP)"),
        _ => Some("in burn-train's loop"),
    }
}

/// `224x224 px`: the sizes of a sample that decide the figures.
pub(crate) fn sample(asked: &JobInfo) -> impl Iterator<Item = String> {
    SIZES.iter().filter_map(|option| {
        let value = asked.input.get(option.size)?;
        Some(format!("{value}{}", option.headline_unit?))
    })
}

/// `mixed (fp16)`: the number formats, with the type of 16 bits.
pub(crate) fn number_format(precision: Precision) -> &'static str {
    match precision {
        Precision::Fp32 => "fp32",
        Precision::Fp16 => "fp16",
        Precision::Bf16 => "bf16",
        // `Precision::float_type`
        Precision::Mixed => "mixed (fp16)",
    }
}

/// ` (3,136 tokens)` after a batch of samples that are made of tokens.
pub(crate) fn in_tokens(tokens: Option<u64>) -> String {
    let tokens = tokens.map(|tokens| format!(" ({} tokens)", grouped(tokens)));
    tokens.unwrap_or_default()
}

/// `burn 0.22.1 on cuda, fusion off, autotune off`
pub(crate) fn burn(asked: &JobInfo) -> String {
    format!(
        "burn {} on {}, {}",
        asked.burn.version,
        asked.runtime,
        asked.burn.switches()
    )
}

/// In which runs of a process a step was tried, after a sentence that says where.
pub(super) fn in_which_runs(burn: &Burn) -> &'static str {
    match (burn.autotune, burn.tuning) {
        (false, _) | (true, Some(Tuning::Warm)) => "",
        (true, Some(Tuning::Cold)) => ": in the first run, in which burn tunes its kernels",
        (true, None) => ": in the first run, in which burn tunes its kernels, and in runs after it",
    }
}

/// [`burn`], and in a second line that the weights file of the model does not match its network.
pub(super) fn burn_and_mismatch(asked: &JobInfo) -> String {
    match asked.weights.as_ref().and_then(mismatch) {
        Some(mismatch) => format!("{}\n{mismatch}", burn(asked)),
        None => burn(asked),
    }
}

/// [`burn_and_mismatch`], indented and wrapped.
pub(super) fn notes(asked: &JobInfo) -> String {
    wrapped_lines(&burn_and_mismatch(asked), 2)
}

/// [`burn`], whose training loop is meant, and how the weights file of the model agrees with its network; indented and wrapped.
pub(super) fn assumptions(asked: &JobInfo) -> String {
    let training_loop = match asked.strategy {
        None => {
            "in a loop of your own; burn-train's can need one more copy of the weights: --strategy learner\n"
        }
        Some(_) => "",
    };
    let checked = asked.weights.as_ref().map(lines).unwrap_or_default();
    wrapped_lines(&format!("{}\n{training_loop}{checked}", burn(asked)), 2)
}

/// The lines of a verdict: `fits on A10`, what it needs of how much and by how much, and why not if it does not fit.
/// `shown` is what `nvidia-smi` shows at most, if it is known of this card.
pub(crate) fn verdict_lines(verdict: &Verdict, shown: Option<Bytes>) -> String {
    let name = &verdict.gpu.name;
    let fits = match verdict.fits {
        true => format!("{} on {name}", styled(GOOD, "fits")),
        false => format!("{} on {name}", styled(BAD, "does not fit")),
    };
    let needs = format!(
        "needs {} of {}",
        verdict.required_bytes,
        verdict.available()
    );
    let difference = Bytes(verdict.headroom_bytes.unsigned_abs());
    let needs = match verdict.headroom_bytes {
        0.. => format!("{needs}, {difference} to spare"),
        _ => format!("{needs}, {difference} short"),
    };
    let needs = match shown {
        Some(shown) if verdict.fits => format!("{needs}; nvidia-smi shows up to {shown}"),
        _ => needs,
    };
    let mut lines = format!("{fits}\n{needs}");
    if let Some(reason) = &verdict.reason {
        lines += &format!("\n{reason}");
    }
    lines
}

/// What is needed, and of how much: the lines of `verdicts`, or without a card what the step requires. `device` is what
/// `nvidia-smi` shows at most, with so much `overhead`.
pub(super) fn needs(
    verdicts: &[Verdict],
    required: Bytes,
    device: Bytes,
    overhead: Bytes,
) -> String {
    // What `nvidia-smi` shows is known of the first card.
    let shown = |first: bool| (first && overhead > Bytes::ZERO).then_some(device);
    let verdicts = verdicts.iter().enumerate();
    let lines = verdicts.map(|(index, verdict)| verdict_lines(verdict, shown(index == 0)));
    let lines: Vec<_> = lines.collect();
    match lines.is_empty() {
        true => wrapped_lines(
            &format!(
                "{} {required}; nvidia-smi shows up to {device}, where the card has so much",
                styled(TITLE, "needs"),
            ),
            2,
        ),
        false => wrapped_lines(&lines.join("\n"), 2),
    }
}

/// The job as errors name it: `resnet-50 (batch 32, 224x224 px, fp32, adam)`.
pub(crate) fn job_name(asked: &JobInfo) -> String {
    format!("{} ({})", asked.model, recipe(asked))
}

/// The page of a search: what was found on each card, and by which `method`.
pub(super) fn search_page(
    headline: &str,
    found: impl Iterator<Item = String>,
    asked: &JobInfo,
    method: &str,
) -> String {
    let mut page = format!("{}\n\n", wrapped(headline, 0, 2));
    for lines in found {
        page += &lines;
        page.push('\n');
    }
    let method = format!("{method}{}", in_which_runs(&asked.burn));
    let notes = assumptions(asked) + &wrapped(&method, 2, 4);
    page + &styled(FAINT, notes) + "\n"
}

/// What a job needs of `gpu` that a search found, and what `nvidia-smi` shows, if it fits.
pub(super) fn found_needs(gpu: &GpuName, required: Bytes, shown: Option<Bytes>) -> String {
    let needs = format!("  needs {required} of {}", gpu.available());
    match shown.filter(|_| gpu.overhead_bytes != Bytes::ZERO) {
        None => needs,
        Some(shown) => format!("{needs}; nvidia-smi shows up to {shown}"),
    }
}

/// What NCCL takes on the GPUs of `gpu`, and how it is counted; nothing if it is one GPU.
pub(super) fn nccl_lines(gpu: &GpuName) -> Option<String> {
    let group = gpu.group?;
    let Nccl {
        least_bytes,
        most_bytes,
    } = group.nccl;
    let first = group.communicators(Rank::First);
    let others = group.communicators(Rank::Other);
    let (each, source) = match least_bytes == most_bytes {
        true => (most_bytes.to_string(), "as --nccl says"),
        false => (
            format!("{least_bytes} to {most_bytes}"),
            "as others measured; --nccl SIZE counts another figure",
        ),
    };
    let most = group.nccl_on(Rank::First).most_bytes;
    Some(format!(
        "NCCL: {first} communicators on GPU 0, {others} on each other, of {each}, {source}; {most} are counted"
    ))
}

/// By how much memory a step is too large for a card, or why it does not fit.
pub(crate) fn short(verdict: &Verdict) -> String {
    match (verdict.headroom_bytes, &verdict.reason) {
        (..0, _) => format!("{} short", Bytes(verdict.headroom_bytes.unsigned_abs())),
        (_, Some(reason)) => reason.clone(),
        (_, None) => "nothing to spare".into(),
    }
}

/// `224x224, 1000 classes`
pub fn sizes(input: &model_zoo::Input) -> String {
    let parts = SIZES.iter().filter_map(|option| {
        let value = input.get(option.size)?;
        Some(format!("{value}{}", option.unit))
    });
    parts.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use estimator::{Gpu, Runtime, Tuning};

    use super::*;
    use crate::job_info::GpuName;
    use crate::output::terminal::plain;
    use crate::resolve::Card;

    #[test]
    fn memory_is_short_only_if_the_card_has_too_little() {
        let card = Card::of(Gpu::find("l4").unwrap(), Runtime::Vulkan, Tuning::Warm);
        let lines = |fits: bool, headroom_bytes: i64| {
            let reason = (!fits).then(|| "an allocation is too large".to_string());
            let verdict = Verdict {
                gpu: GpuName::new(&card),
                fits,
                required_bytes: Bytes(card.available().0.saturating_add_signed(-headroom_bytes)),
                headroom_bytes,
                reason,
            };
            plain(&verdict_lines(&verdict, Some(Bytes::gib(20))))
        };
        let gib = 1 << 30;
        let available = card.available();
        let fits = lines(true, gib);
        assert!(fits.starts_with("fits on L4\nneeds "), "{fits}");
        let end = format!(" of {available}, 1.00 GiB to spare; nvidia-smi shows up to 20.0 GiB");
        assert!(fits.ends_with(&end), "{fits}");
        let short = lines(false, -gib);
        let end = ", 1.00 GiB short\nan allocation is too large";
        assert!(
            short.starts_with("does not fit on L4\nneeds ") && short.ends_with(end),
            "{short}"
        );
        let too_large = lines(false, gib);
        assert!(
            too_large.contains("1.00 GiB to spare\nan allocation"),
            "{too_large}"
        );
    }
}
