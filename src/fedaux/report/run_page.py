"""The report of one run: what came out, who holds what, who taught whom, what was revealed, and what it cost."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from fedaux.config.methods import find_method
from fedaux.config.schema import Config
from fedaux.config.toml import to_commented_toml, to_complete_toml
from fedaux.privacy.accounting import round_up
from fedaux.report.charts import Line, Part, bars, bubbles, heat, line_chart, stack
from fedaux.report.facts import RunFacts, expected_accuracy, gather, seconds
from fedaux.report.page import Figure, Section, TableOf, Tile, write_page
from fedaux.report.terminal import duration, megabytes

MOST = 40  # clients that are listed one by one
FILE = "report.html"
_PHASES = {
    "prepare": "preparation at the server",
    "score": "clients score",
    "weigh": "weights of teachers",
    "train": "clients train",
    "teach": "teachers predict",
    "distil": "distillation",
    "test": "test",
}


def write_run_report(folder: Path, cache: Path | None = None) -> Path:
    """`report.html` in the folder of a run that has finished at least one round."""
    facts = gather(folder, cache)
    config = facts.state.config
    makers = (_learning, _split, _classes, _clients, _teachers, _favourites, _privacy, _costs, _failures, _settings)
    sections = [section for make in makers if (section := make(facts)) is not None]
    title = f"{find_method(config.method).label} on {config.data.source}"
    return write_page(folder / FILE, title, describe_setting(config), tiles(facts), sections)


def describe_setting(config: Config) -> str:
    clients = len(config.federation.sites) or config.data.clients
    spread = {"dirichlet": f", Dirichlet α = {config.data.alpha:g}", "own": ", real sites"}
    return (
        f"{clients} clients{spread.get(config.data.partition, ', ' + config.data.partition)} · "
        f"{config.fraction:.0%} of them in each of {config.rounds} rounds · "
        f"{', '.join(spec.label for spec in config.prototypes)} · seed {config.seed}"
    )


def tiles(facts: RunFacts) -> list[Tile]:
    ledger, history = facts.result.ledger, facts.state.history
    covered = "scores and models" if ledger.models_covered else "scores only; models are not covered"
    private = Tile(f"ε = {round_up(ledger.max_epsilon)}", f"at δ = {ledger.delta:g}: {covered}")
    if ledger.unsafe:
        private = Tile("not private", "the noise was drawn from a known seed", warn=True)
    elif not ledger.clients:
        private = Tile("no ε", "nothing was released under differential privacy", warn=True)
    crossed = sum(result.bytes_sent + result.bytes_received for result in history)
    failed = len({failure.client for result in history for failure in result.failures})
    return [
        Tile(f"{100 * facts.result.accuracy:.1f} %", f"test accuracy after round {facts.state.round}"),
        private,
        Tile(duration(seconds(facts.state)), f"for {facts.state.round} rounds"),
        Tile(megabytes(crossed), "of arrays crossed, both ways"),
        Tile(str(failed), "clients failed at least once", warn=failed > 0),
    ]


def _learning(facts: RunFacts) -> Section:
    history, labels = facts.state.history, list(facts.state.weights)
    lines = [
        Line(label if len(labels) > 1 else "student", [result.accuracy[label] for result in history], f"t{i}")
        for i, label in enumerate(labels)
    ]
    if len(labels) == 1:
        lines = [Line("student", lines[0].values, "hero")]
    else:
        lines.append(Line("mean", [result.mean_accuracy for result in history], "hero"))
    words = "Accuracy on test data that played no part in training. No round was chosen by it: the last one counts."
    chart = line_chart(lines, "round", "test accuracy", top=1.0, percent=True)
    return Section("learning", "Learning", words, [Figure(chart, file="curves.svg")])


def _split(facts: RunFacts) -> Section | None:
    if facts.counts is None:
        return None
    caption = f"{facts.counts.sum():,} private records. Area is the number of records of a class at a client."
    chart = bubbles(facts.counts, facts.clients, facts.classes)
    return Section("split", "Who holds what", "", [Figure(chart, caption, file="split.svg")])


def _classes(facts: RunFacts) -> Section:
    table, recall = facts.confusion, facts.recall
    shares = table / np.maximum(table.sum(axis=1, keepdims=True), 1)
    tested = table.sum(axis=1)
    rows = [
        (name, 0.0 if np.isnan(value) else float(value), "not tested" if np.isnan(value) else f"{100 * value:.1f} %")
        for name, value in zip(facts.classes, recall, strict=True)
    ]
    worst = sorted(rows, key=lambda row: row[1])[:MOST] if len(rows) > MOST else rows
    caption = f"Accuracy on each class; {tested.min():,} to {tested.max():,} test records of each."
    figures = [Figure(bars(worst, "t2"), caption + (f" The worst {MOST}." if len(rows) > MOST else ""))]
    if len(rows) <= 100:
        caption = "Confusion: of the test records of a class (row), the share taken for each class (column), in %."
        figures.append(Figure(heat(shares, facts.classes, facts.classes), caption))
    return Section("classes", "Classes", "", figures)


def _clients(facts: RunFacts) -> Section:
    history = facts.state.history
    figures, expected = [], None
    if facts.counts is not None:
        expected = expected_accuracy(facts.counts, facts.recall)
        shown = np.argsort(expected, kind="stable")[:MOST]
        rows = [(facts.clients[i], float(expected[i]), f"{100 * expected[i]:.1f} %") for i in shown]
        caption = "What each client can expect of the student on its own mix of classes, worst first."
        figures = [Figure(bars(rows, "t0"), caption)]
    table = []
    for i, name in enumerate(facts.clients):
        taken = [result.client_metrics[name] for result in history if name in result.client_metrics]
        failed = sum(failure.client == name for result in history for failure in result.failures)
        if not taken and not failed:
            continue
        share = [one.teacher_share for one in taken if one.teacher_share is not None]
        table.append(
            (
                name,
                f"{taken[-1].records:,}" if taken else "–",
                str(len(taken)),
                f"{taken[-1].loss:.3f}" if taken else "–",
                f"{100 * float(np.mean(share)):.1f} %" if share else "–",
                f"{100 * expected[i]:.1f} %" if expected is not None else "–",
                str(failed or ""),
            )
        )
    head = ("client", "records", "rounds", "last local loss", "weight as a teacher", "expected accuracy", "failed")
    words = f"{len(table)} clients took part." + (f" The first {MOST} are listed." if len(table) > MOST else "")
    return Section("clients", "Clients", words, figures, TableOf(head, table[:MOST]))


def _teachers(facts: RunFacts) -> Section | None:
    history = [result for result in facts.state.history if result.effective_teachers]
    if not history:
        return None
    lines = [Line("count", [result.effective_teachers or 0 for result in history], "hero")]
    chart = line_chart(lines, "round", "effective number of teachers")
    words = (
        f"How many of the {len(history[-1].client_metrics)} teachers of a round count on a public example, on average: "
        "1 means that one client decides alone, the number of clients that all count alike."
    )
    largest = history[-1].largest_teacher
    caption = f"In the last round {largest[0]} weighed most, {largest[1]:.1%} of all." if largest else ""
    return Section("teachers", "Teachers", words, [Figure(chart, caption)])


def _favourites(facts: RunFacts) -> Section | None:
    if not facts.favourites:
        return None
    words = (
        "The public examples that each client's private release scores highest: what the server believes to look like "
        "that client's data. They are public, and derived from the noisy release alone."
    )
    return Section("favourites", "Public examples like theirs", words, favourites=facts.favourites)


def _privacy(facts: RunFacts) -> Section:
    ledger = facts.result.ledger
    rows = ledger.rows()[:MOST] if ledger.trained else []
    head = ("client", "releases", "rounds of private training", "ε of everything, as reported")
    return Section("privacy", "Privacy", ledger.statement(), table=TableOf(head, rows) if rows else None)


def _costs(facts: RunFacts) -> Section:
    history = facts.state.history
    spent = {name: sum(result.seconds.get(name, 0.0) for result in history) for name in _PHASES}
    parts = [Part(f"{_PHASES[n]}, {duration(s)}", s, f"t{i}") for i, (n, s) in enumerate(spent.items()) if s > 0]
    total = sum(spent.values())
    figures = [Figure(stack(parts, duration(total)), "Seconds of the whole run.", parts)]
    both = [sum(result.bytes_sent for result in history), sum(result.bytes_received for result in history)]
    names = ("to clients", "from clients")
    ways = [Part(f"{way}, {megabytes(n)}", n, f"t{i}") for i, (way, n) in enumerate(zip(names, both, strict=True))]
    caption = "Bytes of models, extractors and releases; what the transport adds is not counted."
    figures.append(Figure(stack(ways, megabytes(sum(both))), caption, ways))
    return Section("costs", "Time and communication", "", figures)


def _failures(facts: RunFacts) -> Section | None:
    rows = [(str(result.round), one.client, one.reason) for result in facts.state.history for one in result.failures]
    if not rows:
        return None
    words = "A client that fails costs its contribution, never the round."
    return Section("failures", "Failures", words, table=TableOf(("round", "client", "reason"), rows[:200]))


def _settings(facts: RunFacts) -> Section:
    missing = f" Data were not opened: {facts.missing}" if facts.missing else ""
    words = f"Every key that differs from its default.{missing}"
    return settings_section(words, facts.state.config)


def settings_section(words: str, config: Config) -> Section:
    return Section("settings", "Settings", words, code=to_commented_toml(config, "", {}), all=to_complete_toml(config))
