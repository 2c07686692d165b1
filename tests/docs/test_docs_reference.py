"""The reference has everything that there is: commands, exit codes, public names and
the meaning of every setting.
"""

from __future__ import annotations

import importlib
import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import click
import pytest
import typer

import fedaux
from fedaux.cli import app
from fedaux.core.errors import Exit

ROOT = Path(__file__).resolve().parents[2]
COMMANDS = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
ERRORS = (ROOT / "docs" / "errors.md").read_text(encoding="utf-8")
REFERENCE = "\n".join(
    page.read_text(encoding="utf-8")
    for page in (ROOT / "docs" / "api.md", *sorted(ROOT.glob("docs/api/*.md")))
)


def names(group: click.Command, prefix: str = "") -> Iterator[str]:
    """`run`, `privacy report`, …: all commands that can be typed, but for hidden
    ones.
    """
    for name, one in getattr(group, "commands", {}).items():
        if not one.hidden:
            yield from (
                names(one, f"{prefix}{name} ")
                if hasattr(one, "commands")
                else [prefix + name]
            )


def test_every_command_has_a_section() -> None:
    typed = set(names(typer.main.get_command(app)))
    assert typed >= {"run", "privacy report", "deploy init"}
    assert typed == set(re.findall(r"^### (.+)$", COMMANDS, flags=re.MULTILINE))


def test_exit_codes_are_those_of_the_program() -> None:
    listed = {
        name: int(code)
        for code, name in re.findall(
            r"^\| (\d+) \| `(\w+)` \|", ERRORS, flags=re.MULTILINE
        )
    }
    assert listed == {code.name: code.value for code in Exit}


def test_public_names_are_in_the_reference() -> None:
    for name in fedaux.__all__:
        # documented as a whole, or the name by itself
        module = rf"fedaux\.{fedaux._HOMES[name]}"
        assert re.search(
            rf"^::: ({module}|fedaux[\w.]*\.{name})$", REFERENCE, flags=re.MULTILINE
        ), name


def test_what_the_reference_names_exists() -> None:
    paths = re.findall(r"^::: (\S+)$", REFERENCE, flags=re.MULTILINE)
    assert len(paths) == len(set(paths)) > 70, "each name once"
    for path in paths:
        module, _, name = path.rpartition(".")
        assert hasattr(importlib.import_module(module), name), path


@pytest.fixture
def extension() -> ModuleType:
    pytest.importorskip("griffe")
    spec = importlib.util.spec_from_file_location(
        "field_comments", ROOT / "docs" / "field_comments.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("rounds: int = 10  # how many", "How many."),
        ("x: int = (\n    0  # as everybody knows it\n)", "As everybody knows it."),
        ("# of a run,\n# at most\nrounds: int = 10", "Of a run, at most."),
        ('name: str = "# no comment"', ""),
        ("x: int = 1", ""),
    ],
)
def test_the_comment_of_a_field_is_its_documentation(
    extension: ModuleType, source: str, text: str
) -> None:
    assert extension.comment_of(source) == text


def test_every_setting_says_what_it_is(extension: ModuleType) -> None:
    """The parts of a `Config` have a docstring of their own."""
    import griffe

    config = griffe.load(
        "fedaux.config", search_paths=[ROOT / "src"], allow_inspection=False
    )
    classes = {
        name: found
        for module in config.modules.values()
        for name, found in module.classes.items()
    }
    assert {"Config", "PrivacyConfig", "TeachersConfig"} <= set(classes)
    for name in [found for found in classes if found.endswith("Config")]:
        fields = [
            one
            for one in classes[name].attributes.values()
            if one.annotation is not None
        ]
        bare = [
            one.name
            for one in fields
            if "Config" not in str(one.annotation) and "property" not in one.labels
        ]
        bare = [
            field
            for field in bare
            if not extension.comment_of(
                extension.source_of(classes[name].attributes[field])
            )
        ]
        assert bare == [], name


def test_the_page_of_methods_is_that_of_the_program() -> None:
    script = ROOT / "docs" / "methods_table.py"
    spec = importlib.util.spec_from_file_location("methods_table", script)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    page = module.PAGE.read_text(encoding="utf-8")
    assert module.table() in page, "python docs/methods_table.py writes it again"
    assert module.with_table(page) == page
