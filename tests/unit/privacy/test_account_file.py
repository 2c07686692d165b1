"""The file of an account is read as it was written; what was not finished was not spent."""

from dataclasses import asdict, replace
from pathlib import Path

import pytest

from fedaux.privacy.account_file import FILE, Entry, count_costly, read_account, to_line
from fedaux.privacy.accounting import BudgetError

HEADER = {"adjacency": "replace-one", "unit": "record"}
ENTRY = Entry("f00d", 1.5, 0.25, 3, 100, 0.5, False)
CLOSED = replace(ENTRY, steps=0)


def write(folder: Path, rest: bytes = b"") -> bytes:
    text = to_line(HEADER) + to_line(asdict(ENTRY)) + to_line(asdict(CLOSED))
    (folder / FILE).write_bytes(text + rest)
    return text


def test_what_was_written_is_read(tmp_path: Path) -> None:
    assert read_account(tmp_path) == ({}, [])
    write(tmp_path)
    assert read_account(tmp_path) == (HEADER, [ENTRY, CLOSED])


def test_an_entry_that_closes_another_costs_nothing() -> None:
    assert count_costly([ENTRY, CLOSED, ENTRY]) == 2


def test_half_a_line_is_ignored_and_removed_only_on_repair(tmp_path: Path) -> None:
    text = write(tmp_path, b'{"request": "y", "noi')
    for repair, left in ((False, text + b'{"request": "y", "noi'), (True, text)):
        assert read_account(tmp_path, repair) == (HEADER, [ENTRY, CLOSED])
        assert (tmp_path / FILE).read_bytes() == left


@pytest.mark.parametrize("line", [b"{\n", b'{"request": "x"}\n', b"[]\n", b"nonsense\n"])
def test_a_whole_line_that_is_no_entry_is_damage(tmp_path: Path, line: bytes) -> None:
    write(tmp_path, line)
    with pytest.raises(BudgetError, match="Restore the newest copy"):
        read_account(tmp_path)


def test_entries_of_older_accounts_without_a_request_are_training() -> None:
    entry = Entry("", 1.0, 1.0, 1, 1, 1.0, False)
    assert entry.trains
    assert replace(entry, request="training f00d").trains
    assert not replace(entry, request="f00d").trains
