"""A run is what its config says: read strictly, checked fully, and the same after any
round trip.
"""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from fedaux.config.prototype import PrototypeSpec
from fedaux.config.schema import Config, ConfigError, flatten
from fedaux.config.sections import (
    DataConfig,
    FederationConfig,
)
from helpers.settings import LEAVES, nested
from helpers.tiny import TINY_CONFIG

OTHER_CHOICE = {
    "class_weights": [1.0, 2.5],
    "federation.approval": "ask",
    "federation.standing": ["noisy sums"],
    "local.lr": 0.5,
    "head_init": "private-head",
    "data.validation_fraction": 0.5,
    "head_features": "raw",
    "prepare": "all",
    "federation.sites": [f"s{i}" for i in range(10)],
    "teachers.max_share": 0.5,
    "teachers.run_on": "clients",
    "federation.precision": "float16",
    "federation.over_selection": 0.5,
    "precision": "bfloat16",
    "device": "cpu",
    "pretrain.micro_batch_size": 64,
    "privacy.epsilon_total": 1.0,
    "privacy.unit": "person",
    "data.person": "patient",
    "data.classes": ["yes", "no"],
    "privacy.sample_rate": 0.5,
    "method": "feddf+p",
    "data.partition": "iid",
    "privacy.scorer": "logistic",
    "teachers.weights": "certainty",
    "privacy.adjacency": "add-remove",
    "privacy.calibration": "opendp",
    "prototypes": ["cnn"],
    "data.options": {"size": 32},
    "aux.options": {"size": 32},
    "method_options": {"beta": 0.5},
    "local.optimizer": "sgd",
    "local.momentum": 0.5,
    "local.weight_decay": 0.1,
    "local.schedule": "cosine",
    "federation.sends": ["sums"],
    "local.max_grad_norm": 2.0,
    "data.site_test_fraction": 0.25,
    "data.look_columns": ["age"],
    "privacy.look_epsilon": 0.5,
    "local.freeze_batch_norm": False,
}

NEEDS_OTHERS: dict[str, dict[str, Any]] = {
    "federation.secure": {"method": "fedavg"},
    "privacy.adjacency": {"privacy": {"declared_records": 5}},
    "privacy.private_training": {"privacy": {"epsilon_total": 1.0}, "head_only": True},
    "privacy.unit": {"data": {"person": "patient"}},
    "method_options": {"method": "fedavgm"},
    "data.site_test_fraction": {"privacy": {"look_epsilon": 1.0}},
    "head_features": {"head_only": True},
    "random_features": {"head_only": True},
    "local.momentum": {"local": {"optimizer": "sgd"}},
}


def another(key: str, value: Any) -> Any:
    if key in OTHER_CHOICE:
        return OTHER_CHOICE[key]
    if isinstance(value, bool):
        return not value
    return (
        value + 1
        if isinstance(value, int)
        else value / 2
        if isinstance(value, float)
        else f"{value}x"
    )


RICH = Config.from_dict(
    {
        "method": "fedbe+p",
        "prototypes": [
            "mlp",
            {"name": "cnn", "width": 16, "norm": "group"},
            {"name": "cnn", "width": 8},
        ],
        "data": {
            "source": "images",
            "options": {"size": 32, "classes": ["cat", "dog"], "grey": True},
            "alpha": 1,
        },
        "aux": {"options": {"share": 0.5}},
    }
)


def test_defaults_are_a_valid_run() -> None:
    assert Config.from_dict({}) == Config()
    assert Config().method == "fedaux"


