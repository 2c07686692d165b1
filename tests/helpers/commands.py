"""The command lines as the console script and `python -m studies` run them, in this
process.
"""

import sys
from collections.abc import Callable

import pytest
from studies.__main__ import main as studies_main

from fedaux.cli import main


def fedaux(monkeypatch: pytest.MonkeyPatch, *words: object) -> int:
    """The exit code of `fedaux WORDS`; what it adds to the path of modules is taken
    back after the test.
    """
    return exit_code(main, monkeypatch, *words)


def studies(monkeypatch: pytest.MonkeyPatch, *words: object) -> int:
    """The exit code of `python -m studies WORDS`, likewise."""
    return exit_code(studies_main, monkeypatch, *words)


def exit_code(
    main: Callable[[], None], monkeypatch: pytest.MonkeyPatch, *words: object
) -> int:
    monkeypatch.setattr(sys, "argv", ["fedaux", *map(str, words)])
    monkeypatch.setattr(sys, "path", list(sys.path))
    with pytest.raises(SystemExit) as caught:
        main()
    return int(caught.value.code or 0)


def paragraph(text: str) -> str:
    """Words with one space between them, however they were wrapped."""
    return " ".join(text.split())
