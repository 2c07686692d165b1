"""What is tried: the part of the table that concerns a method, and samples in which methods share what they can."""

from typing import Any

import pytest

from fedaux.config.parsing import ConfigError
from fedaux.config.schema import Config
from fedaux.sweeps.tuning_grid import GRID, OPTIONS, at_edge, axes, read_grid, sample
from helpers.tiny import TINY_CONFIG

PRETRAINED = Config.from_dict(TINY_CONFIG.to_dict(), ["pretrain.epochs=1", "local.lr=0.002"])  # a rate of its own


def keys(method: str, base: Config = TINY_CONFIG, own: dict[str, Any] | None = None) -> list[str]:
    return [axis.key for axis in axes(base, method, read_grid(own or {}))]


def sampled(method: str, budget: int, base: Config = TINY_CONFIG, own: dict[str, Any] | None = None) -> list[Config]:
    return [arm.config for arm in sample(base, method, axes(base, method, read_grid(own or {})), budget, 0)]


def test_a_method_is_tuned_in_what_concerns_it() -> None:
    plain = ["local", "local.epochs"]
    assert keys("fedavg", PRETRAINED) == [*plain, "norm"]
    assert keys("fedavg+p", PRETRAINED) == plain  # another norm would be another extractor
    assert keys("fedavg+p") == [*plain, "norm"]  # without pre-training it is not
    assert keys("fedprox+p", PRETRAINED) == [*plain, "local.mu"]
    assert keys("feddf+p", PRETRAINED) == [*plain, "distill.lr", "distill.epochs"]
    assert keys("fedaux", PRETRAINED) == [*keys("feddf+p", PRETRAINED), "teachers.standing", "head_init"]
    assert keys("scaffold+p", PRETRAINED) == [*plain, "method_options.server_lr"]
    assert keys("ridge+p", PRETRAINED) == []  # a head that is computed trains nowhere
    assert len(sampled("ridge+p", 5, PRETRAINED)) == 1
    assert "norm" not in keys("fedavg", Config.from_dict({**TINY_CONFIG.to_dict(), "head_only": True}))


@pytest.mark.parametrize(
    ("override", "key"),
    [
        ("teachers.run_on=clients", "teachers.standing"),
        ("privacy.scorer=mean-embedding", "head_init"),
    ],
)
def test_fedaux_is_tuned_in_what_its_config_allows(override: str, key: str) -> None:
    base = Config.from_dict(PRETRAINED.to_dict(), [override])
    assert set(keys("fedaux", PRETRAINED)) - set(keys("fedaux", base)) == {key}


def test_privacy_concerns_whoever_starts_from_a_private_head() -> None:
    own = {"privacy.embedding_dim": [2, 4]}
    assert "privacy.embedding_dim" not in keys("fedavg", own=own)
    base = Config.from_dict(TINY_CONFIG.to_dict(), ["head_init=closed-form"])
    assert "privacy.embedding_dim" in keys("fedavg", base, own)
    assert "privacy.embedding_dim" in keys("closed-form", own=own)


def test_a_winner_at_the_edge_of_its_list_is_named() -> None:
    grid = axes(PRETRAINED, "fedaux", read_grid({"distill.epochs": [2], "local.epochs": [1, 5, 20]}))
    inside = {"local.optimizer": "sgd", "local.lr": 0.1, "local.epochs": 5, "distill.lr": 1e-3, "distill.epochs": 2}
    assert at_edge(grid, inside) == []
    assert at_edge(grid, {}) == []  # the config's own
    assert at_edge(grid, {**inside, "local.epochs": 1}) == []  # there are no fewer
    assert set(at_edge(grid, {**inside, "local.epochs": 20, "distill.lr": 1e-5})) == {"local.epochs", "distill.lr"}
    rates = {name: [v["lr"] for v in GRID["local"] if v["optimizer"] == name] for name in ("sgd", "adam")}
    for name, own in rates.items():  # each among its own
        for lr in own:
            edges = at_edge(grid, {**inside, "local.optimizer": name, "local.lr": lr})
            assert edges == (["local.lr"] if lr in (min(own), max(own)) else [])
    assert at_edge(grid, {**inside, "teachers.standing": True, "head_init": "closed-form"}) == []  # no numbers


