//! Which framework a question is about.

use std::path::Path;

use estimator::Runtime;
use strum::VariantNames;
use torch_memory::saved::is_saved;

use crate::cli;
use crate::user_error::UserError;
use crate::values;

/// A framework that trains a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::EnumString, strum::VariantNames)]
#[strum(serialize_all = "lowercase")]
enum Framework {
    Burn,
    PyTorch,
}

/// Whether `framework`, as typed, is PyTorch; what `max-batch --save` wrote, if it is one of `models`, is of PyTorch whatever was typed.
/// `torch` are options for it alone; `options` and `runtime` have some that are for burn alone.
///
/// # Errors
///
/// It is neither PyTorch nor burn, or one has options of the other.
pub(in crate::commands) fn is_asked(
    models: &[impl AsRef<Path>],
    framework: &str,
    torch: &cli::TorchOptions,
    options: &cli::Options,
    runtime: &str,
) -> Result<bool, UserError> {
    if framework.contains(',') {
        for name in framework.split(',').map(str::trim) {
            values::choice::<Framework>("--framework", name, Framework::VARIANTS)?;
        }
        return Err(UserError::new("--framework takes one framework")
            .hint("ask twice, or `fit-check table MODEL --framework burn,pytorch` for both"));
    }
    let framework: Framework = values::choice("--framework", framework, Framework::VARIANTS)?;
    let is_pytorch =
        framework == Framework::PyTorch || models.iter().any(|model| is_saved(model.as_ref()));
    let attention = torch.attention.as_ref().map(|_| "--attention");
    let of_torch = attention.or_else(|| torch.python.as_ref().map(|_| "--python"));
    if let Some(option) = of_torch.filter(|_| !is_pytorch) {
        return Err(UserError::new(format!("{option} is of PyTorch"))
            .hint("add --framework pytorch, or leave it out"));
    }
    match is_pytorch {
        true => refuse_of_burn(options, runtime).map(|()| true),
        false => Ok(false),
    }
}

/// Whether `framework`, as typed, is a list of both.
pub(in crate::commands) fn both_are_asked(framework: &str) -> bool {
    let mut named: Vec<_> = framework.split(',').map(str::trim).collect();
    named.sort_unstable();
    named == Framework::VARIANTS
}

/// [`is_asked`] about a job.
pub(in crate::commands) fn is_asked_about(job: &cli::Job) -> Result<bool, UserError> {
    let runtime = &job.cards.runtime;
    is_asked(
        &[&job.model],
        &job.framework,
        &job.torch,
        &job.step.options,
        runtime,
    )
}

/// Refuses options that are burn's.
fn refuse_of_burn(options: &cli::Options, runtime: &str) -> Result<(), UserError> {
    const SEVERAL: &str = "`fit-check run --gpu 4x24GB -- torchrun --nproc-per-node 4 train.py` follows a PyTorch program on several GPUs";
    let (option, hint) = match options {
        cli::Options {
            strategy: Some(_), ..
        } => ("--strategy", SEVERAL),
        cli::Options { nccl: Some(_), .. } => ("--nccl", SEVERAL),
        _ if runtime != Runtime::Cuda.to_string() => ("--runtime", "PyTorch runs on CUDA"),
        _ => return Ok(()),
    };
    Err(UserError::new(format!("{option} is of burn")).hint(format!("leave it out: {hint}")))
}
