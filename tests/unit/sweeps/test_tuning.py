"""Tuning before it runs, and its files: what concerns a method, equal budgets, halved,
on splits no comparison has.
"""

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from fedaux.config.parsing import ConfigError
from fedaux.config.schema import Config
from fedaux.sweeps.tuning import FIRST_SEED, Trial, Tuning, best, rungs, write_tuning
from fedaux.sweeps.tuning_grid import (
    METHOD_GRIDS,
    TUNING_GRID,
    at_edge,
    axes,
    read_grid,
    sample_arms,
)
from helpers.tiny import TINY_CONFIG, TINY_TOML

# a rate of its own
PRETRAINED = Config.from_dict(
    TINY_CONFIG.to_dict(), ["pretrain.epochs=1", "local.lr=0.002"]
)


def keys(
    method: str, base: Config = TINY_CONFIG, own: dict[str, Any] | None = None
) -> list[str]:
    return [axis.key for axis in axes(base, method, read_grid(own or {}))]


def sampled(
    method: str,
    budget: int,
    base: Config = TINY_CONFIG,
    own: dict[str, Any] | None = None,
) -> list[Config]:
    return [
        arm.config
        for arm in sample_arms(
            base, method, axes(base, method, read_grid(own or {})), budget, 0
        )
    ]


def test_a_method_is_tuned_in_what_concerns_it() -> None:
    plain = ["local", "local.epochs"]
    assert keys("fedavg", PRETRAINED) == [*plain, "norm"]
    # another norm would be another extractor
    assert keys("fedavg+p", PRETRAINED) == plain
    assert keys("fedavg+p") == [*plain, "norm"]  # without pre-training it is not
    assert keys("fedprox+p", PRETRAINED) == [*plain, "local.mu"]
    assert keys("feddf+p", PRETRAINED) == [*plain, "distill.lr", "distill.steps"]
    assert keys("fedaux", PRETRAINED) == [
        *keys("feddf+p", PRETRAINED),
        "teachers.standing",
        "head_init",
    ]
    assert keys("scaffold+p", PRETRAINED) == [*plain, "method_options.server_lr"]
    assert keys("ridge+p", PRETRAINED) == []  # a head that is computed trains nowhere
    assert len(sampled("ridge+p", 5, PRETRAINED)) == 1
    assert "norm" not in keys(
        "fedavg", Config.from_dict({**TINY_CONFIG.to_dict(), "head_only": True})
    )


@pytest.mark.parametrize(
    ("override", "key"),
    [
        ("teachers.run_on=clients", "teachers.standing"),
        ("privacy.scorer=logistic", "head_init"),
    ],
)
def test_fedaux_is_tuned_in_what_its_config_allows(override: str, key: str) -> None:
    base = Config.from_dict(PRETRAINED.to_dict(), [override])
    assert set(keys("fedaux", PRETRAINED)) - set(keys("fedaux", base)) == {key}


def test_privacy_concerns_whoever_starts_from_a_private_head() -> None:
    own = {"privacy.embedding_dim": [2, 4]}
    assert "privacy.embedding_dim" not in keys("fedavg", own=own)
    base = Config.from_dict(TINY_CONFIG.to_dict(), ["head_init=private-head"])
    assert "privacy.embedding_dim" in keys("fedavg", base, own)
    assert "privacy.embedding_dim" in keys("private-head", own=own)


def test_a_winner_at_the_edge_of_its_list_is_named() -> None:
    grid = axes(
        PRETRAINED,
        "fedaux",
        read_grid({"distill.steps": [2], "local.epochs": [1, 5, 20]}),
    )
    inside = {
        "local.optimizer": "sgd",
        "local.lr": 0.1,
        "local.epochs": 5,
        "distill.lr": 1e-3,
        "distill.steps": 2,
    }
    assert at_edge(grid, inside) == []
    assert at_edge(grid, {}) == []  # the config's own
    assert at_edge(grid, {**inside, "local.epochs": 1}) == []  # there are no fewer
    assert set(at_edge(grid, {**inside, "local.epochs": 20, "distill.lr": 1e-5})) == {
        "local.epochs",
        "distill.lr",
    }
    rates = {
        name: [v["lr"] for v in TUNING_GRID["local"] if v["optimizer"] == name]
        for name in ("sgd", "adam")
    }
    for name, own in rates.items():  # each among its own
        for lr in own:
            edges = at_edge(grid, {**inside, "local.optimizer": name, "local.lr": lr})
            assert edges == (["local.lr"] if lr in (min(own), max(own)) else [])
    # no numbers
    assert (
        at_edge(
            grid, {**inside, "teachers.standing": True, "head_init": "private-head"}
        )
        == []
    )


