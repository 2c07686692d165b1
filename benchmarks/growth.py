"""How a round grows: processor seconds and peak memory against each size, with the
exponent of the curve.

    PYTHONPATH=tests python -m benchmarks.growth            # all curves, about five minutes of one core
    PYTHONPATH=tests python -m benchmarks.growth classes    # some of them
    … --picture docs/images/growth.svg

Every point is a process of its own, forked after a small run has imported everything.
Sizes but one are those of `BASE`: FedAUX on synthetic rows in linear mode, all clients
in this process, the last of three rounds. Memory is what the process takes above its
start. An exponent is the slope of log(figure) over log(size), by least squares.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from benchmarks.measure import machine
from benchmarks.memory import scripted_server
from benchmarks.saving import ACCOUNT, Clock, release, result
from benchmarks.weights import cohort
from fedaux import run
from fedaux.config.presets import DEMO
from fedaux.config.prototype import PrototypeSpec
from fedaux.config.sections import AuxConfig, DataConfig
from fedaux.data.partition import dirichlet
from fedaux.report.charts import Line, LineChart
from fedaux.runs.callbacks import JsonLines
from fedaux.runs.session import run_in_folder
from fedaux.server.run_state import RunState
from fedaux.server.run_writer import RunWriter
from fedaux.server.update_norms import norm_limits

# records of a client, numbers of a record, records of the test
RECORDS = 10
DIM = 64
TEST = 500


@dataclass(frozen=True)
class Sizes:
    """Of one run."""

    asked: int = 50  # clients a round, all there are
    examples: int = 5_000  # auxiliary points
    classes: int = 10
    features: int = 64


BASE = Sizes()


def linear_round(sizes: Sizes, folder: Path) -> float:
    """Processor seconds of a round in which no client is new: train, teach, weigh,
    distil, test and save.
    """
    rng = np.random.default_rng(0)
    private = max(sizes.asked * RECORDS, sizes.classes)
    for name, count in (("x", private), ("x_test", TEST), ("aux/x", sizes.examples)):
        (folder / name).parent.mkdir(exist_ok=True)
        np.save(
            folder / f"{name}.npy", rng.normal(size=(count, DIM)).astype(np.float32)
        )
    np.save(folder / "y.npy", np.arange(private) % sizes.classes)
    np.save(folder / "y_test.npy", np.arange(TEST) % sizes.classes)
    (folder / "classes.txt").write_text("\n".join(map(str, range(sizes.classes))))
    config = replace(
        DEMO,
        rounds=3,
        head_only=True,
        prototypes=(PrototypeSpec.of("mlp", features=sizes.features),),
        data=DataConfig(
            source="npy", path=str(folder), clients=sizes.asked, partition="iid"
        ),
        aux=AuxConfig(source="npy", path=str(folder / "aux")),
        pretrain=replace(DEMO.pretrain, epochs=0),
        distill=replace(DEMO.distill, epochs=1),
        privacy=replace(DEMO.privacy, embedding_dim=32),
    )
    clock = Clock()
    state = run(config, folder / "run", cache=folder / "cache", callbacks=[clock]).state
    assert [len(each.client_metrics) for each in state.history] == [sizes.asked] * 3
    return min(np.diff(clock.times))


def registered(clients: int, folder: Path) -> float:
    """Processor seconds of a round of 100 new clients out of so many names; they answer
    from a script.
    """
    from helpers.scripted import Scripted

    clock = Clock()
    run_in_folder(
        folder, scripted_server(clients, 4, folder), Scripted(), None, [clock]
    )
    return min(np.diff(clock.times))


def bookkeeping(rounds: int, known: int, folder: Path) -> float:
    """Processor seconds of all that a round does with what was before it: limits,
    state, saving, the privacy line.
    """
    clients = [f"client-{number:07d}" for number in range(known)]
    asked = clients[:100]
    weights = {"cnn": {"parameters": np.zeros(650, np.float32)}}
    history = tuple(result(number, asked) for number in range(1, rounds + 1))
    releases = {client: release(client) for client in clients}
    state = RunState(
        DEMO,
        rounds,
        weights,
        history=history,
        releases=releases,
        method_state={"cnn": {}},
    )
    state = state.with_accounts(clients, dict.fromkeys(clients, ACCOUNT))
    state = state.with_clients(clients, prepared=True, last_round=1)
    state = replace(state, selected=tuple(asked))
    RunWriter(folder).save(RunState(DEMO, 0, weights))
    # as if all of it had been saved
    writer = RunWriter(folder, state)
    lines = JsonLines()
    times = list[float]()
    lines.on_run_start(DEMO, folder, None)
    for number in range(rounds + 1, rounds + 6):
        start = time.process_time()
        norm_limits(state.history)
        state = state.with_accounts(asked, dict.fromkeys(asked, ACCOUNT))
        state = state.after(weights, result(number, asked), {"cnn": {}})
        writer.save(state)
        lines.on_round_end(state)
        state.ledger.summary()
        times.append(time.process_time() - start)
    return min(times)


def weigh(known: int) -> float:
    """Processor seconds of the weights of 100 teachers on 20,000 examples, one of so
    many releases being new.
    """
    embedding, releases = cohort(100)
    known_before = {
        f"known-{number}": replace(releases["client-0000"])
        for number in range(known - 100)
    }
    embedding.teacher_weights(
        {**known_before, **dict(list(releases.items())[:-1])}, list(releases)
    )
    start = time.process_time()
    embedding.teacher_weights({**known_before, **releases}, list(releases))
    return time.process_time() - start


def split(clients: int, classes: int) -> float:
    """Processor seconds of one Dirichlet split, α = 0.1, of ten records for each client
    or class.
    """
    labels = np.arange(10 * max(clients, classes)) % classes
    start = time.process_time()
    dirichlet(labels, clients, 0.1, np.random.default_rng(0))
    return time.process_time() - start


@dataclass(frozen=True)
class Curve:
    """`measure` gets a size and an empty folder, and returns seconds."""

    what: str
    sizes: Sequence[int]
    measure: Callable[[int, Path], float]


CURVES = {
    "clients": Curve(
        "clients a round",
        (25, 100, 400, 1600),
        lambda size, folder: linear_round(replace(BASE, asked=size), folder),
    ),
    "examples": Curve(
        "auxiliary points",
        (2_000, 8_000, 32_000, 128_000),
        lambda size, folder: linear_round(replace(BASE, examples=size), folder),
    ),
    "classes": Curve(
        "classes",
        (10, 40, 160, 640),
        lambda size, folder: linear_round(replace(BASE, classes=size), folder),
    ),
    "features": Curve(
        "features",
        (64, 256, 1024, 4096),
        lambda size, folder: linear_round(replace(BASE, features=size), folder),
    ),
    "registered": Curve(
        "registered clients, 100 a round", (10**3, 10**4, 10**5, 10**6), registered
    ),
    "known": Curve(
        "clients with a release: bookkeeping",
        (1_000, 4_000, 16_000, 64_000),
        lambda size, folder: bookkeeping(10, size, folder),
    ),
    "weigh": Curve(
        "clients with a release: weights of 100",
        (1_000, 4_000, 16_000, 64_000),
        lambda size, _: weigh(size),
    ),
    "rounds": Curve(
        "rounds done: bookkeeping",
        (50, 200, 800, 3200),
        lambda size, folder: bookkeeping(size, 100, folder),
    ),
    "split-clients": Curve(
        "clients of a split, 10 classes",
        (100, 1000, 10_000),
        lambda size, _: split(size, 10),
    ),
    "split-classes": Curve(
        "classes of a split, 100 clients",
        (10, 100, 1000),
        lambda size, _: split(100, size),
    ),
}


def peak() -> float:
    """MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def point(name: str, size: int) -> tuple[float, float]:
    """(processor seconds, MB above the start) in a forked process."""
    queue = multiprocessing.get_context("fork").SimpleQueue()

    def work() -> None:
        before = peak()
        with tempfile.TemporaryDirectory() as place:
            seconds = CURVES[name].measure(size, Path(place))
        queue.put((seconds, peak() - before))

    process = multiprocessing.get_context("fork").Process(target=work)
    process.start()
    process.join()
    if process.exitcode:
        raise RuntimeError(f"{name} at {size} failed: its error is above")
    return queue.get()


