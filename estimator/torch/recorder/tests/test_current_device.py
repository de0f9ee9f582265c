"""A card without an index is the current one, wherever a program may name it."""

#: Beside each way to name a card, the index that PyTorch documents where the current card is the second of three.
#: `x` is a tensor of the processor, `first` one of the first card.
WAYS = {
    "x.cuda()": 1,
    "x.cuda(2)": 2,
    "x.cuda('cuda')": 1,
    "x.cuda(device=None, non_blocking=True)": 1,
    "x.to('cuda')": 1,
    "x.to('cuda:0')": 0,
    "x.to(torch.device('cuda'), torch.half, non_blocking=True)": 1,
    "x.to(2)": 2,
    "x.to(0)": 0,
    "x.to(first)": 0,
    "first.cuda()": 1,
    "first.half()": 0,
    "torch.nn.Linear(2, 2).cuda().weight": 1,
    "torch.nn.Linear(2, 2).to('cuda').weight": 1,
    "torch.nn.Linear(2, 2).to(2).weight": 2,
    "torch.nn.Linear(2, 2, device='cuda').weight": 1,
    "torch.nn.Linear(2, 2, device='meta').to_empty(device='cuda').weight": 1,
    "torch.nn.utils.rnn.pack_sequence([x]).cuda().data": 1,
    "torch.zeros(2, device='cuda')": 1,
    "torch.zeros(2, device=2)": 2,
    "torch.tensor([1, 2], device='cuda')": 1,
    "torch.as_tensor([1, 2], device='cuda')": 1,
    "torch.asarray([1, 2], device='cuda')": 1,
    "torch.cuda.FloatTensor(3)": 1,
    "torch.cuda.FloatTensor([1.0, 2.0])": 1,
    "x.type(torch.cuda.HalfTensor)": 1,
    "first.type('torch.cuda.HalfTensor')": 0,
    "torch.nn.Linear(2, 2).type(torch.cuda.HalfTensor).weight": 1,
    "x.type_as(first)": 0,
    "torch.empty_like(first)": 0,
    "torch.empty_like(first, device='cuda')": 1,
    "first.new_zeros(2)": 0,
    "first.new_zeros(2, device='cuda')": 1,
    "first.new_tensor([1.0])": 0,
    "first.new(2)": 0,
    "torch.randn(2, generator=torch.Generator('cuda'), device='cuda')": 1,
}
BEGIN = """
import torch
torch.cuda.set_device(1)
x, first = torch.zeros(4), torch.zeros(4, device="cuda:0")
def places():
    return [torch.cuda.current_device(), torch.accelerator.current_device_index(), x.cuda().device.index,
            torch.zeros(1, device="cuda").device.index, torch.tensor([1], device="cuda").device.index]
"""


def test_card_without_an_index_is_the_current_one(record):
    lines = "\n".join(f"print(({way}).device.index)" for way in WAYS)
    run = record(BEGIN + lines, devices=3)
    assert run.status == 0, run.errors
    assert dict(zip(WAYS, map(int, run.output.split()), strict=True)) == WAYS


CONTEXTS = [
    "torch.cuda.device(0)", "torch.cuda.device('cuda:0')", "torch.cuda.device_of(first)",
    "torch.accelerator.device_index(0)", "torch.cuda.stream(torch.cuda.Stream(device=0))",
    "torch.cuda.Stream(0)", "torch.Stream(device='cuda:0')", "torch.Stream(0)",
]  # fmt: skip
CHOICES = [
    "torch.cuda.set_device(0)", "torch.cuda.set_device('cuda:0')", "torch.cuda.set_device(torch.device(0))",
    "torch.accelerator.set_device_index(0)", "torch.cuda.set_stream(torch.cuda.Stream(0))",
]  # fmt: skip


