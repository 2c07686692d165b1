"""What a graph is made of, and what is refused before any file is touched; the graphs themselves are end to end."""

import sys

import numpy as np
import pytest
import torch

from fedaux.config.prototype import PrototypeSpec
from fedaux.core.errors import Exit, MissingPackageError
from fedaux.data.records import RecordSpec, to_tensor
from fedaux.export import onnx_graph
from fedaux.export.onnx_graph import OnnxError, check_onnx_support
from fedaux.models import build


def test_text_is_refused_with_the_way_out() -> None:
    with pytest.raises(OnnxError, match=r"text cannot be exported as ONNX.*Export without --onnx") as caught:
        check_onnx_support(RecordSpec("text"))
    assert caught.value.code == Exit.SETTINGS


@pytest.mark.parametrize("package", ["onnx", "onnxscript", "onnxruntime"])
def test_a_missing_package_is_named_before_anything_is_traced(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingPackageError, match=r"pip install 'fedaux\[onnx\]'"):
        check_onnx_support(RecordSpec("numbers", (3,)))


def test_raw_pixels_are_scaled_as_in_training() -> None:
    network = build(PrototypeSpec.of("cnn", width=4, features=8), (1, 8, 8), 3, seed=0).eval()
    pixels = np.random.default_rng(0).integers(0, 256, (5, 8, 8, 1), dtype=np.uint8)
    with torch.inference_mode():
        probabilities, logits = onnx_graph.ServingModule(network, image=True)(torch.from_numpy(pixels))
        wanted = network(to_tensor(pixels))
    assert torch.equal(logits, wanted)
    assert torch.allclose(probabilities, wanted.softmax(dim=1))
