"""Trains a Llama with a plain loop: bf16 weights, or fp32 weights with autocast."""

import argparse

import torch
from transformers import LlamaConfig, LlamaForCausalLM

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=1)
parser.add_argument("--length", type=int, default=2048)
parser.add_argument("--layers", type=int, default=16)
parser.add_argument("--steps", type=int, default=3)
parser.add_argument("--attention", choices=["sdpa", "eager"], default="sdpa")
parser.add_argument("--autocast", action="store_true")
parser.add_argument("--checkpointing", action="store_true")
args = parser.parse_args()

config = LlamaConfig(
    hidden_size=2048,
    intermediate_size=8192,
    num_hidden_layers=args.layers,
    num_attention_heads=32,
    num_key_value_heads=8,
    head_dim=64,
    vocab_size=128256,
    max_position_embeddings=131072,
    tie_word_embeddings=True,
    attn_implementation=args.attention,
    use_cache=False,
)
torch.set_default_dtype(torch.float32 if args.autocast else torch.bfloat16)
with torch.device("cuda"):
    model = LlamaForCausalLM(config).train()
torch.set_default_dtype(torch.float32)
if args.checkpointing:
    model.gradient_checkpointing_enable()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
for _ in range(args.steps):
    tokens = torch.randint(
        0, config.vocab_size, (args.batch_size, args.length), device="cuda"
    )
    with torch.autocast("cuda", dtype=torch.bfloat16, enabled=args.autocast):
        loss = model(input_ids=tokens, labels=tokens).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
print("loss", loss.item())
