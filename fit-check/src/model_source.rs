//! Finds models: by their name in the zoo, or by a path on the command line.

mod checkpoint;
mod header;
mod model_files;
mod weights_check;

use std::path::Path;

use burn::tensor::Device;
use model_zoo::{
    ConfigModel, Defaults, Error, Job, Model, Observer, TinyModel, Variant, Weights,
    published_tensors,
};

pub use checkpoint::{Checkpoint, Sum};
pub use header::StoredTensor;
pub use model_files::is_path;
pub use weights_check::{Confidence, WeightsCheck};

use self::model_files::ModelFiles;
use crate::step::untrained;
use crate::user_error::{UserError, either};

/// The model to train.
#[derive(Clone, Debug)]
pub enum AnyModel {
    /// A published network.
    Published(Box<Variant>),
    /// A tiny model: a network of the zoo with small dimensions.
    TinyModel(Box<TinyModel>),
    /// A network with the dimensions in a `config.json`.
    ConfigModel(Box<ConfigModel>),
    /// Weights of which only names and shapes are known.
    Weights(Weights),
}

/// Evaluates an expression with the model, whatever its type.
macro_rules! of_model {
    ($any:expr, $model:ident => $value:expr) => {
        match $any {
            AnyModel::Published($model) => $value,
            AnyModel::TinyModel($model) => $value,
            AnyModel::ConfigModel($model) => $value,
            AnyModel::Weights($model) => $value,
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
    /// Why its configuration could not be used, if it has one.
    pub unsupported: Option<String>,
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
    let checkpoint = match files.weights.as_slice() {
        [] => None,
        files => Some(Checkpoint::read(files)?),
    };
    let unsupported = match &files.config {
        None => None,
        Some(path) => match ConfigModel::read(&files.name, &model_files::read_config(path)?) {
            Ok(network) => {
                let origin = Origin {
                    checkpoint,
                    ..Origin::default()
                };
                return Ok((AnyModel::ConfigModel(Box::new(network)), origin));
            }
            Err(Error::Unsupported { what, supported }) if checkpoint.is_some() => Some(format!(
                "{} has {what}, which is not supported: supported is {}",
                path.display(),
                either(&supported)
            )),
            // The configurations of other libraries have no `model_type`.
            Err(Error::Field { field, got, .. })
                if field == "model_type" && checkpoint.is_some() =>
            {
                Some(format!("{}: `{field}` is {got}", path.display()))
            }
            Err(error) => return Err(UserError::from(error).about(path.display())),
        },
    };
    let Some(checkpoint) = checkpoint else {
        return Err(model_files::nothing_in(Path::new(name)));
    };
    let weights = Weights::new(&files.name, checkpoint.weight_tensors());
    let origin = Origin {
        checkpoint: Some(checkpoint),
        unsupported,
        published: None,
    };
    Ok((AnyModel::Weights(weights), origin))
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
    let Some(checkpoint) = &origin.checkpoint else {
        return Ok(Some(WeightsCheck::without_weights()));
    };
    let published = untrained(|device| published_tensors(&**network, job, device))?;
    Ok(Some(WeightsCheck::of(&published, checkpoint)))
}
