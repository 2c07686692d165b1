"""A finished run: the figures people ask for, and if its model collapsed, what is wrong
and the first thing to try.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import fmean, median
from typing import Any

import numpy as np

from fedaux.config.distillation import DISTILL_STEPS
from fedaux.config.methods import find_method
from fedaux.config.schema import Config
from fedaux.core.binary_metrics import Calibration
from fedaux.core.metrics import Evaluation, format_percent
from fedaux.core.results import RoundResult
from fedaux.data.federated import class_names
from fedaux.privacy.accounting import weak_guarantees
from fedaux.privacy.ledger import Ledger
from fedaux.server.run_state import RunState
from fedaux.server.site_figures import (
    SiteFigures,
    figures_of_sites,
    figures_of_test,
)

ENOUGH_SIGNAL = 1.0  # records times ε of a release; below, noise hides the records
ENOUGH_STEPS = 40  # of a client in a round; fewer hardly change a network
FALL = 0.01  # of accuracy below the start, from which a warning names it


def last_evaluations(state: RunState) -> dict[str, Evaluation]:
    """Return the test evaluation of each prototype after the last round."""
    evaluations: dict[str, Evaluation] = {}
    if state.history:
        last = state.history[-1]
        for label, table in (last.confusion or {}).items():
            metrics = last.metrics.get(label, {})
            rows = (last.calibration or {}).get(label)
            evaluations[label] = Evaluation(
                np.array(table, np.int64),
                metrics.get("auc"),
                metrics.get("average_precision"),
                metrics.get("recall_at_rate"),
                None if rows is None else Calibration.from_rows(rows),
            )
    return evaluations


def names_of_classes(config: Config, count: int) -> Sequence[str]:
    """Return the names of the classes, or numbers if the data can no longer be
    opened.
    """
    try:
        return class_names(config)
    except (ValueError, OSError, ImportError):
        return tuple(map(str, range(count)))


def collapse_warning(state: RunState) -> str:
    """Describe a collapsed model in two sentences, or "" if every prototype beats the
    majority class and predicts all.
    """
    evaluations = last_evaluations(state)
    sentences: list[str] = []
    for label, evaluation in evaluations.items():
        if not evaluation.collapsed:
            continue
        # only now data are opened, for names
        names = names_of_classes(state.config, len(evaluation.table))
        sentence = evaluation.collapse(names)
        if len(evaluations) > 1:
            sentence = f"{label}: {sentence}"
        sentences.append(sentence)
    if not sentences:
        return ""
    return f"{'; '.join(sentences)}. First try: {first_remedy(state)}"


def fall_warning(history: Sequence[RoundResult]) -> str:
    """Name the first round whose model is worse than the one that round 1 started from, or
    "" if there is none.
    """
    start = history[0].mean_start if history else None
    if start is None:
        return ""
    for result in history:
        accuracy = result.mean_accuracy
        if accuracy is not None and accuracy < start - FALL:
            return (
                f"Round {result.round} has accuracy {format_percent(accuracy)}, "
                f"below the {format_percent(start)} of the model that round 1 started "
                "from: training or distillation undoes what it had."
            )
    return ""


def describe_unknown_classes(state: RunState, label: str = "") -> list[str]:
    """Describe the classes that the private head of a prototype, or of any, knows
    nothing of: `cat: about 12 ± 30`.
    """
    if not state.history:
        return []
    by_label = state.history[-1].unknown_classes
    rows = [
        (prototype, row)
        for prototype, unknown in by_label.items()
        for row in unknown
        if label in ("", prototype)
    ]
    if not rows:
        return []
    names = names_of_classes(state.config, 1 + max(row[0] for _, row in rows))
    several = len(by_label) > 1 and not label
    sentences: list[str] = []
    for prototype, (number, count, deviation) in rows:
        name = f"{prototype}, {names[number]}" if several else names[number]
        records = f"{max(0.0, count):,.0f} ± {deviation:,.0f} records"
        sentences.append(f"{name}: about {records}")
    return sentences


def privacy_warnings(state: RunState) -> list[str]:
    """Say which part of the guarantee is worth nothing, a sentence each."""
    config = state.config
    if not (config.releases or config.privacy.private_training):
        return []
    metrics = [
        client for result in state.history for client in result.client_metrics.values()
    ]
    records = max((client.records for client in metrics), default=0)
    return weak_guarantees(config.privacy, records)


def first_remedy(state: RunState) -> str:
    """Suggest a change for the likeliest cause: too few local steps, a weak
    distillation, uninformative features.
    """
    config = state.config
    method = find_method(config.method)
    metrics = state.history[-1].client_metrics.values()
    records = [client.records for client in metrics] or [1]
    batches = math.ceil(median(records) / config.local.batch_size)
    steps = config.local.epochs * batches
    if config.releases and median(records) * config.privacy.epsilon < ENOUGH_SIGNAL:
        return (
            f"a larger privacy.epsilon, or clients with more records: of "
            f"{median(records):g} records at ε = {config.privacy.epsilon:g} a release "
            "is mostly noise."
        )
    if not method.analytic and steps < ENOUGH_STEPS:
        epochs = math.ceil(ENOUGH_STEPS / batches)
        return (
            f"--set local.epochs={epochs}, because a client makes only {steps} steps a "
            "round."
        )
    if method.distils and config.distill.epochs and not config.distill.steps:
        return (
            f"--set distill.steps={DISTILL_STEPS}, because passes over few public "
            "examples are few steps."
        )
    if not method.pretrained:
        better = "fedaux" if method.distils else f"{config.method}+p"
        return f"--set method={better}, because this one starts from random features."
    random_head = not method.analytic and config.head_start == "random"
    if random_head and config.privacy.scorer == "class-embedding":
        return (
            "--set head_only=true --set head_init=private-head, so that heads start "
            "from the clients' releases."
        )
    return (
        "more rounds, a larger privacy.epsilon, or public data that look more like the "
        "private ones."
    )


@dataclass(frozen=True, eq=False)
class FinishedRun:
    """A finished run: its last state, and the figures people ask for."""

    state: RunState
    folder: Path

    @property
    def curve(self) -> list[float]:
        """Test accuracy after each round, the mean over prototypes; [] if the server
        has no test data.
        """
        measured = [result.mean_accuracy for result in self.state.history]
        return [accuracy for accuracy in measured if accuracy is not None]

    @property
    def start(self) -> float | None:
        """Test accuracy before round 1, the mean over prototypes, or None where nothing is
        trained.
        """
        return self.state.history[0].mean_start if self.state.history else None

    @property
    def accuracies(self) -> dict[str, float]:
        """Test accuracy of each prototype after the last round; of the test at the
        sites, if the server has no test data. {} if nothing was tested.
        """
        at_server = self.state.history[-1].accuracy
        if at_server:
            return at_server
        return {
            tested.network: tested.figures["accuracy"].value
            for tested in self.site_figures
            if "accuracy" in tested.figures
        }

    @property
    def accuracy(self) -> float | None:
        """Mean over prototypes of `accuracies`; None if nothing was tested.

        It is that of the last round, not of the best round, which only the test labels
        could have chosen.
        """
        return fmean(self.accuracies.values()) if self.accuracies else None

    @property
    def accuracy_in_words(self) -> str:
        """The accuracy, and whether the sites have measured it."""
        if self.accuracy is None:
            return "not tested"
        measured = "" if self.curve else " at the sites"
        return f"accuracy {format_percent(self.accuracy)}{measured}"

    @cached_property
    def site_figures(self) -> list[SiteFigures]:
        """The figures of each network on records that the sites hold out; [] if they
        did not test it.
        """
        test = self.state.site_test
        return figures_of_test(test) if test is not None else []

    @property
    def warning(self) -> str:
        """What is wrong with the model and what to try first, or "" if it beats the
        majority class and predicts all.
        """
        return collapse_warning(self.state)

    @property
    def unknown_classes(self) -> list[str]:
        """The classes that a private head knows nothing of, with their noisy counts of
        records.
        """
        return describe_unknown_classes(self.state)

    @property
    def warnings(self) -> list[str]:
        """All that is wrong with the model, a sentence each."""
        warnings = [self.warning] if self.warning else []
        fall = fall_warning(self.state.history)
        if fall:
            warnings.append(fall)
        warnings += privacy_warnings(self.state)
        unknown = "; ".join(self.unknown_classes)
        if unknown:
            warnings.append(
                f"The head knows nothing of {unknown}: their noise hides them."
            )
        return warnings

    @property
    def statement(self) -> str:
        """The privacy guarantee and what it does not cover, in one self-contained
        paragraph.
        """
        return self.ledger.statement()

    def to_dict(self) -> dict[str, Any]:
        """Return the key figures of the run, for JSON."""
        ledger = self.ledger
        config = self.state.config
        last = self.state.history[-1]
        failed = {
            failure.client
            for result in self.state.history
            for failure in result.failures
        }
        return {
            "folder": str(self.folder),
            "method": config.method,
            "seed": config.seed,
            "rounds": self.state.round,
            "accuracy": self.accuracy,
            "start": self.start,
            "curve": self.curve,
            "prototypes": self.accuracies,
            "metrics": last.metrics,
            "warning": self.warning,
            "unknown_classes": self.unknown_classes,
            "failed": sorted(failed),
            "site_test": self._site_test(),
            "privacy": {
                "epsilon": ledger.max_epsilon or None,
                "delta": ledger.delta,
                "statement": self.statement,
            },
        }

    def _site_test(self) -> dict[str, Any] | None:
        """Return the test at the sites for JSON: figures with intervals, and what the
        look cost.
        """
        test = self.state.site_test
        if test is None:
            return None
        return {
            "networks": [found.to_dict() for found in self.site_figures],
            "sites": [found.to_dict() for found in figures_of_sites(test)],
            "failures": [vars(failure) for failure in test.failures],
            "epsilon": {
                "learning": test.total_before,
                "look": test.epsilon,
                "together": test.total,
            },
        }

    @property
    def ledger(self) -> Ledger:
        """The privacy budget that the clients report to have spent."""
        return self.state.ledger
