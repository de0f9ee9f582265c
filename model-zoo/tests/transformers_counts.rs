//! Configurations have the parameters of the networks that transformers builds from them.
//!
//! `transformers/write.py` made the tables, and names the version.

use std::collections::BTreeMap;

use burn::module::{Module, ModuleVisitor, Param};
use burn::tensor::{Device, Tensor};
use model_zoo::{ConfigModel, Model, Observer, Phase, Request};
use serde::Deserialize;

/// A line of the table.
#[derive(Deserialize)]
struct Line {
    config: serde_json::Value,
    /// Elements of all parameters; none if transformers refuses the configuration.
    parameters: Option<u64>,
    /// The tensors that hold them.
    tensors: Option<u64>,
}

/// Counts the elements of a step's parameters, and stops it before any of them exists.
#[derive(Default)]
struct Count(u64);

impl Observer for Count {
    type Stop = ();

    fn module<M: Module>(&mut self, _name: &str, module: &M) {
        module.visit(self);
    }

    fn end(&mut self, _phase: Phase) -> Result<(), ()> {
        Err(())
    }
}

impl ModuleVisitor for Count {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        // burn creates running statistics at once, and parameters at their first use.
        if !param.is_initialized() || param.val().is_require_grad() {
            self.0 += param.lazy_shape().num_elements() as u64;
        }
    }
}

#[test]
fn configurations_are_counted_as_by_transformers() {
    for line in include_str!("transformers/counts.jsonl").lines() {
        let line: Line = serde_json::from_str(line).unwrap();
        let text = line.config.to_string();
        let read = ConfigModel::read("any", &text);
        let Some(parameters) = line.parameters else {
            assert!(read.is_err(), "transformers refuses {text}");
            continue;
        };
        let model = read.unwrap_or_else(|error| panic!("{error}: {text}"));
        let job = Request::default().resolve(&model).unwrap();
        let mut count = Count::default();
        let device = Device::flex().autodiff();
        assert!(model.train(&job, &device, 1, &mut count).is_err());
        // One parameter of ours can be several of theirs, and running statistics are none of theirs. A stack is one in
        // memory, and in files one for each expert.
        let published = model.published_tensors(&job, &device);
        let tensors = published.tensors.iter().map(|tensor| {
            let names = tensor.names.iter();
            match tensor.stacked {
                true => 1,
                false => names.filter(|name| !name.contains(".running_")).count(),
            }
        });
        let tensors: usize = tensors.sum();
        let found = (count.0, Some(tensors as u64));
        assert_eq!(found, (parameters, line.tensors), "{text}");
    }
}

/// A line of the table of names.
#[derive(Deserialize)]
struct Saved {
    config: serde_json::Value,
    /// The shapes of the tensors in the file.
    tensors: BTreeMap<String, Vec<usize>>,
}

#[test]
fn tensors_are_called_as_in_files_of_transformers() {
    for line in include_str!("transformers/names.jsonl").lines() {
        let Saved { config, tensors } = serde_json::from_str(line).unwrap();
        let model = ConfigModel::read("any", &config.to_string()).unwrap();
        let job = Request::default().resolve(&model).unwrap();
        let published = model.published_tensors(&job, &Device::flex().autodiff());
        let ours: BTreeMap<_, _> = published
            .tensors
            .iter()
            .flat_map(|tensor| {
                let shape = tensor.published_shape();
                tensor
                    .names
                    .iter()
                    .map(move |name| (name.clone(), shape.clone()))
            })
            .collect();
        for tensor in &published.tensors {
            assert!(!tensor.names.is_empty(), "{}: {config}", tensor.path);
        }
        let theirs: BTreeMap<_, _> = tensors
            .into_iter()
            .filter(|(name, _)| ours.contains_key(name) || !published.is_redundant(name))
            .collect();
        assert_eq!(ours, theirs, "{config}");
    }
}
