"""`python -m fedaux` and `fedaux --version`."""

import runpy
import sys

import pytest

import fedaux


def test_the_package_is_a_program(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["fedaux", "--version"])
    monkeypatch.setattr(sys, "path", list(sys.path))
    with pytest.raises(SystemExit) as caught:
        runpy.run_module("fedaux", run_name="__main__")
    assert not caught.value.code
    assert capsys.readouterr().out == f"fedaux {fedaux.__version__}\n"
