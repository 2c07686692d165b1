"""The method table, row by row, and the door for rows of one's own."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fedaux.config.methods import METHODS, PAPER_METHODS, Method, find_method
from fedaux.config.parsing import ConfigError
from fedaux.config.schema import Config

TABLE = {  # label, pretrained, proximal, teachers, weights
    "fedavg": ("FedAvg", False, False, "none", "uniform"),
    "fedprox": ("FedProx", False, True, "none", "uniform"),
    "feddf": ("FedDF", False, False, "clients", "uniform"),
    "fedbe": ("FedBE", False, False, "bayesian", "uniform"),
    "fedavg+p": ("FedAvg+P", True, False, "none", "uniform"),
    "fedprox+p": ("FedProx+P", True, True, "none", "uniform"),
    "feddf+p": ("FedDF+P", True, False, "clients", "uniform"),
    "fedbe+p": ("FedBE+P", True, False, "bayesian", "uniform"),
    "fedaux": ("FedAUX", True, False, "clients", "certainty"),
}
HOOKED = ["fedavgm", "fedadam", "fedyogi", "fednova", "scaffold", "feddyn"]
ANALYTIC = {
    "ridge": "moments",
    "discriminant": "moments",
    "class-means": "class-sums",
}


def test_nine_of_the_paper_those_with_hooks_and_those_that_compute_a_head() -> None:
    assert list(PAPER_METHODS) == list(TABLE)
    more = ["fedet", *HOOKED, *ANALYTIC]
    assert list(METHODS) == [
        "private-head",
        *TABLE,
        "fedaux-scaffold",
        *more,
        *(f"{name}+p" for name in more),
    ]


@pytest.mark.parametrize("hooks", ["", "fedaux.methods.fedavgm:FedAvgM"])
def test_sums_need_somebody_to_make_a_head_of_them(hooks: str) -> None:
    with pytest.raises(ConfigError, match="AnalyticHead"):
        Method("Mine", sends="moments", hooks=hooks).make_hooks({})


@pytest.mark.parametrize("name", METHODS)
def test_what_clients_send(name: str) -> None:
    row = METHODS[name]
    sends = {**ANALYTIC, "private-head": "releases"}.get(
        name.removesuffix("+p"), "models"
    )
    assert row.sends == sends
    assert row.analytic is (sends != "models")
    assert row.sums is (
        sends in ("class-sums", "moments")
    )  # none of which is protected


@pytest.mark.parametrize(
    ("settings", "head", "releases"),
    [
        ({"method": "fedavg"}, None, False),
        ({"method": "fedaux"}, "Private head", True),
        ({"method": "fedaux", "head_init": "random"}, None, True),
        ({"method": "fedaux", "privacy": {"scorer": "logistic"}}, None, True),
        ({"method": "ridge+p"}, "Ridge+P", False),
        ({"method": "private-head"}, "Private head", True),
        ({"method": "fedavg", "head_init": "ridge"}, "Ridge", False),
        ({"method": "fedavg", "head_init": "private-head"}, "Private head", True),
        ({"method": "fedaux", "head_init": "class-means"}, "Class means", True),
    ],
)
def test_what_a_head_is_computed_from(
    settings: dict[str, Any], head: str | None, releases: bool
) -> None:
    config = Config.from_dict(settings)
    assert (config.analytic_head.label if config.analytic_head else None) == head
    assert config.releases is releases


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"method": "ridge+p", "head_init": "ridge"}, "Leave head_init out"),
        ({"head_init": "fedavg"}, "a method that computes its head"),
        ({"head_init": "zero"}, "the method 'zero': it is unknown"),
        (
            {"head_init": "private-head", "privacy": {"scorer": "logistic"}},
            "class-embedding",
        ),
        (
            {"method": "private-head", "head_only": True, "random_features": 5},
            "random_features = 0",
        ),
        (
            {
                "method": "ridge",
                "privacy": {"private_training": True, "epsilon_total": 1.0},
            },
            "without noise",
        ),
        (
            {
                "head_init": "ridge",
                "privacy": {"private_training": True, "epsilon_total": 1.0},
            },
            "without noise",
        ),
        ({"class_weights": [1, 0]}, "numbers above 0"),
        ({"class_weights": "even"}, "class_weights 'even'"),
        (
            {"method": "fedavg", "class_weights": "balanced"},
            "FedAvg clients send no such counts",
        ),
        (
            {
                "class_weights": [1, 2],
                "privacy": {"private_training": True, "epsilon_total": 1.0},
            },
            "clips every record's gradient",
        ),
        ({"prepare": "some"}, "prepare"),
        ({"random_features": 5}, "head_only"),
        ({"head_features": "raw"}, "head_only"),
    ],
)
def test_what_makes_no_sense_together(settings: dict[str, object], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        Config.from_dict(settings)


def test_the_private_head_is_one_exchange_of_noisy_sums_on_a_pretrained_extractor() -> (
    None
):
    row, config = METHODS["private-head"], Config.from_dict({"method": "Private-Head"})
    assert (row.sends, row.pretrained, row.sums) == ("releases", True, False)
    assert (config.rounds, config.head_only) == (1, True)
    assert (config.privacy.scorer, config.privacy.embedding_dim) == ("class-moments", 0)
    assert Config.from_dict(config.to_dict()) == config


def test_defaults_of_a_method_are_those_of_what_is_left_out() -> None:
    table = {
        "method": "private-head",
        "rounds": 3,
        "privacy": {"scorer": "class-embedding"},
    }
    config = Config.from_dict(table, ["head_only=false"])
    assert (config.rounds, config.head_only, config.privacy.scorer) == (
        3,
        False,
        "class-embedding",
    )
    assert table["privacy"] == {"scorer": "class-embedding"}
    assert Config.from_dict({}, ["method=private-head"]).rounds == 1
    assert Config.from_dict({"method": "fedaux"}) == Config()


@pytest.mark.parametrize("key", ["method", "head_init"])
@pytest.mark.parametrize("name", ["closed-form", "closed-form+p"])
def test_the_old_name_of_the_private_head_is_refused_with_the_new_one(
    key: str, name: str
) -> None:
    with pytest.raises(ConfigError, match="is private-head now"):
        Config.from_dict({key: name})


@pytest.mark.parametrize("key", TABLE)
def test_row(key: str) -> None:
    row = METHODS[key]
    assert (
        row.label,
        row.pretrained,
        row.proximal,
        row.teachers,
        row.weights,
    ) == TABLE[key]
    assert row.distils is (row.teachers in ("clients", "bayesian"))
    assert row.scores is (key == "fedaux")
    assert row.make_hooks({}) is None


@pytest.mark.parametrize("name", HOOKED)
def test_a_method_with_hooks_is_named_after_them(name: str) -> None:
    made = find_method(name).make_hooks({})
    assert type(made).__name__.lower() == name
    assert METHODS[f"{name}+p"].pretrained
    assert METHODS[f"{name}+p"].hooks == METHODS[name].hooks


def test_fedaux_with_control_variates_is_fedaux_and_scaffold() -> None:
    row, fedaux = METHODS["fedaux-scaffold"], METHODS["fedaux"]
    assert replace(row, label=fedaux.label, hooks="") == fedaux
    assert row.make_hooks({"server_lr": 0.5}) == METHODS["scaffold"].make_hooks(
        {"server_lr": 0.5}
    )


def test_pretraining_is_a_field_and_no_letter_of_the_name() -> None:
    assert "P" in METHODS["fedprox"].label
    assert not METHODS["fedprox"].pretrained
    assert "+P" not in METHODS["fedaux"].label
    assert METHODS["fedaux"].pretrained


MODULE = """
from dataclasses import dataclass
from fedaux.methods.hooks import Hooks
from fedaux.config.methods import Method

