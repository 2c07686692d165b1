"""The runbook and the README of a deployment have the same steps in the same order."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest
import typer

from fedaux.cli import app
from fedaux.config.schema import Config
from fedaux.deploy.layout import Address, write_layout

RUNBOOK = (Path(__file__).resolve().parents[2] / "docs" / "runbook.md").read_text(
    encoding="utf-8"
)
FENCED = re.compile(
    r"^ *```(?:bash|console|text)\n(.*?)^ *```", re.DOTALL | re.MULTILINE
)


def commands(text: str) -> list[str]:
    """The commands of all blocks of code, without the names of sites and files."""
    lines = [line for block in FENCED.findall(text) for line in block.splitlines()]
    typed = [line.strip().removeprefix("$ ").partition(" #")[0] for line in lines]
    found = []
    for line in typed:
        called = re.match(r"fedaux (?:deploy|site) [a-z-]+|\S*?(\w+\.sh)", line)
        if called:
            found.append(called[1] or called[0])
    return found


def steps(text: str, title: str) -> list[str]:
    """The titles of numbered steps, of which `title` is the form."""
    found = re.findall(title, text, flags=re.MULTILINE)
    numbers = [int(number) for number, _ in found]
    assert numbers == list(range(1, len(numbers) + 1))
    return [name for _, name in found]


def is_subsequence(part: list[str], whole: list[str]) -> bool:
    rest = iter(whole)
    return all(one in rest for one in part)


@pytest.fixture(params=["fl.example.org", "127.0.0.1"])
def short_form(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The steps of the README that `fedaux deploy init` writes."""
    folder = tmp_path / "hospitals"
    write_layout(folder, ["berlin", "paris"], Address(request.param, 8443), Config())
    text = (folder / "README.md").read_text(encoding="utf-8")
    return text.partition("## Set up real sites")[2].partition("\n## ")[0]


def test_the_readme_has_the_commands_of_the_runbook_in_its_order(
    short_form: str,
) -> None:
    typed = commands(short_form)
    assert len(typed) > 6
    assert is_subsequence(typed, commands(RUNBOOK))


def test_the_readme_has_the_steps_of_the_runbook_by_name(short_form: str) -> None:
    named = steps(short_form, r"^(\d)\. \*\*(.+?)\.?\*\*")
    whole = steps(RUNBOOK, r"^## (\d)\. (.+)$")
    assert len(whole) == 8
    assert is_subsequence(named, whole)
    assert set(whole) - set(named) <= {"Each owner approves the plan"}


def test_the_commands_of_the_runbook_exist_with_their_options() -> None:
    """Those of steps that need other machines are not run by the tests of pages."""
    lines = [line for block in FENCED.findall(RUNBOOK) for line in block.splitlines()]
    typed = [line.removeprefix("$ ") for line in lines if "fedaux " in line]
    assert len(typed) >= 8
    for line in typed:
        words = shlex.split(line, comments=True)[1:]
        command: click.Command = typer.main.get_command(app)
        while isinstance(command, click.Group):
            command = command.commands[words.pop(0)]
        options = {name for one in command.params for name in one.opts}
        used = {word for word in words if word.startswith("--")}
        assert used <= options, line


def test_another_order_would_be_found() -> None:
    text = "```bash\nfedaux deploy check a  # b\n./server/run.sh\n```\n"
    assert commands(text) == ["fedaux deploy check", "run.sh"]
    assert is_subsequence(["a", "c"], ["a", "b", "c"])
    assert not is_subsequence(["c", "a"], ["a", "b", "c"])
