"""However a program ends, the last line says how, and nothing of it stays."""

import json
import os
import subprocess
import sys
import time

import pytest
from conftest import FOLDER

MODEL = """
import torch
model = torch.nn.Linear(64, 64).cuda()
optimizer = torch.optim.Adam(model.parameters())
def step():
    optimizer.zero_grad()
    model(torch.randn(8, 64, device="cuda")).sum().backward()
    optimizer.step()
"""


def test_two_equal_steps_end_the_program(record):
    run = record(MODEL + "for i in range(100): step(); print(i)\n")
    assert run.status == 0
    assert run.bye["reason"] == "steps"
    # The first step makes the optimizer's state, so the second and the third are the first that are equal.
    assert run.bye["steps"] == 3
    assert run.output.split() == ["0", "1"]


def test_as_many_steps_as_asked_for(record):
    assert record(MODEL + "for i in range(100): step()\n", steps=7).bye["steps"] == 7


def test_program_that_ends_by_itself(record):
    run = record(MODEL + "step()\n")
    assert (run.status, run.bye["reason"], run.bye["steps"]) == (0, "exit", 1)


def test_program_that_never_steps(record):
    assert record("import torch; torch.zeros(3).cuda()").bye["steps"] == 0


def test_program_without_cuda_writes_nothing(record):
    run = record("import torch; print(torch.zeros(3).sum().item())")
    assert (run.status, run.output, run.lines) == (0, "0.0\n", [])


def test_program_without_torch_writes_nothing(record):
    run = record("import sys; print('torch' in sys.modules)")
    assert (run.output, run.lines) == ("False\n", [])


def test_error_names_the_line_of_the_script(record):
    run = record(MODEL + "step()\nmodel(torch.zeros(3, 5, device='cuda'))\n")
    assert run.status == 1
    error = run.bye["error"]
    assert run.bye["reason"] == "error"
    assert error["type"] == "RuntimeError"
    assert error["file"].endswith("script.py")
    assert error["line"] == 10
    assert "[3, 5]" in run.errors
    assert "failed while attempting to run meta" not in run.errors


def test_program_that_does_not_reach_the_network(record):
    """By name, by a refused connection, and through transformers, before anything is on the card and after it."""
    name = "http://fit-check.invalid/weights"
    for lines in (
        f"import urllib.request; urllib.request.urlopen('{name}')",
        "import urllib.request; urllib.request.urlopen('http://127.0.0.1:9/')",
        f"torch.zeros(1).cuda(); torch.hub.load_state_dict_from_url('{name}')",
        "import transformers; transformers.AutoModel.from_pretrained('fit-check/no-such-model')",
    ):
        offline = {"HF_HUB_OFFLINE": "1"} if "transformers" in lines else {}
        run = record("import torch\n" + lines + "\n", environment=offline)
        assert (run.status, run.bye["reason"]) == (1, "error"), run.errors
        error = run.bye["error"]
        assert error["line"] == 2
        assert "fetch its files beforehand" in error["hint"], error["traceback"]


def test_question_without_a_terminal(record):
    run = record("import torch\ntorch.cuda.is_available()\ninput('which data? ')\n")
    assert run.bye["error"]["type"] == "EOFError" and run.bye["error"]["line"] == 3
    assert "no terminal" in run.bye["error"]["hint"]


def test_other_errors_have_no_hint_about_the_network(record):
    for line in ("open('/no/such/file')", "import urllib.request; urllib.request.urlopen('file:///no/such/file')"):
        run = record(f"import torch; torch.zeros(1).cuda()\n{line}\n")
        assert run.bye["error"]["hint"] is None


def test_exit_with_a_status(record):
    run = record(MODEL + "step()\nraise SystemExit(3)\n")
    assert (run.status, run.bye["reason"]) == (3, "exit")


def test_exit_at_once(record):
    run = record(MODEL + "import os\nstep()\nos._exit(4)\n")
    assert (run.status, run.bye["reason"]) == (4, "exit")


def test_interrupt(record):
    run = record(MODEL + "step()\nraise KeyboardInterrupt\n")
    assert run.bye["reason"] == "killed"
    assert run.errors == "KeyboardInterrupt\n"


def test_card_that_the_program_has_not(record):
    run = record("import torch\ntorch.zeros(3, device='cuda')\ntorch.cuda.set_device(1)\n")
    assert run.bye["reason"] == "error"
    assert "invalid device ordinal" in run.bye["error"]["message"]
    assert run.bye["error"]["line"] == 3


def test_workers_that_load_data_end_too(record):
    run = record(
        MODEL.replace('8, 64, device="cuda"', "8, 64")
        + """
from torch.utils.data import DataLoader, TensorDataset
import os
class Data(torch.utils.data.Dataset):
    def __len__(self): return 10**6
    def __getitem__(self, i): return torch.full((64,), float(os.getpid()))
workers = set()
for batch in DataLoader(Data(), batch_size=8, num_workers=2, pin_memory=True):
    workers.add(int(batch[0, 0])); print(int(batch[0, 0]), flush=True)
    optimizer.zero_grad(); model(batch.cuda(non_blocking=True)).sum().backward(); optimizer.step()
"""
    )
    assert run.bye["reason"] == "steps"
    time.sleep(0.5)
    workers = {int(line) for line in run.output.split()}
    assert workers and not [w for w in workers if os.path.exists(f"/proc/{w}")]


def test_reader_that_has_gone_ends_the_program(tmp_path):
    import socket

    path = str(tmp_path / "socket")
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen()
    script = tmp_path / "script.py"
    script.write_text(MODEL + "while True: step()\n")
    settings = {"socket": path, "steps": 10**9,
                "device": {"name": "card", "capability": [8, 6], "total_bytes": 1 << 30}}  # fmt: skip
    child = subprocess.Popen(
        [sys.executable, str(script)],
        env=dict(os.environ, PYTHONPATH=str(FOLDER), FIT_CHECK_RECORDER=json.dumps(settings)),
    )
    connection, _ = listener.accept()
    assert connection.recv(6) == b'["hell'
    connection.close()
    assert child.wait(timeout=120) == 1


@pytest.mark.parametrize("variable", ["WANDB_MODE", "COMET_MODE"])
def test_services_are_off(record, variable):
    run = record(f"import os, torch; torch.zeros(1).cuda(); print(os.environ['{variable}'])")
    assert run.output == "disabled\n"
