"""Draws images/epsilon.svg: accuracy against ε on a published encoder, after one
exchange and after twenty rounds.

It reads what `python -m studies.secure_sums studies/published.toml` and `python -m
studies.encoders` have measured.
"""

import json
from pathlib import Path

import numpy as np

from fedaux.report.charts import Line, LineChart
from fedaux.report.svg import tone

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
    ("FedPFT", 1),
    ("FedAVG+P", 20),
    ("FedAVG+P", 1),
)
SPOKEN = """<title>Accuracy against ε</title>
<desc>CIFAR-10 on a published encoder: the private head at four ε, beside methods without protection.</desc>"""


def main() -> None:
    heads = json.loads(
        (RESULTS / "secure-sums-published.json").read_text(encoding="utf-8")
    )
    cells = json.loads((RESULTS / "heads-published.json").read_text(encoding="utf-8"))[
        "cells"
    ]

    def private(arm: str) -> list[float]:
        each = [
            [
                value[0]
                for key, value in heads.items()
                if key.startswith(f"{arm}|{e:g}|")
            ]
            for e in EPSILONS
        ]
        return [float(np.mean(values)) for values in each]

    def unprotected(arm: str, rounds: int) -> float:
        return float(
            np.mean(
                [
                    cell["curve"][rounds - 1]
                    for key, cell in cells.items()
                    if f"{CASE}|{arm}|" in key
                ]
            )
        )

    lines = [
        Line(label, private(arm), f"{tone(i)} m0", best=i == 0)
        for i, (arm, label) in enumerate(HEADS.items())
    ]
    for i, (arm, rounds) in enumerate(FLAT, len(HEADS)):
        label = (
            f"{arm.removesuffix('+P')}, {rounds} round{'s' * (rounds > 1)}, unprotected"
        )
        lines.append(
            Line(label, [unprotected(arm, rounds)] * len(EPSILONS), tone(i), thin=True)
        )
    values = [f"{epsilon:g}" for epsilon in EPSILONS]
    chart = LineChart(
        lines, "ε", "test accuracy, CIFAR-10", top=1.0, percent=True, x_values=values
    )
    text = chart.svg().standalone().replace("<style>", f"{SPOKEN}<style>", 1)
    (DOCS / "images" / "epsilon.svg").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