def test_every_value_of_the_table_is_a_setting() -> None:
    for method in (*METHOD_GRIDS, "fedprox", "fedbe", "fedaux"):
        grid = axes(TINY_CONFIG, method)
        assert all(axis.allowed for axis in grid), method
        found = sample_arms(TINY_CONFIG, method, grid, 24, 0)  # a wrong one would raise
        assert len(found) == 24
        for axis in grid:
            assert any(
                value.items() <= arm.settings.items()
                for value in axis.allowed
                for arm in found
            ), axis.key


def test_a_grid_within_the_budget_is_tried_as_a_whole_with_the_configs_own_setting_first() -> (
    None
):
    own = {
        "local": [{"optimizer": "sgd", "lr": 0.1}],
        "local.epochs": [1, 5],
        "norm": ["batch"],
    }
    found = sampled("fedavg", 20, own=own)
    assert found[0] == Config.from_dict({**TINY_CONFIG.to_dict(), "method": "fedavg"})
    assert [(c.local.optimizer, c.local.epochs) for c in found[1:]] == [
        ("sgd", 1),
        ("sgd", 5),
    ]
    assert len({c.hash for c in found}) == 3  # the norm of the config is batch already


def test_a_sample_is_as_large_as_the_budget_and_methods_share_their_local_settings() -> (
    None
):
    found = {
        name: sampled(name, 11, PRETRAINED)
        for name in ("fedavg+p", "feddf+p", "fedprox+p", "scaffold+p")
    }
    assert {len(set(configs)) for configs in found.values()} == {11}
    local = {
        n: [(c.local.optimizer, c.local.lr, c.local.epochs) for c in configs]
        for n, configs in found.items()
    }
    assert local["fedavg+p"] == local["feddf+p"] == local["fedprox+p"]
    rates = [(optimizer, lr) for optimizer, lr, _ in local["fedavg+p"][1:]]
    # each once
    assert sorted(rates) == sorted(
        (value["optimizer"], value["lr"]) for value in TUNING_GRID["local"]
    )
    sgd = [rate for rate in rates if rate[0] == "sgd"]
    assert [rate[:2] for rate in local["scaffold+p"][1:8]] == sgd  # it allows no Adam
    assert sampled("feddf+p", 11, PRETRAINED) == found["feddf+p"]


def test_a_list_of_ones_own_replaces_those_that_set_the_same_and_may_be_for_one_method() -> (
    None
):
    own = {
        "local": {"lr": [0.5]},
        "feddf+p": {"distill.lr": [1e-2, 1e-3]},
        "local.mu": [5],
    }
    assert keys("feddf+p", PRETRAINED, own) == [
        "local.epochs",
        "distill.steps",
        "local.lr",
        "distill.lr",
    ]
    lists = {
        axis.key: axis.allowed for axis in axes(PRETRAINED, "feddf+p", read_grid(own))
    }
    assert lists["local.lr"] == ({"local.lr": 0.5},)
    assert lists["distill.lr"] == ({"distill.lr": 1e-2}, {"distill.lr": 1e-3})
    assert (
        len(
            {axis.key: axis for axis in axes(PRETRAINED, "fedaux", read_grid(own))}[
                "distill.lr"
            ].allowed
        )
        == 5
    )
    assert "local.mu" in keys("fedprox+p", PRETRAINED, own)


def test_adam_takes_no_momentum_along() -> None:
    base = Config.from_dict(
        {**TINY_CONFIG.to_dict(), "local": {"optimizer": "sgd", "momentum": 0.9}}
    )
    momenta = {
        (config.local.optimizer, config.local.momentum)
        for config in sampled("fedavg", 20, base)
    }
    assert momenta == {("sgd", 0.9), ("adam", 0.0)}