def test_toml_with_tables_prototypes_and_options(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_text(
        """
        method = "feddf"
        rounds = 3
        prototypes = ["mlp", {name = "cnn", width = 16, features = 8}]
        [data]
        clients = 7
        [data.options]
        size = 32
        names = ["a", "b"]
        [privacy]
        epsilon = 2
        """
    )
    config = Config.load(path, ["rounds=4", "data.options.grey=true"])
    assert (
        config.method,
        config.rounds,
        config.data.clients,
        config.privacy.epsilon,
    ) == ("feddf", 4, 7, 2.0)
    assert config.prototypes == (
        PrototypeSpec("mlp"),
        PrototypeSpec("cnn", (("features", 8), ("width", 16))),
    )
    assert config.data.options == (("grey", True), ("names", ("a", "b")), ("size", 32))
    assert config.local == Config().local


@pytest.mark.parametrize("config", [Config(), RICH], ids=["defaults", "rich"])
def test_round_trip(config: Config) -> None:
    assert Config.from_dict(config.to_dict()) == config
    again = Config.from_dict(json.loads(json.dumps(config.to_dict())))
    assert again == config
    assert again.hash == config.hash
    assert hash(again) == hash(config)  # usable as the key of a cache


@pytest.mark.parametrize(
    "config",
    [
        Config(prototypes=(PrototypeSpec.of("cnn", width=8, features=4),)),
        Config(data=DataConfig(options=(("size", 8), ("grey", True)))),
    ],
    ids=["prototype", "data"],
)
def test_options_in_any_order_survive_the_round_trip(config: Config) -> None:
    again = Config.from_dict(config.to_dict())
    assert again == config
    assert [p.label for p in again.prototypes] == [p.label for p in config.prototypes]


@pytest.mark.parametrize("key", LEAVES)
def test_every_setting_changes_the_hash_and_survives(key: str) -> None:
    settings = nested(key, another(key, LEAVES[key]))
    plain = NEEDS_OTHERS.get(key, {})
    changed = Config.from_dict(
        {
            **plain,
            **{
                table: {**plain[table], **value} if table in plain else value
                for table, value in settings.items()
            },
        }
    )
    assert changed != Config.from_dict(plain)
    assert changed.hash != Config.from_dict(plain).hash
    assert Config.from_dict(changed.to_dict()) == changed


def test_the_hash_is_stable_and_short() -> None:
    assert Config().hash == Config.from_dict({"rounds": 5}).hash
    assert re.fullmatch("[0-9a-f]{16}", Config().hash)


@pytest.mark.parametrize(
    "key",
    [
        key
        for key, value in LEAVES.items()
        if type(value) is float and key != "pretrain.weight_decay"
    ],
)
def test_nan_is_never_accepted(key: str) -> None:
    with pytest.raises(ConfigError, match=key.rpartition(".")[2]):
        Config.from_dict(nested(key, float("nan")))


CHECKS = [
    ("method=fedaus", "the method 'fedaus': it is unknown (did you mean 'fedaux'?)"),
    ("rounds=0", "rounds must be at least 1, not 0"),
    ("fraction=0", "fraction must be above 0 and at most 1, not 0.0"),
    ("fraction=1.1", "fraction must be above 0 and at most 1, not 1.1"),
    ("prototypes=[]", "prototypes must name at least one network"),
    ('prototypes=["mlp", "mlp"]', "prototypes must differ from one another"),
    ("prototypes=3", "each prototype is a name or a table with a name"),
    ("prototypes=[{width = 3}]", "each prototype is a name or a table with a name"),
    ("data.options=3", "data.options must be a table of options"),
    ("data=3", "data must be a table. Write [data] and its settings below"),
    ("local.lr", "--set 'local.lr': it is not of the form key=value"),
    ("rounds.more=1", "rounds must be a whole number, not {'more': 1}"),
    ("method=fed", "Choose from private-head, fedavg, fedprox, feddf, fedbe, fedavg+p"),
]


@pytest.mark.parametrize(
    ("override", "fragment"), CHECKS, ids=[override for override, _ in CHECKS]
)
def test_every_check_says_what_is_wrong(override: str, fragment: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Config.from_dict({}, [override])
    assert fragment in str(caught.value)


def test_a_missing_file_says_so(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"there is no config file .*none\.toml. Run `fedaux init`"
    ):
        Config.load(tmp_path / "none.toml")


def test_invalid_toml_says_where(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_text("rounds = = 3")
    with pytest.raises(ConfigError, match=r"run\.toml is not valid TOML .*line 1"):
        Config.load(path)


@pytest.mark.parametrize(
    "data",
    [b'method = "f\xe9daux"', b"\xff\xfer\x00o\x00", b"\x80"],
    ids=["latin-1", "utf-16", "junk"],
)
def test_toml_in_another_encoding_is_a_config_error(
    tmp_path: Path, data: bytes
) -> None:
    path = tmp_path / "run.toml"
    path.write_bytes(data)
    with pytest.raises(ConfigError, match=r"run\.toml is not valid TOML .*utf-8"):
        Config.load(path)


def test_a_private_head_needs_the_releases_it_is_made_of() -> None:
    assert Config.from_dict({"head_init": "private-head", "method": "feddf+p"}).releases
    with pytest.raises(ConfigError, match="private head needs"):
        Config.from_dict({"head_init": "private-head"}, ["privacy.scorer=logistic"])


def test_a_run_keeps_its_id_when_it_goes_on_for_longer() -> None:
    longer = Config(rounds=99, federation=FederationConfig(timeout=1.0))
    assert Config().run_id == longer.run_id
    assert Config().run_id != Config(seed=1).run_id


def test_settings_are_flat() -> None:
    found = flatten(TINY_CONFIG)
    assert found["data.clients"] == 3
    assert (
        found["prototypes"]
        == '[{"name": "mlp", "features": 8, "hidden": 8, "norm": "batch"}]'
    )


def test_paths_of_data_are_relative_to_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project, elsewhere = tmp_path / "project", tmp_path / "elsewhere"
    for folder in (project / "private", elsewhere / "public", elsewhere / "private"):
        folder.mkdir(parents=True)
    (project / "my.toml").write_text(
        '[data]\npath = "private"\n[aux]\npath = "public"\n'
    )
    monkeypatch.chdir(elsewhere)
    config = Config.load(project / "my.toml")
    assert Path(config.data.path) == project / "private"
    assert config.aux.path == "public"  # it is not there, so it is left as it stands
    # typed here, meant here
    assert (
        Config.load(project / "my.toml", ["data.path=private"]).data.path == "private"
    )
    monkeypatch.chdir(project)
    assert Config.load("my.toml").data.path == "private"


@pytest.mark.parametrize(
    ("settings", "everybody"),
    [
        ({"method": "private-head"}, True),
        ({"method": "fedavg+p", "head_init": "private-head"}, True),
        ({"method": "fedaux"}, True),
        ({"method": "fedaux", "head_init": "random"}, False),
        ({"method": "private-head", "prepare": "selected"}, False),
        ({"method": "ridge+p"}, False),
    ],
)
def test_a_private_head_is_that_of_all_clients(
    settings: dict[str, Any], everybody: bool
) -> None:
    assert Config(fraction=0.4, **settings).prepares_all is everybody


def test_a_computed_head_on_random_features_needs_no_word_of_heads() -> None:
    """`ridge+p` with random_features asked for head_only, which it always is."""
    config = Config.from_dict({"method": "ridge+p", "random_features": 64})
    assert config.head_only
    with pytest.raises(ConfigError, match="Set head_only = true"):
        Config.from_dict({"method": "fedavg", "random_features": 64})


def test_a_look_needs_a_budget_of_its_own() -> None:
    held_out = {"data": {"site_test_fraction": 0.2}}
    with pytest.raises(ConfigError, match="lets no site be asked"):
        Config.from_dict(held_out)
    spent = {"look_epsilon": 1.0, "private_training": True, "epsilon_total": 3.0}
    with pytest.raises(ConfigError, match="nothing is left for a look"):
        Config.from_dict({**held_out, "head_only": True, "privacy": spent})
    one_of_each = Config.from_dict({**held_out, "privacy": {"look_epsilon": 1.0}})
    assert one_of_each.privacy.epsilon_budget == one_of_each.privacy.epsilon + 1.0
    assert one_of_each.tests_at_sites
