"""Class sums, counts and second moments under one noise: rows, integers, sensitivity,
and the heads made of them.
"""

import itertools
from collections.abc import Sequence

import numpy as np
import pytest
from scipy.special import log_softmax
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import RidgeClassifier

from fedaux.client.summaries import summarise
from fedaux.client.summaries.embedding import embed_per_record
from fedaux.client.summaries.moments import moment_rows
from fedaux.config.parsing import ConfigError
from fedaux.config.sections import PrivacyConfig
from fedaux.core.arrays import Arrays
from fedaux.core.failures import OrderError
from fedaux.data.records import Records
from fedaux.messages.orders import PUBLIC_ARRAYS
from fedaux.messages.types import ArrayGroup
from fedaux.privacy.mechanism import GRID, continuous_multiplier, release, unit_rows
from fedaux.privacy.units import Units
from fedaux.scoring import moments_plan
from fedaux.scoring.base import Reference
from fedaux.scoring.class_moments import ROW_STEPS, SHARE_STEPS, ClassMomentsScorer
from fedaux.scoring.embedding import (
    ClassEmbeddingScorer,
    HeadArrays,
    balanced_weights,
)
from fedaux.scoring.moments_plan import (
    PLAIN_SPLITS,
    PublicFacts,
    choose_split,
    widest_level,
)
from fedaux.scoring.registry import make_scorer
from fedaux.scoring.second_moments import (
    HEADS,
    Moments,
    Split,
    public_split,
    sensitivity,
)

SPLITS = [
    (0.6, 0.0, 0.8),
    (0.8, 0.1, 0.59),
    (0.98, 0.1, 0.1),
    (0.5, 0.5, 0.7),
    (0.0, 0.6, 0.8),
    (0.8, 0.6, 0.0),
    (0.2, 0.05, 0.97),
]
ADJACENCIES = ["replace-one", "add-remove"]


def public_of(width: int, k: int, split: tuple[float, ...], seed: int = 0) -> Arrays:
    rng = np.random.default_rng(seed)
    basis = rng.normal(size=(width, k)).astype(np.float32)
    near = abs(np.linalg.norm(split) - 1) < 0.02
    usable = public_split(*split) if near else np.array(split, np.float32)
    return {
        "mean": rng.normal(size=width).astype(np.float32),
        "basis": basis,
        "split": usable,
    }


