"""Tables into settings: every wrong key, type or value is named, and overrides win."""

import math
import re
from typing import Any

import pytest

from fedaux.config.parsing import Within, dotted, set_key
from fedaux.config.prototype import PrototypeSpec
from fedaux.config.schema import Config, ConfigError
from helpers.settings import LEAVES, nested


@pytest.mark.parametrize(
    ("override", "read"),
    [
        ("local.lr=0.01", lambda c: c.local.lr == 0.01),
        ("local.lr = 1", lambda c: c.local.lr == 1.0 and type(c.local.lr) is float),
        ("method=fedavg+p", lambda c: c.method == "fedavg+p"),
        ('method="feddf"', lambda c: c.method == "feddf"),
        ("data.path=/some/where", lambda c: c.data.path == "/some/where"),
        ("data.path=a=b", lambda c: c.data.path == "a=b"),
        ("pretrain.flip=false", lambda c: c.pretrain.flip is False),
        ("prototypes=cnn", lambda c: c.prototypes == (PrototypeSpec("cnn"),)),
        (
            'prototypes=["mlp", "cnn"]',
            lambda c: [p.name for p in c.prototypes] == ["mlp", "cnn"],
        ),
        (
            "prototypes=[{name = 'cnn', width = 4}]",
            lambda c: c.prototypes[0].options == (("width", 4),),
        ),
        ("data.options.size=32", lambda c: c.data.options == (("size", 32),)),
        (
            'aux.options.names=["x", "y"]',
            lambda c: c.aux.options == (("names", ("x", "y")),),
        ),
    ],
)
def test_overrides(override: str, read: Any) -> None:
    assert read(Config.from_dict({}, [override]))


def test_later_overrides_win_and_the_callers_table_stays() -> None:
    table = {"local": {"lr": 0.1}}
    assert Config.from_dict(table, ["local.lr=0.2", "local.lr=0.3"]).local.lr == 0.3
    assert table == {"local": {"lr": 0.1}}


def test_overrides_of_options_leave_the_callers_table_alone() -> None:
    table: dict[str, Any] = {"data": {"options": {"size": 8}}}
    assert Config.from_dict(table, ["data.options.size=32"]).data.options == (
        ("size", 32),
    )
    assert table == {"data": {"options": {"size": 8}}}


@pytest.mark.parametrize("key", LEAVES)
def test_a_wrong_key_names_itself_the_nearest_and_the_allowed(key: str) -> None:
    wrong = key + "x"
    siblings = [
        k.rpartition(".")[2]
        for k in LEAVES
        if k.rpartition(".")[0] == key.rpartition(".")[0]
    ]
    with pytest.raises(ConfigError) as caught:
        Config.from_dict(nested(wrong, 1))
    message = str(caught.value)
    assert f"the key {wrong!r}: it is unknown" in message
    assert f"did you mean {key!r}?" in message
    assert all(name in message.partition("Choose from")[2] for name in siblings)


def test_a_wrong_table_is_named_too() -> None:
    with pytest.raises(
        ConfigError,
        match=r"the key 'locale': it is unknown \(did you mean 'local'\?\). Choose from method, method_options, rounds",
    ):
        Config.from_dict({"locale": {"lr": 1.0}})


@pytest.mark.parametrize(
    "key",
    [
        key
        for key, value in LEAVES.items()
        if isinstance(value, (bool, int, float, str))
        and key != "local.freeze_batch_norm"  # of two types, in test_sections.py
    ],
)
def test_a_wrong_type_is_named(key: str) -> None:
    kind = type(LEAVES[key])
    wrong = {bool: 1, int: 1.5, float: "0.1", str: 3}[kind]
    words = {
        bool: "true or false",
        int: "a whole number",
        float: "a number",
        str: "text",
    }[kind]
    with pytest.raises(ConfigError, match=f"{key} must be {words}, not {wrong!r}"):
        Config.from_dict(nested(key, wrong))


@pytest.mark.parametrize(
    "key", [key for key, value in LEAVES.items() if type(value) in (int, float)]
)
def test_a_bool_is_no_number(key: str) -> None:
    with pytest.raises(ConfigError, match=f"{key} must be .* not True"):
        Config.from_dict(nested(key, True))


def test_a_value_has_no_settings_below_it() -> None:
    with pytest.raises(ConfigError, match="rounds is a value, not a table"):
        Config.from_dict({"rounds": 3}, ["rounds.more=1"])


@pytest.mark.parametrize(
    "table",
    [
        {"prototypes": [{"name": "cnn", "width": [8]}]},
        {"data": {"options": {"a": {"b": 1}}}},
    ],
)
def test_options_of_an_impossible_type_are_a_config_error(
    table: dict[str, Any],
) -> None:
    with pytest.raises(ConfigError, match=r"width|data\.options\.a"):
        hash(Config.from_dict(table))


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("size", "the key 'size': it is unknown"),
        ("data.size", "If size is an option of the source, write data.options.size."),
        (
            "lr",
            "the key 'lr': there is no such key. Use pretrain.lr or local.lr or distill.lr",
        ),
        (
            "data.epsilon",
            "the key 'data.epsilon': there is no such key. Use privacy.epsilon",
        ),
        ("local.learning_rate", "the key 'local.learning_rate': it is unknown"),
    ],
)
def test_an_unknown_key_is_told_the_full_one(key: str, meant: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(meant)):
        Config.from_dict({}, [f"{key}=0.5"])


@pytest.mark.parametrize(
    ("interval", "inside", "outside", "words"),
    [
        ("(0, 1)", [1e-9, 0.5], [0, 1, -1, math.nan], "above 0 and below 1"),
        ("[0, 1]", [0, 1], [-1e-9, 1 + 1e-9, math.inf], "at least 0 and at most 1"),
        ("[1, inf)", [1, 10**9], [0, -1, math.inf, math.nan], "at least 1"),
        ("(0, 1e20]", [1e20], [0, 2e20], "above 0 and at most 1e20"),
    ],
)
def test_an_interval_has_the_ends_its_brackets_say(
    interval: str, inside: list[float], outside: list[float], words: str
) -> None:
    for value in inside:
        Within(interval).check("a.b", value)
    for value in outside:
        with pytest.raises(
            ConfigError, match=re.escape(f"a.b must be {words}, not {value}: why")
        ):
            Within(interval, "why").check("a.b", value)


def test_dotted_keys_lead_back_to_the_tables() -> None:
    tables = {"a": 1, "b": {"c": [1, 2], "d": {"e": "x"}}}
    flat = dict(dotted(tables))
    assert flat == {"a": 1, "b.c": [1, 2], "b.d.e": "x"}
    again: dict[str, Any] = {}
    for key, value in flat.items():
        set_key(again, key, value, "test")
    assert again == tables
