"""Do the first rounds keep what the private head knows, and what do distillation and the
teachers' weights add? Six cases, three splits, ten rounds, ε = 1, all from one start.

    python -m studies.first_rounds            # runs, and goes on where it was stopped
    python -m studies.first_rounds --table    # the tables alone

Every arm starts from the same private head: same split, same noise. "start" is this
model before round 1. "before" has the defaults of earlier versions: one epoch of
distillation at 5e-5, and under a computed head SGD at 0.01 with gradients of any length
and BatchNorm's statistics of each client. FedDF weighs all teachers alike, FedET by the
variance of their logits, and FedAvg does not distil. "constant" arms have a constant
learning rate, BatchNorm's statistics of each client, and 200 steps of distillation in
every round.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

import fedaux
from fedaux.config.parsing import set_key

REPOSITORY = Path(__file__).resolve().parents[1]
RESULTS = REPOSITORY / "studies" / "results" / "first-rounds.json"
SEEDS = (0, 1, 2)
ROUNDS = 10
SHOWN = (1, 2, 5, 10)

Settings = dict[str, Any]  # by dotted key

SIMCLR: Settings = {
    "pretrain.batch_size": 256,
    "pretrain.min_crop_area": 0.5,
    "pretrain.flip": False,
}
FASHION: Settings = {
    "data.source": "studies.sources:fashion_mnist",
    "data.options": {"limit": 4000, "test_limit": 2000},
    "data.clients": 10,
    "data.alpha": 0.1,
    "pretrain.epochs": 6,
    **SIMCLR,
}
OWN_NETWORK: Settings = {
    "prototypes": ["studies.first_rounds:network"],
    "pretrain.epochs": 0,  # as most networks that users bring
}
SAME_KIND: Settings = {"aux.fraction": 0.5}
DIGITS_AS_PUBLIC: Settings = {"aux.source": "studies.sources:mnist", "aux.limit": 2000}
CASES: dict[str, Settings] = {
    "Fashion-MNIST, own network": {**FASHION, **OWN_NETWORK, **SAME_KIND},
    "the same, public: MNIST": {**FASHION, **OWN_NETWORK, **DIGITS_AS_PUBLIC},
    "Fashion-MNIST, cnn": {**FASHION, "prototypes": ["cnn"], **SAME_KIND},
    "PneumoniaMNIST, three sites": {
        "prototypes": ["cnn"],
        "data.source": "studies.sources:pneumonia",
        "data.clients": 3,
        "data.alpha": 0.1,
        "aux.fraction": 0.5,
        "pretrain.epochs": 6,
        **SIMCLR,
    },
    "digits, cnn": {
        "prototypes": ["cnn"],
        "data.source": "digits",
        "data.clients": 10,
        "data.alpha": 0.1,
        "aux.fraction": 0.5,
        "pretrain.epochs": 30,
        "privacy.embedding_dim": 12,
        **SIMCLR,
    },
    "Fashion-MNIST, heads": {
        **FASHION,
        "prototypes": ["cnn"],
        "head_only": True,
        **SAME_KIND,
    },
}
BEFORE: Settings = {
    "distill.epochs": 1,
    "distill.lr": 5e-5,
    "local.max_grad_norm": 0.0,
    "local.schedule": "constant",
    "local.freeze_batch_norm": False,
}
CONSTANT: Settings = {
    "distill.steps": 200,
    "local.schedule": "constant",
    "local.freeze_batch_norm": False,
}
FROM_THE_HEAD: Settings = {"head_init": "private-head", "prepare": "all"}
ARMS: dict[str, Settings] = {
    "before": {"method": "fedaux", **BEFORE},
    "FedAUX": {"method": "fedaux"},
    "FedAvg": {"method": "fedavg+p", **FROM_THE_HEAD},
    "FedDF": {"method": "feddf+p", **FROM_THE_HEAD},
    "FedET": {"method": "fedet+p", **FROM_THE_HEAD},
    "SCAFFOLD": {"method": "scaffold+p", **FROM_THE_HEAD},
    "FedAUX, constant": {"method": "fedaux", **CONSTANT},
    "FedAvg, constant": {"method": "fedavg+p", **FROM_THE_HEAD, **CONSTANT},
    "FedDF, constant": {"method": "feddf+p", **FROM_THE_HEAD, **CONSTANT},
}
BEFORE_AND_NOW = ("start", "before", "FedAUX")
TWO_CLASSES = "PneumoniaMNIST, three sites"
WITH_DEFAULTS = ("FedAUX", "FedAvg", "FedDF", "FedET", "SCAFFOLD")
WHOLE_NETWORKS = tuple(
    case for case, settings in CASES.items() if not settings.get("head_only")
)
# the model before round 1, tested after a round whose steps are too short to change it.
# The method private-head would have another head: it compares records with all public
# rows, and a method that distils with a fifth of them
START: Settings = {
    "method": "fedaux",
    "rounds": 1,
    "local.lr": 1e-12,
    "distill.lr": 1e-12,
}
BASE: Settings = {
    "rounds": ROUNDS,
    "head_only": False,
    "privacy.epsilon": 1.0,
    "privacy.scorer": "class-embedding",
}


def network(shape: tuple[int, ...], width: int = 64) -> fedaux.Extractor:
    """A network of one's own: two convolutions with BatchNorm, and a linear layer."""
    channels, height, breadth = shape
    pixels = (height // 4) * (breadth // 4)
    return fedaux.Extractor(
        nn.Conv2d(channels, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(32 * pixels, width),
        nn.ReLU(),
        width=width,
    )


def run_once(settings: Settings, seed: int) -> fedaux.Result:
    """Run all rounds with one split and one draw of noise."""
    table: dict[str, Any] = {}
    same_noise = {"seed": seed, "privacy.unsafe_seed": seed + 1}
    for key, value in {**BASE, **settings, **same_noise}.items():
        set_key(table, key, value, "the study")
    with tempfile.TemporaryDirectory() as folder:
        return fedaux.run(fedaux.Config.from_dict(table), Path(folder) / "run")


def accuracies(result: fedaux.Result) -> list[float]:
    """Return the test accuracy after each round."""
    return [round(accuracy, 4) for accuracy in result.curve]


def aucs(result: fedaux.Result) -> list[float]:
    """Return the AUC after each round, in a case of two classes."""
    found: list[float] = []
    for row in result.state.history:
        (metrics,) = row.metrics.values()
        found.append(round(metrics["auc"], 4))
    return found


def settings_of(case: str, arm: str) -> Settings:
    if arm == "start":
        return {**CASES[case], **START}
    settings = {**CASES[case], **ARMS[arm]}
    whole_network = not settings.get("head_only", False)
    if arm == "before" and whole_network:
        settings["local.lr"] = 0.01
    return settings


def key_of(case: str, arm: str, seed: int) -> str:
    return f"{case}|{arm}|{seed}"


def auc_key(key: str) -> str:
    return f"{key}|AUC"


def run_all(results: Path) -> None:
    """Run what is missing, and write every curve as soon as it is known."""
    curves = read(results)
    # what a reader asks first comes first
    for seed in SEEDS:
        for arm in ("start", *ARMS):
            for case in CASES:
                key = key_of(case, arm, seed)
                in_auc = case == TWO_CLASSES and arm in BEFORE_AND_NOW
                if key in curves and (not in_auc or auc_key(key) in curves):
                    continue
                result = run_once(settings_of(case, arm), seed)
                curves[key] = accuracies(result)
                if in_auc:
                    curves[auc_key(key)] = aucs(result)
                results.write_text(json.dumps(curves, indent=1) + "\n")
                print(key, *curves[key], flush=True)


def read(results: Path) -> dict[str, list[float]]:
    if not results.exists():
        return {}
    curves: dict[str, list[float]] = json.loads(results.read_text())
    return curves


def complete_seeds(
    curves: dict[str, list[float]], case: str, arms: tuple[str, ...]
) -> list[int]:
    """The splits on which all these arms have run."""
    return [
        seed for seed in SEEDS if all(key_of(case, arm, seed) in curves for arm in arms)
    ]


def curves_of(
    curves: dict[str, list[float]], case: str, arm: str, arms: tuple[str, ...]
) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    """(splits, rounds), on the splits on which all these arms have run."""
    seeds = complete_seeds(curves, case, arms)
    return np.array([curves[key_of(case, arm, seed)] for seed in seeds])


def table_of_rounds(curves: dict[str, list[float]]) -> str:
    """Each case before and now: rounds 1, 2, 5 and 10, and the worst round."""
    lines = [
        "| case | splits | start | before, rounds 1 / 2 / 5 / 10 | worst − start "
        "| now | worst − start |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for case in CASES:
        seeds = complete_seeds(curves, case, BEFORE_AND_NOW)
        if not seeds:
            continue
        start = curves_of(curves, case, "start", BEFORE_AND_NOW)[:, -1].mean()
        cells = [case, str(len(seeds)), f"{100 * start:.1f}"]
        for arm in ("before", "FedAUX"):
            means = curves_of(curves, case, arm, BEFORE_AND_NOW).mean(0)
            cells.append(" / ".join(f"{100 * means[r - 1]:.1f}" for r in SHOWN))
            cells.append(f"{100 * (means.min() - start):+.1f}")
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def table_of_worst_rounds(curves: dict[str, list[float]]) -> str:
    """Whether any round of today's defaults is below its start, on each split."""
    lines = [
        "| case | split | start | round 1 | round 5 | round 10 | worst − start |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for case in CASES:
        for seed in complete_seeds(curves, case, ("start", "FedAUX")):
            start = curves[key_of(case, "start", seed)][-1]
            now = curves[key_of(case, "FedAUX", seed)]
            rounds = [f"{100 * now[r - 1]:.1f}" for r in (1, 5, 10)]
            worst = f"{100 * (min(now) - start):+.1f}"
            cells = [case, str(seed), f"{100 * start:.1f}", *rounds, worst]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def table_of_aucs(curves: dict[str, list[float]]) -> str:
    """The AUC of the case with two classes, which no threshold moves."""
    lines = [
        "| split | start | before, rounds 1 / 2 / 5 / 10 | now | worst − start |",
        "| --- | --- | --- | --- | --- |",
    ]
    for seed in SEEDS:
        keys = [auc_key(key_of(TWO_CLASSES, arm, seed)) for arm in BEFORE_AND_NOW]
        if not all(key in curves for key in keys):
            continue
        start = curves[keys[0]][-1]
        cells = [str(seed), f"{100 * start:.1f}"]
        for key in keys[1:]:
            rounds = [f"{100 * curves[key][r - 1]:.1f}" for r in SHOWN]
            cells.append(" / ".join(rounds))
        cells.append(f"{100 * (min(curves[keys[2]]) - start):+.1f}")
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def has_all_cases(curves: dict[str, list[float]], arm: str) -> bool:
    pair = ("FedAUX", arm)
    return all(complete_seeds(curves, case, pair) for case in CASES)


def table_of_constants(curves: dict[str, list[float]]) -> str:
    """What a constant rate, clients' BatchNorm and constant distillation change."""
    arms = ("FedAUX", "FedAUX, constant", "FedAvg, constant")
    return table_of_curves(curves, list(WHOLE_NETWORKS), arms)


def table_of_curves(
    curves: dict[str, list[float]], cases: list[str], arms: tuple[str, ...]
) -> str:
    """Rounds 1, 5 and 10 of these arms, on the splits that all of them have."""
    lines = [
        f"| case, rounds 1 / 5 / 10 | {' | '.join(arms)} |",
        f"| --- |{' --- |' * len(arms)}",
    ]
    for case in cases:
        if not complete_seeds(curves, case, arms):
            continue
        cells = [case]
        for arm in arms:
            found = curves_of(curves, case, arm, arms)
            means = found.mean(0)
            text = " / ".join(f"{100 * means[r - 1]:.1f}" for r in (1, 5, 10))
            if len(found) > 1:
                text += f" ± {100 * found[:, -1].std(ddof=1):.1f}"
            cells.append(text)
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def differences(curves: dict[str, list[float]], rivals: list[str]) -> str:
    """FedAUX less FedAvg (distillation), FedDF and FedET (the teachers' weights), in
    points, as the mean of the cases with its standard error over them.
    """
    lines = [
        "| FedAUX less | round 1 | round 5 | round 10 |",
        "| --- | --- | --- | --- |",
    ]
    for arm in rivals:
        pair = ("FedAUX", arm)
        cells = [arm]
        for r in (1, 5, 10):
            gaps = [
                100
                * (
                    curves_of(curves, case, "FedAUX", pair)[:, r - 1].mean()
                    - curves_of(curves, case, arm, pair)[:, r - 1].mean()
                )
                for case in CASES
            ]
            error = np.std(gaps, ddof=1) / np.sqrt(len(gaps))
            cells.append(f"{np.mean(gaps):+.1f} ± {error:.1f}")
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def write_tables(results: Path) -> None:
    curves = read(results)
    parts = [
        "# The first rounds from a private head",
        str(__doc__),
        "Accuracy in %, means of the splits; ± is a standard deviation over splits "
        "at round 10.",
        table_of_rounds(curves),
        "Now, on each split:",
        table_of_worst_rounds(curves),
        "AUC in % on PneumoniaMNIST, which does not depend on a threshold:",
        table_of_aucs(curves),
        "Whole networks, today's defaults and constant ones:",
        table_of_constants(curves),
    ]
    rivals = [arm for arm in WITH_DEFAULTS[1:] if has_all_cases(curves, arm)]
    if rivals:
        parts.append("From one start, with today's defaults, on the splits of both:")
        parts += [
            table_of_curves(curves, list(CASES), ("FedAUX", rival)) for rival in rivals
        ]
        parts += [
            "Means of the cases, in points; ± is a standard error over cases.",
            differences(curves, rivals),
        ]
    text = "\n\n".join(parts)
    results.with_suffix(".md").write_text(text + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--results", type=Path, default=RESULTS)
    torch.set_num_threads(1)
    arguments = parser.parse_args()
    if not arguments.table:
        run_all(arguments.results)
    write_tables(arguments.results)


if __name__ == "__main__":
    main()
