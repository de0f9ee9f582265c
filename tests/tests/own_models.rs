//! Models outside the zoo: weights files that another program wrote, and published configurations.

use std::path::{Path, PathBuf};

use clap::Parser;
use estimator::{DeviceSpec, Estimate, Runtime, Tuning};
use fit_check::cli::{Cli, Command};
use fit_check::model_source::{Checkpoint, Confidence};
use fit_check::resolve::{Batch, ResolvedRequest};
use fit_check::simulate_step;

/// The fixtures; `write.py` beside them tells their source.
fn own_models() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../fit-check/tests/own_models")
}

/// The request of `fit-check estimate FIXTURE OPTIONS`.
fn request(fixture: &str, options: &[&str]) -> ResolvedRequest {
    let path = own_models().join(fixture);
    ask_for(path.to_str().unwrap(), options)
}

/// The request of `fit-check estimate MODEL OPTIONS`.
fn ask_for(model: &str, options: &[&str]) -> ResolvedRequest {
    let mut words = vec!["fit-check", "estimate", model];
    words.extend(options);
    let Command::Estimate(raw) = Cli::parse_from(words).command else {
        unreachable!("the command is estimate");
    };
    ResolvedRequest::new(
        &raw.job,
        Batch {
            samples: raw.batch.as_deref(),
            tokens: None,
        },
    )
    .unwrap()
}

/// Without the search for kernels to fuse, which would take nearly all of the time: neither counts nor the bytes of
/// weights depend on kernels.
fn estimate(request: &ResolvedRequest) -> Estimate {
    let device = DeviceSpec::unlimited(Runtime::Cuda)
        .with_tuning(Tuning::Cold)
        .unfused();
    let simulated = simulate_step(&request.model, &request.job, device).unwrap();
    simulated.estimate().unwrap()
}

/// `write.py` printed these counts, computed by numpy.
#[test]
fn weights_files_of_another_program_are_counted_exactly() {
    for (model, tensors, elements, dtypes) in [
        ("tiny-bert", 41, 22_562, vec!["F32"]),
        ("tiny-gpt2", 30, 29_696, vec!["F16"]),
        ("tiny-llama", 21, 24_992, vec!["F16"]),
        ("tiny-vit", 40, 24_003, vec!["F32"]),
        ("tiny-resnet", 104, 34_608, vec!["F32", "I64"]),
    ] {
        let request = request(model, &[]);
        let checkpoint: &Checkpoint = request.origin.checkpoint.as_ref().unwrap();
        assert_eq!(checkpoint.tensors.len(), tensors, "{model}");
        let sum: u64 = checkpoint.tensors.iter().map(|t| t.elements()).sum();
        assert_eq!(sum, elements, "{model}");
        let found = checkpoint.by_dtype();
        let found: Vec<_> = found.iter().map(|(dtype, _)| dtype.as_str()).collect();
        assert_eq!(found, dtypes, "{model}");
        let comparison = request.weights.as_ref().unwrap();
        assert_eq!(comparison.confidence, Confidence::High, "{comparison:?}");
    }
}

/// The counts of BertForPreTraining, GPT2LMHeadModel and LlamaForCausalLM in transformers; the last two are
/// also in the tables of the papers.
#[test]
fn published_configurations_give_the_published_counts() {
    for (config, parameters) in [
        ("bert-base-uncased", 110_106_428),
        ("gpt2", 124_439_808),
        ("tinyllama-1.1b", 1_100_048_384),
        ("llama-2-7b", 6_738_415_616),
    ] {
        let request = request(
            &format!("published/{config}.json"),
            &["--batch", "1", "--seq", "16"],
        );
        assert_eq!(
            estimate(&request).parameters.trainable,
            parameters,
            "{config}"
        );
    }
}

