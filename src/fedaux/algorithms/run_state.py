"""Everything a run needs to continue, in one file, replaced atomically after preparation and every round."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from fedaux.config.schema import Config
from fedaux.core.errors import Exit, FedauxError
from fedaux.core.io import write_atomically
from fedaux.core.messages import Account, Arrays, Release
from fedaux.core.results import RoundResult
from fedaux.privacy.ledger import Ledger

FILE = "state.safetensors"
VERSION = "6"
ROOMS = ("weights", "extractors", "public", "method_state")


class StateError(FedauxError, ValueError):
    """A folder or file that holds no state that can be gone on with."""

    code = Exit.FOLDER


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
    accounts: dict[str, Account] = field(default_factory=dict)  # what each client last said that it had spent
    unheard: frozenset[str] = frozenset()  # clients that were sent an order since, and have not answered it
    prepared: frozenset[str] = frozenset()  # clients that have shown to hold h0's features of their data
    history: tuple[RoundResult, ...] = ()
    last_round: dict[str, int] = field(default_factory=dict)  # in which each client's update was used
    method_state: dict[str, Arrays] = field(default_factory=dict)  # by prototype: what the method's hooks keep

    def with_releases(self, releases: dict[str, Release]) -> RunState:
        return replace(self, releases={**self.releases, **releases}, prepared=self.prepared | set(releases))

    def with_accounts(self, asked: Iterable[str], accounts: dict[str, Account]) -> RunState:
        """Who was asked, and what those that answered have spent; also if nothing else of their answers is kept."""
        unheard = (self.unheard | set(asked)) - set(accounts)
        return replace(self, accounts={**self.accounts, **accounts}, unheard=unheard)

    def heard(self, client: str) -> int:
        """How many entries of this client's account the server knows of."""
        return self.accounts[client].entries if client in self.accounts else 0

    def after(
        self, weights: dict[str, Arrays], result: RoundResult, method_state: dict[str, Arrays] | None = None
    ) -> RunState:
        """The state one round later. Who failed may have lost its features, and is sent the extractor again."""
        prepared = (self.prepared | set(result.client_metrics)) - {failure.client for failure in result.failures}
        history = (*(replace(earlier, confusion=None) for earlier in self.history), result)
        return replace(
            self,
            round=self.round + 1,
            weights=weights,
            prepared=prepared,
            history=history,
            last_round=self.last_round | dict.fromkeys(result.client_metrics, self.round + 1),
            method_state=self.method_state | (method_state or {}),
        )

    @property
    def ledger(self) -> Ledger:
        """What the clients say they have spent."""
        return Ledger.of(self.releases, self.accounts, self.unheard, self.history)

    def save(self, folder: Path) -> None:
        rooms = {room: getattr(self, room) for room in ROOMS}
        tensors = {
            f"{room}|{label}|{name}": np.asarray(array, order="C")
            for room, shelves in rooms.items()
            for label, arrays in shelves.items()
            for name, array in arrays.items()
        }
        values = [one.arrays["values"] for one in self.releases.values()]
        facts = {
            "config": self.config.to_dict(),
            "round": self.round,
            "labels": {room: list(shelves) for room, shelves in rooms.items()},
            "releases": [{**vars(one), "arrays": len(one.arrays["values"])} for one in self.releases.values()],
            "accounts": {client: vars(account) for client, account in self.accounts.items()},
            "unheard": sorted(self.unheard),
            "prepared": sorted(self.prepared),
            "last_round": self.last_round,
            "history": [result.to_dict() for result in self.history],
        }
        # a million releases are one array and one text: the header of the file has room for neither
        tensors["releases"] = np.concatenate(values) if values else np.zeros(0, np.int64)
        tensors["facts"] = np.frombuffer(json.dumps(facts).encode(), np.uint8)
        write_atomically(folder / FILE, save(tensors, metadata={"version": VERSION}))

    @classmethod
    def load(cls, folder: Path) -> RunState:
        path = folder / FILE
        if not path.is_file():
            raise StateError(f"{folder} holds no run ({FILE} is missing); start one with `fedaux run`.")
        try:
            with safe_open(path, framework="numpy") as file:
                version = (file.metadata() or {}).get("version")
                tensors = {key: file.get_tensor(key) for key in file.keys()} if version == VERSION else {}  # noqa: SIM118
        except SafetensorError as error:
            raise StateError(f"{path} is damaged ({error}); start the run anew in another folder") from error
        if version != VERSION:
            raise StateError(f"{path} was written by another version of fedaux (state {version}, not {VERSION})")
        try:
            return cls._from(tensors)
        except (KeyError, TypeError, ValueError) as error:
            raise StateError(f"{path} is damaged ({error!r}); start the run anew in another folder") from error

    @classmethod
    def _from(cls, tensors: Arrays) -> RunState:
        facts, values = json.loads(tensors.pop("facts").tobytes()), tensors.pop("releases")
        rooms: dict[str, dict[str, Arrays]] = {
            room: {label: {} for label in labels} for room, labels in facts["labels"].items()
        }
        for key, array in tensors.items():
            room, rest = key.split("|", 1)
            label, name = rest.rsplit("|", 1)
            rooms[room][label][name] = array
        releases, start = {}, 0
        for one in facts["releases"]:
            size = one.pop("arrays")
            releases[one["client"]] = Release(**one, arrays={"values": values[start : start + size]})
            start += size
        if start != len(values):
            raise ValueError(f"{len(values)} numbers for releases of {start}")
        return cls(
            Config.from_dict(facts["config"]),
            facts["round"],
            **rooms,
            releases=releases,
            accounts={client: Account(**one) for client, one in facts["accounts"].items()},
            unheard=frozenset(facts["unheard"]),
            prepared=frozenset(facts["prepared"]),
            last_round=facts["last_round"],
            history=tuple(map(RoundResult.from_dict, facts["history"])),
        )
