"""How well do scores weigh an ensemble? Every scorer on the same clients, splits and
local heads, before distillation.

    python -m studies.scorers studies/cifar10.toml --clients 20 80 --splits 3 --draws 3

Each client trains a linear head on frozen features of its own records; the ensemble of
heads, weighted by each scorer, answers the test set. A row that is already in the
results file is not computed again.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray

from fedaux.client.features import PrivateFeatureCache
from fedaux.client.summaries import summarise
from fedaux.client.training import train_local
from fedaux.config.schema import Config
from fedaux.config.sections import PrivacyConfig
from fedaux.core.arrays import Arrays
from fedaux.core.io import cache_folder
from fedaux.core.rng import derive_seed, seeded_torch, torch_stream
from fedaux.data.federated import FederatedData, open_data
from fedaux.data.records import Records
from fedaux.messages import Release
from fedaux.models import flatten_state, linear_head
from fedaux.models.inference import predict, transform_rows
from fedaux.models.optimizer import Optimizer
from fedaux.privacy.mechanism import release
from fedaux.scoring.base import PublicScorer, Reference
from fedaux.scoring.embedding import ClassEmbeddingScorer
from fedaux.scoring.features import H0
from fedaux.scoring.registry import make_scorer
from fedaux.scoring.teacher_weights import teacher_weights
from fedaux.server.analytic_round import set_head
from fedaux.server.preparation import pretrain_extractor
from fedaux.server.server import Server

RESULTS = Path(__file__).parent / "results"
BASE = PrivacyConfig(epsilon=0.1, delta=1e-5)
REFERENCES = replace(BASE, unsafe_seed=0)
SCORERS: dict[str, PrivacyConfig] = {
    "class embedding (default)": BASE,
    "class embedding, k = 16": replace(BASE, embedding_dim=16),
    "class embedding, k = 64": replace(BASE, embedding_dim=64),
    "class embedding, ε = 1": replace(BASE, epsilon=1.0),
    "logistic, repaired, λ = 0.03": replace(BASE, scorer="logistic", ridge=0.03),
    "paper, literal": replace(REFERENCES, scorer="studies.references:paper_literal"),
    "not private: class embedding": replace(
        REFERENCES, scorer="studies.references:class_noiseless"
    ),
    "not private: kernel density": replace(
        REFERENCES, scorer="studies.references:kde", embedding_dim=64
    ),
    "not private: logistic": replace(
        REFERENCES, scorer="studies.references:logistic_nonprivate"
    ),
}
HEADS = {
    f"private head, k = {embedding_dim}, ε = {epsilon:g}": replace(
        BASE, epsilon=epsilon, embedding_dim=embedding_dim
    )
    for embedding_dim in (32, 64, 128)
    for epsilon in (0.1, 1.0, 1000.0)
}
Rows = NDArray[np.float64]


class Setting:
    """One split of one number of clients: features of everything, and a head for every
    client, trained when asked.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        self.data = open_data(config)
        self.server = prepared_server(config, self.data)
        spec = config.prototypes[0]
        model = self.server.networks.whole[spec.label]
        h0 = H0(
            spec,
            model.features,
            flatten_state(model.features),
            PrivateFeatureCache(cache_folder()),
        )
        self.test = h0.features(self.data.test)
        aux = h0.features(self.data.aux)
        self.negatives = aux.take(self.server.public.split.negatives)
        whole = h0.features(self.data.private)
        self.own = [whole.take(part) for part in self.data.parts]

    @cached_property
    def logits(self) -> list[Rows]:
        """What every client's model says of the test records."""
        return [self._logits(index, records) for index, records in enumerate(self.own)]

    def _logits(self, index: int, records: Records) -> Rows:
        with seeded_torch(derive_seed(self.config.seed, "study", index)):
            head = linear_head(records.x.shape[1], len(self.data.classes))
        generator = torch_stream(self.config.seed, "study", index)
        train_local(
            head,
            records,
            epochs=20,
            batch_size=32,
            optimizer=Optimizer(),
            generator=generator,
        )
        return predict(head, self.test).astype(np.float64)

    def accuracy(self, weights: Rows) -> float:
        """weights: (clients, test rows), positive."""
        total = sum(
            w[:, None] * logits for w, logits in zip(weights, self.logits, strict=True)
        )
        return float(np.mean(np.argmax(total, axis=1) == self.test.labels))

    def uniform(self) -> tuple[float, float, float]:
        return self._judged(np.ones((len(self.own), len(self.test))))

    def true_labels(self) -> tuple[float, float, float]:
        """What nobody knows: each client weighs as much as its share of the row's true
        class.
        """
        counts = self.data.counts()
        return self._judged(
            (counts / counts.sum(axis=1, keepdims=True))[:, self.test.labels] + 1e-8
        )

    def scored(self, privacy: PrivacyConfig) -> tuple[float, float, float]:
        scorer = make_scorer(privacy, len(self.data.classes))
        public = scorer.publish(self.negatives.gather())

        def embed(rows: NDArray[np.float32]) -> NDArray[np.floating]:
            return scorer.embed(public, rows)

        reference = Reference(transform_rows(self.negatives, embed).astype(np.float64))
        asked = transform_rows(self.test, embed).astype(np.float64)
        sent = self._sent(scorer, public, privacy)
        fitted = scorer.fit(public, reference, sent)
        seen = asked if fitted.transform is None else fitted.transform(asked)
        log_odds = np.stack([fitted.log_odds[one.client](seen) for one in sent])
        kind = "certainty" if "paper" in privacy.scorer else "odds"
        return self._judged(teacher_weights(log_odds, log_odds.max(axis=0), kind))

    def _sent(
        self, scorer: PublicScorer, public: Arrays, privacy: PrivacyConfig
    ) -> list[Release]:
        sent = []
        for index, own in enumerate(self.own):
            made = summarise(
                scorer,
                public,
                own.gather(),
                own.labels,
                privacy.adjacency,
                len(own),
                np.ones(len(own)),
            )
            sent.append(release(made, f"client-{index:03d}", privacy))
        return sent

    def private_head(self, privacy: PrivacyConfig) -> tuple[float, float, float]:
        """One shot, end-to-end private: the head from the releases that score."""
        classes = len(self.data.classes)
        scorer = cast(ClassEmbeddingScorer, make_scorer(privacy, classes))
        public = scorer.publish(self.negatives.gather())
        reference = Reference(scorer.embed(public, self.negatives.gather()))
        head = linear_head(self.test.x.shape[1], classes)
        set_head(
            head, *scorer.head(public, reference, self._sent(scorer, public, privacy))
        )
        right = predict(head, self.test).argmax(axis=1) == self.test.labels
        return float(right.mean()), np.nan, np.nan

    def _judged(self, weights: Rows) -> tuple[float, float, float]:
        """(accuracy, effective number of teachers, share of the weight on clients by
        their share of the true class).
        """
        share = weights / weights.sum(axis=0)
        teachers = float((1 / np.square(share).sum(axis=0)).mean())
        counts = self.data.counts()
        right = (counts / counts.sum(axis=1, keepdims=True))[:, self.test.labels]
        return (
            self.accuracy(weights),
            teachers,
            float((share * right).sum(axis=0).mean()),
        )


