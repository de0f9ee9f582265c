//! Models that are not of the zoo: weights files that another program wrote, configurations
//! that were published.

use std::path::{Path, PathBuf};

use clap::Parser;
use estimator::{CardSpec, Estimate, Runtime};
use fit_check::ask::Ask;
use fit_check::cli::{Cli, Command};
use fit_check::own::{Checkpoint, Confidence};
use fit_check::simulate_step;

/// The fixtures; `write.py` among them says where they are from.
fn own_models() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../fit-check/tests/own_models")
}

/// What `fit-check estimate MODEL OPTIONS` asks.
fn ask(model: &str, options: &[&str]) -> Ask {
    let path = own_models().join(model);
    let mut words = vec!["fit-check", "estimate", path.to_str().unwrap()];
    words.extend(options);
    let Command::Estimate(raw) = Cli::parse_from(words).command else {
        unreachable!("the command is estimate");
    };
    Ask::new(&raw.job, raw.batch.as_deref()).unwrap()
}

fn estimate(ask: &Ask) -> Estimate {
    let spec = CardSpec::endless(Runtime::Cuda);
    let simulated = simulate_step(&ask.model, &ask.job, spec.clone()).unwrap();
    Estimate::of(&simulated, &spec)
}

/// The counts that `write.py` printed, by numpy.
#[test]
fn weights_files_of_another_program_are_counted_exactly() {
    for (model, tensors, elements, dtypes) in [
        ("tiny-bert", 41, 22_562, vec!["F32"]),
        ("tiny-gpt2", 30, 29_696, vec!["F16"]),
        ("tiny-llama", 21, 24_992, vec!["F16"]),
        ("tiny-vit", 40, 24_003, vec!["F32"]),
        ("tiny-resnet", 104, 34_608, vec!["F32", "I64"]),
    ] {
        let ask = ask(model, &[]);
        let checkpoint: &Checkpoint = ask.origin.checkpoint.as_ref().unwrap();
        assert_eq!(checkpoint.tensors.len(), tensors, "{model}");
        let sum: u64 = checkpoint.tensors.iter().map(|t| t.elements()).sum();
        assert_eq!(sum, elements, "{model}");
        let found = checkpoint.by_dtype();
        let found: Vec<_> = found.iter().map(|(dtype, _)| dtype.as_str()).collect();
        assert_eq!(found, dtypes, "{model}");
        let comparison = ask.comparison.as_ref().unwrap();
        assert_eq!(comparison.confidence, Confidence::High, "{comparison:?}");
    }
}

/// transformers: BertForPreTraining, GPT2LMHeadModel, LlamaForCausalLM; the last two counts
/// are those of the papers' tables too.
#[test]
fn published_configurations_give_the_published_counts() {
    for (config, parameters) in [
        ("bert-base-uncased", 110_106_428),
        ("gpt2", 124_439_808),
        ("tinyllama-1.1b", 1_100_048_384),
        ("llama-2-7b", 6_738_415_616),
    ] {
        let ask = ask(
            &format!("published/{config}.json"),
            &["--batch", "1", "--seq", "16"],
        );
        assert_eq!(estimate(&ask).parameters.trainable, parameters, "{config}");
    }
}

/// A configuration and the network of the zoo with the same dimensions take the same memory.
#[test]
fn a_configuration_is_the_network_of_the_zoo() {
    let own = ask("published/gpt2.json", &["--batch", "1", "--seq", "128"]);
    let variant = model_zoo::find("gpt2").unwrap();
    let spec = CardSpec::endless(Runtime::Cuda);
    let simulated = simulate_step(&variant, &own.job, spec.clone()).unwrap();
    assert_eq!(estimate(&own).peak, Estimate::of(&simulated, &spec).peak);
}

/// What is left of a file when a layer is cut out of its network.
#[test]
fn differences_are_named() {
    let folder = tempfile::tempdir().unwrap();
    for file in ["model.safetensors", "config.json"] {
        let from = own_models().join("tiny-bert").join(file);
        std::fs::copy(from, folder.path().join(file)).unwrap();
    }
    let config = folder.path().join("config.json");
    let text = std::fs::read_to_string(&config).unwrap();
    let text = text
        .replace("\"num_hidden_layers\": 2", "\"num_hidden_layers\": 1")
        .replace("\"vocab_size\": 100", "\"vocab_size\": 101");
    std::fs::write(&config, text).unwrap();
    let ask = ask(folder.path().to_str().unwrap(), &[]);
    let comparison = ask.comparison.unwrap();
    assert_eq!(comparison.confidence, Confidence::Low);
    // The sixteen tensors of the second layer.
    assert_eq!(comparison.unexpected.len(), 16);
    assert_eq!(
        comparison.other_shape,
        ["bert.embeddings.word_embeddings.weight: [100, 32] in the file, [101, 32] expected"]
    );
    assert!(comparison.missing.is_empty());
}

/// Adam remembers two values per parameter (Kingma, Ba 2014), and mixed precision keeps a
/// copy of four bytes (Micikevicius et al. 2018). The fixture's widths fill rows exactly on a
/// card without pitched rows, so these are the bytes.
#[test]
fn weights_alone_take_what_the_papers_say() {
    use fit_check::lower_bound::LowerBound;
    let ask = ask(
        "weights-only/model.safetensors",
        &[
            "--runtime",
            "wgpu",
            "--precision",
            "mixed",
            "--optimizer",
            "adam",
        ],
    );
    let checkpoint = ask.origin.checkpoint.clone().unwrap();
    let bound = LowerBound::of(&ask, &checkpoint).unwrap();
    let parameters = 64 * 256 + 256 * 128;
    assert_eq!(bound.trainable, parameters);
    assert_eq!(bound.held.weights_bytes.0, 2 * parameters);
    assert_eq!(bound.held.gradients_bytes.0, 2 * parameters);
    assert_eq!(bound.held.master_bytes.0, 4 * parameters);
    assert_eq!(bound.held.optimizer_bytes.0, 8 * parameters);
    assert_eq!(bound.held.activations_bytes, None);
}
