"""Whether a temperature that is chosen on public pseudo-classes calibrates the private
head better than its own.

    python -m studies.temperature     # digits, and CIFAR-10 on a published encoder: its features take half an hour

The head tempers its logits by the noise that is known (`second_moments._tempered`,
`embedding.Pooled.discriminant`). Here one further temperature is chosen where the
dimension is, on pseudo-classes of D⁻, and judged by the log-loss on the test set,
beside none and beside the best one, which only test labels could choose. One sum under
one noise.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_softmax

from fedaux.config.presets import DEMO
from fedaux.config.schema import Config
from fedaux.config.sections import PrivacyConfig
from fedaux.privacy.mechanism import release
from fedaux.report.tables import markdown
from fedaux.scoring.class_moments import ClassMomentsScorer
from fedaux.scoring.embedding import embed, spectrum
from fedaux.scoring.moments_plan import PUBLIC_ROWS, _pseudo_classes, _Trial
from studies.secure_sums import Setting

EPSILONS = (0.1, 0.3, 1.0, 3.0)
DRAWS = 5
TEMPERATURES = np.logspace(-1, 1, 41)
CONFIGS = {
    "digits": lambda: DEMO,
    "CIFAR-10": lambda: Config.load("studies/published.toml"),
}
Judged = tuple[NDArray[np.float64], NDArray[np.int64]]  # logits, labels


def losses(judged: Sequence[Judged]) -> NDArray[np.float64]:
    """Mean log-loss at each of the temperatures."""
    return np.array(
        [
            np.mean(
                [
                    -log_softmax(x / t, axis=1)[np.arange(len(y)), y].mean()
                    for x, y in judged
                ]
            )
            for t in TEMPERATURES
        ]
    )


def study(name: str) -> list[list[str]]:
    setting = Setting.of(CONFIGS[name]())
    rows = []
    records = len(setting.private)
    for epsilon in EPSILONS:
        privacy = PrivacyConfig(
            "class-moments", epsilon, embedding_dim=0, expected_records=records
        )
        scorer, public, reference = setting.published(privacy)
        assert isinstance(scorer, ClassMomentsScorer)
        public_rows = setting.negatives[
            np.random.default_rng(0).permutation(len(setting.negatives))[:PUBLIC_ROWS]
        ]
        groups = _pseudo_classes(
            public_rows, setting.classes, spectrum(setting.negatives)
        )
        trial = _Trial(
            embed(public, public_rows), groups, setting.classes, scorer.facts
        )
        a, b, m = public["split"].astype(np.float64).tolist()
        held = ~trial.learn
        pseudo = list[Judged]()
        real = list[Judged]()
        for draw in range(DRAWS):
            weights, bias = trial.head(
                (a, b, m), np.random.default_rng(draw), tempered=True
            )
            pseudo.append((trial.rows[held] @ weights.T + bias, trial.groups[held]))
            sent = release(
                setting.summary(privacy), "sum", replace(privacy, unsafe_seed=draw)
            )
            head = scorer.head(public, reference, [sent])
            real.append(
                (
                    (setting.test @ head[0].T + head[1]).astype(np.float64),
                    setting.test_labels,
                )
            )
        chosen = int(losses(pseudo).argmin())
        found = losses(real)
        own = len(TEMPERATURES) // 2
        best = int(found.argmin())
        cells = [
            f"{found[own]:.3f}",
            *(f"{found[at]:.3f} ({TEMPERATURES[at]:.2f})" for at in (chosen, best)),
        ]
        rows.append([name, f"{epsilon:g}", *cells])
        print(*rows[-1], flush=True)
    return rows


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", default=list(CONFIGS))
    found = [row for name in parser.parse_args().names for row in study(name)]
    print(
        markdown(
            found,
            [
                "data",
                "ε",
                "log-loss",
                "with a temperature of pseudo-classes",
                "with the best",
            ],
        )
    )
