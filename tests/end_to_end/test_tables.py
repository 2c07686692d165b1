"""Tables: rows of numbers run with every kind of method and no further setting."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch import Tensor, nn

import fedaux

RNG = np.random.default_rng(0)
COLUMNS = 12
X = RNG.normal(size=(600, COLUMNS))  # float64, as tables are
Y = (X[:, 0] + X[:, 1] + 0.3 * RNG.normal(size=600) > 0).astype(int)
PUBLIC = RNG.normal(size=(300, COLUMNS))


class LogisticRegression(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(COLUMNS, 2)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.fc(x)
        return logits


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FEDAUX_CACHE", str(tmp_path / "cache"))


def run(method: str, **settings: Any) -> fedaux.Result:
    return fedaux.run(
        method,
        data=(X, Y),
        public=PUBLIC,
        clients=3,
        alpha=1.0,
        rounds=1,
        epsilon=5.0,
        **settings,
    )


@pytest.mark.parametrize("model", [None, "mlp", LogisticRegression])
@pytest.mark.parametrize(
    "method", ["fedaux", "private-head", "ridge+p", "scaffold+p", "fedavg", "feddf+p"]
)
def test_a_table_without_a_setting(method: str, model: Any) -> None:
    result = run(method, model=model)
    assert result.accuracy > 0.4
    if method != "private-head":
        assert result.config.pretrain == fedaux.Config().pretrain


def test_frozen_features_of_a_table_are_its_columns() -> None:
    ridge = run("ridge+p")
    assert [spec.name for spec in ridge.config.prototypes] == ["linear"]
    assert ridge.accuracy > 0.9
    assert ridge.accuracy > run("ridge+p", model="mlp").accuracy


def test_a_frozen_random_network_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    events: list[Any] = []
    run("ridge+p", model="mlp", on_progress=events.append)
    said = [event.text for event in events if hasattr(event, "text")]
    note = [text for text in said if "not pre-trained" in text]
    assert len(note) == 1
    assert "prototypes = ['linear'] takes the columns as they are" in note[0]
    events.clear()
    run("ridge+p", on_progress=events.append)
    assert not any("not pre-trained" in str(event) for event in events)
