"""The one number that a study is for. It is fixed before the runs start, so that no
window and no rival can be chosen by the results.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedaux.report.statistics import holm, interval, paired_p
from fedaux.report.tables import markdown

Curves = Mapping[str, list[float]]  # accuracy after each round, by split
COLUMNS = ("difference, in points", "mean", "± 95 %", "p", "p, Holm", "splits")


class Paired(NamedTuple):
    """`ours` less a rival, over the splits that both have."""

    rival: str
    values: NDArray[np.float64]

    @property
    def mean(self) -> float:
        return float(self.values.mean())

    @property
    def p(self) -> float:
        return paired_p(self.values)

    @property
    def half_width(self) -> float:
        """Of the 95 % interval of the mean."""
        between = interval(self.values)
        assert between is not None
        low, high = between
        return (high - low) / 2


@dataclass(frozen=True)
class Question:
    """How much higher is the mean accuracy of rounds 1 to `rounds` with `ours` than
    with each rival? Paired over splits, two-sided, corrected by Holm over the rivals.
    """

    case: str
    ours: str
    rivals: tuple[str, ...]
    rounds: int
    splits: int

    @property
    def arms(self) -> tuple[str, ...]:
        """All that must run, in the order in which it is most worth running."""
        return (self.ours, *self.rivals)

    def answer(self, curves: Mapping[str, Curves]) -> str:
        """Return the number with a table of all rivals, or what has not run yet."""
        means = {name: self._means(curves.get(name, {})) for name in self.arms}
        missing = []
        for name, by_split in means.items():
            if len(by_split) < self.splits:
                missing.append(f"{name} has {len(by_split)} of {self.splits} splits")
        pairs = []
        for rival in self.rivals:
            shared = sorted(set(means[self.ours]) & set(means[rival]))
            differences = [means[self.ours][at] - means[rival][at] for at in shared]
            if interval(np.array(differences)) is not None:
                pairs.append(Paired(rival, np.array(differences)))
        heading = (
            f"Mean of rounds 1 to {self.rounds}, {self.ours} less each rival "
            f"({self.case}, paired over splits, two-sided):"
        )
        parts = [heading]
        if missing:
            parts.append(f"**Not answered yet**: {', '.join(missing)}.")
        else:
            parts.append(self._number(pairs))
        if pairs:
            parts.append(self._table(pairs, complete=not missing))
        return "\n\n".join(parts) + "\n"

    def _means(self, curves: Curves) -> dict[int, float]:
        """The mean of all rounds by split, of the splits that have them."""
        means = {}
        for split, curve in curves.items():
            if int(split) < self.splits and len(curve) >= self.rounds:
                means[int(split)] = float(np.mean(curve[: self.rounds]))
        return means

    def _number(self, pairs: list[Paired]) -> str:
        corrected = holm([pair.p for pair in pairs])
        # the best rival is the one that is least behind
        at = int(np.argmin([pair.mean for pair in pairs]))
        best = pairs[at]
        return (
            f"**{self.ours} − {best.rival}, the best rival: {100 * best.mean:+.1f} ± "
            f"{100 * best.half_width:.1f} points, p = {corrected[at]:.3f} by Holm.**"
        )

    def _table(self, pairs: list[Paired], *, complete: bool) -> str:
        """The rows of all rivals. A correction needs all of them."""
        p_values = [pair.p for pair in pairs]
        corrected = [f"{p:.3f}" for p in holm(p_values)]
        if not complete:
            corrected = ["–"] * len(pairs)
        rows = []
        for pair, by_holm in zip(pairs, corrected, strict=True):
            rows.append(
                (
                    f"{self.ours} − {pair.rival}",
                    f"{100 * pair.mean:+.1f}",
                    f"{100 * pair.half_width:.1f}",
                    f"{pair.p:.3f}",
                    by_holm,
                    str(len(pair.values)),
                )
            )
        return markdown(rows, COLUMNS)
