"""The matrix product gives every client the weights that its own log-odds give it."""

from dataclasses import replace

import numpy as np
import pytest

from fedaux.config.distillation import TeachersConfig
from fedaux.scoring import odds
from fedaux.scoring.base import MIN_WEIGHT, Fitted, teacher_weights
from fedaux.scoring.class_embedding import ClassEmbeddingScorer
from fedaux.scoring.odds import Scored, blocks
from fedaux.scoring.teacher_weights import TeacherWeights


def mixed(spread: float, seed: int = 0) -> tuple[Fitted, np.ndarray]:
    """Seven clients that lack most of the classes; class 3 is nobody's. Log-ratios reach far beyond e^±700."""
    rng = np.random.default_rng(seed)
    shares = rng.dirichlet(np.full(5, 0.3), 7) * (rng.random((7, 5)) < 0.5)
    shares[np.arange(7), rng.integers(3, size=7)] += 1e-3
    shares[:, 3] = 0.0
    own = {f"{seed}{i}": {"shares": row, "offset": np.log([0.05 * (i + 1)])} for i, row in enumerate(shares)}
    shared = {"means": np.zeros((5, 2)), "sigma": np.ones(5), "records": np.ones(5)}
    shared |= {"centre": np.zeros(2), "covariance": np.eye(2)}
    fitted = ClassEmbeddingScorer(5).from_arrays(shared, own)
    return fitted, (spread * rng.normal(size=(90, 5))).astype(np.float32)


@pytest.mark.parametrize("share", [1.0, 0.3])
@pytest.mark.parametrize("kind", ["odds", "certainty"])
@pytest.mark.parametrize("spread", [1.0, 30.0, 800.0])
def test_the_matrix_product_gives_the_weights_of_every_client_by_itself(spread: float, kind: str, share: float) -> None:
    """Of two prototypes, against `log_odds` of one client at a time: logsumexp over the classes it has."""
    fitted, rows = {}, {}
    for seed in (0, 1):
        fitted[str(seed)], rows[str(seed)] = mixed(spread, seed)
    plain = {label: replace(each, mixtures=None) for label, each in fitted.items()}
    asked = [client for each in fitted.values() for client in list(each.log_odds)[:5]]  # the others are not in it
    fast, slow = (
        TeacherWeights(TeachersConfig(kind, share), each, rows, lambda client: client[0], asked)
        for each in (fitted, plain)
    )
    expected = np.stack([slow.of(client) for client in asked])
    assert np.allclose(np.stack([fast.of(client) for client in asked]), expected, rtol=2e-6, atol=0)
    assert (expected > 2 * MIN_WEIGHT).any(axis=1).sum() > 3
    for client, weights in zip(asked, expected, strict=True):
        assert fast.share(weights) == pytest.approx(slow.share(weights), rel=1e-6)
        if share == 1:
            fast.check(client, weights)


def test_blocks_of_examples_change_no_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    fitted, rows = mixed(5.0)
    peak = np.max([function(rows) for function in fitted.log_odds.values()], axis=0)
    whole = [Scored.of(fitted, rows, peak, "odds").weights(client) for client in fitted.log_odds]
    monkeypatch.setattr(odds, "ENTRIES", 37)
    again = [Scored.of(fitted, rows, peak, "odds").weights(client) for client in fitted.log_odds]
    assert np.stack(whole).tobytes() == np.stack(again).tobytes()
    for weights, log_odds in zip(whole, fitted.log_odds.values(), strict=True):
        assert np.allclose(weights, teacher_weights(log_odds(rows), peak, "odds"), rtol=2e-6)


def test_blocks_cover_everything_once() -> None:
    assert [range(10)[block] for block in blocks(10, 4)] == [range(4), range(4, 8), range(8, 10)]
    assert len(list(blocks(3, 0))) == 3
