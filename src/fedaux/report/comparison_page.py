"""The report of several runs side by side: curves with bands over seeds, classes, teachers, privacy and costs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np

from fedaux.data.federated import client_names, open_data, open_public
from fedaux.report.accuracy_section import accuracy_section, percent, statistics_sections
from fedaux.report.arms import ArmResult, find_runs, group
from fedaux.report.facts import recall, seconds, tones
from fedaux.report.line_chart import MAX_CURVES, Line, line_chart
from fedaux.report.page import Figure, HtmlTable, Section, Tile, write_page
from fedaux.report.run_page import FILE, describe_setting, settings_section, write_run_report
from fedaux.report.shapes import bubbles, heat
from fedaux.report.terminal import format_bytes, format_seconds, plural
from fedaux.server.result import FinishedRun
from fedaux.server.run_state import RunState


def write_report(
    *folders: str | Path,
    out: str | Path | None = None,
    cache: Path | None = None,
    target: float | None = None,
    formats: Sequence[str] = ("svg",),
) -> Path:
    """`report.html` of the run in a folder, or of all runs in and below several, side by side; returns its path.

    Args:
        folders: Of runs, or with runs in and below them.
        out: Where the page goes; by default the first folder.
        cache: Of extractors and features, as in `run`.
        target: An accuracy between 0 and 1: after how many rounds does each arm have it? By default that of the second.
        formats: Of the figures beside the page: svg, pdf, png.
    """
    paths = [Path(folder) for folder in folders]
    runs = find_runs(paths)
    if len(runs) == 1 and out is None:
        return write_run_report(runs[0], cache, formats)
    return write_comparison(
        Path(out or paths[0]), f"{plural(len(runs), 'run')} side by side", group(runs), target=target, formats=formats
    )


def write_comparison(
    folder: Path,
    title: str,
    arms: Sequence[ArmResult],
    note: str = "",
    target: float | None = None,
    formats: Sequence[str] = ("svg",),
) -> Path:
    """`report.html` in `folder`, for arms that have at least one finished run each; `note` stands below its title."""
    runs = {arm.label: [FinishedRun(RunState.load(one), one) for one in arm.folders] for arm in arms}
    makers = (accuracy_section, _split, _classes, _teachers, _privacy, _costs, _runs)
    sections = [section for make in makers if (section := make(arms, runs, folder)) is not None]
    sections[1:1] = statistics_sections(arms, target)
    config = next(iter(runs.values()))[0].state.config
    sections.append(
        settings_section(f"Of {arms[0].label}, first seed: every key that differs from its default.", config)
    )
    subtitle = f"{config.data.source} · {describe_setting(config).rpartition(' · ')[0]}"  # seeds vary
    subtitle += f" · {note}" if note else ""
    warnings = [f"{arm.label}: {text}" for arm in arms for text in (arm.note, arm.warning) if text]
    return write_page(folder / FILE, title, subtitle, _tiles(arms, runs), sections, formats=formats, warnings=warnings)


Runs = dict[str, list[FinishedRun]]


def _tiles(arms: Sequence[ArmResult], runs: Runs) -> list[Tile]:
    ranked = sorted(arms, key=lambda arm: -float(arm.curves[:, -1].mean()))
    best = Tile(percent(ranked[0].curves[:, -1]), f"{ranked[0].label}, the best after the last round")
    tiles = [best]
    if len(ranked) > 1:
        tiles.append(Tile(percent(ranked[1].curves[:, -1]), f"{ranked[1].label}, the next"))
    total = sum(seconds(one.state) for results in runs.values() for one in results)
    count = sum(map(len, runs.values()))
    return [
        *tiles,
        Tile(str(count), f"{'run' if count == 1 else 'runs'}, {plural(max(map(len, runs.values())), 'seed')}"),
        Tile(format_seconds(total), "in all"),
    ]


def _split(arms: Sequence[ArmResult], runs: Runs, folder: Path) -> Section | None:
    configs = [results[0].state.config for results in runs.values()]
    first = configs[0]
    if first.data.partition == "own" or any((one.data, one.seed) != (first.data, first.seed) for one in configs):
        return None  # sites keep it to themselves; arms that split differently have no one picture
    try:
        data = open_data(first)
    except (ValueError, OSError, ImportError):
        return None
    caption = f"{plural(len(data.private), 'private record')}, split of seed {first.seed}; area is a number of records."
    chart = partial(bubbles, data.counts(), client_names(first), data.classes)
    return Section("split", "Data split", "", [Figure(chart, caption, file="split")])


def _classes(arms: Sequence[ArmResult], runs: Runs, folder: Path) -> Section | None:
    """Mean over seeds of the last round's accuracy on each class."""
    tables = {label: [recall(one.state) for one in results] for label, results in runs.items()}
    sizes = {len(one) for each in tables.values() for one in each}
    if len(sizes) != 1 or max(sizes) > 100:
        return None
    try:
        classes = open_public(next(iter(runs.values()))[0].state.config).classes
    except (ValueError, OSError, ImportError):
        classes = tuple(map(str, range(max(sizes))))
    shares = np.array([np.mean(each, axis=0) for each in tables.values()])
    text = "Accuracy on each class after the last round, in %. A collapsed model knows few of them."
    return Section(
        "classes", "Classes", text, [Figure(partial(heat, shares, list(tables), classes, "", "class"), file="classes")]
    )


