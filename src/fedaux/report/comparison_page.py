"""The report of several runs side by side: curves with bands over seeds, classes,
teachers, privacy and costs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedaux.config.method_facts import protection
from fedaux.config.methods import find_method
from fedaux.config.schema import Config
from fedaux.core.metrics import format_percent
from fedaux.data.federated import client_names, open_data, open_public
from fedaux.report.arm_tables import Cell, summary, tasks
from fedaux.report.arms import ArmResult, find_runs, group, naming_settings
from fedaux.report.charts import MAX_CURVES, Bars, Bubbles, Heat, Line, LineChart
from fedaux.report.model_pages import MAX_CONFUSED
from fedaux.report.page import Figure, Section, Tile, write_page
from fedaux.report.reported_run import recall, seconds
from fedaux.report.run_page import (
    PAGE_FILE,
    data_name,
    describe_setting,
    settings_section,
    write_run_report,
)
from fedaux.report.statistics import (
    HEADER,
    default_target,
    describe_rounds,
    differences,
    rounds_to_target,
)
from fedaux.report.svg import tone
from fedaux.report.tables import MISSING, Table
from fedaux.report.terminal import format_bytes, format_seconds, plural
from fedaux.server.result import FinishedRun
from fedaux.server.run_state import RunState


@dataclass(frozen=True, eq=False)
class _Comparison:
    """Arms with the finished runs of each, by its label, and the folder of the page."""

    arms: Sequence[ArmResult]
    runs: Mapping[str, Sequence[FinishedRun]]
    folder: Path
    target: float | None  # an accuracy; by default the second best's
    verdict: str = ""  # who won, and why

    @property
    def configs(self) -> list[Config]:
        """The settings of the first run of each arm."""
        return [runs[0].state.config for runs in self.runs.values()]

    def ranked(self) -> list[ArmResult]:
        """The arms, best after the last round first."""
        return sorted(self.arms, key=lambda arm: -arm.mean_accuracy)

    def config_of(self, arm: ArmResult) -> Config:
        """The settings of its first run."""
        return self.runs[arm.label][0].state.config

    def is_one_exchange(self, arm: ArmResult) -> bool:
        """Whether its head was computed once, from what all clients sent in the first
        round. If clients send in several rounds, the head changes, and has a curve.
        """
        if not find_method(self.config_of(arm).method).analytic:
            return False
        return bool((arm.curves == arm.curves[:, :1]).all())


def write_report(
    *folders: str | Path,
    out: str | Path | None = None,
    cache: Path | None = None,
    target: float | None = None,
    formats: Sequence[str] = ("svg",),
) -> Path:
    """Write `report.html` for one run, or for several runs side by side.

    Args:
        folders: Folders of runs, or with runs below them.
        out: The folder for the page. By default the first of `folders`.
        cache: The folder of cached extractors and features, as in `run`.
        target: An accuracy, 0 to 1, for the number of rounds each arm needs to reach
            it. By default the second best's.
        formats: Formats of the figures next to the page: svg, pdf, png.

    Returns:
        The path of the page.
    """
    paths = [Path(folder) for folder in folders]
    runs = find_runs(paths)
    if len(runs) == 1 and out is None:
        return write_run_report(runs[0], cache, formats)
    return write_comparison(
        Path(out or paths[0]),
        f"{plural(len(runs), 'run')} side by side",
        group(runs),
        target=target,
        formats=formats,
    )


def write_comparison(
    folder: Path,
    title: str,
    arms: Sequence[ArmResult],
    note: str = "",
    target: float | None = None,
    formats: Sequence[str] = ("svg",),
    verdict: str = "",
) -> Path:
    """Write `report.html` for arms with at least one finished run each. `note` is
    printed below the title, `verdict` above the curves.
    """
    runs = {arm.label: _load_runs(arm) for arm in arms}
    comparison = _Comparison(arms, runs, folder, target, verdict)
    makers = (
        _accuracy,
        _own_settings,
        _differences,
        _rounds_to_target,
        _split,
        _classes,
        _teachers,
        _privacy,
        _costs,
        _runs,
        _settings,
    )
    sections = [make(comparison) for make in makers]
    config = comparison.configs[0]
    setting, _, _seed = describe_setting(config).rpartition(" · ")  # seeds vary
    subtitle = f"{data_name(config)} · {setting}"
    if note:
        subtitle += f" · {note}"
    return write_page(
        folder / PAGE_FILE,
        title,
        subtitle,
        _tiles(comparison),
        sections,
        formats=formats,
        warnings=_warnings(arms),
    )


def _load_runs(arm: ArmResult) -> list[FinishedRun]:
    return [FinishedRun(RunState.load(folder), folder) for folder in arm.folders]


def _warnings(arms: Sequence[ArmResult]) -> list[str]:
    warnings: list[str] = []
    for arm in arms:
        notes = [note for note in (arm.note, arm.warning, arm.fall) if note]
        warnings += [f"{arm.label}: {note}" for note in notes]
    return suggest_once(warnings)


def suggest_once(warnings: Sequence[str]) -> list[str]:
    """Leave out a suggestion that an earlier warning has made."""
    shortened: list[str] = []
    made: set[str] = set()
    for warning in warnings:
        problem, _, suggestion = warning.partition(" First try: ")
        shortened.append(problem if suggestion in made else warning)
        if suggestion:
            made.add(suggestion)
    return shortened


def _tiles(comparison: _Comparison) -> list[Tile]:
    best, *others = comparison.ranked()
    words = f"{best.label}, the best after the last round"
    tiles = [_accuracy_tile(comparison, best, words)]
    if others:
        following = others[0]
        words = f"{following.label}, the next"
        tiles.append(_accuracy_tile(comparison, following, words))
    runs = [run for runs in comparison.runs.values() for run in runs]
    seeds = plural(max(map(len, comparison.runs.values())), "seed")
    noun = "run" if len(runs) == 1 else "runs"
    tiles.append(Tile(str(len(runs)), f"{noun}, {seeds}"))
    total = sum(seconds(run.state) for run in runs)
    tiles.append(Tile(format_seconds(total), "in all"))
    return tiles


def _accuracy_tile(comparison: _Comparison, arm: ArmResult, words: str) -> Tile:
    """Its accuracy, and what of its clients is protected."""
    protected = protection(comparison.config_of(arm))
    if protected == "nothing":
        words += ", unprotected"
    else:
        words += f". Protected: {protected}"
    return Tile(_last_accuracy(arm), words)


def _accuracy(comparison: _Comparison) -> Section:
    """Curves, or bars where there is one round only, and a table in which the best of
    each column is bold.
    """
    arms = comparison.arms
    curves = {arm.label: arm.curves for arm in arms}
    starts = {arm.label: arm.starts for arm in arms}
    accuracy = summary(curves, "", tasks(arms), starts)
    rows: list[tuple[str, ...]] = []
    for arm, (label, *numbers) in zip(arms, accuracy.rows, strict=True):
        cells = [number if number == MISSING else f"{number} %" for number in numbers]
        protected = protection(comparison.config_of(arm))
        rows.append((label, *cells, str(len(arm.curves)), protected))
    table = Table((*accuracy.header, "seeds", "protected"), rows, accuracy.best)
    has_curves = any(
        arm.curves.shape[1] > 1 and not comparison.is_one_exchange(arm) for arm in arms
    )
    figures = list(_curves(comparison)) if has_curves else [_bars(comparison)]
    return Section("accuracy", "Accuracy", comparison.verdict, figures, table)


def _bars(comparison: _Comparison) -> Figure:
    rows = [
        (arm.label, arm.mean_accuracy, _last_accuracy(arm))
        for arm in comparison.ranked()
    ]
    chart = Bars(rows, tones=tones([arm.label for arm in comparison.arms]))
    return Figure(chart, "After the last round.", file="bars")


def _curves(comparison: _Comparison) -> Iterator[Figure]:
    """Where two settings vary, a chart for each value of the second. The method, if it
    is one, comes first.
    """
    arms = comparison.arms
    by_label = {arm.label: arm for arm in arms}
    settings = naming_settings(arms)
    if len(settings) != 2:
        yield _curve_figure(comparison, by_label, "curves")
        return
    curve_setting, chart_setting = settings
    values = dict.fromkeys(arm.labels[chart_setting] for arm in arms)
    if len(values) == len(arms):  # one curve each: they belong into one chart
        yield _curve_figure(comparison, by_label, "curves")
        return
    for value in values:
        shown = {
            arm.labels[curve_setting]: arm
            for arm in arms
            if arm.labels[chart_setting] == value
        }
        words = f"{chart_setting} {value.split(' = ')[-1]}"
        name = re.sub(r"[^\w.+]+", "-", words, flags=re.ASCII).strip("-")
        yield _curve_figure(comparison, shown, f"curves-{name}", value)


def _curve_figure(
    comparison: _Comparison,
    arms: Mapping[str, ArmResult],
    file: str,
    title: str = "",
) -> Figure:
    ranked = sorted(arms, key=lambda label: -arms[label].mean_accuracy)
    shown = set(ranked[:MAX_CURVES])
    colours = tones(list(arms))
    pretrained = any(label.endswith("+P") for label in arms)
    has_start = any(arms[label].starts for label in shown)
    lines: list[Line] = []
    for label, arm in arms.items():
        if label not in shown:
            continue
        best = len(arms) > 1 and label == ranked[0]
        if comparison.is_one_exchange(arm):
            lines.append(_level_line(arm, label, colours[label], best))
            continue
        curves = _with_start(arm)
        mean = curves.mean(axis=0).tolist()
        from_random = not label.endswith("+P") and colours[label] != "hero"
        thin = pretrained and from_random
        offset = 0 if arm.starts or not has_start else 1
        line = Line(label, mean, colours[label], thin, _spread(curves), best, offset)
        lines.append(line)
    caption = f"{title}. " if title else ""
    caption += _curve_caption(lines, arms.values())
    x_values: list[str] = []
    if has_start:
        caption += " Round 0 is the start."
        last = max(line.offset + len(line.values) for line in lines) - 1
        x_values = [str(number) for number in range(last + 1)]
    chart = LineChart(
        lines, "round", "test accuracy", top=1.0, percent=True, x_values=x_values
    )
    return Figure(chart, caption, file=file, title=title)


def _level_line(arm: ArmResult, label: str, tone: str, best: bool) -> Line:
    """What one exchange has reached, next to the curves of methods that train."""
    name = f"{label}, one exchange"
    return Line(name, [arm.mean_accuracy], tone, best=best, level=True)


def _with_start(arm: ArmResult) -> NDArray[np.float64]:
    """The curves of an arm, from round 0 on where that was measured."""
    if not arm.starts:
        return arm.curves
    return np.column_stack([arm.starts, arm.curves])


def _spread(curves: NDArray[np.float64]) -> Sequence[float]:
    """The standard deviation over seeds in each round."""
    if len(curves) == 1:
        return ()
    spread: list[float] = curves.std(axis=0, ddof=1).tolist()
    return spread


def _curve_caption(lines: Sequence[Line], arms: Iterable[ArmResult]) -> str:
    arms = list(arms)
    several_seeds = any(len(arm.curves) > 1 for arm in arms)
    caption = "Mean over seeds." if several_seeds else "One seed."
    if several_seeds:
        caption += " Bands are ± one standard deviation"
        if len(lines) > 2:
            caption += ", and a band appears when you point at its curve"
        caption += "."
    if any(line.thin for line in lines):
        caption += " Thin: from random weights, thick: pre-trained on auxiliary data."
    if any(line.level for line in lines):
        caption += " Dashed and level: computed from one exchange, without training."
    if len(lines) < len(arms):
        caption += (
            f" The {len(lines)} best of {len(arms)} after the last round, while the "
            "table has all of them."
        )
    return caption


def tones(labels: Sequence[str]) -> dict[str, str]:
    """Return a style-sheet class per label: FedAUX has the same colour on all pages, +P
    the colour of its method.
    """
    colours: dict[str, str] = {}
    for label in labels:
        method = label.removesuffix("+P")
        if method == "FedAUX":
            colours[method] = "hero"
        elif method not in colours:
            colours[method] = tone(len(colours.keys() - {"FedAUX"}))
    return {label: colours[label.removesuffix("+P")] for label in labels}


def _differences(comparison: _Comparison) -> Section | None:
    """Differences paired by seed, where there are seeds enough."""
    pairs = differences(comparison.arms)
    if not pairs:
        return None
    best = ", ".join(dict.fromkeys(pair.reference for pair in pairs))
    words = (
        f"Accuracy after the last round less that of {best}, paired by seed: the same "
        "seed has the same split and the same start. Intervals and p-values are "
        "Student's, and p is corrected for the number of comparisons (Holm). They "
        "speak of other seeds of this setting, not of other data."
    )
    table = Table(HEADER, [pair.cells() for pair in pairs])
    return Section("differences", "Differences", words, table=table)


def _rounds_to_target(comparison: _Comparison) -> Section | None:
    arms = comparison.arms
    if len(arms) == 1 or arms[0].curves.shape[1] == 1:
        return None
    target = comparison.target
    why = ""
    if target is None:
        target = default_target(arms)
        why = ", which is what the second best has after the last round"
    rows: list[tuple[str, str]] = []
    for arm in arms:
        reached = rounds_to_target(arm.curves, target)
        rows.append((arm.label, describe_rounds(reached)))
    words = f"The first round with a test accuracy of at least {100 * target:g} %{why}."
    table = Table(("", "rounds"), rows)
    return Section("target", "Rounds to a target", words, table=table)


def _split(comparison: _Comparison) -> Section | None:
    first, *others = comparison.configs
    if first.data.partition == "own":  # sites keep it to themselves
        return None
    if any((other.data, other.seed) != (first.data, first.seed) for other in others):
        return None  # arms that split differently have no one picture
    try:
        data = open_data(first)
    except (ValueError, OSError, ImportError):
        return None
    caption = (
        f"{plural(len(data.private), 'private record')}, split of seed {first.seed}, "
        "where area is a number of records."
    )
    chart = Bubbles(data.counts(), client_names(first), data.classes)
    return Section("split", "Data split", "", [Figure(chart, caption, file="split")])


def _classes(comparison: _Comparison) -> Section | None:
    """Mean over seeds of the last round's accuracy on each class."""
    recalls = {
        label: [recall(run.state) for run in runs]
        for label, runs in comparison.runs.items()
    }
    sizes = {len(values) for arm in recalls.values() for values in arm}
    if len(sizes) != 1 or max(sizes) > MAX_CONFUSED:
        return None
    try:
        classes = open_public(comparison.configs[0]).classes
    except (ValueError, OSError, ImportError):
        classes = tuple(map(str, range(max(sizes))))
    shares = np.array([np.mean(values, axis=0) for values in recalls.values()])
    words = (
        "Accuracy on each class after the last round, in %. A collapsed model knows "
        "few of them."
    )
    chart = Heat(shares, list(recalls), classes, "", "class")
    return Section("classes", "Classes", words, [Figure(chart, file="classes")])


