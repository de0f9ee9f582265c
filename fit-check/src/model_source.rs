//! Finds models: by their name in the zoo or on the Hugging Face Hub, or by a path on the command line.

mod adapter;
mod checkpoint;
mod file_kind;
mod header;
mod hub;
mod model_files;
mod weights_check;

use std::path::{Path, PathBuf};

use burn::tensor::Device;
use model_zoo::{ConfigModel, Defaults, Error, Job, Model, Observer, TinyModel, Variant};
use serde::{Deserialize, Serialize};
use tempfile::TempDir;

pub use checkpoint::Checkpoint;
pub use header::StoredTensor;
pub use model_files::is_path;
pub use weights_check::{Confidence, WeightsCheck};

use self::hub::{Found, Hub};
use self::model_files::{CONFIG, ModelFiles};
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

/// A model as a process of this program is told it: it reads no file and asks nobody again.
#[derive(Serialize, Deserialize)]
enum Told {
    /// A network of the zoo, or a tiny one, by its name.
    Zoo(String),
    /// A network with the dimensions of a `config.json`.
    Config { name: String, text: String },
}

impl AnyModel {
    /// The text by which a child process finds the model.
    pub fn text(&self) -> String {
        let told = match self {
            Self::ConfigModel(model) => Told::Config {
                name: model.name().into(),
                text: model.text().into(),
            },
            other => Told::Zoo(other.name().into()),
        };
        serde_json::to_string(&told).expect("names and texts are JSON")
    }

    /// The model with this [text](Self::text).
    ///
    /// # Errors
    ///
    /// It is no such text.
    pub fn of_text(text: &str) -> anyhow::Result<Self> {
        Ok(match serde_json::from_str(text)? {
            Told::Zoo(name) => of_zoo(&name)?.0,
            Told::Config { name, text } => {
                Self::ConfigModel(Box::new(ConfigModel::read(&name, &text)?))
            }
        })
    }
}

/// What is known of a model besides its training step.
#[derive(Clone, Debug, Default)]
pub struct Origin {
    /// The weights file, if there is one.
    pub checkpoint: Option<Checkpoint>,
    /// The published variant, if the model is of the zoo.
    pub published: Option<Box<Variant>>,
    /// Where its configuration comes from if not from a path, as a sentence.
    source: Option<String>,
}

/// The model that `name` means: a path, a model of the zoo, or one on the Hugging Face Hub (`owner/name`), which `offline`
/// keeps from being asked.
///
/// # Errors
///
/// There is no such model, or its files cannot be read.
pub fn find(name: &str, offline: bool) -> Result<(AnyModel, Origin), UserError> {
    if !is_path(name) {
        return of_zoo(name);
    }
    let path = Path::new(name);
    if hub::is_name(name) && !path.exists() {
        return of_hub(name, &Hub::of_user(offline));
    }
    of_files(&ModelFiles::find(path)?)
}

/// The model of the zoo called `name`.
fn of_zoo(name: &str) -> Result<(AnyModel, Origin), UserError> {
    if let Some(network) = model_zoo::find_tiny(name) {
        return Ok((AnyModel::TinyModel(Box::new(network)), Origin::default()));
    }
    let variant = Box::new(model_zoo::find(name)?);
    let origin = Origin {
        published: Some(variant.clone()),
        ..Origin::default()
    };
    Ok((AnyModel::Published(variant), origin))
}

/// The model that `hub` knows as `name`.
fn of_hub(name: &str, hub: &Hub) -> Result<(AnyModel, Origin), UserError> {
    let short = |commit: &str| commit.chars().take(7).collect::<String>();
    let (found, source) = match hub.find(name)? {
        Found::Cached(folder, commit) => (
            of_files(&ModelFiles::in_snapshot(name, &folder))?,
            format!(
                "{CONFIG} of commit {} in the local Hugging Face cache",
                short(&commit)
            ),
        ),
        Found::Fetched(text, commit) => (
            of_config(name, &Path::new(name).join(CONFIG), &text, &[])?,
            match commit {
                Some(commit) => format!("{CONFIG} of commit {} on {}", short(&commit), hub.host()),
                None => format!("{CONFIG} from {}", hub.host()),
            },
        ),
    };
    let (model, origin) = found;
    let source = Some(source);
    Ok((model, Origin { source, ..origin }))
}

