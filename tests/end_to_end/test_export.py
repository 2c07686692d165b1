"""Graphs for ONNX Runtime give the network's own numbers; a trained run is exported to
the bit.
"""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from fedaux.config.prototype import PrototypeSpec
from fedaux.data.federated import open_data
from fedaux.data.records import RecordSpec
from fedaux.data.table_encoding import encode
from fedaux.data.table_schema import Column, TableHeader, TableSchema
from fedaux.export.export import export_model
from fedaux.export.model import Model
from fedaux.export.onnx_graph import OnnxError, to_onnx
from fedaux.models import Prototype, build
from fedaux.server.result import FinishedRun
from helpers.runs import tiny_run
from helpers.tiny import TINY_CONFIG


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> FinishedRun:
    torch.set_num_threads(1)
    return tiny_run(tmp_path_factory.mktemp("export"), replace(TINY_CONFIG, rounds=1))


def card_of(folder: Path) -> dict:
    return json.loads((folder / "card.json").read_text())


def test_onnx_gives_the_same_numbers_for_raw_images(
    result: FinishedRun, tmp_path: Path
) -> None:
    runtime = pytest.importorskip(
        "onnxruntime", reason="ONNX needs the extra fedaux[onnx]"
    )
    images = open_data(TINY_CONFIG).test.gather(slice(0, 50))
    for folder in export_model(result.folder, tmp_path, onnx=True):
        session = runtime.InferenceSession(folder / "model.onnx")
        probabilities, logits = session.run(None, {"images": images})
        model = Model.from_pretrained(folder)
        assert probabilities == pytest.approx(model.predict(images), abs=1e-5)
        assert logits == pytest.approx(model.logits(images), abs=1e-4)
        told = model.card["onnx"]
        assert (told["input"], told["dtype"], told["shape"]) == (
            "images",
            "uint8",
            ["batch", 8, 8, 1],
        )
        assert told["largest_difference"] < 1e-4
        assert "onnxruntime.InferenceSession" in (folder / "README.md").read_text()

    # a graph of other weights must not stay
    (folder,) = export_model(result.folder, tmp_path)
    assert not (folder / "model.onnx").exists()
    assert "onnx" not in card_of(folder)
    assert "onnxruntime" not in (folder / "README.md").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["resnet8", "mobilenetv2", "shufflenet"])
def test_every_image_network_can_be_written_as_onnx(name: str) -> None:
    pytest.importorskip("onnxruntime", reason="ONNX needs the extra fedaux[onnx]")
    network = build(PrototypeSpec(name), (3, 32, 32), 10, seed=0)
    data, facts = to_onnx(network, RecordSpec("image", (32, 32, 3)))
    assert len(data) > 10**6
    assert facts["largest_difference"] < 1e-2


def test_onnx_of_a_table_takes_its_columns() -> None:
    onnxruntime = pytest.importorskip(
        "onnxruntime", reason="ONNX needs the extra fedaux[onnx]"
    )
    schema = TableSchema(
        TableHeader(),
        {
            "age": Column(range=(0, 90), quantiles=(0, 40, 60, 90), missing=True),
            "dose": Column(range=(0, 1), bins=(0.25,)),
            "ward": Column("category", values=("a", "b"), missing=True),
            "smoker": Column("flag", values=("no", "yes")),
        },
        {},
    )
    columns = [["50", "95", "", "12.5"], ["0.25", "0.2", "0", "1"]]
    columns += [["a", "z", "b", ""], ["no", "yes", "yes", "no"]]
    rows = np.array([[50, 0.25, 0, 0], [95, 0.2, -1, 1], [np.nan, 0, 1, 1]])
    rows = np.vstack([rows, [12.5, 1, np.nan, 0]])
    encoded = encode(schema, columns)
    width = encoded.shape[1]
    network = build(PrototypeSpec("linear"), (width,), 2, seed=0).eval()
    data, facts = to_onnx(network, RecordSpec("numbers", (width,)), schema)
    assert (facts["input"], facts["dtype"], facts["shape"]) == (
        "columns",
        "float64",
        ["batch", 4],
    )
    assert facts["columns"][2]["values"] == ["a", "b"]
    session = onnxruntime.InferenceSession(data)
    _, logits = session.run(None, {"columns": rows})
    with torch.inference_mode():
        expected = network(torch.from_numpy(encoded)).numpy()
    np.testing.assert_allclose(logits, expected, atol=1e-5)


def test_onnx_of_numbers_and_of_what_cannot_be_followed() -> None:
    pytest.importorskip("onnxruntime", reason="ONNX needs the extra fedaux[onnx]")
    _, facts = to_onnx(
        build(PrototypeSpec("mlp"), (5,), 3, seed=0), RecordSpec("numbers", (5,))
    )
    assert (facts["input"], facts["dtype"], facts["shape"]) == (
        "rows",
        "float32",
        ["batch", 5],
    )

    class Whimsical(nn.Module):
        width = 5

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x if x.sum().item() > 0 else -x

    with pytest.raises(
        OnnxError,
        match=r"this network cannot be exported .* Export without --onnx",
    ):
        to_onnx(Prototype(Whimsical(), 3), RecordSpec("numbers", (5,)))

    class Fickle(nn.Module):
        """What a graph remembers of it is not what it does next."""

        width, calls = 5, 0

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.calls += 1
            return x * self.calls

    with pytest.raises(OnnxError, match="the ONNX graph differs from the network"):
        to_onnx(Prototype(Fickle(), 3), RecordSpec("numbers", (5,)))
