"""Pages as a reader uses them: blocks of code in order, in one empty folder. Run as a
program, it plays one page.

    ```python                     is executed; all of a page share one namespace
    ```console                    lines after `$ ` are given to the shell, those between are what it must print
    ```any title="name"           is a file of that name, written into the folder
    <!-- not run: reason -->      directly above a block: it is shown, not run
    <!-- needs: examples -->      anywhere in a page: this file or folder of the checkout is copied beforehand

Shown output is held to its words: numbers and spaces may differ, and a line of `…` stands for any number of lines.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]

_FENCE = re.compile(r"^(?P<indent> *)```(?P<language>\w*)(?P<rest>[^`\n]*)$")
_MARK = re.compile(r"^\s*<!-- not run:(?P<reason>.*)-->\s*$")
_NUMBER = re.compile(r"\d[\d,.]*(?:e[-+]?\d+)?")
_DRAWN = re.compile(r"[\u2500-\u257f]+")  # borders of tables
_BARS = re.compile(r"[\u2581-\u2588]+")  # a curve in one line of text


@dataclass(frozen=True)
class Block:
    """One fenced block of a page; `line` is its first line of code, `skip` the reason
    for not running it.
    """

    language: str
    text: str
    line: int
    title: str = ""
    skip: str | None = None


def blocks(page: str) -> list[Block]:
    """All fenced blocks of a page's text."""
    found, lines = [], iter(enumerate(page.splitlines(), start=1))
    skip: str | None = None
    for number, line in lines:
        fence = _FENCE.match(line)
        if fence is None:
            mark = _MARK.match(line)
            skip = mark["reason"].strip() if mark else None
            continue
        indent, body = len(fence["indent"]), []
        for _, inner in lines:
            if inner.strip() == "```":
                break
            body.append(inner[indent:])
        title = re.search(r'title="([^"]+)"', fence["rest"])
        text = "".join(f"{row}\n" for row in body)
        found.append(
            Block(fence["language"], text, number + 1, title[1] if title else "", skip)
        )
        skip = None
    return found


def needs(page: str) -> list[str]:
    return re.findall(r"<!-- needs: (\S+) -->", page)


def commands(text: str) -> Iterator[tuple[str, list[str]]]:
    """(command, lines it should print); a command goes on in the next line after a
    backslash.
    """
    command, printed = "", []
    for line in text.splitlines():
        if command.endswith("\\"):
            command = f"{command}\n{line}"
        elif line.startswith("$ "):
            if command:
                yield command, printed
            command, printed = line[2:], []
        elif command and line.strip():
            printed.append(line)
        elif line.strip():
            raise ValueError(f"a console block begins with '$ ', not with {line!r}")
    if command:
        yield command, printed


def words(text: str) -> str:
    """What is compared: no borders, one space between words, every number the same."""
    return " ".join(_NUMBER.sub("0", _BARS.sub("▁", _DRAWN.sub(" ", text))).split())


def missing(shown: list[str], printed: str) -> str | None:
    """The first shown line that was not printed after those before it."""
    rest = words(printed)
    for line in shown:
        if line.strip() in ("…", "..."):
            continue
        _, found, rest = rest.partition(words(line))
        if not found:
            return line
    return None


def environment(folder: Path) -> dict[str, str]:
    """A shell in which `fedaux` and `python` are this checkout's, and caches are the
    folder's.
    """
    programs = folder.parent / "bin"
    programs.mkdir(exist_ok=True)
    program = programs / "fedaux"
    guarded = 'if __name__ == "__main__":  # --jobs starts processes that import this file\n    main()\n'
    program.write_text(f"#!{sys.executable}\nfrom fedaux.cli import main\n\n{guarded}")
    program.chmod(0o755)
    path = os.pathsep.join(
        [str(programs), str(Path(sys.executable).parent), os.environ.get("PATH", "")]
    )
    quiet = {
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "NO_COLOR": "1",
        "COLUMNS": "200",
    }
    own = {
        "FEDAUX_CACHE": str(folder.parent / "cache"),
        "PYTHONPATH": str(ROOT / "src"),
        "OMP_NUM_THREADS": "1",
    }
    return {**os.environ, **quiet, **own, "PATH": path, "MPLBACKEND": "agg"}


def play(page: Path, folder: Path) -> None:
    """All blocks of a page, in this process, whose working directory is `folder`."""
    text, namespace = page.read_text(encoding="utf-8"), {"__name__": "__main__"}
    for name in needs(text):
        source, target = ROOT / name, folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(source, target) if source.is_dir() else shutil.copy(
            source, target
        )
    where = folder
    for block in blocks(text):
        if block.skip is not None:
            continue
        if block.title:
            (where / block.title).parent.mkdir(parents=True, exist_ok=True)
            (where / block.title).write_text(block.text, encoding="utf-8")
        elif block.language == "python":
            # so that tracebacks show the page's own lines
            code = "\n" * (block.line - 1) + block.text
            exec(compile(code, str(page), "exec"), namespace)
        elif block.language == "console":
            for command, shown in commands(block.text):
                where = _shell(command, shown, where, f"{page.name}:{block.line}")


def _shell(command: str, shown: list[str], where: Path, place: str) -> Path:
    """Run one command and hold its output to what the page shows; the folder in which
    it leaves the shell.
    """
    note = Path(os.environ["FEDAUX_CACHE"]).parent / "pwd"
    script = f"trap 'pwd > {note}' EXIT\n{command}\n"
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=where,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    print(f"$ {command}\n{done.stdout}")
    if done.returncode:
        raise SystemExit(f"{place}: {command!r} ended with {done.returncode}")
    if (line := missing(shown, done.stdout)) is not None:
        raise SystemExit(f"{place}: {command!r} did not print {line!r}")
    return Path(note.read_text(encoding="utf-8").strip())


if __name__ == "__main__":
    sys.path.insert(0, os.getcwd())  # noqa: PTH109 - as `python` does for the folder it is started in
    play(Path(sys.argv[1]), Path.cwd())