def exponent(sizes: Sequence[float], figures: Sequence[float]) -> float:
    return float(np.polyfit(np.log(sizes), np.log(np.maximum(figures, 1e-9)), 1)[0])


def measured(names: Sequence[str]) -> Iterator[tuple[str, list[float], list[float]]]:
    for name in names:
        times, peaks = zip(
            *(point(name, size) for size in CURVES[name].sizes), strict=True
        )
        yield name, list(times), list(peaks)


def row(name: str, times: Sequence[float], peaks: Sequence[float]) -> str:
    curve = CURVES[name]
    over = [
        " → ".join(f"{figure:,.3g}" for figure in figures) for figures in (times, peaks)
    ]
    sizes = " → ".join(f"{size:,}" for size in curve.sizes)
    local = exponent(curve.sizes[-2:], times[-2:])
    slopes = (
        f"{exponent(curve.sizes, times):.2f} | {local:.2f}",
        f"{exponent(curve.sizes, peaks):.2f}",
    )
    return f"| {curve.what} | {sizes} | {over[0]} | {slopes[0]} | {over[1]} | {slopes[1]} |"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.growth")
    parser.add_argument(
        "curves",
        nargs="*",
        metavar="CURVE",
        help=f"some of {', '.join(CURVES)}; all if none is named",
    )
    parser.add_argument(
        "--picture", type=Path, help="also draw the times of the rounds, an SVG"
    )
    asked = parser.parse_args()
    unknown = set(asked.curves) - set(CURVES)
    if unknown:
        parser.error(
            f"there is no curve {', '.join(sorted(unknown))}; choose from "
            f"{', '.join(CURVES)}"
        )
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as place:
        linear_round(Sizes(2, 200), Path(place))  # whatever is imported late
    print(f"{machine()}\n")
    print(
        "| against | sizes | processor seconds | exponent | of the last step | MB "
        "above the start | exponent |"
    )
    print("| --- | --- | --- | --- | --- | --- | --- |", flush=True)
    drawn = []
    for name, times, peaks in measured(asked.curves or list(CURVES)):
        print(row(name, times, peaks), flush=True)
        drawn.append(
            Line(
                CURVES[name].what, [time / times[0] for time in times], f"t{len(drawn)}"
            )
        )
    if asked.picture:
        steps = [f"× {4**step}" for step in range(4)]
        what = "processor time of a round, times that at the smallest size"
        LineChart(drawn[:4], "size", what, x_values=steps).save(
            asked.picture, "How a round grows"
        )


if __name__ == "__main__":
    main()
