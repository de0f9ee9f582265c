"""A step that is recorded in a fork makes the same lines as in a process of its own."""

import contextlib
import json
import os
import pathlib
import socket
import subprocess
import sys

import pytest

from fit_check_recorder.dump import device

pytest.importorskip("transformers")

RECORDER = pathlib.Path(__file__).parent.parent
STEP = RECORDER.parents[2] / "fit-check" / "src" / "torch_program" / "training_step.py"

SMALL = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "vocab_size": 300,
}

ALONE = f"""
import sys
sys.path.append({str(STEP.parent)!r})
import training_step
training_step.train(sys.argv[1:])
"""


@contextlib.contextmanager
def server(folder, card):
    """A process that records requests, and what asks it."""
    path = folder / "requests"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(path))
        listener.listen()
        environment = dict(
            os.environ,
            PYTHONPATH=str(RECORDER),
            FIT_CHECK_RECORDER=json.dumps({"file": str(folder / "none"), "device": device(card)}),
            FIT_CHECK_REQUESTS=str(path),
        )
        with subprocess.Popen([sys.executable, str(STEP)], env=environment, stderr=subprocess.DEVNULL) as process:
            connection, _ = listener.accept()
            with connection, connection.makefile("r") as answers:

                def ask(arguments, card, lines):
                    settings = json.dumps({"file": str(lines), "device": device(card)})
                    request = json.dumps({"settings": settings, "arguments": arguments})
                    connection.sendall(request.encode() + b"\n")
                    return json.loads(answers.readline())

                yield ask
            assert process.wait(timeout=30) == 0
    assert not (folder / "none").exists()


def config(folder, model_type, architecture, **more):
    folder = folder / model_type
    folder.mkdir(exist_ok=True)
    content = SMALL | {"model_type": model_type, "architectures": [architecture]} | more
    (folder / "config.json").write_text(json.dumps(content))
    return str(folder)


def test_forks_record_what_a_process_of_its_own_records(tmp_path, record):
    llama = config(tmp_path, "llama", "LlamaForCausalLM", num_key_value_heads=2)
    bert = config(tmp_path, "bert", "BertForMaskedLM")
    vit = config(tmp_path, "vit", "ViTForImageClassification", image_size=32, patch_size=8)
    asked = [
        ("rtx-3090", [llama, "--batch=2", "--seq=16", "--precision=bf16"]),
        ("t4", [llama, "--batch=3", "--seq=16", "--precision=bf16"]),
        ("h200", [bert, "--batch=2", "--seq=16", "--precision=mixed", "--checkpointing"]),
        ("a100", [vit, "--batch=2", "--image=32x32", "--optimizer=adafactor"]),
        ("t4", [bert, "--batch=2", "--seq=16", "--attention=eager"]),
    ]
    lines = [tmp_path / f"{number}.jsonl" for number in range(len(asked))]
    with server(tmp_path, "rtx-3090") as ask:
        for (card, arguments), path in zip(asked, lines, strict=True):
            assert ask(arguments, card, path) == {"status": 0}
    for (card, arguments), path in zip(asked, lines, strict=True):
        alone = record(ALONE, *arguments, card=card)
        forked = [json.loads(line) for line in path.read_text().splitlines()]
        assert alone.status == 0
        assert forked[0][1]["settings"] == alone.lines[0][1]["settings"]
        assert forked[1:] == alone.lines[1:], (card, arguments)


def test_an_error_in_a_fork_leaves_the_next_request_alone(tmp_path):
    bert = config(tmp_path, "bert", "BertForMaskedLM")
    with server(tmp_path, "t4") as ask:
        lines = tmp_path / "lines.jsonl"
        wrong = tmp_path / "wrong.jsonl"
        assert ask([bert, "--batch=2", "--seq=16", "--freeze=nowhere"], "t4", wrong) == {"status": 2}
        assert ask([bert, "--batch=2", "--seq=16"], "t4", lines) == {"status": 0}
        assert json.loads(lines.read_text().splitlines()[-1])[1]["reason"] == "steps"
