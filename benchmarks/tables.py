"""What it takes to read a site's table of 100 columns: 80 numbers, 15 categories and 5
flags, which become 180 numbers. Without a number of records, a million.

    python -m benchmarks.tables 100000
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from fedaux.config.sections import DataConfig
from fedaux.data.federated import read_private

NUMBERS, CATEGORIES, FLAGS = 80, 15, 5
COLOURS = ("red", "green", "blue", "grey")
DIFFERENT = 10_000  # lines; they are repeated
CLASSES = ("a", "b")


def write_schema(path: Path) -> None:
    """Every fourth number may be missing."""
    lines = ['label = "y"', 'classes = ["a", "b"]', "confirmed = true", "[columns]"]
    for place in range(NUMBERS):
        missing = "true" if place % 4 == 0 else "false"
        quantiles = "[-4, -1.3, -0.8, -0.5, -0.2, 0, 0.2, 0.5, 0.8, 1.3, 4]"
        lines.append(
            f"x{place} = {{range = [-4, 4], quantiles = {quantiles}, "
            f"missing = {missing}}}"
        )
    colours = ", ".join(f'"{colour}"' for colour in COLOURS)
    category = f'{{kind = "category", values = [{colours}]}}'
    flag = '{kind = "flag", values = ["no", "yes"]}'
    lines += [f"c{place} = {category}" for place in range(CATEGORIES)]
    lines += [f"f{place} = {flag}" for place in range(FLAGS)]
    path.write_text("\n".join(lines))


def write_records(path: Path, count: int) -> None:
    rng = np.random.default_rng(0)
    names = [f"x{place}" for place in range(NUMBERS)]
    names += [f"c{place}" for place in range(CATEGORIES)]
    names += [f"f{place}" for place in range(FLAGS)]
    lines = []
    for number in range(min(count, DIFFERENT)):
        values = [f"{value:.4f}" for value in rng.normal(size=NUMBERS)]
        values += rng.choice(COLOURS, CATEGORIES).tolist()
        values += rng.choice(["no", "yes"], FLAGS).tolist()
        lines.append(",".join([*values, CLASSES[number % 2]]) + "\n")
    block = "".join(lines)
    with path.open("w") as file:
        file.write(",".join([*names, "y"]) + "\n")
        for _ in range(count // len(lines)):
            file.write(block)


def read(folder: Path) -> None:
    """In a process of its own, whose peak memory is printed."""
    wall = time.perf_counter()
    processor = time.process_time()
    options = (("schema", str(folder / "schema.toml")),)
    data = DataConfig("table", str(folder / "a.csv"), options, CLASSES, partition="own")
    records = read_private(data, CLASSES)
    wall = time.perf_counter() - wall
    processor = time.process_time() - processor
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(
        f"{len(records):,} records of {records.shape[0]} numbers: {wall:.1f} s, "
        f"{processor:.1f} s of a processor, {memory:.2f} GiB"
    )


def main() -> None:
    if sys.argv[1:2] == ["read"]:
        read(Path(sys.argv[2]))
        return
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 10**6
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_schema(folder / "schema.toml")
        write_records(folder / "a.csv", count)
        command = [sys.executable, "-m", "benchmarks.tables", "read", name]
        subprocess.run(command, check=True)


if __name__ == "__main__":
    main()
