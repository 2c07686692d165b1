"""What our measurements say about a user's setting: the nearest one that was measured,
and its methods by accuracy.

Nothing is predicted. A table of measured settings comes with the package
(`measured.json`, made by `studies.measured`); advice is the rows of the nearest
setting, without methods whose requirements the user lacks, and where the two settings
differ.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any, Literal

from fedaux.config.methods import METHODS, SUMS
from fedaux.config.schema import Config
from fedaux.data.federated import open_data

Need = Literal["public data", "sums of features", "releases"]
# by the head computed from it
_SENDS = {name: method.sends for name, method in METHODS.items() if method.analytic}
UNEVEN = 1.0  # α up to which classes are held unevenly
FAR = math.log(3)  # two numbers further apart than three-fold are named as a difference


@dataclass(frozen=True)
class Setting:
    """The facts of a user's federation, or of a study, that decide between methods."""

    clients: int
    records: int  # per client, the mean
    # of a Dirichlet split; of another one that whose clients are as uneven
    alpha: float
    frozen: bool  # only heads train
    architectures: int
    epsilon: float  # of scores and releases
    rounds: int

    def distance(self, other: Setting) -> float:
        """Return the distance to another setting as a sum of log-factors, without ε and
        rounds, columns of a study.
        """
        return sum(abs(math.log(one / two)) for _, one, two in self._numbers(other))

    def differences(self, other: Setting) -> list[str]:
        """Describe the differences in words, where the numbers are far apart."""
        return [
            f"{name} {one:g}, measured {two:g}"
            for name, one, two in self._numbers(other)
            if differs_threefold(one, two)
        ]

    def _numbers(self, other: Setting) -> list[tuple[str, float, float]]:
        return [
            ("clients", self.clients, other.clients),
            ("records a client", self.records, other.records),
            ("α", self.alpha, other.alpha),
        ]


def differs_threefold(one: float, two: float) -> bool:
    return abs(math.log(one / two)) > FAR


@dataclass(frozen=True)
class Row:
    """A method's accuracy at several rounds; a head in closed form has one round."""

    method: str  # a name of `METHODS`
    label: str
    rounds: tuple[int, ...]
    accuracy: tuple[float, ...]  # mean over splits
    spread: tuple[float, ...]  # their sample standard deviation
    epsilon: float = 0.0  # of what is released; 0: nothing is
    # beside rates and epochs: starting head, teachers
    settings: Mapping[str, str | bool] = field(default_factory=dict)

    def after(self, rounds: int) -> int:
        """Return the position of the last evaluation within this number of rounds; −1
        if the first comes later.
        """
        return sum(one <= rounds for one in self.rounds) - 1

    @property
    def needs(self) -> tuple[Need, ...]:
        method, start = (
            METHODS[self.method],
            _SENDS.get(str(self.settings.get("head_init"))),
        )
        found: list[Need] = []
        if method.pretrained or method.distils:
            found.append("public data")
        if method.scores or "releases" in (method.sends, start):
            found.append("releases")
        if method.sends in SUMS or start in SUMS:
            found.append("sums of features")
        return tuple(found)


@dataclass(frozen=True)
class Study:
    """One measured setting; `setting.epsilon` and `.rounds` are the largest of its
    rows.
    """

    data: str
    source: str  # where its figures stand
    setting: Setting
    splits: int
    rows: tuple[Row, ...]


@dataclass(frozen=True)
class Advice:
    study: Study
    # the best first, with the position of the evaluation that counts
    rows: tuple[tuple[Row, int], ...]
    left_out: tuple[str, ...]
    differences: tuple[str, ...]
    # to take first: the private head where it suits, else the best
    first: tuple[Row, int] | None = None


def setting_of(config: Config, records: int = 0, alpha: float = 0.0) -> Setting:
    """Return the setting of a config; real sites, whose data cannot be counted, need
    `records` and `alpha`.
    """
    real = config.data.partition == "own"
    if not real:
        data = open_data(config)
        records = records or round(len(data.private) / len(data.parts))
        alpha = alpha or (
            config.data.alpha
            if config.data.partition == "dirichlet"
            else evenness(data.counts())
        )
    if not (records and alpha):
        raise ValueError(
            "the sites' data are at the sites: say with --records how many a site has, "
            "and with --alpha how uneven they are (0.01: about one class a site; 1: "
            "some classes more than others; 100: all alike)"
        )
    return Setting(
        clients=len(config.federation.sites) if real else config.data.clients,
        records=records,
        alpha=alpha,
        frozen=config.head_only,
        architectures=len(config.prototypes),
        epsilon=config.privacy.epsilon,
        rounds=config.rounds,
    )


def evenness(counts: Any) -> float:
    """The α of a symmetric Dirichlet distribution whose shares p of C classes have the
    same mean Σ p²,

    E Σ p² = (α + 1) / (Cα + 1), within [0.001, 1000].
    """
    kept = counts[counts.sum(axis=1) > 0]
    shares = kept / kept.sum(axis=1, keepdims=True)
    square, classes = float((shares**2).sum(axis=1).mean()), counts.shape[1]
    below = classes * square - 1
    return 1000.0 if below <= 0 else min(max((1 - square) / below, 0.001), 1000.0)


