"""The program itself, where it is installed."""

import fit_check
import pytest


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
