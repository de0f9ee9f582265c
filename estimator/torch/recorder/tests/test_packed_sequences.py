"""Sentences of different lengths, packed without their padding."""

SCRIPT = """
import torch
from torch.nn.utils.rnn import pack_padded_sequence, pack_sequence, pad_packed_sequence
padded = torch.zeros(3, 3, 8, device="cuda", requires_grad=True)
packed = pack_padded_sequence(padded, torch.tensor([3, 2, 1]), batch_first=FIRST)
print(tuple(packed.data.shape), packed.batch_sizes.tolist(), packed.data.device, packed.batch_sizes.device)
back, lengths = pad_packed_sequence(packed, batch_first=FIRST)
back.sum().backward(); print(tuple(back.shape), lengths.tolist(), tuple(padded.grad.shape))
"""


def _copies(run):
    """The sizes of what packing allocates: the samples of each step, and all of them one after the other."""
    births = [(size, operator) for size, operator, _ in run.births() if size]
    last = next(at for at, birth in enumerate(births) if birth[1] == "aten::cat")
    return births[1 : last + 1]


def test_samples_are_copied_where_they_come_first(record):
    """The third step has one sample alone, which lies in one piece."""
    run = record(SCRIPT.replace("FIRST", "True"))
    assert run.output.splitlines() == ["(6, 8) [3, 2, 1] cuda:0 cpu", "(3, 3, 8) [3, 2, 1] (3, 3, 8)"], run.errors
    assert _copies(run) == [(96, "aten::clone"), (64, "aten::clone"), (192, "aten::cat")]


def test_steps_are_not_copied_where_they_come_first(record):
    run = record(SCRIPT.replace("FIRST", "False"))
    assert _copies(run) == [(192, "aten::cat")], run.errors


def test_a_recurrent_layer_trains_on_them(record):
    run = record(
        """
        import torch
        from torch.nn.utils.rnn import pack_sequence, pad_packed_sequence
        layer = torch.nn.GRU(16, 32, batch_first=True).cuda()
        optimizer = torch.optim.SGD(layer.parameters(), lr=1)
        for _ in range(9):
            packed = pack_sequence([torch.randn(n, 16, device="cuda") for n in (3, 9, 7)], enforce_sorted=False)
            output, state = layer(packed)
            optimizer.zero_grad(); (state.sum() + output.data.sum()).backward(); optimizer.step()
            print(tuple(pad_packed_sequence(output, batch_first=True)[0].shape), tuple(state.shape))
        """
    )
    assert run.bye["reason"] == "steps", run.errors
    assert run.output.splitlines()[0] == "(3, 9, 32) (1, 3, 32)"


def test_lengths_on_the_card_are_refused_as_on_a_card(record):
    run = record(
        """
        import torch
        padded, lengths = torch.zeros(3, 2, 4, device="cuda"), torch.tensor([3, 2], device="cuda")
        torch._VF._pack_padded_sequence(padded, lengths, False)
        """
    )
    assert run.bye["error"]["message"].startswith("'lengths' argument should be a 1D CPU int64 tensor"), run.errors
