"""Several servers below one: each asks the clients of its region and hands on the sum
of what they answer.

The merging server runs the ordinary loop, and `Regions` is its federation. All servers
see the run's folder. The merging one keeps its state there, and says in a file below
`REGIONS_FOLDER` which clients it asks for what. Each `Region` answers with one file.
Releases are handed on as they are, since a teacher's weights depend on everyone's;
updates as their sum.
"""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fedaux.core.accounts import Account
from fedaux.core.arrays import ArrayTree
from fedaux.core.errors import Exit, FedauxError
from fedaux.core.failures import Failure
from fedaux.core.io import write_atomically
from fedaux.core.progress import (
    OrdersSent,
    ReplyReceived,
    RoundFinished,
    Task,
    report,
)
from fedaux.core.results import ClientMetrics, PrivateTraining
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
from fedaux.server.loop import collect_updates
from fedaux.server.round import Round
from fedaux.server.run_state import RunState, pack, read, release_of, release_row
from fedaux.server.server import Server
from fedaux.server.traffic import CountedFederation

REGIONS_FOLDER = "regions"  # in the folder of the run
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
        match = re.fullmatch(r"(\d+)/(\d+)", text)
        if match:
            number, count = map(int, match.groups())
            if 1 <= number <= count:
                return cls(number, count)
        raise RegionError(
            f'Cannot use region = {text!r}: it is not a region. Write region="1/2" for '
            "the first of two."
        )

    @classmethod
    def all(cls, count: int) -> list[RegionSpec]:
        return [cls(number, count) for number in range(1, count + 1)]

    @property
    def name(self) -> str:
        return f"{self.number}of{self.count}"

    def clients(self, names: Sequence[str]) -> Sequence[str]:
        first = len(names) * (self.number - 1) // self.count
        last = len(names) * self.number // self.count
        return names[first:last]

    def folder(self, run: Path) -> Path:
        """Return the folder of this region's server, which holds its lock and its
        status.
        """
        return run / REGIONS_FOLDER / self.name

    def answer(self, folder: Path, request: int) -> Path:
        """Return the file with this region's answer to a request."""
        return folder / REGIONS_FOLDER / f"{request:06d}-{self.name}.safetensors"


ALL_CLIENTS = RegionSpec(1, 1)


def _sleep() -> None:
    time.sleep(POLL_INTERVAL)


class Regions:
    """The regional servers as a federation. It waits for one that is down; restarted,
    it answers the last request. Requests and answers are reported under the region's
    name.
    """

    def __init__(
        self,
        folder: Path,
        count: int,
        wait: Callable[[], None] = _sleep,
    ) -> None:
        self._folder = folder
        self._wait = wait
        self._regions = RegionSpec.all(count)
        (folder / REGIONS_FOLDER).mkdir(parents=True, exist_ok=True)

    def ask(self, orders: Sequence[Order]) -> Iterator[Reply]:
        """Yield the releases of all regions, or one `Subtotal` of each, as they arrive.

        Regional servers show the plan of the run to their own sites, and continue without
        those that do not approve it.
        """
        if isinstance(orders[0], PlanOrder):
            for order in orders:
                assert isinstance(order, PlanOrder)
                yield Consent(order.client, order.plan_hash, "approved")
            return
        task: Task = "release" if isinstance(orders[0], PrepareOrder) else "train"
        round_ = getattr(orders[0], "round", None)
        request = self._request(
            "prepare" if task == "release" else "train",
            [order.client for order in orders],
        )
        waiting = list(self._regions)
        names = tuple(region.name for region in waiting)
        report(OrdersSent(task, round_, names, bytes=0))
        while waiting:
            arrived = [
                region
                for region in waiting
                if region.answer(self._folder, request).is_file()
            ]
            for region in arrived:
                waiting.remove(region)
                answer = RegionAnswer.read(region.answer(self._folder, request))
                self._report(region, answer, task, round_, len(waiting))
                yield from answer.replies
            if waiting and not arrived:
                self._wait()

    def end(self) -> None:
        """Tell the regional servers that all rounds are done."""
        self._request("end", [])

    def _report(
        self,
        region: RegionSpec,
        answer: RegionAnswer,
        task: Task,
        round_: int | None,
        waiting: int,
    ) -> None:
        """Report a region's answer. The largest account of its clients is reported as
        the region's.
        """
        total = len(self._regions)
        report(
            ReplyReceived(
                task,
                round_,
                region.name,
                answer.size,
                max(answer.accounts, key=lambda account: account.epsilon, default=None),
                done=total - waiting,
                total=total,
            )
        )
        for failure in answer.failures:
            reason = f"{failure.client}: {failure.reason}"
            lost = Failure(region.name, reason, failure.kind)
            report(ReplyReceived(task, round_, region.name, 0, failure=lost))

    def _request(self, kind: str, clients: list[str]) -> int:
        """Write a request, which supersedes all earlier ones, and return its number."""
        number = _newest(self._folder) + 1
        request = json.dumps({"kind": kind, "clients": clients}).encode()
        write_atomically(_request_file(self._folder, number), request)
        for path in (self._folder / REGIONS_FOLDER).iterdir():
            earlier = path.name[:6]
            if earlier.isdigit() and int(earlier) < number:
                path.unlink()
        return number


