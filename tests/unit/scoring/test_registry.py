"""A scorer of one's own is named by the client's own settings; one without a bound runs in studies only."""

from pathlib import Path

import numpy as np
import pytest

from fedaux.config.schema import ConfigError, PrivacyConfig
from fedaux.core.messages import Account
from fedaux.privacy.ledger import Ledger
from fedaux.privacy.release import Summary, release
from fedaux.scoring.class_embedding import ClassEmbeddingScorer
from fedaux.scoring.logistic import LogisticScorer
from fedaux.scoring.mean_embedding import MeanEmbeddingScorer
from fedaux.scoring.registry import make_scorer

MINE = """
from fedaux.scoring.mean_embedding import MeanEmbeddingScorer

def scorer(privacy, classes):
    return MeanEmbeddingScorer(privacy.embedding_dim, privacy.ratio, name="my_scorers:scorer")
"""


def test_scorers_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert make_scorer(PrivacyConfig(), 7) == ClassEmbeddingScorer(7, 32)
    assert make_scorer(PrivacyConfig(scorer="mean-embedding"), 7) == MeanEmbeddingScorer(32)
    assert make_scorer(PrivacyConfig(scorer="logistic", ridge=0.5), 7) == LogisticScorer(0.5)
    (tmp_path / "my_scorers.py").write_text(MINE)
    monkeypatch.syspath_prepend(tmp_path)
    mine = make_scorer(PrivacyConfig(scorer="my_scorers:scorer", embedding_dim=7), 3)
    assert (mine.name, mine.embedding_dim) == ("my_scorers:scorer", 7)  # type: ignore[attr-defined]
    with pytest.raises(ConfigError, match="mean-embedding, logistic, module:function"):
        PrivacyConfig(scorer="mean")


def test_what_has_no_bound_is_released_in_studies_only() -> None:
    bare = Summary(np.arange(3), 1.0, 2.0**21, "replace-one", 5, bounded=False)
    with pytest.raises(ValueError, match=r"no bounded sensitivity.*privacy\.unsafe_seed"):
        release(bare, "a", PrivacyConfig())
    made = release(bare, "a", PrivacyConfig(unsafe_seed=0))
    assert made.arrays["values"].tolist() == [0, 1, 2]
    assert made.unsafe
    assert (
        Ledger({"a": made}, {"a": Account(0.1, 1e-5, "replace-one", "record", 1)}).statement().startswith("NOT PRIVATE")
    )
