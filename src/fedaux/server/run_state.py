"""Everything a run needs to continue, and the files of a run's folder that hold it.

Files of lines are valid up to the lengths that `STATE_FILE` states: lines beyond were
written by a run that was killed before it could commit them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
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
from fedaux.core.results import RoundResult, SiteTest
from fedaux.messages import Release
from fedaux.privacy.ledger import Ledger, SumAssumption

# weights, and how much of the files that grow is committed
STATE_FILE = "state.safetensors"
# config, extractors, statistics of their features and what the scorer publishes
START = "start.safetensors"
HISTORY = "history.jsonl"  # a `RoundResult` a line
RELEASES = "releases.jsonl"  # a client's release a line
# what is known of a client, a line whenever it was asked; its last line counts
ACCOUNTS = "accounts.jsonl"
GROWING = (HISTORY, RELEASES, ACCOUNTS)
STATE_VERSION = "1"  # it grows with every change that an older reader could misread
# and a prototype: the client of a release that is a secure sum; no client has spaces in
# its name
POOLED = "sum of "
StateRow = dict[str, Any]


class StateError(FedauxError, ValueError):
    """A folder or file holds no state that a run can continue from."""

    code = Exit.FOLDER


@dataclass(frozen=True)
class ClientRecord:
    """What the server knows of a client, next to its release and its prototype.

    Attributes:
        account: The last privacy account that the client reported.
        awaiting_reply: Whether it has not answered its last order.
        prepared: Whether it is known to hold h0's features of its data.
        last_round: The last round in which its update was used, or 0 for none.
        sums_received: The records behind the sums that it has sent, or 0 for none.
        summed: Whether its release is in a secure sum.
    """

    account: Account | None = None
    awaiting_reply: bool = False
    prepared: bool = False
    last_round: int = 0
    sums_received: int = 0
    summed: bool = False

    @classmethod
    def from_row(cls, row: StateRow) -> ClientRecord:
        """Read a line of `ACCOUNTS`."""
        values = {name: value for name, value in row.items() if name != "client"}
        if values["account"] is not None:
            values["account"] = Account(**values["account"])
        return cls(**values)

    def to_row(self, client: str) -> StateRow:
        """Return the client's line of `ACCOUNTS`."""
        account = None if self.account is None else vars(self.account)
        return {"client": client, **vars(self), "account": account}


UNKNOWN_CLIENT = ClientRecord()


