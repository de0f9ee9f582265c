#!/usr/bin/env python3
"""Writes the weights files of this folder, with the Python packages safetensors and numpy.

    pip install safetensors==0.8.0 numpy && python3 write.py

They are what transformers would save for the config.json beside each of them: the names are
those of its classes BertForSequenceClassification, GPT2LMHeadModel, LlamaForCausalLM and
ResNetForImageClassification, copied from its modeling files. All values are zero.
"""

import json
import os

import numpy
from safetensors.numpy import save_file

HERE = os.path.dirname(os.path.abspath(__file__))


def linear(name, out, into, bias=True):
    yield f"{name}.weight", (out, into)
    if bias:
        yield f"{name}.bias", (out,)


def norm(name, width):
    yield f"{name}.weight", (width,)
    yield f"{name}.bias", (width,)


def bert(c):
    d, f = c["hidden_size"], c["intermediate_size"]
    e = "bert.embeddings"
    yield f"{e}.word_embeddings.weight", (c["vocab_size"], d)
    yield f"{e}.position_embeddings.weight", (c["max_position_embeddings"], d)
    yield f"{e}.token_type_embeddings.weight", (c["type_vocab_size"], d)
    yield from norm(f"{e}.LayerNorm", d)
    for i in range(c["num_hidden_layers"]):
        l = f"bert.encoder.layer.{i}"
        for part in ["query", "key", "value"]:
            yield from linear(f"{l}.attention.self.{part}", d, d)
        yield from linear(f"{l}.attention.output.dense", d, d)
        yield from norm(f"{l}.attention.output.LayerNorm", d)
        yield from linear(f"{l}.intermediate.dense", f, d)
        yield from linear(f"{l}.output.dense", d, f)
        yield from norm(f"{l}.output.LayerNorm", d)
    yield from linear("bert.pooler.dense", d, d)
    yield from linear("classifier", 2, d)


def conv1d(name, into, out):
    yield f"{name}.weight", (into, out)
    yield f"{name}.bias", (out,)


def gpt2(c):
    d = c["n_embd"]
    # The files of the base class, GPT2Model, leave the prefix `transformer.` out.
    yield "wte.weight", (c["vocab_size"], d)
    yield "wpe.weight", (c["n_positions"], d)
    for i in range(c["n_layer"]):
        yield from norm(f"h.{i}.ln_1", d)
        yield from conv1d(f"h.{i}.attn.c_attn", d, 3 * d)
        yield f"h.{i}.attn.bias", (1, 1, c["n_positions"], c["n_positions"])
        yield from conv1d(f"h.{i}.attn.c_proj", d, d)
        yield from norm(f"h.{i}.ln_2", d)
        yield from conv1d(f"h.{i}.mlp.c_fc", d, 4 * d)
        yield from conv1d(f"h.{i}.mlp.c_proj", 4 * d, d)
    yield from norm("ln_f", d)


def llama(c):
    d, f = c["hidden_size"], c["intermediate_size"]
    kv = d // c["num_attention_heads"] * c["num_key_value_heads"]
    yield "model.embed_tokens.weight", (c["vocab_size"], d)
    for i in range(c["num_hidden_layers"]):
        l = f"model.layers.{i}"
        yield f"{l}.input_layernorm.weight", (d,)
        for part, out in [("q", d), ("k", kv), ("v", kv), ("o", d)]:
            yield from linear(f"{l}.self_attn.{part}_proj", out, d, bias=False)
        yield f"{l}.post_attention_layernorm.weight", (d,)
        yield from linear(f"{l}.mlp.gate_proj", f, d, bias=False)
        yield from linear(f"{l}.mlp.up_proj", f, d, bias=False)
        yield from linear(f"{l}.mlp.down_proj", d, f, bias=False)
    yield "model.norm.weight", (d,)
    if not c["tie_word_embeddings"]:
        yield "lm_head.weight", (c["vocab_size"], d)


