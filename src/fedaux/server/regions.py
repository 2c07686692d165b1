"""Several servers below one: each asks the clients of its region and hands on the sum
of what they answer.

The merging server runs the ordinary loop, and `Regions` is its federation. All servers
see the run's folder. The merging one keeps its state there, and says in a file below
`FOLDER` which clients it asks for what; each `Region` answers with one file. Releases
are handed on as they are, since a teacher's weights depend on everybody's; updates as
their sum.
"""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fedaux.core.accounts import Account
from fedaux.core.errors import Exit, FedauxError
from fedaux.core.failures import Failure
from fedaux.core.io import write_atomically
from fedaux.core.progress import (
    OnProgress,
    OrdersSent,
    ReplyReceived,
    RoundFinished,
    Task,
    no_progress,
)
from fedaux.core.timing import Costs
from fedaux.messages import (
    Consent,
    Federation,
    Order,
    PlanOrder,
    PrepareOrder,
    Release,
    Reply,
    Subtotal,
)
from fedaux.scoring.teacher_weights import PublicEmbedding
from fedaux.server.agreement import agree_on_plan, show_to_others
from fedaux.server.loop import train
from fedaux.server.round import Round
from fedaux.server.run_state import RunState, pack, read, release_of, release_row
from fedaux.server.server import Server

FOLDER = "regions"  # in the folder of the run
POLL_INTERVAL = 0.2  # seconds between two looks for a file
_REQUEST = re.compile(r"(\d{6})\.json")


class RegionError(FedauxError, ValueError):
    """A region is invalid, or the run cannot be split into regions."""

    code = Exit.SETTINGS


@dataclass(frozen=True)
class RegionSpec:
    """The `number`-th of `count` regions. Each has a contiguous block of the clients,
    so no client is in two.
    """

    number: int
    count: int

    @classmethod
    def parse(cls, text: str) -> RegionSpec:
        found = re.fullmatch(r"(\d+)/(\d+)", text)
        if not found or not 1 <= int(found[1]) <= int(found[2]):
            raise RegionError(
                f'region = {text!r} is not a region; the first of two is region="1/2"'
            )
        return cls(int(found[1]), int(found[2]))

    @classmethod
    def all(cls, count: int) -> list[RegionSpec]:
        return [cls(number, count) for number in range(1, count + 1)]

    @property
    def name(self) -> str:
        return f"{self.number}of{self.count}"

    def clients(self, names: Sequence[str]) -> Sequence[str]:
        first, last = (
            len(names) * place // self.count for place in (self.number - 1, self.number)
        )
        return names[first:last]

    def folder(self, run: Path) -> Path:
        """Return the folder of this region's server, which holds its lock and its
        status.
        """
        return run / FOLDER / self.name

    def answer(self, folder: Path, request: int) -> Path:
        return folder / FOLDER / f"{request:06d}-{self.name}.safetensors"


ALL_CLIENTS = RegionSpec(1, 1)


def _sleep() -> None:
    time.sleep(POLL_INTERVAL)


class Regions:
    """The regional servers as a federation. It waits for one that is down; restarted,
    it answers the last request.

    `on_progress` is called with each region's requests and answers, under the region's
    name.
    """

    def __init__(
        self,
        folder: Path,
        count: int,
        wait: Callable[[], None] = _sleep,
        on_progress: OnProgress = no_progress,
    ) -> None:
        self._folder, self._wait, self._on_progress = folder, wait, on_progress
        self._parts = RegionSpec.all(count)
        (folder / FOLDER).mkdir(parents=True, exist_ok=True)

    def ask(self, orders: Sequence[Order]) -> Iterator[Reply]:
        """Yield the releases of all regions, or one `Subtotal` of each, as they arrive.

        Regional servers show the plan of the run to their own sites, and go on without
        those that do not approve it.
        """
        if isinstance(orders[0], PlanOrder):
            plans = [order for order in orders if isinstance(order, PlanOrder)]
            yield from (
                Consent(order.client, order.plan_hash, "approved") for order in plans
            )
            return
        task: Task = "release" if isinstance(orders[0], PrepareOrder) else "train"
        kind = "prepare" if task == "release" else "train"
        number, missing = (
            self._request(kind, [order.client for order in orders]),
            list(self._parts),
        )
        round_ = getattr(orders[0], "round", None)
        self._on_progress(
            OrdersSent(task, round_, tuple(part.name for part in missing), bytes=0)
        )
        while missing:
            arrived = [
                part for part in missing if part.answer(self._folder, number).is_file()
            ]
            for part in arrived:
                missing.remove(part)
                done = len(self._parts) - len(missing)
                yield from self._receive(
                    part, task, round_, done, part.answer(self._folder, number)
                )
            if missing and not arrived:
                self._wait()

    def end(self) -> None:
        """Tell the regional servers that all rounds are done."""
        self._request("end", [])

    def _receive(
        self, part: RegionSpec, task: Task, round_: int | None, done: int, path: Path
    ) -> Iterator[Reply]:
        """Yield a region's replies and report them; the largest account of its clients
        is reported as the region's.
        """
        replies, accounts, failures = _read_answer(path)
        account, size = (
            max(accounts, key=lambda one: one.epsilon, default=None),
            path.stat().st_size,
        )
        self._on_progress(
            ReplyReceived(
                task, round_, part.name, size, account, None, done, len(self._parts)
            )
        )
        for failure in failures:
            lost = Failure(
                part.name, f"{failure.client}: {failure.reason}", failure.kind
            )
            self._on_progress(ReplyReceived(task, round_, part.name, 0, failure=lost))
        yield from replies

    def _request(self, kind: str, clients: list[str]) -> int:
        """Write a request, which supersedes all earlier ones, and return its number."""
        place, number = self._folder / FOLDER, _newest(self._folder) + 1
        write_atomically(
            place / f"{number:06d}.json",
            json.dumps({"kind": kind, "clients": clients}).encode(),
        )
        for path in place.iterdir():
            if path.name[:6].isdigit() and int(path.name[:6]) < number:
                path.unlink()
        return number


