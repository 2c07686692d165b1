"""The report of several runs side by side: curves with bands over seeds, classes,
teachers, privacy and costs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedaux.data.federated import client_names, open_data, open_public
from fedaux.report.arms import ArmResult, find_runs, group
from fedaux.report.charts import MAX_CURVES, Bars, Bubbles, Heat, Line, LineChart
from fedaux.report.page import Figure, HtmlTable, Section, Tile, write_page
from fedaux.report.run_page import (
    FILE,
    describe_setting,
    recall,
    seconds,
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
from fedaux.report.tables import Cell, summary, tasks
from fedaux.report.terminal import format_bytes, format_seconds, plural
from fedaux.server.result import FinishedRun
from fedaux.server.run_state import RunState

Runs = Mapping[str, Sequence[FinishedRun]]  # of each arm, by its label


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
        out: The folder for the page; by default the first of `folders`.
        cache: The folder of cached extractors and features, as in `run`.
        target: An accuracy, 0 to 1, for the number of rounds each arm needs to reach
            it; by default the second best's.
        formats: Formats of the figures beside the page: svg, pdf, png.

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
) -> Path:
    """Write `report.html` for arms with at least one finished run each; `note` is
    printed below the title.
    """
    runs = {
        arm.label: [FinishedRun(RunState.load(one), one) for one in arm.folders]
        for arm in arms
    }
    makers = (_accuracy, _split, _classes, _teachers, _privacy, _costs, _runs)
    sections = [
        section for make in makers if (section := make(arms, runs, folder)) is not None
    ]
    sections[1:1] = [*_own_settings(arms), *_statistics(arms, target)]
    config = next(iter(runs.values()))[0].state.config
    sections.append(
        settings_section(
            f"Of {arms[0].label}, first seed: every key that differs from its default.",
            config,
        )
    )
    # seeds vary
    subtitle = f"{config.data.source} · {describe_setting(config).rpartition(' · ')[0]}"
    subtitle += f" · {note}" if note else ""
    warnings = [
        f"{arm.label}: {text}"
        for arm in arms
        for text in (arm.note, arm.warning)
        if text
    ]
    warnings = suggest_once(warnings)
    return write_page(
        folder / FILE,
        title,
        subtitle,
        _tiles(arms, runs),
        sections,
        formats=formats,
        warnings=warnings,
    )


def suggest_once(warnings: Sequence[str]) -> list[str]:
    """Leave out a suggestion that an earlier warning has made."""
    found, made = list[str](), set[str]()
    for text in warnings:
        what, mark, suggestion = text.partition(" First try: ")
        found.append(what if suggestion in made else text)
        made |= {suggestion} if mark else set()
    return found


def _tiles(arms: Sequence[ArmResult], runs: Runs) -> list[Tile]:
    ranked = sorted(arms, key=lambda arm: -float(arm.curves[:, -1].mean()))
    best = Tile(
        _percent(ranked[0].curves[:, -1]),
        f"{ranked[0].label}, the best after the last round",
    )
    tiles = [best]
    if len(ranked) > 1:
        tiles.append(
            Tile(_percent(ranked[1].curves[:, -1]), f"{ranked[1].label}, the next")
        )
    total = sum(seconds(one.state) for results in runs.values() for one in results)
    count = sum(map(len, runs.values()))
    return [
        *tiles,
        Tile(
            str(count),
            (
                f"{'run' if count == 1 else 'runs'}, "
                f"{plural(max(map(len, runs.values())), 'seed')}"
            ),
        ),
        Tile(format_seconds(total), "in all"),
    ]


def _accuracy(arms: Sequence[ArmResult], runs: Runs, folder: Path) -> Section:
    """Curves, or bars where there is one round only, and a table in which the best of
    each column is bold.
    """
    table = summary({arm.label: arm.curves for arm in arms}, "", tasks(arms))
    cells = [
        (label, *(f"{cell} %" for cell in texts), str(len(arm.curves)))
        for arm, (label, *texts) in zip(arms, table.texts(), strict=True)
    ]
    several = any(arm.curves.shape[1] > 1 for arm in arms)
    figures = list(_curves(arms)) if several else [_bars(arms)]
    return Section(
        "accuracy",
        "Accuracy",
        "",
        figures,
        HtmlTable((*table.header, "seeds"), cells, table.best()),
    )


def _bars(arms: Sequence[ArmResult]) -> Figure:
    ranked = sorted(arms, key=lambda arm: -float(arm.curves[:, -1].mean()))
    rows = [
        (arm.label, float(arm.curves[:, -1].mean()), _percent(arm.curves[:, -1]))
        for arm in ranked
    ]
    return Figure(
        Bars(rows, tones=tones([arm.label for arm in arms])),
        "After the last round.",
        file="bars",
    )


def _curves(arms: Sequence[ArmResult]) -> Iterator[Figure]:
    """Where two settings vary, a chart for each value of the second; the method, if it
    is one, comes first.
    """
    keys = sorted(arms[0].labels, key=lambda key: key != "method")
    if len(keys) != 2:
        yield _curve_figure({arm.label: arm for arm in arms}, "curves")
        return
    row, column = keys
    values = dict.fromkeys(arm.labels[column] for arm in arms)
    if len(values) == len(arms):  # one curve each: they belong into one chart
        yield _curve_figure({arm.label: arm for arm in arms}, "curves")
        return
    for value in values:
        name = re.sub(
            r"[^\w.+]+", "-", f"{column} {value.split(' = ')[-1]}", flags=re.ASCII
        ).strip("-")
        chosen = {arm.labels[row]: arm for arm in arms if arm.labels[column] == value}
        yield _curve_figure(chosen, f"curves-{name}", value)


def _curve_figure(arms: Mapping[str, ArmResult], file: str, title: str = "") -> Figure:
    ends = {label: float(arm.curves[:, -1].mean()) for label, arm in arms.items()}
    ranked = sorted(ends, key=lambda label: -ends[label])
    tone, shown = tones(list(arms)), set(ranked[:MAX_CURVES])
    pretrained, several = (
        any(label.endswith("+P") for label in arms),
        any(len(arm.curves) > 1 for arm in arms.values()),
    )
    lines = [
        Line(
            label,
            arm.curves.mean(axis=0).tolist(),
            tone[label],
            thin=pretrained and tone[label] != "hero" and not label.endswith("+P"),
            spread=arm.curves.std(axis=0, ddof=1).tolist()
            if len(arm.curves) > 1
            else (),
            best=len(arms) > 1 and label == ranked[0],
        )
        for label, arm in arms.items()
        if label in shown
    ]
    caption = f"{title}. " if title else ""
    caption += "Mean over seeds." if several else "One seed."
    if several:
        pointed = (
            "; a band appears when you point at its curve." if len(lines) > 2 else "."
        )
        caption += f" Bands are ± one standard deviation{pointed}"
    caption += (
        " Thin: from random weights; thick: pre-trained on auxiliary data."
        if any(line.thin for line in lines)
        else ""
    )
    if len(shown) < len(arms):
        caption += f" The {len(shown)} best of {len(arms)} after the last round; the table has all of them."
    return Figure(
        LineChart(lines, "round", "test accuracy", top=1.0, percent=True),
        caption,
        file=file,
        title=title,
    )


def tones(labels: Sequence[str]) -> dict[str, str]:
    """Return a style-sheet class per label: FedAUX has the same colour on all pages, +P
    the colour of its method.
    """
    found: dict[str, str] = {}
    for label in labels:
        base = label.removesuffix("+P")
        found.setdefault(
            base, "hero" if base == "FedAUX" else tone(len(set(found) - {"FedAUX"}))
        )
    return {label: found[label.removesuffix("+P")] for label in labels}


def _statistics(arms: Sequence[ArmResult], target: float | None) -> list[Section]:
    """Differences paired by seed, where there are seeds enough; rounds to a target."""
    found, sections = differences(arms), []
    if found:
        best = ", ".join(dict.fromkeys(one.reference for one in found))
        text = (
            f"Accuracy after the last round less that of {best}, paired by seed: the "
            "same seed has the same split and the same start. Intervals and p-values "
            "are Student's; p is corrected for the number of comparisons (Holm). They "
            "speak of other seeds of this setting, not of other data."
        )
        rows = [one.cells() for one in found]
        sections.append(
            Section("differences", "Differences", text, table=HtmlTable(HEADER, rows))
        )
    if len(arms) > 1 and arms[0].curves.shape[1] > 1:
        chosen = default_target(arms) if target is None else target
        rows = [
            (arm.label, describe_rounds(rounds_to_target(arm.curves, chosen)))
            for arm in arms
        ]
        why = (
            ""
            if target is not None
            else ", which is what the second best has after the last round"
        )
        text = (
            f"The first round with a test accuracy of at least {100 * chosen:g} %{why}."
        )
        sections.append(
            Section(
                "target",
                "Rounds to a target",
                text,
                table=HtmlTable(("", "rounds"), rows),
            )
        )
    return sections


def _split(arms: Sequence[ArmResult], runs: Runs, folder: Path) -> Section | None:
    configs = [results[0].state.config for results in runs.values()]
    first = configs[0]
    if first.data.partition == "own" or any(
        (one.data, one.seed) != (first.data, first.seed) for one in configs
    ):
        # sites keep it to themselves; arms that split differently have no one picture
        return None
    try:
        data = open_data(first)
    except (ValueError, OSError, ImportError):
        return None
    caption = f"{plural(len(data.private), 'private record')}, split of seed {first.seed}; area is a number of records."
    chart = Bubbles(data.counts(), client_names(first), data.classes)
    return Section("split", "Data split", "", [Figure(chart, caption, file="split")])


def _classes(arms: Sequence[ArmResult], runs: Runs, folder: Path) -> Section | None:
    """Mean over seeds of the last round's accuracy on each class."""
    tables = {
        label: [recall(one.state) for one in results] for label, results in runs.items()
    }
    sizes = {len(one) for each in tables.values() for one in each}
    if len(sizes) != 1 or max(sizes) > 100:
        return None
    try:
        classes = open_public(next(iter(runs.values()))[0].state.config).classes
    except (ValueError, OSError, ImportError):
        classes = tuple(map(str, range(max(sizes))))
    shares = np.array([np.mean(each, axis=0) for each in tables.values()])
    text = "Accuracy on each class after the last round, in %. A collapsed model knows few of them."
    chart = Heat(shares, list(tables), classes, "", "class")
    return Section("classes", "Classes", text, [Figure(chart, file="classes")])