@pytest.mark.parametrize(
    ("table", "fragment"),
    [
        (
            {"local.lrr": [1.0]},
            r"the key of [tune] 'local.lrr': it is unknown (did you mean 'local.lr'?)",
        ),
        ({"local.lr": 0.1}, "tune: local.lr must be a list of values"),
        ({"bugdet": 3}, "did you mean 'budget'?"),
        ({"fedaux": 3}, "tune.fedaux: it must be a table of lists"),
        ({"seed": [1]}, "Write seeds = 3"),
    ],
    ids=lambda value: str(value)[:24],
)
def test_a_wrong_grid_names_its_remedy(table: dict[str, Any], fragment: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_grid(table)
    assert fragment in str(caught.value)


@pytest.mark.parametrize(
    ("budget", "rounds", "expected"),
    [
        (8, 20, [(8, 5), (4, 10), (2, 20)]),
        (12, 100, [(12, 13), (6, 25), (3, 50), (2, 100)]),
        (8, 5, [(8, 2), (4, 3), (2, 5)]),
        # two rungs with the same rounds would choose by the same figures
        (8, 2, [(8, 1), (4, 2)]),
        (8, 1, [(8, 1)]),
        (1, 10, [(1, 10)]),
    ],
)
def test_halving_ends_with_all_rounds(
    budget: int, rounds: int, expected: list[tuple[int, int]]
) -> None:
    assert list(rungs(budget, rounds)) == expected


def test_every_method_has_the_same_settings_and_rounds() -> None:
    tuning = Tuning.of(
        TINY_CONFIG,
        ["fedavg", "fedprox", "feddf", "scaffold", "fedaux"],
        budget=6,
        seeds=2,
    )
    assert {len(trials) for trials in tuning.trials.values()} == {6}
    assert {tuning.total_rounds(name) for name in tuning.trials} == {
        (6 * 1 + 3 * 1) * 2
    }
    names = [trial.arm.name for trials in tuning.trials.values() for trial in trials]
    assert len(set(names)) == len(names)
    larger = Tuning.of(TINY_CONFIG, ["fedavg"], budget=9)
    assert {t.arm.name for t in tuning.trials["fedavg"]} < {
        t.arm.name for t in larger.trials["fedavg"]
    }


def test_runs_are_of_other_splits_with_validation_records_and_the_comparisons_test_set(
    tmp_path: Path,
) -> None:
    base = Config.from_dict(TINY_CONFIG.to_dict() | {"seed": 5})
    tuning = Tuning.of(base, ["fedavg"], budget=2, seeds=2, validation_fraction=0.3)
    runs = [
        run
        for trial in tuning.trials["fedavg"]
        for run in tuning.runs(trial, 1, tmp_path)
    ]
    assert [run.config.seed for run in runs] == [5 + FIRST_SEED, 6 + FIRST_SEED] * 2
    assert {
        (run.config.data.validation_fraction, run.config.data.test_seed) for run in runs
    } == {(0.3, 5)}
    assert {(run.rounds, run.config.rounds) for run in runs} == {(1, 2)}
    assert len({run.folder for run in runs}) == 4
    assert tuning.base == base


def test_the_best_are_the_most_accurate_of_those_that_came_furthest() -> None:
    (arm,) = (
        trial.arm for trial in Tuning.of(TINY_CONFIG, ["fedavg"], 1).trials["fedavg"]
    )
    scores = [{1: 0.9}, {1: 0.5, 2: 0.6}, {1: 0.6, 2: 0.6}, {1: 0.4, 2: 0.7}]
    assert [
        trial.number
        for trial in best([Trial(arm, i, one) for i, one in enumerate(scores)], 3)
    ] == [3, 1, 2]


def test_a_config_may_say_what_to_tune(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(
        f"{TINY_TOML}[tune]\nbudget = 3\nmethods = ['fedavg', 'fedaux']\n'local.lr' = "
        "[0.1, 0.2]\n"
    )
    tuning = Tuning.load(path, ["tune.local.epochs=[7]", "rounds=4"], seeds=2)
    assert (tuning.budget, tuning.seeds, tuning.base.rounds) == (3, 2, 4)
    assert list(tuning.trials) == ["fedavg", "fedaux"]
    assert {trial.settings["local.lr"] for trial in tuning.trials["fedaux"][1:]} <= {
        0.1,
        0.2,
    }
    assert {
        trial.settings["local.epochs"] for trial in tuning.trials["fedaux"][1:]
    } == {7}
    path.write_text(
        f"{TINY_TOML}[tune]\nmethods = ['fedavg']\nlocal = [{{lr = 0.1}}, {{lr = "
        f"0.2}}]\n"
    )
    again = Tuning.load(
        path, ["tune.local.epochs=[7]", "tune.local.lr=[0.5]", "tune.seeds=3"]
    )
    assert [
        axis.allowed for axis in again.grids["fedavg"] if axis.key == "local.lr"
    ] == [({"local.lr": 0.5},)]
    # one list for each setting
    assert [axis.key for axis in again.grids["fedavg"]].count("local") == 0
    assert again.seeds == 3
    assert Config.load(path) == TINY_CONFIG  # a run leaves the table alone


def test_what_cannot_be_tuned_is_refused() -> None:
    with pytest.raises(ConfigError, match="the budget must be at least 1"):
        Tuning.of(TINY_CONFIG, ["fedavg"], 0)
    with pytest.raises(ConfigError, match="named twice"):
        Tuning.of(TINY_CONFIG, ["fedavg", "fedavg"])
    validated = Config.from_dict(
        TINY_CONFIG.to_dict(), ["data.validation_fraction=0.1"]
    )
    with pytest.raises(
        ConfigError, match=r"Cannot tune with data\.validation_fraction"
    ):
        Tuning.of(validated, ["fedavg"])


def test_winners_trials_and_a_table_of_what_it_took_are_written(tmp_path: Path) -> None:
    base = Config.from_dict(TINY_CONFIG.to_dict(), ["local.optimizer=adam"])
    tuning = Tuning.of(base, ["fedavg", "scaffold"], budget=4)
    for trials in tuning.trials.values():
        for i, trial in enumerate(trials):
            trial.scores |= {1: 0.1 * (i + 1)} | ({2: 0.2 * (i + 1)} if i >= 2 else {})
    write_tuning(tuning, tmp_path)
    saved = json.loads((tmp_path / "tuned.json").read_text())
    assert saved["config"] == base.to_dict()
    assert (saved["budget"], saved["seeds"], saved["test_seed"], saved["rungs"]) == (
        4,
        [1000],
        0,
        [[4, 1], [2, 2]],
    )
    assert (
        saved["methods"]["fedavg"]["settings"]
        == tuning.trials["fedavg"][3].settings
        != {}
    )
    everything = json.loads((tmp_path / "tune.json").read_text())
    assert [len(trials) for trials in everything["trials"].values()] == [4, 4]
    rates = [value["local.lr"] for value in everything["grids"]["scaffold"]["local"]]
    # it allows no Adam
    assert rates == [
        value["lr"] for value in TUNING_GRID["local"] if value["optimizer"] == "sgd"
    ]
    lines = list(csv.DictReader((tmp_path / "trials.csv").read_text().splitlines()))
    assert [line["round_2"] for line in lines if line["method"] == "fedavg"][:2] == [
        "",
        "",
    ]
    text = (tmp_path / "table.md").read_text()
    assert "4 until round 1, 2 until round 2" in text
    assert "| FedAvg | 80.0 | 10.0 (round 1) | 4 | 6 |" in text
    # the config's own setting is Adam's
    assert "| SCAFFOLD | 80.0 | – | 4 | 6 |" in text


def test_a_winner_at_the_edge_of_its_list_says_so(tmp_path: Path) -> None:
    tuning = Tuning.of(
        TINY_CONFIG, ["fedavg"], budget=20, grid={"": {"local.epochs": (1, 5)}}
    )
    for trial in tuning.trials["fedavg"]:
        most = (
            trial.settings.get("local.epochs") == 5
            and trial.settings["local.lr"] == 0.1
        )
        trial.scores[2] = 0.9 if most else 0.1
    write_tuning(tuning, tmp_path)
    assert (
        "local.epochs is at the edge of its list: widen it"
        in (tmp_path / "table.md").read_text()
    )
    assert json.loads((tmp_path / "tuned.json").read_text())["methods"]["fedavg"][
        "at_edge"
    ] == ["local.epochs"]
