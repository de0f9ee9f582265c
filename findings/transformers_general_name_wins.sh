#!/usr/bin/env bash
# Claim: in a config.json that holds both the model's own name and transformers' general name of a size (n_embd and
#   hidden_size of GPT-2), the general one wins, in either order. The general names are aliases that are assigned
#   after the constructor has set the model's own fields, and writing the configuration keeps the overwritten value.
# Package: transformers 5.24.0 from PyPI (without torch).
# Most would guess: the field that the model's code reads, n_embd, is the one that counts.
# Seen: n_embd 768 beside hidden_size 1024, and n_layer 12 beside num_hidden_layers 24: the model has width 1024 and 24 layers.
# Date: 2026-11-29
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
env=${FINDINGS_ENV:-$work/env}
python3 -m venv "$env"
"$env/bin/pip" install --quiet transformers==5.24.0

cat > "$work/see.py" <<'PY'
import json
import tempfile
from pathlib import Path

from transformers import AutoConfig

OWN = {"n_embd": 768, "n_layer": 12}
GENERAL = {"hidden_size": 1024, "num_hidden_layers": 24}
for fields in (OWN, GENERAL, OWN | GENERAL, GENERAL | OWN):
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "config.json").write_text(json.dumps({"model_type": "gpt2", **fields}))
        config = AutoConfig.from_pretrained(folder)
        config.save_pretrained(folder)
        saved = json.loads((Path(folder) / "config.json").read_text())
    print(
        ", ".join(fields),
        "->",
        config.n_embd,
        config.n_layer,
        "saved as",
        [name for name in OWN | GENERAL if name in saved],
    )
PY
"$env/bin/python" "$work/see.py" | tee "$work/seen"
diff - "$work/seen" <<'SEEN'
n_embd, n_layer -> 768 12 saved as ['n_embd', 'n_layer']
hidden_size, num_hidden_layers -> 1024 24 saved as ['n_embd', 'n_layer']
n_embd, n_layer, hidden_size, num_hidden_layers -> 1024 24 saved as ['n_embd', 'n_layer']
hidden_size, num_hidden_layers, n_embd, n_layer -> 1024 24 saved as ['n_embd', 'n_layer']
SEEN
