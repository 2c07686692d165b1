"""No teacher is louder than the federation allows, and what is cut is cut no further
than that.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fedaux.client.summaries import summarise
from fedaux.config.distillation import TeachersConfig
from fedaux.config.sections import PrivacyConfig
from fedaux.messages import Release
from fedaux.privacy.mechanism import release
from fedaux.scoring import teacher_weights as room
from fedaux.scoring.base import Fitted, PortableScorer, Reference
from fedaux.scoring.embedding import ClassEmbeddingScorer
from fedaux.scoring.logistic import LogisticScorer
from fedaux.scoring.teacher_weights import (
    MIN_WEIGHT,
    PublicEmbedding,
    Scored,
    TeacherWeights,
    cap_precision,
    client_weights,
    share_cap,
    teacher_weights,
)

SHARES = [1.0, 0.9, 0.5, 0.4, 1 / 3, 0.3, 0.1]
WEIGHTS = hnp.arrays(
    np.float64,
    st.tuples(st.integers(1, 12), st.integers(1, 4)),
    elements=st.floats(MIN_WEIGHT, 1.0, allow_subnormal=False),
)


def test_weights_of_both_kinds() -> None:
    log_odds = np.array([-30.0, 0.0, 3.0])
    assert np.allclose(
        teacher_weights(log_odds, np.zeros(3), "certainty"),
        [MIN_WEIGHT, 0.5, 1 / (1 + np.exp(-3))],
    )
    assert np.allclose(
        teacher_weights(log_odds, np.array([0.0, 0.0, 5.0]), "odds"),
        [MIN_WEIGHT, 1.0, np.exp(-2)],
    )


@given(
    st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=6),
    st.sampled_from(["odds", "certainty"]),
)
def test_weights_lie_above_the_floor_at_most_one_and_keep_the_order(
    log_odds: list[float], kind: str
) -> None:
    odds = np.sort(np.array(log_odds))
    weights = teacher_weights(odds, np.full(len(odds), odds.max()), kind)
    assert (weights >= MIN_WEIGHT).all()
    assert (weights <= 1).all()
    assert (np.diff(weights) >= 0).all()


@settings(deadline=None, max_examples=300)
@given(WEIGHTS, st.sampled_from(SHARES))
def test_none_has_more_than_its_share_and_nothing_is_cut_without_need(
    weights: np.ndarray, share: float
) -> None:
    share = max(share, 1 / len(weights))
    height = share_cap(weights, share)
    cut = np.minimum(weights, height)
    total = cut.sum(axis=0)
    assert (cut <= share * total * (1 + 1e-9)).all()
    assert np.allclose(total, height / share)
    fair = (weights <= share * weights.sum(axis=0)).all(axis=0)
    assert np.allclose(cut[:, fair], weights[:, fair], rtol=1e-12, atol=0)
    # any other height that keeps the shares is lower: the loudest keep as much as they
    # may
    higher = np.minimum(weights, 1.01 * height)
    changed = (higher != cut).any(axis=0)
    assert (higher.max(axis=0) > share * higher.sum(axis=0) * (1 + 1e-9))[
        changed & (share > 1 / len(weights))
    ].all()


def test_colluders_do_not_hide_behind_each_other() -> None:
    """Cut one by one against the uncut weights of the others, two loud teachers would
    keep nearly everything.
    """
    loud, quiet = np.full(1, 1.0), np.full(1, 0.01)
    height = share_cap(np.stack([loud, loud, quiet, quiet, quiet, quiet]), 0.3)
    assert height == pytest.approx(0.04 / (1 / 0.3 - 2))
    assert height / (2 * height + 0.04) == pytest.approx(0.3)
    # the order of teachers does not matter
    weights = np.random.default_rng(0).uniform(MIN_WEIGHT, 1, (9, 5)) ** 4
    assert np.allclose(
        share_cap(weights, 0.2), share_cap(weights[::-1], 0.2), rtol=1e-14
    )


ODDS = {
    "a": [9.0, -9.0, 0.0, 3.0],
    "b": [0.0, 0.1, 0.0, -80.0],
    "c": [-1.0, 0.2, 0.0, -90.0],
}


def weights_under(share: float, kind: str = "odds", **odds: Any) -> TeacherWeights:
    found = {
        client: (lambda rows, values=values: np.array(values)[rows[:, 0]])
        for client, values in odds.items()
    }
    rows = np.arange(4)[:, None]
    config = TeachersConfig(kind, share)
    return TeacherWeights(
        config, {"p": Fitted(found)}, {"p": rows}, lambda client: "p", list(odds)
    )


@pytest.mark.parametrize("kind", ["odds", "certainty"])
def test_a_share_of_one_changes_nothing_to_the_bit(kind: str) -> None:
    peak = np.max(list(ODDS.values()), axis=0)
    for client, values in ODDS.items():
        plain = teacher_weights(np.array(values), peak, kind)
        assert weights_under(1.0, kind, **ODDS).of(client).tobytes() == plain.tobytes()


@pytest.mark.parametrize("kind", ["odds", "certainty"])
@pytest.mark.parametrize("share", [1.0, 0.6, 0.4])
def test_shares_are_kept_on_every_example_and_told_on_average(
    kind: str, share: float
) -> None:
    found = weights_under(share, kind, **ODDS)
    weights = np.stack([found.of(client) for client in ODDS])
    assert ((weights > 0) & (weights <= 1)).all()
    shares = weights / weights.sum(axis=0)
    assert shares.max() <= share + 1e-9
    assert shares.max() > min(share, 0.9) - 0.01
    assert [found.share(row) for row in weights] == pytest.approx(
        shares.mean(axis=1).tolist()
    )


def test_who_is_not_cut_keeps_its_proportions() -> None:
    found, plain = weights_under(0.5, **ODDS), weights_under(1.0, **ODDS)
    ratio, before = (one.of("b") / one.of("c") for one in (found, plain))
    assert np.allclose(ratio[[0, 2, 3]], before[[0, 2, 3]])
    assert not np.allclose(ratio[1], before[1])  # here c is the loudest, and cut
    assert np.allclose(found.of("a")[0], (found.of("b") + found.of("c"))[0])


def test_if_none_may_have_an_even_share_all_have_just_that() -> None:
    found = weights_under(0.1, **ODDS)
    weights = np.stack([found.of(client) for client in ODDS])
    assert np.allclose(weights, 1.0)
    assert found.share(weights[0]) == pytest.approx(1 / 3)
    alone = weights_under(0.3, a=ODDS["a"])
    assert np.array_equal(alone.of("a"), np.ones(4))
    assert alone.share(alone.of("a")) == 1.0


def told(client: str, scale: float, sensitivity: float = 2.0) -> Release:
    facts = (
        "s",
        50,
        1.0,
        1e-5,
        "replace-one",
        "opendp",
        sensitivity,
        scale,
        1e-7,
        False,
        "",
    )
    return Release(client, *facts, {"values": np.zeros(3, np.int64)})


def test_nobody_is_taken_for_more_exact_than_the_median_client() -> None:
    """Noise is compared by what it is to the sensitivity: that is the budget, whatever
    the number of records.
    """
    honest = [
        told("a", 8.0),
        told("b", 8.0),
        told("c", 20.0, sensitivity=5.0),
        told("d", 80.0),
    ]
    found = cap_precision([*honest, told("liar", 1e-9)])
    assert [one.scale for one in found] == [8.0, 8.0, 20.0, 80.0, 8.0]
    assert all(one is other for one, other in zip(found, honest, strict=False))
    alike = [
        told(str(i), 4.045130358696958 * reach, reach)
        for i, reach in enumerate((2.0, 3.7, 1e9 / 7))
    ]
    # as they are, to the bit
    assert all(
        one is other for one, other in zip(cap_precision(alike), alike, strict=True)
    )


@pytest.fixture
def embedding() -> PublicEmbedding:
    rng = np.random.default_rng(1)
    scorer = LogisticScorer(ridge=0.1)
    negatives, distill = rng.normal(size=(200, 5)), rng.normal(size=(70, 5))
    public = scorer.publish(negatives)
    return PublicEmbedding(
        scorer,
        TeachersConfig(),
        {"p": public},
        {"p": Reference(scorer.embed(public, negatives))},
        {"p": scorer.embed(public, distill)},
        lambda client: "p",
    )


def made(client: str, seed: int) -> Release:
    values = np.random.default_rng(seed).integers(-(10**6), 10**6, 5)
    return Release(
        client,
        "logistic",
        50,
        1.0,
        1e-5,
        "replace-one",
        "opendp",
        2e6,
        1e5,
        1e-7,
        False,
        "",
        {"values": values},
    )


def test_the_peak_is_the_largest_and_the_best_teacher_weighs_one(
    embedding: PublicEmbedding,
) -> None:
    weighing = embedding.teacher_weights(
        {"a": made("a", 1), "b": made("b", 2)}, ["a", "b"]
    )
    each = np.stack([weighing.log_odds(client) for client in "ab"])
    weights = np.stack([weighing.of(client) for client in "ab"])
    assert np.allclose(weights.max(axis=0), 1.0)
    assert np.allclose(
        weights / weights.sum(axis=0),
        np.exp(each) / np.exp(each).sum(axis=0),
        atol=1e-7,
    )


def test_blocks_do_not_matter(
    embedding: PublicEmbedding, monkeypatch: pytest.MonkeyPatch
) -> None:
    releases = {"a": made("a", 1), "b": made("b", 2)}
    weighing = embedding.teacher_weights(releases, ["a", "b"])
    whole, share = weighing.log_odds("a"), weighing.share(weighing.of("a"))
    monkeypatch.setattr(room, "_BLOCK", 7)
    monkeypatch.setattr(room, "ENTRIES", 16)
    assert np.allclose(weighing.log_odds("a"), whole)
    again = embedding.teacher_weights(releases, ["a", "b"])
    assert np.array_equal(again.of("a"), weighing.of("a"))
    assert again.share(again.of("a")) == pytest.approx(share, rel=1e-12)


def test_a_fit_is_kept_until_the_releases_change(embedding: PublicEmbedding) -> None:
    class Counting(LogisticScorer):
        def fit(self, *data: Any) -> Fitted:
            fits.append([release.client for release in data[2]])
            return super().fit(*data)

    fits: list[list[str]] = []
    embedding, releases = (
        replace(embedding, scorer=Counting(ridge=0.1)),
        {"a": made("a", 1), "b": made("b", 2)},
    )
    first, again = (
        embedding.teacher_weights(dict(releases), ["a", "b"]) for _ in range(2)
    )
    assert fits == [["a", "b"]]
    assert np.array_equal(first.of("a"), again.of("a"))
    releases["b"] = made("b", 3)
    assert not np.allclose(
        embedding.teacher_weights(releases, ["a", "b"]).of("a"), first.of("a")
    )
    embedding.teacher_weights({**releases, "c": made("c", 4)}, ["a", "b"])
    assert fits == [["a", "b"], ["a", "b"], ["a", "b", "c"]]


def test_a_part_of_the_examples_has_the_weights_that_all_of_them_have(
    embedding: PublicEmbedding,
) -> None:
    releases, part = {"a": made("a", 1), "b": made("b", 2)}, np.array([3, 5, 60])
    whole, some = (
        embedding.teacher_weights(releases, ["a", "b"], rows) for rows in (None, part)
    )
    assert np.allclose(some.of("a"), whole.of("a")[part], rtol=1e-6)


SCORERS: list[PortableScorer] = [
    ClassEmbeddingScorer(3, embedding_dim=4),
    LogisticScorer(ridge=0.1),
]


@pytest.mark.parametrize("kind", ["odds", "certainty"])
@pytest.mark.parametrize("scorer", SCORERS, ids=repr)
def test_a_client_computes_the_servers_weights_from_what_it_is_sent(
    scorer: PortableScorer, kind: str
) -> None:
    rng = np.random.default_rng(1)
    negatives, distill = (
        rng.normal(size=(size, 5)).astype(np.float32) for size in (200, 70)
    )
    public, privacy = (
        scorer.publish(negatives),
        PrivacyConfig(epsilon=2.0, unsafe_seed=1),
    )
    embedded = scorer.embed(public, distill).astype(np.float32)
    reference = Reference(np.asarray(scorer.embed(public, negatives), np.float64))
    config = TeachersConfig(kind, run_on="clients")
    known = PublicEmbedding(
        scorer,
        config,
        {"p": public},
        {"p": reference},
        {"p": embedded},
        lambda client: "p",
    )
    releases = {}
    for number, client in enumerate("abc"):
        rows, labels = (
            number + rng.normal(size=(40, 5)),
            rng.integers(number, 3, size=40),
        )
        summary = summarise(
            scorer, public, rows, labels, "replace-one", 40, np.ones(40)
        )
        releases[client] = release(summary, client, privacy)
    found = known.teacher_weights(releases, ["a", "b", "c"])
    for client in "abc":
        shared, own = found.broadcast(client)
        assert shared is found.broadcast("a")[0]  # serialized once for all
        weights = client_weights(scorer, kind, embedded, shared, own)
        assert weights.tobytes() == found.of(client).tobytes()
        found.check(client, weights)
        with pytest.raises(ValueError, match="not those of its release"):
            found.check(client, np.clip(weights[::-1] * 1.5, 0, 1))


def test_a_scorer_that_cannot_be_sent_says_what_to_do(
    embedding: PublicEmbedding,
) -> None:
    class Local:
        name = "alignment:make"

        def fit(self, public: Any, reference: Any, releases: Any) -> Fitted:
            return Fitted(
                {each.client: lambda rows: np.zeros(len(rows)) for each in releases}
            )

    at_server = replace(embedding, scorer=Local())  # type: ignore[arg-type]
    assert at_server.teacher_weights({"a": made("a", 1)}, ["a"]).teachers == {"a"}
    with pytest.raises(ValueError, match="has no fit_arrays and from_arrays"):
        replace(at_server, teachers=TeachersConfig(run_on="clients")).teacher_weights(
            {"a": made("a", 1)}, ["a"]
        )


def test_only_those_asked_are_teachers_but_all_known_releases_count(
    embedding: PublicEmbedding,
) -> None:
    weighing = embedding.teacher_weights(
        {"a": made("a", 1), "b": made("b", 2)}, ["a", "late"]
    )
    assert weighing.teachers == {"a"}
    assert np.allclose(weighing.of("a"), 1.0)  # nobody else is asked


def mixed(spread: float, seed: int = 0) -> tuple[Fitted, np.ndarray]:
    """Seven clients that lack most of the classes; class 3 is nobody's. Log-ratios
    reach far beyond e^±700.
    """
    rng = np.random.default_rng(seed)
    shares = rng.dirichlet(np.full(5, 0.3), 7) * (rng.random((7, 5)) < 0.5)
    shares[np.arange(7), rng.integers(3, size=7)] += 1e-3
    shares[:, 3] = 0.0
    own = {
        f"{seed}{i}": {"shares": row, "offset": np.log([0.05 * (i + 1)])}
        for i, row in enumerate(shares)
    }
    shared = {"means": np.zeros((5, 2)), "sigma": np.ones(5), "records": np.ones(5)}
    shared |= {"centre": np.zeros(2), "covariance": np.eye(2)}
    fitted = ClassEmbeddingScorer(5).from_arrays(shared, own)
    return fitted, (spread * rng.normal(size=(90, 5))).astype(np.float32)


@pytest.mark.parametrize("share", [1.0, 0.3])
@pytest.mark.parametrize("kind", ["odds", "certainty"])
@pytest.mark.parametrize("spread", [1.0, 30.0, 800.0])
def test_the_matrix_product_gives_the_weights_of_every_client_by_itself(
    spread: float, kind: str, share: float
) -> None:
    """Of two prototypes, against `log_odds` of one client at a time: logsumexp over the
    classes it has.
    """
    fitted, rows = {}, {}
    for seed in (0, 1):
        fitted[str(seed)], rows[str(seed)] = mixed(spread, seed)
    plain = {label: replace(each, mixtures=None) for label, each in fitted.items()}
    # the others are not in it
    asked = [client for each in fitted.values() for client in list(each.log_odds)[:5]]
    fast, slow = (
        TeacherWeights(
            TeachersConfig(kind, share), each, rows, lambda client: client[0], asked
        )
        for each in (fitted, plain)
    )
    expected = np.stack([slow.of(client) for client in asked])
    assert np.allclose(
        np.stack([fast.of(client) for client in asked]), expected, rtol=2e-6, atol=0
    )
    assert (expected > 2 * MIN_WEIGHT).any(axis=1).sum() > 3
    for client, weights in zip(asked, expected, strict=True):
        assert fast.share(weights) == pytest.approx(slow.share(weights), rel=1e-6)
        if share == 1:
            fast.check(client, weights)


def test_blocks_of_examples_change_no_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    fitted, rows = mixed(5.0)
    peak = np.max([function(rows) for function in fitted.log_odds.values()], axis=0)
    whole = [
        Scored.of(fitted, rows, peak, "odds").weights(client)
        for client in fitted.log_odds
    ]
    monkeypatch.setattr(room, "ENTRIES", 37)
    again = [
        Scored.of(fitted, rows, peak, "odds").weights(client)
        for client in fitted.log_odds
    ]
    assert np.stack(whole).tobytes() == np.stack(again).tobytes()
    for weights, log_odds in zip(whole, fitted.log_odds.values(), strict=True):
        assert np.allclose(
            weights, teacher_weights(log_odds(rows), peak, "odds"), rtol=2e-6
        )
