"""The command line as the console script runs it, in this process."""

import sys

import pytest

from fedaux.cli import main


def fedaux(monkeypatch: pytest.MonkeyPatch, *words: object) -> int:
    """The exit code of `fedaux WORDS`; what it adds to the path of modules is taken
    back after the test.
    """
    monkeypatch.setattr(sys, "argv", ["fedaux", *map(str, words)])
    monkeypatch.setattr(sys, "path", list(sys.path))
    with pytest.raises(SystemExit) as caught:
        main()
    return int(caught.value.code or 0)


def paragraph(text: str) -> str:
    """Words with one space between them, however they were wrapped."""
    return " ".join(text.split())