def naive_row(
    phi: np.ndarray, label: int, classes: int, split: Sequence[float]
) -> np.ndarray:
    """v of one record, from its definition."""
    a, b, m = (float(np.float32(part)) for part in split)
    row = np.zeros((classes, len(phi) + 1))
    if 0 <= label < classes:
        row[label] = [*(a * phi), b]
        second = [
            m * (1 if i == j else np.sqrt(2)) * (phi[i] * phi[j])
            for i in range(len(phi))
            for j in range(i, len(phi))
        ]
    else:
        second = [0.0] * (len(phi) * (len(phi) + 1) // 2)
    return np.concatenate([row.ravel(), second])


@pytest.mark.parametrize("split", SPLITS)
def test_a_row_has_the_norm_of_its_split_and_its_triangle_is_the_products(
    split: tuple[float, ...],
) -> None:
    rng = np.random.default_rng(1)
    phi = unit_rows(rng.normal(size=(20, 5)))
    rows = moment_rows(phi, np.array(split))
    assert np.allclose(np.linalg.norm(rows, axis=1), np.linalg.norm(split))
    a, b, m = split
    # an inner product of two rows of one class is a²t + b² + m²t²: the triangle stands
    # for the whole matrix
    t = phi @ phi.T
    assert np.allclose(rows @ rows.T, a**2 * t + b**2 + m**2 * t**2)


@pytest.mark.parametrize("split", SPLITS)
def test_the_sensitivity_is_the_largest_distance_of_two_records_and_is_reached(
    split: tuple[float, ...],
) -> None:
    """Brute force over the angle of two directions, classes alike or not, records
    without direction or class.
    """
    one, none = np.array([1.0, 0.0]), np.zeros(2)
    angles = np.linspace(0, np.pi, 4001)
    others = [*np.stack([np.cos(angles), np.sin(angles)], axis=1), none]
    cases = [naive_row(phi, label, 2, split) for phi in others for label in (0, 1)] + [
        np.zeros(9)
    ]
    start = [naive_row(one, 0, 2, split), naive_row(none, 0, 2, split), np.zeros(9)]
    far = max(float(np.linalg.norm(row - first)) for row in cases for first in start)
    claimed = sensitivity(np.array(split, np.float32).astype(np.float64), "replace-one")
    assert far <= claimed * (1 + 1e-12)
    assert far > 0.999 * claimed
    alone = max(float(np.linalg.norm(row)) for row in cases)
    assert alone == pytest.approx(sensitivity(np.array(split), "add-remove"), rel=1e-6)


@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_integers_are_those_of_a_naive_sum(adjacency: str) -> None:
    rng, classes = np.random.default_rng(2), 3
    public, scorer = public_of(6, 4, (0.8, 0.1, 0.59)), ClassMomentsScorer(classes, 4)
    features, labels = (
        rng.normal(size=(50, 6)).astype(np.float32),
        rng.integers(-1, 5, 50),
    )
    features[3] = np.nan
    features[4] = public["mean"]
    shares = rng.choice([1.0, 0.5, 1 / 3, 1 / 7, 0.0], 50)
    found = summarise(scorer, public, features, labels, adjacency, 20, shares)
    phi = embed_per_record(public, features)
    assert not phi[[3, 4]].any()
    expected = np.zeros(scorer.size(public), np.int64)
    for row, label, share in zip(phi, labels, shares, strict=True):
        steps = np.trunc(
            (ROW_STEPS - 1) * naive_row(row, label, classes, public["split"])
        )
        expected += steps.astype(np.int64) * int(share * SHARE_STEPS)
    assert np.array_equal(found.values, expected)
    assert (found.step, found.records) == (1 / GRID, 20)
    assert found.values.shape == (3 * 5 + 10,)


def test_what_a_record_adds_is_its_own_to_the_bit_whatever_its_company(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rng = np.random.default_rng(3)
    public, scorer = public_of(9, 7, (0.8, 0.1, 0.59)), ClassMomentsScorer(4, 7)
    features, labels = (
        rng.normal(size=(101, 9)).astype(np.float32),
        rng.integers(0, 4, 101),
    )
    features[::10] *= 1e20

    def values(rows: slice | list[int]) -> np.ndarray:
        part = features[rows]
        return summarise(
            scorer, public, part, labels[rows], "replace-one", 101, np.ones(len(part))
        ).values

    alone = sum(values([index]) for index in range(101))
    assert np.array_equal(values(slice(None)), alone)
    # five records at a time
    monkeypatch.setattr("fedaux.client.summaries.moments._ENTRIES", 200)
    assert np.array_equal(values(slice(None)), alone)
    # any clients: the same total
    assert np.array_equal(values(slice(0, 60)) + values(slice(60, 101)), alone)


@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize("split", SPLITS[:4])
def test_no_pair_of_records_moves_the_integers_further_than_claimed(
    split: tuple[float, ...], adjacency: str
) -> None:
    """Random pairs, and pairs at the worst angle; the bound is nearly reached."""
    rng, classes, k = np.random.default_rng(4), 2, 3
    public, scorer = public_of(k, k, split), ClassMomentsScorer(classes, k)
    public["basis"], public["mean"] = (
        np.eye(k, dtype=np.float32),
        np.zeros(k, np.float32),
    )
    a, _, m = split
    worst = -1.0 if m == 0 else max(-1.0, -(a**2) / (2 * m**2))
    far, claimed = 0.0, scorer.bound(public, adjacency, 1).sensitivity
    for trial in range(1500):
        one = rng.normal(size=k) * 10 ** rng.uniform(-5, 5)
        other = rng.normal(size=k)
        if trial % 2:  # at the worst angle to it
            one /= np.linalg.norm(one)
            other -= one * (one @ other)
            other = worst * one + np.sqrt(1 - worst**2) * other / np.linalg.norm(other)
        labels = rng.integers(-1, 2, 2) if trial % 3 else np.zeros(2, np.int64)
        first, second = (
            summarise(
                scorer,
                public,
                row[None].astype(np.float32),
                labels[[i]],
                adjacency,
                1,
                np.ones(1),
            ).values
            for i, row in enumerate((one, other))
        )
        if adjacency == "add-remove":
            second = np.zeros_like(first)
        far = max(far, float(np.linalg.norm((first - second).astype(np.float64))))
    assert far <= claimed
    assert far > 0.99 * claimed


def test_no_person_moves_the_integers_further_than_one_record_could() -> None:
    rng, split = np.random.default_rng(5), (0.6, 0.1, 0.79)
    public, scorer = public_of(4, 4, split), ClassMomentsScorer(3, 4)
    claimed = scorer.bound(public, "replace-one", 3).sensitivity
    far = 0.0
    for cap, trial in itertools.product((1, 3, 10, 1000), range(60)):
        crowd = [rng.normal(size=(2, 4)) for _ in range(2)]
        many = int(rng.integers(1, cap + 1))
        one = (
            rng.normal(size=(many, 4))
            if trial % 2
            else np.tile(rng.normal(size=4), (many, 1))
        )
        same = trial % 3 == 0  # as far away as can be, in the same class
        other = (
            2 * public["mean"] - one
            if same
            else rng.normal(size=(int(rng.integers(1, cap + 1)), 4))
        )
        summed = []
        for person in (one, other):
            rows = np.concatenate([*crowd, person]).astype(np.float32)
            whose = np.repeat(np.arange(3), [2, 2, len(person)])
            labels = (
                np.zeros(len(rows), np.int64)
                if same
                else np.repeat([0, 1, int(person is one)], [2, 2, len(person)])
            )
            shares = Units.of(Records(rows, labels, person=whose), "person", cap).shares
            summed.append(
                summarise(scorer, public, rows, labels, "replace-one", 3, shares).values
            )
        far = max(
            far, float(np.linalg.norm((summed[0] - summed[1]).astype(np.float64)))
        )
    assert far <= claimed
    assert far > 0.9 * claimed


@pytest.mark.parametrize(
    "split",
    [
        (0.8, 0.6, 0.8),
        (-0.6, 0.0, 0.8),
        (np.nan, 0.0, 0.8),
        (np.inf, 0, 0),
        (0.0, 0.0, 0.0),
        (1.0, 0.3, 0.0),
    ],
)
def test_a_split_that_would_break_the_proof_is_refused_before_a_record_is_read(
    split: tuple[float, ...],
) -> None:
    public, scorer = public_of(4, 3, split), ClassMomentsScorer(2, 3)
    with pytest.raises(OrderError, match="split"):
        # which a client asks for before it enters anything in its account
        scorer.size(public)
    with pytest.raises(OrderError, match="split"):
        summarise(
            scorer,
            public,
            np.ones((1, 4), np.float32),
            np.zeros(1, np.int64),
            "replace-one",
            1,
            np.ones(1),
        )
    public["split"] = np.ones((1, 3), np.float32)
    with pytest.raises(OrderError, match="'split' has shape"):
        scorer.size(public)


def test_a_map_that_would_fill_the_memory_is_refused() -> None:
    scorer = ClassMomentsScorer(2)
    assert scorer.size(public_of(4, 512, (0.6, 0.0, 0.8))) == 2 * 513 + 512 * 513 // 2
    with pytest.raises(OrderError, match="at most 512"):
        scorer.size(public_of(4, 513, (0.6, 0.0, 0.8)))
    with pytest.raises(ConfigError, match="at most 512"):
        PrivacyConfig(scorer="class-moments", embedding_dim=513)


def test_a_bound_on_the_norm_is_reached_where_all_records_are_alike() -> None:
    public, scorer = public_of(4, 3, (0.6, 0.0, 0.8)), ClassMomentsScorer(2, 3)
    rows = np.tile(np.random.default_rng(6).normal(size=4).astype(np.float32), (50, 1))
    found = summarise(
        scorer, public, rows, np.ones(50, np.int64), "replace-one", 50, np.ones(50)
    )
    assert (
        0.999
        < np.linalg.norm(found.values) / scorer.bound(public, "replace-one", 50).norm
        <= 1.0
    )


CENTRES = np.random.default_rng(9).normal(size=(4, 12))
SHAPE = np.random.default_rng(10).normal(size=(12, 12)) * np.linspace(2.0, 0.3, 12)


def rows_of(rng: np.random.Generator, labels: np.ndarray) -> np.ndarray:
    """Classes that differ where records of one class vary little: the covariance within
    classes decides.
    """
    return (CENTRES[labels] * 0.8 + rng.normal(size=(len(labels), 12)) @ SHAPE).astype(
        np.float32
    )


class Federation:
    """Public rows of another covariance, and clients' releases at some budget."""

    def __init__(
        self,
        epsilon: float,
        clients: int = 1,
        records: int = 6000,
        split: Split = (0.7, 0.14, 0.7),
    ) -> None:
        rng = np.random.default_rng(11)
        self.scorer = ClassMomentsScorer(4, 12)
        negatives = (rng.normal(size=(600, 12)) * 2).astype(np.float32)
        self.public = {**self.scorer.publish(negatives), "split": public_split(*split)}
        self.reference = Reference(self.scorer.embed(self.public, negatives))
        labels = rng.integers(0, 4, records)
        self.features, self.labels = rows_of(rng, labels), labels
        self.test_labels = rng.integers(0, 4, 3000)
        self.test = rows_of(rng, self.test_labels)
        privacy = PrivacyConfig(scorer="class-moments", epsilon=epsilon, unsafe_seed=3)
        self.releases = []
        for index, part in enumerate(np.array_split(np.arange(records), clients)):
            ones = np.ones(len(part))
            made = summarise(
                self.scorer,
                self.public,
                self.features[part],
                labels[part],
                "replace-one",
                len(part),
                ones,
            )
            self.releases.append(release(made, f"client {index}", privacy))

    def logits(self, head: HeadArrays) -> np.ndarray:
        return np.asarray(self.test @ head[0].T + head[1])

    def accuracy(self, kind: str = "discriminant") -> float:
        head = self.scorer.head(self.public, self.reference, self.releases, kind)
        return float(np.mean(self.logits(head).argmax(axis=1) == self.test_labels))


def test_moments_of_releases_are_those_of_the_records() -> None:
    there = Federation(1000.0, clients=3)
    found = Moments.of(there.public, 4, there.releases)
    phi = there.scorer.embed(there.public, there.features)
    means = np.stack([phi[there.labels == c].mean(axis=0) for c in range(4)])
    assert np.allclose(found.pooled.means, means, atol=2e-3)
    assert np.allclose(found.pooled.records, np.bincount(there.labels), atol=2)
    assert np.allclose(found.second, phi.T @ phi / len(phi), atol=2e-3)
    within = (phi - means[there.labels]).T @ (phi - means[there.labels]) / len(phi)
    assert np.allclose(found.within(), within, atol=4e-3)


def test_the_stated_noise_is_that_of_the_second_moments() -> None:
    there, without = Federation(0.5, clients=4), Federation(1000.0, clients=4)
    noisy, clean = (Moments.of(one.public, 4, one.releases) for one in (there, without))
    error = noisy.second - clean.second
    off = error[np.triu_indices(12, 1)]
    assert np.array_equal(error, error.T)
    assert np.std(off) == pytest.approx(noisy.noise / np.sqrt(2), rel=0.3)
    assert np.std(np.diag(error)) == pytest.approx(noisy.noise, rel=0.6)


def test_without_second_moments_it_is_the_class_embedding() -> None:
    there = Federation(1000.0, clients=3, split=PLAIN_SPLITS[0])
    assert there.scorer.size(there.public) == 4 * 13
    plain, privacy = (
        ClassEmbeddingScorer(4, 12),
        PrivacyConfig(epsilon=1000.0, unsafe_seed=3),
    )
    parts = np.array_split(np.arange(6000), 3)
    rows = [
        (
            there.public,
            there.features[part],
            there.labels[part],
            "replace-one",
            2000,
            np.ones(2000),
        )
        for part in parts
    ]
    sent = [
        release(summarise(plain, *own), f"client {index}", privacy)
        for index, own in enumerate(rows)
    ]
    ours, theirs = (
        there.scorer.pool(there.public, there.releases),
        plain.pool(there.public, sent),
    )
    assert np.allclose(ours.means, theirs.means, atol=1e-3)
    # the same noise, not only at this budget
    assert np.allclose(ours.sigma, theirs.sigma, rtol=1e-3)
    heads = [
        one.head(there.public, there.reference, own)
        for one, own in ((there.scorer, there.releases), (plain, sent))
    ]
    agree = there.logits(heads[0]).argmax(axis=1) == there.logits(heads[1]).argmax(
        axis=1
    )
    assert agree.mean() > 0.99


@pytest.mark.parametrize(
    ("epsilon", "records", "moments"),
    [(10.0, 100_000, True), (0.3, 1000, False)],
    ids=["low noise", "high noise"],
)
def test_second_moments_are_sent_where_noise_is_low(
    epsilon: float, records: int, moments: bool
) -> None:
    rng = np.random.default_rng(20)
    modes = rng.normal(size=(40, 30)) * np.linspace(3.0, 0.5, 30)
    negatives = modes[rng.integers(0, 40, 3000)] + rng.normal(size=(3000, 30))
    _, (_, _, m) = choose_split(negatives, 4, PublicFacts(epsilon, records=records))
    assert (m > 0) is moments


def test_counts_of_small_clients_of_one_class_stand_out_of_their_noise() -> None:
    rng = np.random.default_rng(21)
    modes = rng.normal(size=(40, 30)) * np.linspace(3.0, 0.5, 30)
    negatives = modes[rng.integers(0, 40, 3000)] + rng.normal(size=(3000, 30))
    facts = PublicFacts(1.0, records=700, releases=10)
    _, split = choose_split(negatives, 10, facts)
    noise = continuous_multiplier(1.0, facts.delta) * sensitivity(
        np.array(split), "replace-one"
    )
    assert 3 * noise / split[1] < 70


def test_many_small_clients_near_chance_send_the_class_embedding(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rng = np.random.default_rng(21)
    modes = rng.normal(size=(40, 30)) * np.linspace(3.0, 0.5, 30)
    negatives = modes[rng.integers(0, 40, 3000)] + rng.normal(size=(3000, 30))
    facts = PublicFacts(0.3, records=1000, releases=200)
    assert choose_split(negatives, 10, facts) == (30, PLAIN_SPLITS[0])
    assert choose_split(negatives, 10, facts, 40) == (40, PLAIN_SPLITS[0])
    monkeypatch.setattr(moments_plan, "NEAR_CHANCE", 0.0)
    _, (_, _, m) = choose_split(negatives, 10, facts)
    assert m > 0


@pytest.mark.parametrize("split", [(0.7, 0.14, 0.7), (0.7, 0.7, 0.0)])
def test_weights_are_other_shares_of_the_classes(split: Split) -> None:
    """The oracle is the discriminant of the records whose priors they are."""
    there = Federation(1e6, split=split)
    weights = np.array([1.0, 4.0, 1.0, 0.5])
    head = there.scorer.head(
        there.public, there.reference, there.releases, weights=weights
    )
    counts = np.bincount(there.labels)
    phi = there.scorer.embed(there.public, there.features)
    priors = counts * weights / (counts @ weights)
    central = LinearDiscriminantAnalysis(priors=priors).fit(phi, there.labels)
    usual = LinearDiscriminantAnalysis().fit(phi, there.labels)
    moved = central.decision_function(phi) - usual.decision_function(phi)
    expected = np.diff(moved, axis=1).mean(axis=0)
    plain = there.scorer.head(there.public, there.reference, there.releases)
    assert np.array_equal(plain[0], head[0])
    shift = np.diff(head[1] - plain[1])
    assert shift == pytest.approx(expected, abs=0.3)
    assert shift == pytest.approx(np.diff(np.log(weights)), rel=0.1)
    balanced = there.scorer.balanced(there.public, there.releases)
    assert balanced == pytest.approx(6000 / 4 / counts, rel=0.01)


def test_a_class_that_noise_hides_is_not_made_heavy() -> None:
    assert balanced_weights(np.array([30.0, 0.0, 10.0])).tolist() == [
        pytest.approx(20 / 30),
        1.0,
        2.0,
    ]


@pytest.mark.parametrize("kind", ["discriminant", "ridge"])
def test_heads_are_the_discriminant_of_the_records_and_beat_the_public_covariance(
    kind: str,
) -> None:
    there = Federation(1000.0)
    phi, test = (
        there.scorer.embed(there.public, rows) for rows in (there.features, there.test)
    )
    central = (
        LinearDiscriminantAnalysis()
        if kind == "discriminant"
        else RidgeClassifier(alpha=1e-6)
    )
    best = central.fit(phi, there.labels).score(test, there.test_labels)
    weights, bias = HEADS[kind](
        Moments.of(there.public, 4, there.releases), there.reference
    )
    assert (
        np.mean((test @ weights.T + bias).argmax(axis=1) == there.test_labels)
        > best - 0.02
    )
    plain = ClassEmbeddingScorer(4, 12)
    made = summarise(
        plain,
        there.public,
        there.features,
        there.labels,
        "replace-one",
        6000,
        np.ones(6000),
    )
    sent = [release(made, "sum", PrivacyConfig(epsilon=1000.0, unsafe_seed=1))]
    head = plain.head(there.public, there.reference, sent)
    assert (
        there.accuracy(kind)
        > np.mean(there.logits(head).argmax(axis=1) == there.test_labels) + 0.05
    )


def test_less_budget_costs_accuracy_and_a_drowned_head_is_not_sure() -> None:
    clear, low = Federation(3.0), Federation(0.002)
    assert clear.accuracy() > 0.9 * Federation(1000.0).accuracy()

    def log_loss(there: Federation) -> float:
        logits = there.logits(
            there.scorer.head(there.public, there.reference, there.releases)
        )
        return float(
            -log_softmax(logits, axis=1)[np.arange(3000), there.test_labels].mean()
        )

    assert log_loss(clear) < np.log(4)
    assert log_loss(low) < np.log(4) + 0.5  # hardly worse than no head at all


def test_odds_of_teachers_prefer_the_clients_of_a_class_and_travel_as_arrays() -> None:
    there = Federation(3.0)
    privacy = PrivacyConfig(scorer="class-moments", epsilon=10.0, unsafe_seed=0)
    sent = []
    for c in range(4):
        own = np.flatnonzero(there.labels == c)
        ones = np.ones(len(own))
        made = summarise(
            there.scorer,
            there.public,
            there.features[own],
            there.labels[own],
            "replace-one",
            len(own),
            ones,
        )
        sent.append(release(made, f"client {c}", privacy))
    fitted = there.scorer.fit(there.public, there.reference, sent)
    phi = there.scorer.embed(there.public, there.test)
    assert fitted.transform is not None
    rows = fitted.transform(phi)
    odds = np.stack([fitted.log_odds[f"client {c}"](rows) for c in range(4)])
    assert np.mean(odds.argmax(axis=0) == there.test_labels) > 0.35  # chance: 0.25
    again = there.scorer.from_arrays(
        *there.scorer.fit_arrays(there.public, there.reference, sent)
    )
    assert again.transform is not None
    assert np.array_equal(again.log_odds["client 1"](again.transform(phi)), odds[1])


def test_what_is_published_is_chosen_on_public_data_and_facts_and_is_usable() -> None:
    rng = np.random.default_rng(12)
    modes = rng.normal(size=(60, 40)) * np.linspace(3, 0.5, 40)
    negatives = (modes[rng.integers(0, 60, 2000)] + rng.normal(size=(2000, 40))).astype(
        np.float32
    )

    def published(epsilon: float, records: int) -> Arrays:
        return ClassMomentsScorer(
            3, facts=PublicFacts(epsilon, records=records)
        ).publish(negatives)

    clear, again, noisy = (
        published(10.0, 100_000),
        published(10.0, 100_000),
        published(0.1, 1000),
    )
    assert all(np.array_equal(clear[name], again[name]) for name in clear)
    # noise leaves room for fewer directions
    assert clear["basis"].shape[1] > noisy["basis"].shape[1]
    for public in (clear, noisy):
        assert set(public) == {"mean", "basis", "split"}
        ClassMomentsScorer(3).size(public)  # the split is one that a client accepts
        check = ArrayGroup(PUBLIC_ARRAYS["class-moments"], needed=True)
        assert check.problem(public) == ""
    assert ClassMomentsScorer(3, 7).publish(negatives)["basis"].shape == (40, 7)
    # few public rows are enough to publish
    assert ClassMomentsScorer(4).publish(negatives[:9])["basis"].shape[1] <= 8


def test_a_dimension_of_zero_is_for_the_scorer_that_chooses_one() -> None:
    chosen = PrivacyConfig(
        scorer="class-moments", embedding_dim=0, epsilon=2.0, expected_records=500
    )
    assert make_scorer(chosen, 3) == ClassMomentsScorer(
        3, 0, facts=PublicFacts(2.0, records=500)
    )
    assert make_scorer(PrivacyConfig(embedding_dim=0), 3) == ClassEmbeddingScorer(3, 32)
    with pytest.raises(ConfigError, match="at most 1024"):
        PrivacyConfig(
            scorer="class-moments", unit="person", max_records_per_person=1025
        )


def test_of_dimensions_that_are_level_the_widest_is_taken() -> None:
    one, other = (0.7, 0.1, 0.7), (0.8, 0.1, 0.6)
    judged = {
        (64, one): 0.500,
        (128, one): 0.489,
        (128, other): 0.492,
        (256, one): 0.480,
    }
    assert widest_level(judged) == (128, other)
    assert widest_level({**judged, (64, other): 0.51}) == (64, other)
