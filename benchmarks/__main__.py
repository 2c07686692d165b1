"""What fedaux costs beside hand-written code: one table, a row or several per module.

    python -m benchmarks            # all rows
    python -m benchmarks B1 B7      # some of them

Exits with 1 if a row misses its target; `--slack 1.5` forgives ratios half as much
again, on machines with other work.
"""

from __future__ import annotations

import argparse
import importlib
import sys

import torch

from benchmarks.measure import machine

ROWS = {  # module of this package with `rows() -> Iterator[Row]`
    "B1": "client",
    "B2": "ray_round",
    "B3": "teacher_pass",
    "B4": "distillation",
    "B5": "heads",
    "B6": "release",
    "B7": "weights",
    "B8": "memory",
    "B9": "simclr",
    "B10": "saving",
    "B12": "startup",
    "B13": "many_clients",
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "rows",
        nargs="*",
        metavar="ROW",
        help=f"some of {', '.join(ROWS)}; all if none is named",
    )
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--slack", type=float, default=1.0, metavar="FACTOR")
    asked = parser.parse_args()
    unknown = set(asked.rows) - set(ROWS)
    if unknown:
        parser.error(
            f"there is no row {', '.join(sorted(unknown))}; choose from "
            f"{', '.join(ROWS)}"
        )
    torch.set_num_threads(asked.threads)
    print(
        (
            f"{machine()}\n\n| row | setting | target | measured |\n| --- | --- | --- "
            "| --- |"
        ),
        flush=True,
    )
    missed = 0
    for name in asked.rows or ROWS:
        for row in importlib.import_module(f"benchmarks.{ROWS[name]}").rows():
            missed += not row.within(asked.slack)
            figures = row.figures if row.passed else f"**missed**: {row.figures}"
            print(
                f"| {row.name} | {row.setting} | {row.target} | {figures} |", flush=True
            )
    return min(missed, 1)


if __name__ == "__main__":
    sys.exit(main())
