"""The command line as the console script runs it, in this process."""

import sys

import pytest

from fedaux.cli import main

TINY = """
rounds = 2
prototypes = [{name = "mlp", features = 8, hidden = 8}]
[data]
clients = 3
[aux]
limit = 100
[pretrain]
epochs = 0
"""


def fedaux(monkeypatch: pytest.MonkeyPatch, *words: object) -> int:
    """The command as the console script runs it, in this process; its exit code."""
    monkeypatch.setattr(sys, "argv", ["fedaux", *map(str, words)])
    with pytest.raises(SystemExit) as caught:
        main()
    return int(caught.value.code or 0)


def paragraph(text: str) -> str:
    return " ".join(text.split())
