"""The private head from one exchange: noise once on the sum of all clients, against
noise of each client's own.

    python -m studies.artifact restore studies/cifar10.toml
    python -m studies.secure_sums                             # the extractor of studies/cifar10.toml
    python -m studies.secure_sums studies/published.toml      # a published encoder; features take half an hour once

Features of CIFAR-10 under the extractor of a config, 50,000 records, replace-one, δ =
1e-5. Dimension, split and floor are chosen on public data (`moments_plan.choose_split`); test
labels are read for the figures alone. Arms:

    secure          one sum under one noise: the same integers however many clients
                    there are
    secure, h of n  shares of the noise such that h of n survivors suffice: √(n/h) times
                    as much where all n survive
    local           every client its own noise, on class moments and on the class
                    embedding

The noise is seeded. A row that is already in the results file is not computed again.
"""

from __future__ import annotations

import argparse
import json
import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import log_softmax

from fedaux.client.features import PrivateFeatureCache
from fedaux.client.summaries import summarise
from fedaux.config.schema import Config
from fedaux.config.sections import PrivacyConfig
from fedaux.core.arrays import Arrays
from fedaux.core.io import cache_folder
from fedaux.data.federated import open_data
from fedaux.messages import Release
from fedaux.models import flatten_state
from fedaux.privacy.mechanism import Summary, release, release_multiplier
from fedaux.scoring.base import Reference
from fedaux.scoring.class_moments import ClassMomentsScorer
from fedaux.scoring.embedding import (
    SENSITIVITY,
    ClassEmbeddingScorer,
    ClassValues,
    HeadArrays,
    embed,
    on_features,
    pool_classes,
)
from fedaux.scoring.features import H0, FeatureCache
from fedaux.scoring.moments_plan import symmetric_noise
from fedaux.scoring.registry import make_scorer
from fedaux.scoring.second_moments import Moments, sensitivity
from studies.scorers import RESULTS, over_splits, prepared_server

