"""What the pages show is what happens: every block of code is run as a reader would run
it (`docs_pages`).
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from helpers import docs_pages
from helpers.docs_pages import (
    PAGES,
    ROOT,
    blocks,
    commands,
    environment,
    missing,
    needs,
)

SLOW = {  # pages that take more than 20 seconds
    "README.md": "five methods and the demo",
    "own-data.md": "two runs",
    "own-method.md": "two runs",
    "own-network.md": "a run with two networks",
    "private-head.md": "two runs and a model",
    "private-training.md": "a run",
    "tutorial-compare.md": "a run, a tuning and three comparisons",
    "tutorial-sites.md": "a run and a model",
    "tutorial-tables.md": "two runs and a model",
    "index.md": "the demo",
    "models.md": "a run, and its graph for ONNX",
    "commands.md": "nearly every command once",
    "choosing-epsilon.md": "a plan",
    "preparation.md": "pre-training",
    "python.md": "a run",
    "results-of-a-run.md": "three trackers",
    "tuning.md": "two tunings and a comparison",
    "studies.md": "two sweeps and a comparison, in processes of their own",
}
RUNNABLE = ("python", "console")
TEXTS = {page.name: page.read_text(encoding="utf-8") for page in PAGES}
MOST_NOT_RUN = 14


def _pages() -> list[object]:
    """Every page that has something to run; the slow ones are marked."""
    found: list[object] = []
    for page in PAGES:
        if any(
            one.language in RUNNABLE or one.title for one in blocks(TEXTS[page.name])
        ):
            marks = [pytest.mark.slow] if page.name in SLOW else []
            found.append(pytest.param(page, id=page.name, marks=marks))
    return found


@pytest.mark.parametrize("page", _pages())
def test_a_page_does_what_it_shows(page: Path, tmp_path: Path) -> None:
    folder = tmp_path / "empty"
    folder.mkdir()
    player = Path(docs_pages.__file__)
    done = subprocess.run(
        [sys.executable, str(player), str(page)],
        cwd=folder,
        env=environment(folder),
        text=True,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout[-4000:]}\n{done.stderr[-4000:]}"


def test_blocks_that_are_not_run_say_why_and_are_few() -> None:
    skipped = [
        (name, one)
        for name, text in TEXTS.items()
        for one in blocks(text)
        if one.skip is not None
    ]
    for name, one in skipped:
        print(f"{name}:{one.line}: not run: {one.skip}")
        assert one.skip, f"{name}:{one.line}: <!-- not run: reason --> needs a reason"
    assert len(skipped) <= MOST_NOT_RUN


def test_commands_stand_in_console_blocks() -> None:
    """A block in `bash` or `sh` would escape the tests."""
    for name, text in TEXTS.items():
        for one in blocks(text):
            assert one.language not in ("bash", "sh", "shell", "zsh", "pycon", "py"), (
                f"{name}:{one.line}"
            )
            assert one.language, (
                f"{name}:{one.line}: name the language; `text` if it is none"
            )


def test_pages_need_what_there_is() -> None:
    for name, text in TEXTS.items():
        assert all((ROOT / needed).exists() for needed in needs(text)), name
    assert set(TEXTS) >= set(SLOW)


PAGE = """
```console
$ echo one two 17.5
one two 3
$ mkdir -p there && cd there
```
```python
x = 1
```
<!-- not run: it would fail -->
```python
raise SystemExit("was run")
```
```toml title="mine/own.toml"
key = 1
```
```python
from pathlib import Path
assert x == 1
assert Path("there/mine/own.toml").read_text() == "key = 1\\n"
```
"""


def _played(page: str, tmp_path: Path) -> subprocess.CompletedProcess[str]:
    (tmp_path / "empty").mkdir()
    (tmp_path / "page.md").write_text(page, encoding="utf-8")
    words = [sys.executable, str(Path(docs_pages.__file__)), str(tmp_path / "page.md")]
    folder = tmp_path / "empty"
    return subprocess.run(
        words,
        cwd=folder,
        env=environment(folder),
        text=True,
        capture_output=True,
        check=False,
    )


def test_the_player_plays(tmp_path: Path) -> None:
    done = _played(PAGE, tmp_path)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("page", "complaint"),
    [
        ("```console\n$ false\n```\n", "ended with 1"),
        (
            "```console\n$ echo other words\nthese words\n```\n",
            "did not print 'these words'",
        ),
        ("\n```python\nx = 1\nundefined\n```\n", 'page.md", line 4'),
        ("```console\n$ fedaux no-such-command\n```\n", "ended with 2"),
    ],
)
def test_the_player_can_fail(page: str, complaint: str, tmp_path: Path) -> None:
    done = _played(page, tmp_path)
    assert done.returncode != 0
    assert complaint in done.stderr


def test_shown_output_is_compared_by_its_words() -> None:
    printed = "┃ FedAUX │ 88.2 ┃\n accuracy 0.913  ▁▃█\nThe end of\nit all"
    assert (
        missing(["FedAUX   87.5", "…", "accuracy 0.9  ▁█", "end of it all"], printed)
        is None
    )
    assert missing(["accuracy 0.9", "FedAUX"], printed) == "FedAUX"  # order counts
    assert list(commands("$ a \\\n  --b\nout\n$ c\n")) == [
        ("a \\\n  --b", ["out"]),
        ("c", []),
    ]
