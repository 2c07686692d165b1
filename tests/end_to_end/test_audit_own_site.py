"""An owner's own settings are attacked: each defect that is put back is found there
too, and nothing without.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch import Tensor, nn

from fedaux import per_record_safe
from fedaux.audit.odd_records import FORMATS
from fedaux.audit.run import OWN_ATTACKS, audit_site
from fedaux.client.summaries import embedding
from fedaux.config.schema import Config
from fedaux.flower import serialization
from helpers import odd_records
from helpers.commands import fedaux, paragraph
from helpers.mutations import guessed_split, labels_by_record, uncapped
from helpers.tiny_text import publish_encoder

OPTIONS: dict[str, dict[str, Any]] = {
    "images": {"size": 8, "mode": "L"},
    "huggingface": {"shape": 8},
    "table": {"schema": str(Path(odd_records.__file__).with_name("odd_table.toml"))},
}
TEXT = ("csv", "jsonl", "parquet")


def settings(
    folder: Path, source: str, tokenizer: Path | None = None, **changes: Any
) -> dict[str, Any]:
    """Of a site; where its source needs data to know a record's shape, there are
    some.
    """
    if source in ("npy", "npz"):
        folder.mkdir()
        arrays = {"x": np.zeros((4, 8), np.float32), "y": np.arange(4) % 2}
        np.savez(folder / "a.npz", **arrays)
        for name, array in arrays.items():
            np.save(folder / f"{name}.npy", array)
    path = folder / "a.npz" if source == "npz" else folder
    if source == "table in parquet":
        source = "table"
        path = folder / "a.parquet"
    text = {
        "name": "bert",
        "layers": 1,
        "width": 12,
        "heads": 2,
        "inner": 8,
        "length": 16,
        "tokenizer": str(tokenizer),
    }
    return {
        "prototypes": [
            text if source in TEXT else {"name": "mlp", "hidden": 4, "features": 4}
        ],
        "data": {
            "source": source,
            "path": str(path),
            "partition": "own",
            "classes": ["flu", "train", "none"],
            "options": OPTIONS.get(source, {}),
        },
        "federation": {"sites": ["berlin"], "sends": ["noisy sums", "models"]},
        "privacy": {"epsilon": 0.7},
        **changes,
    }


def save_dataset(folder: Path) -> None:
    datasets = pytest.importorskip("datasets")
    rows = {"x": [[0.0] * 8] * 4, "label": ["flu", "none"] * 2}
    datasets.Dataset.from_dict(rows).save_to_disk(str(folder))


def findings(facts: dict[str, Any], *only: str) -> dict[str, Any]:
    return {one.name: one for one in audit_site(Config.from_dict(facts), only)}


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return publish_encoder(tmp_path_factory.mktemp("words") / "words")


@pytest.mark.parametrize("source", FORMATS)
def test_settings_that_hold_are_attacked_and_hold(
    source: str, tokenizer: Path, tmp_path: Path
) -> None:
    if source == "huggingface":
        save_dataset(tmp_path / "own")
    found = findings(settings(tmp_path / "own", source, tokenizer))
    assert set(found) == set(OWN_ATTACKS)
    assert not [finding.detail for finding in found.values() if finding.violated]
    skipped = [finding.detail for finding in found.values() if finding.skipped]
    assert skipped == [
        "this site takes part in no secure sums (federation.secure)",
        "this site's owner is not asked (federation.approval)",
    ]
    assert found["own-source"].claimed == 0.7
    assert f"{len(FORMATS[source].odd)} odd records" in found["own-source"].detail
    # the odd record does count, as far as is claimed
    assert 0 < found["own-source"].bound < 0.7
    assert found["own-account"].bound == pytest.approx(0.7, rel=1e-3)


def test_a_split_that_is_guessed_from_a_folder_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = settings(tmp_path / "own", "images")
    facts["data"]["classes"] = ["flu", "none"]
    assert not findings(facts, "own-source")["own-source"].violated
    guessed_split(monkeypatch)
    found = findings(facts, "own-source")["own-source"]
    assert found.violated
    assert "sizes 24 and 1 are sent" in found.detail


@pytest.mark.parametrize("source", ["csv", "parquet", "npy", "huggingface"])
def test_labels_that_are_numbered_from_records_are_found(
    source: str, tokenizer: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = settings(tmp_path / "own", source, tokenizer)
    if source == "huggingface":
        save_dataset(tmp_path / "own")
    labels_by_record(monkeypatch)
    assert findings(own, "own-source")["own-source"].violated


def test_a_map_that_is_not_checked_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serialization, "check_order", lambda order: None)
    monkeypatch.setattr(
        embedding,
        "project",
        lambda rows, mean, basis: np.tile(rows.sum(axis=0) @ basis, (len(rows), 1)),
    )
    assert findings(settings(tmp_path / "own", "npy"), "own-map")["own-map"].violated


def test_an_account_without_a_limit_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uncapped(monkeypatch)
    found = findings(settings(tmp_path / "own", "npy"), "own-account")["own-account"]
    assert found.violated
    assert found.bound > 1.0


@per_record_safe  # its author is wrong
class Remembers(nn.Module):
    """Its output depends on how many records it has seen."""

    width = 4

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.seen = nn.Linear(8, 4), 0

    def forward(self, x: Tensor) -> Tensor:
        self.seen += 1
        return self.layer(x) + self.seen


def remembers(shape: tuple[int, ...]) -> nn.Module:
    return Remembers()


def test_a_network_that_remembers_records_is_found(tmp_path: Path) -> None:
    facts = settings(tmp_path / "own", "npy", prototypes=[f"{__name__}:remembers"])
    found = findings(facts, "own-networks")["own-networks"]
    assert found.violated
    assert "Remembers returned something else for the same record" in found.detail


def test_a_source_of_ones_own_is_skipped_and_nothing_is_claimed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "site.toml"
    file.write_text(
        'prototypes = ["mlp"]\n[data]\nsource = "mine:data"\npath = "x"\npartition = "own"\nclasses = ["a", "b"]\n'
        '[federation]\nsites = ["berlin"]\n'
    )
    assert fedaux(monkeypatch, "privacy", "audit", "--site", file) == 1
    assert "Nothing could be attacked" in paragraph(capsys.readouterr().out)
