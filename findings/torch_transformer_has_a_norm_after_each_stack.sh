#!/usr/bin/env bash
# Claim: torch.nn.Transformer puts one more LayerNorm after its encoder and after its decoder, also with its default, norm_first=False,
#   where the last layer of each has normalised already. So it is not the network of "Attention Is All You Need": it has
#   4 * d_model parameters more, and two more normalised copies of the activations. Built of nn.TransformerEncoder and
#   nn.TransformerDecoder themselves, it has none of these.
# Package: torch 2.15.0 from PyPI.
# Most would guess: nn.Transformer is the paper's network; the norm at the end belongs to norm_first=True alone.
# Seen: d_model 512, 6 + 6 layers: encoder.norm and decoder.norm, 44,140,544 parameters in place of 44,138,496.
# Date: 2026-11-30
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
env=${FINDINGS_ENV:-$work/env}
python3 -m venv "$env"
"$env/bin/pip" install --quiet torch==2.15.0 numpy==2.4.6

cat > "$work/see.py" <<'PY'
import torch
from torch import nn

with torch.device("meta"):
    whole = nn.Transformer(512, 8, 6, 6, 2048, norm_first=False)
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(512, 8, 2048), 6)
    decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(512, 8, 2048), 6)


def parameters(*modules):
    return sum(weight.numel() for module in modules for weight in module.parameters())


outside = sorted({name.rsplit(".", 1)[0] for name, _ in whole.named_parameters() if ".layers." not in name})
print("nn.Transformer, norm_first=False:", parameters(whole), "parameters, outside the layers:", *outside)
print("encoder and decoder by themselves:", parameters(encoder, decoder), "parameters")
PY
"$env/bin/python" "$work/see.py" | tee "$work/seen"
diff "$work/seen" - <<'SEEN'
nn.Transformer, norm_first=False: 44140544 parameters, outside the layers: decoder.norm encoder.norm
encoder and decoder by themselves: 44138496 parameters
SEEN