def _teachers(comparison: _Comparison) -> Section | None:
    colours = tones([arm.label for arm in comparison.arms])
    lines: list[Line] = []
    for label, runs in comparison.runs.items():
        curves = [_effective_teachers(run) for run in runs]
        same_length = len({len(curve) for curve in curves}) == 1
        if same_length and all(map(all, curves)):
            mean = np.mean(curves, axis=0).tolist()
            lines.append(Line(label, mean, colours[label]))
    if not lines or len(lines) > MAX_CURVES:
        return None
    words = (
        "Mean over the public examples. With uniform weights it is the number of "
        "teachers: clients, or FedBE's draws."
    )
    chart = LineChart(lines, "round", "effective number of teachers", height=240.0)
    return Section("teachers", "Effective teachers", words, [Figure(chart)])


def _effective_teachers(run: FinishedRun) -> list[float]:
    """Of each round, or 0 for one without distillation."""
    return [result.effective_teachers or 0 for result in run.state.history]


def _privacy(comparison: _Comparison) -> Section:
    labels: dict[str, list[str]] = {}
    for label, runs in comparison.runs.items():
        labels.setdefault(runs[0].statement, []).append(label)
    rows = [(", ".join(names), statement) for statement, names in labels.items()]
    table = Table(("", "statement of the first seed"), rows)
    return Section("privacy", "Privacy", table=table)


