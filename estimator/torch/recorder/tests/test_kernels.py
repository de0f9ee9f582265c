"""Rules of kernels, against what PyTorch's allocator was asked for on an NVIDIA H200 (torch 2.11.0, 132 SMs)."""

import pytest
import torch

from fit_check_recorder.dump import CARDS
from fit_check_recorder.kernels import attention, convolutions, embeddings, four_bit, gemm, recurrent, reductions
from fit_check_recorder.settings import Card


def card(name):
    title, capability, total, multiprocessors, _ = CARDS[name]
    return Card(title, capability, total, multiprocessors)


H200 = card("h200")


def meta(*shape, dtype=torch.float32):
    return torch.empty(shape, dtype=dtype, device="meta")


@pytest.mark.parametrize(
    ("shape", "dtype", "sizes"),
    [
        # The gradient of a bias: [4096, 3072] and [4096, 768] of BERT-base, batch 32, 128 tokens, float16.
        ((4096, 3072), torch.float16, [100663296, 96]),
        ((4096, 768), torch.float16, [25165824, 24]),
        # A Llama of 1B: the gradient of RMSNorm's weight, 2,048 tokens, bfloat16.
        ((2048, 2048), torch.bfloat16, [33554432, 64]),
        # ViT-B/16, batch 32.
        ((6304, 3072), torch.float32, [138412032, 96]),
        ((6304, 768), torch.float32, [38928384, 24]),
        # The head of an LSTM with 32,000 words.
        ((4096, 32000), torch.float32, [147456000, 1000]),
    ],
)
def test_sum_of_rows(shape, dtype, sizes):
    rule = reductions.RULES["aten::sum"]
    inside = rule(H200, (meta(*shape, dtype=dtype), [0], True), {}, None)
    assert list(inside.after) == sizes


def test_sum_of_few_rows_needs_nothing():
    assert reductions.RULES["aten::sum"](H200, (meta(8, 1024), [0]), {}, None) is None


@pytest.mark.parametrize(
    ("batch", "heads", "key_heads", "length", "head", "dtype", "size"),
    [
        (32, 12, 12, 128, 64, torch.float16, 12780032 - 12780032 % 512),
        (1, 32, 8, 2048, 64, torch.bfloat16, 33817088),
    ],
)
def test_cudnn_attention_backward(batch, heads, key_heads, length, head, dtype, size):
    query = meta(batch, heads, length, head, dtype=dtype)
    key = meta(batch, key_heads, length, head, dtype=dtype)
    rule = attention.RULES["aten::_scaled_dot_product_cudnn_attention_backward"]
    assert rule(H200, (query, query, key, key), {}, None).after == [size]


def test_efficient_attention_backward_in_float32():
    """ViT-B/16, batch 32: 197 tokens, 12 heads of 64."""
    query = meta(32, 197, 12, 64).transpose(1, 2)
    rule = attention.RULES["aten::_scaled_dot_product_efficient_attention_backward"]
    inside = rule(H200, (query, query, query, query), {}, None)
    assert list(inside.after) == [19365888, 302592, 302592, -1, -2, 25190400]


def test_flash_attention_backward():
    """Follow mha_bwd by hand: 2 samples, 8 heads, 300 rows (384 rounded), heads of 64; 2 heads of keys."""
    query = meta(2, 8, 300, 64, dtype=torch.float16)
    key = meta(2, 2, 300, 64, dtype=torch.float16)
    grad = meta(2, 300, 8, 64, dtype=torch.float16).transpose(1, 2)
    rule = attention.RULES["aten::_scaled_dot_product_flash_attention_backward"]
    inside = rule(card("a100"), (grad, query, key, key), {}, None)
    assert list(inside.before) == []
    assert list(inside.after) == [
        2 * 8 * 384 * 4,
        2 * 384 * 8 * 64 * 4,
        *[2 * 300 * 8 * 64 * 2] * 2,
    ]


def test_softmax_backward_multiplies_first():
    inside = attention.RULES["aten::_softmax_backward_data"](H200, (meta(4, 8),), {}, None)
    assert list(inside.after) == [128]


def test_embedding_backward():
    """BERT's words: 4,096 tokens, 30,522 rows of 768."""
    rule = embeddings.RULES["aten::embedding_dense_backward"]
    indices = meta(32, 128, dtype=torch.int64)
    inside = rule(H200, (meta(32, 128, 768), indices, 30522, -1, False), {}, None)
    assert list(inside.before) == [32768, 32768]
    assert list(inside.brief) == [32768, 83455]
    assert [size for size in inside.after if size > 0] == [
        32768, 8, 32768, 1279, 32768, 32768, 1279, 8, 36040, 13839360,
    ]  # fmt: skip


def test_embedding_backward_of_few_indices_needs_nothing():
    indices = meta(3072, dtype=torch.int64)
    rule = embeddings.RULES["aten::embedding_dense_backward"]
    assert rule(H200, (meta(3072, 768), indices, 30522, -1, False), {}, None) is None


@pytest.mark.parametrize(
    ("name", "size"),
    [("h200", 32 << 20), ("a100", 8519680), ("a6000", 8519680), ("t4", 8519680)],
)
def test_cublas_workspace(name, size, monkeypatch):
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    assert gemm.workspace_bytes(card(name)) == size


def test_cublas_workspace_by_variable(monkeypatch):
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    assert gemm.workspace_bytes(H200) == 8 * 4096 * 1024


def test_recurrent_layer():
    """nn.LSTM(512, 512, 2, bidirectional=True): 32 samples of 128 steps."""
    state = meta(4, 32, 512)
    forward = (meta(32, 128, 512), [], 4, None, state, state, 2, 512, 0, 2, True, 0.1, True, True)
    assert recurrent.reserve_bytes(forward) == 185598208
    assert recurrent._workspace(forward) == 204472832


