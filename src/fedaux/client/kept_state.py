"""What a client keeps beside its account: the state of a method, and its last trained models.

**State of a method.** If a reply is lost after the client has moved on, the server asks again from the round that it
knows. So the file holds two states: the one that the last order started from, and the one that it ended in.

**Trained models** are stored under the identity of their order before anything of them is sent. The same order gets the
same result, to the bit, no matter who asks and how often: repeating a lost reply costs nothing. The rest of the reply
is recomputed from the model, with the same result.

The state after plain training depends on records without any noise, so private training must not start from it. Each
colour has files of its own: switching private training on or off starts from an empty state.
"""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from safetensors import safe_open
from safetensors.numpy import load, load_file, save

from fedaux.config.sections import Colour
from fedaux.core.io import delete_all_but_newest, hashed_name, write_atomically
from fedaux.core.messages import Arrays, DataOrder, TrainOrder
from fedaux.models.inference import fingerprint_arrays
from fedaux.privacy.accounting import Mechanism

RUNS = 4  # the number of runs whose state a client keeps; older states are deleted
MODELS = 2  # the number of trained models that a client keeps: of the current run, and of another
NOT_PRIVATE = Mechanism(noise_multiplier=0.0, steps=0)
FACTS = "facts"
# fields of an order that do not affect the trained model: what the server knows, what the client has, and teaching
_NOT_IDENTITY = frozenset(
    {"known_entries", "known_signature", "extractor", "teaching", "public", "fit", "client_fit", "sum", "sealed"}
)
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ClientState:
    """The state of `client` in the run with this id, of one colour. Names are hashed in that of its file."""

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
        """Save the state after round `after`, which started from the state of round `before`."""
        known = self._read()
        if before > 0 and before not in known:
            log.warning("%s: the state of round %d was lost, and %s has started anew", self.path, before, self.client)
        kept = {before: known.get(before, {}), after: state}
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
        for key, array in load_file(self.path).items() if self.path.exists() else ():
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
        noise = (self.mechanism.noise_multiplier, self.mechanism.sample_rate, self.mechanism.steps)
        facts = json.dumps([self.records, self.trained, self.seconds, noise])
        return save(self.weights, metadata={FACTS: facts})

    @classmethod
    def load(cls, path: Path) -> LocalResult:
        with safe_open(path, framework="numpy") as file:
            records, trained, seconds, noise = json.loads(file.metadata()[FACTS])
        return cls(load(path.read_bytes()), records, TrainingSummary(*trained), seconds, Mechanism(*noise))


def training_identity(order: TrainOrder, private: bool) -> str:
    """Hash everything that determines the trained model; the hash is the same in a run that continues after a fault."""
    return order_hash(order, _NOT_IDENTITY, private)


def order_hash(order: DataOrder, ignored: frozenset[str], *more: object) -> str:
    """Hash an order, to the bit, without the ignored fields, and with whatever else decides."""
    fields = {name: value for name, value in vars(order).items() if name not in ignored}
    arrays = {name: value for name, value in fields.items() if isinstance(value, dict)}
    facts = sorted((name, value) for name, value in fields.items() if name not in arrays)
    return fingerprint_arrays(*(arrays[name] for name in sorted(arrays)), facts=[*more, *facts])


@dataclass(frozen=True)
class ResultStore:
    """Stores the last results of `client`, separately for each colour."""

    folder: Path
    client: str
    colour: Colour

    def path(self, identity: str) -> Path:
        return self.folder / f"{self._stem}-{identity}.safetensors"

    def keep(self, identity: str, result: LocalResult) -> None:
        """Store a result that cost no privacy; a full disk is then no reason to fail."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            write_atomically(self.path(identity), result.to_bytes(), private=True)
        except OSError as error:
            log.warning("%s trains again if its reply is lost, as the model cannot be stored: %s", self.client, error)

    def drop_old(self) -> None:
        delete_all_but_newest(self.folder, f"{self._stem}-*.safetensors", MODELS)

    @property
    def _stem(self) -> str:
        return f"trained-{self.colour}-{hashed_name(self.client)}"