def _teachers(arms: Sequence[ArmResult], runs: Runs, folder: Path) -> Section | None:
    tone, lines = tones([arm.label for arm in arms]), []
    for label, results in runs.items():
        curves = [
            [result.effective_teachers or 0 for result in one.state.history]
            for one in results
        ]
        if (
            all(all(curve) for curve in curves)
            and len({len(curve) for curve in curves}) == 1
        ):
            lines.append(Line(label, np.mean(curves, axis=0).tolist(), tone[label]))
    if not lines or len(lines) > MAX_CURVES:
        return None
    text = (
        "Mean over the public examples; with uniform weights it is the number of "
        "teachers: clients, or FedBE's draws."
    )
    chart = LineChart(lines, "round", "effective number of teachers", height=240.0)
    return Section("teachers", "Effective teachers", text, [Figure(chart)])


def _privacy(arms: Sequence[ArmResult], runs: Runs, folder: Path) -> Section:
    labels: dict[str, list[str]] = {}
    for label, results in runs.items():
        labels.setdefault(results[0].statement, []).append(label)
    rows = [(", ".join(names), statement) for statement, names in labels.items()]
    return Section(
        "privacy", "Privacy", table=HtmlTable(("", "statement of the first seed"), rows)
    )


def _costs(arms: Sequence[ArmResult], runs: Runs, folder: Path) -> Section:
    rows = []
    for label, results in runs.items():
        history = [result for one in results for result in one.state.history]
        sent = sum(result.bytes_sent for result in history) / len(results)
        received = sum(result.bytes_received for result in history) / len(results)
        failed = sum(len(result.failures) for result in history)
        mean = float(np.mean([seconds(one.state) for one in results]))
        rows.append(
            (
                label,
                format_seconds(mean),
                format_bytes(sent),
                format_bytes(received),
                str(failed),
            )
        )
    head = (
        "mean of a run",
        "time",
        "to clients",
        "from clients",
        "failures, all seeds",
    )
    text = "Times include preparation; extractors from the cache cost nothing."
    return Section("costs", "Time and communication", text, table=HtmlTable(head, rows))


