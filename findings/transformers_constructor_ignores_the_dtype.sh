#!/usr/bin/env bash
# Claim: of one configuration that says "dtype": "bfloat16", AutoModelForCausalLM.from_config builds a model in bfloat16, and the
#   constructor of its class, LlamaForCausalLM(config), one in float32, which takes twice the memory. The config.dtype of
#   the second still says bfloat16. Neither warns.
# Package: transformers 5.24.0 with torch 2.15.0 from PyPI.
# Most would guess: both build the same model, since from_config only looks up the class; and model.config tells its number format.
# Seen: 2 bytes for each parameter by from_config and by from_pretrained, 4 bytes by the constructor; config.dtype is bfloat16 each time.
# Date: 2026-11-30
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
env=${FINDINGS_ENV:-$work/env}
python3 -m venv "$env"
"$env/bin/pip" install --quiet torch==2.15.0 transformers==5.24.0 numpy==2.4.6

cat > "$work/see.py" <<'PY'
import sys

from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

sizes = dict(
    vocab_size=128,
    hidden_size=64,
    intermediate_size=128,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
)
config = LlamaConfig(dtype="bfloat16", **sizes)
looked_up = AutoModelForCausalLM.from_config(config)
looked_up.save_pretrained(sys.argv[1])
models = {
    "from_config": looked_up,
    "from_pretrained": AutoModelForCausalLM.from_pretrained(sys.argv[1]),
    "constructor": LlamaForCausalLM(config),
}
for name, model in models.items():
    weights = list(model.parameters())
    size = sum(weight.nbytes for weight in weights) // sum(weight.numel() for weight in weights)
    print(f"{name}: {size} bytes for each parameter, config.dtype {str(model.config.dtype).removeprefix('torch.')}")
PY
HF_HUB_OFFLINE=1 "$env/bin/python" "$work/see.py" "$work/model" 2>/dev/null | tee "$work/seen"
diff "$work/seen" - <<'SEEN'
from_config: 2 bytes for each parameter, config.dtype bfloat16
from_pretrained: 2 bytes for each parameter, config.dtype bfloat16
constructor: 4 bytes for each parameter, config.dtype bfloat16
SEEN
