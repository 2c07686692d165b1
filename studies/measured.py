"""What `fedaux advise` knows: results of the studies as one table that comes with the
package.

python -m studies.measured                                   # studies of heads and
networks in studies/results python -m studies.measured --demo fedaux-demo/sweep.json
# and the demo, of `fedaux demo --seeds 5 --rounds 40` python -m studies.measured
--mixed runs/mixed/sweep.json     # and three architectures
(studies/results/mixed-digits.md)

What is not made anew stays as it is.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from fedaux.config.methods import METHODS, find_method
from fedaux.config.presets import DEMO
from fedaux.config.schema import Config
from fedaux.sweeps.advice import Row, Setting, Study, setting_of
from studies import heads, regimes
from studies.tuned import Design, curves_of

TARGET = Path(__file__).parents[1] / "src" / "fedaux" / "sweeps" / "measured.json"
MIXED = Path(__file__).parents[1] / "examples" / "mixed.toml"
ROUNDS = (1, 5, 10, 20, 40, 100)
SPLITS = 3  # a row needs so many
TABLES = (
    (heads.DESIGN, "features of CIFAR-10", "docs/analytic.md#tuned"),
    (regimes.DESIGN, "CIFAR-10", "docs/networks.md#several-classes-per-client"),
)


def row(
    method: str,
    label: str,
    curves: Sequence[Sequence[float]],
    epsilon: float,
    settings: Mapping[str, Any],
) -> Row:
    values = np.array([curve[: min(map(len, curves))] for curve in curves])
    at = [one for one in ROUNDS if one <= values.shape[1]]
    columns = values[:, [one - 1 for one in at]]
    mean, spread = columns.mean(axis=0), columns.std(axis=0, ddof=1)
    released = (
        METHODS[method].scores
        or METHODS[method].sends == "releases"
        or settings.get("head_init") == "private-head"
    )
    rounded = [tuple(round(float(one), 4) for one in part) for part in (mean, spread)]
    return Row(
        method,
        label,
        tuple(at),
        rounded[0],
        rounded[1],
        epsilon if released else 0.0,
        settings,
    )


def tuned(design: Design, data: str, source: str) -> Iterator[Study]:
    """One study for each case of a design on all 50,000 images of CIFAR-10."""
    found = design.found()
    for case, overrides in design.cases.items():
        config = Config.load(design.config, [*design.base, *overrides])
        fits = [
            name
            for name, arm in design.arms.items()
            if arm.method in METHODS and not arm.like
        ]
        known = {name: list(curves_of(found, case, name).values()) for name in fits}
        arms = {name: runs for name, runs in known.items() if len(runs) >= SPLITS}
        # beyond the second, there is no rival
        reached = sorted(min(map(len, runs)) for runs in arms.values())[-2:]
        rows = [
            row(
                design.arms[name].method,
                name,
                [run[: reached[0]] for run in runs],
                float(design.arms[name].settings.get("privacy.epsilon", 1.0)),
                _chosen(design, found, case, name),
            )
            for name, runs in arms.items()
        ]
        if rows:
            clients, largest = config.data.clients, max(one.rounds[-1] for one in rows)
            setting = Setting(
                clients,
                50_000 // clients,
                config.data.alpha,
                config.head_only,
                1,
                1.0,
                largest,
            )
            yield Study(data, source, setting, SPLITS, tuple(rows))


def _chosen(
    design: Design, found: Mapping[str, Any], case: str, name: str
) -> dict[str, Any]:
    """Where a computed start or standing teachers won. Rates and epochs are left to the
    user's own tuning.
    """
    arm, tuned = design.arms[name], found["tuned"]
    settings = (
        arm.settings
        if arm.fixed
        else tuned[f"{design.tuned_on.get(case, case)}|{name}"]["settings"]
    )
    keys = (
        ()
        if METHODS[arm.method].analytic
        else ("head_init", "prepare", "teachers.standing")
    )
    return {key: settings[key] for key in keys if settings.get(key)}


def digits(config: Config, sweep: dict[str, Any]) -> Study:
    """Of whole networks: the demo, or the example with several architectures."""
    names = {find_method(name).label: name for name in METHODS}
    rows = tuple(
        row(
            names[arm["label"]], arm["label"], arm["curves"], config.privacy.epsilon, {}
        )
        for arm in sweep["arms"]
    )
    setting = replace(setting_of(config), rounds=rows[0].rounds[-1])
    mixed = (
        "digits in three architectures",
        "docs/results.md#three-architectures-side-by-side",
    )
    data, source = (
        mixed if setting.architectures > 1 else ("digits", "docs/results.md#digits")
    )
    return Study(data, source, setting, len(sweep["arms"][0]["seeds"]), rows)


def to_text(studies: Sequence[dict[str, Any]]) -> str:
    """JSON with a line for each row."""
    parts = []
    for one in studies:
        facts = json.dumps({**one, "rows": []}, ensure_ascii=False).removesuffix("]}")
        parts.append(
            facts
            + "\n"
            + ",\n".join(json.dumps(row, ensure_ascii=False) for row in one["rows"])
            + "\n]}"
        )
    return "[\n" + ",\n".join(parts) + "\n]\n"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--demo", type=Path, help="sweep.json of `fedaux demo`")
    parser.add_argument(
        "--mixed", type=Path, help="sweep.json of `fedaux compare examples/mixed.toml`"
    )
    asked = parser.parse_args()
    studies = [study for table in TABLES for study in tuned(*table)]
    for config, sweep in ((DEMO, asked.demo), (Config.load(MIXED), asked.mixed)):
        if sweep is not None:
            studies.append(
                digits(config, json.loads(sweep.read_text(encoding="utf-8")))
            )
    made, names = [asdict(one) for one in studies], {one.data for one in studies}
    kept = [
        one
        for one in json.loads(TARGET.read_text(encoding="utf-8"))
        if one["data"] not in names
    ]
    TARGET.write_text(to_text([*made, *kept]), encoding="utf-8")
    print(
        f"{TARGET.name}: "
        f"{', '.join(f'{one.data}, {len(one.rows)} rows' for one in studies)}"
    )


if __name__ == "__main__":
    main()
