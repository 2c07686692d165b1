"""The report of one run: accuracy, split, classes, clients, teachers, privacy, costs, failures, settings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from statistics import fmean

import numpy as np

from fedaux.config.methods import find_method
from fedaux.config.schema import Config
from fedaux.config.toml import to_commented_toml, to_complete_toml
from fedaux.core.results import ClientMetrics
from fedaux.privacy.accounting import round_up
from fedaux.report.classes_section import classes_section
from fedaux.report.facts import MAX_LISTED, RunFacts, expected_accuracy, load_facts, recall, seconds
from fedaux.report.line_chart import Line, line_chart
from fedaux.report.page import Figure, HtmlTable, Section, Tile, write_page
from fedaux.report.shapes import Part, bars, bubbles, stack
from fedaux.report.svg import tone
from fedaux.report.terminal import format_bytes, format_seconds, plural

FILE = "report.html"
_PHASES = {
    "prepare": "preparation of the server",
    "score": "releases of clients",
    "weigh": "teacher weights",
    "train": "local training",
    "teach": "predictions of teachers",
    "distil": "distillation",
    "test": "test",
}


def write_run_report(folder: Path, cache: Path | None = None, formats: Sequence[str] = ("svg",)) -> Path:
    """`report.html` in the folder of a run that has finished at least one round."""
    facts = load_facts(folder, cache)
    config = facts.state.config
    makers = (
        _learning,
        _split,
        classes_section,
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
    warnings = [facts.result.warning] if facts.result.warning else []
    subtitle = describe_setting(config)
    return write_page(folder / FILE, title, subtitle, tiles(facts), sections, formats=formats, warnings=warnings)


def describe_setting(config: Config) -> str:
    clients = len(config.federation.sites) or config.data.clients
    spread = {"dirichlet": f", Dirichlet α = {config.data.alpha:g}", "own": ", real sites"}
    rounds = f"each of {config.rounds} rounds" if config.rounds > 1 else "one round"
    validated = "tested on validation records · " if config.data.validation_fraction else ""
    return (
        f"{plural(clients, 'client')}{spread.get(config.data.partition, ', ' + config.data.partition)} · "
        f"{config.fraction:.0%} of them in {rounds} · "
        f"{', '.join(spec.label for spec in config.prototypes)} · {validated}seed {config.seed}"
    )


def tiles(facts: RunFacts) -> list[Tile]:
    ledger, history = facts.result.ledger, facts.state.history
    covered = "scores and models" if ledger.models_covered else "scores only; models are not covered"
    covered = covered if ledger.models else "scores, which the head is made of"
    private = Tile(f"ε = {round_up(ledger.max_epsilon)}", f"at δ = {ledger.delta:g}: {covered}")
    if ledger.unsafe:
        private = Tile("not private", "the noise was drawn from a known seed", warn=True)
    elif not ledger.clients:
        private = Tile("no ε", "nothing was released under differential privacy", warn=True)
    crossed = sum(result.bytes_sent + result.bytes_received for result in history)
    failed = len({failure.client for result in history for failure in result.failures})
    return [
        Tile(f"{100 * facts.result.accuracy:.1f} %", f"test accuracy after round {facts.state.round}"),
        *_beside(facts),
        private,
        Tile(format_seconds(seconds(facts.state)), f"for {plural(facts.state.round, 'round')}"),
        Tile(format_bytes(crossed), "sent and received"),
        Tile(str(failed), f"{'client' if failed == 1 else 'clients'} failed at least once", warn=failed > 0),
    ]


def _beside(facts: RunFacts) -> list[Tile]:
    """Balanced accuracy, and what the commonest class alone would have."""
    last = facts.state.history[-1]
    balanced, majority = (last.mean_metric(name) for name in ("balanced_accuracy", "majority"))
    if balanced is None or majority is None:
        return []
    label = f"balanced accuracy; the commonest class alone has accuracy {100 * majority:.1f} %"
    return [Tile(f"{100 * balanced:.1f} %", label, warn=bool(facts.result.warning))]


def _learning(facts: RunFacts) -> Section:
    history, labels = facts.state.history, list(facts.state.weights)
    lines = [
        Line(label if len(labels) > 1 else "student", [result.accuracy[label] for result in history], tone(i))
        for i, label in enumerate(labels)
    ]
    if len(labels) == 1:
        lines = [Line("student", lines[0].values, "hero")]
    else:
        lines.append(Line("mean", [result.mean_accuracy for result in history], "hero"))
    text = "Accuracy on test data that played no part in training. No round was chosen by it: the last one counts."
    chart = partial(line_chart, lines, "round", "test accuracy", top=1.0, percent=True)
    return Section("learning", "Learning", text, [Figure(chart, file="curves")])


def _split(facts: RunFacts) -> Section | None:
    if facts.counts is None:
        return None
    caption = (
        f"{plural(int(facts.counts.sum()), 'private record')}. Area is the number of records of a class at a client."
    )
    chart = partial(bubbles, facts.counts, facts.clients, facts.classes)
    return Section("split", "Data split", "", [Figure(chart, caption, file="split")])


def _clients(facts: RunFacts) -> Section:
    history = facts.state.history
    figures, expected = [], None
    if facts.counts is not None:
        expected = expected_accuracy(facts.counts, recall(facts.state))
        shown = np.argsort(expected, kind="stable")[:MAX_LISTED]
        rows = [(facts.clients[i], float(expected[i]), f"{100 * expected[i]:.1f} %") for i in shown]
        caption = "What each client can expect of the student on its own mix of classes, worst first."
        figures = [Figure(partial(bars, rows, "t0"), caption)]
    taken: dict[str, list[ClientMetrics]] = {}
    for result in history:
        for name, metrics in result.client_metrics.items():
            taken.setdefault(name, []).append(metrics)
    failed = Counter(failure.client for result in history for failure in result.failures)
    table = [
        _client_row(name, taken.get(name, []), failed[name], None if expected is None else float(expected[i]))
        for i, name in enumerate(facts.clients)
        if name in taken or name in failed
    ]
    head = ("client", "records", "rounds", "last local loss", "weight as a teacher", "expected accuracy", "failed")
    text = f"{plural(len(table), 'client')} took part." + (
        f" The first {MAX_LISTED} are listed." if len(table) > MAX_LISTED else ""
    )
    return Section("clients", "Clients", text, figures, HtmlTable(head, table[:MAX_LISTED]))


def _client_row(name: str, taken: Sequence[ClientMetrics], failed: int, expected: float | None) -> tuple[str, ...]:
    shares = [metrics.teacher_share for metrics in taken if metrics.teacher_share is not None]
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
    lines = [Line("effective", [result.effective_teachers or 0 for result in history], "hero")]
    chart = partial(line_chart, lines, "round", "effective number of teachers")
    count = history[-1].teachers or len(history[-1].client_metrics)
    text = (
        f"Of the {count} teachers of the last round, mean over the public examples: 1 if one decides alone, their "
        "number if all have the same weight."
    )
    largest = history[-1].largest_teacher
    caption = f"Largest weight in the last round: {largest[0]}, {largest[1]:.1%} of the total." if largest else ""
    return Section("teachers", "Effective teachers", text, [Figure(chart, caption)])


def _top_examples(facts: RunFacts) -> Section | None:
    if not facts.top_examples:
        return None
    text = (
        "For each client, the public examples that its release scores highest. They are chosen by the noisy release "
        "alone, so they reveal nothing beyond it."
    )
    return Section("top_examples", "Closest public examples", text, top_examples=facts.top_examples)


def _privacy(facts: RunFacts) -> Section:
    ledger = facts.result.ledger
    rows = ledger.rows()[:MAX_LISTED] if ledger.trained else []
    head = ("client", "releases", "rounds of private training", "ε of everything, as reported")
    return Section("privacy", "Privacy", ledger.statement(), table=HtmlTable(head, rows) if rows else None)


def _costs(facts: RunFacts) -> Section:
    history = facts.state.history
    spent = {name: sum(result.seconds.get(name, 0.0) for result in history) for name in _PHASES}
    parts = [Part(f"{_PHASES[n]}, {format_seconds(s)}", s, tone(i)) for i, (n, s) in enumerate(spent.items()) if s > 0]
    total = sum(spent.values())
    figures = [Figure(partial(stack, parts, format_seconds(total)), "Seconds of the whole run.", parts)]
    both = [sum(result.bytes_sent for result in history), sum(result.bytes_received for result in history)]
    names = ("to clients", "from clients")
    ways = [Part(f"{way}, {format_bytes(n)}", n, f"t{i}") for i, (way, n) in enumerate(zip(names, both, strict=True))]
    caption = "Bytes of models, extractors and releases; what the transport adds is not counted."
    figures.append(Figure(partial(stack, ways, format_bytes(sum(both))), caption, ways))
    return Section("costs", "Time and communication", "", figures)


def _failures(facts: RunFacts) -> Section | None:
    rows = [(str(result.round), one.client, one.reason) for result in facts.state.history for one in result.failures]
    if not rows:
        return None
    text = "A client that fails costs its contribution, never the round."
    return Section("failures", "Failures", text, table=HtmlTable(("round", "client", "reason"), rows[:200]))


def _settings(facts: RunFacts) -> Section:
    missing = f" Data were not opened: {facts.missing}" if facts.missing else ""
    text = f"Every key that differs from its default.{missing}"
    return settings_section(text, facts.state.config)


def settings_section(text: str, config: Config) -> Section:
    return Section(
        "settings", "Settings", text, code=to_commented_toml(config, "", {}), details=to_complete_toml(config)
    )