def _costs(comparison: _Comparison) -> Section:
    rows: list[tuple[str, ...]] = []
    for label, runs in comparison.runs.items():
        history = [result for run in runs for result in run.state.history]
        sent = sum(result.bytes_sent for result in history)
        received = sum(result.bytes_received for result in history)
        failed = sum(len(result.failures) for result in history)
        mean_seconds = float(np.mean([seconds(run.state) for run in runs]))
        row = (
            label,
            format_seconds(mean_seconds),
            format_bytes(sent / len(runs)),
            format_bytes(received / len(runs)),
            str(failed),
        )
        rows.append(row)
    header = ("mean of a run", "time", "to clients", "from clients")
    table = Table((*header, "failures, all seeds"), rows)
    words = "Times include preparation, but extractors from the cache cost nothing."
    return Section("costs", "Time and communication", words, table=table)


def _own_settings(comparison: _Comparison) -> Section | None:
    """What a label leaves out of an arm's settings, as after tuning."""
    rows: list[tuple[str, str]] = []
    for arm in comparison.arms:
        left_out = [
            f"{key} = {value}"
            for key, value in arm.settings.items()
            if key not in arm.labels
        ]
        rows.append((arm.label, ", ".join(left_out)))
    if not any(settings for _, settings in rows):
        return None
    words = "The settings in which the methods differ from one another."
    table = Table(("", "settings"), rows)
    return Section("tuned", "Each with different settings", words, table=table)


def _runs(comparison: _Comparison) -> Section:
    rows: list[tuple[str, ...]] = []
    for label, runs in comparison.runs.items():
        for run in runs:
            seed = str(run.state.config.seed)
            accuracy = format_percent(run.curve[-1])
            folder = str(_relative(run.folder, comparison.folder))
            rows.append((label, seed, accuracy, folder))
    table = Table(("", "seed", "accuracy", "folder"), rows)
    words = "The command fedaux report FOLDER makes a page for any of them."
    return Section("runs", "Runs", words, table=table)


def _settings(comparison: _Comparison) -> Section:
    label = comparison.arms[0].label
    words = f"Of {label}, first seed: every key that differs from its default."
    return settings_section(words, comparison.configs[0])


def _last_accuracy(arm: ArmResult) -> str:
    last: NDArray[np.float64] = arm.curves[:, -1]
    return f"{Cell.of(last)} %"


def _relative(path: Path, folder: Path) -> Path:
    return path.relative_to(folder) if path.is_relative_to(folder) else path
