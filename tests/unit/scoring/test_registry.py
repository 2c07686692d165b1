"""What all scorers share: moments of public rows, arrays of the right shape, names."""

from pathlib import Path

import numpy as np
import pytest

from fedaux.config.schema import Config, ConfigError
from fedaux.config.sections import PrivacyConfig
from fedaux.scoring.base import Reference, bound_function, check_shapes
from fedaux.scoring.embedding import ClassEmbeddingScorer
from fedaux.scoring.logistic import LogisticScorer
from fedaux.scoring.registry import make_scorer


@pytest.mark.parametrize("width", [1, 4])
def test_moments_of_a_reference_are_those_of_its_rows(width: int) -> None:
    rows = np.random.default_rng(0).normal(size=(30, width))
    reference = Reference(rows)
    centred = rows - sum(rows) / 30
    assert np.allclose(reference.mean, sum(rows) / 30)
    assert np.allclose(
        reference.covariance, sum(np.outer(row, row) for row in centred) / 29
    )
    assert reference.covariance.shape == (width, width)


def test_a_public_array_of_another_shape_is_refused() -> None:
    check_shapes({"mean": np.zeros(3)}, mean=(3,))
    with pytest.raises(ValueError, match=r"'mean' has shape \(1, 3\), not \(3,\)"):
        check_shapes({"mean": np.zeros((1, 3))}, mean=(3,))


def test_a_scorer_without_a_bound_is_not_held_to_one() -> None:
    class Own:
        name = "own"

    assert bound_function(ClassEmbeddingScorer(3)) is not None
    assert bound_function(LogisticScorer(0.1)) is not None
    assert bound_function(Own()) is None  # type: ignore[arg-type]


MINE = """
from fedaux.scoring.embedding import (ClassEmbeddingScorer)

def scorer(privacy, classes):
    return ClassEmbeddingScorer(
        classes, privacy.embedding_dim, name="my_scorers:scorer"
    )
"""


def test_scorers_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert make_scorer(PrivacyConfig(), 7) == ClassEmbeddingScorer(7, 32)
    assert make_scorer(
        PrivacyConfig(scorer="logistic", ridge=0.5), 7
    ) == LogisticScorer(0.5)
    (tmp_path / "my_scorers.py").write_text(MINE)
    monkeypatch.syspath_prepend(tmp_path)
    mine = make_scorer(PrivacyConfig(scorer="my_scorers:scorer", embedding_dim=7), 3)
    assert (mine.name, mine.embedding_dim) == ("my_scorers:scorer", 7)  # type: ignore[attr-defined]


def test_only_scorers_that_exist_are_allowed() -> None:
    with pytest.raises(ConfigError) as caught:
        Config.from_dict({}, ["privacy.scorer=none"])
    names = str(caught.value).partition("Choose from ")[2].rstrip(".").split(", ")
    assert names.pop() == "module:function"
    for name in names:
        assert make_scorer(PrivacyConfig(scorer=name), 3).name == name
