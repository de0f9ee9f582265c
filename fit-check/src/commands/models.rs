//! The zoo: variants, parameters, defaults, sources.

use super::FITS;
use crate::cli;
use crate::output;
use crate::report::ModelReport;
use crate::trouble::Trouble;

/// Runs the command.
pub fn run(raw: &cli::Models) -> anyhow::Result<u8> {
    let models: Vec<ModelReport> = match &raw.model {
        Some(name) => {
            let variant = model_zoo::find(name).map_err(Trouble::from)?;
            vec![ModelReport::from(&variant)]
        }
        None => model_zoo::variants()
            .iter()
            .map(ModelReport::from)
            .collect(),
    };
    output::check(&raw.output)?;
    output::write(&models, &raw.output)?;
    Ok(FITS)
}
