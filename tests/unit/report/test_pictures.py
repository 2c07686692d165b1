"""Pictures are drawn, and large enough to read."""

import struct
from pathlib import Path

import numpy as np
import pytest

from fedaux.algorithms.run_state import RunState
from fedaux.config.methods import METHODS
from fedaux.config.prototype import PrototypeSpec
from fedaux.config.schema import Config, DataConfig
from fedaux.core.results import RoundResult
from fedaux.data.federated import open_data
from fedaux.report.pictures import draw_curves, draw_run, draw_split

LABELS = [method.label for method in METHODS.values()]


def png_size(path: Path) -> tuple[int, int]:
    head = path.read_bytes()[:24]
    assert head.startswith(b"\x89PNG\r\n\x1a\n")
    width, height = struct.unpack(">II", head[16:24])
    return width, height


def assert_sensible(path: Path) -> None:
    width, height = png_size(path)
    assert 400 <= width <= 4000
    assert 200 <= height <= 4000
    assert path.stat().st_size > 5000  # not an empty sheet


@pytest.mark.parametrize("seeds", [1, 3])
def test_curves_of_all_methods(tmp_path: Path, seeds: int) -> None:
    rng = np.random.default_rng(0)
    path = tmp_path / "new" / "curves.png"
    draw_curves({label: rng.random((seeds, 10)) for label in LABELS}, path, "digits")
    assert_sensible(path)


def test_seeds_are_drawn_as_a_band(tmp_path: Path) -> None:
    values = np.array([[0.2, 0.4], [0.6, 0.8]])
    draw_curves({"FedAUX": values}, tmp_path / "band.png", "t")
    draw_curves({"FedAUX": values.mean(axis=0, keepdims=True)}, tmp_path / "line.png", "t")
    assert (tmp_path / "band.png").read_bytes() != (tmp_path / "line.png").read_bytes()


def test_a_single_round_is_drawn(tmp_path: Path) -> None:
    draw_curves({"FedAVG": np.array([[0.5]])}, tmp_path / "one.png", "t")
    assert_sensible(tmp_path / "one.png")


@pytest.mark.parametrize(("clients", "classes"), [(2, 2), (10, 10), (60, 10)])
def test_split(tmp_path: Path, clients: int, classes: int) -> None:
    counts = np.random.default_rng(0).integers(0, 50, (clients, classes))
    counts[0] = 0  # a client may hold nothing of most classes
    draw_split(counts, [str(i) for i in range(classes)], tmp_path / "split.png", "t")
    assert_sensible(tmp_path / "split.png")


@pytest.mark.parametrize("prototypes", [("mlp",), ("mlp", "cnn")])
def test_pictures_of_a_run(tmp_path: Path, prototypes: tuple[str, ...]) -> None:
    config = Config(prototypes=tuple(map(PrototypeSpec, prototypes)), data=DataConfig(clients=4))
    result = RoundResult(1, dict.fromkeys(prototypes, 0.5), {})
    state = RunState(config, 2, {name: {} for name in prototypes}, history=(result, result))
    pictures = draw_run(open_data(config), state, tmp_path)
    assert [path.name for path in pictures] == ["split.png", "curves.png"]
    for path in pictures:
        assert_sensible(path)
