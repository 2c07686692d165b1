"""Draws images/epsilon.svg: accuracy against ε on a published encoder, after one
exchange and after twenty rounds.

It reads what `python -m studies.secure_sums studies/published.toml` and `python -m
studies.encoders` have measured.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np

from fedaux.report.charts import Line, LineChart
from fedaux.report.svg import tone
from fedaux.report.terminal import plural

DOCS = Path(__file__).resolve().parent
RESULTS = DOCS.parent / "studies" / "results"
EPSILONS = (0.1, 0.3, 1.0, 3.0)
CASE = "α = 0.01"
HEADS = {
    "secure, 20 sites": "private head, secure sum",
    "local, 20, class moments": "private head, local noise",
}
# arms and rounds
FLAT = (
    ("ridge", 1),
    ("SCAFFOLD+P", 20),
    ("FedAvg+P", 20),
    ("FedAvg+P", 1),
)
SPOKEN = """<title>Accuracy against ε</title>
<desc>CIFAR-10 on a published encoder: the private head at four ε, beside methods without protection.</desc>"""


def main() -> None:
    lines = _private_lines() + _unprotected_lines()
    chart = LineChart(
        lines,
        "ε",
        "test accuracy, CIFAR-10",
        top=1.0,
        percent=True,
        x_values=[f"{epsilon:g}" for epsilon in EPSILONS],
    )
    drawing = chart.svg().standalone()
    spoken = drawing.replace("<style>", f"{SPOKEN}<style>", 1)
    (DOCS / "images" / "epsilon.svg").write_text(spoken, encoding="utf-8")


def _private_lines() -> list[Line]:
    """A curve for each way to add noise."""
    heads = _read("secure-sums-published.json")
    lines: list[Line] = []
    for i, (arm, label) in enumerate(HEADS.items()):
        means: list[float] = []
        for epsilon in EPSILONS:
            prefix = f"{arm}|{epsilon:g}|"
            draws = [draw[0] for key, draw in heads.items() if key.startswith(prefix)]
            means.append(float(np.mean(draws)))
        lines.append(Line(label, means, f"{tone(i)} m0", best=i == 0))
    return lines


def _unprotected_lines() -> list[Line]:
    """A level line for each method without protection."""
    cells = _read("heads-published.json")["cells"]
    lines: list[Line] = []
    for i, (arm, rounds) in enumerate(FLAT, len(HEADS)):
        runs = [cell for key, cell in cells.items() if f"{CASE}|{arm}|" in key]
        accuracy = float(np.mean([run["curve"][rounds - 1] for run in runs]))
        method = arm.removesuffix("+P")
        label = f"{method}, {plural(rounds, 'round')}, unprotected"
        level = [accuracy] * len(EPSILONS)
        lines.append(Line(label, level, tone(i), thin=True))
    return lines


def _read(name: str) -> dict[str, Any]:
    results: dict[str, Any] = json.loads((RESULTS / name).read_text(encoding="utf-8"))
    return results


if __name__ == "__main__":
    main()
