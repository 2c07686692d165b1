"""B3: one teacher's logits on D_distill beside forward passes by hand in their fastest
block, and in two workers.

The bare arm loads the same state and calls the module on blocks of rows; it is tried
with every block of `BLOCKS`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.measure import Row, alternate, compare
from fedaux.config.prototype import PrototypeSpec
from fedaux.core.arrays import Arrays
from fedaux.data.records import Records
from fedaux.methods.teachers import teacher_logits
from fedaux.models import build, flatten_state, linear_head
from fedaux.models.compute import Compute, place

BLOCKS = (16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192)


@dataclass(frozen=True)
class Case:
    """A network and the rows it is called with."""

    spec: PrototypeSpec | None  # None: a linear head
    shape: tuple[int, ...]  # of images as they are stored, or of features
    examples: int

    def model(self) -> nn.Module:
        """Placed as a server places its networks."""
        made = (
            linear_head(self.shape[0], 10)
            if self.spec is None
            else build(self.spec, self.records(1).shape, 10, 0)
        )
        return place(made, Compute())

    def records(self, count: int) -> Records:
        rng = np.random.default_rng(0)
        if len(self.shape) == 1:
            return Records(rng.normal(size=(count, *self.shape)).astype(np.float32))
        return Records(rng.integers(0, 256, (count, *self.shape), dtype=np.uint8))


CASES = {
    "ResNet-8 width 16": Case(PrototypeSpec.of("resnet8", width=16), (32, 32, 3), 1024),
    "ResNet-8 width 64": Case(PrototypeSpec.of("resnet8", width=64), (32, 32, 3), 128),
    "digits cnn": Case(PrototypeSpec("cnn"), (8, 8, 1), 4096),
    "digits mlp": Case(PrototypeSpec("mlp"), (8, 8, 1), 16384),
    "head on 512 features": Case(None, (512,), 20_000),
}


def bare(model: nn.Module, state: dict[str, Tensor], x: Tensor, block: int) -> Tensor:
    model.load_state_dict(state)
    model.eval()
    logits = torch.empty(len(x), 10)
    with torch.inference_mode():
        for start in range(0, len(x), block):
            rows = x[start : start + block]
            if rows.dtype == torch.uint8:
                rows = rows.permute(0, 3, 1, 2).float().sub_(127.5).div_(63.75)
            logits[start : start + block] = model(rows)
    return logits


def by_hand(model: nn.Module, x: Tensor) -> tuple[int, Callable[[], object]]:
    """(the best block, the arm that uses it)."""
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    arms = {
        str(block): lambda block=block: bare(model, state, x, block)
        for block in BLOCKS
        if block <= len(x)
    }
    times = alternate(arms, repeats=3)
    best = min(arms, key=lambda block: min(processor for _, processor in times[block]))
    return int(best), arms[best]


def rows() -> Iterator[Row]:
    for name, case in CASES.items():
        model = case.model()
        records = case.records(case.examples)
        weights = flatten_state(model)
        (block, arm) = by_hand(model, torch.from_numpy(records.x))
        setting = f"teacher pass, {name}, {case.examples:,} rows / by hand in blocks of {block}"

        def ours(
            model: nn.Module = model,
            weights: Arrays = weights,
            records: Records = records,
        ) -> object:
            return teacher_logits(model, weights, records)

        yield compare("B3", setting, 1.02, ours, arm)
