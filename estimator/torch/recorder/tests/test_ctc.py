"""The loss of speech recognition, which has no fake of its own for lengths on the card."""

import pytest

SCRIPT = """
import torch
scores = torch.randn(50, 4, 32, device="cuda").log_softmax(-1).requires_grad_()
torch.cuda.reset_peak_memory_stats(); before = torch.cuda.memory_allocated()
lengths = torch.full((4,), 50); sizes = torch.tensor([5, 10, 7, 3])
targets = torch.randint(1, 32, SHAPE)
loss = torch.nn.functional.ctc_loss(scores, targets PLACE, lengths PLACE, sizes PLACE, zero_infinity=True)
print(loss.shape, loss.device)
loss.backward(); print(scores.grad.shape)
"""


@pytest.mark.parametrize("place", ["", ".cuda()"])
@pytest.mark.parametrize("shape", ["(4, 20)", "(25,)"])
def test_rows_are_as_long_as_the_longest_target(record, place, shape):
    run = record(SCRIPT.replace(" PLACE", place).replace("SHAPE", shape))
    assert run.output.splitlines() == ["torch.Size([]) cuda:0", "torch.Size([50, 4, 32])"], run.errors
    rows = 4 * 50 * (2 * 10 + 1) * 4
    assert [size for size, name, _ in run.births() if "_ctc_loss" in name and size > 100] == [rows, rows, 25600]
