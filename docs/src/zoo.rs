//! `docs/zoo.md`: every network of the zoo and the memory that it needs.

use anyhow::Context;
use estimator::{DeviceSpec, Estimate, Runtime, parallel_map};
use model_zoo::{Request, Variant};

use crate::activation_comparison;
use fit_check::job_info::Burn;
use fit_check::output::job_lines::sizes;
use fit_check::output::terminal::grouped;
use fit_check::simulate_step;

/// The beginning of the page; burn's version replaces its `{{burn}}`.
const HEAD: &str = "\
# The zoo

`cargo run --release -p docs --no-default-features -- zoo` wrote this page; a test fails where it is stale.
All figures are those of plain burn {{burn}} (no fusion, no autotune) on a simulated CUDA card, in fp32,
with the optimizer of the recipe, in the step after the first. `fit-check models NAME` adds the recipe in words and every
difference from the reference.

## Networks

*Needs* is the least memory with which a step with **one** sample of the default input completes,
*live* what is in use at its peak. A network that refuses a batch of one has as many samples as the row says.

";

const SAVED: &str = "\
## What is kept for the backward pass

Beside what PyTorch keeps for the same job. Its figures were measured for this project on a CPU in
fp32 (torch 2.15, torchvision 0.29, transformers 5.23: forward pass and a scalar loss, each storage
once, parameters left out, the batch and the 64-bit indices of max-pooling counted). Those of burn
are what the recording of the step holds at the end of the forward pass that keeps the most,
activations and batch, on a simulated CUDA card. There burn begins each row of a tensor at a
multiple of 16 to 512 bytes; the ratio without that is that of the `wgpu` runtime. *Kept by* are
the layers that it is counted to. Nothing was tuned to match.

";

const PIX2PIXHD: &str = "\
## Pix2PixHD at 2048x1024

Its authors say that training at 2048x1024 with batch 1 needs a GPU with 24 GB (NVIDIA/pix2pixHD,
README: `train_1024p_24G.sh`), in fp32 with PyTorch. ";

/// The page.
///
/// # Errors
///
/// A step failed.
pub fn page() -> anyhow::Result<String> {
    let head = HEAD.replace("{{burn}}", Burn::VERSION);
    let networks = networks()?;
    let saved = activation_comparison::table()?;
    let pix2pixhd = pix2pixhd()?;
    Ok(format!(
        "{head}{networks}{SAVED}{saved}{PIX2PIXHD}{pix2pixhd}"
    ))
}

fn estimate(variant: &Variant, batch: Option<usize>) -> anyhow::Result<Estimate> {
    let request = Request {
        batch,
        ..Request::default()
    };
    let spec = DeviceSpec::unlimited(Runtime::Cuda);
    let simulated = simulate_step(variant, &request.resolve(variant)?, spec.clone())?;
    Ok(simulated.estimate()?)
}

/// The smallest batch that `variant` accepts.
///
/// # Errors
///
/// It accepts not even the batch of its recipe.
fn smallest_batch(variant: &Variant) -> anyhow::Result<usize> {
    let accepted = |batch: usize| {
        let request = Request {
            batch: Some(batch),
            ..Request::default()
        };
        model_zoo::check(variant, &request.resolve(variant)?)
    };
    let smallest = (1..=variant.batch).find(|batch| accepted(*batch).is_ok());
    smallest.with_context(|| format!("{} accepts no batch", variant.name))
}

/// The line of `variant` in the table of networks.
///
/// # Errors
///
/// The step failed.
pub fn line(variant: &Variant) -> anyhow::Result<Vec<String>> {
    let batch = smallest_batch(variant)?;
    let peak = estimate(variant, Some(batch))?.peak;
    let input = sizes(&variant.input);
    Ok(vec![
        variant.name.to_string(),
        grouped(variant.counts.trainable),
        match batch {
            1 => input,
            batch => format!("{input} (figures of {batch} samples)"),
        },
        variant.batch.to_string(),
        variant.optimizer.to_string(),
        peak.required_bytes.to_string(),
        peak.live_bytes.to_string(),
        format!("{}; {}", variant.paper, variant.reference),
    ])
}

fn networks() -> anyhow::Result<String> {
    let variants = model_zoo::variants();
    let header = [
        "model",
        "parameters",
        "default input",
        "recipe's batch",
        "optimizer",
        "needs",
        "live",
        "sources",
    ];
    crate::fallible_table(header, parallel_map(&variants, line))
}

fn pix2pixhd() -> anyhow::Result<String> {
    let variant = model_zoo::find("pix2pixhd")?;
    let estimate = estimate(&variant, Some(1))?;
    let peak = &estimate.peak;
    Ok(format!(
        "Burn needs {} for the\nsame step, with {} in use at the peak, in the {} phase: {} of \
         activations, {} of weights,\n{} of optimizer state, {} of gradients and {} that come and \
         go. Where there is room its\npools hold {}.\n",
        peak.required_bytes,
        peak.live_bytes,
        peak.phase,
        estimate.at_peak.activations,
        estimate.at_peak.parameters,
        estimate.at_peak.optimizer,
        estimate.at_peak.gradients,
        estimate.at_peak.temporaries,
        peak.reserved_bytes,
    ))
}
