//! The loss of a small configuration of each `model_type` falls.

use std::convert::Infallible;

use burn::tensor::{Device, Tensor};
use model_zoo::{
    BaseFormat, ConfigModel, LoraRequest, Model, Observer, OptimizerKind, Phase, Request,
};

/// Collects the losses, and seeds the generator before each batch, so that all are the same.
struct Losses {
    device: Device,
    losses: Vec<f32>,
}

impl Observer for Losses {
    type Stop = Infallible;

    fn loss(&mut self, loss: &Tensor<1>) {
        self.losses.push(loss.clone().into_scalar());
    }

    fn end(&mut self, phase: Phase) -> Result<(), Infallible> {
        if matches!(phase, Phase::Init | Phase::Optimizer) {
            self.device.seed(1);
        }
        Ok(())
    }
}

const TEXT: &str = r#""vocab_size": 50, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2,
    "num_attention_heads": 4, "max_position_embeddings": 8"#;

const DECODER: &str = r#""num_key_value_heads": 2, "head_dim": 8, "sliding_window": 4"#;

/// One configuration of each `model_type`, and of each head that differs.
fn configurations() -> Vec<String> {
    let decoders = [
        "llama",
        "qwen2",
        "qwen3",
        "mistral",
        "gemma",
        "gemma2",
        "gemma3_text",
        "phi3",
        "olmo2",
        "smollm3",
    ];
    let decoders = decoders.map(|kind| format!(r#"{{"model_type": "{kind}", {TEXT}, {DECODER}}}"#));
    let experts = [
        r#""qwen3_moe", "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 12"#,
        r#""qwen3_moe", "num_experts": 5, "num_experts_per_tok": 3, "norm_topk_prob": true, "mlp_only_layers": [0]"#,
        r#""gpt_oss", "num_local_experts": 4, "num_experts_per_tok": 2"#,
    ];
    let experts = experts.map(|fields| format!(r#"{{"model_type": {fields}, {TEXT}, {DECODER}}}"#));
    let encoders = [
        r#""bert""#,
        r#""distilbert""#,
        r#""modernbert""#,
        r#""modernbert", "architectures": ["ModernBertForMaskedLM"]"#,
        r#""modernbert", "architectures": ["ModernBertForTokenClassification"], "classifier_pooling": "mean""#,
    ];
    let encoders = encoders.map(|fields| format!(r#"{{"model_type": {fields}, {TEXT}}}"#));
    let images = [
        r#""vit", "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4,
            "image_size": 32, "patch_size": 8"#,
        r#""deit", "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4,
            "image_size": [32, 24], "patch_size": 8"#,
        r#""convnext", "hidden_sizes": [8, 16], "depths": [1, 2], "num_stages": 2, "image_size": 32"#,
        r#""swin", "embed_dim": 8, "depths": [2, 2], "num_heads": [2, 4], "window_size": 3, "image_size": [45, 58],
            "use_absolute_embeddings": true"#,
    ];
    let images = images.map(|fields| format!(r#"{{"model_type": {fields}}}"#));
    [&decoders[..], &experts, &encoders, &images].concat()
}

#[test]
fn every_configuration_trains() {
    for text in configurations() {
        let model =
            ConfigModel::read("small", &text).unwrap_or_else(|error| panic!("{error}: {text}"));
        let request = Request {
            batch: Some(2),
            optimizer: Some(OptimizerKind::Adam),
            ..Request::default()
        };
        let job = request.resolve(&model).unwrap();
        assert_eq!(model.check(&job), Ok(()), "{text}");
        let device = Device::flex().autodiff();
        device.seed(1);
        let mut observer = Losses {
            device: device.clone(),
            losses: Vec::new(),
        };
        let Ok(()) = model.train(&job, &device, 6, &mut observer);
        // The batch of the first step differs: it is drawn after the parameters.
        let losses = observer.losses;
        let [_, first, .., last] = losses[..] else {
            panic!("{text}: {losses:?}");
        };
        assert!(last < first && last.is_finite(), "{text}: {losses:?}");
    }
}

/// burn has adapters for linear layers alone.
#[test]
fn experts_get_no_adapters() {
    let text = r#"{"model_type": "qwen3_moe"}"#;
    let model = ConfigModel::read("experts", text).unwrap();
    let check = |targets: &[&str]| {
        let lora = LoraRequest {
            rank: 4,
            targets: targets.iter().map(ToString::to_string).collect(),
            base: BaseFormat::Dense,
        };
        let request = Request {
            lora: Some(lora),
            ..Request::default()
        };
        model.check(&request.resolve(&model).unwrap())
    };
    assert_eq!(check(&["q", "v"]), Ok(()));
    let refused = check(&["q", "gate"]).unwrap_err().to_string();
    assert!(refused.contains("no adapters for experts"), "{refused}");
}
