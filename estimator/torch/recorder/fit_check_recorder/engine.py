"""PyTorch's autograd engine without a driver.

The CUDA build asks its own hooks whether a device has a context, when a backward pass begins, and without a
driver these throw (`CUDAHooks::hasPrimaryContext expects a valid device index`). No context exists, so the
answer is "no". This gives PyTorch's object a copy of its table of virtual functions in which that one
function says so. The function's place in the table is read from the header that the wheel ships.
"""

from __future__ import annotations

import ctypes
import os
import re

import torch

_kept: list[object] = []
_HEADERS = ("AcceleratorHooksInterface.h", "CUDAHooksInterface.h")
_GETTER = "_ZN2at6detail12getCUDAHooksEv"


def _virtual_functions(header: str) -> list[str]:
    """The names of a header's virtual functions in the order of their places; a destructor takes two."""
    path = os.path.join(os.path.dirname(torch.__file__), "include", "ATen", "detail", header)
    with open(path, encoding="utf-8") as file:
        source = re.sub(r"//.*", "", file.read())
    names = []
    for match in re.finditer(r"virtual\s+(~)?[^;{(]*?([A-Za-z_]\w*)\s*\(", source):
        names.extend([match.group(2)] * (2 if match.group(1) else 1))
    return names


def place_of(name: str) -> int:
    """The place of a virtual function; raises ValueError if the header has no such function."""
    return _virtual_functions(_HEADERS[0]).index(name)


def needs_answer() -> bool:
    """Whether this build of PyTorch has CUDA's hooks."""
    return torch.version.cuda is not None


def install() -> None:
    """Answer `hasPrimaryContext`."""
    library = ctypes.CDLL(os.path.join(os.path.dirname(torch.__file__), "lib", "libtorch_cpu.so"))
    getter = library[_GETTER]
    getter.restype = ctypes.c_void_p
    pointer = ctypes.c_void_p
    hooks = pointer.from_address(getter())
    # Two words before the table (offset to top, type) belong to it.
    words = 2 + sum(len(_virtual_functions(header)) for header in _HEADERS)
    size = words * ctypes.sizeof(pointer)
    start = hooks.value - 2 * ctypes.sizeof(pointer)
    table = (pointer * words).from_buffer_copy((ctypes.c_char * size).from_address(start).raw)
    answer = ctypes.CFUNCTYPE(ctypes.c_bool, pointer, ctypes.c_int8)(lambda hooks, device: False)
    table[2 + place_of("hasPrimaryContext")] = ctypes.cast(answer, pointer).value
    _kept.extend([table, answer])
    hooks.value = ctypes.addressof(table) + 2 * ctypes.sizeof(pointer)
