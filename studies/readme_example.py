"""The Python example of the README, over five seeds.

    python -m studies.readme_example     # studies/results/readme-example.json

The example uses the defaults of everything that it does not name, so nothing is tuned.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import fedaux
from fedaux.core.io import write_atomically

RECORD = Path(__file__).parent / "results" / "readme-example.json"
EXAMPLE: dict[str, Any] = {
    "data": "digits",
    "model": "cnn",
    "pretrain": {"epochs": 30, "flip": False},
    "clients": 10,
    "alpha": 0.01,
    "epsilon": 1.0,
    "rounds": 5,
}


def accuracy_of(seed: int, folder: Path) -> float:
    """The accuracy after the last round, as `print(result)` shows it."""
    result = fedaux.run("fedaux", folder, seed=seed, **EXAMPLE)
    assert result.accuracy is not None
    return result.accuracy


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    seeds = range(parser.parse_args().seeds)
    with tempfile.TemporaryDirectory() as folder:
        accuracies = [accuracy_of(seed, Path(folder, str(seed))) for seed in seeds]
    record = {"seeds": list(seeds), "accuracies": accuracies}
    write_atomically(RECORD, f"{json.dumps(record, indent=1)}\n".encode())


if __name__ == "__main__":
    main()