@dataclass(frozen=True)
class Slow(Hooks):
    share: float = 0.5

half = Method("Half", hooks=Slow)
named = Method("Named", hooks="own_methods:Slow")
lost = Method("Lost", hooks="own_methods:Fast")
odd = Method("Odd", hooks=dict)
number = 3
"""


@pytest.fixture(autouse=True)
def own_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_methods.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "own_methods", raising=False)


@pytest.mark.parametrize("name", ["half", "named"])
def test_a_row_of_ones_own_works_as_a_name_does(name: str) -> None:
    config = Config(method=f"own_methods:{name}", method_options=(("share", 0.25),))
    assert (
        find_method(config.method).make_hooks(dict(config.method_options)).share == 0.25
    )
    assert Config.from_dict(config.to_dict()) == config


@pytest.mark.parametrize(
    ("method", "options", "message"),
    [
        (
            "fedadm",
            {},
            r"the method 'fedadm': it is unknown \(did you mean 'fedadam'\?\).*module:attribute",
        ),
        (
            "own_methods:hal",
            {},
            r"the Method of module 'own_methods' 'hal': it is unknown \(did you mean 'half'\?\)",
        ),
        (
            "own_methods:number",
            {},
            "the Method of module 'own_methods' 'number': it is unknown",
        ),
        ("no_such:thing", {}, "no module 'no_such'. Put its folder on PYTHONPATH"),
        (
            "own_methods:lost",
            {},
            "the class of module 'own_methods' 'Fast': it is unknown",
        ),
        (
            "own_methods:odd",
            {},
            "the hooks of Odd: dict is no subclass of fedaux.Hooks",
        ),
        (
            "own_methods:half",
            {"shar": 1},
            r"'method_options.shar': it is unknown \(did you mean 'method_options.share'\?\)",
        ),
        (
            "own_methods:half",
            {"share": "x"},
            "method_options.share must be a number, not 'x'",
        ),
        (
            "fedavgm",
            {"momentum": 0.5},
            "Choose from method_options.beta, method_options.server_lr",
        ),
        (
            "fedavgm",
            {"beta": 1.0},
            "method_options.beta must be at least 0 and below 1",
        ),
        ("fedavg", {"beta": 0.5}, "FedAvg has no options. Delete"),
    ],
)
def test_what_is_wrong_is_said_before_anything_runs(
    method: str, options: dict[str, object], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        Config.from_dict({"method": method, "method_options": options})


def test_a_method_that_half_precision_would_drown_says_so() -> None:
    with pytest.raises(ConfigError, match=r"FedNova in half precision.*'float32'"):
        Config.from_dict({"method": "fednova", "federation": {"precision": "float16"}})
    Config.from_dict({"method": "fedavgm", "federation": {"precision": "float16"}})


def test_a_method_chooses_its_optimiser_unless_the_user_does() -> None:
    chosen = {
        name: Config(method=name).local_training
        for name in ("fedaux", "fedavg", "scaffold")
    }
    assert (chosen["fedavg"].optimizer, chosen["fedavg"].lr) == ("adam", 1e-3)
    # it starts from a computed head
    under_head = chosen["fedaux"]
    assert (under_head.optimizer, under_head.lr) == ("sgd", 0.05)
    assert under_head.max_grad_norm == 1
    assert (under_head.schedule, under_head.freeze_batch_norm) == ("warm-up", True)
    assert chosen["fedavg"].max_grad_norm == 0
    assert chosen["fedavg"].schedule == "constant"
    assert chosen["fedavg"].freeze_batch_norm is False
    heads = Config(method="fedaux", head_only=True).local_training
    assert (heads.optimizer, heads.lr, heads.max_grad_norm) == ("sgd", 0.1, 0)
    unclipped = Config(method="fedaux", local={"max_grad_norm": 0}).local_training
    assert unclipped.max_grad_norm == 0
    by_hand = {"schedule": "constant", "freeze_batch_norm": False}
    free = Config(method="fedaux", local=by_hand).local_training
    assert (free.schedule, free.freeze_batch_norm) == ("constant", False)
    assert (heads.schedule, heads.freeze_batch_norm) == ("constant", False)
    assert (chosen["scaffold"].optimizer, chosen["scaffold"].lr) == ("sgd", 0.1)
    assert Config(local={"optimizer": "sgd", "lr": 0.5}).local_training.lr == 0.5
    assert Config(local={"momentum": 0.9}).local_training.optimizer == "sgd"
    with pytest.raises(
        ConfigError, match=r"SCAFFOLD is not meant for adam. Set .* to sgd"
    ):
        Config(method="scaffold", local={"optimizer": "adam"})


@pytest.mark.parametrize("name", ["FedAUX", "fedaux", "FEDAVG+P", "Class-Means"])
def test_names_are_in_letters_of_any_case(name: str) -> None:
    assert find_method(name) == METHODS[name.lower()]
    assert Config(method=name) == Config(method=name.lower())
    assert Config(method=name).hash == Config(method=name.lower()).hash
