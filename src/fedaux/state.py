"""Everything a run needs to continue, in one file, replaced atomically after preparation and every round."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import safe_open
from safetensors.numpy import save

from fedaux.config import Config
from fedaux.exchange import Arrays, Release
from fedaux.files import write_atomically

FILE = "state.safetensors"
VERSION = "1"

Record = dict[str, Any]  # one round's entry in the history; see `Server.record`


@dataclass(frozen=True, eq=False)
class RunState:
    """After `round` rounds (0: prepared). Keys of `weights`, `extractors` and `public` are prototype labels.

    extractors: h0 of each prototype, kept because scores are always taken on h0. public: what its scorer published.
    """

    config: Config
    round: int
    weights: dict[str, Arrays]
    extractors: dict[str, Arrays] = field(default_factory=dict)
    public: dict[str, Arrays] = field(default_factory=dict)
    releases: dict[str, Release] = field(default_factory=dict)
    history: tuple[Record, ...] = ()

    def with_releases(self, releases: dict[str, Release]) -> RunState:
        return replace(self, releases={**self.releases, **releases})

    def after(self, weights: dict[str, Arrays], record: Record) -> RunState:
        """The state one round later."""
        return replace(self, round=self.round + 1, weights=weights, history=(*self.history, record))

    def save(self, folder: Path) -> None:
        rooms = {
            "weights": self.weights,
            "extractors": self.extractors,
            "public": self.public,
            "releases": {client: one.arrays for client, one in self.releases.items()},
        }
        tensors = {
            f"{room}|{label}|{name}": np.asarray(array, order="C")
            for room, shelves in rooms.items()
            for label, arrays in shelves.items()
            for name, array in arrays.items()
        }
        facts = {
            "version": VERSION,
            "config": self.config.to_dict(),
            "round": self.round,
            "labels": {room: list(shelves) for room, shelves in rooms.items()},
            "releases": {client: {**asdict(one), "arrays": None} for client, one in self.releases.items()},
            "history": self.history,
        }
        write_atomically(folder / FILE, save(tensors, metadata={"fedaux": json.dumps(facts)}))

    @classmethod
    def load(cls, folder: Path) -> RunState:
        path = folder / FILE
        if not path.is_file():
            raise FileNotFoundError(f"{folder} holds no run ({FILE} is missing); start one with `fedaux run`.")
        with safe_open(path, framework="numpy") as file:
            facts = json.loads(file.metadata()["fedaux"])
            if facts["version"] != VERSION:
                raise ValueError(
                    f"{path} was written by another version of fedaux (state {facts['version']}, not {VERSION})"
                )
            rooms: dict[str, dict[str, Arrays]] = {
                room: {label: {} for label in labels} for room, labels in facts["labels"].items()
            }
            for key in file.keys():  # noqa: SIM118  (not a mapping)
                room, rest = key.split("|", 1)
                label, name = rest.rsplit("|", 1)
                rooms[room][label][name] = file.get_tensor(key)
        arrays = rooms.pop("releases")
        releases = {client: Release(**{**one, "arrays": arrays[client]}) for client, one in facts["releases"].items()}
        return cls(
            Config.from_dict(facts["config"]),
            facts["round"],
            **rooms,
            releases=releases,
            history=tuple(facts["history"]),
        )