@dataclass(frozen=True, eq=False)
class RunState:
    """The state after `round` rounds (0: prepared). Keys of `weights`, `extractors` and
    `public` are prototype labels.

    Attributes:
        config: The settings of the run.
        round: The number of finished rounds.
        weights: The model of each prototype.
        extractors: h0 of each prototype, kept because scores are always taken on h0.
        public: What the scorer of each prototype published.
        releases: The release of each client.
        clients: What else is known of each client that was ever asked.
        history: The result of every round.
        method_state: What the method's hooks keep, by prototype.
        selected: The clients of the current round.
        standardisation: Mean and deviation of h0's features of D⁻; empty where heads
            are trained on raw features.
        sums: `FeatureSums` of all clients that have sent theirs, by prototype.
        assignment: The prototype of every real site, including sites that have left.
        run: The id under which clients keep their state. "" means that of the settings.
        pooled: The secure sum of the releases of each prototype's clients.
        site_test: What the sites have counted of the records that they hold out.
    """

    config: Config
    round: int
    weights: dict[str, Arrays]
    extractors: dict[str, Arrays] = field(default_factory=dict)
    public: dict[str, Arrays] = field(default_factory=dict)
    releases: dict[str, Release] = field(default_factory=dict)
    clients: dict[str, ClientRecord] = field(default_factory=dict)
    history: tuple[RoundResult, ...] = ()
    method_state: dict[str, Arrays] = field(default_factory=dict)
    selected: tuple[str, ...] = ()
    standardisation: dict[str, Arrays] = field(default_factory=dict)
    sums: dict[str, Arrays] = field(default_factory=dict)
    assignment: dict[str, str] = field(default_factory=dict)
    run: str = ""
    pooled: dict[str, Release] = field(default_factory=dict)
    site_test: SiteTest | None = None

    # What is known of clients

    def client(self, name: str) -> ClientRecord:
        """Return what is known of a client, which may never have been asked."""
        return self.clients.get(name, UNKNOWN_CLIENT)

    @cached_property
    def accounts(self) -> dict[str, Account]:
        """The last account that each client reported."""
        return {
            name: client.account
            for name, client in self.clients.items()
            if client.account is not None
        }

    @cached_property
    def awaiting_reply(self) -> frozenset[str]:
        """Clients that have not answered their last order."""
        return self._clients_where("awaiting_reply")

    @cached_property
    def prepared(self) -> frozenset[str]:
        """Clients that are known to hold h0's features of their data."""
        return self._clients_where("prepared")

    @cached_property
    def summed(self) -> frozenset[str]:
        """Clients whose releases are in a secure sum."""
        return self._clients_where("summed")

    @cached_property
    def last_round(self) -> dict[str, int]:
        """The last round in which each client's update was used."""
        return {
            name: client.last_round
            for name, client in self.clients.items()
            if client.last_round
        }

    @cached_property
    def sums_received(self) -> dict[str, int]:
        """The records of each client that has sent sums of features."""
        return {
            name: client.sums_received
            for name, client in self.clients.items()
            if client.sums_received
        }

    def _clients_where(self, flag: str) -> frozenset[str]:
        return frozenset(
            name for name, client in self.clients.items() if getattr(client, flag)
        )

    @property
    def records(self) -> dict[str, int]:
        """The records of clients that have sent what a head is computed from. Their
        mean where only sums are known.
        """
        records = {name: release.records for name, release in self.releases.items()}
        total = sum(release.records for release in self.pooled.values())
        mean = total // max(1, len(self.summed))
        records |= dict.fromkeys(self.summed, mean)
        return records | self.sums_received

    def known_entries(self, client: str) -> tuple[int, str]:
        """Return how many entries of a client's account the server knows of, and the
        client's signature of it.
        """
        account = self.client(client).account
        if account is None:
            return 0, ""
        return account.entries, account.signature

    # The state after a step of the run

    def with_clients(self, names: Iterable[str], **changes: Any) -> RunState:
        """Return the state in which these fields of these clients' records differ."""
        clients = dict(self.clients)
        for name in names:
            clients[name] = replace(self.client(name), **changes)
        return replace(self, clients=clients)

    def with_releases(self, releases: dict[str, Release]) -> RunState:
        state = self.with_clients(releases, prepared=True)
        return replace(state, releases={**self.releases, **releases})

    def with_sums(self, sums: dict[str, Arrays], records: dict[str, int]) -> RunState:
        """Return the state with the sums of these clients added."""
        clients = dict(self.clients)
        for name, count in records.items():
            clients[name] = replace(
                self.client(name), sums_received=count, prepared=True
            )
        return replace(self, sums=sums, clients=clients)

    def with_pooled(
        self, pooled: dict[str, Release], clients: Iterable[str]
    ) -> RunState:
        """Return the state with sums of releases, of these clients."""
        state = self.with_clients(clients, summed=True, prepared=True)
        return replace(state, pooled={**self.pooled, **pooled})

    def with_accounts(
        self, asked: Iterable[str], accounts: dict[str, Account]
    ) -> RunState:
        """Record who was asked and the accounts of those who answered, even if their
        answers are otherwise dropped.
        """
        clients = dict(self.with_clients(asked, awaiting_reply=True).clients)
        for name, account in accounts.items():
            record = clients.get(name, UNKNOWN_CLIENT)
            clients[name] = replace(record, account=account, awaiting_reply=False)
        return replace(self, clients=clients)

    def after(
        self,
        weights: dict[str, Arrays],
        result: RoundResult,
        method_state: dict[str, Arrays] | None = None,
    ) -> RunState:
        """Return the state one round later. A failed client may have lost its features,
        and is sent h0 again.
        """
        number = self.round + 1
        state = self.with_clients(
            result.client_metrics, prepared=True, last_round=number
        )
        # a failure may also be that of a whole sum, which is no client
        failed = {failure.client for failure in result.failures}
        state = state.with_clients(failed & state.clients.keys(), prepared=False)
        # only the last round keeps its tables of confusions, and calibration
        earlier = [
            replace(last, confusion=None, calibration=None)
            for last in self.history[-1:]
        ]
        return replace(
            state,
            round=number,
            weights=weights,
            history=(*self.history[:-1], *earlier, result),
            method_state=self.method_state | (method_state or {}),
        )

    # Privacy

    @property
    def max_epsilon(self) -> float | None:
        """The largest total ε that any client has reported so far, or None without any, or
        with seeded noise.
        """
        spent = (account.epsilon for account in self.accounts.values())
        largest = max(spent, default=0.0)
        return largest if 0 < largest < math.inf else None

    @property
    def ledger(self) -> Ledger:
        """The privacy budget that the clients report to have spent."""
        releases = self.releases
        if self.pooled:
            any_sum = next(iter(self.pooled.values()))
            releases = dict.fromkeys(self.summed, any_sum)
        secure = None
        if self.config.federation.secure:
            sites = len(self.summed or self.selected)
            secure = SumAssumption.of(self.config.federation, sites)
        return Ledger.of(
            releases,
            self.accounts,
            self.awaiting_reply,
            self.history,
            unprotected_sums=len(self.sums_received),
            models=not find_method(self.config.method).analytic,
            secure=secure,
            looked=self.site_test.sites if self.site_test else (),
        )

    @classmethod
    def load(cls, folder: Path) -> RunState:
        """Read the state from a run's folder. Nothing else reads it."""
        commit, arrays = read(folder / STATE_FILE)
        start, first_arrays = read(folder / START)
        rows = {name: _read_rows(folder / name, commit) for name in GROWING}
        try:
            releases, pooled = _split_releases(rows[RELEASES])
            clients = {
                row["client"]: ClientRecord.from_row(row) for row in rows[ACCOUNTS]
            }
            return cls(
                config=Config.from_dict(start["config"]),
                round=commit["round"],
                weights=arrays["weights"],
                extractors=first_arrays["extractors"],
                public=first_arrays["public"],
                releases=releases,
                clients=clients,
                history=_history(rows[HISTORY], arrays["confusion"]),
                method_state=arrays["method_state"],
                standardisation=first_arrays["standardisation"],
                sums=arrays["sums"],
                assignment=start["assignment"],
                run=start["run"],
                pooled=pooled,
                site_test=_site_test(commit),
            )
        except StateError:
            raise
        except (KeyError, TypeError, ValueError) as error:
            raise _damaged(folder / STATE_FILE, error) from error


