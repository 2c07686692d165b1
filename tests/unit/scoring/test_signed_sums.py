"""One signed sum for two classes: integers, sensitivity, the head, and when it is
chosen.
"""

import math
from dataclasses import replace

import numpy as np
import pytest
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.metrics import roc_auc_score

from fedaux.client.summaries import summarise
from fedaux.client.summaries.embedding import embed_per_record
from fedaux.config.schema import Config
from fedaux.config.sections import DataConfig, PrivacyConfig
from fedaux.core.arrays import Arrays
from fedaux.core.failures import OrderError
from fedaux.data.records import Records
from fedaux.messages import Release
from fedaux.messages.orders import PUBLIC_ARRAYS
from fedaux.messages.types import ArrayGroup
from fedaux.privacy.mechanism import GRID, release
from fedaux.scoring.base import Reference
from fedaux.scoring.class_moments import ROW_STEPS, SHARE_STEPS, ClassMomentsScorer
from fedaux.scoring.moments_plan import PublicFacts
from fedaux.scoring.pooled import pooled_release
from fedaux.scoring.registry import make_scorer
from fedaux.scoring.second_moments import public_split, sensitivity
from fedaux.scoring.signed_sums import SIGNED_SPLIT, SignedSum, choose_signed
from fedaux.server.server import Server

FEW = PublicFacts(1.0, records=500, signed=True)


def public_of(width: int, k: int) -> Arrays:
    rng = np.random.default_rng(0)
    return {
        "mean": rng.normal(size=width).astype(np.float32),
        "basis": rng.normal(size=(width, k)).astype(np.float32),
        "split": public_split(*SIGNED_SPLIT),
    }


@pytest.mark.parametrize("adjacency", ["replace-one", "add-remove"])
def test_integers_are_those_of_a_naive_sum(adjacency: str) -> None:
    rng = np.random.default_rng(1)
    public, scorer = public_of(6, 4), ClassMomentsScorer(2, 4)
    features = rng.normal(size=(40, 6)).astype(np.float32)
    features[3] = np.nan
    labels = rng.integers(-1, 4, 40)
    shares = rng.choice([1.0, 0.5, 1 / 3, 0.0], 40)
    found = summarise(scorer, public, features, labels, adjacency, 9, shares)
    a, b = (float(share) for share in public["split"])
    expected = [0] * 9
    phi = embed_per_record(public, features)
    for row, label, share in zip(phi, labels, shares, strict=True):
        if label not in (0, 1):
            continue
        sign = 1 if label == 1 else -1
        for place, value in enumerate([*(a * row), b, *(b * row)]):
            steps = math.trunc((ROW_STEPS - 1) * value) * int(share * SHARE_STEPS)
            expected[place] += sign * steps if place <= 4 else steps
    assert found.values.tolist() == expected
    assert (found.step, found.records) == (1 / GRID, 9)


@pytest.mark.parametrize("split", [SIGNED_SPLIT, (0.6, 0.5), (0.3, 0.6)])
def test_the_sensitivity_is_the_largest_distance_of_two_records_and_is_reached(
    split: tuple[float, float],
) -> None:
    a, b = split
    angles = np.linspace(0, np.pi, 2001)
    directions = [*np.stack([np.cos(angles), np.sin(angles)], axis=1), np.zeros(2)]
    rows = [
        np.array([*(sign * a * phi), sign * b, *(b * phi)])
        for phi in directions
        for sign in (1, -1)
    ]
    rows.append(np.zeros(5))
    far = max(float(np.linalg.norm(row - rows[0])) for row in rows)
    alone = max(float(np.linalg.norm(row)) for row in rows)
    assert far == pytest.approx(sensitivity(np.array(split), "replace-one"))
    assert alone == pytest.approx(sensitivity(np.array(split), "add-remove"))


def test_only_two_classes_have_a_sign_and_the_split_is_checked() -> None:
    public = public_of(4, 3)
    kinds = ArrayGroup(PUBLIC_ARRAYS["class-moments"], needed=True)
    assert kinds.problem(public) == ""
    assert ClassMomentsScorer(2).size(public) == 7
    with pytest.raises(OrderError, match="for two classes, not 3"):
        ClassMomentsScorer(3).size(public)
    public["split"] = np.array([0.7, 0.7], np.float32)  # a² + 2b² above 1
    with pytest.raises(OrderError, match="split"):
        ClassMomentsScorer(2).size(public)
    public["split"] = np.ones(1, np.float32)
    with pytest.raises(OrderError, match="'split' has shape"):
        ClassMomentsScorer(2).size(public)


