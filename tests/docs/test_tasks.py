"""A developer's tasks, the gate and the workflows do the same."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
import yaml

import fedaux

ROOT = Path(__file__).resolve().parents[2]
GATE = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
TASKS = (ROOT / "justfile").read_text(encoding="utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))[
    "project"
]


def checks(script: str) -> list[str]:
    """The commands of a script that check something, without what differs from place to
    place.
    """
    lines = re.findall(
        r"^ *(?:\w+=\S+ )?((?:ruff|mypy|mkdocs|python -m pytest)\b.*)$",
        script,
        flags=re.MULTILINE,
    )
    return [
        re.split(r" (?:--site-dir|--durations|tests/|\{\{)", line)[0].strip()
        for line in lines
        if "--collect-only" not in line  # compiles, and checks nothing
    ]


def test_the_tasks_run_what_the_gate_runs() -> None:
    gate = checks(GATE)
    assert len(gate) == 5
    assert set(gate) <= set(checks(TASKS))


def test_workflows_test_the_versions_of_python_that_are_promised() -> None:
    ci = yaml.safe_load(
        (ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8")
    )
    promised = [
        text.rpartition(" ")[2]
        for text in PROJECT["classifiers"]
        if ":: Python :: 3." in text
    ]
    assert ci["jobs"]["gate"]["strategy"]["matrix"]["python"] == promised
    assert f">={promised[0]}" == PROJECT["requires-python"]


def test_the_version_is_the_same_everywhere() -> None:
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))[
        "version"
    ]
    assert {PROJECT["version"], cited} == {fedaux.__version__}


@pytest.mark.parametrize(
    "path", sorted(ROOT.glob(".github/workflows/*.yml")), ids=lambda path: path.name
)
def test_workflows_start_with_no_more_than_reading(path: Path) -> None:
    workflow = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert workflow["permissions"] == {"contents": "read"}
    assert workflow["concurrency"]["group"]
    granted = {
        scope
        for job in workflow["jobs"].values()
        for scope in job.get("permissions", {})
    }
    assert granted <= {"id-token", "pages", "attestations"}


def test_what_differs_from_place_to_place_is_left_out() -> None:
    assert checks('  X=1 mkdocs build --strict --site-dir "$y"\n') == [
        "mkdocs build --strict"
    ]
    assert checks("    python -m pytest -n 2 {{ a }}\n") == ["python -m pytest -n 2"]


def test_a_tag_publishes_nothing_before_the_name_is_registered() -> None:
    """Whoever registers the name first would receive what the workflow uploads."""
    release = yaml.safe_load(
        (ROOT / ".github" / "workflows" / "release.yml").read_text(encoding="utf-8")
    )
    uploads = [
        job
        for job in release["jobs"].values()
        if any("pypi-publish" in step.get("uses", "") for step in job["steps"])
    ]
    assert [job.get("if") for job in uploads] == ["vars.PYPI_PROJECT == 'fedaux'"]
