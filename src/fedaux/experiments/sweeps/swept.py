"""What a sweep has found: a value for every arm, and what failed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedaux.core.errors import Exit, FedauxError
from fedaux.experiments.sweeps.grid import Run, Sweep
from fedaux.experiments.sweeps.workers import Trouble
from fedaux.report.arms import ArmResult


class SweepError(FedauxError):
    """Runs that failed while others went on; its code is that of the first."""

    def __init__(self, text: str, code: Exit) -> None:
        super().__init__(text)
        self.code = code


@dataclass(frozen=True)
class Failed:
    run: Run
    trouble: Trouble


@dataclass(frozen=True, eq=False)
class Swept:
    """What a sweep has found so far: arms with at least one finished run, and runs that failed."""

    sweep: Sweep
    folder: Path
    arms: tuple[ArmResult, ...]
    failures: tuple[Failed, ...] = ()
    report: Path | None = None  # the page, once it is written

    @property
    def curves(self) -> dict[str, NDArray[np.float64]]:
        """By label, (seeds, rounds)."""
        return {arm.label: arm.curves for arm in self.arms}

    @property
    def last(self) -> dict[str, float]:
        return {label: float(values[:, -1].mean()) for label, values in self.curves.items()}

    @property
    def privacy(self) -> str:
        """The one statement of all arms that release anything; several, each with its arms, where they differ."""
        labels: dict[str, list[str]] = {}
        for arm in self.arms:
            if arm.privacy:
                labels.setdefault(arm.privacy, []).append(arm.label)
        if len(labels) == 1:
            return next(iter(labels))
        return "\n\n".join(f"{'; '.join(names)}: {statement}" for statement, names in labels.items())

    def check(self) -> None:
        """Raise if a run failed."""
        if not self.failures:
            return
        shown = " ".join(f"{one.run.label}: {one.trouble.text.rstrip('.')}." for one in self.failures[:3])
        count, of = len(self.failures), len(self.sweep.runs(self.folder))
        more = f" (the first 3 of {count})" if count > 3 else ""
        raise SweepError(
            f"{count} of {of} runs failed{more}. {shown} What the others have is kept in {self.folder}; "
            "the same command goes on with what is missing.",
            self.failures[0].trouble.code,
        )

    def to_dict(self) -> dict[str, Any]:
        failures = [
            {"label": one.run.label, "code": int(one.trouble.code), "error": one.trouble.text} for one in self.failures
        ]
        return {
            "title": self.sweep.title,
            "folder": str(self.folder),
            "axes": {key: list(values) for key, values in self.sweep.axes.items()},
            "arms": [arm.to_dict(self.folder) for arm in self.arms],
            "failures": failures,
        }