class Region:
    """A regional server. `federation` holds its clients. `check` raises if another
    server has taken its place.
    """

    def __init__(
        self,
        server: Server,
        federation: Federation,
        folder: Path,
        region: RegionSpec,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        self._server = server
        self._federation = federation
        self._folder = folder
        self._region = region
        self._check = check
        self._clients = frozenset(region.clients(server.clients))
        self._first: RunState | None = None  # the state with which it began
        self._embedding: PublicEmbedding | None = None
        self._round = 0  # the last round that it knows of
        self._agreed = False  # whether its sites were shown the plan of the run

    def serve(self, wait: Callable[[], None] = _sleep) -> None:
        """Answer requests until all rounds are done."""
        while not self.step():
            wait()

    def step(self) -> bool:
        """Answer the last request, unless that has been done; return whether all rounds
        are done.
        """
        number = _newest(self._folder)
        answer = self._region.answer(self._folder, number)
        if number == 0 or answer.is_file():
            return False
        try:
            request = json.loads(_request_file(self._folder, number).read_text("utf-8"))
        except FileNotFoundError:  # a newer request has replaced it
            return False
        state = self._read_state()
        if request["kind"] == "end":
            # an earlier, shorter run may have left it
            return state.round >= self._server.config.rounds
        self._check()
        clients = [client for client in request["clients"] if client in self._clients]
        self._show_plan(state, clients)
        if request["kind"] == "prepare":
            content = self._prepare(state, clients)
        else:
            content = self._train(state, request["clients"], clients)
        self._check()
        write_atomically(answer, content)
        return False

    def _read_state(self) -> RunState:
        """Read the state that the merging server saved. Public features are computed
        once: extractors do not change.
        """
        state = RunState.load(self._folder)
        if self._first is None:
            self._first = state
            self._embedding = self._server.restore(state)
            self._round = state.round
        rounds = self._server.config.rounds
        for result in state.history[self._round :]:
            report(RoundFinished(result, rounds, privacy=""))
        self._round = state.round
        return replace(
            state, extractors=self._first.extractors, public=self._first.public
        )

    def _show_plan(self, state: RunState, clients: list[str]) -> None:
        if not self._agreed:
            everyone = sorted(self._clients)
            agree_on_plan(self._server, self._federation, state, everyone)
            self._agreed = True
        show_to_others(self._server, self._federation, clients)

    def _prepare(self, state: RunState, clients: list[str]) -> bytes:
        """Return the releases of the region's clients, for its answer."""
        orders = [self._server.orders.prepare(state, client) for client in clients]
        releases: list[dict[str, Any]] = []
        failures: list[dict[str, Any]] = []
        for reply in self._federation.ask(orders):
            if isinstance(reply, Release):
                releases.append(release_row(reply))
            elif isinstance(reply, Failure):
                failures.append(vars(reply))
        return pack({"releases": releases, "failures": failures}, {})

    def _train(
        self, state: RunState, asked: Sequence[str], clients: list[str]
    ) -> bytes:
        """Train the region's clients, and return their sum for its answer. Their
        weights as teachers are relative to those of all clients that are asked.
        """
        server = self._server
        current = Round.start(server, self._embedding, state, asked, Costs())
        accounts: dict[str, Account] = {}
        if clients:
            spare = 1 + server.config.federation.over_selection
            wanted = math.ceil(len(clients) / spare - 1e-9)
            counted = CountedFederation(self._federation, current.costs)
            accounts = collect_updates(server, counted, state, current, wanted, clients)
        subtotal = current.subtotal(accounts)
        return pack({"subtotal": subtotal_row(subtotal)}, subtotal.contribution)


@dataclass(frozen=True)
class RegionAnswer:
    """A region's answer to a request, as its file says.

    Attributes:
        replies: What the merging server continues with.
        accounts: The accounts of the region's clients.
        failures: Of its clients.
        size: Of the file, in bytes.
    """

    replies: list[Reply]
    accounts: list[Account]
    failures: list[Failure]
    size: int

    @classmethod
    def read(cls, path: Path) -> RegionAnswer:
        size = path.stat().st_size
        values, arrays = read(path)
        if "subtotal" in values:
            subtotal = subtotal_of(values["subtotal"], arrays)
            accounts = list(subtotal.accounts.values())
            return cls([subtotal], accounts, subtotal.failures, size)
        releases = [release_of(row) for row in values["releases"]]
        failures = [Failure(**row) for row in values["failures"]]
        accounts = [Account.from_json(release.account) for release in releases]
        return cls([*releases, *failures], accounts, failures, size)


def subtotal_row(subtotal: Subtotal) -> dict[str, Any]:
    """Return what a subtotal says next to its arrays, for JSON."""
    return {
        "client_metrics": _rows(subtotal.client_metrics),
        "failures": [vars(failure) for failure in subtotal.failures],
        "private_training": _rows(subtotal.private_training),
        "accounts": _rows(subtotal.accounts),
        "unprotected": subtotal.unprotected,
        "norms": subtotal.update_norms,
        "received": subtotal.received,
    }


def subtotal_of(row: dict[str, Any], contribution: ArrayTree) -> Subtotal:
    """Read what `subtotal_row` has written."""
    accounts = {name: Account(**values) for name, values in row["accounts"].items()}
    client_metrics = {
        name: ClientMetrics(**values) for name, values in row["client_metrics"].items()
    }
    private_training = {
        name: PrivateTraining(**values)
        for name, values in row["private_training"].items()
    }
    return Subtotal(
        contribution,
        accounts,
        client_metrics,
        private_training,
        row["unprotected"],
        row["norms"],
        [Failure(**failure) for failure in row["failures"]],
        row["received"],
    )


def _rows(by_client: Mapping[str, object]) -> dict[str, dict[str, Any]]:
    return {name: vars(values) for name, values in by_client.items()}


def _request_file(folder: Path, number: int) -> Path:
    return folder / REGIONS_FOLDER / f"{number:06d}.json"


def _newest(folder: Path) -> int:
    """Return the number of the last request, or 0 if there is none yet."""
    place = folder / REGIONS_FOLDER
    if not place.is_dir():
        return 0
    matches = [_REQUEST.fullmatch(path.name) for path in place.iterdir()]
    return max((int(match[1]) for match in matches if match), default=0)
