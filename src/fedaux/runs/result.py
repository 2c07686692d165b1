"""What `fedaux.run` returns: figures, a table, the privacy statement, the model, a
plot.
"""

from __future__ import annotations

import importlib
import re
from dataclasses import dataclass
from functools import cached_property
from html import escape
from pathlib import Path
from textwrap import dedent
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from fedaux.config.methods import find_method
from fedaux.config.schema import Config
from fedaux.core import here
from fedaux.privacy.accounting import round_up
from fedaux.report.svg import NARROW
from fedaux.report.terminal import plural
from fedaux.runs.callbacks import round_metrics
from fedaux.server.result import FinishedRun
from fedaux.server.site_figures import describe_site_test

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from fedaux.export.column_effects import ColumnEffect
    from fedaux.export.model import Model
    from fedaux.report.charts import Chart


@dataclass(frozen=True)
class PrivacyStatement:
    """The privacy guarantee of a run and its limits: two lines when printed, everything
    in `full`.
    """

    summary: str
    not_covered: str
    full: str
    # the largest total of any client; None where nothing was released under noise
    epsilon: float | None
    delta: float | None

    def __str__(self) -> str:
        return f"{self.summary}\nNot covered: {self.not_covered}."

    def __repr__(self) -> str:
        return str(self)


class History(list[dict[str, Any]]):
    """All metrics by round: a list of dictionaries, printed as a table."""

    def __repr__(self) -> str:
        names = list(dict.fromkeys(name for row in self for name in row))
        lines = [names]
        lines += [[_cell(row.get(name)) for name in names] for row in self]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        return "\n".join(
            "  ".join(
                cell.rjust(width) for cell, width in zip(line, widths, strict=True)
            )
            for line in lines
        )


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.6g}" if isinstance(value, float) else str(value)