def test_another_card_becomes_the_current_one(record):
    """A stream's card is the current one as long as the stream is (`torch.cuda.StreamContext`)."""
    lines = [f"with {context}: print(places())\nprint(places())" for context in CONTEXTS]
    lines += [f"{choice}; print(places())\ntorch.cuda.set_device(1); print(places())" for choice in CHOICES]
    run = record(BEGIN + "\n".join(lines), devices=2)
    assert run.output.splitlines() == [str([0] * 5), str([1] * 5)] * len(lines), run.errors


def test_default_device(record):
    script = """
for default in "cuda", torch.device("cuda"), "cuda:0", 0:
    torch.set_default_device(default)
    print(torch.zeros(1).device.index, torch.tensor([1]).device.index, torch.nn.Linear(1, 1).weight.device.index)
    torch.set_default_device(None)
    with torch.device(default): print(torch.zeros(1).device.index, torch.tensor([1]).device.index)
"""
    run = record(BEGIN + script, devices=2)
    assert run.output.split() == ["1"] * 10 + ["0"] * 10, run.errors


ABSENT = [
    "torch.cuda.set_device(2)", "torch.accelerator.set_device_index(2)", "x.cuda(2)", "x.to(2)",
    "torch.zeros(1, device=2)", "torch.cuda.device(2).__enter__()", "torch.cuda.Stream(2)", "torch.Stream(2)",
]  # fmt: skip


def test_card_that_is_not_there(record):
    """Also: `set_device` wants an index, as on a real machine, where "cuda" is the card that is current already."""
    lines = [
        f"try: {line}\nexcept Exception as error: print(type(error).__name__, 'device ordinal' in str(error))"
        for line in (*ABSENT, "torch.cuda.set_device('cuda')", "torch.cuda.get_device_properties(2)")
    ]
    run = record(BEGIN + "\n".join(lines), devices=2)
    assert run.output.splitlines() == ["AcceleratorError True"] * len(ABSENT) + [
        "ValueError False",
        "AssertionError False",
    ], run.errors


def test_each_thread_has_a_current_card(record):
    """Another thread begins at the first card, and a thread of autograd is on the card of the node that it runs."""
    script = """
import threading
thread = threading.Thread(target=lambda: print(places()))
thread.start(); thread.join(); print(places())
class Look(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor): return tensor * 1
    @staticmethod
    def backward(ctx, gradient): print(places()); return gradient
for card in (0, 1):
    Look.apply(torch.zeros(1, device=card, requires_grad=True)).sum().backward()
"""
    run = record(BEGIN + script, devices=2)
    assert run.output.splitlines() == [str([0] * 5), str([1] * 5)] * 2, run.errors


def test_streams_belong_to_a_card(record):
    """An allocation is on the current stream of its own card."""
    run = record(
        BEGIN
        + """
side = torch.Stream(device="cuda:0")
print(torch.Stream().device, torch.cuda.Stream().device, torch.cuda.Stream(device="cuda").device, side.device)
with side:
    print(torch.cuda.current_stream() == torch.accelerator.current_stream() == side)
    print(torch.cuda.current_stream(1) == side)
    torch.zeros(1000, device="cuda:0"); torch.zeros(2000, device="cuda:1")
event = side.record_event(); side.wait_stream(torch.cuda.current_stream()); event.wait(side); event.synchronize()
print(event.device, torch.Stream("cpu").device, torch.Stream(1).device, isinstance(side, torch.Stream))
""",
        devices=2,
    )
    assert run.output.splitlines() == [
        "cuda:1 cuda:1 cuda:1 cuda:0",
        "True",
        "False",
        "cuda:0 cpu cuda:1 True",
    ], run.errors
    streams = {line[2]: (line[5] > 0, line[7]) for line in run.of("a")}
    assert streams[4000] == (True, 0)
    assert streams[8000] == (False, 1)


def test_memory_is_asked_of_the_current_card(record):
    run = record(
        BEGIN + "del first; y = x.cuda()\n"
        "print(torch.cuda.memory_allocated(), torch.cuda.memory_allocated(0), torch.accelerator.memory_allocated())",
        devices=2,
    )
    assert run.output.split() == ["512", "0", "512"]