def _own_settings(arms: Sequence[ArmResult]) -> list[Section]:
    """What a label leaves out of an arm's settings, as after tuning."""
    more = {
        arm.label: [
            f"{key} = {arm.settings[key]}"
            for key in arm.settings
            if key not in arm.labels
        ]
        for arm in arms
    }
    if not any(more.values()):
        return []
    rows = [(label, ", ".join(settings)) for label, settings in more.items()]
    text = "The settings in which the methods differ from one another."
    return [
        Section(
            "tuned",
            "Each with its own settings",
            text,
            table=HtmlTable(("", "settings"), rows),
        )
    ]


def _runs(arms: Sequence[ArmResult], runs: Runs, folder: Path) -> Section:
    rows = [
        (
            label,
            str(one.state.config.seed),
            f"{100 * one.accuracy:.1f} %",
            str(_relative(one.folder, folder)),
        )
        for label, results in runs.items()
        for one in results
    ]
    head = ("", "seed", "accuracy", "folder")
    text = "The command fedaux report FOLDER makes a page of its own for any of them."
    return Section("runs", "Runs", text, table=HtmlTable(head, rows))


def _percent(values: NDArray[np.float64]) -> str:
    return f"{Cell.of(values)} %"


def _relative(path: Path, folder: Path) -> Path:
    return path.relative_to(folder) if path.is_relative_to(folder) else path
