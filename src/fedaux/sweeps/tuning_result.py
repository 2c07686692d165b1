"""What a tuning has found, as files: the winners for a comparison, every trial, and a table for people."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from fedaux.config.methods import find_method
from fedaux.core.io import write_atomically
from fedaux.report.tables import markdown, to_csv
from fedaux.report.terminal import plural
from fedaux.sweeps.arms import describe
from fedaux.sweeps.chosen import WINNERS
from fedaux.sweeps.tuning_grid import at_edge
from fedaux.sweeps.tuning_plan import FIRST_SEED, Trial, Tuning, held_out_seed

HEADER = ("method", "validation accuracy", "as in the config", "settings", "rounds", "chosen")


def rows(tuning: Tuning) -> list[tuple[str, ...]]:
    """One line a method: its winner, the config's own setting as far as that came, and what it took."""
    found = list[tuple[str, ...]]()
    for name, trials in tuning.trials.items():
        winner = tuning.winner(name)
        own = next((trial for trial in trials if trial.number == 0), None)
        facts = str(len(trials)), str(tuning.total_rounds(name)), _chosen(tuning, name)
        found.append(
            (find_method(name).label, _score(winner, tuning), "–" if own is None else _score(own, tuning), *facts)
        )
    return found


def caption(tuning: Tuning) -> str:
    base, seeds = tuning.base, tuning.seeds
    halving = ", ".join(f"{rung.settings} until round {rung.rounds}" for rung in tuning.rungs)
    return (
        f"Validation accuracy in %: {base.data.source}, {base.data.clients} clients, "
        f"{', '.join(spec.label for spec in base.prototypes)}, {plural(base.rounds, 'round')}. "
        f"{tuning.budget} settings a method at most ({halving}), {plural(seeds, 'split')}, "
        f"{100 * tuning.validation_fraction:g} % of the private records held out for validation. "
        "The winner's own figure is optimistic: it was chosen by it."
    )


def winners(tuning: Tuning) -> dict[str, Any]:
    """What a comparison needs to know: each method's settings, and how they were found."""
    return {
        "budget": tuning.budget,
        "seeds": [tuning.base.seed + FIRST_SEED + i for i in range(tuning.seeds)],
        "rungs": [[rung.settings, rung.rounds] for rung in tuning.rungs],
        "validation_fraction": tuning.validation_fraction,
        "test_seed": held_out_seed(tuning.base),
        "config": tuning.base.to_dict(),
        "methods": {
            name: {
                "settings": tuning.winner(name).settings,
                "at_edge": at_edge(tuning.grids[name], tuning.winner(name).settings),
                "accuracy": tuning.winner(name).scores[tuning.base.rounds],
                "tried": len(trials),
                "rounds": tuning.total_rounds(name),
            }
            for name, trials in tuning.trials.items()
        },
    }


def to_dict(tuning: Tuning) -> dict[str, Any]:
    """Winners, grids and all trials."""
    grids = {name: {axis.key: list(axis.allowed) for axis in grid} for name, grid in tuning.grids.items()}
    trials = {name: [trial.to_dict() for trial in found] for name, found in tuning.trials.items()}
    return {**winners(tuning), "grids": grids, "trials": trials}


def write_tuning(tuning: Tuning, folder: Path) -> Tuning:
    """tuned.json (`--tuned`), tune.json with grids and trials, trials.csv and table.md."""
    stops = [rung.rounds for rung in tuning.rungs]
    lines: list[list[Any]] = [["method", "setting", *(f"round_{stop}" for stop in stops), "settings", "folder"]]
    for name, trials in tuning.trials.items():
        for trial in trials:
            scores = [trial.scores.get(stop) for stop in stops]
            lines.append([name, trial.number, *scores, describe(trial.settings), trial.arm.name])
    files = {
        WINNERS: json.dumps(winners(tuning), indent=1, ensure_ascii=False),
        "tune.json": json.dumps(to_dict(tuning), indent=1, ensure_ascii=False),
        "trials.csv": to_csv(lines),
        "table.md": f"{caption(tuning)}\n\n{markdown(rows(tuning), HEADER)}",
    }
    for name, content in files.items():
        write_atomically(folder / name, content.encode())
    return tuning


def _chosen(tuning: Tuning, name: str) -> str:
    """The winner's settings, and which of them might be better beyond what was tried."""
    settings = tuning.winner(name).settings
    edges = at_edge(tuning.grids[name], settings)
    return describe(settings) + "".join(f"; {key} is at the edge of its list: widen it" for key in edges)


def _score(trial: Trial, tuning: Tuning) -> str:
    """Per cent; with the round where that was not the last."""
    text = f"{100 * trial.scores[trial.rounds]:.1f}"
    return text if trial.rounds == tuning.base.rounds else f"{text} (round {trial.rounds})"
