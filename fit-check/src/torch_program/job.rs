//! A network and its training step in PyTorch, where the options of the command line say all of it.

use model_zoo::Input;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::input_options::SIZES;

/// A training step of a network.
#[derive(Clone, Debug, Default, JsonSchema, Serialize, Deserialize)]
#[serde(default)]
pub struct TorchJob {
    /// The network's name.
    pub model: String,
    /// Samples in a batch; absent if the batch is the answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batch: Option<u64>,
    /// Sizes of a sample.
    pub input: Input,
    /// Number formats: fp32, fp16, bf16, or mixed, which is autocast to bf16.
    pub precision: String,
    /// Optimizer.
    pub optimizer: String,
    /// Batches per optimizer step, if there is more than one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accumulate: Option<u64>,
    /// Whether the backward pass recomputes activations.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub checkpointing: bool,
    /// Path prefixes of frozen parameters.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub freeze: Vec<String>,
    /// The rank of low-rank adapters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lora: Option<u64>,
    /// The projections with an adapter, as typed; none for those that peft chooses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lora_targets: Option<String>,
    /// The format of the frozen weights beside adapters, `4bit`; none for that of the number formats.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lora_base: Option<String>,
    /// The attention kernel, as transformers calls it; none for its default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attention: Option<String>,
    /// What somebody who asks for this job should know.
    #[serde(skip)]
    pub note: Option<String>,
}

impl TorchJob {
    /// `224x224 px`: the sizes of a sample that decide the figures.
    pub fn sample(&self) -> String {
        let sizes = SIZES.iter().filter_map(|option| {
            let value = self.input.get(option.size)?;
            Some(format!("{value}{}", option.headline_unit?))
        });
        sizes.collect::<Vec<_>>().join(", ")
    }

    /// `mixed (bf16)`: the number formats, with the type of 16 bits.
    pub fn number_format(&self) -> &str {
        match self.precision.as_str() {
            // Autocast to bf16, in `zoo/train.py` and in `training_step.py`.
            "mixed" => "mixed (bf16)",
            other => other,
        }
    }

    /// The tokens of `batch` samples, if samples are made of tokens.
    pub fn tokens_of(&self, batch: u64) -> Option<u64> {
        self.input.tokens().map(|tokens| batch * tokens as u64)
    }

    /// `batch 32, 224x224 px, fp32, momentum`: all that decides the figures.
    pub fn recipe(&self) -> Vec<String> {
        let mut parts = Vec::new();
        if let Some(batch) = self.batch {
            let tokens = self.tokens_of(batch);
            parts.push(format!(
                "batch {batch}{}",
                crate::output::job_lines::in_tokens(tokens)
            ));
        }
        parts.extend(
            self.accumulate
                .map(|batches| format!("{batches} batches a step")),
        );
        parts.extend(Some(self.sample()).filter(|sample| !sample.is_empty()));
        parts.push(self.number_format().to_string());
        parts.push(self.optimizer.clone());
        parts.extend(self.settings());
        parts
    }

    /// What differs from a plain step: checkpointing, adapters, an attention kernel.
    fn settings(&self) -> Vec<String> {
        let mut parts = Vec::new();
        if self.checkpointing {
            parts.push("checkpointing".into());
        }
        if let Some(rank) = self.lora {
            let targets = self.lora_targets.as_ref();
            let targets = targets.map_or(String::new(), |names| format!(" on {names}"));
            let base = self.lora_base.as_ref();
            let base = base.map_or(String::new(), |base| format!(", {base} weights"));
            parts.push(format!("LoRA of rank {rank}{targets}{base}"));
        }
        if let Some(attention) = &self.attention {
            parts.push(format!("{attention} attention"));
        }
        if !self.freeze.is_empty() {
            parts.push(format!("{} frozen", self.freeze.join(", ")));
        }
        parts
    }

    /// `224x224 px, momentum`: the recipe without batch and number formats, which have columns of their own.
    pub fn short_recipe(&self) -> String {
        let mut parts = vec![self.sample(), self.optimizer.clone()];
        parts.extend(
            self.accumulate
                .map(|batches| format!("{batches} batches a step")),
        );
        parts.extend(self.settings());
        parts.retain(|part| !part.is_empty());
        parts.join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recipe_has_all_that_decides_the_figures() {
        let job = TorchJob {
            model: "llama".into(),
            batch: Some(2),
            input: Input {
                seq: Some(512),
                ..Input::default()
            },
            precision: "mixed".into(),
            optimizer: "adamw8bit".into(),
            lora: Some(8),
            lora_base: Some("4bit".into()),
            attention: Some("eager".into()),
            ..TorchJob::default()
        };
        let recipe = "batch 2 (1,024 tokens), 512 tokens, mixed (bf16), adamw8bit, LoRA of rank 8, 4bit weights, eager attention";
        assert_eq!(job.recipe().join(", "), recipe);
        assert_eq!(
            job.short_recipe(),
            "512 tokens, adamw8bit, LoRA of rank 8, 4bit weights, eager attention"
        );
    }
}