class Registry:
    """Two classes that differ along the directions in which all rows vary most."""

    def __init__(self, records: int = 4000) -> None:
        rng = np.random.default_rng(2)
        scale = np.linspace(3.0, 0.5, 10)
        gap = np.array([1.5, -1.5, 1.0, *np.zeros(7)])

        def draw(count: int) -> tuple[np.ndarray, np.ndarray]:
            labels = (rng.uniform(size=count) < 0.6).astype(np.int64)
            rows = rng.normal(size=(count, 10)) * scale + (labels[:, None] - 0.6) * gap
            return rows.astype(np.float32), labels

        self.negatives, _ = draw(500)
        self.features, self.labels = draw(records)
        self.test, self.answers = draw(3000)
        self.scorer = ClassMomentsScorer(2, 8, facts=FEW)
        self.public = self.scorer.publish(self.negatives)
        self.reference = Reference(self.scorer.embed(self.public, self.negatives))

    def releases(self, epsilon: float, clients: int = 1) -> list[Release]:
        privacy = PrivacyConfig("class-moments", epsilon, unsafe_seed=3)
        made = []
        for index, part in enumerate(
            np.array_split(np.arange(len(self.labels)), clients)
        ):
            summary = summarise(
                self.scorer,
                self.public,
                self.features[part],
                self.labels[part],
                "replace-one",
                len(part),
                np.ones(len(part)),
            )
            made.append(release(summary, f"client {index}", privacy))
        return made

    def logits(self, releases: list[Release]) -> np.ndarray:
        weights, bias = self.scorer.head(self.public, self.reference, releases)
        logits = self.test @ weights.T + bias
        return np.asarray(logits[:, 1] - logits[:, 0])


def test_without_noise_the_head_is_the_discriminant_of_the_records() -> None:
    there = Registry()
    logits = there.logits(there.releases(1000.0, clients=3))
    central = LinearDiscriminantAnalysis().fit(there.features, there.labels)
    best = central.score(there.test, there.answers)
    assert np.mean((logits > 0) == there.answers) > best - 0.01
    assert np.corrcoef(logits, central.decision_function(there.test))[0, 1] > 0.98
    probability = 1 / (1 + np.exp(-logits))
    for low in (
        0.2,
        0.4,
        0.6,
    ):  # in the scale of logits: right about as often as it says
        chosen = (probability >= low) & (probability < low + 0.2)
        assert there.answers[chosen].mean() == pytest.approx(low + 0.1, abs=0.12)


@pytest.mark.parametrize("weights", [(1.0, 1.0), (1.0, 4.0), (0.6 / 0.4, 1.0)])
def test_weights_are_other_shares_of_the_classes(weights: tuple[float, float]) -> None:
    """The oracle is the discriminant whose priors they are. Classes of unequal size are
    balanced by the noisy counts.
    """
    there = Registry()
    rare = np.flatnonzero((there.labels == 0) | (np.arange(4000) % 3 == 0))
    there.features, there.labels = there.features[rare], there.labels[rare]
    releases = there.releases(1000.0)
    counts = np.bincount(there.labels)
    facts = replace(FEW, records=len(rare))
    there.scorer = replace(there.scorer, facts=facts)
    balanced = there.scorer.balanced(there.public, releases)
    assert balanced == pytest.approx(len(rare) / 2 / counts, rel=0.01)
    for given in (np.array(weights), balanced):
        head = there.scorer.head(there.public, there.reference, releases, weights=given)
        logits = np.diff(there.test @ head[0].T + head[1], axis=1)[:, 0]
        priors = counts * given / (counts @ given)
        central = LinearDiscriminantAnalysis(priors=priors)
        central.fit(there.features, there.labels)
        expected = central.predict(there.test)
        assert np.mean((logits > 0) == expected) > 0.92
        assert np.mean(logits > 0) == pytest.approx(expected.mean(), abs=0.06)


def test_public_rows_may_lie_elsewhere() -> None:
    """Rare cases, and public rows with another mean: the plain sum says where the
    records are.
    """
    there = Registry()
    there.negatives += np.linspace(1.0, -1.0, 10).astype(np.float32)
    kept = np.flatnonzero((there.labels == 0) | (np.arange(4000) % 8 == 0))
    there.features, there.labels = there.features[kept], there.labels[kept]
    there.public = there.scorer.publish(there.negatives)
    there.reference = Reference(there.scorer.embed(there.public, there.negatives))
    logits = there.logits(there.releases(20.0))
    central = LinearDiscriminantAnalysis().fit(there.features, there.labels)
    best = roc_auc_score(there.answers, central.decision_function(there.test))
    assert roc_auc_score(there.answers, logits) > best - 0.03


