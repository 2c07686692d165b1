"""The records that a site holds out: a fixed share, by its own secret, and so that the
parts of neighbours are neighbours.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedaux.client.held_out import SECRET_FILE, secret_of, split_of, split_records
from fedaux.client.site import Site
from fedaux.config.schema import Config
from fedaux.config.sections import PrivacyConfig
from fedaux.data.federated import read_private
from fedaux.data.records import Records

SECRET = b"0123456789abcdef"
REPLACE = PrivacyConfig()
ADD = PrivacyConfig(adjacency="add-remove", declared_records=100)
PERSONS = PrivacyConfig(unit="person")


def records(values: list[int], persons: list[int] | None = None) -> Records:
    x = np.array(values, np.float32).reshape(-1, 1)
    y = np.array(values, np.int64) % 3
    return Records(x, y, person=None if persons is None else np.array(persons))


def contents(part: Records) -> Counter[tuple[float, int]]:
    rows = part.gather()[:, 0].tolist()
    return Counter(zip(rows, part.labels.tolist(), strict=True))


def distance(one: Counter[Any], other: Counter[Any]) -> tuple[int, int]:
    """How many records only one of them has."""
    return sum((one - other).values()), sum((other - one).values())


@given(
    st.lists(st.integers(0, 50), min_size=1, max_size=40),
    st.integers(0, 50),
    st.floats(0.05, 0.95),
)
def test_parts_of_neighbours_differ_in_one_record_at_most(
    values: list[int], other: int, share: float
) -> None:
    ours = split_records(records(values), share, SECRET, REPLACE)
    theirs = split_records(records([other, *values[1:]]), share, SECRET, REPLACE)
    for part, neighbour in zip(ours, theirs, strict=True):
        assert len(part) == len(neighbour)
        assert distance(contents(part), contents(neighbour)) in ((0, 0), (1, 1))
    added = split_records(records([other, *values]), share, SECRET, ADD)
    without = split_records(records(values), share, SECRET, ADD)
    gained = [
        distance(contents(more), contents(less))
        for more, less in zip(added, without, strict=True)
    ]
    assert sorted(gained) == [(0, 0), (1, 0)]


@given(
    st.lists(st.integers(0, 9), min_size=1, max_size=40),
    st.floats(0.05, 0.95),
)
def test_all_records_of_a_person_are_on_one_side(
    persons: list[int], share: float
) -> None:
    both = records(list(range(len(persons))), persons)
    trained, held_out = split_records(both, share, SECRET, PERSONS)
    assert not set(trained.persons) & set(held_out.persons)
    assert len(set(held_out.persons)) == round(share * len(set(persons)))
    assert len(trained) + len(held_out) == len(both)


def test_the_split_goes_by_the_secret_and_not_by_the_order_of_the_file() -> None:
    values = list(range(200))
    _, held_out = split_records(records(values), 0.25, SECRET, REPLACE)
    _, reversed_ = split_records(records(values[::-1]), 0.25, SECRET, REPLACE)
    _, other = split_records(records(values), 0.25, b"another secret", REPLACE)
    assert len(held_out) == 50
    assert contents(held_out) == contents(reversed_) != contents(other)


def test_texts_are_split_as_well() -> None:
    x = np.array([f"text {number} \ud800" for number in range(20)], object)
    trained, held_out = split_records(
        Records(x, np.zeros(20, np.int64)), 0.5, SECRET, REPLACE
    )
    assert len(trained) == len(held_out) == 10
    assert not set(trained.gather()) & set(held_out.gather())


@pytest.mark.parametrize("share", [0.0, 0.25])
def test_a_real_site_draws_its_secret_once(tmp_path: Path, share: float) -> None:
    config = Config.from_dict(
        {
            "data": {
                "partition": "own",
                "source": "csv",
                "classes": ["a", "b", "c"],
                "site_test_fraction": share,
            },
            "privacy": {"look_epsilon": 1.0},
            "federation": {"sites": ["a"]},
        }
    )
    site = Site(config, tmp_path, ("a",))
    both = records(list(range(40)))
    _, first = split_of(site, "a", both)
    _, second = split_of(Site(config, tmp_path, ("a",)), "a", both)
    assert len(first) == 40 * share
    assert contents(first) == contents(second)
    path = tmp_path / SECRET_FILE
    assert path.exists() == (share > 0)
    if share:
        assert path.stat().st_mode & 0o777 == 0o600
        assert secret_of(site, "a") == path.read_bytes()
        path.unlink()
        assert secret_of(site, "a") != SECRET


def test_the_owner_is_warned_when_other_records_are_held_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A schema whose columns are scaled in another way makes other numbers of the same
    records.
    """
    schema = tmp_path / "schema.toml"
    columns = '[columns]\nage = {kind = "number", range = [0, 99]QUANTILES}\n'
    ages = np.arange(100)
    lines = [f"{age},{'yes' if age % 2 else 'no'}" for age in ages]
    (tmp_path / "data.csv").write_text("\n".join(["age,ill", *lines]))
    header = 'label = "ill"\nclasses = ["no", "yes"]\nconfirmed = true\n'

    def held_out(quantiles: str) -> set[int]:
        schema.write_text(header + columns.replace("QUANTILES", quantiles))
        data = {
            "source": "table",
            "path": str(tmp_path / "data.csv"),
            "options": {"schema": str(schema)},
            "classes": ["no", "yes"],
            "partition": "own",
            "site_test_fraction": 0.5,
        }
        table = {"data": data, "privacy": {"look_epsilon": 1.0}}
        config = Config.from_dict(table | {"federation": {"sites": ["a"]}})
        site = Site(config, tmp_path / "vault", ("a",))
        rows = read_private(config.data, ("no", "yes"))
        _, part = split_of(site, "a", rows)
        assert part.rows is not None
        return set(part.rows.tolist())

    first = held_out("")
    assert held_out("") == first
    assert "other records" not in caplog.text
    second = held_out(", quantiles = [0, 20, 99]")
    assert len(first & second) < 40  # of 50
    assert "have changed: the schema of the table. Models" in caplog.text
    caplog.clear()
    assert held_out(", quantiles = [0, 20, 99]") == second
    assert "other records" not in caplog.text
