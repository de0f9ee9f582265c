"""Private names of PyTorch."""

import pytest

from fit_check_recorder import names


def test_this_version_has_all():
    assert names.missing() == []


def test_a_missing_name_is_said():
    assert names.missing(["torch.nn.Module._apply", "torch._C._no_such_name"]) == ["torch._C._no_such_name"]


def test_an_old_version_is_refused():
    with pytest.raises(names.UnsupportedTorchError, match=r"PyTorch 2\.8\.0\+cu128 is too old.*2\.10"):
        names.check("2.8.0+cu128")