def vit(c):
    d, f = c["hidden_size"], c["intermediate_size"]
    patches = (c["image_size"] // c["patch_size"]) ** 2
    yield "vit.embeddings.cls_token", (1, 1, d)
    yield "vit.embeddings.position_embeddings", (1, patches + 1, d)
    yield "vit.embeddings.patch_embeddings.projection.weight", (d, 3, c["patch_size"], c["patch_size"])
    yield "vit.embeddings.patch_embeddings.projection.bias", (d,)
    for i in range(c["num_hidden_layers"]):
        l = f"vit.encoder.layer.{i}"
        for part in ["query", "key", "value"]:
            yield from linear(f"{l}.attention.attention.{part}", d, d)
        yield from linear(f"{l}.attention.output.dense", d, d)
        yield from linear(f"{l}.intermediate.dense", f, d)
        yield from linear(f"{l}.output.dense", d, f)
        yield from norm(f"{l}.layernorm_before", d)
        yield from norm(f"{l}.layernorm_after", d)
    yield from norm("vit.layernorm", d)
    yield from linear("classifier", len(c["id2label"]), d)


def conv_norm(name, out, into, kernel):
    yield f"{name}.convolution.weight", (out, into, kernel, kernel)
    yield from norm(f"{name}.normalization", out)
    yield f"{name}.normalization.running_mean", (out,)
    yield f"{name}.normalization.running_var", (out,)
    yield f"{name}.normalization.num_batches_tracked", ()


def resnet(c):
    width = c["embedding_size"]
    yield from conv_norm("resnet.embedder.embedder", width, 3, 7)
    for s, (out, depth) in enumerate(zip(c["hidden_sizes"], c["depths"])):
        for i in range(depth):
            l = f"resnet.encoder.stages.{s}.layers.{i}"
            if width != out or (i == 0 and s > 0):
                yield from conv_norm(f"{l}.shortcut", out, width, 1)
            inner = out // 4
            yield from conv_norm(f"{l}.layer.0", inner, width, 1)
            yield from conv_norm(f"{l}.layer.1", inner, inner, 3)
            yield from conv_norm(f"{l}.layer.2", out, inner, 1)
            width = out
    yield from linear("classifier.1", len(c["id2label"]), width)


def weights_only(_):
    """Weights of a network that has no configuration."""
    yield "encoder.weight", (64, 256)
    yield "decoder.weight", (256, 128)


def dtype(name, float_type):
    return numpy.int64 if name.endswith("num_batches_tracked") else float_type


def write(model, tensors, float_type, shards=1):
    folder = os.path.join(HERE, model)
    config = os.path.join(folder, "config.json")
    dimensions = json.load(open(config)) if os.path.exists(config) else None
    tensors = list(tensors(dimensions))
    zeros = {name: numpy.zeros(shape, dtype(name, float_type)) for name, shape in tensors}
    if shards == 1:
        save_file(zeros, os.path.join(folder, "model.safetensors"), {"format": "pt"})
    else:
        names = list(zeros)
        index = {}
        for shard in range(shards):
            file = f"model-{shard + 1:05}-of-{shards:05}.safetensors"
            mine = names[shard::shards]
            save_file({n: zeros[n] for n in mine}, os.path.join(folder, file), {"format": "pt"})
            index |= dict.fromkeys(mine, file)
        with open(os.path.join(folder, "model.safetensors.index.json"), "w") as file:
            json.dump({"metadata": {}, "weight_map": index}, file, indent=1, sort_keys=True)
    sizes = [int(numpy.prod(shape)) for _, shape in tensors]
    print(model, len(tensors), "tensors,", sum(sizes), "elements")


if __name__ == "__main__":
    write("tiny-bert", bert, numpy.float32)
    write("tiny-gpt2", gpt2, numpy.float16)
    write("tiny-llama", llama, numpy.float16, shards=2)
    write("tiny-vit", vit, numpy.float32)
    write("tiny-resnet", resnet, numpy.float32)
    write("weights-only", weights_only, numpy.float16)
