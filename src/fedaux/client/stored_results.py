"""The result of local training, stored under the identity of its order before anything of it is sent.

The same order gets the same result, to the bit, whoever asks and however often: a lost reply costs nothing to repeat.
What is stored is the trained model itself. All that the reply makes of it is computed anew, and is the same again.
"""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from pathlib import Path

from safetensors import safe_open
from safetensors.numpy import load, save

from fedaux.client.local_training import Trained
from fedaux.config.sections import Colour
from fedaux.core.io import delete_all_but_newest, hashed_name, write_atomically
from fedaux.core.messages import Arrays, TrainOrder
from fedaux.models.inference import fingerprint_arrays
from fedaux.privacy.accounting import Mechanism

KEPT = 2  # results of a client: of the run that goes on, and of another
NOT_PRIVATE = Mechanism(noise_multiplier=0.0, steps=0)
FACTS = "facts"
# of an order, what has no say in the trained model: what the server knows, what the client has already, and teaching
_NOT_IDENTITY = frozenset({"heard", "heard_signature", "extractor", "teaching", "public", "fit", "client_fit"})
log = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class LocalResult:
    """A trained model, and what the reply says about its training."""

    weights: Arrays
    records: int
    trained: Trained
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
        return cls(load(path.read_bytes()), records, Trained(*trained), seconds, Mechanism(*noise))


def training_identity(order: TrainOrder, private: bool) -> str:
    """A hash of all that decides on the trained model: the same in a run that goes on after any fault."""
    fields = {name: value for name, value in vars(order).items() if name not in _NOT_IDENTITY}
    arrays = {name: value for name, value in fields.items() if isinstance(value, dict)}
    facts = sorted((name, value) for name, value in fields.items() if name not in arrays)
    return fingerprint_arrays(*(arrays[name] for name in sorted(arrays)), facts=[private, *facts])


@dataclass(frozen=True)
class ResultStore:
    """The last results of `client`, in files beside its account, those of each colour apart (see `client_state`)."""

    folder: Path
    client: str
    colour: Colour

    def path(self, identity: str) -> Path:
        return self.folder / f"{self._stem}-{identity}.safetensors"

    def keep(self, identity: str, result: LocalResult) -> None:
        """Where nothing was paid for the result, a full disk is no reason to fail."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            write_atomically(self.path(identity), result.to_bytes(), private=True)
        except OSError as error:
            log.warning("%s trains again if its reply is lost, as the model cannot be stored: %s", self.client, error)

    def drop_old(self) -> None:
        delete_all_but_newest(self.folder, f"{self._stem}-*.safetensors", KEPT)

    @property
    def _stem(self) -> str:
        return f"trained-{self.colour}-{hashed_name(self.client)}"
