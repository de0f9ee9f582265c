"""Programs whose figures were measured by PyTorch's real allocator, or by others on real GPUs."""

import json
import pathlib

import pytest
from allocator import MIB, replay

JOBS = pathlib.Path(__file__).parent / "jobs"
DATA = pathlib.Path(__file__).parent / "data"
ROWS = (DATA / "vramcalc_a6000.jsonl").read_text().splitlines()
T4_ROWS = (DATA / "torch_preflight_t4.jsonl").read_text().splitlines()


@pytest.mark.parametrize(
    ("batch", "amp", "allocated", "reserved"),
    [
        # MiB by PyTorch's own allocator for a card of capability 8.6 (facts of this project: Adam, 3 steps).
        (8, False, 1034.4, 1214),
        (32, False, 2988.7, 3300),
        (32, True, 1752.2, 1952),
    ],
)
def test_resnet50(record, batch, amp, allocated, reserved):
    run = record(JOBS / "resnet.py", batch, int(amp))
    assert run.bye["reason"] == "steps"
    _, peaks = replay(run.path)
    # cuDNN's workspaces are known by rule.
    assert peaks[-1][0] / MIB == pytest.approx(allocated, rel=0.005)
    assert peaks[-1][1] / MIB == pytest.approx(reserved, rel=0.05)


def test_a_scaler_that_skips_each_step_on_an_h200(record):
    """ResNet-50, batch 32, float16: the gradients of an H200 were infinite in each of three steps.

    So Adam never made its state, and the most allocated is 1600.2 MiB and not the 1,800 of a job that goes on.
    """
    path = JOBS / "resnet_without_updates.py"
    run = record(path, card="h200")
    assert run.bye == {"reason": "exit", "steps": 0}
    _, peaks = replay(run.path)
    assert peaks[-1][0] / MIB == pytest.approx(1600.2, rel=0.005)
    assert peaks[-1][1] / MIB == pytest.approx(1892, rel=0.035)


@pytest.mark.parametrize("number", [0, 6, 13])
def test_language_model_on_an_a6000(record, number):
    measured = json.loads(ROWS[number])["measured"]["total"]
    run = record(JOBS / "language_model.py", number, card="a6000", steps=1000)
    assert run.status == 0, run.errors[-2000:]
    _, peaks = replay(run.path)
    # The benchmark resets the peaks before what it measures.
    assert peaks[-1][0] == pytest.approx(measured, rel=0.0005)


@pytest.mark.parametrize("number", [0, 5])
def test_fine_tuning_on_a_t4(record, number):
    """GPT-2 and BERT with autocast to bfloat16, which no fused attention of a T4 takes."""
    measured = json.loads(T4_ROWS[number])["measured"]
    run = record(JOBS / "fine_tuning.py", number, card="t4", steps=1000)
    assert run.status == 0, run.errors[-2000:]
    _, peaks = replay(run.path)
    assert peaks[-1][0] == pytest.approx(measured["allocated"], rel=0.003)
    assert peaks[-1][1] == pytest.approx(measured["reserved"], rel=0.003)
