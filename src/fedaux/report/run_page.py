"""The page of one run.

Accuracy, split, classes, clients, teachers, public examples, privacy, costs, failures,
settings.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean

from fedaux.config.methods import find_method
from fedaux.config.schema import Config
from fedaux.config.toml import to_commented_toml, to_complete_toml
from fedaux.core import here
from fedaux.core.binary_metrics import Calibration
from fedaux.core.metrics import METRIC_NAMES, Evaluation, format_percent
from fedaux.core.results import ClientMetrics, RoundResult
from fedaux.data.tables import describes_private_records
from fedaux.privacy.accounting import round_up
from fedaux.report.charts import Bars, Bubbles, Chart, Line, LineChart
from fedaux.report.model_pages import (
    MAX_LISTED,
    calibration_figure,
    class_figures,
    predicted_event,
)
from fedaux.report.page import Figure, Section, Tile, write_page
from fedaux.report.reported_run import (
    ReportedRun,
    confusion,
    expected_accuracy,
    load_run,
    recall,
    seconds,
)
from fedaux.report.svg import tone
from fedaux.report.tables import MISSING, Table
from fedaux.report.terminal import format_bytes, format_seconds, plural
from fedaux.server.run_state import RunState, StateError
from fedaux.server.site_figures import (
    SiteFigures,
    describe_cost_of_look,
    figures_of_sites,
    figures_of_test,
)

PAGE_FILE = "report.html"
SITE_METRICS = ("accuracy", "balanced_accuracy", "auc", "average_precision")
MAX_FAILURES = 200  # that the page lists
MAX_CALIBRATED = 4  # networks whose calibration the page shows
_PHASES = {
    "prepare": "preparation of the server",
    "score": "releases of clients",
    "weigh": "teacher weights",
    "train": "local training",
    "teach": "predictions of teachers",
    "distil": "distillation",
    "test": "test",
}


def write_run_report(
    folder: Path, cache: Path | None = None, formats: Sequence[str] = ("svg",)
) -> Path:
    """`report.html` in the folder of a run that has finished at least one round."""
    run = load_run(folder, cache)
    config = run.state.config
    makers = (
        _learning,
        _site_test,
        _split,
        _classes,
        _columns,
        _clients,
        _teachers,
        _top_examples,
        _privacy,
        _costs,
        _failures,
        _settings,
    )
    sections = [make(run) for make in makers]
    return write_page(
        folder / PAGE_FILE,
        f"{find_method(config.method).label} on {data_name(config)}",
        describe_setting(config),
        tiles(run),
        sections,
        formats=formats,
        warnings=run.warnings,
    )


def data_name(config: Config) -> str:
    """What the private data are called, for readers: their folder or file, else their
    source.
    """
    if config.data.path:
        return Path(config.data.path).name or config.data.source
    if config.data.source.startswith(here.PREFIX):
        return "your data"
    return config.data.source


def describe_setting(config: Config) -> str:
    clients = len(config.federation.sites) or config.data.clients
    partition = config.data.partition
    spreads = {"dirichlet": f"Dirichlet α = {config.data.alpha:g}", "own": "real sites"}
    rounds = f"each of {config.rounds} rounds" if config.rounds > 1 else "one round"
    networks = ", ".join(here.readable(spec.label) for spec in config.prototypes)
    words = [
        f"{plural(clients, 'client')}, {spreads.get(partition, partition)}",
        f"{config.fraction:.0%} of them in {rounds}",
        networks,
    ]
    if config.data.validation_fraction:
        words.append("tested on validation records")
    words.append(f"seed {config.seed}")
    return " · ".join(words)


def tiles(run: ReportedRun) -> list[Tile]:
    rounds = run.state.round
    shown: list[Tile] = []
    if run.curve:
        accuracy = format_percent(run.curve[-1])
        shown.append(Tile(accuracy, f"test accuracy after round {rounds}"))
    last = run.state.history[-1]
    balanced = last.mean_metric("balanced_accuracy")
    majority = last.mean_metric("majority")
    if balanced is not None and majority is not None:
        words = (
            "balanced accuracy. The commonest class has accuracy "
            f"{format_percent(majority)}"
        )
        warn = bool(run.warning)
        shown.append(Tile(format_percent(balanced), words, warn=warn))
    shown.append(_privacy_tile(run))
    duration = format_seconds(seconds(run.state))
    shown.append(Tile(duration, f"for {plural(rounds, 'round')}"))
    failures = [failure for result in run.state.history for failure in result.failures]
    failed = len({failure.client for failure in failures})
    if failed:
        noun = "client" if failed == 1 else "clients"
        shown.append(Tile(str(failed), f"{noun} failed at least once", warn=True))
    return shown


def _privacy_tile(run: ReportedRun) -> Tile:
    ledger = run.ledger
    if ledger.unsafe:
        words = "the noise was drawn from a known seed"
        return Tile("not private", words, warn=True)
    if not ledger.clients:
        words = "nothing was released under differential privacy"
        return Tile("no ε", words, warn=True)
    words = f"at δ = {ledger.delta:g}: {ledger.coverage}"
    return Tile(f"ε = {round_up(ledger.max_epsilon)}", words)


def accuracy_chart(state: RunState) -> LineChart:
    """Test accuracy by round, a curve for each prototype and one for their mean; round
    0 is the start.
    """
    labels = list(state.weights)
    measured = [result.mean_accuracy for result in state.history]
    mean = [accuracy for accuracy in measured if accuracy is not None]
    if not mean:
        raise StateError(
            "Cannot draw the accuracy by round: the server has no test data. Read "
            "`site_figures`, which the sites have measured."
        )
    start = state.history[0].start
    rounds = [str(result.round) for result in state.history]
    if start:
        mean.insert(0, fmean(start.values()))
        rounds.insert(0, "0")
    lines: list[Line] = []
    if len(labels) == 1:
        lines.append(Line("student", mean, "hero"))
    else:
        for i, label in enumerate(labels):
            curve = [result.accuracy[label] for result in state.history]
            if start:
                curve.insert(0, start[label])
            lines.append(Line(label, curve, tone(i)))
        lines.append(Line("mean", mean, "hero", best=True))
    return LineChart(
        lines, "round", "test accuracy", top=1.0, percent=True, x_values=rounds
    )


def _accuracy_picture(state: RunState) -> Chart:
    """Curves, or a bar for each network where there is one round, or where all rounds
    have the head of the first: one point is no curve.
    """
    accuracies = state.history[0].accuracy
    is_trained = not find_method(state.config.method).analytic
    changes = any(result.accuracy != accuracies for result in state.history)
    several_rounds = len(state.history) > 1 and (is_trained or changes)
    if several_rounds or state.history[0].start:
        return accuracy_chart(state)
    rows = [
        (here.readable(label), accuracy, format_percent(accuracy))
        for label, accuracy in accuracies.items()
    ]
    return Bars(rows)


def _learning(run: ReportedRun) -> Section:
    if not run.curve:
        words = "The server has no test data, so no round was tested there."
        return Section("learning", "Learning", words)
    words = (
        "Accuracy on test data that played no part in training. No round was chosen by "
        "it: the last one counts."
    )
    if run.start is not None:
        words += f" Round 0 is the start, {format_percent(run.start)}."
    figure = Figure(_accuracy_picture(run.state), file="curves")
    return Section("learning", "Learning", words, [figure])


def _site_test(run: ReportedRun) -> Section | None:
    """Tabulate the figures of the test at the sites, of each network and, where they
    are known, of each site.
    """
    test = run.state.site_test
    if test is None:
        return None
    rows: list[tuple[str, ...]] = []
    found = figures_of_test(test)
    for network in found:
        name = here.readable(network.network) if len(found) > 1 else "all sites"
        rows.append((name, *_interval_cells(network)))
    rows += [(site.network, *_interval_cells(site)) for site in figures_of_sites(test)]
    words = (
        "The sites tested the model on records that they hold out, and sent counts with "
        "noise. The intervals of 95 % hold both, that these records are a sample and "
        f"that their counts have noise. {describe_cost_of_look(test)}"
    )
    if test.failures:
        names = ", ".join(failure.client for failure in test.failures)
        words += f" Not tested at {names}."
    titles = [METRIC_NAMES.get(name, name) for name in SITE_METRICS]
    return Section(
        "sites", "Test at the sites", words, table=Table(("", *titles), rows)
    )


def _interval_cells(tested: SiteFigures) -> list[str]:
    """Return each figure with its interval; noise hides one that is missing."""
    cells: list[str] = []
    for name in SITE_METRICS:
        figure = tested.figures.get(name)
        if figure is None:
            cells.append(MISSING)
            continue
        low = 100 * figure.low
        high = 100 * figure.high
        cells.append(f"{format_percent(figure.value)} ({low:.1f} to {high:.1f})")
    return cells


def _split(run: ReportedRun) -> Section | None:
    if run.counts is None:
        return None
    caption = (
        f"{plural(int(run.counts.sum()), 'private record')}. Area is the number of "
        "records of a class at a client: true counts, which only the report of a "
        "simulation has."
    )
    chart = Bubbles(run.counts, run.clients, run.classes)
    return Section("split", "Data split", "", [Figure(chart, caption, file="split")])


def _classes(run: ReportedRun) -> Section | None:
    if not run.curve:
        return None
    figures = class_figures(Evaluation(confusion(run.state)), run.classes)
    last = run.state.history[-1]
    curves = last.calibration or {}
    event = predicted_event(run.classes)
    for label, rows in list(curves.items())[:MAX_CALIBRATED]:
        network = here.readable(label) if len(curves) > 1 else ""
        curve = Calibration.from_rows(rows)
        figures.append(calibration_figure(curve, event, network))
    return Section("classes", "Classes", "", figures, _metrics_table(last))


def _metrics_table(last: RoundResult) -> Table | None:
    """Tabulate all metrics of each prototype after the last round, next to its
    baseline.
    """
    measured = {name for metrics in last.metrics.values() for name in metrics}
    names = [name for name in METRIC_NAMES if name in measured]
    if not names:
        return None
    rows: list[tuple[str, ...]] = []
    for label, metrics in last.metrics.items():
        accuracy = format_percent(last.accuracy[label])
        cells = [_percent(metrics.get(name)) for name in names]
        rows.append((here.readable(label), accuracy, *cells))
    titles = [METRIC_NAMES[name] for name in names]
    return Table(("network", "accuracy", *titles), rows)


def _columns(run: ReportedRun) -> Section | None:
    if not run.columns:
        return None
    covered = "They reveal nothing that the model does not: " + (
        "the guarantee of the messages that it was made of covers them, at the same ε."
        if run.ledger.to_dict()["weights_covered"]
        and not describes_private_records(run.state.config.data)
        else "like the model, they carry no guarantee."
    )
    words = (
        "How far the values of a column can move the log-odds of a class, by the "
        "weights of the model alone: 1 multiplies the odds by 2.7. Columns that say "
        f"the same share their effect. {covered}"
    )
    rows = [
        (
            effect.column,
            f"{effect.effect:.2f}",
            effect.towards,
            effect.largest,
            effect.smallest,
        )
        for effect in run.columns[:MAX_LISTED]
    ]
    header = ("column", "effect", "towards", "most for it", "most against it")
    return Section("columns", "Columns", words, table=Table(header, rows))


def _clients(run: ReportedRun) -> Section:
    figures: list[Figure] = []
    expected: dict[str, float] = {}
    if run.counts is not None:
        accuracies = expected_accuracy(run.counts, recall(run.state))
        expected = dict(zip(run.clients, accuracies.tolist(), strict=True))
        figures.append(_expected_figure(expected))
    taken = _metrics_by_client(run.state.history)
    failed = Counter(
        failure.client for result in run.state.history for failure in result.failures
    )
    rows = [
        _client_row(
            run.state.config,
            name,
            taken.get(name, []),
            expected.get(name),
            failed[name],
        )
        for name in run.clients
        if name in taken or name in failed
    ]
    header = (
        "client",
        "records",
        "rounds",
        "last local loss",
        "weight as a teacher",
        "expected accuracy",
        "failed",
    )
    words = f"{plural(len(rows), 'client')} took part."
    if run.state.config.federation.secure:
        words += " In a secure sum, no one learns the records and losses of one site."
    if len(rows) > MAX_LISTED:
        words += f" The first {MAX_LISTED} are listed."
    table = Table(header, rows[:MAX_LISTED])
    return Section("clients", "Clients", words, figures, table)


def _metrics_by_client(
    history: Sequence[RoundResult],
) -> dict[str, list[ClientMetrics]]:
    taken: dict[str, list[ClientMetrics]] = {}
    for result in history:
        for name, metrics in result.client_metrics.items():
            taken.setdefault(name, []).append(metrics)
    return taken


def _expected_figure(expected: Mapping[str, float]) -> Figure:
    worst = sorted(expected.items(), key=lambda client: client[1])[:MAX_LISTED]
    caption = (
        "What each client can expect of the student on its own mix of classes, worst "
        "first."
    )
    bars = [(name, accuracy, format_percent(accuracy)) for name, accuracy in worst]
    return Figure(Bars(bars), caption)


def _client_row(
    config: Config,
    name: str,
    taken: Sequence[ClientMetrics],
    expected: float | None,
    failed: int,
) -> tuple[str, ...]:
    """A client's figures, except those that the server does not learn: of a secure sum
    it knows means only, and private training tells no loss.
    """
    knows_records = not config.federation.secure
    knows_loss = config.trains and config.privacy.colour == "plain" and knows_records
    records = MISSING
    loss = MISSING
    if taken and knows_records:
        records = f"{taken[-1].records:,}"
    if taken and knows_loss:
        loss = f"{taken[-1].loss:.3f}"
    weights = [metrics.teacher_share for metrics in taken]
    shares = [share for share in weights if share is not None]
    return (
        name,
        records,
        str(len(taken)),
        loss,
        _percent(fmean(shares) if shares else None),
        _percent(expected),
        str(failed),
    )


def _teachers(run: ReportedRun) -> Section | None:
    history = [result for result in run.state.history if result.effective_teachers]
    if not history:
        return None
    last = history[-1]
    curve = [result.effective_teachers or 0 for result in history]
    line = Line("effective", curve, "hero")
    chart = LineChart([line], "round", "effective number of teachers", height=240.0)
    count = last.teachers or len(last.client_metrics)
    words = (
        f"Of the {count} teachers of the last round, mean over the public examples: 1 "
        "if only one decides, their number if all have the same weight."
    )
    caption = ""
    if last.largest_teacher:
        client, share = last.largest_teacher
        caption = (
            f"Largest weight in the last round: {client}, {share:.1%} of the total."
        )
    figure = Figure(chart, caption)
    return Section("teachers", "Effective teachers", words, [figure])


def _top_examples(run: ReportedRun) -> Section | None:
    if not run.top_examples:
        return None
    words = (
        "For each client, the public examples that its release scores highest. They "
        "are chosen only by the noisy release, so they reveal nothing beyond it."
    )
    name = "Closest public examples"
    return Section("top_examples", name, words, top_examples=run.top_examples)


def _privacy(run: ReportedRun) -> Section:
    ledger = run.ledger
    rows = ledger.rows()[:MAX_LISTED] if ledger.trained else []
    header = (
        "client",
        "releases",
        "rounds of private training",
        "ε of everything, as reported",
    )
    table = Table(header, rows) if rows else None
    return Section("privacy", "Privacy", ledger.statement(), table=table)


def _costs(run: ReportedRun) -> Section:
    spent = {
        name: sum(result.seconds.get(phase, 0.0) for result in run.state.history)
        for phase, name in _PHASES.items()
    }
    total = sum(spent.values()) or 1.0
    bars = [
        (name, duration / total, format_seconds(duration))
        for name, duration in spent.items()
        if duration > 0
    ]
    sent = sum(result.bytes_sent for result in run.state.history)
    received = sum(result.bytes_received for result in run.state.history)
    words = (
        f"{format_bytes(sent)} to clients and {format_bytes(received)} from them: "
        "models, extractors and releases, without what the transport adds."
    )
    figure = Figure(Bars(bars), "Where the time went.")
    return Section("costs", "Time and communication", words, [figure])


def _failures(run: ReportedRun) -> Section | None:
    rows: list[tuple[str, str, str]] = []
    for result in run.state.history:
        rows += [
            (str(result.round), failure.client, failure.reason)
            for failure in result.failures
        ]
    if not rows:
        return None
    words = "A client that fails costs its contribution, never the round."
    table = Table(("round", "client", "reason"), rows[:MAX_FAILURES])
    return Section("failures", "Failures", words, table=table)


def _settings(run: ReportedRun) -> Section:
    words = "Every key that differs from its default."
    if run.missing:
        words += f" {run.missing}"
    return settings_section(words, run.state.config)


def settings_section(words: str, config: Config) -> Section:
    return Section(
        "settings",
        "Settings",
        words,
        code=to_commented_toml(config, "", {}),
        details=to_complete_toml(config),
    )


def _percent(share: float | None) -> str:
    return MISSING if share is None else format_percent(share)
