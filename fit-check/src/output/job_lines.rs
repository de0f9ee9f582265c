//! Lines about a job that several answers share: the job, its configuration of burn, whether it fits.

use estimator::Bytes;
use model_zoo::BaseFormat;

use super::terminal::{BAD, GOOD, TITLE, grouped, styled};
use super::weights_check::{lines, mismatch};
use crate::input_options::SIZES;
use crate::job_info::JobInfo;
use crate::report::Verdict;

/// `resnet-50, batch 32, 224x224 px, fp32, adam`
pub(crate) fn headline(asked: &JobInfo) -> String {
    let mut parts = vec![styled(TITLE, &asked.model)];
    if let Some(batch) = asked.batch {
        let tokens = asked.tokens.map(|tokens| tokens as u64);
        parts.push(format!("batch {batch}{}", in_tokens(tokens)));
    }
    if asked.accumulate > 1 {
        parts.push(format!("x {} accumulated", asked.accumulate));
    }
    for option in &SIZES {
        let value = asked.input.get(option.size);
        let shown = value.zip(option.headline_unit);
        parts.extend(shown.map(|(value, unit)| format!("{value}{unit}")));
    }
    parts.push(asked.precision.to_string());
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
    if !asked.freeze.is_empty() {
        parts.push(format!("{} frozen", asked.freeze.join(", ")));
    }
    parts.join(", ")
}

/// ` (3,136 tokens)` after a batch of samples that are made of tokens.
pub(super) fn in_tokens(tokens: Option<u64>) -> String {
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

/// [`burn`], and in a second line that the weights file of the model does not match its network.
pub(super) fn burn_and_mismatch(asked: &JobInfo) -> String {
    match asked.weights.as_ref().and_then(mismatch) {
        Some(mismatch) => format!("{}\n{mismatch}", burn(asked)),
        None => burn(asked),
    }
}

pub(super) fn assumptions(asked: &JobInfo) -> String {
    let burn = format!("{}; one optimizer step after the first", burn(asked));
    match &asked.weights {
        Some(check) => format!("{burn}\n{}", lines(check)),
        None => burn,
    }
}

/// `fits on A10, 3.2 GiB to spare`
pub(crate) fn verdict_line(verdict: &Verdict) -> String {
    let name = &verdict.gpu.name;
    let line = fits_line(verdict, name);
    let Verdict {
        lag_fits,
        fits_without_overwriting,
        every_run_fits,
        ..
    } = verdict;
    let close = match (lag_fits, fits_without_overwriting, every_run_fits) {
        (Some(false), ..) => {
            "where the device's thread is behind the program, the pools take more pages, and it does not fit"
        }
        (_, Some(false), _) => {
            "where burn does not overwrite some operands, as can happen now and then in a long training, it does not fit"
        }
        (.., Some(false)) => {
            "in one of the runs that were tried it does not fit, since burn does not overwrite some operands or the device's thread is behind; a long training meets such runs"
        }
        (.., Some(true)) => return format!("{line}, in every run that was tried"),
        _ => return line,
    };
    format!("{line}\n  {}: {close}", styled(BAD, "close"))
}

fn fits_line(verdict: &Verdict, name: &str) -> String {
    let Verdict {
        fits,
        headroom_bytes,
        reason,
        ..
    } = verdict;
    let difference = Bytes(headroom_bytes.unsigned_abs());
    // What needs more memory than a card has can still fit there: with less memory the pools would clean up earlier.
    let spare = match headroom_bytes {
        0.. => format!("{difference} to spare"),
        _ => "nothing to spare".into(),
    };
    match (fits, reason) {
        (true, _) if verdict.first_run_fits == Some(false) => format!(
            "{} on {name}, {spare}; but the first run, which tunes, {}",
            styled(GOOD, "fits once tuned"),
            styled(BAD, "does not")
        ),
        (true, _) => format!("{} on {name}, {spare}", styled(GOOD, "fits")),
        (false, reason) => {
            let short = format!("{difference} short");
            // A single allocation can be too large for a card that has enough memory.
            let short = (*headroom_bytes < 0).then_some(short);
            let why: Vec<_> = short.into_iter().chain(reason.clone()).collect();
            format!(
                "{} on {name}: {}",
                styled(BAD, "does not fit"),
                why.join("; ")
            )
        }
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
    use crate::resolve::Card;

    #[test]
    fn memory_is_short_only_if_the_card_has_too_little() {
        let card = Card::of(Gpu::find("l4").unwrap(), Runtime::Vulkan, Tuning::Warm);
        let line = |fits: bool, headroom_bytes| {
            let reason = (!fits).then(|| "an allocation is too large".to_string());
            let verdict = Verdict {
                gpu: GpuName::new(&card),
                fits,
                required_bytes: Bytes::ZERO,
                headroom_bytes,
                reason,
                first_run_fits: None,
                lag_fits: None,
                fits_without_overwriting: None,
                every_run_fits: None,
            };
            fits_line(&verdict, "L4")
        };
        let ends = [
            (true, 1 << 30, "on L4, 1.00 GiB to spare"),
            (true, -1, "on L4, nothing to spare"),
            (
                false,
                -1024,
                "on L4: 1.00 KiB short; an allocation is too large",
            ),
            (false, 1 << 30, "on L4: an allocation is too large"),
        ];
        for (fits, headroom, end) in ends {
            let line = line(fits, headroom);
            assert!(line.ends_with(end), "{line}");
        }
    }
}
