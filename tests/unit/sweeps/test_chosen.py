"""Settings of a comparison: winners or presets for the methods they are for, and words that say which."""

import json
from pathlib import Path

import pytest

from fedaux.config.parsing import ConfigError
from fedaux.config.presets import DEMO, PRESETS
from fedaux.config.schema import Config
from fedaux.sweeps.chosen import AS_CONFIGURED, Chosen
from fedaux.sweeps.grid import Sweep
from helpers.tiny import TINY_CONFIG


@pytest.fixture
def tuned(tmp_path: Path) -> Path:
    methods = {"fedavg": {"settings": {"local.lr": 0.5, "local.optimizer": "sgd"}}, "fedaux": {"settings": {}}}
    found = {"budget": 8, "test_seed": 3, "config": TINY_CONFIG.to_dict(), "methods": methods}
    (tmp_path / "tuned.json").write_text(json.dumps(found))
    return tmp_path


def test_the_demo_is_what_was_tuned_for_it() -> None:
    chosen = Chosen.of_the_demo()
    assert chosen.note(DEMO) == chosen.source
    assert {"fedavg+p", "scaffold+p", "fedaux", "ridge+p"} <= chosen.methods.keys()


def test_winners_reach_their_methods_and_all_share_the_test_records(tuned: Path) -> None:
    assert Chosen.read(tuned) == Chosen.read(tuned / "tuned.json")
    sweep = Sweep.of(TINY_CONFIG, {"method": ["fedavg", "fedaux"]}, 2, Chosen.read(tuned))
    fedavg, fedaux = (arm.config for arm in sweep.arms)
    assert (fedavg.local.lr, fedavg.local.optimizer, fedavg.data.test_seed) == (0.5, "sgd", 3)
    assert (fedaux.local, fedaux.data.test_seed) == (TINY_CONFIG.local, 3)
    assert [arm.settings for arm in sweep.arms] == [{"method": "fedavg"}, {"method": "fedaux"}]


def test_what_is_swept_has_the_last_word(tuned: Path) -> None:
    axes = {"method": ["fedavg"], "local.lr": [0.1, 0.2]}
    assert [arm.config.local.lr for arm in Sweep.of(TINY_CONFIG, axes, 1, Chosen.read(tuned)).arms] == [0.1, 0.2]


def test_the_note_says_what_was_otherwise_when_it_was_tuned(tuned: Path) -> None:
    chosen, other = (
        Chosen.read(tuned),
        Config.from_dict(TINY_CONFIG.to_dict(), ["data.alpha=9.0", "rounds=7", "seed=4"]),
    )
    assert chosen.note(TINY_CONFIG) == "tuned, 8 settings a method tried on validation data"
    assert chosen.note(other, ["rounds"]) == f"{chosen.note(TINY_CONFIG)} with another data.alpha"
    assert AS_CONFIGURED.note(other) == "as in the config"


def test_what_cannot_be_taken_is_refused(tuned: Path, tmp_path: Path) -> None:
    chosen = Chosen.read(tuned)
    with pytest.raises(ConfigError, match="feddf has not been tuned: tune it with the same budget"):
        chosen.of("feddf")
    with pytest.raises(ConfigError, match=r"--set local.lr: the tuned settings"):
        chosen.refuse(["rounds=3", "local.lr=0.1"])
    with pytest.raises(ConfigError, match="name the folder that `fedaux tune` wrote"):
        Chosen.read(tmp_path / "nowhere")
    (tmp_path / "odd.json").write_text("[]")
    with pytest.raises(ConfigError, match="is no file of winners"):
        Chosen.read(tmp_path / "odd.json")
    with pytest.raises(ConfigError, match="did you mean 'paper'"):
        Chosen.preset("papper")


def test_a_preset_for_some_methods_has_the_last_word_on_them() -> None:
    everyone = PRESETS["paper"].settings
    assert Chosen.preset("paper").of("fedavg") == everyone
    for name, preset in PRESETS.items():
        found = Chosen.preset("paper", name) if name != "paper" else Chosen.preset(name)
        for method in preset.methods:
            assert found.of(method) == {**everyone, **preset.settings}
            assert Sweep.of(TINY_CONFIG, {"method": [method]}, 1, found).arms  # every key is a setting
        assert found.of("fedaux") == everyone
        assert preset.source in found.source