def test_four_bits_restore_the_weight():
    """A Llama of 1B, 2,048 rows: scales twice, then 2,048 x 2,048 in bfloat16."""
    rule = four_bit.RULES["bitsandbytes::gemm_4bit"]
    args = (
        meta(2, 1024, 2048, dtype=torch.bfloat16), None, (2048, 2048), None, 64, "nf4", None,
        meta(65536, dtype=torch.uint8),
    )  # fmt: skip
    assert list(rule(H200, args, {}, None).before) == [262144, 262144, -1, 8388608]


def convolution(shape, weight, stride, dtype=torch.float32, name="h200"):
    """The workspaces of an output, and of the gradients of input and weight."""
    source, kernel = meta(*shape, dtype=dtype), meta(*weight, dtype=dtype)
    pad = (weight[2] - 1) // 2
    output = torch.nn.functional.conv2d(source, kernel, stride=stride, padding=pad)
    both = ([stride] * 2, [pad] * 2, [1, 1], False, [0, 0], 1)
    forward = convolutions.RULES["aten::convolution"]
    inside = forward(card(name), (source, kernel, None, *both), {}, output)
    backward = convolutions.RULES["aten::convolution_backward"]
    gradients = backward(card(name), (output, source, kernel, None, *both, [True, True, False]), {}, None)
    return inside, gradients


@pytest.mark.parametrize(
    ("shape", "weight", "stride", "dtype", "sizes"),
    [
        # ResNet-50, batch 32: blocks of 512 bytes that the H200 had for output, gradient of input, gradient of weight.
        ((32, 128, 28, 28), (128, 128, 3, 3), 1, torch.float32, (26279952, 26279952, 34538151)),
        ((32, 256, 14, 14), (256, 256, 3, 3), 1, torch.float32, (15204368, 15204368, 22282847)),
        ((32, 512, 7, 7), (2048, 512, 1, 1), 1, torch.float32, (16056336, 16056336, 16056336)),
        ((32, 64, 56, 56), (256, 64, 1, 1), 1, torch.float32, (None, None, 2097152)),
        ((32, 512, 28, 28), (1024, 512, 1, 1), 2, torch.float32, (77070483, 77070483, 81265071)),
        # The same with autocast to float16.
        ((32, 256, 14, 14), (256, 256, 3, 3), 1, torch.float16, (7602192, 7602192, 7602192)),
        ((32, 512, 14, 14), (512, 512, 3, 3), 2, torch.float16, (12746768, 12746899, 12746899)),
        ((32, 256, 56, 56), (64, 256, 1, 1), 1, torch.float16, (None, None, 2097152)),
    ],
)
def test_convolution_copies_to_channels_last(shape, weight, stride, dtype, sizes):
    inside, gradients = convolution(shape, weight, stride, dtype)
    ours = (inside.each[0], gradients.each[0], gradients.each[1])
    for workspace, size in zip(ours, sizes, strict=True):
        assert bool(workspace) == (size is not None)
        # The partial sums of a gradient are known less well than the copies.
        assert not workspace or workspace[0] == pytest.approx(size, rel=0.06)


def test_convolution_in_channels_last_copies_nothing():
    source = meta(32, 64, 56, 56, dtype=torch.float16).to(memory_format=torch.channels_last)
    kernel = meta(64, 64, 3, 3, dtype=torch.float16).to(memory_format=torch.channels_last)
    arguments = (source, kernel, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1)
    inside = convolutions.RULES["aten::convolution"](H200, arguments, {}, source)
    assert list(inside.before) == [] and inside.each[0] == []


def test_convolution_without_tensor_cores_is_not_known():
    inside, gradients = convolution((8, 64, 56, 56), (64, 64, 3, 3), 1, name="t4")
    assert inside.unknown and gradients.unknown
    assert not inside.each and not gradients.each


def test_gradient_of_an_embedding_may_be_sparse(record):
    """Tables of networks that recommend: a batch uses a few rows, and the optimizer's state is for all."""
    run = record(
        """
        import torch
        table = torch.nn.Embedding(10000, 64, sparse=True).cuda()
        optimizer = torch.optim.SparseAdam(table.parameters())
        for _ in range(99):
            table(torch.randint(0, 10000, (8, 4)).cuda()).sum().backward(); optimizer.step(); optimizer.zero_grad()
        """
    )
    assert run.bye["reason"] == "steps", run.errors
    sizes = {line[1]: line[2] for line in run.of("a")}
    assert sum(sizes[line[1]] for line in run.of("r") if line[2] == "optimizer") == 2 * 10000 * 64 * 4
    assert any(kind == "sparse tensor" for kind, _ in run.approximations())


def test_a_launch_by_address_does_nothing(record):
    """axolotl and unsloth call the library of bitsandbytes without bitsandbytes, and that ends the process."""
    pytest.importorskip("bitsandbytes")
    run = record(
        """
        import ctypes, torch
        from bitsandbytes.cextension import BNBNativeLibrary
        from bitsandbytes.functional import get_ptr, lib
        weight = torch.empty(4096, 1, dtype=torch.uint8, device="cuda")
        absmax, out = torch.ones(128, device="cuda"), torch.empty(8192, device="cuda")
        size, stream = ctypes.c_int(8192), ctypes.c_void_p(0)
        where = (None, get_ptr(weight), get_ptr(absmax), get_ptr(out), ctypes.c_int(64), size, stream)
        print(lib.cdequantize_blockwise_fp32_nf4(*where), isinstance(lib, BNBNativeLibrary))
        """
    )
    assert (run.status, run.output) == (0, "0 True\n"), run.errors
    assert run.approximations() == {("kernel without data", "cdequantize_blockwise_fp32_nf4")}
