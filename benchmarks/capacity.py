"""What a federation of 10³, 10⁶ and 10⁹ devices takes: computed from constants that
were measured, see docs/scale.md.

    python -m benchmarks.capacity

Only what merging a region takes is measured here, now.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

import numpy as np

from fedaux.methods.contribution import Contribution, Ensemble

EXAMPLES = 20_000
CLASSES = 10
ROUNDS = 1_000
DEVICES = {10**3: 100, 10**6: 1_000, 10**9: 10_000}  # registered: asked a round
ROUND_SECONDS = 60  # that servers may take for their work in a round, each on one core

# docs/scale.md, ten thousand clients and growth
RELEASE = 2.6e3  # bytes from a client on its first turn
STORED = 18e6 / 3_951  # bytes on the server's disk for each client that ever took part
# bytes of memory: a name, a client with a release, a contribution's figures
NAME = 102
KNOWN = 4_000
METRICS = 700
BOOKKEEPING, POOLING = 1.4e-6, 1.4e-5  # seconds a round for each client with a release

# Flower 1.41 on two cores: HTTP, one worker
# seconds of a SuperLink for a small message and its reply, and for each MB
MESSAGE = 0.29
MEGABYTE = 0.031
# SuperNodes that a SuperLink with a database can keep: each asks for work every 3 s
NODES = 150


@dataclass(frozen=True)
class Model:
    """Per client and round, with teachers on the server and on the clients:
    benchmarks/measured.md.
    """

    name: str
    parameters: int
    extractor: float  # MB to a client on its first turn
    server: tuple[float, float]  # processor seconds
    client: tuple[float, float]
    down: tuple[float, float]  # MB
    up: tuple[float, float]


MODELS = (
    Model(
        "head on 512 features (ResNet-8, width 64)",
        5_130,
        19.6,
        (0.031, 0.020),
        (0.0, 0.142),
        (0.02, 0.26),
        (0.02, 1.94),
    ),
    Model(
        "ResNet-8, width 16",
        310_000,
        1.22,
        (12.521, 0.024),
        (0.0, 15.338),
        (1.24, 1.43),
        (1.24, 3.16),
    ),
)


def distinct(devices: int, asked: int) -> float:
    """Clients that took part at least once."""
    return devices * -math.expm1(ROUNDS * math.log1p(-asked / devices))


def merge_seconds(model: Model) -> tuple[float, int]:
    """(processor seconds to add one region's sum, its bytes)."""
    rng = np.random.default_rng(0)
    weights = {"parameters": rng.normal(size=model.parameters).astype(np.float32)}
    half = Ensemble.of(
        rng.normal(size=(EXAMPLES, CLASSES)), rng.uniform(0.1, 1, EXAMPLES)
    )
    rooms = Contribution.of("p", weights, 500, half).to_arrays()
    total = Contribution()
    size = sum(
        array.nbytes
        for shelf in rooms.values()
        for arrays in shelf.values()
        for array in arrays.values()
    )
    times = []
    for _ in range(7):
        start = time.process_time()
        total.merge(Contribution.from_arrays(rooms))
        times.append(time.process_time() - start)
    return min(times), size


def both(figures: tuple[float, float] | list[float]) -> str:
    """Teachers on the server → on the clients; once where it makes no difference."""
    texts = [_number(figure) for figure in figures]
    return texts[0] if texts[0] == texts[1] else " → ".join(texts)


def _number(figure: float) -> str:
    return (
        f"{figure:,.0f}"
        if figure >= 10
        else f"{figure:.1g}"
        if figure < 0.1
        else f"{figure:.2g}"
    )


def column(model: Model, devices: int, asked: int) -> dict[str, str]:
    known = distinct(devices, asked)
    merging, size = merge_seconds(model)
    # share of a round's clients that are on their first turn
    new = known / (asked * ROUNDS)
    superlinks = math.ceil(1.5 * asked / NODES)
    down = [asked * (mb + new * model.extractor) for mb in model.down]
    up = [asked * (mb + new * RELEASE / 1e6) for mb in model.up]
    transport = [
        asked
        / superlinks
        * ((1 + new) * MESSAGE + (sent + received) / asked * MEGABYTE)
        for sent, received in zip(down, up, strict=True)
    ]
    work = [asked * seconds for seconds in model.server]
    return {
        "asked a round": f"{asked:,}",
        "of them on their first turn, %": f"{100 * new:.0f}",
        "GB to clients a round": both([mb / 1e3 for mb in down]),
        "GB from clients a round": both([mb / 1e3 for mb in up]),
        "processor seconds at each client for teaching": both(model.client),
        "processor seconds at the servers: teachers, checks, sums": both(work),
        f"cores for that in {ROUND_SECONDS} s": both(
            [math.ceil(seconds / ROUND_SECONDS) for seconds in work]
        ),
        "SuperLinks, devices connecting for their turn": f"{superlinks:,}",
        "SuperLinks, all devices always connected": f"{math.ceil(devices / NODES):,}",
        "seconds a round that each SuperLink spends on messages": both(transport),
        "merging the regions: MB read, processor seconds": ", ".join(
            _number(superlinks * figure) for figure in (size / 1e6, merging)
        ),
        f"clients known after {ROUNDS:,} rounds": f"{known:,.0f}",
        "on the server's disk, GB": _number(known * STORED / 1e9),
        "memory of a server, GB: names, releases, history": ", ".join(
            _number(size / 1e9)
            for size in (devices * NAME, known * KNOWN, asked * ROUNDS * METRICS)
        ),
        "seconds a round for bookkeeping, for pooling releases": ", ".join(
            _number(known * seconds) for seconds in (BOOKKEEPING, POOLING)
        ),
    }


def main() -> None:
    for model in MODELS:
        columns = {
            devices: column(model, devices, asked) for devices, asked in DEVICES.items()
        }
        print(
            f"| {model.name}: registered | "
            f"{' | '.join(f'{devices:,}' for devices in columns)} |"
        )
        print("| --- |" + " --- |" * len(columns))
        for name in next(iter(columns.values())):
            print(
                f"| {name} | {' | '.join(column[name] for column in columns.values())} "
                "|"
            )
        print()


if __name__ == "__main__":
    main()
