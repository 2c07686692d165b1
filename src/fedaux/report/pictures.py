"""Pictures of a split and of learning curves, drawn without a display."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from fedaux.algorithms.run_state import RunState
from fedaux.config.methods import find_method
from fedaux.data.federated import FederatedData
from fedaux.report.layout import spread_out
from fedaux.scoring.planner import Planner

_INK, _FAINT = "#22303c", "#d9dee3"
_HERO = "#c8102e"
_COLOURS = {"FedAVG": "#6b7785", "FedPROX": "#8c6bb1", "FedDF": "#1f78b4", "FedBE": "#33a02c", "FedAUX": _HERO}


def draw_run(data: FederatedData | None, state: RunState, folder: Path) -> list[Path]:
    """The split, where anybody knows it, and the curve of one run; with several prototypes, a curve of each."""
    pictures = [folder / "split.png", folder / "curves.png"]
    config, label = state.config, find_method(state.config.method).label
    title = f"{label}, {config.data.source}: {config.data.clients} clients, {config.data.partition}"
    if data is None:
        pictures.pop(0)
    else:
        draw_split(data.counts(), data.classes, pictures[0], title)
    names = list(state.weights)
    curves = {
        name if len(names) > 1 else label: np.array([[r.accuracy[name] for r in state.history]]) for name in names
    }
    draw_curves(curves, pictures[-1], title)
    return pictures


def draw_split(counts: NDArray[np.int64], classes: Sequence[str], path: Path, title: str) -> None:
    """Who holds what: a disc for each client (column) and class (row), its area the number of records."""
    clients = len(counts)
    figure, axes = _figure((min(24.0, max(5.0, 0.42 * clients + 2.2)), min(24.0, 0.34 * len(classes) + 1.6)))
    client, label = np.nonzero(counts)
    axes.scatter(
        client, label, s=420 * counts[client, label] / counts.max(), c=label, cmap="tab10", vmin=0, vmax=9.5, alpha=0.9
    )
    axes.set(xlabel="client", ylabel="class", xlim=(-0.7, clients - 0.3), ylim=(-0.7, len(classes) - 0.3))
    axes.set_xticks(range(0, clients, max(1, clients // 20)))
    axes.set_yticks(range(len(classes)), classes)
    axes.grid(color=_FAINT, linewidth=0.6)
    axes.set_title(title, loc="left", fontsize=11, color=_INK)
    _save(figure, path)


def draw_curves(curves: Mapping[str, NDArray[np.float64]], path: Path, title: str) -> None:
    """Test accuracy over rounds, one line per method: mean over seeds (rows), with a band of ± one standard deviation.

    Pre-trained methods are solid, the others dotted; names stand at the ends of their lines.
    """
    figure, axes = _figure((8.4, 4.8))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    ends: list[tuple[float, str, str]] = []
    for label, values in curves.items():
        base = label.removesuffix("+P")
        colour, hero = _COLOURS.get(base, f"C{len(ends)}"), base == "FedAUX"
        rounds, mean = np.arange(1, values.shape[1] + 1), values.mean(axis=0)
        style = "-" if hero or label.endswith("+P") else ":"
        marker = "o" if len(mean) == 1 else None  # a single point has no line
        axes.plot(
            rounds, mean, style, marker=marker, color=colour, linewidth=2.8 if hero else 1.6, zorder=3 if hero else 2
        )
        if len(values) > 1:
            spread = values.std(axis=0, ddof=1)
            axes.fill_between(rounds, mean - spread, mean + spread, color=colour, alpha=0.12, linewidth=0)
        ends.append((float(mean[-1]), label, colour))
    last = max(values.shape[1] for values in curves.values())
    axes.set(xlabel="round", ylabel="test accuracy", xlim=(1, max(2, last)), ylim=(0, 1))
    if any(label.endswith("+P") for label in curves):
        axes.set_xlabel("round  (solid: pre-trained on auxiliary data, dotted: from random weights)")
    for height, label, colour in spread_out(ends, gap=0.038):
        axes.annotate(
            label, (last, height), xytext=(6, 0), textcoords="offset points", va="center", color=colour, fontsize=9
        )
    axes.grid(color=_FAINT, linewidth=0.6)
    axes.set_title(title, loc="left", fontsize=11, color=_INK)
    figure.subplots_adjust(right=0.86)
    _save(figure, path)


def draw_pretraining(curve: Sequence[Mapping[str, Any]], path: Path, title: str) -> None:
    """What an extractor's card says of its epochs: the loss, and how good the features are without any label."""
    figure = Figure(figsize=(9.6, 3.2), layout="constrained")
    FigureCanvasAgg(figure)
    epochs = [one["epoch"] for one in curve]
    panels = {"loss": [one["loss"] for one in curve]}
    panels |= {name: [one["quality"][name] for one in curve] for name in ("alignment", "uniformity", "rank")}
    for axes, (name, values) in zip(figure.subplots(1, 4), panels.items(), strict=True):
        axes.plot(epochs, values, color=_HERO if name == "loss" else "#1f78b4", linewidth=1.8)
        axes.set_title(name, loc="left", fontsize=10, color=_INK)
        axes.set_xlabel("epoch")
        axes.grid(color=_FAINT, linewidth=0.6)
        axes.spines[["top", "right"]].set_visible(False)
    figure.suptitle(title, x=0.01, ha="left", fontsize=11, color=_INK)
    _save(figure, path)


def draw_plan(planner: Planner, records: int, epsilon: float, path: Path) -> None:
    """What is left of the signal over ε, for a quarter, once and four times as many records."""
    figure, axes = _figure((7.6, 4.4))
    epsilons = [float(e) for e in np.geomspace(0.02, 10, 12)]
    for factor, colour in ((0.25, "#a9b4bf"), (1, _HERO), (4, "#1f78b4")):
        count = max(1, round(factor * records))
        kept, width = planner.curve(epsilons, count), 2.4 if factor == 1 else 1.6
        axes.plot(epsilons, kept, color=colour, linewidth=width, label=f"{count:,} records")
    axes.axvline(epsilon, color=_FAINT, zorder=0)
    axes.set(xscale="log", xlabel="ε of a client's scores", ylabel="share of the noiseless signal", ylim=(0, 1.05))
    axes.set_xticks([0.03, 0.1, 0.3, 1, 3, 10], ["0.03", "0.1", "0.3", "1", "3", "10"])
    axes.minorticks_off()
    axes.legend(loc="lower right", frameon=False)
    axes.grid(color=_FAINT, linewidth=0.6)
    axes.set_title(
        f"{planner.clients} clients, δ = {planner.privacy.delta:g}, {planner.privacy.adjacency}",
        loc="left",
        fontsize=11,
    )
    _save(figure, path)


def _figure(size: tuple[float, float]) -> tuple[Figure, Axes]:
    figure = Figure(figsize=size)
    FigureCanvasAgg(figure)  # no global pyplot state: pictures may be drawn from any thread
    axes = figure.add_subplot()
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_axisbelow(True)
    return figure, axes


def _save(figure: Figure, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150, bbox_inches="tight", facecolor="white")
