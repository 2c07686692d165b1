"""Export to an ONNX graph from raw records to probabilities, compared with PyTorch
before it is written.
"""

from __future__ import annotations

import importlib
import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fedaux.core.errors import Exit, FedauxError, MissingPackageError, install_command
from fedaux.data.records import RecordSpec
from fedaux.data.table_schema import TableSchema
from fedaux.export.table_encoder import TableEncoder, describe_columns, random_rows

OUTPUTS = ["probabilities", "logits"]
TOLERANCE = 1e-4  # relative to the largest logit


class OnnxError(FedauxError, ValueError):
    """A network that cannot be exported to ONNX."""

    code = Exit.SETTINGS


class ServingModule(nn.Module):
    """Raw records → (probabilities, logits); pixels are scaled inside, as in
    `to_tensor`, and columns of a table encoded by `schema`.
    """

    def __init__(
        self, network: nn.Module, image: bool, schema: TableSchema | None = None
    ) -> None:
        super().__init__()
        self.network = network
        self.image = image
        self.encoder = None if schema is None else TableEncoder(schema)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        if self.encoder is not None:
            x = self.encoder(x)
        if self.image:
            x = x.permute(0, 3, 1, 2).float().sub(127.5).div(63.75)
        logits = self.network(x)
        return logits.softmax(dim=1), logits


def check_onnx_support(record_spec: RecordSpec) -> None:
    """Raise if the records are text or the packages are not installed."""
    if record_spec.kind == "text":
        raise OnnxError(
            "Cannot write ONNX: text cannot be exported, because the network itself "
            "turns text into tokens, which a graph of tensors cannot do. Export "
            "without --onnx and use fedaux.export.model.Model."
        )
    try:
        for name in ("onnx", "onnxscript", "onnxruntime"):
            importlib.import_module(name)
    except ImportError as error:
        raise MissingPackageError(
            "Cannot write ONNX: its packages are not installed. Run "
            f"{install_command('onnx')}."
        ) from error


def to_onnx(
    network: nn.Module, record_spec: RecordSpec, schema: TableSchema | None = None
) -> tuple[bytes, dict[str, Any]]:
    """(the file, its entry in the model card). The batch size is dynamic. With the
    schema of a table, the graph takes its columns (`export.table_encoder`).
    """
    check_onnx_support(record_spec)
    is_image = record_spec.kind == "image"
    input_name = "images" if is_image else "rows"
    make = partial(_random_records, record_spec)
    if schema is not None:
        input_name = "columns"
        make = partial(random_rows, schema)
    served = ServingModule(network.eval(), is_image, schema).eval()
    example = make(2)
    graph = _export(served, input_name, example)
    # the others belong to custom domains
    (opset,) = (opset.version for opset in graph.opset_import if not opset.domain)
    data = graph.SerializeToString()
    entry = {
        "file": "model.onnx",
        "opset": opset,
        "input": input_name,
        "outputs": OUTPUTS,
        "dtype": str(example.dtype),
        "shape": ["batch", *example.shape[1:]],
        "largest_difference": _compare(data, served, make),
    }
    if schema is not None:
        entry["columns"] = describe_columns(schema)
    return data, entry


def _export(served: ServingModule, input_name: str, example: NDArray[Any]) -> Any:
    """Return the graph of a network, in ONNX's own type."""
    any_batch = {0: torch.export.Dim("batch")}
    try:
        with _quiet():
            program = torch.onnx.export(
                served,
                (torch.from_numpy(example),),
                dynamo=True,
                verbose=False,
                input_names=[input_name],
                output_names=OUTPUTS,
                dynamic_shapes=(any_batch,),
            )
    except Exception as error:  # a user's network may fail in any way
        reason = str(error).strip().splitlines() or [type(error).__name__]
        raise OnnxError(
            f"Cannot write ONNX: this network cannot be exported ({reason[0]}). Export "
            "without --onnx, or make it a network that torch.export can follow: no "
            "Python decisions that depend on values or on the size of a batch."
        ) from error
    assert program is not None
    return program.model_proto


def _compare(
    data: bytes, served: ServingModule, make: Callable[[int], NDArray[Any]]
) -> float:
    """The largest difference from PyTorch's outputs on random records in batches of
    several sizes.
    """
    runtime = importlib.import_module("onnxruntime")
    session = runtime.InferenceSession(data, providers=["CPUExecutionProvider"])
    input_name = session.get_inputs()[0].name
    worst = 0.0
    for size in (1, 2, 5):
        rows = make(size)
        with torch.inference_mode():
            expected = [output.numpy() for output in served(torch.from_numpy(rows))]
        actual = session.run(None, {input_name: rows})
        for ours, theirs in zip(expected, actual, strict=True):
            difference = float(np.abs(ours - theirs).max())
            largest = max(1.0, float(np.abs(ours).max()))
            worst = max(worst, difference)
            # so written, NaN is refused
            if not difference <= TOLERANCE * largest:
                raise OnnxError(
                    "Cannot write ONNX: the ONNX graph differs from the network by "
                    f"{worst:.3g} on random records. Export without --onnx, and please "
                    "report it with the name of the prototype."
                )
    return worst


def _random_records(record_spec: RecordSpec, size: int) -> NDArray[Any]:
    rng = np.random.default_rng(size)
    if record_spec.kind == "image":
        return rng.integers(0, 256, (size, *record_spec.shape), dtype=np.uint8)
    return rng.standard_normal((size, *record_spec.shape), dtype=np.float32)


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence the exporter's warnings about packages that are not needed."""
    logger = logging.getLogger("torch.onnx")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(before)
