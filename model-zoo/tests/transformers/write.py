#!/usr/bin/env python3
"""Writes counts.jsonl and names.jsonl: what transformers builds from configurations of every model_type.

    pip install transformers==5.24.0 torch==2.15.0 safetensors && python3 write.py

Each line is a config.json, and the parameters and tensors of the class that its `architectures` name (or
of the model_type's usual class), on the meta device, where nothing needs memory. A configuration that
transformers refuses has `refused`, the name of the exception, in their place.

Each line of names.jsonl is a small config.json, and the names and shapes of the tensors that
`save_pretrained` writes for it.
"""

import json
import logging
import os
import tempfile
import warnings

logging.disable(logging.CRITICAL)
warnings.filterwarnings("ignore")

import torch
import transformers
from safetensors import safe_open
from transformers import CONFIG_MAPPING

HERE = os.path.dirname(os.path.abspath(__file__))

SMALL = {
    "vocab_size": 300,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    # Those of phi3 and smollm3 are not among 300 words.
    "pad_token_id": 0,
}

LABELS = {"0": "a", "1": "b", "2": "c"}

DECODERS = {
    "llama": "LlamaForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "mistral": "MistralForCausalLM",
    "gemma": "GemmaForCausalLM",
    "gemma2": "Gemma2ForCausalLM",
    "gemma3_text": "Gemma3ForCausalLM",
    "phi3": "Phi3ForCausalLM",
    "olmo2": "Olmo2ForCausalLM",
    "smollm3": "SmolLM3ForCausalLM",
}


def without(fields, *names):
    return {name: value for name, value in fields.items() if name not in names}


def decoder_variants():
    """Ten variants; a key that a class does not know changes nothing there."""
    yield SMALL
    yield SMALL | {"tie_word_embeddings": True, "attention_dropout": 0.1}
    yield SMALL | {"tie_word_embeddings": False, "num_key_value_heads": 4}
    yield SMALL | {"head_dim": 32, "num_key_value_heads": 1}
    yield SMALL | {"num_key_value_heads": None}
    yield SMALL | {"attention_bias": True, "mlp_bias": True}
    yield SMALL | {"hidden_size": 72, "num_attention_heads": 5, "num_key_value_heads": 1}
    yield SMALL | {"sliding_window": None, "use_sliding_window": True, "max_window_layers": 0}
    layers = ["sliding_attention", "full_attention", "sliding_attention"]
    yield SMALL | {"layer_types": layers, "use_sliding_window": True, "sliding_window": 16}
    # As older releases wrote it, with the keys of a published file.
    yield SMALL | {
        "head_dim": None,
        "rope_theta": 500000.0,
        "rope_scaling": None,
        "torch_dtype": "bfloat16",
        "use_cache": True,
        "initializer_range": 0.02,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "pretraining_tp": 1,
    }


EXPERTS = {
    "qwen3_moe": "Qwen3MoeForCausalLM",
    "gpt_oss": "GptOssForCausalLM",
}

FEW_EXPERTS = {"num_experts_per_tok": 2, "moe_intermediate_size": 40, "num_experts": 6}


def expert_variants():
    """Ten variants of decoders with experts."""
    few = SMALL | FEW_EXPERTS
    yield few
    yield without(few, "num_experts") | {"num_local_experts": 5}
    yield few | {"num_local_experts": 3}
    yield few | {"norm_topk_prob": True, "num_key_value_heads": 4}
    yield few | {"mlp_only_layers": [0], "tie_word_embeddings": True}
    yield few | {"decoder_sparse_step": 2, "mlp_only_layers": None}
    yield few | {"attention_bias": True, "head_dim": 32, "rope_scaling": None}
    yield few | {"attention_bias": False, "use_sliding_window": True, "sliding_window": 16}
    yield few | {"num_key_value_heads": None}
    yield few | {"head_dim": None}


