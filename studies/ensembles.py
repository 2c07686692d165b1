"""What does an ensemble of whole networks know that the scores do not? Before any
distillation, on test images.

    python -m studies.ensembles studies/networks.toml --clients 20 --splits 3 --draws 1

Every client trains the network from ridge's head; ensembles of all twenty answer.
Beside the one that is weighted by the releases' scores stands the same with every
network replaced by its client's class frequencies, whatever the image: what the two
have in common is in the scores, and no rounds can add to it.
"""

from __future__ import annotations

import copy
import json
from collections import defaultdict
from functools import cached_property
from pathlib import Path

import numpy as np
from torch import nn

from fedaux.client.training import train_local
from fedaux.config.schema import Config
from fedaux.core.rng import torch_stream
from fedaux.data.records import Records
from fedaux.methods.analytic_heads import FeatureMoments, ridge_head
from fedaux.models.inference import predict
from fedaux.models.optimizer import Optimizer
from fedaux.report.tables import markdown
from fedaux.server.analytic_round import set_head
from studies.networks import SMALL
from studies.scorers import Judged, Rows, Setting, from_command_line, over_splits

TRAINED = {
    "SGD .003, 1 epoch": (0.003, 1),
    "SGD .01, 1 epoch": (0.01, 1),
    "SGD .003, 10 epochs": (0.003, 10),
}


class Networks(Setting):
    """Teachers are whole networks that were trained from ridge's head on everybody's
    features.
    """

    def __init__(self, config: Config, lr: float = 0.0, epochs: int = 0) -> None:
        self.lr = lr
        self.epochs = epochs
        super().__init__(config)

    @cached_property
    def start(self) -> nn.Module:
        """The pre-trained network with ridge's head."""
        model = self.server.networks.whole[self.config.prototypes[0].label]
        set_head(model, *_ridge(self.own, len(self.data.classes)))
        return model

    def _logits(self, index: int, records: Records) -> Rows:
        model = copy.deepcopy(self.start)
        train_local(
            model,
            self.data.private.take(self.data.parts[index]),
            epochs=self.epochs,
            batch_size=32,
            optimizer=Optimizer("sgd", self.lr),
            generator=torch_stream(self.config.seed, "study", index),
        )
        return predict(model, self.data.test).astype(np.float64)

    def scores_alone(self) -> Judged:
        """Each teacher says what its client has most of, whatever it is asked."""
        counts = self.data.counts()
        known = self.logits
        self.logits = [np.tile(row / row.sum(), (len(self.test), 1)) for row in counts]
        judged = self.scored(self.config.privacy)
        self.logits = known
        return judged


def _ridge(own: list[Records], classes: int) -> tuple[np.ndarray, np.ndarray]:
    x, y = (
        np.concatenate(parts)
        for parts in ([one.gather() for one in own], [one.labels for one in own])
    )
    x = x.astype(np.float64)
    hot = np.eye(classes)[y]
    head = ridge_head(FeatureMoments(hot.T @ x, hot.sum(axis=0), x.T @ x))
    return head.weight.astype(np.float32), head.bias.astype(np.float32)


def study(
    config: Config, clients: list[int], splits: int, draws: int, path: Path
) -> dict[str, list[float]]:
    found: dict[str, list[float]] = (
        json.loads(path.read_text()) if path.is_file() else {}
    )
    for name, (lr, epochs) in TRAINED.items():
        for count in clients:
            for split in range(splits):
                if f"{name}|equal weights|{count}|{split}" in found:
                    continue
                overrides = [*SMALL, f"data.clients={count}", f"seed={split}"]
                here = Networks(
                    Config.from_dict(config.to_dict(), overrides), lr, epochs
                )
                rows = {
                    "weights of the releases": [
                        here.scored(config.privacy)[0] for _ in range(draws)
                    ],
                    "the releases alone": [
                        here.scores_alone()[0] for _ in range(draws)
                    ],
                    "private head": [
                        here.private_head(config.privacy)[0] for _ in range(draws)
                    ],
                    "weights by the true class": [here.true_labels()[0]],
                    "equal weights": [here.uniform()[0]],
                }
                found |= {
                    f"{name}|{row}|{count}|{split}": values
                    for row, values in rows.items()
                }
                path.write_text(json.dumps(found, indent=0))
                print(name, count, split, rows, flush=True)
    return found


def table(found: dict[str, list[float]]) -> str:
    cells: dict[tuple[str, str], dict[str, list[float]]] = defaultdict(dict)
    for key, values in found.items():
        name, row, count, split = key.split("|")
        cells[row, f"{name}, {count} clients"][split] = values
    rows, columns = (list(dict.fromkeys(key[at] for key in cells)) for at in (0, 1))
    body = [
        (row, *(over_splits(cells[row, column]) for column in columns)) for row in rows
    ]
    return markdown(body, ("ensemble", *columns))


if __name__ == "__main__":
    from_command_line("ensembles", study, table, __doc__ or "")
