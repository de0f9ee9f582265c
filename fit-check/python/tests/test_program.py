"""How the program is asked, and what becomes of its exit status."""

import json
from pathlib import Path

import fit_check
import pytest
from fit_check import program as module


def test_arguments_are_the_options_of_the_command_line(program):
    words = program()
    fit_check.estimate(
        Path("folder"),
        batch=8,
        gpu=["l4", "24GB"],
        image=(480, 640),
        checkpointing=True,
        lora=16,
        lora_targets=["q", "v"],
        memory=None,
    )
    assert words() == [
        *("estimate", "--batch=8", "--gpu=l4", "--gpu=24GB", "--image=480x640", "--checkpointing"),
        *("--lora=16", "--lora-targets=q,v", "folder", "--format", "json", "--quiet"),
    ]


def test_a_table_takes_several_models(program):
    words = program()
    fit_check.table(["resnet-20", "vgg-16"], gpu="l4", precision=["fp32", "mixed"])
    assert words()[:5] == ["table", "--gpu=l4", "--precision=fp32", "--precision=mixed", "resnet-20"]


def test_a_job_that_does_not_fit_is_an_answer(program):
    program(stdout=json.dumps({"fits": False}), status=1)
    assert fit_check.estimate("resnet-50", gpu="l4") == {"fits": False}


def test_no_answer_is_an_error_with_its_hint(program):
    program(stdout="", stderr="error: unknown model `resnt`\nhint: did you mean resnet-18\n  or resnet-34?\n", status=2)
    with pytest.raises(fit_check.FitCheckError) as caught:
        fit_check.max_batch("resnt", gpu="l4")
    assert caught.value.args == ("unknown model `resnt`",)
    assert caught.value.hint == "did you mean resnet-18\nor resnet-34?"
    assert caught.value.answer is None


def test_what_is_known_of_a_table_comes_with_the_error(program):
    program(stdout='{"complete": false}', status=2)
    with pytest.raises(fit_check.FitCheckError, match="does not know a part of the answer") as caught:
        fit_check.table("resnet-20")
    assert caught.value.answer == {"complete": False}


def test_a_program_that_dies_is_an_error(program):
    program(stdout="", stderr="", status=137)
    with pytest.raises(fit_check.FitCheckError, match="without an answer .exit status 137."):
        fit_check.estimate("resnet-20")


def test_time_runs_out(program):
    program(seconds=30)
    with pytest.raises(TimeoutError) as caught:
        fit_check.estimate("resnet-20", timeout=0.2)
    assert isinstance(caught.value, fit_check.FitCheckError)


def test_an_option_that_does_not_exist_is_a_type_error(program):
    program()
    with pytest.raises(TypeError, match="there is no option 'sequence'; the options are gpu, memory"):
        fit_check.estimate("bert-base", sequence=128)


def test_no_program_is_an_error_with_a_hint(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(module.sysconfig, "get_path", lambda *_, **__: str(tmp_path))
    with pytest.raises(fit_check.FitCheckError, match="not there .hint: install the wheel"):
        fit_check.find_program()
