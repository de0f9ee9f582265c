//! The zoo: variants, parameters, defaults, sources.

use model_zoo::{TinyModel, Variant};

use crate::cli;
use crate::exit_status::FITS;
use crate::output;
use crate::report::ModelReport;
use crate::user_error::UserError;

/// The published network called `name`.
fn published(name: &str) -> Result<Variant, UserError> {
    match model_zoo::find_tiny(name) {
        None => Ok(model_zoo::find(name)?),
        Some(TinyModel { name, of, .. }) => {
            let error = format!(
                "{name} is not published: it is {} made small, for `verify`",
                of.name
            );
            Err(UserError::new(error).hint(format!("fit-check models {}", of.name)))
        }
    }
}

/// Runs the command.
pub fn run(raw: &cli::Models) -> anyhow::Result<u8> {
    let models: Vec<ModelReport> = match &raw.model {
        Some(name) => {
            vec![ModelReport::from(&published(name)?)]
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
