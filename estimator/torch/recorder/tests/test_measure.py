"""The counters of a GPU at the end of each phase. There is no GPU: each script brings counters that stand in."""

#: Counters as PyTorch has them, which the script changes itself, and a model on the processor.
GPU = """
import torch

class Counter:
    current = peak = 0
    def change(self, by):
        self.current += by
        self.peak = max(self.peak, self.current)
    def take_and_give(self, size):
        self.change(size)
        self.change(-size)

allocated, reserved = Counter(), Counter()

def memory_stats(device=None):
    return {
        "allocated_bytes.all.current": allocated.current, "allocated_bytes.all.peak": allocated.peak,
        "reserved_bytes.all.current": reserved.current, "reserved_bytes.all.peak": reserved.peak,
    }

def reset_peak_memory_stats(device=None):
    for counter in (allocated, reserved):
        counter.peak = counter.current

torch.cuda.is_initialized = lambda: True
torch.cuda.memory_stats, torch.cuda.reset_peak_memory_stats = memory_stats, reset_peak_memory_stats
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters())
reserved.change(1000)
allocated.change(100)
"""

#: A step: its forward pass leaves 20 bytes, its backward pass takes 30 for a moment, its update 7.
STEP = """
def step():
    loss = model(torch.ones(4)).sum()
    allocated.change(20)
    loss.register_hook(lambda gradient: allocated.take_and_give(30))
    loss.backward()
    allocated.change(-20)
    optimizer.step()
    optimizer.zero_grad()
optimizer.register_step_pre_hook(lambda *_: allocated.take_and_give(7))
"""


def counters(run):
    """(phase, step, the four counters) of each phase."""
    return [tuple(line[1:]) for line in run.of("c")]


def test_counters_at_the_end_of_each_phase(record):
    run = record(GPU + STEP + "while True: step()\n", steps=2, measure=True)
    assert (run.status, run.bye["reason"], run.bye["steps"]) == (0, "steps", 2)
    assert counters(run) == [
        (phase, step, *counted)
        for step in (0, 1)
        for phase, counted in (
            ("forward", (120, 120, 1000, 1000)),
            ("backward", (100, 150, 1000, 1000)),
            ("optimizer", (100, 107, 1000, 1000)),
        )
    ]


def test_program_is_not_recorded(record):
    run = record(GPU + STEP + "step(); import sys; print('fit_check_recorder.mode' in sys.modules)", measure=True)
    assert run.output == "False\n"
    assert not run.of("a") and not run.of("p")


def test_steps_are_those_of_the_recorder(record):
    """Two optimizers, and gradients of two batches: the recorder and the measurement count the same steps."""
    loop = """
other = torch.optim.Adam(model.parameters())
for i in range(3):
    for part in range(2):
        model(batch).sum().backward()
    optimizer.step()
    model(batch).sum().backward()
    other.step()
"""
    measured = record(GPU + "batch = torch.ones(4)\n" + loop, measure=True)
    recorded = record(
        "import torch\nmodel = torch.nn.Linear(4, 4).cuda()\noptimizer = torch.optim.SGD(model.parameters())\n"
        + "batch = torch.ones(4, device='cuda')\n"
        + loop,
        steps=9,
    )
    assert recorded.bye["steps"] == measured.bye["steps"] == 3
    ended = {"backward": "forward", "optimizer": "backward", "data": "optimizer"}
    # What the recorder tells besides: where a forward pass begins.
    phases = [line[1:] for line in recorded.of("p") if line[1] not in ("init", "forward")]
    collapsed = [phase for before, phase in zip([None, *phases], phases, strict=False) if before != phase]
    assert [ended[phase] for phase, _ in collapsed] == [phase for phase, *_ in counters(measured)]


def test_error_on_the_gpu_before_the_first_update(record):
    run = record(
        GPU + "raise torch.OutOfMemoryError('CUDA out of memory. Tried to allocate 2.00 GiB.')\n", measure=True
    )
    assert (run.status, run.bye["reason"], run.bye["steps"]) == (1, "error", 0)
    assert run.bye["error"]["type"] == "OutOfMemoryError"
    assert run.of("hello")


def test_program_that_makes_no_step(record):
    run = record(GPU, measure=True)
    assert (run.status, run.bye["reason"], run.bye["steps"], counters(run)) == (0, "exit", 0, [])


def test_program_that_uses_no_gpu_writes_nothing(record):
    run = record(GPU.replace("lambda: True", "lambda: False") + STEP + "step()\n", measure=True)
    assert (run.status, run.lines) == (0, [])


def test_a_forked_process_writes_nothing(record):
    run = record(
        GPU + STEP + "import os\nstep()\nif os.fork() == 0: step(); raise SystemExit\nos.wait()\n", measure=True
    )
    assert (run.bye["steps"], len(run.of("hello")), len(counters(run))) == (1, 1, 3)
