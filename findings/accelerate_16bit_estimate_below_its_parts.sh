#!/usr/bin/env bash
# Claim: the column "Training using Adam" of `accelerate estimate-memory` is the largest of four parts, not the memory of a step.
#   For float32 the part "step" is the sum of the others; for float16, bfloat16 and fp8 it is the optimizer's part alone, so
#   the figure shown is less than half of model + gradients + optimizer as accelerate computes them itself.
# Packages: accelerate 1.15.0 and torch 2.15.0 from PyPI.
# Most would guess: the figure for 16-bit training is the total of accelerate's own parts, as for float32.
# Seen: for 1,000 bytes of weights: float32 4,000 shown, parts 4,000; bfloat16 2,000 shown, parts 4,500.
# Date: 2026-11-29
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
env=${FINDINGS_ENV:-$work/env}
python3 -m venv "$env"
"$env/bin/pip" install --quiet torch==2.15.0 numpy==2.4.6 accelerate==1.15.0

cat > "$work/see.py" <<'PY'
from accelerate.commands.estimate import estimate_training_usage

for precision in ("float32", "float16", "bfloat16", "fp8"):
    usage = estimate_training_usage(1000, precision)
    parts = [usage[part] for part in ("model", "gradients", "optimizer")]
    # `estimate_command` of the same module prints the largest value.
    print(f"{precision}: shown {max(usage.values())}, parts {' + '.join(map(str, parts))} = {sum(parts)}")
PY
"$env/bin/python" "$work/see.py" | tee "$work/seen"
diff - "$work/seen" <<'SEEN'
float32: shown 4000, parts 1000 + 1000 + 2000 = 4000
float16: shown 2000, parts 1000 + 1500 + 2000 = 4500
bfloat16: shown 2000, parts 1000 + 1500 + 2000 = 4500
fp8: shown 2000, parts 1000 + 1500 + 2000 = 4500
SEEN