def test_noise_costs_accuracy_and_a_drowned_head_is_not_sure() -> None:
    there = Registry(500)
    clear, drowned = (there.logits(there.releases(e)) for e in (3.0, 0.001))
    assert roc_auc_score(there.answers, clear) > 0.7
    assert np.abs(drowned).std() < 0.1


def test_releases_say_what_the_classes_are() -> None:
    there = Registry()
    sent = there.releases(1000.0, clients=2)
    phi = there.scorer.embed(there.public, there.features)
    signs = 2 * there.labels - 1
    found = SignedSum.of(there.public, sent)
    assert np.allclose(found.mean, signs @ phi / 4000, atol=2e-3)
    assert found.balance == pytest.approx(signs.mean(), abs=2e-3)
    assert np.allclose(found.plain_mean, phi.mean(axis=0), atol=2e-3)
    values = [there.scorer.class_values(there.public, one) for one in sent]
    counts = sum(one.counts for one in values)
    assert np.allclose(counts, np.bincount(there.labels), atol=5)
    sums = sum(one.sums for one in values)
    assert np.allclose(sums[1], phi[there.labels == 1].sum(axis=0), atol=5)


def test_the_stated_noise_is_that_of_the_sum() -> None:
    there = Registry(500)
    clean = SignedSum.of(there.public, there.releases(1000.0, 20))
    noisy = SignedSum.of(there.public, there.releases(0.5, 20))
    assert np.std(noisy.mean - clean.mean) == pytest.approx(noisy.noise, rel=0.5)


def test_a_secure_sum_has_the_declared_number_of_records() -> None:
    there = Registry(500)
    privacy = PrivacyConfig("class-moments", 1000.0, unsafe_seed=3)
    parts = there.releases(1000.0, 4)
    total = np.sum([part.arrays["values"] for part in parts], axis=0)
    pooled = pooled_release(
        there.scorer, there.public, privacy, total, 2 * parts[0].scale, "all"
    )
    assert pooled.records == FEW.records
    together, each = there.logits([pooled]), there.logits(parts)
    assert np.allclose(together, each, rtol=0.02, atol=0.02)


@pytest.mark.parametrize(
    ("epsilon", "records", "signed"),
    [(0.3, 500, True), (3.0, 500, True), (0.02, 30_000, True), (3.0, 30_000, False)],
)
def test_a_signed_sum_is_for_few_records(
    epsilon: float, records: int, signed: bool
) -> None:
    rng = np.random.default_rng(3)
    negatives = rng.normal(size=(400, 40)) * np.linspace(3.0, 0.3, 40)
    facts = PublicFacts(epsilon, records=records, signed=True)
    k = choose_signed(negatives, facts)
    assert (k > 0) is signed
    split = ClassMomentsScorer(2, facts=facts).publish(negatives)["split"]
    assert (len(split) == 2) is signed


def test_more_noise_takes_fewer_directions() -> None:
    rng = np.random.default_rng(4)
    negatives = rng.normal(size=(400, 40)) * np.linspace(3.0, 0.3, 40)
    chosen = [choose_signed(negatives, replace(FEW, epsilon=e)) for e in (0.1, 0.3, 1)]
    assert chosen == sorted(chosen)
    assert chosen[0] < chosen[-1]
    assert choose_signed(negatives, FEW, embedding_dim=7) == 7


def test_it_is_chosen_only_where_a_head_is_all_and_the_size_is_declared() -> None:
    privacy = PrivacyConfig("class-moments", embedding_dim=0, expected_records=500)

    def signed(
        privacy: PrivacyConfig, classes: int = 2, heads_only: bool = True
    ) -> bool:
        scorer = make_scorer(privacy, classes, heads_only=heads_only)
        assert isinstance(scorer, ClassMomentsScorer)
        return scorer.facts.signed

    assert signed(privacy)
    assert not signed(privacy, classes=3)
    assert not signed(privacy, heads_only=False)
    assert not signed(replace(privacy, expected_records=0))


@pytest.mark.parametrize(
    ("method", "signed"), [("private-head", True), ("fedaux", False)]
)
def test_a_server_asks_for_it_where_nobody_is_weighed(
    method: str, signed: bool, tmp_path: object
) -> None:
    config = Config(
        method=method,
        prototypes=("linear",),
        data=DataConfig(clients=2),
        privacy=PrivacyConfig("class-moments", embedding_dim=0),
    )
    rows = Records(np.zeros((8, 3), np.float32), np.zeros(8, np.int64))
    server = Server.of(config, rows, rows, 2, ["a", "b"], tmp_path, records=500)  # type: ignore[arg-type]
    assert isinstance(server.scorer, ClassMomentsScorer)
    assert server.scorer.facts.signed is signed
