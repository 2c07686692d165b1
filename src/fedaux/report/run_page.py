"""The report of one run: what its folder and its data say, and the page of it.

Accuracy, split, classes, clients, teachers, public examples, privacy, costs, failures,
settings.
"""

from __future__ import annotations

import base64
import io
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

import numpy as np
from numpy.typing import NDArray

from fedaux.config.methods import find_method
from fedaux.config.schema import Config
from fedaux.config.toml import to_commented_toml, to_complete_toml
from fedaux.core.metrics import METRIC_NAMES, Evaluation
from fedaux.core.results import ClientMetrics
from fedaux.data.federated import client_names, open_data, open_public
from fedaux.data.records import Records, is_image, is_text
from fedaux.privacy.accounting import round_up
from fedaux.report.arms import require_rounds
from fedaux.report.charts import Bars, Bubbles, Line, LineChart
from fedaux.report.model_pages import MAX_LISTED, class_figures
from fedaux.report.page import Figure, HtmlTable, Section, Tile, TopExamples, write_page
from fedaux.report.svg import tone
from fedaux.report.terminal import format_bytes, format_seconds, plural
from fedaux.server.result import FinishedRun
from fedaux.server.run_state import RunState
from fedaux.server.server import make_server

FILE = "report.html"
SHOWN, EACH = 12, 10  # clients, and top examples of each
# sources
PUBLISHED = ("digits", "cifar10", "cifar100", "stl10", "tinyimagenet")
_PHASES = {
    "prepare": "preparation of the server",
    "score": "releases of clients",
    "weigh": "teacher weights",
    "train": "local training",
    "teach": "predictions of teachers",
    "distil": "distillation",
    "test": "test",
}


@dataclass(frozen=True, eq=False)
class RunFacts:
    """The facts of a run. `counts` is None for real sites, which keep their class
    counts to themselves.
    """

    result: FinishedRun
    classes: tuple[str, ...]
    clients: tuple[str, ...]
    counts: NDArray[np.int64] | None
    top_examples: tuple[TopExamples, ...]
    missing: str  # why the data could not be opened, or ""

    @property
    def state(self) -> RunState:
        return self.result.state


def confusion(state: RunState) -> NDArray[np.int64]:
    """Return the last round's confusion matrix, summed over prototypes: true class
    (rows) by predicted class.
    """
    matrices = state.history[-1].confusion or {}
    return np.asarray(
        np.sum([np.array(matrix, np.int64) for matrix in matrices.values()], axis=0)
    )


def recall(state: RunState) -> NDArray[np.float64]:
    """Test accuracy on each class after the last round; NaN for one that the test data
    lack.
    """
    return Evaluation(confusion(state)).recalls


def seconds(state: RunState) -> float:
    """Return the total duration of all rounds."""
    return float(sum(sum(result.seconds.values()) for result in state.history))


def load_facts(folder: Path, cache: Path | None = None) -> RunFacts:
    """Load the facts of the run in `folder`. Nothing is trained; top examples need
    features of the auxiliary data.
    """
    state = require_rounds(RunState.load(folder), folder)
    names, counts, top_examples, missing = (
        tuple(client_names(state.config)),
        None,
        list[TopExamples](),
        "",
    )
    classes = tuple(map(str, range(len(confusion(state)))))
    try:
        classes = open_public(state.config).classes
        if state.config.data.partition != "own":
            counts = open_data(state.config).counts()
        if (
            find_method(state.config.method).scores
            and state.releases
            and may_show(state.config)
        ):
            top_examples = find_top_examples(state, cache)
    except (ValueError, OSError, ImportError) as error:
        missing = str(error)
    return RunFacts(
        FinishedRun(state, folder), classes, names, counts, tuple(top_examples), missing
    )


