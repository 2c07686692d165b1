"""Draws images/epsilon.svg: accuracy of the private head against ε, for 20, 80 and
10,000 clients, next to methods without protection.

It reads what `python -m studies.secure_sums studies/published.toml` and `python -m
studies.encoders` have measured.
"""

import numpy as np
from drawing import Panel, charts, read_record, write_pictures

from fedaux.report.charts import Line, LineChart

EPSILONS = (0.1, 0.3, 1.0, 3.0)
RECORDS = 50_000
HEIGHT = 250.0


RIDGE = ("ridge", 1, "ridge, one exchange, unprotected", "t2")


def panels() -> list[Panel]:
    local = "private head, local noise"
    few = [
        _private("secure, 20 sites", "private head, secure sum", "hero", best=True),
        _private("local, 20, class moments", local, "t0"),
        _unprotected(*RIDGE),
        _unprotected("SCAFFOLD+P", 20, "SCAFFOLD, 20 rounds, unprotected", "t1"),
        _unprotected("FedAvg+P", 20, "FedAvg, 20 rounds, unprotected", "t3"),
    ]
    many = [
        _private("local, 80, class moments", local, "t0"),
        _unprotected(*RIDGE),
    ]
    devices = [
        _private("local, 10000, class embedding, k = 32", local, "t0"),
        _unprotected(*RIDGE),
    ]
    return [
        _panel(20, "0.01", few, 0.7, 0.9),
        _panel(80, "0.01", many, 0.6, 1.0),
        _panel(10_000, "0.1", devices, 0.0, 1.0),
    ]


def draw() -> str:
    spoken = [f"{panel.headline}: {_spoken(panel.chart)}" for panel in panels()]
    described = (
        "CIFAR-10 on features of EfficientNet-lite0, a published encoder. "
        f"{' '.join(spoken)}"
    )
    return charts("Accuracy against ε", described, panels(), "epsilon_picture.py")


def _panel(
    clients: int, alpha: str, lines: list[Line], bottom: float, top: float
) -> Panel:
    chart = LineChart(
        lines,
        "ε, at δ = 10⁻⁵",
        "test accuracy",
        bottom=bottom,
        top=top,
        percent=True,
        x_values=[f"{epsilon:g}" for epsilon in EPSILONS],
        height=HEIGHT,
    )
    headline = f"{clients:,} clients with {RECORDS // clients:,} images each"
    return Panel(headline, f"CIFAR-10, α = {alpha}, EfficientNet-lite0", chart)


def _private(arm: str, label: str, tone: str, best: bool = False) -> Line:
    """The private head at each ε, mean over splits and draws of noise."""
    draws = read_record("secure-sums-published.json")
    means: list[float] = []
    for epsilon in EPSILONS:
        prefix = f"{arm}|{epsilon:g}|"
        found = [draw[0] for key, draw in draws.items() if key.startswith(prefix)]
        means.append(float(np.mean(found)))
    return Line(label, means, tone, best=best)


def _unprotected(arm: str, rounds: int, label: str, tone: str) -> Line:
    """A method without noise, mean over splits. Ridge is the same for all of them,
    because its sums do not depend on how records are spread.
    """
    cells = read_record("heads-published.json")["cells"]
    runs = [cell for key, cell in cells.items() if key.startswith(f"α = 0.01|{arm}|")]
    accuracy = float(np.mean([run["curve"][rounds - 1] for run in runs]))
    return Line(label, [accuracy], tone, level=True)


def _spoken(chart: LineChart) -> str:
    """The values of all lines, and the axis."""
    parts: list[str] = []
    for line in chart.lines:
        values = ", ".join(f"{100 * value:.1f}" for value in line.values)
        at = "" if line.level else f" at ε = {', '.join(chart.x_values)}"
        parts.append(f"{line.label}, {values} %{at}")
    low, high = chart.limits
    axis = f"The axis goes from {100 * low:.0f} to {100 * high:.0f} %."
    return f"{'; '.join(parts)}. {axis}"


if __name__ == "__main__":
    write_pictures({"epsilon": draw})
