//! What the page asks, as a command line.

use std::path::Path;

use serde::Deserialize;

/// A command that the page asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// The memory of a step.
    Estimate,
    /// The largest batches.
    MaxBatch,
}

impl Command {
    /// The command that is asked at `path`.
    pub fn of_path(path: &str) -> Option<Self> {
        match path {
            "/estimate" => Some(Self::Estimate),
            "/max-batch" => Some(Self::MaxBatch),
            _ => None,
        }
    }

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Estimate => "estimate",
            Self::MaxBatch => "max-batch",
        }
    }
}

/// A question of the page.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Question {
    /// A model of the zoo, or a path.
    pub model: String,
    /// The content of a `config.json`, in place of a model.
    #[serde(default)]
    pub config: Option<String>,
    precision: String,
    #[serde(default)]
    batch: Option<u64>,
    #[serde(default)]
    seq: Option<u64>,
    #[serde(default)]
    gpus: Vec<String>,
}

impl Question {
    /// The arguments of `command` about `model`, which draws the step of an estimate into `chart`.
    pub fn arguments(&self, command: Command, model: &str, chart: &Path) -> Vec<String> {
        // With `=` no value is taken for an option; a model is none if it begins with a folder.
        let model = match model.starts_with('-') {
            true => format!("./{model}"),
            false => model.to_string(),
        };
        let mut arguments = vec![command.name().to_string(), model];
        let mut add = |option: &str, value: &str| arguments.push(format!("--{option}={value}"));
        add("precision", &self.precision);
        if let Some(seq) = self.seq {
            add("seq", &seq.to_string());
        }
        for gpu in &self.gpus {
            add("gpu", gpu);
        }
        if command == Command::Estimate {
            if let Some(batch) = self.batch {
                add("batch", &batch.to_string());
            }
            add("svg", &chart.display().to_string());
        }
        add("format", "json");
        arguments
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_value_becomes_an_option() {
        let text =
            r#"{"model": "--html=x", "precision": "--quiet", "gpus": ["--output=y"], "seq": 8}"#;
        let question: Question = serde_json::from_str(text).unwrap();
        let arguments = question.arguments(Command::MaxBatch, &question.model, Path::new("c"));
        assert_eq!(
            arguments,
            [
                "max-batch",
                "./--html=x",
                "--precision=--quiet",
                "--seq=8",
                "--gpu=--output=y",
                "--format=json"
            ]
        );
    }

    #[test]
    fn only_an_estimate_has_a_batch_and_a_chart() {
        let question = Question {
            precision: "fp32".into(),
            batch: Some(4),
            ..Question::default()
        };
        let arguments = question.arguments(Command::Estimate, "vgg-16", Path::new("c"));
        assert!(arguments.contains(&"--batch=4".into()) && arguments.contains(&"--svg=c".into()));
        let arguments = question.arguments(Command::MaxBatch, "vgg-16", Path::new("c"));
        assert!(!arguments.iter().any(|argument| argument.contains("batch=")));
    }

    #[test]
    fn other_fields_are_refused() {
        let text = r#"{"model": "vgg-16", "precision": "fp32", "output": "/tmp/x"}"#;
        assert!(serde_json::from_str::<Question>(text).is_err());
    }
}
