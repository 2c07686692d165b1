"""The front door in Python: the lines that every newcomer writes, each of them run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from urllib.parse import unquote

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_digits
from torch import Tensor, nn

import fedaux

IMAGES = np.rint(load_digits().images * (255 / 16)).astype(np.uint8)[..., None]
LABELS = load_digits().target
X, Y, PUBLIC, NEW = IMAGES[600:1200], LABELS[600:1200], IMAGES[:300], IMAGES[1200:1210]
SHORT = {
    "pretrain": {"epochs": 1},
    "local": {"epochs": 2},
    "distill": {"epochs": 1},
}


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU())

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.layers(x)
        return out


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body, self.fc = Block(), nn.Linear(32, 10)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.fc(self.body(x))
        return out


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FEDAUX_CACHE", str(tmp_path / "cache"))


def test_the_first_ten_lines() -> None:
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("cairosvg")
    x, y, x_public, x_new = X, Y, PUBLIC, NEW
    result = fedaux.run(
        "fedaux",
        data=(x, y),
        public=x_public,
        model=Net,
        clients=20,
        alpha=0.1,
        epsilon=1.0,
        rounds=2,
        **SHORT,
    )
    assert 0 <= result.accuracy <= 1
    assert isinstance(result.history, pandas.DataFrame)
    assert list(result.history.index) == [1, 2]
    assert result.history.accuracy.iloc[-1] == result.accuracy
    first, second = str(result.privacy).splitlines()
    assert first.startswith(
        "(1, 1e-05)-differentially private: certainty scores, and it rests on your "
        "word that Net"
    )
    assert second.startswith("Not covered: local models")
    assert result.statement in result.privacy.full
    assert result.model.predict(x_new).shape == (10, 10)
    assert np.array_equal(
        result.model.predict(x_new),
        result.model.predict(x_new.transpose(0, 3, 1, 2) / 255.0),
    )
    result.plot().save("curve.pdf")
    assert Path("curve.pdf").read_bytes().startswith(b"%PDF")
    assert repr(result).startswith(
        f"FedAUX: accuracy {100 * result.accuracy:.1f} % after 2 rounds, 20 clients"
    )
    assert len(repr(result)) < 800
    card = result._repr_html_()
    assert f"{100 * result.accuracy:.1f} %" in unquote(card)  # on the curve
    assert "<svg" not in card  # an image, whose style sheet is its own
    assert result.config.data.clients == 20
    assert result.folder == Path("runs/fedaux")


def test_methods_side_by_side() -> None:
    mine = replace(fedaux.METHODS["fedaux"], label="Mine", weights="uniform")
    table = fedaux.compare(
        ["fedavg+p", "scaffold+p", "fedaux", mine],
        data=(X, Y),
        public=PUBLIC,
        seeds=2,
        clients=3,
        rounds=1,
        **SHORT,
    )
    assert list(table.accuracy) == ["FedAvg+P", "SCAFFOLD+P", "FedAUX", "Mine"]
    assert all(arm.curves.shape == (2, 1) for arm in table.arms)
    assert not table.failures
    assert len(repr(table)) < 2000
    assert all(
        label in repr(table) and label in table._repr_html_()
        for label in table.accuracy
    )
    again = fedaux.compare(
        ["fedavg+p", "scaffold+p", "fedaux", mine],
        data=(X, Y),
        public=PUBLIC,
        seeds=2,
        clients=3,
        rounds=1,
        **SHORT,
    )
    assert again.folder == table.folder  # finished runs are only read


def test_a_head_from_folders() -> None:
    for folder, kept in (("scans", range(0, 300)), ("web", range(300, 400))):
        for i in kept:
            place = Path(folder) / (f"{LABELS[i]}" if folder == "scans" else "all")
            place.mkdir(parents=True, exist_ok=True)
            Image.fromarray(IMAGES[i, ..., 0]).save(place / f"{i}.png")
    head = fedaux.run(
        "ridge+p",
        data="scans/",
        public="web/",
        model="resnet8",
        size=8,
        clients=3,
        rounds=1,
        pretrain={"epochs": 1},
    ).save("head")
    assert fedaux.Model.from_pretrained(head).predict(NEW.repeat(3, axis=3)).shape == (
        10,
        10,
    )


def test_a_run_that_was_stopped_goes_on_with_the_same_call() -> None:
    arguments = {
        "data": (X, Y),
        "public": PUBLIC,
        "model": Net,
        "clients": 3,
        "rounds": 3,
        "privacy": {"unsafe_seed": 1},
    }
    whole = fedaux.run("fedaux", "whole", **arguments, **SHORT)
    part = fedaux.run("fedaux", **arguments, **SHORT, until=1)
    assert part.state.round == 1
    rest = fedaux.run("fedaux", **arguments, **SHORT)
    assert rest.folder == part.folder
    assert rest.curve == whole.curve
    other = fedaux.run("fedaux", **{**arguments, "rounds": 1, "seed": 5}, **SHORT)
    assert other.folder == Path("runs/fedaux-2")


def test_each_client_its_own_data_and_several_networks() -> None:
    parts = [(X[:200], Y[:200]), (X[200:300], Y[200:300]), (X[300:], Y[300:])]
    result = fedaux.run(
        "feddf+p", data=parts, public=PUBLIC, model=["cnn", Net], rounds=1, **SHORT
    )
    records = sorted(
        metrics.records for metrics in result.state.history[-1].client_metrics.values()
    )
    # a fifth is held out for tests
    assert records[0] < 110 < records[1] < 210 < records[2]
    assert len(result.models) == 2
    assert (
        result.model
        is result.models[max(result.models, key=result.state.history[-1].accuracy.get)]
    )  # type: ignore[arg-type]