def prepared_server(config: Config, data: FederatedData) -> Server:
    server = Server.of(
        config, data.aux, data.test, len(data.classes), data.clients, cache_folder()
    )
    pretrain_extractor(server, config.prototypes[0])
    return server


Judged = tuple[float, float, float]
Study = Callable[[Config, list[int], int, int, Path], dict[str, list[float]]]


def study(
    config: Config, clients: list[int], splits: int, draws: int, path: Path
) -> dict[str, list[float]]:
    """{`clients|scorer|split|draw`: (accuracy, teachers, right mass)}, kept in `path`
    after every row.
    """
    found: dict[str, list[float]] = (
        json.loads(path.read_text()) if path.is_file() else {}
    )
    path.parent.mkdir(exist_ok=True)
    for count in clients:
        for split in range(splits):
            missing = {
                row: judge
                for row, judge in _rows(draws).items()
                if f"{count}|{row[0]}|{split}|{row[1]}" not in found
            }
            if not missing:
                continue
            here = Setting(
                replace(config, seed=split, data=replace(config.data, clients=count))
            )
            for (name, draw), judge in missing.items():
                found[f"{count}|{name}|{split}|{draw}"] = list(judge(here))
                path.write_text(json.dumps(found, indent=0))
                print(
                    count,
                    split,
                    name,
                    draw,
                    np.round(found[f"{count}|{name}|{split}|{draw}"], 3),
                    flush=True,
                )
    return found


