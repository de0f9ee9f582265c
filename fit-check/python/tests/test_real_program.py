"""The program itself, where it is installed."""

import runpy
import subprocess
import sys
from pathlib import Path

import fit_check
import pytest

ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def _installed():
    try:
        fit_check.find_program()
    except fit_check.FitCheckError:
        pytest.skip("fit-check is not installed")


def test_a_job_fits_on_one_card_and_not_in_less_memory():
    answer = fit_check.estimate("resnet-20", batch=8, gpu="l4")
    assert answer["fits"] and answer["gpu"]["name"] == "L4"
    # He et al. 2015, table 6: 0.27 million parameters.
    assert round(answer["parameters"]["trainable"] / 1e6, 2) == 0.27
    less = fit_check.estimate("resnet-20", batch=8, memory=answer["required_bytes"] - 1)
    assert not less["fits"] and less["reason"]


def test_several_cards_have_a_verdict_each():
    cards = fit_check.estimate("resnet-20", batch=8, gpu=["l4", "t4"])["cards"]
    assert [card["gpu"]["name"] for card in cards] == ["L4", "Tesla T4"]


def test_the_largest_batch_is_that_of_the_table():
    largest = fit_check.max_batch("resnet-20", memory="1GiB")["cards"][0]["max_batch"]
    table = fit_check.table("resnet-20", memory="1GiB")
    assert table["rows"][0]["cells"][0]["max_batch"] == largest > 0


def test_an_unknown_model_is_an_error_with_the_nearest_names():
    with pytest.raises(fit_check.FitCheckError) as caught:
        fit_check.estimate("resnt-50")
    assert "resnet-50" in caught.value.hint


def test_the_example_chooses_a_card(capsys):
    runpy.run_path(str(ROOT / "fit-check/python/examples/choose_a_gpu.py"))
    said = capsys.readouterr().out
    assert said.startswith("fits: ") and "did you mean bert-base" in said


def test_the_page_about_scripts_shows_what_works():
    _, block = (ROOT / "docs/scripts.md").read_text().split("```python\n")
    ended = subprocess.run([sys.executable, "-c", block.split("```")[0]], stdout=subprocess.PIPE, text=True, check=True)
    first, *cards = ended.stdout.splitlines()
    assert first.startswith("True ") and [card.split()[-2] for card in cards] == ["T4", "L4"]
