"""A tuning before it runs: equal budgets, halved again and again, on splits that no comparison has."""

from pathlib import Path

import pytest

from fedaux.config.parsing import ConfigError
from fedaux.config.schema import Config
from fedaux.sweeps.tuning_plan import FIRST_SEED, Rung, Trial, Tuning, best, rungs
from helpers.tiny import TINY_CONFIG, TINY_TOML


@pytest.mark.parametrize(
    ("budget", "rounds", "expected"),
    [
        (8, 20, [(8, 5), (4, 10), (2, 20)]),
        (12, 100, [(12, 13), (6, 25), (3, 50), (2, 100)]),
        (8, 5, [(8, 2), (4, 3), (2, 5)]),
        (8, 2, [(8, 1), (4, 2)]),  # two rungs with the same rounds would choose by the same figures
        (8, 1, [(8, 1)]),
        (2, 10, [(2, 10)]),
        (1, 10, [(1, 10)]),
    ],
)
def test_halving_ends_with_all_rounds(budget: int, rounds: int, expected: list[tuple[int, int]]) -> None:
    assert list(rungs(budget, rounds)) == [Rung(*one) for one in expected]


def test_every_method_has_the_same_settings_and_rounds(tmp_path: Path) -> None:
    tuning = Tuning.of(TINY_CONFIG, ["fedavg", "fedprox", "feddf", "scaffold", "fedaux"], budget=6, seeds=2)
    assert {len(trials) for trials in tuning.trials.values()} == {6}
    assert {tuning.total_rounds(name) for name in tuning.trials} == {(6 * 1 + 3 * 1) * 2}
    names = [trial.arm.name for trials in tuning.trials.values() for trial in trials]
    assert len(set(names)) == len(names)
    larger = Tuning.of(TINY_CONFIG, ["fedavg"], budget=9)
    assert {t.arm.name for t in tuning.trials["fedavg"]} < {t.arm.name for t in larger.trials["fedavg"]}


def test_a_small_grid_is_tried_as_a_whole() -> None:
    grid = {"": {"local": ({"optimizer": "sgd", "lr": 0.1},), "local.epochs": (1,), "norm": ("batch",)}}
    tuning = Tuning.of(TINY_CONFIG, ["fedavg"], budget=8, grid=grid)
    assert [trial.number for trial in tuning.trials["fedavg"]] == [0, 1]
    assert tuning.total_rounds("fedavg") == 2 * 2


def test_runs_are_of_other_splits_with_validation_records_and_the_comparisons_test_set(tmp_path: Path) -> None:
    base = Config.from_dict(TINY_CONFIG.to_dict() | {"seed": 5})
    tuning = Tuning.of(base, ["fedavg"], budget=2, seeds=2, validation_fraction=0.3)
    runs = [run for trial in tuning.trials["fedavg"] for run in tuning.runs(trial, 1, tmp_path)]
    assert [run.config.seed for run in runs] == [5 + FIRST_SEED, 6 + FIRST_SEED] * 2
    assert {(run.config.data.validation_fraction, run.config.data.test_seed) for run in runs} == {(0.3, 5)}
    assert {(run.rounds, run.config.rounds) for run in runs} == {(1, 2)}
    assert len({run.folder for run in runs}) == 4
    assert tuning.base == base


def test_the_best_are_the_most_accurate_of_those_that_came_furthest() -> None:
    trials = [Trial(trial.arm, trial.number) for trial in Tuning.of(TINY_CONFIG, ["fedavg"], 4).trials["fedavg"]]
    for trial, scores in zip(trials, [{1: 0.9}, {1: 0.5, 2: 0.6}, {1: 0.6, 2: 0.6}, {1: 0.4, 2: 0.7}], strict=True):
        trial.scores.update(scores)
    assert [trial.number for trial in best(trials, 3)] == [3, 1, 2]


def test_a_config_may_say_what_to_tune(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(f"{TINY_TOML}[tune]\nbudget = 3\nmethods = ['fedavg', 'fedaux']\n'local.lr' = [0.1, 0.2]\n")
    tuning = Tuning.load(path, ["tune.local.epochs=[7]", "rounds=4"], seeds=2)
    assert (tuning.budget, tuning.seeds, tuning.base.rounds) == (3, 2, 4)
    assert list(tuning.trials) == ["fedavg", "fedaux"]
    assert {trial.settings["local.lr"] for trial in tuning.trials["fedaux"][1:]} <= {0.1, 0.2}
    assert {trial.settings["local.epochs"] for trial in tuning.trials["fedaux"][1:]} == {7}
    assert Tuning.load(path, budget=2).budget == 2
    path.write_text(f"{TINY_TOML}[tune]\nmethods = ['fedavg']\nlocal = [{{lr = 0.1}}, {{lr = 0.2}}]\n")
    again = Tuning.load(path, ["tune.local.epochs=[7]", "tune.local.lr=[0.5]", "tune.seeds=3"])
    assert [axis.allowed for axis in again.grids["fedavg"] if axis.key == "local.lr"] == [({"local.lr": 0.5},)]
    assert [axis.key for axis in again.grids["fedavg"]].count("local") == 0  # one list for each setting
    assert again.seeds == 3
    assert Config.load(path) == TINY_CONFIG  # a run leaves the table alone


def test_what_cannot_be_tuned_is_refused() -> None:
    with pytest.raises(ConfigError, match="the budget must be at least 1"):
        Tuning.of(TINY_CONFIG, ["fedavg"], 0)
    with pytest.raises(ConfigError, match="named twice"):
        Tuning.of(TINY_CONFIG, ["fedavg", "fedavg"])
    validated = Config.from_dict(TINY_CONFIG.to_dict(), ["data.validation_fraction=0.1"])
    with pytest.raises(ConfigError, match=r"leave data\.validation_fraction out"):
        Tuning.of(validated, ["fedavg"])
