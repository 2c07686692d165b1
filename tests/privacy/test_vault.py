"""A client remembers what it released, whole, and spends no more than its limit."""

import json
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

from fedaux.exchange import Release
from fedaux.privacy.release import BudgetError, Vault


def made(epsilon: float = 0.1, values: tuple[int, ...] = (2**62, -(2**62), 0)) -> Release:
    arrays = {"values": np.array(values, np.int64)}
    return Release("a", "s", 7, epsilon, 1e-5, "replace-one", "opendp", 2.0**21, 1e8 / 3, 1e-7 / 3, False, arrays)


def facts(one: Release) -> dict[str, object]:
    return {**asdict(one), "arrays": {name: (a.dtype, a.tolist()) for name, a in one.arrays.items()}}


def test_nothing_is_known_at_first(tmp_path: Path) -> None:
    assert Vault(tmp_path / "none", 1.0).recall("x") is None


def test_what_is_stored_is_recalled_to_the_bit_after_a_restart(tmp_path: Path) -> None:
    Vault(tmp_path, 1.0).store("x", made())
    recalled = Vault(tmp_path, 1.0).recall("x")
    assert recalled is not None
    assert facts(recalled) == facts(made())
    assert Vault(tmp_path, 1.0).recall("y") is None


def test_the_file_is_complete_and_readable(tmp_path: Path) -> None:
    Vault(tmp_path, 1.0).store("x", made())
    assert [path.name for path in tmp_path.iterdir()] == ["release-x.json"]
    stored = json.loads((tmp_path / "release-x.json").read_text())
    assert stored == {
        **{key: value for key, value in asdict(made()).items() if key != "arrays"},
        "values": [2**62, -(2**62), 0],
    }


def test_the_file_is_for_its_owner_only(tmp_path: Path) -> None:
    Vault(tmp_path, 1.0).store("x", made())
    assert (tmp_path / "release-x.json").stat().st_mode & 0o077 == 0


def test_budgets_add_up(tmp_path: Path) -> None:
    vault = Vault(tmp_path, 0.3)
    for request in "xyz":  # 0.1 + 0.1 + 0.1 is a little more than 0.3
        vault.check(0.1)
        vault.store(request, made(0.1))
    with pytest.raises(BudgetError, match=r"ε=0\.01 is refused: ε=0\.3 of 0\.3 is already spent.*only on purpose"):
        vault.check(0.01)


def test_a_release_larger_than_the_limit_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(BudgetError, match=r"ε=0 of 0\.1 is already spent"):
        Vault(tmp_path, 0.1).check(0.2)


def test_a_failed_store_spends_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    vault = Vault(tmp_path, 0.1)

    def fail(_: int) -> None:
        raise OSError("disk full")

    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", fail)
        with pytest.raises(OSError, match="disk full"):
            vault.store("x", made())
    assert vault.recall("x") is None
    vault.check(0.1)


@pytest.mark.parametrize("epsilon", [-1.0, 0.0, float("nan")])
def test_no_budget_can_be_won_back(tmp_path: Path, epsilon: float) -> None:
    vault = Vault(tmp_path, 0.1)
    vault.store("x", made(0.1))
    with pytest.raises(BudgetError):
        vault.check(epsilon)