/// The model of these `files`.
fn of_files(files: &ModelFiles) -> Result<(AnyModel, Origin), UserError> {
    match &files.config {
        None => Err(without_network(&files.name, &checkpoint(&files.weights)?)),
        Some(path) => {
            let text = model_files::read_config(path)?;
            of_config(&files.name, path, &text, &files.weights)
        }
    }
}

/// The weights in these `files`, if there are any.
fn checkpoint(files: &[PathBuf]) -> Result<Option<Checkpoint>, UserError> {
    match files {
        [] => Ok(None),
        files => Checkpoint::read(files).map(Some),
    }
}

/// The model called `name` with the configuration `text`, which `path` names for people, and with the weights in these files.
fn of_config(
    name: &str,
    path: &Path,
    text: &str,
    weights: &[PathBuf],
) -> Result<(AnyModel, Origin), UserError> {
    match ConfigModel::read(name, text) {
        Ok(network) => {
            let origin = Origin {
                checkpoint: checkpoint(weights)?,
                ..Origin::default()
            };
            Ok((AnyModel::ConfigModel(Box::new(network)), origin))
        }
        Err(Error::OtherLibrary {
            library: "PEFT", ..
        }) => Err(adapter::not_a_model(path, text)),
        Err(error) => {
            let is_unknown = matches!(error, Error::Unsupported { .. });
            let error = UserError::from(error).about(path.display());
            match checkpoint(weights) {
                Ok(Some(weights)) if is_unknown => {
                    Err(error.and(&format!("its weights are {weights}")))
                }
                _ => Err(error),
            }
        }
    }
}

/// A `config.json` that another program is to read.
#[derive(Debug)]
pub struct Configuration {
    /// The name of its model.
    pub name: String,
    /// Where it is.
    pub path: PathBuf,
    /// What it says.
    pub text: String,
    /// The folder that was made for it, if it is in no file of the user's.
    _folder: Option<TempDir>,
}

/// The configuration that `name` means: a path, what is beside the weights at a path, or that of a model on the Hugging Face Hub
/// (`owner/name`), which `offline` keeps from being asked.
///
/// # Errors
///
/// There is none, or it cannot be read.
pub fn configuration(name: &str, offline: bool) -> Result<Configuration, UserError> {
    let path = Path::new(name);
    let files = match hub::is_name(name) && !path.exists() {
        false => ModelFiles::find(path)?,
        true => match Hub::of_user(offline).find(name)? {
            Found::Cached(folder, _) => ModelFiles::in_snapshot(name, &folder),
            Found::Fetched(text, _) => return written(name, text),
        },
    };
    let Some(path) = files.config else {
        return Err(without_network(&files.name, &checkpoint(&files.weights)?));
    };
    Ok(Configuration {
        name: files.name,
        text: model_files::read_config(&path)?,
        path,
        _folder: None,
    })
}

/// The configuration of the model `name` with this `text`, in a folder of its own.
///
/// # Errors
///
/// There is no room for it.
pub fn written(name: &str, text: String) -> Result<Configuration, UserError> {
    let written = || {
        let folder = TempDir::with_prefix("fit-check-")?;
        let path = folder.path().join(CONFIG);
        std::fs::write(&path, &text)?;
        Ok::<_, std::io::Error>((folder, path))
    };
    let (folder, path) = written().map_err(|error| UserError::new(error.to_string()))?;
    Ok(Configuration {
        name: name.into(),
        path,
        text,
        _folder: Some(folder),
    })
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
    let source = origin.source.iter().cloned();
    let notes = source.chain(network.absent()).chain(network.notes(job));
    let notes = notes.collect();
    Ok(Some(WeightsCheck { notes, ..check }))
}