def test_every_value_of_the_table_is_a_setting() -> None:
    for method in (*OPTIONS, "fedprox", "fedbe", "fedaux"):
        grid = axes(TINY_CONFIG, method)
        assert all(axis.allowed for axis in grid), method
        found = sample(TINY_CONFIG, method, grid, 24, 0)  # a wrong one would raise
        assert len(found) == 24
        for axis in grid:
            assert any(value.items() <= arm.settings.items() for value in axis.allowed for arm in found), axis.key


def test_a_grid_within_the_budget_is_tried_as_a_whole_with_the_configs_own_setting_first() -> None:
    own = {"local": [{"optimizer": "sgd", "lr": 0.1}], "local.epochs": [1, 5], "norm": ["batch"]}
    found = sampled("fedavg", 20, own=own)
    assert found[0] == Config.from_dict({**TINY_CONFIG.to_dict(), "method": "fedavg"})
    assert [(c.local.optimizer, c.local.epochs) for c in found[1:]] == [("sgd", 1), ("sgd", 5)]
    assert len({c.hash for c in found}) == 3  # the norm of the config is batch already


def test_a_sample_is_as_large_as_the_budget_and_methods_share_their_local_settings() -> None:
    found = {name: sampled(name, 11, PRETRAINED) for name in ("fedavg+p", "feddf+p", "fedprox+p", "scaffold+p")}
    assert {len(set(configs)) for configs in found.values()} == {11}
    local = {n: [(c.local.optimizer, c.local.lr, c.local.epochs) for c in configs] for n, configs in found.items()}
    assert local["fedavg+p"] == local["feddf+p"] == local["fedprox+p"]
    rates = [(optimizer, lr) for optimizer, lr, _ in local["fedavg+p"][1:]]
    assert sorted(rates) == sorted((value["optimizer"], value["lr"]) for value in GRID["local"])  # each once
    sgd = [rate for rate in rates if rate[0] == "sgd"]
    assert [rate[:2] for rate in local["scaffold+p"][:7]] == sgd  # its own setting would be Adam's
    assert sampled("feddf+p", 11, PRETRAINED) == found["feddf+p"]


def test_a_list_of_ones_own_replaces_those_that_set_the_same_and_may_be_for_one_method() -> None:
    own = {"local": {"lr": [0.5]}, "feddf+p": {"distill.lr": [1e-2, 1e-3]}, "local.mu": [5]}
    assert keys("feddf+p", PRETRAINED, own) == ["local.epochs", "distill.epochs", "local.lr", "distill.lr"]
    lists = {axis.key: axis.allowed for axis in axes(PRETRAINED, "feddf+p", read_grid(own))}
    assert lists["local.lr"] == ({"local.lr": 0.5},)
    assert lists["distill.lr"] == ({"distill.lr": 1e-2}, {"distill.lr": 1e-3})
    assert len({axis.key: axis for axis in axes(PRETRAINED, "fedaux", read_grid(own))}["distill.lr"].allowed) == 5
    assert "local.mu" in keys("fedprox+p", PRETRAINED, own)


def test_adam_takes_no_momentum_along() -> None:
    base = Config.from_dict({**TINY_CONFIG.to_dict(), "local": {"optimizer": "sgd", "momentum": 0.9}})
    momenta = {(config.local.optimizer, config.local.momentum) for config in sampled("fedavg", 20, base)}
    assert momenta == {("sgd", 0.9), ("adam", 0.0)}


@pytest.mark.parametrize(
    ("table", "fragment"),
    [
        ({"local.lrr": [1.0]}, r"unknown key of [tune] 'local.lrr' (did you mean 'local.lr'?)"),
        ({"local": [{"lrr": 1.0}]}, "unknown key of [tune] 'local.lrr'"),
        ({"local.lr": 0.1}, "tune: local.lr must be a list of values"),
        ({"bugdet": 3}, "did you mean 'budget'?"),
        ({"fedaux": 3}, "tune.fedaux must be a table of lists"),
        ({"seed": [1]}, "Write seeds = 3"),
    ],
    ids=lambda value: str(value)[:24],
)
def test_a_wrong_grid_names_its_remedy(table: dict[str, Any], fragment: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_grid(table)
    assert fragment in str(caught.value)
