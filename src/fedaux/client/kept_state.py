"""The state of a method that a client keeps next to its account, and a trained model as
bytes.

If a reply is lost after the client has moved on, the server asks again from the round
that it knows. So the file holds two states: the one that the last order started from,
and the one that it ended in.

The state after plain training depends on records without any noise, so private training
must not start from it. Each colour has files of its own: switching private training on
or off starts from an empty state.
"""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from safetensors.numpy import load, load_file, save

from fedaux.config.sections import Colour
from fedaux.core.arrays import Arrays
from fedaux.core.io import delete_all_but_newest, hashed_name, write_atomically
from fedaux.privacy.accounting import Mechanism

RUNS = 4  # the number of runs whose state a client keeps; older states are deleted
NOT_PRIVATE = Mechanism(noise_multiplier=0.0, steps=0)
FACTS = "|facts"  # next to the weights of a stored model
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ClientState:
    """The state of `client` in the run with this id, of one colour. Names are hashed in
    that of its file.
    """

    folder: Path
    client: str
    run: str
    colour: Colour

    @property
    def path(self) -> Path:
        return self.folder / f"{self._stem}-{hashed_name(self.run)}.safetensors"

    def load(self, round_: int) -> Arrays:
        """Return the state after this round; empty at round 0, or if it was lost."""
        return self._read().get(round_, {}) if round_ > 0 else {}

    def save(self, before: int, after: int, state: Arrays) -> None:
        """Save the state after round `after`, which started from the state of round
        `before`.
        """
        states = self._read()
        if before > 0 and before not in states:
            log.warning(
                "%s: the state of round %d was lost, and %s has started anew",
                self.path,
                before,
                self.client,
            )
        kept = {before: states.get(before, {}), after: state}
        tensors = {
            f"{round_}|{name}": np.ascontiguousarray(array)
            for round_, arrays in kept.items()
            for name, array in arrays.items()
        }
        write_atomically(self.path, save(tensors), private=True)
        delete_all_but_newest(self.folder, f"{self._stem}-*.safetensors", RUNS)

    @property
    def _stem(self) -> str:
        return f"state-{self.colour}-{hashed_name(self.client)}"

    def _read(self) -> dict[int, Arrays]:
        states: dict[int, Arrays] = {}
        if not self.path.exists():
            return states
        for key, array in load_file(self.path).items():
            round_, _, name = key.partition("|")
            states.setdefault(int(round_), {})[name] = array
        return states


class TrainingSummary(NamedTuple):
    loss: float  # mean over the records in the last epoch
    steps: int


@dataclass(frozen=True, eq=False)
class LocalResult:
    """A trained model, and what the reply says about its training."""

    weights: Arrays
    records: int
    trained: TrainingSummary
    seconds: float = 0.0
    mechanism: Mechanism = NOT_PRIVATE

    def to_bytes(self) -> bytes:
        noise = (
            self.mechanism.noise_multiplier,
            self.mechanism.sample_rate,
            self.mechanism.steps,
        )
        facts = json.dumps([self.records, self.trained, self.seconds, noise]).encode()
        return save({**self.weights, FACTS: np.frombuffer(facts, np.uint8)})

    @classmethod
    def from_bytes(cls, content: bytes) -> LocalResult:
        """Read what `to_bytes` wrote."""
        arrays = load(content)
        records, trained, seconds, noise = json.loads(arrays.pop(FACTS).tobytes())
        return cls(
            arrays, records, TrainingSummary(*trained), seconds, Mechanism(*noise)
        )