class Region:
    """A regional server; `federation` holds its clients. `check` raises if another
    server has taken its place.
    """

    def __init__(
        self,
        server: Server,
        federation: Federation,
        folder: Path,
        part: RegionSpec,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        self._server, self._federation, self._folder, self._part = (
            server,
            federation,
            folder,
            part,
        )
        self._check = check
        self._own = frozenset(part.clients(server.clients))
        self._first: RunState | None = None
        self._round = 0  # the last round that it knows of
        self._agreed = False  # whether its sites were shown the plan of the run
        self._embedding: PublicEmbedding | None = None

    def serve(self, wait: Callable[[], None] = _sleep) -> None:
        """Answer requests until all rounds are done."""
        while not self.step():
            wait()

    def step(self) -> bool:
        """Answer the last request, unless that has been done; return whether all rounds
        are done.
        """
        number = _newest(self._folder)
        answer = self._part.answer(self._folder, number)
        if number == 0 or answer.is_file():
            return False
        try:
            request = json.loads(
                (self._folder / FOLDER / f"{number:06d}.json").read_text("utf-8")
            )
        except FileNotFoundError:  # a newer request has replaced it
            return False
        state, own = (
            self._read_state(),
            [client for client in request["clients"] if client in self._own],
        )
        if request["kind"] == "end":
            # an earlier, shorter run may have left it
            return state.round >= self._server.config.rounds
        self._check()
        if not self._agreed:
            agree_on_plan(self._server, self._federation, state, sorted(self._own))
            self._agreed = True
        show_to_others(self._server, self._federation, own)
        answers = (
            self._prepare(state, own)
            if request["kind"] == "prepare"
            else self._train(state, request, own)
        )
        self._check()
        write_atomically(answer, answers)
        return False

    def _read_state(self) -> RunState:
        """Read the state that the merging server saved. Public features are computed
        once: extractors do not change.
        """
        state = RunState.load(self._folder)
        if self._first is None:
            self._first, self._embedding, self._round = (
                state,
                self._server.restore(state),
                state.round,
            )
        for result in state.history[self._round :]:
            self._server.on_progress(
                RoundFinished(result, self._server.config.rounds, privacy="")
            )
        self._round = state.round
        return replace(
            state, extractors=self._first.extractors, public=self._first.public
        )

    def _prepare(self, state: RunState, own: list[str]) -> bytes:
        replies = list(
            self._federation.ask(
                [self._server.orders.prepare(state, client) for client in own]
            )
        )
        releases = [
            release_row(reply) for reply in replies if isinstance(reply, Release)
        ]
        failures = [vars(reply) for reply in replies if isinstance(reply, Failure)]
        return pack({"releases": releases, "failures": failures}, {})

    def _train(
        self, state: RunState, request: dict[str, list[str]], own: list[str]
    ) -> bytes:
        """Train the region's own clients; their weights as teachers are relative to
        those of all regions.
        """
        current = Round.start(
            self._server, self._embedding, state, request["clients"], Costs()
        )
        wanted = math.ceil(
            len(own) / (1 + self._server.config.federation.over_selection) - 1e-9
        )
        accounts = (
            train(self._server, self._federation, state, current, wanted, own)
            if own
            else {}
        )
        part = current.subtotal(accounts)
        return pack({"subtotal": part.facts}, part.contribution)


def _newest(folder: Path) -> int:
    """Return the number of the last request; 0 if there is none yet."""
    place = folder / FOLDER
    found = (
        [_REQUEST.fullmatch(path.name) for path in place.iterdir()]
        if place.is_dir()
        else []
    )
    return max((int(match[1]) for match in found if match), default=0)


def _read_answer(path: Path) -> tuple[list[Reply], list[Account], list[Failure]]:
    """Read a region's answer: (replies, accounts of clients, failures)."""
    facts, rooms = read(path)
    if "subtotal" in facts:
        part = facts["subtotal"]
        accounts = [Account(**row) for row in part["accounts"].values()]
        return (
            [Subtotal(part, rooms)],
            accounts,
            [Failure(**row) for row in part["failures"]],
        )
    releases, failures = (
        [release_of(row) for row in facts["releases"]],
        [Failure(**row) for row in facts["failures"]],
    )
    return (
        [*releases, *failures],
        [Account.from_json(release.account) for release in releases],
        failures,
    )
