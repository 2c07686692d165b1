"""Every combination of a grid once, named for folders and for readers, with the
settings chosen for its method.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from fedaux.config.parsing import ConfigError
from fedaux.config.presets import DEMO, PRESETS
from fedaux.config.schema import Config
from fedaux.sweeps.grid import Sweep, format_value, ignores, make_arm
from fedaux.sweeps.method_settings import AS_CONFIGURED, MethodSettings
from helpers.tiny import TINY, TINY_CONFIG, TINY_TOML

TABLE: dict[str, Any] = {**TINY, "privacy": {"unsafe_seed": 0}}


def grid(seeds: int = 1, **axes: Any) -> dict[str, Any]:
    return {**TABLE, "sweep": {"seeds": seeds, **axes}}


def test_every_combination_is_an_arm_with_names_for_folders_and_for_readers(
    tmp_path: Path,
) -> None:
    sweep = Sweep.from_dict(
        grid(2, method=["fedavg+p", "fedaux"], **{"data.alpha": [0.01, 1]})
    )
    assert [arm.label for arm in sweep.arms] == [
        "FedAvg+P, α = 0.01",
        "FedAvg+P, α = 1",
        "FedAUX, α = 0.01",
        "FedAUX, α = 1",
    ]
    assert sweep.arms[3].settings == {"method": "fedaux", "data.alpha": 1}
    assert sweep.arms[3].config == Config.from_dict(
        TABLE, ["method=fedaux", "data.alpha=1.0"]
    )
    names = [
        "fedavg+p-data.alpha=0.01-seed0",
        "fedavg+p-data.alpha=0.01-seed1",
        "fedavg+p-data.alpha=1-seed0",
    ]
    assert [run.folder.name for run in sweep.runs(tmp_path)[:3]] == names
    assert [run.config.seed for run in sweep.runs(tmp_path)] == [0, 1] * 4


def test_nested_tables_say_the_same_and_seeds_start_at_the_configs_own(
    tmp_path: Path,
) -> None:
    flat = Sweep.from_dict(
        {**grid(3, **{"data.alpha": [0.1, 1.0], "local.epochs": [1, 2]}), "seed": 5}
    )
    nested = Sweep.from_dict(
        {**grid(3, data={"alpha": [0.1, 1.0]}, local={"epochs": [1, 2]}), "seed": 5}
    )
    assert nested == flat
    assert {run.config.seed for run in flat.runs(tmp_path)} == {5, 6, 7}


def test_what_is_set_is_no_longer_swept_and_lists_can_be_set() -> None:
    table = grid(3, method=["feddf+p", "fedaux"], **{"data.alpha": [0.01, 1.0]})
    pinned = Sweep.from_dict(table, ["data.alpha=0.5", "rounds=1", "sweep.seeds=1"])
    assert [(arm.label, arm.config.data.alpha) for arm in pinned.arms] == [
        ("FedDF+P", 0.5),
        ("FedAUX", 0.5),
    ]
    assert (pinned.seeds, pinned.base.rounds) == (1, 1)
    changed = Sweep.from_dict(table, ["sweep.data.alpha=[3.0]"])
    assert [arm.config.data.alpha for arm in changed.arms] == [3.0, 3.0]
    (alone,) = Sweep.from_dict(grid(2)).arms
    assert (alone.label, alone.name) == ("FedAUX", "fedaux")


def test_a_setting_that_a_method_ignores_makes_one_arm_for_any_value() -> None:
    """FedAvg was run again for every ε, and labelled with it."""
    sweep = Sweep.from_dict(
        grid(method=["fedavg", "fedaux"], **{"privacy.epsilon": [0.05, 0.1]})
    )
    assert [arm.label for arm in sweep.arms] == [
        "FedAvg, any ε",
        "FedAUX, ε = 0.05",
        "FedAUX, ε = 0.1",
    ]
    assert [arm.name for arm in sweep.arms][:2] == [
        "fedavg",
        "fedaux-privacy.epsilon=0.05",
    ]
    assert sweep.arms[0].settings == {"method": "fedavg", "privacy.epsilon": "any"}
    private = ["privacy.private_training=true", "privacy.epsilon_total=1.0"]
    assert (
        len(
            Sweep.from_dict(
                grid(method=["fedavg"], **{"privacy.max_grad_norm": [1.0, 2.0]}),
                private,
            ).arms
        )
        == 2
    )


def test_what_a_method_ignores() -> None:
    every = {
        "privacy.epsilon",
        "distill.lr",
        "teachers.weights",
        "pretrain.epochs",
        "local.mu",
    }
    ignored = {
        method: {
            key for key in (*every, "local.lr") if ignores(Config(method=method), key)
        }
        for method in ("fedavg", "fedprox", "feddf+p", "fedaux")
    }
    assert ignored == {
        "fedavg": every,
        "fedprox": every - {"local.mu"},
        "feddf+p": {"privacy.epsilon", "local.mu"},
        "fedaux": {"local.mu"},
    }


def test_options_of_a_method_are_not_those_of_another() -> None:
    base = Config.from_dict({"method": "fedavgm", "method_options": {"beta": 0.5}})
    assert dict(make_arm(base, {"local.lr": 0.1}).config.method_options) == {
        "beta": 0.5
    }
    assert dict(make_arm(base, {"method": "fedavg"}).config.method_options) == {}


def test_values_that_look_alike_in_a_folders_name_get_different_ones() -> None:
    long = ["x" * 200 + end for end in "ab"]
    names = [
        arm.name
        for arm in Sweep.from_dict(grid(**{"data.path": [*long, "a/b", "a b"]})).arms
    ]
    assert len(set(names)) == 4
    assert all("/" not in name and len(name) < 140 for name in names)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (True, "true"),
        (0.1, "0.1"),
        (1e-5, "1e-05"),
        (0.12345678, "0.12345678"),  # not rounded to what another arm may have
        (["mlp", {"name": "cnn", "width": 8}], "mlp + cnn(width=8)"),
    ],
)
def test_values_are_short_and_exact(value: Any, text: str) -> None:
    assert format_value(value) == text


@pytest.mark.parametrize(
    ("lines", "fragment"),
    [
        (
            '"data.alpa" = [1.0]',
            "the key of [sweep] 'data.alpa': it is unknown (did you mean 'data.alpha'?)",
        ),
        ("sedes = 3", "(did you mean 'seeds'?)"),
        ("seeds = 0", "sweep.seeds must be a whole number of at least 1, not 0"),
        ("seeds = true", "not True"),
        ("seed = [1, 2]", "Write seeds = 3"),
        (
            'method = "fedaux"',
            (
                "sweep: method must be a list of values, ['fedaux', …], not 'fedaux' "
                "alone."
            ),
        ),
        ("rounds = []", "sweep: the list of rounds is empty"),
        ("rounds = [1, 2, 1]", "sweep: rounds has [1] twice"),
        (
            "rounds = [1, 0]",
            "the sweep cannot have an arm with rounds=0. Cannot use these settings: rounds must be at least 1",
        ),
        ("title = 3", "sweep.title must be text"),
        ("[sweep.data]\nalpha = 1.0", "data.alpha must be a list of values, [1.0, …]"),
    ],
    ids=lambda value: value[:24],
)
def test_a_wrong_sweep_names_its_remedy(
    tmp_path: Path, lines: str, fragment: str
) -> None:
    (tmp_path / "grid.toml").write_text(f"{TINY_TOML}[sweep]\n{lines}\n")
    with pytest.raises(ConfigError) as caught:
        Sweep.load(tmp_path / "grid.toml")
    assert fragment in str(caught.value)


def test_a_file_without_a_sweep_and_a_sweep_that_is_no_table(tmp_path: Path) -> None:
    (tmp_path / "plain.toml").write_text(TINY_TOML)
    with pytest.raises(ConfigError, match=r"has no table \[sweep\]. Add one"):
        Sweep.load(tmp_path / "plain.toml", ["sweep.seeds=2"])
    assert list(
        Sweep.load(tmp_path / "plain.toml", ["sweep.data.alpha=[0.1, 1.0]"]).axes
    ) == ["data.alpha"]
    with pytest.raises(ConfigError, match="sweep must be a table"):
        Sweep.from_dict({**TABLE, "sweep": 3})


@pytest.fixture
def tuned(tmp_path: Path) -> Path:
    methods = {
        "fedavg": {"settings": {"local.lr": 0.5, "local.optimizer": "sgd"}},
        "fedaux": {"settings": {}},
    }
    found = {
        "budget": 8,
        "test_seed": 3,
        "config": TINY_CONFIG.to_dict(),
        "methods": methods,
    }
    (tmp_path / "tuned.json").write_text(json.dumps(found))
    return tmp_path


def test_the_demo_is_what_was_tuned_for_it() -> None:
    chosen = MethodSettings.of_the_demo()
    assert chosen.note(DEMO) == chosen.source
    assert {"fedavg+p", "scaffold+p", "fedaux", "ridge+p"} <= chosen.methods.keys()


def test_winners_reach_their_methods_and_what_is_swept_has_the_last_word(
    tuned: Path,
) -> None:
    chosen = MethodSettings.read(tuned)
    assert chosen == MethodSettings.read(tuned / "tuned.json")
    sweep = Sweep.of(TINY_CONFIG, {"method": ["fedavg", "fedaux"]}, 2, chosen)
    fedavg, fedaux = (arm.config for arm in sweep.arms)
    assert (fedavg.local.lr, fedavg.local.optimizer, fedavg.data.test_seed) == (
        0.5,
        "sgd",
        3,
    )
    assert (fedaux.local, fedaux.data.test_seed) == (TINY_CONFIG.local, 3)
    assert [arm.settings for arm in sweep.arms] == [
        {"method": "fedavg"},
        {"method": "fedaux"},
    ]
    axes = {"method": ["fedavg"], "local.lr": [0.1, 0.2]}
    assert [
        arm.config.local.lr for arm in Sweep.of(TINY_CONFIG, axes, 1, chosen).arms
    ] == [0.1, 0.2]


def test_the_note_says_what_was_otherwise_when_it_was_tuned(tuned: Path) -> None:
    chosen = MethodSettings.read(tuned)
    other = Config.from_dict(
        TINY_CONFIG.to_dict(), ["data.alpha=9.0", "rounds=7", "seed=4"]
    )
    assert (
        chosen.note(TINY_CONFIG)
        == "tuned, 8 settings a method tried on validation data"
    )
    assert (
        chosen.note(other, ["rounds"])
        == f"{chosen.note(TINY_CONFIG)} with another data.alpha"
    )
    assert AS_CONFIGURED.note(other) == "as in the config"


def test_what_cannot_be_taken_is_refused(tuned: Path) -> None:
    chosen = MethodSettings.read(tuned)
    with pytest.raises(
        ConfigError, match=r"it has not been tuned\. Tune it with the same budget"
    ):
        chosen.of("feddf")
    with pytest.raises(ConfigError, match=r"--set local.lr: the tuned settings"):
        chosen.refuse(["rounds=3", "local.lr=0.1"])
    with pytest.raises(ConfigError, match="Name the folder that `fedaux tune` wrote"):
        MethodSettings.read(tuned / "nowhere")
    (tuned / "odd.json").write_text("[]")
    with pytest.raises(ConfigError, match="is not a file of winners"):
        MethodSettings.read(tuned / "odd.json")
    with pytest.raises(ConfigError, match="did you mean 'paper'"):
        MethodSettings.preset("papper")


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_is_for_all_methods(name: str) -> None:
    preset = PRESETS[name]
    settings = MethodSettings.preset(name)
    assert settings.source == preset.source
    for method in ("fedavg", "fedaux"):
        assert settings.of(method) == preset.settings
        # every key is a setting
        assert Sweep.of(TINY_CONFIG, {"method": [method]}, 1, settings).arms
