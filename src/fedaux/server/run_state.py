"""Everything a run needs to continue, and the files of a run's folder that hold it.

Files of lines are valid up to the lengths that `FILE` states: lines beyond were written
by a run that was killed before it could commit them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from fedaux.config.methods import find_method
from fedaux.config.schema import Config
from fedaux.core.accounts import Account
from fedaux.core.arrays import Arrays, ArrayTree
from fedaux.core.errors import Exit, FedauxError
from fedaux.core.io import write_atomically, write_from
from fedaux.core.results import RoundResult
from fedaux.messages import Release
from fedaux.privacy.ledger import Ledger, SecureSums

FILE = "state.safetensors"  # weights, and how much of the files that grow is committed
# config, extractors, statistics of their features and what the scorer publishes
START = "start.safetensors"
HISTORY = "history.jsonl"  # a `RoundResult` a line
RELEASES = "releases.jsonl"  # a client's release a line
# what is known of a client, a line whenever it was asked; its last line counts
ACCOUNTS = "accounts.jsonl"
VERSION = "1"  # it grows with every change that an older reader could misread
# and a prototype: the client of a release that is a secure sum; no client has spaces in
# its name
POOLED = "sum of "
Row = dict[str, Any]


class StateError(FedauxError, ValueError):
    """A folder or file holds no state that a run can continue from."""

    code = Exit.FOLDER


@dataclass(frozen=True, eq=False)
class RunState:
    """The state after `round` rounds (0: prepared). Keys of `weights`, `extractors` and
    `public` are prototype labels.

    extractors: h0 of each prototype, kept because scores are always taken on h0.
    public: what its scorer published. standardisation: mean and deviation of h0's
    features of D⁻; empty where heads are trained on raw features.
    """

    config: Config
    round: int
    weights: dict[str, Arrays]
    extractors: dict[str, Arrays] = field(default_factory=dict)
    public: dict[str, Arrays] = field(default_factory=dict)
    releases: dict[str, Release] = field(default_factory=dict)
    # the last account that each client reported
    accounts: dict[str, Account] = field(default_factory=dict)
    # clients that have not answered their last order
    awaiting_reply: frozenset[str] = frozenset()
    # clients known to hold h0's features of their data
    prepared: frozenset[str] = frozenset()
    history: tuple[RoundResult, ...] = ()
    # in which each client's update was used
    last_round: dict[str, int] = field(default_factory=dict)
    # by prototype: what the method's hooks keep
    method_state: dict[str, Arrays] = field(default_factory=dict)
    selected: tuple[str, ...] = ()  # clients of the current round
    standardisation: dict[str, Arrays] = field(default_factory=dict)
    # `FeatureSums` of all clients that have sent theirs
    sums: dict[str, Arrays] = field(default_factory=dict)
    # records of each of them
    sums_received: dict[str, int] = field(default_factory=dict)
    assignment: dict[str, str] = field(
        default_factory=dict
    )  # the prototype of every real site, including sites that have left
    # the id under which clients keep their state; "": that of the settings
    run: str = ""
    # by prototype: the secure sum of its clients' releases
    pooled: dict[str, Release] = field(default_factory=dict)
    summed: frozenset[str] = frozenset()  # clients whose releases are in it

    def with_releases(self, releases: dict[str, Release]) -> RunState:
        return replace(
            self,
            releases={**self.releases, **releases},
            prepared=self.prepared | set(releases),
        )

    def with_sums(self, sums: dict[str, Arrays], records: dict[str, int]) -> RunState:
        """Return the state with the sums of these clients added."""
        return replace(
            self,
            sums=sums,
            sums_received=self.sums_received | records,
            prepared=self.prepared | set(records),
        )

    def with_pooled(
        self, pooled: dict[str, Release], clients: Iterable[str]
    ) -> RunState:
        """Return the state with sums of releases, of these clients."""
        summed = self.summed | set(clients)
        return replace(
            self,
            pooled={**self.pooled, **pooled},
            summed=summed,
            prepared=self.prepared | summed,
        )

    @property
    def records(self) -> dict[str, int]:
        """The records of clients that have sent what a head is computed from; their
        mean where only sums are known.
        """
        mean = sum(release.records for release in self.pooled.values()) // max(
            1, len(self.summed)
        )
        releases = {
            client: release.records for client, release in self.releases.items()
        }
        return releases | dict.fromkeys(self.summed, mean) | self.sums_received

    def with_accounts(
        self, asked: Iterable[str], accounts: dict[str, Account]
    ) -> RunState:
        """Record who was asked and the accounts of those who answered, even if their
        answers are otherwise dropped.
        """
        awaiting_reply = (self.awaiting_reply | set(asked)) - set(accounts)
        return replace(
            self, accounts={**self.accounts, **accounts}, awaiting_reply=awaiting_reply
        )

    def known_entries(self, client: str) -> tuple[int, str]:
        """Return how many entries of a client's account the server knows of, and the
        client's signature of it.
        """
        account = self.accounts.get(client)
        return (account.entries, account.signature) if account else (0, "")

    def after(
        self,
        weights: dict[str, Arrays],
        result: RoundResult,
        method_state: dict[str, Arrays] | None = None,
    ) -> RunState:
        """Return the state one round later. A failed client may have lost its features,
        and is sent h0 again.
        """
        prepared = (self.prepared | set(result.client_metrics)) - {
            failure.client for failure in result.failures
        }
        history = (
            *self.history[:-1],
            *(replace(last, confusion=None) for last in self.history[-1:]),
            result,
        )
        return replace(
            self,
            round=self.round + 1,
            weights=weights,
            prepared=prepared,
            history=history,
            last_round=self.last_round
            | dict.fromkeys(result.client_metrics, self.round + 1),
            method_state=self.method_state | (method_state or {}),
        )

    @property
    def max_epsilon(self) -> float | None:
        """The largest total ε that any client has reported so far; None without any, or
        with seeded noise.
        """
        largest = max(
            (account.epsilon for account in self.accounts.values()), default=0.0
        )
        return largest if 0 < largest < math.inf else None

    @property
    def ledger(self) -> Ledger:
        """The privacy budget that the clients report to have spent."""
        models = not find_method(self.config.method).analytic
        return Ledger.of(
            dict.fromkeys(self.summed, next(iter(self.pooled.values())))
            if self.pooled
            else self.releases,
            self.accounts,
            self.awaiting_reply,
            self.history,
            len(self.sums_received),
            models,
            SecureSums.of(self.config.federation, len(self.summed or self.selected))
            if self._secure
            else None,
        )

    @property
    def _secure(self) -> bool:
        return self.config.federation.secure

    @classmethod
    def load(cls, folder: Path) -> RunState:
        """Read the state from a run's folder; nothing else reads it."""
        facts, rooms = read(folder / FILE)
        start, start_rooms = read(folder / START)
        history, releases, known = (
            _read_rows(folder / name, facts) for name in (HISTORY, RELEASES, ACCOUNTS)
        )
        try:
            clients, sent = (
                {row["client"]: row for row in known},
                {row["client"]: release_of(row) for row in releases},
            )
            pooled = {
                name: release
                for name, release in sent.items()
                if name.startswith(POOLED)
            }
            results = [RoundResult.from_dict(row) for row in history]
            tables = {
                label: arrays["counts"].tolist()
                for label, arrays in rooms["confusion"].items()
            }
            config = Config.from_dict(start["config"])
            return cls(
                config,
                facts["round"],
                rooms["weights"],
                start_rooms["extractors"],
                start_rooms["public"],
                method_state=rooms["method_state"],
                standardisation=start_rooms["standardisation"],
                sums=rooms["sums"],
                assignment=start["assignment"],
                run=start["run"],
                sums_received={
                    client: row["sums_received"]
                    for client, row in clients.items()
                    if row["sums_received"]
                },
                history=(
                    *results[:-1],
                    *(replace(last, confusion=tables or None) for last in results[-1:]),
                ),
                releases={
                    name: release
                    for name, release in sent.items()
                    if name not in pooled
                },
                pooled={
                    name.removeprefix(POOLED): release
                    for name, release in pooled.items()
                },
                summed=frozenset(
                    client for client, row in clients.items() if row["summed"]
                ),
                accounts={
                    client: Account(**row["account"])
                    for client, row in clients.items()
                    if row["account"]
                },
                awaiting_reply=frozenset(
                    client for client, row in clients.items() if row["awaiting_reply"]
                ),
                prepared=frozenset(
                    client for client, row in clients.items() if row["prepared"]
                ),
                last_round={
                    client: row["last_round"]
                    for client, row in clients.items()
                    if row["last_round"]
                },
            )
        except StateError:
            raise
        except (KeyError, TypeError, ValueError) as error:
            raise _damaged(folder / FILE, error) from error

    def client_row(self, client: str) -> Row:
        """Return what is known of a client beside its release, for JSON."""
        return {
            "client": client,
            "account": vars(self.accounts[client]) if client in self.accounts else None,
            "awaiting_reply": client in self.awaiting_reply,
            "prepared": client in self.prepared,
            "last_round": self.last_round.get(client, 0),
            "sums_received": self.sums_received.get(client, 0),
            "summed": client in self.summed,
        }


