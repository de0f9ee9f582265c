//! Adapters of PEFT, which are no model of their own.

use std::path::Path;

use serde_json::Value;

use super::model_files::unreadable;
use crate::user_error::UserError;

/// The error for `text`, the `adapter_config.json` at `path`; its hint leads to `--lora`.
pub(super) fn not_a_model(path: &Path, text: &str) -> UserError {
    let fields: Value = match serde_json::from_str(text) {
        Ok(fields) => fields,
        Err(error) => return unreadable(path, &error.to_string()),
    };
    let word = |field: &str| fields[field].as_str().unwrap_or_default().to_string();
    let kind = word("peft_type");
    let base = match word("base_model_name_or_path") {
        base if base.is_empty() => "MODEL".into(),
        base => base,
    };
    let error = UserError::new(format!(
        "{} is an adapter of PEFT ({kind}) beside {base}, and no model",
        path.display()
    ));
    match (kind.as_str(), fields["r"].as_u64()) {
        ("LORA", Some(rank)) => error.hint(format!(
            "name the model and the adapter: `fit-check estimate {base} --lora {rank}{}`",
            targets(&fields["target_modules"])
        )),
        _ => error.hint("fit-check knows LoRA: --lora RANK, with the model's name or path"),
    }
}

/// The option that names the projections `modules`, if all of them have a name here.
fn targets(modules: &Value) -> String {
    const NAMES: [(&str, &str); 13] = [
        ("q_proj", "q"),
        ("k_proj", "k"),
        ("v_proj", "v"),
        ("o_proj", "o"),
        ("gate_proj", "gate"),
        ("up_proj", "up"),
        ("down_proj", "down"),
        ("qkv_proj", "qkv"),
        ("gate_up_proj", "gate_up"),
        ("query", "q"),
        ("key", "k"),
        ("value", "v"),
        ("c_attn", "qkv"),
    ];
    let known = |module: &Value| {
        let name = NAMES.iter().find(|(name, _)| module == name)?;
        Some(name.1)
    };
    let modules = modules.as_array().into_iter().flatten();
    match modules.map(known).collect::<Option<Vec<_>>>() {
        Some(names) if !names.is_empty() => format!(" --lora-targets {}", names.join(",")),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The fields are those of PEFT's LoraConfig.
    #[test]
    fn an_adapter_leads_to_its_options() {
        let hint = |text: &str| not_a_model(Path::new("adapter_config.json"), text).to_string();
        let lora = hint(
            r#"{"peft_type": "LORA", "base_model_name_or_path": "acme/tiny", "r": 8,
                "target_modules": ["q_proj", "v_proj"]}"#,
        );
        assert!(
            lora.ends_with("`fit-check estimate acme/tiny --lora 8 --lora-targets q,v`"),
            "{lora}"
        );
        let all = hint(r#"{"peft_type": "LORA", "r": 4, "target_modules": "all-linear"}"#);
        assert!(
            all.ends_with("`fit-check estimate MODEL --lora 4`"),
            "{all}"
        );
        let other = hint(r#"{"peft_type": "PREFIX_TUNING"}"#);
        assert!(other.contains("(PREFIX_TUNING)"), "{other}");
    }
}
