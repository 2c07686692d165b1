"""Faults at every step of a private run, drawn at random: every round is paid for once,
and the result is the same.

Orders and replies are lost, clients are killed between any two writes and in the midst
of training, answers come too late, and the server is killed and started again. Clients
have budgets for exactly as many rounds as there are.
"""

import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from flwr.app import Error, Message

from fedaux import Config, run
from fedaux.config.prototype import PrototypeSpec
from fedaux.config.sections import (
    AuxConfig,
    DataConfig,
    FederationConfig,
    LocalConfig,
    PretrainConfig,
    PrivacyConfig,
)
from fedaux.flower.in_process import InProcessGrid
from fedaux.privacy import account, dp_sgd
from fedaux.privacy.account import BudgetStore
from fedaux.privacy.account_file import read_account
from fedaux.runs.folders import stored_state
from fedaux.runs.runner import in_process
from fedaux.runs.session import run_in_folder
from fedaux.scoring.base import bound_function
from fedaux.server.loop import QuorumError
from fedaux.server.run_state import RunState
from fedaux.server.run_writer import RunWriter
from fedaux.server.server import make_server

FAULTS, ROUNDS, STARTS = 50, 4, 40
POINTS = 8  # at which a client can be killed that works on an order
CONFIG = Config(
    method="fedaux",
    rounds=ROUNDS,
    head_only=True,
    prototypes=(PrototypeSpec.of("mlp", hidden=8, features=8),),
    data=DataConfig(clients=3, alpha=10.0),
    aux=AuxConfig(fraction=0.9, limit=200),  # few private records
    pretrain=PretrainConfig(epochs=0),
    local=LocalConfig(lr=0.02),
    privacy=PrivacyConfig(
        epsilon=1.0,
        epsilon_total=8.0,
        private_training=True,
        sample_rate=1.0,
        embedding_dim=4,
        unsafe_seed=1,
    ),
    # what is lost is asked for again
    federation=FederationConfig(quorum=1.0, timeout=0.01, retries=FAULTS),
)


class Killed(BaseException):
    """A process that ends here, without another line of its code."""


