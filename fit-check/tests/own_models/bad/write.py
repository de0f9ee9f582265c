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
    }
    for name, config in configs.items():
        with open(os.path.join(HERE, name), "w") as file:
            json.dump(config, file)
    with open(os.path.join(HERE, "nul.json"), "wb") as file:
        file.write(b'{"model_type": \0}')
    with open(os.path.join(HERE, "index.json"), "w") as file:
        json.dump({"weight_map": {"weight": "../tiny-bert/model.safetensors"}}, file)
    os.replace(os.path.join(HERE, "index.json"), os.path.join(HERE, "model.safetensors.index.json"))
