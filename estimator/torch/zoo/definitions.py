"""Print how public packages define the networks of `train.py`, so that they can be trained with other options than the recorded ones.

    python definitions.py > ../data/definitions.json

Each network has the object that `training_step.py` reads: the `config.json` of transformers, that of timm, or torchvision's name.
A network that is a program of its own (`nn.Transformer`) or has another loss is left out.
"""

from __future__ import annotations

import json

import torch
from torch import nn
from train import ZOO


def definition(network: nn.Module) -> dict[str, object] | None:
    """What `training_step.py` reads; none if it cannot build the network."""
    from transformers import PreTrainedModel

    if isinstance(network, PreTrainedModel):
        config = network.config.to_diff_dict()
        # The names of classes are as many as classes, which fit-check has by itself.
        for name in ("transformers_version", "use_cache", "id2label", "label2id"):
            config.pop(name, None)
        return {**config, "architectures": [type(network).__name__]}
    return getattr(network, "definition", None)


def main() -> None:
    found = {}
    with torch.device("meta"):
        for name, (build, _) in ZOO.items():
            found[name] = definition(build()[0])
    rows = (
        f"{json.dumps(name)}: {json.dumps(value)}"
        for name, value in found.items()
        if value
    )
    print("{\n" + ",\n".join(rows) + "\n}")


if __name__ == "__main__":
    main()