def _rows(draws: int) -> dict[tuple[str, int], Callable[[Setting], Judged]]:
    """What there is to judge in a setting, by name and draw."""
    rows: dict[tuple[str, int], Callable[[Setting], Judged]] = {
        ("uniform (FedDF+P)", 0): Setting.uniform,
        ("not private: true labels", 0): Setting.true_labels,
    }
    for name, privacy in SCORERS.items():
        for draw in range(_draws(privacy, draws)):
            seeded = (
                replace(privacy, unsafe_seed=draw)
                if privacy.unsafe_seed >= 0
                else privacy
            )
            rows[name, draw] = partial(Setting.scored, privacy=seeded)
    for name, privacy in HEADS.items():
        for draw in range(draws):
            rows[name, draw] = partial(Setting.private_head, privacy=privacy)
    return rows


def _draws(privacy: PrivacyConfig, draws: int) -> int:
    """Without noise there is nothing to draw twice."""
    return 1 if privacy.unsafe_seed >= 0 and "literal" not in privacy.scorer else draws


def over_splits(values: Mapping[str, Sequence[float]]) -> str:
    """Mean ± sample standard deviation over splits. Draws of the noise within a split
    are averaged: they are no splits.

    values: those of each split's draws.
    """
    means = [float(np.mean(draws)) for draws in values.values()]
    return f"{np.mean(means):.3f}" + (
        f" ± {np.std(means, ddof=1):.3f}" if len(means) > 1 else ""
    )


def table(found: dict[str, list[float]]) -> str:
    """One row for each scorer."""
    counts = sorted({int(key.split("|")[0]) for key in found})
    names = list(dict.fromkeys(key.split("|")[1] for key in found))
    lines = [
        "| scorer |"
        + "".join(f" {n} clients | teachers | right mass |" for n in counts)
    ]
    lines.append("| --- |" + " --- |" * (3 * len(counts)))
    for name in names:
        cells = []
        for count in counts:
            keys = [key for key in found if key.split("|")[:2] == [str(count), name]]
            accuracies = defaultdict[str, list[float]](list)
            for key in keys:
                accuracies[key.split("|")[2]].append(found[key][0])
            mean = np.mean([found[key] for key in keys], axis=0)
            cells += [over_splits(accuracies), f"{mean[1]:.1f}", f"{mean[2]:.3f}"]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def from_command_line(
    name: str, study: Study, table: Callable[[dict[str, list[float]]], str], about: str
) -> None:
    """Run a study as its arguments say; results and table go beside each other, and say
    by name what they are of.
    """
    parser = argparse.ArgumentParser(
        description=about, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("config", type=Path)
    parser.add_argument("--clients", type=int, nargs="+", default=[80, 20])
    parser.add_argument("--splits", type=int, default=3)
    parser.add_argument("--draws", type=int, default=3)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    path = RESULTS / f"{name}-{asked.config.stem}.json"
    found = study(
        Config.load(asked.config), asked.clients, asked.splits, asked.draws, path
    )
    path.with_suffix(".md").write_text(table(found))
    print(table(found))


if __name__ == "__main__":
    from_command_line("scorers", study, table, __doc__ or "")