def _teachers(arms: Sequence[ArmResult], runs: Runs, folder: Path) -> Section | None:
    tone, lines = tones([arm.label for arm in arms]), []
    for label, results in runs.items():
        curves = [[result.effective_teachers or 0 for result in one.state.history] for one in results]
        if all(all(curve) for curve in curves) and len({len(curve) for curve in curves}) == 1:
            lines.append(Line(label, np.mean(curves, axis=0).tolist(), tone[label]))
    if not lines or len(lines) > MAX_CURVES:
        return None
    text = (
        "Mean over the public examples; with uniform weights it is the number of teachers: clients, or FedBE's draws."
    )
    return Section(
        "teachers",
        "Effective teachers",
        text,
        [Figure(partial(line_chart, lines, "round", "effective number of teachers"))],
    )


def _privacy(arms: Sequence[ArmResult], runs: Runs, folder: Path) -> Section:
    labels: dict[str, list[str]] = {}
    for label, results in runs.items():
        labels.setdefault(results[0].statement, []).append(label)
    rows = [(", ".join(names), statement) for statement, names in labels.items()]
    return Section("privacy", "Privacy", table=HtmlTable(("", "statement of the first seed"), rows))


def _costs(arms: Sequence[ArmResult], runs: Runs, folder: Path) -> Section:
    rows = []
    for label, results in runs.items():
        history = [result for one in results for result in one.state.history]
        sent = sum(result.bytes_sent for result in history) / len(results)
        received = sum(result.bytes_received for result in history) / len(results)
        failed = sum(len(result.failures) for result in history)
        mean = float(np.mean([seconds(one.state) for one in results]))
        rows.append((label, format_seconds(mean), format_bytes(sent), format_bytes(received), str(failed)))
    head = ("mean of a run", "time", "to clients", "from clients", "failures, all seeds")
    text = "Times include preparation; extractors from the cache cost nothing."
    return Section("costs", "Time and communication", text, table=HtmlTable(head, rows))


def _runs(arms: Sequence[ArmResult], runs: Runs, folder: Path) -> Section:
    rows = [
        (label, str(one.state.config.seed), f"{100 * one.accuracy:.1f} %", str(_relative(one.folder, folder)))
        for label, results in runs.items()
        for one in results
    ]
    text = "The command fedaux report FOLDER makes a page of its own for any of them."
    return Section("runs", "Runs", text, table=HtmlTable(("", "seed", "accuracy", "folder"), rows))


def _relative(path: Path, folder: Path) -> Path:
    return path.relative_to(folder) if path.is_relative_to(folder) else path
