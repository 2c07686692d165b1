"""What a client keeps of a method between rounds, in a file beside its account.

A reply may be lost after the client has moved on, and the server asks again from the round that it knows of. So the
file holds two states: the one that the last order started from, and the one that it ended in.

State that plain training leaves behind depends on records without any noise, so private training must not start from
it. Each colour has files of its own: whoever switches private training on or off starts anew.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file, save

from fedaux.config.sections import Colour
from fedaux.core.io import delete_all_but_newest, hashed_name, write_atomically
from fedaux.core.messages import Arrays

RUNS = 4  # of which a client keeps its state; those of older ones are deleted
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
        """As it was after this round; nothing at round 0, or where it was lost."""
        return self._read().get(round_, {}) if round_ > 0 else {}

    def save(self, before: int, after: int, state: Arrays) -> None:
        """The state after round `after`, which started from that of `before`."""
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