def _sent(state: RunState) -> dict[str, Release]:
    """Return everything in the file of releases: a run has those of clients, or secure
    sums of them.
    """
    return state.pooled or state.releases


def release_row(release: Release) -> Row:
    """Return a release as a row for JSON."""
    return {**vars(release), "arrays": release.arrays["values"].tolist()}


def release_of(row: Row) -> Release:
    return Release(**{**row, "arrays": {"values": np.array(row["arrays"], np.int64)}})


def _read_rows(path: Path, facts: Row) -> Iterator[Row]:
    """Yield the rows of the committed part of a file."""
    try:
        left = facts["lengths"][path.name]
        with path.open("rb") as file:
            while left > 0:
                line = file.readline(left)
                if not line.endswith(b"\n"):
                    raise ValueError("it is cut short")
                left -= len(line)
                yield json.loads(line)
    except (KeyError, ValueError, FileNotFoundError) as error:
        raise _damaged(path, error) from error


def pack(facts: Row, rooms: ArrayTree) -> bytes:
    """Pack arrays and facts into one file. Facts are stored as an array, since the
    header has no room for long ones.
    """
    tensors = {
        f"{room}|{label}|{name}": np.asarray(array, order="C")
        for room, shelves in rooms.items()
        for label, arrays in shelves.items()
        for name, array in arrays.items()
    }
    names = {
        room: {label: list(arrays) for label, arrays in shelves.items()}
        for room, shelves in rooms.items()
    }
    tensors["facts"] = np.frombuffer(
        json.dumps({**facts, "rooms": names}).encode(), np.uint8
    )
    return save(tensors, metadata={"version": VERSION})


