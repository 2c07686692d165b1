"""A run that writes to its folder, from its first state to its result."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType

from fedaux.config.schema import Config
from fedaux.core import here
from fedaux.core.progress import RoundFinished, RunStarted, report
from fedaux.messages import Federation
from fedaux.runs.callbacks import Callback, CallbackGroup, JsonLines
from fedaux.runs.result import Result
from fedaux.runs.run_lock import RunLock
from fedaux.server.loop import run as run_rounds
from fedaux.server.result import collapse_warning
from fedaux.server.run_state import RunState
from fedaux.server.run_writer import RunWriter
from fedaux.server.server import Server


def run_in_folder(
    folder: Path,
    server: Server,
    federation: Federation,
    state: RunState | None,
    callbacks: Sequence[Callback] = (),
    until: int | None = None,
    lock: RunLock | None = None,
) -> Result:
    """Run the rounds over any federation, and save the state in `folder` after
    preparation and after every round.

    A round is saved before it is reported, and only by the process that holds the lock.
    """
    server = server.in_folder(folder)
    if state is not None:
        state = replace(state, assignment=server.site_labels)
    with RunSession(folder, server, state, callbacks, lock) as session:
        last = run_rounds(server, federation, state, session.save, until)
    return Result(last, folder)


class RunSession:
    """What happens around the rounds of a run: its callbacks start and end with it, and
    every state is saved, then told to callbacks, then reported.
    """

    def __init__(
        self,
        folder: Path,
        server: Server,
        state: RunState | None,
        callbacks: Sequence[Callback],
        lock: RunLock | None,
    ) -> None:
        self._folder = folder
        self._server = server
        self._state = state  # the last one that is saved
        self._lock = lock
        self._writer = RunWriter(folder, state)
        self._callbacks = CallbackGroup([JsonLines(), *callbacks])

    def __enter__(self) -> RunSession:
        state = self._state
        config = self._server.config
        if self._server.standing:
            # a run that was killed may have left some that do not count
            self._server.standing.keep(state.last_round if state else {})
        self._callbacks.start(config, self._folder, state)
        history = state.history if state else ()
        label = self._server.method.label
        report(RunStarted(label, setting_line(config), history, config.rounds))
        return self

    def save(self, state: RunState) -> None:
        """Save a state, and report its round if that is new."""
        if self._lock is not None:
            self._lock.check()
        self._writer.save(state)
        finished_rounds = self._state.round if self._state else 0
        self._state = state
        accounts = self._server.orders.known_accounts
        if accounts is not None:
            accounts.update(state.accounts)
        if self._server.standing:
            self._server.standing.keep(state.last_round)
        if state.round == finished_rounds:  # prepared, or releases are in
            return
        self._callbacks.end_round(state)
        result = state.history[-1]
        spent = state.ledger.summary()
        rounds = self._server.config.rounds
        report(RoundFinished(result, rounds, spent, collapse_warning(state)))

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._callbacks.end()


def setting_line(config: Config) -> str:
    """Describe data, clients, networks and seed in one line."""
    clients = len(config.federation.sites) or config.data.clients
    split = f"{clients} clients"
    if config.data.partition == "dirichlet":
        split += f", α = {config.data.alpha:g}"
    networks = here.readable(", ".join(spec.label for spec in config.prototypes))
    data = here.readable(config.data.source)
    return f"{data}: {split}, {networks}, seed {config.seed}"
