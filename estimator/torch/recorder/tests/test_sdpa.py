"""The kernel of attention, by sdp_utils.cpp. What an H200 took is from its trace."""

import pytest
import torch
from test_kernels import card

from fit_check_recorder import sdpa


def inputs(dtype, head=64, mask=False, dropout=0.0, causal=False, heads=8, key_heads=8, length=128):
    query = torch.empty(2, heads, length, head, dtype=dtype, device="meta", requires_grad=True)
    key = torch.empty(2, key_heads, length, head, dtype=dtype, device="meta")
    bias = torch.empty(length, length, dtype=dtype, device="meta") if mask else None
    return sdpa.Inputs(query, key, key, bias, dropout, causal, heads != key_heads)


HALF, BRAIN, FULL = torch.float16, torch.bfloat16, torch.float32


@pytest.mark.parametrize(
    ("name", "arguments", "kernel"),
    [
        # BERT in float16, Llama in bfloat16 and ViT in float32, as the H200 ran them.
        ("h200", inputs(HALF), sdpa.CUDNN),
        ("h200", inputs(BRAIN, causal=True, heads=32, key_heads=8), sdpa.CUDNN),
        ("h200", inputs(FULL), sdpa.EFFICIENT),
        ("a100", inputs(BRAIN, causal=True), sdpa.FLASH),
        ("a100", inputs(BRAIN, mask=True), sdpa.EFFICIENT),
        ("a6000", inputs(HALF, head=128), sdpa.FLASH),
        ("a6000", inputs(HALF, head=224), sdpa.EFFICIENT),  # no training with 192 to 224 on sm86
        ("rtx-3090", inputs(FULL, head=64), sdpa.EFFICIENT),
        ("rtx-3090", inputs(FULL, head=65), sdpa.MATH),  # no multiple of 4
        ("t4", inputs(HALF), sdpa.EFFICIENT),
        ("t4", inputs(BRAIN), sdpa.MATH),  # emulated there
        ("t4", inputs(FULL), sdpa.EFFICIENT),
        ("a100", inputs(torch.float64), sdpa.MATH),
    ],
)
def test_choice(name, arguments, kernel, monkeypatch):
    monkeypatch.setattr(sdpa, "cudnn_version", lambda: 91900)
    assert sdpa.choose(card(name), arguments) == kernel


def test_what_the_program_switches_off(monkeypatch):
    with torch.nn.attention.sdpa_kernel([torch.nn.attention.SDPBackend.EFFICIENT_ATTENTION]):
        assert sdpa.choose(card("a100"), inputs(HALF)) == sdpa.EFFICIENT
    with torch.nn.attention.sdpa_kernel([torch.nn.attention.SDPBackend.MATH]):
        assert sdpa.choose(card("a100"), inputs(HALF)) == sdpa.MATH