class Result(FinishedRun):
    """A finished run.

    `accuracy` and `curve` are measured on the test data. If the server has none,
    `curve` is empty, and `accuracy` is that of the test at the sites, whose figures and
    intervals are in `site_figures`. `history` has all metrics by round, `model`
    predicts, and `save` writes it to a folder. `warning` says what is wrong with the
    model, if anything is.

    Attributes:
        state: The state after the last round, with the settings and the results of all
            rounds.
        folder: The folder of the run.
    """

    @property
    def config(self) -> Config:
        """The settings of the run."""
        return self.state.config

    @property
    def history(self) -> Any:
        """All metrics by round: a pandas DataFrame if pandas is installed, else a list
        of dictionaries that prints as a table.
        """
        rows = [round_metrics(result) for result in self.state.history]
        try:
            return importlib.import_module("pandas").DataFrame(rows).set_index("round")
        except ImportError:
            return History(rows)

    @property
    def privacy(self) -> PrivacyStatement:
        """The privacy guarantee of the clients, and what it does not cover."""
        summary = self.ledger.to_dict()
        epsilon = summary["epsilon"]
        delta = summary["delta"]
        vouched = [
            here.readable(spec.label).rpartition(":")[2]
            for spec in self.config.prototypes
            if spec.name in here.vouched
        ]
        full = self.statement
        condition = ""
        if vouched:
            names = ", ".join(vouched)
            trust = f"rests on your word that {names} treats every record separately"
            full += f" It {trust}."
            condition = f", and it {trust}"
        line = self.ledger.summary()
        if epsilon is not None:
            covered = " and ".join(summary["covered"])
            guarantee = f"({round_up(epsilon)}, {delta:g})-differentially private"
            line = f"{guarantee}: {covered}{condition}"
        return PrivacyStatement(
            line or "Nothing was released under differential privacy",
            "; ".join(summary["not_covered"]),
            full,
            epsilon,
            delta,
        )

    @cached_property
    def models(self) -> dict[str, Model]:
        """The trained network of each prototype, by its label."""
        from fedaux.export.export import make_models

        return make_models(self.state)

    @property
    def model(self) -> Model:
        """The trained network, of several the most accurate, or the first if nothing
        was tested. `result.model.predict(x)` returns probabilities.
        """
        accuracies = self.accuracies
        labels = list(accuracies or self.models)
        return self.models[max(labels, key=lambda label: accuracies.get(label, 0.0))]

    @property
    def classes_(self) -> NDArray[np.str_]:
        """The names of the classes, in the order of the columns of `predict_proba`."""
        return self.model.classifier.classes_

    def predict(self, records: Any) -> NDArray[np.str_]:
        """Predict the name of the class of each record, as scikit-learn's classifiers do.

        Args:
            records: As for `Model.predict`: arrays, or of a table a DataFrame.
        """
        return self.model.classifier.predict(records)

    def predict_proba(self, records: Any) -> NDArray[np.float32]:
        """Predict probabilities (N, C), with columns in the order of `classes_`.

        Args:
            records: As for `predict`.
        """
        return self.model.predict(records)

    @property
    def columns(self) -> list[ColumnEffect]:
        """Of the linear model of a table, how far each column can move a prediction,
        largest first, or [] for others.
        """
        return self.model.columns

    def save(self, folder: str | Path, onnx: bool = False) -> Path:
        """Write `model` to a folder, with its card and README.
        `fedaux.Model.from_pretrained` loads it.

        Args:
            folder: The folder to write to. It is created if necessary.
            onnx: Also write an ONNX graph.

        Returns:
            The folder's path.
        """
        return self.model.save_pretrained(folder, onnx)

    def write_report(self) -> Path:
        """Write `report.html` to the folder of the run, as `fedaux report FOLDER` does.

        Returns:
            The path of the page.
        """
        from fedaux.report.run_page import write_run_report

        return write_run_report(self.folder)

    def plot(self) -> Chart:
        """Draw the accuracy by round: notebooks show the chart, `.save("curve.pdf")`
        writes it (svg, pdf, png).
        """
        from fedaux.report.run_page import accuracy_chart

        return accuracy_chart(self.state)

    @property
    def warning(self) -> str:
        """What is wrong with the model and what to try first, or "" if it beats the
        majority class and predicts all.
        """
        return re.sub(r"--set (?:(\w+)\.)?(\w+)=([\w.+-]+)", _keyword, super().warning)

    @property
    def label(self) -> str:
        """The name of the method, for readers."""
        return find_method(self.config.method).label

    def __repr__(self) -> str:
        clients = len(self.config.federation.sites) or self.config.data.clients
        lines = [
            f"{self.label}: {self.accuracy_in_words} after "
            f"{plural(self.state.round, 'round')}, {plural(clients, 'client')}",
            *self._tested_at_sites(),
            f"privacy: {self.privacy.summary}",
            f"folder: {self.folder} (write_report() makes a page of it)",
            *(f"warning: {warning}" for warning in self.warnings),
        ]
        return "\n  ".join(lines)

    def _tested_at_sites(self) -> list[str]:
        test = self.state.site_test
        return [describe_site_test(test)] if test is not None else []

    def _repr_html_(self) -> str:
        """A card for Jupyter: the figures and the curve."""
        first, *rest = repr(self).splitlines()
        lines = "".join(f"<div>{escape(line.strip())}</div>" for line in rest)
        image = ""
        if self.curve:
            # an image: the page keeps its own style
            chart = quote(self.plot().svg(NARROW).standalone())
            image = (
                '<img width="300" alt="test accuracy by round" '
                f'src="data:image/svg+xml,{chart}">'
            )
        return dedent(f"""\
            <div style="display:flex;gap:1.5em;align-items:center;font-family:system-ui,sans-serif">
            {image}
            <div><strong>{escape(first)}</strong>{lines}</div></div>""")


def _keyword(option: re.Match[str]) -> str:
    """An option of the command line as an argument of `fedaux.run`."""
    section, key, value = option.groups()
    literal = _literal(value)
    if section:
        return f'{section}={{"{key}": {literal}}}'
    return f"{key}={literal}"


def _literal(value: str) -> str:
    """Return a setting's value as Python writes it."""
    if value in ("true", "false"):
        return value.title()
    try:
        float(value)
    except ValueError:
        return repr(value)
    return value
