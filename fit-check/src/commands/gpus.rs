//! The catalogue of cards: marketed and usable memory, provenance.

use estimator::Gpu;

use super::FITS;
use crate::cli;
use crate::output;
use crate::report::GpuReport;
use crate::trouble::Trouble;

/// Runs the command.
pub fn run(raw: &cli::Gpus) -> anyhow::Result<u8> {
    let cards: Vec<GpuReport> = match &raw.card {
        Some(name) => vec![GpuReport::from(Gpu::find(name).map_err(Trouble::from)?)],
        None => Gpu::all().iter().map(GpuReport::from).collect(),
    };
    output::check(&raw.output)?;
    output::write(&cards, &raw.output)?;
    Ok(FITS)
}