def _site_test(commit: StateRow) -> SiteTest | None:
    table = commit.get("site_test")
    return SiteTest.from_dict(table) if table else None


def _split_releases(
    rows: Iterable[StateRow],
) -> tuple[dict[str, Release], dict[str, Release]]:
    """Return the releases of clients, and the secure sums of them by prototype."""
    releases: dict[str, Release] = {}
    pooled: dict[str, Release] = {}
    for row in rows:
        release = release_of(row)
        if release.client.startswith(POOLED):
            pooled[release.client.removeprefix(POOLED)] = release
        else:
            releases[release.client] = release
    return releases, pooled


def _history(
    rows: Iterable[StateRow], confusion: dict[str, Arrays]
) -> tuple[RoundResult, ...]:
    """Return the results of all rounds, the last one with its tables of confusions and
    its calibration.
    """
    results = [RoundResult.from_dict(row) for row in rows]
    tables = {label: arrays["counts"].tolist() for label, arrays in confusion.items()}
    curves = {
        label: arrays["calibration"].tolist()
        for label, arrays in confusion.items()
        if "calibration" in arrays
    }
    if results:
        results[-1] = replace(
            results[-1], confusion=tables or None, calibration=curves or None
        )
    return tuple(results)


def release_row(release: Release) -> StateRow:
    """Return a release as a row for JSON."""
    return {**vars(release), "arrays": release.arrays["values"].tolist()}


def release_of(row: StateRow) -> Release:
    values = np.array(row["arrays"], np.int64)
    return Release(**{**row, "arrays": {"values": values}})


def _read_rows(path: Path, commit: StateRow) -> Iterator[StateRow]:
    """Yield the rows of the committed part of a file."""
    try:
        left = commit["lengths"][path.name]
        with path.open("rb") as file:
            while left > 0:
                line = file.readline(left)
                if not line.endswith(b"\n"):
                    raise ValueError("it is cut short")
                left -= len(line)
                yield json.loads(line)
    except (KeyError, ValueError, FileNotFoundError) as error:
        raise _damaged(path, error) from error


def pack(values: StateRow, rooms: ArrayTree) -> bytes:
    """Pack arrays, and values for JSON, into one file. The values are stored as an
    array, since the header has no room for long ones.
    """
    tensors: Arrays = {}
    names: dict[str, dict[str, list[str]]] = {}
    for room, shelves in rooms.items():
        names[room] = {label: list(arrays) for label, arrays in shelves.items()}
        for label, arrays in shelves.items():
            for name, array in arrays.items():
                tensors[f"{room}|{label}|{name}"] = np.asarray(array, order="C")
    header = json.dumps({**values, "rooms": names}).encode()
    tensors["facts"] = np.frombuffer(header, np.uint8)
    return save(tensors, metadata={"version": STATE_VERSION})


def read(path: Path) -> tuple[StateRow, ArrayTree]:
    """Read values and arrays of a packed file, in their original order."""
    tensors = _read_tensors(path)
    try:
        values = json.loads(tensors.pop("facts").tobytes())
        rooms: ArrayTree = {}
        for room, shelves in values["rooms"].items():
            rooms[room] = {
                label: {name: tensors[f"{room}|{label}|{name}"] for name in names}
                for label, names in shelves.items()
            }
    except (KeyError, TypeError, ValueError) as error:
        raise _damaged(path, error) from error
    return values, rooms


def _read_tensors(path: Path) -> Arrays:
    """Read a packed file of this version."""
    if not path.is_file():
        raise StateError(
            f"Cannot continue: {path.parent} holds no run ({path.name} is missing). "
            "Start one with `fedaux run`."
        )
    try:
        with safe_open(path, framework="numpy") as file:
            version = (file.metadata() or {}).get("version")
            names = list(file.keys()) if version == STATE_VERSION else []
            tensors = {name: file.get_tensor(name) for name in names}
    except SafetensorError as error:
        raise _damaged(path, error) from error
    if version != STATE_VERSION:  # a migration of older states would go here
        raise StateError(
            f"Cannot continue: {path} was written by another version of fedaux (state "
            f"{version}, this one reads {STATE_VERSION}). Continue with that version, "
            "or start the run again in another folder."
        )
    return tensors


def _damaged(path: Path, error: Exception) -> StateError:
    return StateError(
        f"Cannot continue: {path} is damaged ({error!r}). Start the run again in "
        "another folder."
    )
