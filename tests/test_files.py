"""A file is as it was or as it shall be."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fedaux.files import cache_folder, write_atomically


def test_writes_and_replaces_in_folders_that_are_not_there_yet(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "file"
    for data in (b"old", b"new and longer"):
        write_atomically(path, data)
        assert path.read_bytes() == data
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize(("target", "error"), [("os.fsync", OSError), ("pathlib.Path.replace", KeyboardInterrupt)])
def test_a_failure_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str, error: type[BaseException]
) -> None:
    path = tmp_path / "file"
    write_atomically(path, b"old")

    def fail(*_: object) -> None:
        raise error("disk full")

    with monkeypatch.context() as patch:
        patch.setattr(target, fail)
        with pytest.raises(error):
            write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_it_is_on_disk_before_it_takes_the_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, sizes = tmp_path / "file", []
    fsync = os.fsync

    def watch(handle: int) -> None:
        sizes.append((path.exists(), os.fstat(handle).st_size))
        fsync(handle)

    monkeypatch.setattr("os.fsync", watch)
    write_atomically(path, b"12345")
    assert sizes[0] == (False, 5)


def test_a_crash_in_the_middle_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    die = (
        "import os; from fedaux.files import *; os.fsync = lambda _: os._exit(9); write_atomically(Path({!r}), b'new')"
    )
    assert subprocess.run([sys.executable, "-c", die.format(str(path))], check=False).returncode == 9
    assert path.read_bytes() == b"old"
    assert [one.name for one in tmp_path.iterdir() if not one.name.startswith(".")] == ["file"]


def test_the_cache_is_where_the_environment_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FEDAUX_CACHE", str(tmp_path))
    assert cache_folder() == tmp_path
    monkeypatch.delenv("FEDAUX_CACHE")
    assert cache_folder() == Path.home() / ".cache" / "fedaux"
