"""A scorer of one's own is named by the client's own settings; one without a bound runs in studies only."""

from pathlib import Path

import pytest

from fedaux.config.schema import Config, ConfigError
from fedaux.config.sections import PrivacyConfig
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
    assert make_scorer(PrivacyConfig(ratio="posterior"), 7) == ClassEmbeddingScorer(7, 32, "posterior")
    assert make_scorer(PrivacyConfig(scorer="mean-embedding"), 7) == MeanEmbeddingScorer(32)
    assert make_scorer(PrivacyConfig(scorer="logistic", ridge=0.5), 7) == LogisticScorer(0.5)
    (tmp_path / "my_scorers.py").write_text(MINE)
    monkeypatch.syspath_prepend(tmp_path)
    mine = make_scorer(PrivacyConfig(scorer="my_scorers:scorer", embedding_dim=7), 3)
    assert (mine.name, mine.embedding_dim) == ("my_scorers:scorer", 7)  # type: ignore[attr-defined]
    with pytest.raises(ConfigError, match="mean-embedding, logistic, module:function"):
        PrivacyConfig(scorer="mean")


def test_only_scorers_that_exist_are_allowed() -> None:
    from fedaux.scoring.registry import make_scorer

    with pytest.raises(ConfigError) as caught:
        Config.from_dict({}, ["privacy.scorer=none"])
    names = str(caught.value).partition("choose from ")[2].rstrip(".").split(", ")
    assert names.pop() == "module:function"
    for name in names:
        assert make_scorer(PrivacyConfig(scorer=name), 3).name == name
