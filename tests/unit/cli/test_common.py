"""What all commands share: examples, errors as one paragraph with a code, and a
traceback only for bugs.
"""

import io
import operator
import sys
from functools import partial
from pathlib import Path

import click
import pytest
import typer
from rich.console import Console
from typer.testing import CliRunner

from fedaux.cli import app
from fedaux.cli.common import (
    examples,
    print_error,
    print_json,
    run_app,
    unwrap_summaries,
    with_local_modules,
)
from fedaux.core.errors import Exit, FedauxError
from fedaux.report.terminal import print_sentences


def commands(group: click.Command, path: str) -> list[tuple[str, click.Command]]:
    """Every command, also of groups within groups, with its words."""
    if not isinstance(group, click.Group):
        return [(path, group)]
    return [
        found
        for name, one in group.commands.items()
        for found in commands(one, f"{path} {name}")
    ]


def test_every_command_teaches_with_an_example_and_says_what_it_does() -> None:
    every = commands(typer.main.get_command(app), "fedaux")
    assert len(every) >= 17
    for path, command in every:
        assert f"$ {path}" in (command.epilog or ""), path
        assert command.help, path


def test_examples_are_lines_to_copy_and_brackets_stay() -> None:
    assert (
        examples("fedaux run my.toml  # [fast]").splitlines()[-1]
        == "  $ fedaux run my.toml  # \\[fast]"
    )


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (FedauxError("a [bold] remedy"), Exit.DATA, "error: a [bold] remedy"),
        (
            OSError(28, "No space left on device"),
            Exit.DISK,
            "The same command then continues",
        ),
        (
            ModuleNotFoundError("no such package"),
            Exit.MISSING,
            "error: no such package",
        ),
    ],
)
def test_an_error_is_one_paragraph(
    error: Exception, code: Exit, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert print_error(error) is code
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: ")
    assert words in err
    assert len(err.splitlines()) == 1


def test_what_nobody_foresaw_leaves_its_traceback_in_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(sys, "path", list(sys.path))

    assert run_app(partial(operator.getitem, {}, "a bug")) == Exit.BUG
    err = capsys.readouterr().err
    assert "this should not have happened (KeyError: 'a bug')" in err
    (file,) = tmp_path.iterdir()
    assert str(file) in err
    assert "KeyError" in file.read_text()


def test_how_a_command_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))

    def interrupted() -> None:
        raise KeyboardInterrupt

    assert run_app(lambda: None) == 0
    # a module:function is looked for there as well
    assert sys.path[-1] == str(Path.cwd())
    assert run_app(interrupted) == Exit.STOPPED


def test_modules_beside_a_config_can_be_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    for _ in range(2):
        assert with_local_modules(tmp_path / "my.toml") == tmp_path / "my.toml"
    assert sys.path.count(str(tmp_path)) == 1


def test_one_object_for_a_script(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"ε": [1, None]})
    assert capsys.readouterr().out == '{"ε": [1, null]}\n'


def test_a_users_own_code_shows_its_lines_and_is_no_bug(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "my_hooks.py").write_text("def step(x):\n    return x['rate']\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    from my_hooks import step  # type: ignore[import-not-found]

    run_app(partial(step, {}))
    said = capsys.readouterr().err
    assert "my_hooks.py" in said
    assert "line 2, in step" in said
    assert "your code failed: KeyError: 'rate'" in said
    assert "report it" not in said


@pytest.mark.parametrize(
    ("number", "words"),
    [(30, "change its permissions"), (28, "Make room"), (13, "permissions")],
)
def test_a_folder_that_cannot_be_written_is_not_a_full_one(
    number: int, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert print_error(OSError(number, "cannot write", "/srv/runs")) is Exit.DISK
    said = capsys.readouterr().err
    assert words in said
    assert ("Make room" in said) == (number == 28)


@pytest.mark.parametrize("words", [["rnu"], ["deploy", "statsu"]])
def test_a_suggestion_is_made_once(words: list[str]) -> None:
    found = CliRunner().invoke(app, words)
    assert found.output.count("Did you mean") == 1


def test_a_setting_that_is_no_option_is_one_of_set() -> None:
    """`--rounds 3` meant '--out' or '--regions'."""
    found = CliRunner().invoke(app, ["run", "my.toml", "--rounds", "3"])
    words = " ".join(found.output.replace("│", " ").split())
    assert "Write --set rounds=VALUE" in words
    assert "Did you mean" not in words
    nested = CliRunner().invoke(app, ["compare", "my.toml", "--alpha", "3"])
    words = " ".join(nested.output.replace("│", " ").split())
    assert "--set data.alpha=VALUE" in words
    typo = CliRunner().invoke(app, ["run", "my.toml", "--ouu", "3"])
    assert "--out" in typo.output


def test_sentences_are_broken_between_words_in_a_terminal() -> None:
    """The closing sentences of a comparison had "the hi/ghest"."""

    def printed(terminal: bool) -> str:
        stream = io.StringIO()
        console = Console(file=stream, width=20, force_terminal=terminal)
        print_sentences(console, "FedAUX has the highest accuracy")
        return stream.getvalue()

    assert printed(True).split("\n")[:2] == ["FedAUX has the ", "highest accuracy"]
    assert printed(False) == "FedAUX has the highest accuracy\n"


def test_the_help_lists_no_methods_by_half() -> None:
    found = CliRunner().invoke(app, ["--help"])
    assert "fedaux methods" in found.output
    assert "private head" in found.output
    assert "FedBE" not in found.output


def test_summaries_of_commands_wrap_at_the_width_of_the_terminal() -> None:
    command = typer.Typer()

    @command.command()
    def first() -> None:
        """Do something that takes
        two lines.

        And more.
        """

    whole = typer.Typer()
    whole.add_typer(command, name="group")
    unwrap_summaries(whole)
    assert command.registered_commands[0].short_help == (
        "Do something that takes two lines."
    )
