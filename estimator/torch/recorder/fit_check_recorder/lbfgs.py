"""`torch.optim.LBFGS`, which decides by values on the card whether it goes on and what it remembers.

With unknown values it would stop after an iteration and remember nothing. A training goes on, and after
`history_size` iterations it remembers so many directions and steps, each as large as all parameters. That is most of
what it needs, so its history is full from the first step on.
"""

from __future__ import annotations

from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from .recording import Recording


def install(recording: Recording) -> None:
    """Fill the history at the end of a step."""
    original = torch.optim.LBFGS.step

    @torch.no_grad()
    def step(optimizer: torch.optim.LBFGS, closure: Any) -> Any:
        loss = original(optimizer, closure)
        state = optimizer.state[optimizer._params[0]]
        size = optimizer.param_groups[0]["history_size"]
        direction = state.get("d")
        if type(direction) is FakeTensor and len(state["old_dirs"]) < size:
            recording.approximate_here("history taken as full", f"LBFGS remembers {size} iterations")
            while len(state["old_dirs"]) < size:
                state["old_dirs"].append(torch.empty_like(direction))
                state["old_stps"].append(torch.empty_like(direction))
                state["ro"].append(direction.new_empty(()))
        return loss

    torch.optim.LBFGS.step = step  # type: ignore[method-assign]
