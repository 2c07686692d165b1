"""What a sweep leaves beside its runs: tables in four formats, a report with its charts, and everything as one JSON."""

from __future__ import annotations

import json
from dataclasses import replace

from fedaux.core.io import write_atomically
from fedaux.experiments.sweeps.engine import Swept
from fedaux.experiments.sweeps.grid import SYMBOLS, Sweep
from fedaux.report.comparison_page import write_comparison
from fedaux.report.tables import SPREAD, latex, markdown, pivot, runs_csv, summary, summary_csv


def write_results(found: Swept) -> Swept:
    """report.html, table.md, table.csv, table.tex, runs.csv, sweep.json and charts in the sweep's folder."""
    if not found.arms:
        found.check()  # nothing to show but what went wrong
    caption, pivoted = caption_of(found.sweep), pivot(found.arms)
    table = summary(found.curves, first_column(found.sweep))
    text, tex = f"{caption}\n\n{markdown(table.texts(), table.header)}", latex(table, caption, found.privacy)
    if pivoted:
        text += f"\nAfter the last round:\n\n{markdown(pivoted.texts(), pivoted.header)}"
        tex += "\n" + latex(pivoted, f"{caption} After the last round.", found.privacy)
    files = {
        "table.md": f"{text}\n{found.privacy}\n" if found.privacy else text,
        "table.tex": tex,
        "table.csv": summary_csv(found.arms),
        "runs.csv": runs_csv(found.arms),
        "sweep.json": json.dumps(found.to_dict(), indent=1, ensure_ascii=False),
    }
    for name, content in files.items():
        write_atomically(found.folder / name, content.encode())
    title = found.sweep.title or "Methods side by side"
    return replace(found, report=write_comparison(found.folder, title, found.arms))


def first_column(sweep: Sweep) -> str:
    return "method" if list(sweep.axes) in ([], ["method"]) else "arm"


def caption_of(sweep: Sweep) -> str:
    """What all arms have in common; what varies stands in the table."""
    base, axes = sweep.base, sweep.axes
    facts = {
        "data.source": base.data.source,
        "data.clients": f"{base.data.clients} clients",
        "data.alpha": f"{SYMBOLS['data.alpha']} = {base.data.alpha:g}",
        "prototypes": ", ".join(spec.label for spec in base.prototypes),
        "rounds": f"{base.rounds} round{'s' * (base.rounds > 1)}",
    }
    common = ", ".join(fact for key, fact in facts.items() if key not in axes)
    title = f"{sweep.title}. " if sweep.title else ""
    spread = f" {SPREAD}" if sweep.seeds > 1 else ""
    return f"{title}Test accuracy in %: {common}, {sweep.seeds} seed(s).{spread}"