EPSILONS = (0.1, 0.3, 1.0, 3.0, 1000.0)  # the last stands for no noise
# (honest, all), with federation.threshold = 0.8 and one colluder, or with all sites
# needed
SURVIVORS = {
    "20 sites": (15, 20),
    "20 sites, all needed": (19, 20),
    "80 sites": (63, 80),
    "regions of 100 sites": (79, 100),
}
CLIENTS = {20: 0.01, 80: 0.01, 10_000: 0.1}  # Dirichlet's α by number of clients
SPLITS = 3
DRAWS = 3
Rows = NDArray[np.float64]
Labels = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Setting:
    """Features of everything; rows of the test set are read by `judged` alone."""

    config: Config
    negatives: Rows
    private: Rows
    labels: Labels
    order: Labels  # of the private records in their source
    test: Rows
    test_labels: Labels
    classes: int

    @classmethod
    def of(cls, config: Config) -> Setting:
        data = open_data(config)
        server = prepared_server(config, data)
        spec = config.prototypes[0]
        module = server.networks.whole[spec.label].features
        h0 = H0(spec, module, flatten_state(module), FeatureCache(cache_folder()))
        negatives = h0.features(data.aux).take(server.public.split.negatives).gather()
        test = h0.features(data.test)
        private = replace(h0, cache=PrivateFeatureCache(cache_folder())).features(
            data.private
        )
        assert data.private.rows is not None
        own = (private.gather(), private.labels, data.private.rows)
        return cls(
            config, negatives, *own, test.gather(), test.labels, len(data.classes)
        )

    def judged(self, head: HeadArrays) -> list[float]:
        """[accuracy, mean log-loss] on the test set."""
        logits = self.test @ head[0].T + head[1]
        right = logits.argmax(axis=1) == self.test_labels
        loss = -log_softmax(logits.astype(np.float64), axis=1)[
            np.arange(len(logits)), self.test_labels
        ]
        return [float(right.mean()), float(loss.mean())]

    @lru_cache(maxsize=4)  # noqa: B019 - one setting lives as long as the study
    def parts(self, clients: int, split: int) -> list[Labels]:
        """Positions in `private` of each client's records; another seed also deals them
        in another order.
        """
        changed = replace(self.config.data, clients=clients, alpha=CLIENTS[clients])
        data = open_data(replace(self.config, seed=split, data=changed))
        assert data.private.rows is not None
        position = np.argsort(self.order)[data.private.rows]
        assert np.array_equal(self.labels[position], data.private.labels)
        return [position[part] for part in data.parts]

    @lru_cache(maxsize=64)  # noqa: B019
    def published(
        self, privacy: PrivacyConfig, releases: int = 1
    ) -> tuple[ClassEmbeddingScorer, Arrays, Reference]:
        """The scorer and what it publishes for so many releases under noise of their
        own.
        """
        scorer = make_scorer(privacy, self.classes, releases)
        assert isinstance(scorer, ClassEmbeddingScorer)
        public = scorer.publish(self.negatives)
        return scorer, public, Reference(embed(public, self.negatives))

    def summary(self, privacy: PrivacyConfig) -> Summary:
        """The integers of all records, which are those of any clients together."""
        scorer, public, _ = self.published(privacy)
        choice = (public["basis"].shape[1], *public["split"].tolist())
        if choice not in _SUMMARIES:
            size = len(self.private)
            _SUMMARIES[choice] = summarise(
                scorer,
                public,
                self.private,
                self.labels,
                "replace-one",
                size,
                np.ones(size),
            )
        return _SUMMARIES[choice]

    def check_integers(self, privacy: PrivacyConfig) -> None:
        """The real scorer's integers, summed over clients, are those of the whole."""
        scorer, public, _ = self.published(privacy)
        total = np.zeros(scorer.size(public), np.int64)
        for part in self.parts(20, 0):
            rows = self.private[part]
            labels = self.labels[part]
            total += summarise(
                scorer,
                public,
                rows,
                labels,
                "replace-one",
                len(part),
                np.ones(len(part)),
            ).values
        assert np.array_equal(total, self.summary(privacy).values)

    def secure(self, privacy: PrivacyConfig, more: float, kind: str) -> list[float]:
        """One noise on the sum, `more` times as much."""
        assert privacy.unsafe_seed >= 0
        scorer, public, reference = self.published(replace(privacy, unsafe_seed=-1))
        assert isinstance(scorer, ClassMomentsScorer)
        summary = self.summary(replace(privacy, unsafe_seed=-1))
        sent = _louder(release(summary, "sum", privacy), summary, more)
        return self.judged(scorer.head(public, reference, [sent], kind))

    def local(self, privacy: PrivacyConfig, clients: int, split: int) -> list[float]:
        """Noise of each client's own. Second moments and their noise only ever count as
        a sum, and are drawn as one.
        """
        scorer, public, reference = self.published(
            replace(privacy, unsafe_seed=-1), clients
        )
        rows = embed(public, self.private)
        parts = self.parts(clients, split)
        k = rows.shape[1]
        rng = np.random.default_rng([privacy.unsafe_seed, clients, split])
        budget = (
            privacy.epsilon,
            privacy.delta,
            privacy.calibration,
            privacy.adjacency,
        )
        noise = release_multiplier(*budget, scorer.size(public))
        moments = isinstance(scorer, ClassMomentsScorer)
        a, b, m = public["split"].astype(np.float64) if moments else (1.0, 1.0, 1.0)
        noise *= (
            sensitivity(np.array([a, b, m]), privacy.adjacency)
            if moments
            else SENSITIVITY[privacy.adjacency]
        )
        released = []
        for part in parts:
            sums = np.zeros((self.classes, k))
            labels = self.labels[part]
            np.add.at(sums, labels, rows[part])
            counts = np.bincount(labels, minlength=self.classes) + rng.normal(
                0, noise / b, self.classes
            )
            sums += rng.normal(0, noise / a, sums.shape)
            released.append(ClassValues(sums, counts, noise / a, noise / b, len(part)))
        pooled = pool_classes(released)
        size = len(self.private)
        if not moments or not m:
            return self.judged(pooled.head(public, reference))
        deviation = noise / m * math.sqrt(len(parts))
        second = (rows.T @ rows + symmetric_noise(k, deviation, rng)) / size
        return self.judged(
            on_features(
                public,
                *Moments(pooled, second, deviation / size).discriminant(reference),
            )
        )


_SUMMARIES: dict[tuple[float, ...], Summary] = {}  # by dimension and split


def _louder(sent: Release, summary: Summary, more: float) -> Release:
    noise = np.rint(more * (sent.arrays["values"] - summary.values)).astype(np.int64)
    return replace(
        sent, scale=more * sent.scale, arrays={"values": summary.values + noise}
    )


