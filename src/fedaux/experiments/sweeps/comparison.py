"""Several methods, several seeds, one table and one picture: a sweep over `method`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fedaux.config.methods import PAPER
from fedaux.config.schema import Config
from fedaux.core.progress import OnProgress, no_progress
from fedaux.experiments.sweeps.engine import Sweep, Swept, run_sweep
from fedaux.experiments.sweeps.results import write_results


def compare(
    base: Config,
    folder: Path,
    seeds: int,
    methods: Sequence[str] = PAPER,
    *,
    jobs: int = 1,
    threads: int = 1,
    on_progress: OnProgress = no_progress,
    cache: Path | None = None,
) -> Swept:
    """Every method from the same data, split and first weights; only what its row of the table says differs.

    Args:
        base: What to run; its `method` plays no part.
        folder: For the runs, the tables and the report. What is finished there already is only read.
        seeds: How many, from the config's own on.
        methods: Names in `METHODS`, or `module:attribute`; by default the nine of the paper.
        jobs: Runs at a time, each in a process of its own; more than 1 only below `if __name__ == "__main__":`.
        threads: Of PyTorch, for each.
        on_progress: As in `run`.
        cache: As in `run`.
    """
    sweep = Sweep.of(base, {"method": methods}, seeds)
    return write_results(run_sweep(sweep, folder, jobs=jobs, threads=threads, on_progress=on_progress, cache=cache))
