//! Finds models: by their name in the zoo, or by a path on the command line.

mod adapter;
mod checkpoint;
mod file_kind;
mod header;
mod model_files;
mod weights_check;

use std::path::{Path, PathBuf};

use burn::tensor::Device;
use model_zoo::{ConfigModel, Defaults, Error, Job, Model, Observer, TinyModel, Variant};

pub use checkpoint::Checkpoint;
pub use header::StoredTensor;
pub use model_files::is_path;
pub use weights_check::{Confidence, WeightsCheck};

use self::model_files::ModelFiles;
use crate::hints::ANY_NETWORK;
use crate::step::untrained;
use crate::user_error::UserError;

/// The model to train.
#[derive(Clone, Debug)]
pub enum AnyModel {
    /// A published network.
    Published(Box<Variant>),
    /// A tiny model: a network of the zoo with small dimensions.
    TinyModel(Box<TinyModel>),
    /// A network with the dimensions in a `config.json`.
    ConfigModel(Box<ConfigModel>),
}

/// Evaluates an expression with the model, whatever its type.
macro_rules! of_model {
    ($any:expr, $model:ident => $value:expr) => {
        match $any {
            AnyModel::Published($model) => $value,
            AnyModel::TinyModel($model) => $value,
            AnyModel::ConfigModel($model) => $value,
        }
    };
}

impl Model for AnyModel {
    fn name(&self) -> &str {
        of_model!(self, model => model.name())
    }

    fn defaults(&self) -> Defaults {
        of_model!(self, model => model.defaults())
    }

    fn file(&self) -> Option<&'static str> {
        of_model!(self, model => model.file())
    }

    fn published(&self) -> Option<&'static str> {
        of_model!(self, model => model.published())
    }

    fn check(&self, job: &Job) -> Result<(), Error> {
        of_model!(self, model => model.check(job))
    }

    fn train<W: Observer>(
        &self,
        job: &Job,
        device: &Device,
        steps: usize,
        observer: &mut W,
    ) -> Result<(), W::Stop> {
        of_model!(self, model => model.train(job, device, steps, observer))
    }
}

/// What is known of a model besides its training step.
#[derive(Clone, Debug, Default)]
pub struct Origin {
    /// The weights file, if there is one.
    pub checkpoint: Option<Checkpoint>,
    /// The published variant, if the model is of the zoo.
    pub published: Option<Box<Variant>>,
}

/// The model that `name` means: a path, or a model of the zoo.
///
/// # Errors
///
/// There is no such model, or its files cannot be read.
pub fn find(name: &str) -> Result<(AnyModel, Origin), UserError> {
    if !is_path(name) {
        if let Some(network) = model_zoo::find_tiny(name) {
            return Ok((AnyModel::TinyModel(Box::new(network)), Origin::default()));
        }
        let variant = Box::new(model_zoo::find(name)?);
        let origin = Origin {
            published: Some(variant.clone()),
            ..Origin::default()
        };
        return Ok((AnyModel::Published(variant), origin));
    }
    let files = ModelFiles::find(Path::new(name))?;
    let checkpoint = || match files.weights.as_slice() {
        [] => Ok(None),
        files => Checkpoint::read(files).map(Some),
    };
    let Some(path) = &files.config else {
        return Err(without_network(&files.name, &checkpoint()?));
    };
    let text = model_files::read_config(path)?;
    match ConfigModel::read(&files.name, &text) {
        Ok(network) => {
            let origin = Origin {
                checkpoint: checkpoint()?,
                published: None,
            };
            Ok((AnyModel::ConfigModel(Box::new(network)), origin))
        }
        Err(Error::OtherLibrary {
            library: "PEFT", ..
        }) => Err(adapter::not_a_model(path, &text)),
        Err(error) => {
            let is_unknown = matches!(error, Error::Unsupported { .. });
            let error = UserError::from(error).about(path.display());
            match checkpoint() {
                Ok(Some(weights)) if is_unknown => {
                    Err(error.and(&format!("its weights are {weights}")))
                }
                _ => Err(error),
            }
        }
    }
}

/// The configuration that `path` names, or that is beside its weights: the name of its model, its path, and its text.
///
/// # Errors
///
/// There is none, or it cannot be read.
pub fn configuration(path: &str) -> Result<(String, PathBuf, String), UserError> {
    let files = ModelFiles::find(Path::new(path))?;
    let Some(config) = files.config else {
        let weights = match files.weights.as_slice() {
            [] => None,
            files => Some(Checkpoint::read(files)?),
        };
        return Err(without_network(&files.name, &weights));
    };
    let text = model_files::read_config(&config)?;
    Ok((files.name, config, text))
}

/// The error for weights whose network no configuration names.
fn without_network(name: &str, checkpoint: &Option<Checkpoint>) -> UserError {
    let weights = checkpoint
        .as_ref()
        .map_or("weights".into(), Checkpoint::to_string);
    UserError::new(format!(
        "{name} has {weights}, and no config.json that names its network"
    ))
    .hint(format!("put its config.json beside it; {ANY_NETWORK}"))
}

/// Compares the weights file of the model with its network, as `job` builds it.
///
/// # Errors
///
/// The network cannot be built.
pub fn compare(
    model: &AnyModel,
    origin: &Origin,
    job: &Job,
) -> Result<Option<WeightsCheck>, UserError> {
    let AnyModel::ConfigModel(network) = model else {
        return Ok(None);
    };
    let check = match &origin.checkpoint {
        None => WeightsCheck::without_weights(),
        // The file has more than the network, under names of its own.
        Some(_) if network.is_part() => WeightsCheck::without_weights(),
        Some(checkpoint) => {
            let published = untrained(|device| network.published_tensors(job, device))?;
            WeightsCheck::of(&published, checkpoint)
        }
    };
    let notes = network.notes(job);
    Ok(Some(WeightsCheck { notes, ..check }))
}
