#!/usr/bin/env bash
# Claim: transformers 5 builds an attention mask for fake tensors that it does not build for real ones. With a mask of ones
#   it reads the values and passes none to attention; for fake tensors it skips that test. A GPU's flash attention takes no
#   mask, so the traced model and the one that trains do not even use the same kernel.
# Packages: transformers 5.24.0 and torch 2.15.0 from PyPI.
# Most would guess: the model code is the same, so a trace under FakeTensorMode sees the attention call of the real run.
# Seen: a Llama layer with an attention_mask of ones: no mask and is_causal=True with real tensors, a boolean
#   [2, 1, 32, 32] mask and is_causal=False with fake ones.
# Date: 2026-11-29
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
env=${FINDINGS_ENV:-$work/env}
python3 -m venv "$env"
"$env/bin/pip" install --quiet torch==2.15.0 numpy==2.4.6 transformers==5.24.0

cat > "$work/see.py" <<'PY'
import contextlib

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from transformers import LlamaConfig, LlamaForCausalLM

attention = torch.nn.functional.scaled_dot_product_attention


def report(query, key, value, attn_mask=None, **options):
    mask = "none" if attn_mask is None else f"{attn_mask.dtype} {list(attn_mask.shape)}"
    print(f"mask {mask}, is_causal={options['is_causal']}")
    return attention(query, key, value, attn_mask=attn_mask, **options)


torch.nn.functional.scaled_dot_product_attention = report
config = LlamaConfig(
    hidden_size=64,
    intermediate_size=128,
    num_hidden_layers=1,
    num_attention_heads=4,
    vocab_size=100,
    attn_implementation="sdpa",
)
for name, mode in (("real", contextlib.nullcontext()), ("fake", FakeTensorMode())):
    with mode:
        model = LlamaForCausalLM(config)
        tokens = torch.zeros(2, 32, dtype=torch.long)
        print(f"{name}:", end=" ")
        model(input_ids=tokens, attention_mask=torch.ones_like(tokens))
PY
"$env/bin/python" "$work/see.py" | tee "$work/seen"
diff - "$work/seen" <<'SEEN'
real: mask none, is_causal=True
fake: mask torch.bool [2, 1, 32, 32], is_causal=False
SEEN
