"""A file is as it was or as it shall be."""

import os
from pathlib import Path

import numpy as np
import pytest

from fedaux.core.io import (
    cache_folder,
    caching_in,
    hashed_name,
    temporary_array,
    write_atomically,
)


def test_writes_and_replaces_in_folders_that_are_not_there_yet(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "file"
    for data in (b"old", b"new and longer"):
        write_atomically(path, data)
        assert path.read_bytes() == data
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize(
    ("target", "error"),
    [("os.fsync", OSError), ("pathlib.Path.replace", KeyboardInterrupt)],
)
def test_a_failure_leaves_the_old_file_and_nothing_else(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    target: str,
    error: type[BaseException],
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


def test_it_is_on_disk_before_it_takes_the_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, sizes = tmp_path / "file", []
    fsync = os.fsync

    def watch(handle: int) -> None:
        sizes.append((path.exists(), os.fstat(handle).st_size))
        fsync(handle)

    monkeypatch.setattr("os.fsync", watch)
    write_atomically(path, b"12345")
    assert sizes[0] == (False, 5)


def test_the_cache_is_where_the_environment_says(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("FEDAUX_CACHE", str(tmp_path))
    assert cache_folder() == tmp_path
    monkeypatch.delenv("FEDAUX_CACHE")
    assert cache_folder() == Path.home() / ".cache" / "fedaux"


def test_private_files_are_for_their_owner_only_from_the_first_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen, fsync = [], os.fsync

    def watch(handle: int) -> None:
        seen.append(os.fstat(handle).st_mode & 0o777)
        fsync(handle)

    monkeypatch.setattr("os.fsync", watch)
    write_atomically(tmp_path / "open", b"old")
    write_atomically(tmp_path / "secret", b"old", private=True)
    assert seen[::2] == [0o644, 0o600]  # the file, then its folder, each time
    assert [
        (tmp_path / name).stat().st_mode & 0o777 for name in ("open", "secret")
    ] == [0o644, 0o600]
    write_atomically(tmp_path / "open", b"new", private=True)
    assert (tmp_path / "open").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("limit", [2**31, 0], ids=["memory", "disk"])
def test_scratch_is_zeros_to_write_on(limit: int) -> None:
    made = temporary_array((3, 4), np.float32, limit)
    assert (made.shape, made.dtype, made.any()) == ((3, 4), np.float32, False)
    assert isinstance(made, np.memmap) == (limit == 0)
    made[1] = np.arange(4)
    assert made.sum(axis=1).tolist() == [0, 6, 0]


def test_scratch_goes_to_disk_beyond_its_limit_and_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert not isinstance(temporary_array((4,), np.int64, limit=32), np.memmap)
    made = temporary_array((5,), np.int64, limit=32)
    assert isinstance(made, np.memmap)
    assert list(tmp_path.iterdir()) == []
    made[:] = 3
    assert made.sum() == 15
    assert temporary_array((0, 5), np.int64, limit=0).shape == (0, 5)


def test_a_private_cache_is_readable_by_its_owner_alone(tmp_path: Path) -> None:
    usual = cache_folder()
    with caching_in(tmp_path / "vault" / "decoded"):
        assert cache_folder() == tmp_path / "vault" / "decoded"
        assert cache_folder().stat().st_mode & 0o777 == 0o700
    assert cache_folder() == usual


def test_a_hashed_name_is_safe_in_a_path_and_stays_the_same() -> None:
    assert hashed_name("berlin") == "fb38a93fd89e1a5f"
    names = {
        hashed_name(name) for name in ("berlin", "Berlin", "../../etc/passwd", "", "ü")
    }
    assert len(names) == 5
    assert all(name.isalnum() and len(name) == 16 for name in names)
