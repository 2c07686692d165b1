"""What it costs that every private record passes alone: seconds per 1,000 records,
against batches.

    python benchmarks/per_record.py [--repeats 5]

All arms of a row are measured in turn, in one process; shown are the least and the
median time. Batches may use as many threads as there are workers.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch.func import functional_call, grad, vmap

from fedaux.config.prototype import PrototypeSpec
from fedaux.data.records import Records
from fedaux.models import Prototype, build, linear_head
from fedaux.models.inference import predict_batches
from fedaux.privacy import per_record
from fedaux.privacy.dp_sgd import clipped_unit_gradient, sum_clipped_gradients
from fedaux.privacy.units import Units

WORKERS = 2
of = PrototypeSpec.of
IMAGE = (32, 32, 3)
SMALL = (8, 8, 1)
# (network, shape of a record, how many)
NETWORKS: list[tuple[PrototypeSpec, tuple[int, ...], int]] = [
    (of("mlp"), (64,), 1000),
    (of("cnn"), SMALL, 1000),
    (of("resnet8", width=16), IMAGE, 200),
    (of("resnet8"), IMAGE, 100),
    (of("mobilenetv2"), IMAGE, 100),
    (of("shufflenet"), IMAGE, 100),
    (of("bert"), (), 100),
    (of("encoder"), (), 100),
]
WORDS = [
    "a",
    "good",
    "film",
    "but",
    "far",
    "too",
    "long",
    "for",
    "me",
    "and",
    "the",
    "music",
    "was",
    "new",
]


def records_of(shape: tuple[int, ...], count: int) -> Records:
    rng = np.random.default_rng(0)
    labels = np.arange(count) % 10
    if not shape:
        texts = [" ".join(rng.choice(WORDS, rng.integers(5, 40))) for _ in range(count)]
        return Records(np.array(texts, dtype=object), labels)
    if len(shape) == 3:
        return Records(rng.integers(0, 256, (count, *shape)).astype(np.uint8), labels)
    return Records(rng.normal(size=(count, *shape)).astype(np.float32), labels)


def seconds(call: Callable[[], Any], threads: int, forced: bool = False) -> float:
    """`forced`: workers also where they do not pay, to see that."""
    torch.set_num_threads(threads)
    pays = per_record.MIN_PARALLEL_SECONDS
    per_record.MIN_PARALLEL_SECONDS = 0.0 if forced else per_record.MIN_PARALLEL_SECONDS
    started = time.perf_counter()
    try:
        call()
        return time.perf_counter() - started
    finally:
        per_record.MIN_PARALLEL_SECONDS = pays


def batched_gradients(model: Prototype, records: Records) -> None:
    """Gradients of all records in one call, which is what is given up."""
    parameters = {name: one.detach() for name, one in model.named_parameters()}

    def loss(parameters: Any, row: Any, label: Any) -> Any:
        return F.cross_entropy(
            functional_call(model, parameters, (row[None],)), label[None]
        )

    each = vmap(grad(loss), in_dims=(None, 0, 0))
    for rows in records.blocks(32):
        each(parameters, records.batch(rows), torch.from_numpy(records.labels[rows]))


def row(
    name: str,
    alone: Callable[[], Any],
    batched: Callable[[], Any],
    count: int,
    repeats: int,
) -> None:
    arms = [
        lambda: seconds(alone, 1),
        lambda: seconds(alone, WORKERS, forced=True),
        lambda: seconds(alone, WORKERS),
        lambda: seconds(batched, WORKERS),
    ]
    # the first warms up
    times = np.array(
        [[1000 * arm() / count for arm in arms] for _ in range(repeats + 1)]
    )[1:]
    cells = [
        f"{least:.2f} ({median:.2f})"
        for least, median in zip(times.min(0), np.median(times, 0), strict=True)
    ]
    print(
        (
            f"| {name} | {' | '.join(cells)} | "
            f"{times[:, 2].min() / times[:, 3].min():.1f} |"
        ),
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    repeats = parser.parse_args().repeats
    print(f"Seconds per 1,000 records, least (median) of {repeats}.\n")
    print(
        "| | alone, 1 worker | alone, 2 workers | alone, as chosen | batched, 2 "
        "threads | chosen / batched |"
    )
    print("| --- | --- | --- | --- | --- | --- |")
    for spec, shape, count in NETWORKS:
        records = records_of(shape, count)
        features = build(spec, records.shape, 10, 0).features

        def alone(features: Any = features, records: Records = records) -> None:
            list(per_record.outputs(features, records))

        def batched(features: Any = features, records: Records = records) -> None:
            list(predict_batches(features, records))

        row(spec.label, alone, batched, count, repeats)
    group = of("cnn", norm="group")
    for name, model, records in (
        ("gradients, head of 512", linear_head(512, 10), records_of((512,), 500)),
        ("gradients, cnn", build(group, (1, 8, 8), 10, 0), records_of(SMALL, 300)),
    ):
        units = Units.of(records, "record", 1)

        def steps(
            model: Prototype = model, records: Records = records, units: Units = units
        ) -> None:
            def attempt(one: Any) -> None:
                clipped_unit_gradient(one, records, records.labels, units.rows[0], 1.0)

            sum_clipped_gradients(
                per_record.replicate(model, attempt, units.count),
                records,
                units.rows,
                1.0,
            )

        def vmapped(model: Prototype = model, records: Records = records) -> None:
            batched_gradients(model, records)

        row(name, steps, vmapped, len(records), repeats)
    rows, mean, basis = (
        np.random.default_rng(0).normal(size=size)
        for size in ((5000, 512), 512, (512, 32))
    )
    row(
        "public map, 512 → 32",
        lambda: per_record.project(rows, mean, basis),
        lambda: (rows - mean) @ basis,
        len(rows),
        repeats,
    )


if __name__ == "__main__":
    main()
