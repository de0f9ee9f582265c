"""What CUDA kernels allocate inside, by rules. Each rule names PyTorch's source that it follows.

A rule gets the card, the operator's arguments (without data) and its result, and says which bytes the kernel
asks the allocator for. Paths are of PyTorch's repository.
"""

from __future__ import annotations

from . import attention, convolutions, embeddings, four_bit, layers, recurrent, reductions, sorting
from .gemm import GEMMS, GemmWorkspaces
from .inside import Inside, Rule, device_of

_RULES: dict[str, Rule] = {
    **attention.RULES,
    **convolutions.RULES,
    **embeddings.RULES,
    **four_bit.RULES,
    **layers.RULES,
    **recurrent.RULES,
    **reductions.RULES,
    **sorting.RULES,
}


def rule_of(name: str) -> Rule | None:
    """The rule of an operator, by its full name (`aten::_softmax_backward_data`)."""
    return _RULES.get(name)


__all__ = ["GEMMS", "GemmWorkspaces", "Inside", "Rule", "device_of", "rule_of"]
