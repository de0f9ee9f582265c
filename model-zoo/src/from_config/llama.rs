//! `model_type` llama: transformers `LlamaConfig`.

use super::decoder::{Class, Family, OwnDecoder};
use super::fields::Fields;
use crate::Error;
use crate::blocks::decoder::DecoderConfig;

/// Llama.
#[derive(Clone, Debug)]
pub(super) struct Llama;

pub(super) type OwnLlama = OwnDecoder<Llama>;

impl Family for Llama {
    const MODEL_TYPE: &'static str = "llama";

    fn read(fields: &Fields) -> Result<DecoderConfig, Error> {
        let attention_bias = fields.flag("attention_bias", false)?;
        Ok(DecoderConfig {
            qkv_bias: attention_bias,
            output_bias: attention_bias,
            mlp_bias: fields.flag("mlp_bias", false)?,
            ..Class::LLAMA.read(fields)?
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dropout_on_the_attention_weights_is_read() {
        let rate = |config: &str| Ok::<_, Error>(Llama::read(&Fields::parse(config)?)?.dropout);
        assert_eq!(rate("{}"), Ok(0.0));
        assert_eq!(rate(r#"{"attention_dropout": 0.1}"#), Ok(0.1));
        assert!(rate(r#"{"attention_dropout": 1}"#).is_err());
    }
}
