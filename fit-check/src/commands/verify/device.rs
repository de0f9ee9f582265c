//! The device and the driver with which `verify` trains.

use std::time::Duration;

use estimator::{Bytes, DeviceSpec, Gpu, Runtime};

use crate::cli;
use crate::counting_driver::{Conditions, CountingDriver, UNLIMITED};
use crate::measure::{DeviceName, Opened, Setup};
use crate::user_error::UserError;
use crate::values;

/// The driver under CUDA's runtime.
#[derive(Debug)]
pub(super) enum Driver {
    /// The driver of the machine.
    Machine,
    /// The counting driver with this card, if the machine has no CUDA device of its own.
    MachineOr(&'static Gpu),
    /// The counting driver with this card, or with a card of unlimited memory.
    Counting(Option<&'static Gpu>),
}

/// The memory that `--max-batch` leaves to the job; none if it is the memory of the card.
///
/// # Errors
///
/// No option says how much memory there is.
pub(super) fn budget(raw: &cli::Verify) -> Result<Option<Bytes>, UserError> {
    let budget = raw.memory.as_deref().map(values::memory).transpose()?;
    if raw.max_batch && budget.is_none() && raw.gpu.is_none() {
        return Err(UserError::new(
            "--max-batch needs to know how much memory there is for the job",
        )
        .hint("--memory SIZE says it; with --device cuda --gpu CARD it is that of the card"));
    }
    Ok(budget)
}

/// The driver for `device`, from the command line.
///
/// # Errors
///
/// There is no driver of that name, the device has no choice of drivers, or the card has no CUDA or less memory than
/// `budget`.
pub(super) fn driver(
    raw: &cli::Verify,
    device: DeviceName,
    budget: Option<Bytes>,
) -> Result<Driver, UserError> {
    let gpu = raw.gpu.as_deref().map(Gpu::find).transpose()?;
    let option = match (&raw.driver, gpu) {
        (Some(_), _) => "--driver",
        (None, Some(_)) => "--gpu",
        (None, None) => return Ok(Driver::Machine),
    };
    if device.driven.runtime() != Runtime::Cuda {
        return Err(UserError::new(format!("{option} is for --device cuda, not for {device}")).hint(
            "a GPU of this machine needs neither; CUDA's runtime without a GPU is --device cuda --gpu CARD, in a build with `--features cuda`",
        ));
    }
    if let Some(gpu) = gpu
        && !gpu.is_driven_by(Runtime::Cuda)
    {
        return Err(UserError::new(format!("{} has no CUDA", gpu.name))
            .hint("`fit-check gpus` lists NVIDIA's cards among the others"));
    }
    if let Some((gpu, budget)) = gpu.zip(budget) {
        check_budget(gpu, budget)?;
    }
    match (raw.driver.as_deref(), gpu) {
        (None, Some(gpu)) => Ok(Driver::MachineOr(gpu)),
        (None, None) => Ok(Driver::Machine),
        (Some("counting"), gpu) => Ok(Driver::Counting(gpu)),
        (Some("nvidia"), None) => Ok(Driver::Machine),
        (Some("nvidia"), Some(_)) => Err(UserError::new(
            "NVIDIA's driver knows no cards but those of this machine",
        )
        .hint("leave --gpu out, or train on a card that is not there with --driver counting")),
        (Some(other), _) => {
            Err(UserError::invalid_value("--driver", other).hint("--driver is nvidia or counting"))
        }
    }
}

/// Checks that `gpu` has so much memory.
fn check_budget(gpu: &Gpu, budget: Bytes) -> Result<(), UserError> {
    match budget <= gpu.usable_bytes {
        true => Ok(()),
        false => Err(UserError::new(format!(
            "--memory is {budget}, and {} has {}",
            gpu.name, gpu.usable_bytes
        ))
        .hint("make --memory smaller, or leave it out: then it is the memory that a process leaves of the card")),
    }
}

impl Driver {
    /// Opens `device`. With the counting driver, `budget` of the card's memory is free; without a budget, all
    /// that a process leaves of it.
    ///
    /// # Errors
    ///
    /// The device does not exist or cannot be opened, or `--gpu` was typed on a machine with a CUDA device.
    pub(super) fn open(
        &self,
        device: DeviceName,
        budget: Option<Bytes>,
        timeout: Duration,
    ) -> anyhow::Result<(Setup, Opened)> {
        let gpu = match self {
            Self::Machine => None,
            Self::Counting(gpu) => Some(*gpu),
            Self::MachineOr(gpu) => {
                let setup = Setup {
                    device,
                    timeout,
                    counting: None,
                };
                // An error here is that of a device that exists and cannot be opened.
                if let Some(opened) = setup.find()? {
                    return Err(UserError::new(format!(
                        "this machine has a CUDA device of its own: {}",
                        opened.report.name
                    ))
                    .hint("leave --gpu out to train on it; --driver counting trains on a card that is not there")
                    .into());
                }
                Some(Some(*gpu))
            }
        };
        if gpu.is_some() && device.index > 0 {
            return Err(UserError::new(format!("no device for --device {device}"))
                .hint("the counting driver has one card, which is --device cuda")
                .into());
        }
        let counting = gpu
            .map(|gpu| CountingDriver::new(&[card(gpu, budget)], Conditions::default()))
            .transpose()?;
        let setup = Setup {
            device,
            timeout,
            counting,
        };
        let opened = setup.probe()?;
        Ok((setup, opened))
    }
}

/// `gpu`, or a card like an RTX 3090 with unlimited memory; `budget` of it is free.
fn card(gpu: Option<&Gpu>, budget: Option<Bytes>) -> DeviceSpec {
    let card = match gpu {
        Some(gpu) => gpu.spec(Runtime::Cuda),
        None => {
            let mut unlimited = DeviceSpec::unlimited(Runtime::Cuda);
            unlimited.card.name = "RTX 3090 without a limit".into();
            unlimited
        }
    };
    match budget {
        Some(budget) => {
            let total = card.card.total.unwrap_or(UNLIMITED);
            card.with_memory(total, total.saturating_sub(budget))
        }
        None => card,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_has_no_more_memory_than_its_card() {
        let gpu = Gpu::find("rtx-3090").unwrap();
        assert!(check_budget(gpu, gpu.usable_bytes).is_ok());
        let more = check_budget(gpu, gpu.usable_bytes + Bytes(1));
        let error = more.unwrap_err().to_string();
        assert!(error.contains("GeForce RTX 3090 has"), "{error}");
        assert!(error.contains("hint: make --memory smaller"), "{error}");
    }
}