class Fuse:
    """Kills the process that comes by for the n-th time."""

    left = -1

    def burn(self) -> None:
        self.left -= 1
        if self.left == 0:
            raise Killed

    def around(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def called(*args: Any, **options: Any) -> Any:
            self.burn()
            found = function(*args, **options)
            self.burn()
            return found

        return called


class Schedule:
    """Draws faults until there were enough of them, and remembers of which kind they
    were.

    Each round gets its share. An order that was answered once is answered from the
    disk, and no process that does so can be killed at its work: so a client is killed
    at an order that it has not yet answered, or not at all.
    """

    def __init__(self, seed: int) -> None:
        self.rng, self.done, self.answered = (
            random.Random(seed),
            Counter[str](),
            set[tuple[int, int]](),
        )
        self.client, self.server = Fuse(), Fuse()

    def draw(self, node: int, round_: int) -> str:
        if self.done.total() >= FAULTS * (round_ + 1) / (ROUNDS + 1):
            return ""
        if (node, round_) not in self.answered and self.rng.random() < 0.5:
            return "client killed"
        # a round may begin without a release, and is then another one
        late = ["too late"] if round_ else []
        return self.rng.choice(["order lost", "reply lost", "server killed", *late])


class FaultyGrid(InProcessGrid):
    schedule: Schedule

    def pull_messages(self, message_ids: Iterable[str]) -> Iterator[Message]:
        for identity in message_ids:
            if identity in self._pending:
                reply = self._disturbed(self._pending.pop(identity))
                if reply is not None:
                    yield reply

    def _disturbed(self, message: Message) -> Message | None:
        plan, node = self.schedule, message.metadata.dst_node_id
        # 0: the release
        round_ = int(str(message.content.config_records["fedaux"].get("round", 0)))
        fault = plan.draw(node, round_)
        plan.done.update([fault] if fault else [])
        if fault == "order lost":
            return Message(Error(5, "node unavailable"), reply_to=message)
        if fault == "client killed":
            plan.client.left = plan.rng.randrange(1, 1 + POINTS)
        try:
            reply = self._handle(message)
        except Killed:
            return Message(Error(8, "the app has crashed"), reply_to=message)
        finally:
            plan.client.left = -1
        plan.answered.add((node, round_))
        if fault == "client killed":  # when all was stored and nothing sent
            return Message(Error(8, "the app has crashed"), reply_to=message)
        if fault == "server killed":
            if plan.rng.random() < 0.5:
                raise Killed
            plan.server.left = plan.rng.randrange(1, 6)  # while it saves
        if fault == "too late":
            return None
        lost = fault == "reply lost"
        return (
            Message(Error(plan.rng.choice([3, 8]), ""), reply_to=message)
            if lost
            else reply
        )


@contextmanager
def disturbed(schedule: Schedule) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fedaux.flower.federation.POLL_INTERVAL", 0.004)
        for owner, name in (
            (BudgetStore, "_append"),
            (account, "write_atomically"),
            (dp_sgd, "sum_clipped_gradients"),
        ):
            patch.setattr(owner, name, schedule.client.around(getattr(owner, name)))
        patch.setattr(RunWriter, "save", schedule.server.around(RunWriter.save))
        yield


def start(folder: Path, cache: Path, schedule: Schedule) -> None:
    """The server's process, and those of the clients as messages reach them."""
    server = make_server(CONFIG, cache=cache)
    federation = in_process(CONFIG, folder, cache, bound_function(server.scorer))
    federation.grid.__class__ = FaultyGrid
    federation.grid.schedule = schedule  # type: ignore[attr-defined]
    run_in_folder(folder, server, federation, stored_state(CONFIG, folder))


def outcome(folder: Path) -> tuple[Any, ...]:
    """All but times, bytes, and the orders that were sent twice."""
    state = RunState.load(folder)
    history = [
        replace(one, seconds={}, bytes_sent=0, bytes_received=0, failures=())
        for one in state.history
    ]
    weights = {
        (label, name): array.tobytes()
        for label, found in state.weights.items()
        for name, array in found.items()
    }
    releases = {
        client: one.arrays["values"].tolist() for client, one in state.releases.items()
    }
    # each vault has a key
    accounts = {
        client: replace(one, signature="") for client, one in state.accounts.items()
    }
    return state.round, history, weights, accounts, releases, state.last_round


def spent(folder: Path) -> dict[str, tuple[int, int]]:
    """(releases, rounds of training) that each client's own account has."""
    found = {}
    for path in sorted((folder / "clients").iterdir()):
        costly = [entry for entry in read_account(path)[1] if entry.mechanism.steps > 0]
        trained = sum(entry.trains for entry in costly)
        found[path.name] = len(costly) - trained, trained
    return found


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("undisturbed")
    run(CONFIG, folder / "run", cache=folder / "cache")
    assert spent(folder / "run") == {f"client-{i:03d}": (1, ROUNDS) for i in range(3)}
    return folder


SEEDS = [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2))]


@pytest.mark.parametrize("seed", SEEDS)
def test_whatever_happens_each_round_is_paid_for_once_and_the_result_is_the_same(
    whole: Path, seed: int, tmp_path: Path
) -> None:
    schedule, starts = Schedule(seed), 0
    with disturbed(schedule):
        while starts < STARTS:
            starts += 1
            schedule.server.left = -1
            with suppress(Killed, QuorumError):
                start(tmp_path / "run", whole / "cache", schedule)
                break
        else:
            pytest.fail(
                f"no budget is left for the rounds that are: {spent(tmp_path / 'run')}"
            )
    assert schedule.done.total() == FAULTS
    assert min(schedule.done.values()) >= 3
    assert len(schedule.done) == 5
    assert starts > 5
    assert spent(tmp_path / "run") == spent(whole / "run")
    assert outcome(tmp_path / "run") == outcome(whole / "run")