GPT2_SMALL = {"vocab_size": 300, "n_positions": 256, "n_embd": 64, "n_layer": 3, "n_head": 4}


def gpt2_variants():
    general = {"hidden_size": 1280, "num_hidden_layers": 36, "num_attention_heads": 20}
    yield GPT2_SMALL
    yield general
    yield general | {"n_embd": 768, "n_layer": 12, "n_head": 12}
    yield {
        "hidden_size": 128,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "max_position_embeddings": 256,
        "vocab_size": 300,
    }
    yield GPT2_SMALL | {"max_position_embeddings": 128}
    yield GPT2_SMALL | {"n_inner": 100}
    yield GPT2_SMALL | {"n_inner": None, "torch_dtype": "float16"}
    yield GPT2_SMALL | {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
    yield GPT2_SMALL | {"activation_function": "gelu", "layer_norm_epsilon": 1e-6}
    yield GPT2_SMALL | {"n_embd": 66}


BERT_SMALL = without(SMALL, "num_key_value_heads")

ENCODERS = {
    "bert": "Bert",
    "roberta": "Roberta",
    "xlm-roberta": "XLMRoberta",
    "distilbert": "DistilBert",
}


def encoder_variants(prefix):
    labels = {"num_labels": 7, "id2label": {"0": "a", "1": "b"}}
    for head in ["SequenceClassification", "TokenClassification", "QuestionAnswering", "MaskedLM"]:
        yield BERT_SMALL | {"architectures": [f"{prefix}For{head}"]}
    yield BERT_SMALL | labels
    yield BERT_SMALL | labels | {"architectures": [f"{prefix}ForTokenClassification"]}
    yield BERT_SMALL | {"id2label": LABELS, "hidden_act": "relu", "pad_token_id": 1}
    yield BERT_SMALL | {"num_labels": 5, "type_vocab_size": 1}
    yield BERT_SMALL | {"hidden_size": None}
    yield BERT_SMALL | {"num_hidden_layers": 1, "intermediate_size": 80, "num_attention_heads": 8}
    if prefix == "Bert":
        yield BERT_SMALL | {"architectures": ["BertForPreTraining"]}
    if prefix == "DistilBert":
        own = {"dim": 32, "n_heads": 2, "n_layers": 2, "hidden_dim": 48}
        yield own | {"vocab_size": 300}
        yield own | BERT_SMALL


VIT_SMALL = without(BERT_SMALL, "vocab_size", "max_position_embeddings", "pad_token_id")


def vit_variants():
    yield VIT_SMALL | {"image_size": 32, "patch_size": 8}
    yield VIT_SMALL | {"image_size": [32, 48], "patch_size": 8, "num_labels": 10}
    yield VIT_SMALL | {"image_size": [32, 48], "patch_size": [8, 8]}
    yield VIT_SMALL | {"image_size": 36, "patch_size": 8}
    yield VIT_SMALL | {"image_size": [48, 64], "patch_size": [16, 8]}
    yield VIT_SMALL | {"image_size": 64, "id2label": LABELS}
    yield VIT_SMALL | {"image_size": 64, "num_labels": 7, "id2label": LABELS}
    yield VIT_SMALL | {"image_size": 64, "pooler_output_size": 32, "encoder_stride": 8}
    yield VIT_SMALL | {"image_size": 64, "hidden_dropout_prob": 0.1, "layer_norm_eps": 1e-6}
    yield VIT_SMALL | {"image_size": None}


def convnext_variants():
    small = {"hidden_sizes": [8, 16], "depths": [1, 2], "num_stages": 2}
    yield small
    yield small | {"image_size": 64, "num_labels": 7, "id2label": LABELS}
    yield small | {"patch_size": [4, 2], "id2label": LABELS}
    yield small | {"layer_scale_init_value": 0.0}
    yield small | {"layer_scale_init_value": 0.5, "drop_path_rate": 0.1}
    yield without(small, "num_stages") | {"num_hidden_layers": 2}
    yield {"hidden_sizes": [10, 10, 12], "depths": [1, 1, 2], "num_stages": 3}
    yield {"hidden_sizes": [12], "depths": [3], "num_stages": 1, "hidden_act": "relu"}
    yield {"hidden_sizes": [128, 256, 512, 1024], "depths": [3, 3, 27, 3]}
    yield small | {"layer_norm_eps": 1e-6, "patch_size": 2}


def swin_variants():
    small = {"embed_dim": 12, "depths": [2, 1], "num_heads": [3, 6]}
    yield small
    yield small | {"image_size": 64, "num_labels": 7, "id2label": LABELS}
    yield small | {"window_size": 4, "patch_size": 2}
    yield small | {"use_absolute_embeddings": True, "image_size": [64, 96]}
    yield small | {"qkv_bias": False, "drop_path_rate": 0.0}
    yield small | {"mlp_ratio": 2.5, "id2label": LABELS}
    yield small | {"hidden_act": "relu", "encoder_stride": 16, "layer_norm_eps": 1e-6}
    yield {"embed_dim": 16, "depths": [2, 2, 2], "num_heads": [2, 4, 8], "window_size": 3}
    yield {"embed_dim": 128, "depths": [2, 2, 18, 2], "num_heads": [4, 8, 16, 32]}
    yield small | {"embed_dim": None}


def modernbert_variants():
    heads = ["SequenceClassification", "TokenClassification", "MaskedLM"]
    for head in heads:
        yield BERT_SMALL | {"architectures": [f"ModernBertFor{head}"]}
    yield BERT_SMALL | {"num_labels": 7, "id2label": LABELS}
    yield BERT_SMALL | {"norm_bias": True, "attention_bias": True, "mlp_bias": True}
    yield BERT_SMALL | {"classifier_bias": True, "classifier_pooling": "mean"}
    yield BERT_SMALL | {"decoder_bias": False, "architectures": ["ModernBertForMaskedLM"]}
    yield BERT_SMALL | {"global_attn_every_n_layers": 2, "local_attention": 32}
    layers = ["sliding_attention", "full_attention", "sliding_attention"]
    yield BERT_SMALL | {"layer_types": layers, "mlp_dropout": 0.1, "hidden_activation": "relu"}
    yield BERT_SMALL | {"hidden_size": None}


def resnet_variants():
    basic = {"layer_type": "basic", "depths": [2, 2, 2, 2]}
    yield basic | {"hidden_sizes": [64, 128, 256, 512]}
    yield basic | {"hidden_sizes": [32, 48, 80, 96], "embedding_size": 32}
    yield {"hidden_sizes": [64, 160, 320, 640], "depths": [1, 2, 1, 1], "embedding_size": 40}
    yield {"hidden_sizes": [128, 256], "depths": [1, 2]}
    yield {"hidden_sizes": [66, 130], "depths": [1, 1], "embedding_size": 66}
    yield {"hidden_sizes": [64, 64, 64], "depths": [1, 1, 1], "layer_type": "basic"}
    yield {"num_labels": 7, "id2label": LABELS, "depths": [1, 1, 1, 1]}
    yield {"id2label": LABELS, "depths": [1, 1, 1, 1]}
    yield {"depths": [1, 1, 1, 1], "embedding_size": 256}
    yield {"depths": [1, 1, 1, 1], "layer_type": "wide"}


def cases():
    for model_type, usual in DECODERS.items():
        yield model_type, usual, {}
        for fields in decoder_variants():
            yield model_type, usual, fields
    for model_type, usual in EXPERTS.items():
        yield model_type, usual, {}
        for fields in expert_variants():
            yield model_type, usual, fields
    for model_type, prefix in ENCODERS.items():
        usual = f"{prefix}ForSequenceClassification"
        yield model_type, usual, {}
        for fields in encoder_variants(prefix):
            yield model_type, usual, fields
    for model_type, usual, variants in [
        ("gpt2", "GPT2LMHeadModel", gpt2_variants),
        ("vit", "ViTForImageClassification", vit_variants),
        ("deit", "DeiTForImageClassification", vit_variants),
        ("resnet", "ResNetForImageClassification", resnet_variants),
        ("convnext", "ConvNextForImageClassification", convnext_variants),
        ("swin", "SwinForImageClassification", swin_variants),
        ("modernbert", "ModernBertForSequenceClassification", modernbert_variants),
    ]:
        yield model_type, usual, {}
        for fields in variants():
            yield model_type, usual, fields


def count(model_type, usual, fields):
    name = fields.get("architectures", [usual])[0]
    try:
        config = CONFIG_MAPPING[model_type].from_dict(json.loads(json.dumps(fields)))
        with torch.device("meta"):
            model = getattr(transformers, name)(config)
        model.tie_weights()
    except Exception as error:
        return {"refused": type(error).__name__}
    parameters = list(model.parameters())
    return {"parameters": sum(p.numel() for p in parameters), "tensors": len(parameters)}


def saved():
    """A small configuration of each model_type and head, and the tensors of its file."""
    for model_type, usual in DECODERS.items():
        yield model_type, usual, SMALL | {"tie_word_embeddings": False}
    for model_type, usual in EXPERTS.items():
        yield model_type, usual, SMALL | FEW_EXPERTS | {"num_experts": 2, "num_hidden_layers": 1}
    for model_type, prefix in ENCODERS.items():
        for fields in list(encoder_variants(prefix))[:4]:
            yield model_type, fields["architectures"][0], fields
    yield "bert", "BertForPreTraining", BERT_SMALL | {"architectures": ["BertForPreTraining"]}
    yield "gpt2", "GPT2LMHeadModel", GPT2_SMALL
    for model_type, usual in [
        ("vit", "ViTForImageClassification"),
        ("deit", "DeiTForImageClassification"),
    ]:
        yield model_type, usual, VIT_SMALL | {"image_size": [32, 48], "patch_size": 8}
    yield "resnet", "ResNetForImageClassification", next(resnet_variants())
    yield "convnext", "ConvNextForImageClassification", next(convnext_variants())
    yield "swin", "SwinForImageClassification", next(swin_variants())
    for fields in list(modernbert_variants())[:3]:
        yield "modernbert", fields["architectures"][0], fields


def tensors(model_type, name, fields):
    model = getattr(transformers, name)(CONFIG_MAPPING[model_type].from_dict(fields))
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        with safe_open(os.path.join(folder, "model.safetensors"), "pt") as file:
            return {name: file.get_slice(name).get_shape() for name in sorted(file.keys())}


def text_parts():
    """Models of text and images, and the class that has their text part alone."""
    for text_type in ["gemma3_text", "llama", "mistral", "qwen2", "qwen3"]:
        for tied in [True, False]:
            text = SMALL | {"model_type": text_type, "tie_word_embeddings": tied}
            outer = "gemma3" if text_type == "gemma3_text" else "llava"
            config = {"model_type": outer, "text_config": text, "vision_config": {}}
            fields = without(text, "model_type")
            yield {"config": config} | count(text_type, DECODERS[text_type], fields)


if __name__ == "__main__":
    assert transformers.__version__ == "5.24.0", transformers.__version__
    with open(os.path.join(HERE, "counts.jsonl"), "w") as file:
        for model_type, usual, fields in cases():
            config = {"model_type": model_type} | fields
            line = {"config": config} | count(model_type, usual, fields)
            file.write(json.dumps(line) + "\n")
        for line in text_parts():
            file.write(json.dumps(line) + "\n")
    with open(os.path.join(HERE, "names.jsonl"), "w") as file:
        for model_type, name, fields in saved():
            line = {"config": {"model_type": model_type} | fields}
            line["tensors"] = tensors(model_type, name, dict(fields))
            file.write(json.dumps(line) + "\n")