def read(path: Path) -> tuple[Row, ArrayTree]:
    """Read facts and rooms of a packed file, in their original order."""
    if not path.is_file():
        raise StateError(
            f"{path.parent} holds no run ({path.name} is missing); start one with "
            "`fedaux run`."
        )
    try:
        with safe_open(path, framework="numpy") as file:
            version = (file.metadata() or {}).get("version")
            names = list(file.keys()) if version == VERSION else []
            tensors = {name: file.get_tensor(name) for name in names}
    except SafetensorError as error:
        raise _damaged(path, error) from error
    if version != VERSION:  # a migration of older states would go here
        raise StateError(
            f"{path} was written by another version of fedaux (state {version}; this "
            f"one reads {VERSION}): go on with that version, or start the run anew in "
            "another folder"
        )
    try:
        facts = json.loads(tensors.pop("facts").tobytes())
        return facts, {
            room: {
                label: {name: tensors[f"{room}|{label}|{name}"] for name in names}
                for label, names in shelves.items()
            }
            for room, shelves in facts["rooms"].items()
        }
    except (KeyError, TypeError, ValueError) as error:
        raise _damaged(path, error) from error


def _damaged(path: Path, error: Exception) -> StateError:
    return StateError(
        f"{path} is damaged ({error!r}); start the run anew in another folder"
    )


class RunWriter:
    """Writes the state of a run; continues from `saved`, the state in the folder, or
    else replaces its contents.

    Files of lines are appended to and on disk before `FILE` is replaced, which commits
    their lengths. A process that is killed in between leaves the previous state, and
    its lines are overwritten when the run continues.
    """

    def __init__(self, folder: Path, saved: RunState | None = None) -> None:
        self._folder, self._started, self._fresh = folder, False, saved is None
        self._rounds, self._releases = (
            (len(saved.history), len(_sent(saved))) if saved else (0, 0)
        )
        self._lengths = (
            read(folder / FILE)[0]["lengths"]
            if saved
            else dict.fromkeys((HISTORY, RELEASES, ACCOUNTS), 0)
        )

    def save(self, state: RunState) -> None:
        """Save the state, after preparation, new releases and every round; only the
        rows that are new are appended.
        """
        if not self._started:
            self._start(state)
        clients = (
            {
                *state.accounts,
                *state.awaiting_reply,
                *state.prepared,
                *state.last_round,
                *state.sums_received,
            }
            if self._fresh
            else state.selected
        )
        sent = _sent(state)
        arrived = islice(reversed(sent.values()), len(sent) - self._releases)
        rows: dict[str, Iterable[Row]] = {
            HISTORY: (result.to_dict() for result in state.history[self._rounds :]),
            RELEASES: map(release_row, reversed([*arrived])),
            ACCOUNTS: map(state.client_row, sorted(clients)),
        }
        lengths = {name: self._append(name, new) for name, new in rows.items()}
        tables = (state.history[-1].confusion if state.history else None) or {}
        confusion = {
            label: {"counts": np.array(table)} for label, table in tables.items()
        }
        rooms = {
            "weights": state.weights,
            "method_state": state.method_state,
            "confusion": confusion,
            "sums": state.sums,
        }
        write_atomically(
            self._folder / FILE, pack({"round": state.round, "lengths": lengths}, rooms)
        )
        self._rounds, self._releases = len(state.history), len(sent)
        self._lengths, self._fresh = lengths, False

    def _start(self, state: RunState) -> None:
        """Write the start of a run, also of a resumed one: it may have more rounds, and
        drops uncommitted lines.
        """
        if self._fresh:
            (self._folder / FILE).unlink(missing_ok=True)
        rooms = {
            "extractors": state.extractors,
            "public": state.public,
            "standardisation": state.standardisation,
        }
        facts = {
            "config": state.config.to_dict(),
            "assignment": state.assignment,
            "run": state.run or state.config.run_id,
        }
        write_atomically(self._folder / START, pack(facts, rooms))
        for name, length in self._lengths.items():
            write_from(self._folder / name, length, b"")
        self._started = True

    def _append(self, name: str, rows: Iterable[Row]) -> int:
        """Append rows to a file, and return its new length."""
        data = "".join(
            json.dumps(row, separators=(",", ":")) + "\n" for row in rows
        ).encode()
        if data:
            write_from(self._folder / name, self._lengths[name], data)
        return int(self._lengths[name]) + len(data)
