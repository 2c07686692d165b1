from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fedaux.config.methods import METHODS
from fedaux.config.schema import Config
from fedaux.sweeps.advice import (
    Row,
    Setting,
    Study,
    advise,
    describe,
    evenness,
    measured,
    options,
    setting_of,
)

HEADS = Setting(
    clients=20,
    records=2500,
    alpha=0.01,
    frozen=True,
    architectures=1,
    epsilon=1.0,
    rounds=20,
)


def row(
    method: str, label: str, *accuracy: float, epsilon: float = 0.0, start: str = ""
) -> Row:
    rounds = (1, 5, 20)[: len(accuracy)]
    settings = {"head_init": start} if start else {}
    return Row(
        method,
        label,
        rounds,
        accuracy,
        tuple(0.01 for _ in accuracy),
        epsilon,
        settings,
    )


ROWS = (
    row("fedavg+p", "FedAVG+P", 0.2, 0.3, 0.5),
    row("scaffold", "SCAFFOLD", 0.1, 0.2, 0.45),
    row("fedaux", "FedAUX, ε = 1", 0.4, 0.45, 0.48, epsilon=1.0),
    row("fedaux", "FedAUX, ε = 0.1", 0.3, 0.35, 0.38, epsilon=0.1),
    row("ridge+p", "Ridge+P", 0.6),
    row("fedavg+p", "FedAVG+P from Ridge", 0.55, 0.56, 0.58, start="ridge"),
)
NEAR = Study("CIFAR-10", "docs", HEADS, 3, ROWS)
SMALL = replace(NEAR, data="small", setting=replace(HEADS, clients=80, records=60))
NETWORKS = replace(NEAR, data="networks", setting=replace(HEADS, frozen=False))


def labels(setting: Setting, **how: bool) -> list[str]:
    return [
        one.label for one, _ in advise(setting, [SMALL, NETWORKS, NEAR], **how).rows
    ]


def labels_of(study: Study) -> list[str]:
    return [one.label for one, _ in advise(HEADS, [study]).rows]


def test_the_nearest_setting_of_the_same_kind_answers() -> None:
    assert advise(replace(HEADS, records=1500), [SMALL, NETWORKS, NEAR]).study is NEAR
    assert (
        advise(replace(HEADS, clients=90, records=100), [SMALL, NETWORKS, NEAR]).study
        is SMALL
    )
    assert (
        advise(replace(HEADS, frozen=False, records=60), [SMALL, NETWORKS, NEAR]).study
        is NETWORKS
    )
    with pytest.raises(ValueError, match="nothing was measured"):
        advise(replace(HEADS, architectures=3), [SMALL, NETWORKS, NEAR])


def test_the_best_at_the_users_rounds_comes_first() -> None:
    assert labels(HEADS) == [
        "Ridge+P",
        "FedAVG+P from Ridge",
        "FedAVG+P",
        "FedAUX, ε = 1",
        "SCAFFOLD",
    ]
    assert labels(replace(HEADS, rounds=19))[2:] == [
        "FedAUX, ε = 1",
        "FedAVG+P",
        "SCAFFOLD",
    ]


def test_a_smaller_epsilon_takes_the_figures_of_that_epsilon() -> None:
    found = advise(replace(HEADS, epsilon=0.5), [NEAR])
    assert "FedAUX, ε = 0.1" in [one.label for one, _ in found.rows]
    assert "FedAUX, ε = 1 was measured" in " ".join(found.left_out)


def test_what_the_user_forbids_is_left_out_with_the_reason() -> None:
    assert labels(HEADS, share_sums=False) == ["FedAVG+P", "FedAUX, ε = 1", "SCAFFOLD"]
    assert len(advise(HEADS, [NEAR], share_sums=False).left_out) == 2


@pytest.mark.parametrize(
    ("method", "start", "needs"),
    [
        ("fedavg", "", ()),
        ("fedavg+p", "private-head", ("public data", "releases")),
        ("fedaux", "ridge", ("public data", "releases", "sums of features")),
        ("class-means", "", ("sums of features",)),
    ],
)
def test_a_start_needs_what_its_head_is_computed_from(
    method: str, start: str, needs: tuple[str, ...]
) -> None:
    assert row(method, method, 0.5, start=start).needs == needs