def expected_accuracy(
    counts: NDArray[np.int64], recall: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the expected accuracy on each client's own mix of classes: Σ_c p_i(c) ·
    accuracy on class c.
    """
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    return np.asarray(shares @ np.nan_to_num(recall))


def may_show(config: Config) -> bool:
    """Whether records of D_aux may be shown: their owner says so, or they were
    published with their dataset.
    """
    return config.aux.public or (config.aux.source or config.data.source) in PUBLISHED


def find_top_examples(state: RunState, cache: Path | None) -> list[TopExamples]:
    """Find, for some clients, the examples of D_distill with the highest odds of being
    theirs.
    """
    server = make_server(state.config, cache=cache, state=state)
    embedding, clients = server.restore(state), sorted(state.releases)[:SHOWN]
    if embedding is None:
        return []
    weights = embedding.teacher_weights(state.releases, clients)
    top = {
        client: np.argsort(-weights.log_odds(client), kind="stable")[:EACH]
        for client in clients
    }
    shown = [
        _shown(client, server.public.distill.take(rows)) for client, rows in top.items()
    ]
    return [top_examples for top_examples in shown if top_examples is not None]


def _shown(client: str, records: Records) -> TopExamples | None:
    rows = records.gather()
    if is_image(rows):
        return TopExamples(client, image=image_strip(rows))
    if is_text(rows):
        return TopExamples(client, texts=tuple(str(text)[:160] for text in rows[:4]))
    return None


def image_strip(images: NDArray[np.uint8], height: int = 48) -> str:
    """Images (N, H, W, C) side by side as a PNG in a data: URI, enlarged without
    smoothing if they are small.
    """
    from PIL import Image

    scale = max(1, round(height / images.shape[1]))
    tiles = [np.kron(image, np.ones((scale, scale, 1), np.uint8)) for image in images]
    gap = np.full((tiles[0].shape[0], 3, tiles[0].shape[2]), 255, np.uint8)
    row = np.concatenate([part for tile in tiles for part in (tile, gap)][:-1], axis=1)
    file = io.BytesIO()
    Image.fromarray(row[..., 0] if row.shape[2] == 1 else row[..., :3]).save(
        file, "PNG"
    )
    return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"


def write_run_report(
    folder: Path, cache: Path | None = None, formats: Sequence[str] = ("svg",)
) -> Path:
    """`report.html` in the folder of a run that has finished at least one round."""
    facts = load_facts(folder, cache)
    config = facts.state.config
    makers = (
        _learning,
        _split,
        _classes,
        _clients,
        _teachers,
        _top_examples,
        _privacy,
        _costs,
        _failures,
        _settings,
    )
    sections = [section for make in makers if (section := make(facts)) is not None]
    title = f"{find_method(config.method).label} on {config.data.source}"
    subtitle, warnings = describe_setting(config), facts.result.warnings
    return write_page(
        folder / FILE,
        title,
        subtitle,
        tiles(facts),
        sections,
        formats=formats,
        warnings=warnings,
    )


def describe_setting(config: Config) -> str:
    clients = len(config.federation.sites) or config.data.clients
    spread = {
        "dirichlet": f", Dirichlet α = {config.data.alpha:g}",
        "own": ", real sites",
    }
    rounds = f"each of {config.rounds} rounds" if config.rounds > 1 else "one round"
    validated = (
        "tested on validation records · " if config.data.validation_fraction else ""
    )
    return (
        f"{plural(clients, 'client')}{spread.get(config.data.partition, ', ' + config.data.partition)} "
        f"· {config.fraction:.0%} of them in {rounds} · "
        f"{', '.join(spec.label for spec in config.prototypes)} · {validated}seed "
        f"{config.seed}"
    )


def tiles(facts: RunFacts) -> list[Tile]:
    ledger, last = facts.result.ledger, facts.state.history[-1]
    found = [
        Tile(
            f"{100 * facts.result.accuracy:.1f} %",
            f"test accuracy after round {facts.state.round}",
        )
    ]
    balanced, majority = (
        last.mean_metric(name) for name in ("balanced_accuracy", "majority")
    )
    if balanced is not None and majority is not None:
        label = f"balanced accuracy; the commonest class alone has accuracy {100 * majority:.1f} %"
        found.append(
            Tile(f"{100 * balanced:.1f} %", label, warn=bool(facts.result.warning))
        )
    private = Tile(
        f"ε = {round_up(ledger.max_epsilon)}",
        f"at δ = {ledger.delta:g}: {ledger.coverage}",
    )
    if ledger.unsafe:
        private = Tile(
            "not private", "the noise was drawn from a known seed", warn=True
        )
    elif not ledger.clients:
        private = Tile(
            "no ε", "nothing was released under differential privacy", warn=True
        )
    found += [
        private,
        Tile(
            format_seconds(seconds(facts.state)),
            f"for {plural(facts.state.round, 'round')}",
        ),
    ]
    if failed := len(
        {
            failure.client
            for result in facts.state.history
            for failure in result.failures
        }
    ):
        found.append(
            Tile(
                str(failed),
                f"{'client' if failed == 1 else 'clients'} failed at least once",
                warn=True,
            )
        )
    return found


def accuracy_chart(state: RunState) -> LineChart:
    """Test accuracy by round, a curve for each prototype and one for their mean."""
    history, labels = state.history, list(state.weights)
    curves = {label: [result.accuracy[label] for result in history] for label in labels}
    lines = [Line(label, curves[label], tone(i)) for i, label in enumerate(labels)]
    if len(labels) == 1:
        lines = [Line("student", curves[labels[0]], "hero")]
    else:
        lines.append(
            Line(
                "mean", [result.mean_accuracy for result in history], "hero", best=True
            )
        )
    return LineChart(lines, "round", "test accuracy", top=1.0, percent=True)


def _learning(facts: RunFacts) -> Section:
    text = "Accuracy on test data that played no part in training. No round was chosen by it: the last one counts."
    return Section(
        "learning",
        "Learning",
        text,
        [Figure(accuracy_chart(facts.state), file="curves")],
    )


def _split(facts: RunFacts) -> Section | None:
    if facts.counts is None:
        return None
    caption = (
        f"{plural(int(facts.counts.sum()), 'private record')}. Area is the number of "
        "records of a class at a client: true counts, which only the report of a "
        "simulation has."
    )
    chart = Bubbles(facts.counts, facts.clients, facts.classes)
    return Section("split", "Data split", "", [Figure(chart, caption, file="split")])


def _classes(facts: RunFacts) -> Section:
    figures = class_figures(Evaluation(confusion(facts.state)), facts.classes)
    return Section("classes", "Classes", "", figures, _figures_table(facts))


def _figures_table(facts: RunFacts) -> HtmlTable | None:
    """Tabulate all metrics of each prototype after the last round, beside its
    baseline.
    """
    metrics = facts.state.history[-1].metrics
    names = [
        name for name in METRIC_NAMES if any(name in each for each in metrics.values())
    ]
    if not names:
        return None
    rows = [
        (
            label,
            f"{100 * facts.state.history[-1].accuracy[label]:.1f} %",
            *(f"{100 * each[name]:.1f} %" if name in each else "–" for name in names),
        )
        for label, each in metrics.items()
    ]
    return HtmlTable(
        ("network", "accuracy", *(METRIC_NAMES[name] for name in names)), rows
    )


def _clients(facts: RunFacts) -> Section:
    history = facts.state.history
    figures, expected = [], None
    if facts.counts is not None:
        expected = expected_accuracy(facts.counts, recall(facts.state))
        shown = np.argsort(expected, kind="stable")[:MAX_LISTED]
        rows = [
            (facts.clients[i], float(expected[i]), f"{100 * expected[i]:.1f} %")
            for i in shown
        ]
        caption = "What each client can expect of the student on its own mix of classes, worst first."
        figures = [Figure(Bars(rows), caption)]
    taken: dict[str, list[ClientMetrics]] = {}
    for result in history:
        for name, metrics in result.client_metrics.items():
            taken.setdefault(name, []).append(metrics)
    failed = Counter(
        failure.client for result in history for failure in result.failures
    )
    table = [
        _client_row(
            name,
            taken.get(name, []),
            failed[name],
            None if expected is None else float(expected[i]),
        )
        for i, name in enumerate(facts.clients)
        if name in taken or name in failed
    ]
    head = (
        "client",
        "records",
        "rounds",
        "last local loss",
        "weight as a teacher",
        "expected accuracy",
        "failed",
    )
    text = f"{plural(len(table), 'client')} took part." + (
        f" The first {MAX_LISTED} are listed." if len(table) > MAX_LISTED else ""
    )
    return Section(
        "clients", "Clients", text, figures, HtmlTable(head, table[:MAX_LISTED])
    )


def _client_row(
    name: str, taken: Sequence[ClientMetrics], failed: int, expected: float | None
) -> tuple[str, ...]:
    shares = [
        metrics.teacher_share for metrics in taken if metrics.teacher_share is not None
    ]
    return (
        name,
        f"{taken[-1].records:,}" if taken else "–",
        str(len(taken)),
        f"{taken[-1].loss:.3f}" if taken else "–",
        f"{100 * fmean(shares):.1f} %" if shares else "–",
        "–" if expected is None else f"{100 * expected:.1f} %",
        str(failed),
    )


def _teachers(facts: RunFacts) -> Section | None:
    history = [result for result in facts.state.history if result.effective_teachers]
    if not history:
        return None
    lines = [
        Line(
            "effective", [result.effective_teachers or 0 for result in history], "hero"
        )
    ]
    chart = LineChart(lines, "round", "effective number of teachers", height=240.0)
    count = history[-1].teachers or len(history[-1].client_metrics)
    text = (
        f"Of the {count} teachers of the last round, mean over the public examples: 1 "
        "if one decides alone, their number if all have the same weight."
    )
    largest = history[-1].largest_teacher
    caption = (
        f"Largest weight in the last round: {largest[0]}, {largest[1]:.1%} of the "
        "total."
        if largest
        else ""
    )
    return Section("teachers", "Effective teachers", text, [Figure(chart, caption)])


def _top_examples(facts: RunFacts) -> Section | None:
    if not facts.top_examples:
        return None
    text = (
        "For each client, the public examples that its release scores highest. They "
        "are chosen by the noisy release alone, so they reveal nothing beyond it."
    )
    return Section(
        "top_examples", "Closest public examples", text, top_examples=facts.top_examples
    )


def _privacy(facts: RunFacts) -> Section:
    ledger = facts.result.ledger
    rows = ledger.rows()[:MAX_LISTED] if ledger.trained else []
    head = (
        "client",
        "releases",
        "rounds of private training",
        "ε of everything, as reported",
    )
    return Section(
        "privacy",
        "Privacy",
        ledger.statement(),
        table=HtmlTable(head, rows) if rows else None,
    )


def _costs(facts: RunFacts) -> Section:
    history = facts.state.history
    spent = {
        name: sum(result.seconds.get(key, 0.0) for result in history)
        for key, name in _PHASES.items()
    }
    total = sum(spent.values()) or 1.0
    rows = [
        (name, value / total, format_seconds(value))
        for name, value in spent.items()
        if value > 0
    ]
    sent, received = (
        sum(getattr(result, f"bytes_{way}") for result in history)
        for way in ("sent", "received")
    )
    text = (
        f"{format_bytes(sent)} to clients and {format_bytes(received)} from them: "
        "models, extractors and releases, without what the transport adds."
    )
    return Section(
        "costs",
        "Time and communication",
        text,
        [Figure(Bars(rows), "Where the time went.")],
    )


def _failures(facts: RunFacts) -> Section | None:
    rows = [
        (str(result.round), one.client, one.reason)
        for result in facts.state.history
        for one in result.failures
    ]
    if not rows:
        return None
    text = "A client that fails costs its contribution, never the round."
    return Section(
        "failures",
        "Failures",
        text,
        table=HtmlTable(("round", "client", "reason"), rows[:200]),
    )


def _settings(facts: RunFacts) -> Section:
    missing = f" Data were not opened: {facts.missing}" if facts.missing else ""
    text = f"Every key that differs from its default.{missing}"
    return settings_section(text, facts.state.config)


def settings_section(text: str, config: Config) -> Section:
    return Section(
        "settings",
        "Settings",
        text,
        code=to_commented_toml(config, "", {}),
        details=to_complete_toml(config),
    )