def advise(
    setting: Setting, studies: Sequence[Study], *, share_sums: bool = True
) -> Advice:
    """Take advice from the nearest study of the same kind that has a method for the
    user.

    On a frozen extractor with uneven clients the private head comes first: it is the
    only one that is all under ε.

    `share_sums`: whether sums of features may leave the clients unprotected.
    """
    kind = [one for one in studies if _kind(one.setting) == _kind(setting)]
    if not kind:
        known = "; ".join(describe(one.setting) for one in studies)
        raise ValueError(
            f"nothing was measured yet for {describe(setting)}; what was: {known}"
        )
    near = sorted(kind, key=lambda one: setting.distance(one.setting))
    suited = [one for one in near if _rows(one, setting, share_sums)[0]]
    study = next(iter(suited), near[0])
    rows, left_out = _rows(study, setting, share_sums)
    rows.sort(key=lambda one: -one[0].accuracy[one[1]])
    differences = setting.differences(study.setting)
    if rows and setting.rounds > 3 * study.setting.rounds:
        differences.append(f"rounds {setting.rounds}, measured {study.setting.rounds}")
    private = [one for one in rows if METHODS[one[0].method].sends == "releases"]
    suits = setting.frozen and setting.alpha <= UNEVEN
    first = next(iter([*(private if suits else []), *rows]), None)
    return Advice(study, tuple(rows), tuple(left_out), tuple(differences), first)


def _rows(
    study: Study, setting: Setting, share_sums: bool
) -> tuple[list[tuple[Row, int]], list[str]]:
    """Return what suits a user, with the positions of the evaluations that count, and
    what does not and why.

    Of a method at several ε only the largest within the user's ε is taken.
    """
    rows: list[tuple[Row, int]] = []
    left_out: list[str] = []
    for row in study.rows:
        position = row.after(setting.rounds)
        if not share_sums and "sums of features" in row.needs:
            left_out.append(
                f"{row.label}: sums of features would leave the clients unprotected"
            )
        elif row.epsilon > setting.epsilon:
            left_out.append(f"{row.label} was measured at ε = {row.epsilon:g}")
        elif position < 0:
            left_out.append(
                f"{row.label} was first measured after round {row.rounds[0]}"
            )
        else:
            rows.append((row, position))
    return _strongest_epsilon(rows), left_out


def consequence(row: Row) -> str:
    """Say in one sentence what leaves the clients."""
    if "sums of features" in row.needs:
        return "Sums of features leave the clients without noise; --keep-sums leaves such methods out."
    sums = [f"noisy sums under ε = {row.epsilon:g}"] if row.epsilon else []
    models = [] if METHODS[row.method].analytic else ["models without protection"]
    return f"What leaves the clients: {', and '.join([*sums, *models])}."


def options(row: Row) -> str:
    """Write the options of `fedaux run` that make it this method."""
    rounds = {"rounds": "1"} if METHODS[row.method].sends == "releases" else {}
    settings = {"method": row.method, **rounds, **row.settings}
    return " ".join(
        f"--set {key}={str(value).lower()}" for key, value in settings.items()
    )


def _kind(setting: Setting) -> tuple[bool, bool]:
    return setting.frozen, setting.architectures > 1


def _strongest_epsilon(rows: list[tuple[Row, int]]) -> list[tuple[Row, int]]:
    """Keep only the row with the largest ε among rows that differ in nothing else."""
    best: dict[str, tuple[Row, int]] = {}
    for row, position in rows:
        key = re.sub(r", ε = [\d.]+", "", row.label)
        if key not in best or row.epsilon > best[key][0].epsilon:
            best[key] = row, position
    return list(best.values())


def describe(setting: Setting) -> str:
    what = "heads on a frozen extractor" if setting.frozen else "whole networks"
    several = (
        f" of {setting.architectures} architectures"
        if setting.architectures > 1
        else ""
    )
    return (
        f"{what}{several}, {setting.clients} clients of about {setting.records:,} "
        f"records, α = {setting.alpha:.2g}, ε = {setting.epsilon:g}, {setting.rounds} "
        "rounds"
    )


def measured() -> tuple[Study, ...]:
    """The studies that come with the package."""
    table = json.loads(
        (files("fedaux.sweeps") / "measured.json").read_text(encoding="utf-8")
    )
    return tuple(
        Study(
            **{
                **one,
                "setting": Setting(**one["setting"]),
                "rows": tuple(_row(row) for row in one["rows"]),
            }
        )
        for one in table
    )


def _row(table: dict[str, Any]) -> Row:
    columns: dict[str, Any] = {
        key: tuple(table[key]) for key in ("rounds", "accuracy", "spread")
    }
    return Row(**{**table, **columns})
