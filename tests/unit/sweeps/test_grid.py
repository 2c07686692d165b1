"""Every combination of a grid once, with names for folders and for readers; a wrong grid names its remedy."""

from pathlib import Path
from typing import Any

import pytest

from fedaux.config.parsing import ConfigError
from fedaux.config.schema import Config
from fedaux.sweeps.grid import Sweep
from helpers.tiny import TINY, TINY_TOML

TABLE: dict[str, Any] = {**TINY, "privacy": {"unsafe_seed": 0}}


def grid(seeds: int = 1, **axes: Any) -> dict[str, Any]:
    return {**TABLE, "sweep": {"seeds": seeds, **axes}}


def test_every_combination_is_an_arm_with_names_for_folders_and_for_readers(tmp_path: Path) -> None:
    sweep = Sweep.from_dict(grid(2, method=["fedavg+p", "fedaux"], **{"data.alpha": [0.01, 1]}))
    assert [arm.label for arm in sweep.arms] == [
        "FedAVG+P, α = 0.01",
        "FedAVG+P, α = 1",
        "FedAUX, α = 0.01",
        "FedAUX, α = 1",
    ]
    assert sweep.arms[3].settings == {"method": "fedaux", "data.alpha": 1}
    assert sweep.arms[3].config == Config.from_dict(TABLE, ["method=fedaux", "data.alpha=1.0"])
    assert [run.folder.name for run in sweep.runs(tmp_path)[:3]] == [
        "fedavg+p-data.alpha=0.01-seed0",
        "fedavg+p-data.alpha=0.01-seed1",
        "fedavg+p-data.alpha=1-seed0",
    ]
    assert [run.config.seed for run in sweep.runs(tmp_path)] == [0, 1] * 4


def test_nested_tables_say_the_same_and_seeds_start_at_the_configs_own(tmp_path: Path) -> None:
    flat = Sweep.from_dict({**grid(3, **{"data.alpha": [0.1, 1.0], "local.epochs": [1, 2]}), "seed": 5})
    nested = Sweep.from_dict({**grid(3, data={"alpha": [0.1, 1.0]}, local={"epochs": [1, 2]}), "seed": 5})
    assert nested == flat
    assert {run.config.seed for run in flat.runs(tmp_path)} == {5, 6, 7}


def test_what_is_set_is_no_longer_swept_and_lists_can_be_set() -> None:
    table = grid(3, method=["feddf+p", "fedaux"], **{"data.alpha": [0.01, 1.0]})
    pinned = Sweep.from_dict(table, ["data.alpha=0.5", "rounds=1", "sweep.seeds=1"])
    assert [(arm.label, arm.config.data.alpha) for arm in pinned.arms] == [("FedDF+P", 0.5), ("FedAUX", 0.5)]
    assert (pinned.seeds, pinned.base.rounds) == (1, 1)
    changed = Sweep.from_dict(table, ["sweep.data.alpha=[3.0]"])
    assert [arm.config.data.alpha for arm in changed.arms] == [3.0, 3.0]
    (alone,) = Sweep.from_dict(grid(2)).arms
    assert (alone.label, alone.name) == ("FedAUX", "fedaux")


def test_a_setting_that_a_method_ignores_makes_one_arm_for_any_value() -> None:
    """FedAVG was run again for every ε, and labelled with it."""
    sweep = Sweep.from_dict(grid(method=["fedavg", "fedaux"], **{"privacy.epsilon": [0.05, 0.1]}))
    assert [arm.label for arm in sweep.arms] == ["FedAVG, any ε", "FedAUX, ε = 0.05", "FedAUX, ε = 0.1"]
    assert [arm.name for arm in sweep.arms][:2] == ["fedavg", "fedaux-privacy.epsilon=0.05"]
    assert sweep.arms[0].settings == {"method": "fedavg", "privacy.epsilon": "any"}
    axes = {"local.mu": [0.1, 1.0], "distill.lr": [1e-3, 1e-4], "pretrain.epochs": [0, 1]}
    for key, methods in (("local.mu", 1), ("distill.lr", 1), ("pretrain.epochs", 1)):
        found = Sweep.from_dict(grid(method=["fedavg", "fedprox", "feddf", "fedavg+p"], **{key: axes[key]})).arms
        assert sum("any" in arm.label for arm in found) == 4 - methods
        assert len(found) == 4 + methods
    private = ["privacy.private_training=true", "privacy.epsilon_total=1.0"]
    assert len(Sweep.from_dict(grid(method=["fedavg"], **{"privacy.max_grad_norm": [1.0, 2.0]}), private).arms) == 2


def test_values_that_look_alike_in_a_folders_name_get_different_ones() -> None:
    long = ["x" * 200 + end for end in "ab"]
    names = [arm.name for arm in Sweep.from_dict(grid(**{"data.path": [*long, "a/b", "a b"]})).arms]
    assert len(set(names)) == 4
    assert all("/" not in name and len(name) < 140 for name in names)
    mixed = Sweep.from_dict(grid(prototypes=[["mlp"], ["mlp", {"name": "cnn", "width": 8}]]))
    assert [arm.label for arm in mixed.arms] == ["mlp", "mlp + cnn(width=8)"]
    assert [len(arm.config.prototypes) for arm in mixed.arms] == [1, 2]


@pytest.mark.parametrize(
    ("lines", "fragment"),
    [
        ('"data.alpa" = [1.0]', "unknown key of [sweep] 'data.alpa' (did you mean 'data.alpha'?)"),
        ("sedes = 3", "unknown key of [sweep] 'sedes' (did you mean 'seeds'?)"),
        ("seeds = 0", "sweep.seeds must be a whole number of at least 1, not 0"),
        ("seeds = true", "sweep.seeds must be a whole number of at least 1, not True"),
        ("seeds = [1, 2]", "sweep.seeds must be a whole number"),
        ("seed = [1, 2]", "Write seeds = 3"),
        ('method = "fedaux"', "sweep: method must be a list of values, ['fedaux', …], not 'fedaux' alone."),
        ("rounds = []", "sweep: the list of rounds is empty"),
        ("rounds = [1, 2, 1]", "sweep: rounds has [1] twice"),
        ("rounds = [1, 0]", "the sweep cannot have an arm with rounds=0: rounds must be at least 1"),
        ('method = ["fedaux", "fedvag"]', "did you mean 'fedavg'?"),
        ("title = 3", "sweep.title must be text"),
        ("[sweep.data]\nalpha = 1.0", "data.alpha must be a list of values, [1.0, …]"),
    ],
    ids=lambda value: value[:24],
)
def test_a_wrong_sweep_names_its_remedy(tmp_path: Path, lines: str, fragment: str) -> None:
    (tmp_path / "grid.toml").write_text(f"{TINY_TOML}[sweep]\n{lines}\n")
    with pytest.raises(ConfigError) as caught:
        Sweep.load(tmp_path / "grid.toml")
    assert fragment in str(caught.value)


def test_a_file_without_a_sweep_and_a_sweep_that_is_no_table(tmp_path: Path) -> None:
    (tmp_path / "plain.toml").write_text(TINY_TOML)
    with pytest.raises(ConfigError, match=r"has no table \[sweep\]: add one"):
        Sweep.load(tmp_path / "plain.toml")
    with pytest.raises(ConfigError, match="sweep must be a table"):
        Sweep.from_dict({**TABLE, "sweep": 3})
