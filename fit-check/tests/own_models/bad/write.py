#!/usr/bin/env python3
"""Writes the files of this folder that no honest program would write."""

import json
import os
import struct

HERE = os.path.dirname(os.path.abspath(__file__))


def write(name, header, data=b"", length=None):
    header = header if isinstance(header, str) else json.dumps(header)
    with open(os.path.join(HERE, name), "wb") as file:
        file.write(struct.pack("<Q", len(header) if length is None else length))
        file.write(header.encode() + data)


def tensor(shape, start, end):
    return {"dtype": "F32", "shape": shape, "data_offsets": [start, end]}


if __name__ == "__main__":
    write("truncated.safetensors", {"weight": tensor([4], 0, 16)}, b"\0" * 15)
    write("beyond.safetensors", {}, length=1 << 62)
    write("overlapping.safetensors", {"a": tensor([2], 0, 8), "b": tensor([2], 4, 12)}, b"\0" * 12)
    write("absurd.safetensors", {"weight": tensor([1 << 40, 1 << 40], 0, 16)}, b"\0" * 16)
    twice = json.dumps(tensor([1], 0, 4))
    write("twice.safetensors", '{"weight": %s, "weight": %s}' % (twice, twice), b"\0" * 4)
    write("nul.safetensors", {"weight\0": tensor([1], 0, 4)}, b"\0" * 4)
    write("deep.safetensors", '{"weight": %s}' % ("[" * 10_000))
    configs = {
        "word.json": {"model_type": "llama", "hidden_size": "4096"},
        "negative.json": {"model_type": "bert", "num_hidden_layers": -12},
        "huge.json": {"model_type": "gpt2", "n_embd": 1 << 40},
        "heads.json": {"model_type": "llama", "num_attention_heads": 33},
        "mamba.json": {"model_type": "mamba", "hidden_size": 768},
        "untyped.json": {"hidden_size": 768},
        "epsilon.json": {"model_type": "llama", "rms_norm_eps": 0},
        "head.json": {"model_type": "bert", "architectures": ["BertForMultipleChoice"]},
        "masked_images.json": {"model_type": "vit", "architectures": ["ViTForMaskedImageModeling"]},
        "patch.json": {"model_type": "vit", "image_size": 16384, "patch_size": 16384},
        "deep.json": {"model_type": "llama", "num_hidden_layers": 100_000},
        # What timm, diffusers and PEFT write.
        "timm.json": {
            "architecture": "resnet18",
            "num_classes": 100,
            "num_features": 512,
            "pretrained_cfg": {"input_size": [3, 224, 224]},
        },
        "diffusers.json": {"_class_name": "UNet2DConditionModel", "sample_size": 64},
    }
    for name, config in configs.items():
        with open(os.path.join(HERE, name), "w") as file:
            json.dump(config, file)
    with open(os.path.join(HERE, "nul.json"), "wb") as file:
        file.write(b'{"model_type": \0}')
    # Files of other kinds in the place of a model's. `safetensors` and `config.json` decide what is read.
    beginnings = {
        "page.json": b"<!DOCTYPE html>\n<html><head><title>Sign in</title></head></html>\n",
        "utf16.json": '{"model_type": "llama"}'.encode("utf-16"),
        "model.gguf": b"GGUF" + struct.pack("<IQQ", 3, 0, 0),
        "pickle/pytorch_model.bin": b"PK\x03\x04" + b"\0" * 26,
        "lfs-pointer/model.safetensors": b"version https://git-lfs.github.com/spec/v1\n"
        b"oid sha256:" + b"5a" * 32 + b"\nsize 2200119864\n",
        "lfs-pointer/config.json": b'{"model_type": "llama"}',
        "adapter/adapter_config.json": json.dumps(
            {
                "peft_type": "LORA",
                "base_model_name_or_path": "acme/tiny",
                "r": 8,
                "lora_alpha": 16,
                "target_modules": ["q_proj", "v_proj"],
                "task_type": "CAUSAL_LM",
            }
        ).encode(),
    }
    for name, beginning in beginnings.items():
        path = os.path.join(HERE, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(beginning)
    write("adapter/adapter_model.safetensors", {"base_model.model.a": tensor([1], 0, 4)}, b"\0" * 4)
    with open(os.path.join(HERE, "index.json"), "w") as file:
        json.dump({"weight_map": {"weight": "../tiny-bert/model.safetensors"}}, file)
    os.replace(os.path.join(HERE, "index.json"), os.path.join(HERE, "model.safetensors.index.json"))