def test_differences_are_named_beyond_a_factor_of_three() -> None:
    assert advise(HEADS, [NEAR]).differences == ()
    found = advise(
        replace(HEADS, records=700, alpha=1.0, rounds=100), [NEAR]
    ).differences
    assert found == (
        "records a client 700, measured 2500",
        "α 1, measured 0.01",
        "rounds 100, measured 20",
    )


@pytest.mark.parametrize("alpha", [0.05, 0.5, 5.0])
def test_evenness_finds_the_alpha_of_a_dirichlet_split(alpha: float) -> None:
    shares = np.random.default_rng(0).dirichlet([alpha] * 10, size=4000)
    assert evenness(np.rint(shares * 10_000)) == pytest.approx(alpha, rel=0.1)
    assert evenness(np.full((4, 10), 7)) == 1000
    assert evenness(np.eye(10) * 50) == 0.001


def test_a_config_says_its_setting() -> None:
    config = Config.from_dict({"data": {"clients": 4}, "rounds": 3})
    found = setting_of(config)
    assert (found.clients, found.rounds, found.alpha, found.frozen) == (
        4,
        3,
        0.01,
        False,
    )
    assert found.records == pytest.approx(1797 * 0.8 * 0.5 / 4, rel=0.02)
    assert describe(found).startswith("whole networks, 4 clients of about 180 records")
    shards = Config.from_dict(
        {"data": {"clients": 4, "partition": "shards", "shards": 10}}
    )
    assert setting_of(shards).alpha > 0.1


def test_real_sites_must_say_what_they_have() -> None:
    data = {"partition": "own", "classes": ["x", "y"]}
    config = Config.from_dict(
        {"data": data, "federation": {"sites": ["a", "b"]}, "aux": {"source": "digits"}}
    )
    with pytest.raises(ValueError, match="--records"):
        setting_of(config)
    assert setting_of(config, records=300, alpha=0.1).clients == 2


def test_what_was_measured_is_complete() -> None:
    studies = measured()
    assert studies
    for study in studies:
        for one in study.rows:
            assert one.method in METHODS
            assert len(one.rounds) == len(one.accuracy) == len(one.spread)
            assert all(0 <= value <= 1 for value in one.accuracy)
            assert list(one.rounds) == sorted(one.rounds)


@pytest.mark.parametrize(
    ("change", "first"),
    [
        ({}, "private-head"),
        ({"alpha": 100.0}, "ridge+p"),  # clients are alike
        ({"epsilon": 0.05}, "ridge+p"),  # it was not measured at so small a budget
    ],
)
def test_the_private_head_comes_first_where_heads_are_trained_on_uneven_clients(
    change: dict[str, float], first: str
) -> None:
    study = replace(
        NEAR, rows=(*ROWS, row("private-head", "private head, ε = 1", 0.5, epsilon=1.0))
    )
    found = advise(replace(HEADS, **change), [study])  # type: ignore[arg-type]
    assert found.first is not None
    assert found.first[0].method == first
    assert found.rows[0][0].method == "ridge+p"  # the table is by accuracy


def test_networks_that_train_are_not_advised_a_head() -> None:
    study = replace(
        NETWORKS,
        rows=(*ROWS, row("private-head", "private head, ε = 1", 0.5, epsilon=1.0)),
    )
    found = advise(replace(HEADS, frozen=False), [study])
    assert found.first == found.rows[0]
    assert "--set method=private-head --set rounds=1" in options(study.rows[-1])


def test_where_nothing_suits_the_next_nearest_setting_answers() -> None:
    only = replace(NEAR, rows=ROWS[4:5])
    assert advise(HEADS, [only, SMALL], share_sums=False).study is SMALL
    nothing = advise(HEADS, [only], share_sums=False)
    assert nothing.first is None
    assert nothing.left_out


def test_options_are_those_that_were_measured() -> None:
    settings = {
        "head_init": "private-head",
        "prepare": "all",
        "teachers.standing": True,
    }
    assert options(replace(row("fedaux", "FedAUX", 0.5), settings=settings)) == (
        "--set method=fedaux --set head_init=private-head --set prepare=all --set "
        "teachers.standing=true"
    )


def test_of_several_epsilons_the_largest_is_shown() -> None:
    starts = [
        row(
            "fedaux",
            f"FedAUX, ε = {one:g}, ridge start",
            0.4,
            epsilon=one,
            start="ridge",
        )
        for one in (0.1, 1)
    ]
    assert labels_of(replace(NEAR, rows=(*ROWS[2:4], *starts))) == [
        "FedAUX, ε = 1",
        "FedAUX, ε = 1, ridge start",
    ]
