"""What is left of the scores after distillation: whole runs of linear heads on frozen
features, over scorers.

    python -m studies.distilled studies/cifar10.toml --clients 80 20 --splits 3 --draws 3

One line per run in the results file; a run that is there is not run again.
"""

from __future__ import annotations

import json
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from fedaux.config.distillation import TeachersConfig
from fedaux.config.schema import Config
from fedaux.runs.runner import run
from studies.scorers import BASE, REFERENCES, from_command_line, over_splits

# distillation rates: the paper's, and one that linear heads can follow
PAPER = 5e-5
FAST = 1e-3
ONE = replace(BASE, epsilon=1.0)
STANDING = TeachersConfig(standing=True)
# name: (method, settings, is there noise to draw again)
ARMS: dict[str, tuple[str, dict[str, object], bool]] = {
    "FedAvg+P": ("fedavg+p", {}, False),
    "FedDF+P": ("feddf+p", {}, False),
    "FedAUX, paper literal": (
        "fedaux",
        {
            "privacy": replace(REFERENCES, scorer="studies.references:paper_literal"),
            "teachers": TeachersConfig(weights="certainty"),
        },
        False,
    ),
    "FedAUX, logistic, repaired": (
        "fedaux",
        {"privacy": replace(BASE, scorer="logistic", ridge=0.03)},
        True,
    ),
    "FedAUX, class embedding": ("fedaux", {"privacy": BASE}, True),
    "the same, ε = 1": ("fedaux", {"privacy": ONE}, True),
    "the same, ε = 1, standing teachers": (
        "fedaux",
        {"privacy": ONE, "teachers": STANDING},
        True,
    ),
    "the same, private-head start": (
        "fedaux",
        {"privacy": BASE, "head_init": "private-head"},
        False,
    ),
    "the same, ε = 1, private-head start": (
        "fedaux",
        {"privacy": replace(BASE, epsilon=1.0), "head_init": "private-head"},
        False,
    ),
    # what scores leave of 1.05
    "the same, ε = .3, private-head start, heads trained at ε = 1": (
        "fedaux",
        {
            "privacy": replace(
                BASE,
                epsilon=0.3,
                epsilon_total=1.05,
                private_training=True,
                sample_rate=0.25,
            ),
            "head_init": "private-head",
        },
        False,  # exact noise is slow: one draw
    ),
    "FedAUX, not private: class embedding": (
        "fedaux",
        {"privacy": replace(REFERENCES, scorer="studies.references:class_noiseless")},
        False,
    ),
    "FedAUX, not private: kernel density": (
        "fedaux",
        {
            "privacy": replace(
                REFERENCES, scorer="studies.references:kde", embedding_dim=64
            )
        },
        False,
    ),
}


def study(
    config: Config, clients: list[int], splits: int, draws: int, path: Path
) -> dict[str, list[float]]:
    """{`clients|arm|rate|split|draw`: accuracy after each round}."""
    found: dict[str, list[float]] = (
        json.loads(path.read_text()) if path.is_file() else {}
    )
    path.parent.mkdir(exist_ok=True)
    for count, name, rate, split, draw in _order(clients, splits, draws):
        key = f"{count}|{name}|{rate:g}|{split}|{draw}"
        if key in found:
            continue
        method, settings, _ = ARMS[name]
        one = replace(
            config,
            method=method,
            head_only=True,
            head_features="raw",  # as its tables were made
            seed=split,
            data=replace(config.data, clients=count),
            distill=replace(config.distill, lr=rate),
            **settings,  # type: ignore[arg-type]
        )
        with tempfile.TemporaryDirectory() as folder:
            found[key] = run(one, folder).curve
        path.write_text(json.dumps(found, indent=0))
        print(
            key,
            np.round([found[key][0], found[key][-1], max(found[key])], 3),
            flush=True,
        )
    return found


def _order(
    clients: list[int], splits: int, draws: int
) -> Iterator[tuple[int, str, float, int, int]]:
    """What tells most comes first: all arms once, then the paper's rate, then more
    draws of the noise.
    """
    fast = [
        (count, name, FAST, split)
        for split in range(splits)
        for count in clients
        for name in ARMS
    ]
    yield from ((*one, 0) for one in fast)
    yield from (
        (count, name, PAPER, 0, 0)
        for count in clients
        for name in ARMS
        if ARMS[name][0] != "fedavg+p"
    )
    yield from (
        (*one, draw) for draw in range(1, draws) for one in fast if ARMS[one[1]][2]
    )


def table(found: dict[str, list[float]]) -> str:
    """Accuracy after the last round, and the number of runs."""
    parts = [key.split("|") for key in found]
    columns = sorted({(int(p[0]), float(p[2])) for p in parts}, reverse=True)
    lines = [
        "| |" + "".join(f" {count} clients, rate {rate:g} |" for count, rate in columns)
    ]
    lines.append("| --- |" + " --- |" * len(columns))
    for name in ARMS:
        cells = []
        for count, rate in columns:
            last = defaultdict[str, list[float]](list)
            for p in parts:
                if (int(p[0]), p[1], float(p[2])) == (count, name, rate):
                    last[p[3]].append(found["|".join(p)][-1])
            cells.append(
                f"{over_splits(last)} ({sum(map(len, last.values()))})" if last else ""
            )
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    from_command_line("distilled", study, table, __doc__ or "")
