"""Chooses a GPU for a training job. Each cell (# %%) runs by itself in an editor with notebooks, or all as a script."""

# %% Does the job fit?
import fit_check

answer = fit_check.estimate("bert-base", batch=32, seq=128, precision="mixed", gpu="t4")
needed, usable = answer["required_bytes"], answer["gpu"]["usable_bytes"]
print(f"{'fits' if answer['fits'] else 'does not fit'}: {needed / 2**30:.2f} of {usable / 2**30:.2f} GiB")

# %% What takes the memory?
for category, size in answer["at_peak"].items():
    print(f"{category:<12} {size / 2**20:10.1f} MiB")

# %% And the layers that keep the most for the backward pass?
layers = sorted(answer["layers"], key=lambda layer: -layer["activation_bytes"])
for layer in layers[:5]:
    print(f"{layer['path']:<45} {layer['activation_bytes'] / 2**20:8.1f} MiB")

# %% How large may the batch be on each card?
batches = fit_check.max_batch("bert-base", seq=128, precision="mixed", gpu=["t4", "l4"])
for card in batches["cards"]:
    print(f"{card['gpu']['name']:<10} {card['max_batch']:4d} samples; one more: {card['next']['refused']}")

# %% What if the question is wrong?
try:
    fit_check.estimate("bert-bse")
except fit_check.FitCheckError as error:
    print(f"{error.args[0]}; {error.hint}")
