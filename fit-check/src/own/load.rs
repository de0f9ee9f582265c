//! Puts the values of a weights file into a network.

use std::collections::BTreeMap;
use std::path::Path;

use burn::module::Module;
use burn::optim::GradientsParams;
use burn::tensor::kind::Basic;
use burn::tensor::{Device, FloatDType, Tensor, TensorData};
use burn_store::burn_pack;
use burn_store::{ModuleSnapshot, ModuleStore, SafetensorsStore, bridge};
use model_zoo::{Job, Model, Phase, PublishedTensor, PublishedTensors, Watcher, published_tensors};
use serde::Serialize;

use super::comparison::current;
use super::header;
use super::place::{Place, unreadable};
use crate::trouble::Trouble;

/// What became of the tensors of a network.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Loaded {
    /// Paths of those that have their values from the file.
    pub loaded: Vec<String>,
    /// Paths of those that the file does not hold, or not in their shape.
    pub missing: Vec<String>,
}

/// The values of a network's tensors, from files that transformers or burn wrote.
pub struct Values {
    stored: BTreeMap<String, burn_pack::Tensor>,
    published: PublishedTensors,
    float: FloatDType,
}

impl Values {
    /// Of the weights at `path`: a file, an index or a folder, for the network that has the
    /// tensors `published`, in the float type `float`. The values are not read yet.
    ///
    /// # Errors
    ///
    /// A file cannot be read.
    pub fn open(
        path: &Path,
        published: PublishedTensors,
        float: FloatDType,
    ) -> Result<Self, Trouble> {
        let mut stored = BTreeMap::new();
        for file in Place::find(path)?.weights {
            // burn-store trusts what a header says; this does not.
            header::read(&file)?;
            let mut store = SafetensorsStore::from_file(&file);
            let tensors = store
                .get_all_tensors()
                .map_err(|error| unreadable(&file, &error.to_string()))?;
            let tensors = tensors.iter();
            stored.extend(tensors.map(|(name, tensor)| (current(name), tensor.clone())));
        }
        Ok(Self {
            stored,
            published,
            float,
        })
    }

    /// As [`Values::open`], for the network that `model` trains as `job` says.
    ///
    /// # Errors
    ///
    /// As [`Values::open`].
    pub fn of(path: &Path, model: &impl Model, job: &Job) -> Result<Self, Trouble> {
        // Of the network only names and shapes are wanted, and nothing is to be left of it on
        // the device that is measured.
        let published = published_tensors(model, job, &Device::flex().autodiff());
        Self::open(path, published, job.precision.float_type())
    }

    /// `module`, which has the tensors that were said, with the values in it.
    pub fn put_into<M: Module>(&self, mut module: M) -> (M, Loaded) {
        let mut found = Vec::new();
        let mut loaded = Loaded::default();
        for tensor in &self.published.tensors {
            match self.value(tensor) {
                Some(value) if value.shape().to_vec() == tensor.shape => {
                    found.push(bridge::from_data(value, tensor.path.clone(), None));
                }
                _ => loaded.missing.push(tensor.path.clone()),
            }
        }
        loaded.loaded = module.apply(found, None, None, false).applied;
        (module, loaded)
    }

    /// The value of `tensor` as burn holds it.
    fn value(&self, tensor: &PublishedTensor) -> Option<TensorData> {
        // A file that burn wrote has burn's paths and burn's layout.
        if let Some(stored) = self.stored.get(&tensor.path)
            && stored.shape.to_vec() == tensor.shape
        {
            return self.read(stored);
        }
        let parts = tensor.names.iter().map(|name| {
            let stored = self.stored.get(name);
            let stored = stored.or_else(|| self.stored.get(self.published.in_base(name)?))?;
            self.read(stored)
        });
        let parts: Vec<_> = parts.collect::<Option<_>>()?;
        match (<[TensorData; 1]>::try_from(parts), tensor.transposed) {
            (Ok([whole]), false) => Some(whole),
            (Ok([whole]), true) => beside(vec![whole], true),
            (Err(parts), transposed) => {
                let data = beside(parts, transposed)?;
                let shape = tensor.shape.clone();
                Some(TensorData::from_bytes_vec(
                    data.as_bytes().to_vec(),
                    shape,
                    data.dtype(),
                ))
            }
        }
    }

    fn read(&self, stored: &burn_pack::Tensor) -> Option<TensorData> {
        let data = bridge::to_data(stored).ok()?;
        Some(data.convert_dtype(self.float.into()))
    }
}

/// Puts values into the module with which a training step starts, and hands on what the step
/// says.
pub struct Loading<'a, W> {
    watcher: &'a mut W,
    values: Option<&'a Values>,
    /// What became of the tensors of the module; none while there was no such module, which is
    /// so to the end where a step trains several.
    pub loaded: Option<Loaded>,
}

impl<'a, W> Loading<'a, W> {
    /// Tells `watcher` of a step; `values` are put in, if there are any.
    pub fn new(values: Option<&'a Values>, watcher: &'a mut W) -> Self {
        Self {
            watcher,
            values,
            loaded: None,
        }
    }
}

impl<W: Watcher> Watcher for Loading<'_, W> {
    type Stop = W::Stop;

    fn start<M: Module>(&mut self, module: M) -> M {
        let module = self.watcher.start(module);
        match self.values {
            None => module,
            Some(values) => {
                let (module, loaded) = values.put_into(module);
                self.loaded = Some(loaded);
                module
            }
        }
    }

    fn module<M: Module>(&mut self, name: &str, module: &M) {
        self.watcher.module(name, module);
    }

    fn gradients<M: Module>(&mut self, module: &M, gradients: &GradientsParams) {
        self.watcher.gradients(module, gradients);
    }

    fn input<const D: usize, K: Basic>(&mut self, tensor: &Tensor<D, K>) {
        self.watcher.input(tensor);
    }

    fn loss(&mut self, loss: &Tensor<1>) {
        self.watcher.loss(loss);
    }

    fn end(&mut self, phase: Phase) -> Result<(), W::Stop> {
        self.watcher.end(phase)
    }
}

/// The vectors or matrices `parts` in one matrix, beside each other; each is transposed
/// before if `transposed`. None if they are no vectors or matrices.
fn beside(parts: Vec<TensorData>, transposed: bool) -> Option<TensorData> {
    let device = Device::flex();
    let parts = parts.into_iter().map(|part| {
        let [rows, columns] = match part.shape().to_vec()[..] {
            [columns] => [1, columns],
            [rows, columns] => [rows, columns],
            _ => return None,
        };
        let dtype = part.dtype();
        let bytes = part.as_bytes().to_vec();
        let matrix = TensorData::from_bytes_vec(bytes, [rows, columns], dtype);
        let matrix = Tensor::<2>::from_data(matrix, (&device, dtype));
        Some(match transposed {
            true => matrix.transpose(),
            false => matrix,
        })
    });
    let parts: Vec<_> = parts.collect::<Option<_>>()?;
    Some(Tensor::cat(parts, 1).into_data())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// torch keeps `[out, in]`, burn `[in, out]`; queries, keys and values lie beside each
    /// other in burn's columns.
    #[test]
    fn parts_are_transposed_and_put_beside_each_other() {
        let query = TensorData::from([[1.0f32, 2.0], [3.0, 4.0]]);
        let key = TensorData::from([[5.0f32, 6.0], [7.0, 8.0]]);
        let both = beside(vec![query, key], true).unwrap();
        both.assert_eq(
            &TensorData::from([[1.0f32, 3.0, 5.0, 7.0], [2.0, 4.0, 6.0, 8.0]]),
            true,
        );
    }
}
