"""A client's signature of a count: of this count, by this client, under a key that nobody else can read."""

import stat
from pathlib import Path

import pytest

from fedaux.privacy.account_key import FILE, create_key, is_believed, sign


def test_a_key_is_made_once_and_private(tmp_path: Path) -> None:
    create_key(tmp_path)
    key = (tmp_path / FILE).read_bytes()
    create_key(tmp_path)
    assert (tmp_path / FILE).read_bytes() == key
    assert stat.S_IMODE((tmp_path / FILE).stat().st_mode) == 0o600


def test_only_the_count_that_was_signed_is_believed(tmp_path: Path) -> None:
    create_key(tmp_path)
    assert len(sign(tmp_path, 3)) == 64
    assert is_believed(tmp_path, 3, sign(tmp_path, 3))
    for forged in (sign(tmp_path, 2), sign(tmp_path, 3)[:-1], ""):
        assert not is_believed(tmp_path, 3, forged)


@pytest.mark.parametrize("left", [None, b"", b"half"])
def test_a_key_that_is_not_whole_is_none(tmp_path: Path, left: bytes | None) -> None:
    if left is not None:
        (tmp_path / FILE).write_bytes(left)
    assert sign(tmp_path, 3) == ""
    assert is_believed(tmp_path, 3, "")
    create_key(tmp_path)
    assert is_believed(tmp_path, 3, sign(tmp_path, 3))
    assert not is_believed(tmp_path, 3, "")
