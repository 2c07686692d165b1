"""Draws three pictures of accuracy over rounds, from what was measured: images/demo.svg
(`fedaux demo --seeds 5`), images/whole-networks.svg (`python -m studies.regimes`) and
images/first-rounds.svg (`python -m studies.first_rounds`). `python
docs/curve_pictures.py` writes them again.
"""

import csv
from itertools import groupby

import numpy as np
from drawing import RESULTS, Panel, charts, read_record, write_pictures
from numpy.typing import NDArray

from fedaux.config.methods import find_method
from fedaux.report.charts import Line, LineChart
from fedaux.report.comparison_page import tones

SPLITS = range(3)
SCRIPT = "curve_pictures.py"

# The demo: six methods on digits, means over five seeds.

DEMO_EPSILON = 1


def demo() -> str:
    with (RESULTS / "demo.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    by_method = {
        (label, name): list(found)
        for (label, name), found in groupby(
            rows, key=lambda row: (row["label"], row["method"])
        )
    }
    colours = tones([label for label, _ in by_method])
    lines: list[Line] = []
    for (label, name), found in by_method.items():
        rounds = sorted({int(row["round"]) for row in found})
        accuracies = [
            [float(row["accuracy"]) for row in found if int(row["round"]) == number]
            for number in rounds
        ]
        curve = [float(np.mean(seeds)) for seeds in accuracies]
        method = find_method(name)
        protected = f"scores at ε = {DEMO_EPSILON}" if method.scores else "unprotected"
        if method.sends == "releases":
            protected = f"all but size at ε = {DEMO_EPSILON}"
        lines.append(
            Line(
                f"{label} ({protected})",
                curve[-1:] if method.analytic else curve,
                colours[label],
                level=method.analytic,
            )
        )
    chart = LineChart(
        lines,
        "round",
        "test accuracy",
        top=1.0,
        percent=True,
        x_values=[str(number) for number in range(6)],
    )
    words = "10 clients, α = 0.01. Dashed: one exchange"
    spoken = [f"{line.label}, {100 * line.values[-1]:.1f} %" for line in lines]
    described = (
        "Test accuracy after five rounds on digits with ten clients, means of five "
        f"seeds, and what of the clients is protected: {'; '.join(spoken)}."
    )
    panel = Panel("Six methods on digits, five seeds", words, chart)
    return charts("Accuracy over rounds of the demo", described, [panel], SCRIPT)


# Whole networks on CIFAR-10. A mean over splits ends with the shortest of them.

TRAINED = {"FedAUX": "hero", "SCAFFOLD": "t0", "FedAvg": "t3"}
REFERENCES = {
    "ridge": ("ridge, one exchange, unprotected", "t2"),
    "private head": ("private head, one exchange, ε = 1", "t1"),
}


def whole_networks() -> str:
    cells = read_record("regimes-cifar10.json")["cells"]

    def curves_of(arm: str) -> list[list[float]]:
        return [cells[f"α = 0.1|{arm}|{split}"]["curve"] for split in SPLITS]

    lines: list[Line] = []
    spoken: list[str] = []
    for method, tone in TRAINED.items():
        curves = curves_of(method)
        lines += [Line("", curve, f"{tone} faint") for curve in curves]
        shortest = min(map(len, curves))
        mean = np.mean([curve[:shortest] for curve in curves], axis=0).tolist()
        label = f"{method}, mean to round {shortest}"
        lines.append(Line(label, mean, tone, best=method == "FedAUX"))
        spoken.append(f"{method} {100 * mean[-1]:.1f} % in round {shortest}")
    for arm, (label, tone) in REFERENCES.items():
        accuracy = float(np.mean(curves_of(arm)))
        lines.append(Line(label, [accuracy], tone, level=True))
        spoken.append(f"{label}, {100 * accuracy:.1f} %")
    chart = LineChart(
        lines, "round", "test accuracy", bottom=0.1, top=0.7, percent=True
    )
    panel = Panel(
        "Whole networks from the private head", "CIFAR-10, 20 clients, α = 0.1", chart
    )
    described = (
        "Test accuracy on CIFAR-10 with 20 clients and α = 0.1. Thick curves are means "
        f"of three splits, thin curves single splits: {'; '.join(spoken)}."
    )
    return charts("Accuracy over rounds of whole networks", described, [panel], SCRIPT)


# The first rounds from a private head, a panel for each case.

ROUNDS = 10
ARMS = {"start": "start", "before": "before", "FedAUX": "now"}
TONES = {"start": "t3", "before": "t1", "FedAUX": "t0"}


def first_rounds() -> str:
    curves = read_record("first-rounds.json")
    cases = list(dict.fromkeys(key.split("|")[0] for key in curves))
    panels: list[Panel] = []
    spoken: list[str] = []
    for case in cases:
        # the splits on which all three have run
        splits = [
            split
            for split in SPLITS
            if all(f"{case}|{arm}|{split}" in curves for arm in ARMS)
        ]
        means = {
            arm: np.mean([curves[f"{case}|{arm}|{split}"] for split in splits], axis=0)
            for arm in ARMS
        }
        lines = [
            _first_rounds_line(arm, mean.tolist(), "") for arm, mean in means.items()
        ]
        chart = LineChart(
            lines, "round", "test accuracy", top=1.0, percent=True, height=200.0
        )
        data, _, details = case.partition(", ")
        headline = "Fashion-MNIST" if data == "the same" else data
        panels.append(Panel(headline, details, chart))
        spoken.append(_spoken_case(case, means))
    described = (
        "Test accuracy over ten rounds from a private head, with the defaults of "
        f"earlier versions (before) and of today (now). {' '.join(spoken)}"
    )
    legend = [_first_rounds_line(arm, [0.0], label) for arm, label in ARMS.items()]
    title = "The first rounds from a private head"
    return charts(title, described, panels, SCRIPT, columns=2, legend=legend)


def _first_rounds_line(arm: str, values: list[float], label: str) -> Line:
    is_start = arm == "start"
    shown = values[-1:] if is_start else values
    return Line(label, shown, TONES[arm], level=is_start)


def _spoken_case(case: str, means: dict[str, NDArray[np.float64]]) -> str:
    last = {arm: f"{100 * mean[-1]:.1f}" for arm, mean in means.items()}
    return (
        f"{case}: start {last['start']}, before {last['before']}, now "
        f"{last['FedAUX']} %."
    )


PICTURES = {
    "demo": demo,
    "whole-networks": whole_networks,
    "first-rounds": first_rounds,
}

if __name__ == "__main__":
    write_pictures(PICTURES)