/// A configuration and the network of the zoo with the same dimensions take the same memory.
#[test]
fn a_configuration_is_the_network_of_the_zoo() {
    let own = request("published/gpt2.json", &["--batch", "1", "--seq", "128"]);
    let variant = model_zoo::find("gpt2").unwrap();
    let spec = DeviceSpec::unlimited(Runtime::Cuda);
    let zoo = simulate_step(&variant, &own.job, spec.clone()).unwrap();
    let own = simulate_step(&own.model, &own.job, spec).unwrap();
    assert_eq!(own.estimate().unwrap().peak, zoo.estimate().unwrap().peak);
}

/// The comparison names the tensors of a removed layer and those of another vocabulary.
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
    let request = request(folder.path().to_str().unwrap(), &[]);
    let comparison = request.weights.unwrap();
    assert_eq!(comparison.confidence, Confidence::Low);
    // The sixteen tensors of the second layer.
    assert_eq!(comparison.unexpected.len(), 16);
    assert_eq!(
        comparison.other_shape,
        ["bert.embeddings.word_embeddings.weight: [100, 32] in the file, [101, 32] expected"]
    );
    assert!(comparison.missing.is_empty());
}

/// Reading a device might never end.
#[test]
#[cfg(unix)]
fn a_link_to_a_device_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let link = folder.path().join("model.safetensors");
    std::os::unix::fs::symlink("/dev/zero", &link).unwrap();
    let refused = fit_check::model_source::find(link.to_str().unwrap(), true)
        .err()
        .unwrap();
    assert!(refused.to_string().contains("it is no regular file"));
}

/// An adapter of rank r beside a projection has r (in + out) values. tloen/alpaca-lora prints 4,194,304 for
/// Llama 7B, rank 8, on queries and values.
#[test]
fn adapters_have_as_many_values_as_arithmetic_says() {
    for (model, options, trainable) in [
        ("llama-2-7b", "--lora 8 --seq 16", 4_194_304),
        (
            "llama-2-7b",
            "--lora 16 --seq 16 --lora-targets q,k,v,o,gate,up,down",
            32 * 16 * (4 * (4096 + 4096) + 3 * (4096 + 11_008)),
        ),
        // Four heads of 64 for keys and values.
        (
            "tinyllama-1.1b",
            "--lora 8 --seq 16 --lora-base 8bit",
            22 * 8 * ((2048 + 2048) + (2048 + 256)),
        ),
        ("gpt2", "--lora 4 --seq 16", 12 * 4 * (768 + 3 * 768)),
        // The classifier is trained too.
        (
            "bert-base",
            "--lora 8 --seq 16",
            12 * 8 * 2 * (768 + 768) + 768 * 2 + 2,
        ),
        (
            "vit-b-16",
            "--lora 8 --lora-targets o",
            12 * 8 * (768 + 768) + 768 * 1000 + 1000,
        ),
        // Attention to itself in both stacks, and from the decoder to the encoder.
        (
            "transformer-base",
            "--lora 8 --seq 16",
            3 * 6 * 8 * 2 * (512 + 512),
        ),
    ] {
        let mut words: Vec<_> = options.split(' ').collect();
        words.extend(["--batch", "1"]);
        let request = ask_for(model, &words);
        let parameters = estimate(&request).parameters;
        assert_eq!(parameters.trainable, trainable, "{model}");
        assert!(parameters.frozen > parameters.trainable, "{model}");
    }
}

/// A frozen weight in 8 bits takes a quarter of the bytes of one in fp32, without its scales.
#[test]
fn a_quantized_base_is_smaller() {
    let weights = |base| {
        let options = ["--lora", "8", "--seq", "16", "--lora-base", base];
        estimate(&ask_for("tinyllama-1.1b", &options))
            .at_peak
            .parameters
    };
    let (dense, eight, four) = (weights("dense"), weights("8bit"), weights("4bit"));
    // All but the table of words and the output layer, 2 x 32,000 x 2,048.
    let projections = 4u64 * (1_100_048_384 - 2 * 32_000 * 2_048);
    let saved = |small: estimator::Bytes| (dense.0 - small.0) as f64 / projections as f64;
    assert!((saved(eight) - 3.0 / 4.0).abs() < 0.02, "{}", saved(eight));
    assert!((saved(four) - 7.0 / 8.0).abs() < 0.04, "{}", saved(four));
}