def rows(size: int) -> Iterator[tuple[str, float, int, int, PrivacyConfig]]:
    """(arm, ε, split, draw, settings); what is quick comes first."""
    moments = PrivacyConfig(
        scorer="class-moments", embedding_dim=0, expected_records=size, delta=1e-5
    )
    for epsilon in EPSILONS:
        for draw in range(SPLITS * DRAWS):
            privacy = replace(moments, epsilon=epsilon, unsafe_seed=draw)
            for arm in (
                "secure",
                "secure, ridge",
                *(f"secure, {name}" for name in SURVIVORS),
            ):
                yield arm, epsilon, 0, draw, privacy
    for clients in CLIENTS:
        for epsilon in EPSILONS[:-1]:
            for split in range(SPLITS):
                for draw in range(DRAWS):
                    privacy = replace(moments, epsilon=epsilon, unsafe_seed=draw)
                    yield (
                        f"local, {clients}, class moments",
                        epsilon,
                        split,
                        draw,
                        privacy,
                    )
                    for k in (32, 64):
                        plain = PrivacyConfig(
                            epsilon=epsilon,
                            delta=1e-5,
                            embedding_dim=k,
                            unsafe_seed=draw,
                        )
                        yield (
                            f"local, {clients}, class embedding, k = {k}",
                            epsilon,
                            split,
                            draw,
                            plain,
                        )


def judge(
    setting: Setting, arm: str, split: int, privacy: PrivacyConfig
) -> list[float]:
    if arm.startswith("local"):
        return setting.local(privacy, int(arm.split(", ")[1]), split)
    honest, survivors = SURVIVORS.get(arm.removeprefix("secure, "), (1, 1))
    kind = "ridge" if arm.endswith("ridge") else "discriminant"
    return setting.secure(privacy, math.sqrt(survivors / honest), kind)


def study(config: Config, path: Path) -> dict[str, list[float]]:
    """{`arm|ε|split|draw`: [accuracy, log-loss]} and {`chosen|arm|ε`: [k, a, b, m]},
    kept after every arm.
    """
    found: dict[str, list[float]] = (
        json.loads(path.read_text()) if path.is_file() else {}
    )
    setting = Setting.of(config)
    setting.check_integers(
        PrivacyConfig(
            scorer="class-moments",
            embedding_dim=0,
            expected_records=len(setting.private),
            delta=1e-5,
        )
    )
    for arm, epsilon, split, draw, privacy in rows(len(setting.private)):
        key = f"{arm}|{epsilon:g}|{split}|{draw}"
        if key in found:
            continue
        found[key] = judge(setting, arm, split, privacy)
        if privacy.scorer == "class-moments":
            releases = int(arm.split(", ")[1]) if arm.startswith("local") else 1
            public = setting.published(replace(privacy, unsafe_seed=-1), releases)[1]
            found[f"chosen|{arm}|{epsilon:g}"] = [
                public["basis"].shape[1],
                *np.round(public["split"], 3).tolist(),
            ]
        if draw == DRAWS - 1:
            path.write_text(json.dumps(found, indent=0))
            print(key, np.round(found[key], 3), flush=True)
    path.write_text(json.dumps(found, indent=0))
    return found


def table(found: dict[str, list[float]]) -> str:
    """Accuracy by arm and ε: mean ± sample standard deviation over splits, or over
    draws where splits do not matter.
    """
    arms = list(
        dict.fromkeys(
            key.split("|")[0] for key in found if not key.startswith("chosen")
        )
    )
    lines = [
        "| | "
        + " | ".join(
            f"ε = {epsilon:g}" if epsilon < 1000 else "no noise" for epsilon in EPSILONS
        )
        + " |"
    ]
    lines.append("| --- |" + " --- |" * len(EPSILONS))
    for arm in arms:
        cells = []
        for epsilon in EPSILONS:
            groups = defaultdict[str, list[float]](list)
            for key, (accuracy, *_) in found.items():
                if key.startswith(f"{arm}|{epsilon:g}|"):
                    split, draw = key.split("|")[2:]
                    groups[split if arm.startswith("local") else draw].append(accuracy)
            chosen = found.get(f"chosen|{arm}|{epsilon:g}")
            note = f" (k = {chosen[0]:g})" if chosen else ""
            cells.append(over_splits(groups) + note if groups else "")
        lines.append(f"| {arm} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "config", type=Path, nargs="?", default=Path("studies/cifar10.toml")
    )
    config = parser.parse_args().config
    torch.set_num_threads(1)
    results = RESULTS / f"secure-sums-{config.stem}.json"
    text = table(study(Config.load(config), results))
    results.with_suffix(".md").write_text(text)
    print(text)
