"""federation.secure: the server sees sums over the sites alone, and the run is the same
to the bit.
"""

import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedaux import Config, Result, run
from fedaux.client import releases
from fedaux.config.distillation import DistillConfig, TeachersConfig
from fedaux.config.prototype import PrototypeSpec
from fedaux.config.sections import (
    AuxConfig,
    DataConfig,
    FederationConfig,
    LocalConfig,
    PretrainConfig,
    PrivacyConfig,
)
from fedaux.core.errors import Exit
from fedaux.core.failures import NO_ANSWER, Failure
from fedaux.core.progress import Notice, ProgressEvent
from fedaux.messages import (
    Federation,
    Masked,
    Order,
    PlanOrder,
    PrepareOrder,
    Release,
    Reply,
    SumOrder,
    SumReply,
    SumTerms,
    TrainOrder,
)
from fedaux.privacy.account_file import read_account
from fedaux.privacy.accounting import release_mechanism, total_epsilon
from fedaux.privacy.mechanism import noise_scale
from fedaux.privacy.site_account import SiteAccount
from fedaux.runs.runner import in_process
from fedaux.scoring.base import bound_function
from fedaux.server import agreement
from fedaux.server.agreement import ConsentError
from fedaux.server.loop import QuorumError
from fedaux.server.loop import run as run_rounds
from fedaux.server.orders import AccountCounts
from fedaux.server.run_state import RunState
from fedaux.server.run_writer import RunWriter
from fedaux.server.server import make_server
from helpers.own_sites import NAMES, OwnSites

SITES = 6
MLP = PrototypeSpec.of("mlp", hidden=16, features=8)
CONFIG = Config(
    rounds=2,
    prototypes=(MLP,),
    data=DataConfig(clients=SITES, alpha=0.3),
    aux=AuxConfig(fraction=0.9, limit=200),  # few private records
    pretrain=PretrainConfig(epochs=0),
    local=LocalConfig(lr=5e-3),
    distill=DistillConfig(epochs=1, lr=1e-3),
    privacy=PrivacyConfig(epsilon=1.0, embedding_dim=8, unsafe_seed=3),
)
AT_CLIENTS = TeachersConfig(run_on="clients")
SGD = LocalConfig(optimizer="sgd", lr=0.05)
CASES = {
    "ridge": replace(CONFIG, method="ridge+p", rounds=1),
    "discriminant": replace(CONFIG, method="discriminant", rounds=1),
    "class-means": replace(CONFIG, method="class-means", rounds=1),
    "ridge start": replace(
        CONFIG, method="fedavg+p", head_init="ridge", head_only=True
    ),
    "fedavg": replace(CONFIG, method="fedavg"),
    "fednova": replace(CONFIG, method="fednova", local=SGD),
    "feddf": replace(CONFIG, method="feddf", teachers=AT_CLIENTS),
    "fedet": replace(CONFIG, method="fedet", teachers=AT_CLIENTS),
    "fedbe": replace(CONFIG, method="fedbe", teachers=AT_CLIENTS),
    "BatchNorm": replace(
        CONFIG,
        method="fedavg",
        prototypes=(PrototypeSpec.of("cnn", width=4, norm="batch"),),
    ),
    "two networks": replace(
        CONFIG,
        method="feddf",
        teachers=AT_CLIENTS,
        prototypes=(MLP, PrototypeSpec.of("mlp")),
    ),
}


def secure(config: Config, **changes: Any) -> Config:
    return replace(config, federation=FederationConfig(secure=True, **changes))


@pytest.mark.parametrize("config", CASES.values(), ids=CASES)
def test_the_run_is_that_of_a_server_that_sees_everything(
    config: Config, tmp_path: Path
) -> None:
    plain, masked = (
        run(each, tmp_path / name)
        for name, each in (("plain", config), ("secure", secure(config)))
    )
    for label, arrays in plain.state.weights.items():
        for name in set(arrays) - {"counters"}:  # which are a maximum, and not summed
            assert np.array_equal(arrays[name], masked.state.weights[label][name]), name
    for label, arrays in plain.state.sums.items():
        assert all(
            np.array_equal(array, masked.state.sums[label][name])
            for name, array in arrays.items()
        )
    assert plain.curve == masked.curve
    assert not any(result.failures for result in masked.state.history)


@dataclass(frozen=True)
class PrivateRun:
    """A run with a private head, and what each site has added to the secure sum, under
    its share of the noise.
    """

    result: Result
    folder: Path
    added: Sequence[Release]


@pytest.fixture(scope="module")
def private_head(tmp_path_factory: pytest.TempPathFactory) -> PrivateRun:
    folder = tmp_path_factory.mktemp("private") / "run"
    config = replace(
        CONFIG,
        method="private-head",
        rounds=1,
        privacy=replace(CONFIG.privacy, unsafe_seed=-1),
    )
    added: list[Release] = []
    draw = releases.release

    def watched(*arguments: Any) -> Release:
        added.append(draw(*arguments))
        return added[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(releases, "release", watched)
        result = run(secure(config, colluders=2), folder)
    return PrivateRun(result, folder, added)


def test_the_releases_are_summed_with_the_noise_of_one(
    private_head: PrivateRun,
) -> None:
    """5 of 6 sites answer at least and 2 of them may be the server's, so 3 shares of
    noise make one.
    """
    result, folder, added = private_head.result, private_head.folder, private_head.added
    (pooled,) = result.state.pooled.values()
    assert sorted(one.client for one in added) == [
        f"client-{number:03}" for number in range(SITES)
    ]
    assert np.array_equal(
        pooled.arrays["values"], np.sum([one.arrays["values"] for one in added], axis=0)
    )
    whole = noise_scale(
        len(pooled.arrays["values"]), pooled.sensitivity, result.config.privacy
    )
    assert [one.scale for one in added] == [pytest.approx(whole / np.sqrt(3))] * SITES
    kept = {
        path.name for path in folder.glob("clients/client-000/**/*") if path.is_file()
    }
    # with a share of the noise
    assert not any(name.startswith(("release-", "masked-", "order-")) for name in kept)
    assert pooled.scale == pytest.approx(whole * np.sqrt(SITES / 3))
    assert not result.state.releases
    for client in result.state.summed:
        _, entries = read_account(folder / "clients" / client)
        assert [
            entry.mechanism.noise_multiplier
            for entry in entries
            if entry.mechanism.steps
        ] == [pytest.approx(whole / pooled.sensitivity * 2, rel=1e-6)]


def test_the_statement_names_the_assumption(private_head: PrivateRun) -> None:
    text = str(private_head.result.state.ledger.statement())
    assert "as a secure sum, against the server and up to 2 of 6 sites together" in text
    assert "sizes" not in text
    own = SiteAccount.read(
        private_head.folder / "clients" / "client-000", 1e-5
    ).statement()
    assert "Of these, 1 went into secure sums" in own
    crosses = {
        row["what"]: row["protection"]
        for row in private_head.result.state.ledger.to_dict()["crosses"]
    }
    assert crosses[
        "releases, sums of features, or models with their sizes and losses"
    ].endswith("in sums over sites")


def test_a_run_with_secure_sums_is_read_back(private_head: PrivateRun) -> None:
    state, again = private_head.result.state, RunState.load(private_head.folder)
    assert again.summed == state.summed
    assert {
        label: one.arrays["values"].tolist() for label, one in again.pooled.items()
    } == {label: one.arrays["values"].tolist() for label, one in state.pooled.items()}


def test_fedaux_weights_itself_where_nobody_sees_a_client(tmp_path: Path) -> None:
    """The teachers' weights are those of the pooled release and a client's own classes:
    better than equal ones.
    """
    config = replace(CONFIG, head_init="private-head", teachers=AT_CLIENTS, rounds=3)
    config = replace(
        config,
        data=replace(config.data, alpha=0.05),
        aux=AuxConfig(),
        distill=DistillConfig(lr=0.02, epochs=5),
        # three rounds are too few for the defaults, which train little in the first
        local=replace(config.local, schedule="constant", freeze_batch_norm=False),
    )
    weighted = run(secure(config), tmp_path / "fedaux")
    equal = run(secure(replace(config, method="feddf+p")), tmp_path / "feddf")
    assert weighted.state.history[-1].effective_teachers is not None
    assert (
        weighted.state.history[-1].effective_teachers
        < 4
        < equal.state.history[-1].effective_teachers
    )
    assert weighted.curve[-1] > equal.curve[-1]


def step_of(order: Order) -> str:
    """The step of a secure sum that an order asks for: the data order itself is the
    first.
    """
    if isinstance(order, SumOrder):
        return order.step
    return "" if isinstance(order, PlanOrder) else "keys"


@dataclass
class Faulty:
    """A federation some of whose sites do not answer some steps, or whose server is
    killed before one.
    """

    federation: Federation
    lost: dict[str, Sequence[str]]  # by step
    killed_before: str = ""

    def ask(self, orders: Sequence[Order]) -> Iterator[Reply]:
        step = step_of(orders[0])
        if self.killed_before and step == self.killed_before:
            raise KeyboardInterrupt
        lost = self.lost.get(step, ())
        for reply in self.federation.ask(orders):
            if isinstance(reply, SumReply | Masked) and reply.client in lost:
                yield Failure(reply.client, "lost", NO_ANSWER)
            else:
                yield reply


def rounds(
    config: Config,
    folder: Path,
    lost: dict[str, Sequence[str]],
    killed_before: str = "",
) -> RunState:
    saved = RunState.load(folder) if (folder / "state.safetensors").exists() else None
    server = make_server(config, cache=folder.parent / "cache", state=saved).in_folder(
        folder
    )
    federation = in_process(config, folder, server.cache, bound_function(server.scorer))
    folder.mkdir(exist_ok=True)
    return run_rounds(
        server,
        Faulty(federation, lost, killed_before),
        saved,
        RunWriter(folder, saved).save,
    )


STEPS = ("keys", "shares", "masked", "survivors", "unmask")


@pytest.mark.parametrize("step", STEPS)
def test_the_sum_is_that_of_the_survivors_and_below_the_threshold_there_is_none(
    step: str, tmp_path: Path
) -> None:
    config = secure(replace(CONFIG, method="ridge", rounds=1))
    state = rounds(config, tmp_path / "one", {step: ["client-002"]})
    expected = [
        f"client-{n:03}"
        for n in range(SITES)
        if n != 2 or step in ("survivors", "unmask")
    ]
    assert sorted(state.sums_received) == expected
    plain = run(
        replace(config, federation=FederationConfig()), tmp_path / "plain"
    ).state
    whole = json.dumps([array.tolist() for array in plain.sums[MLP.label].values()])
    found = json.dumps([array.tolist() for array in state.sums[MLP.label].values()])
    assert (found == whole) == (len(expected) == SITES)
    with pytest.raises(QuorumError, match="the secure sum was given up"):
        rounds(config, tmp_path / "two", {step: ["client-002", "client-004"]})


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("method", ["private-head", "fedavg"])
def test_a_server_that_was_killed_goes_on_with_the_same_sum(
    step: str, method: str, tmp_path: Path
) -> None:
    """Whatever step it was killed before, and whoever comes back meanwhile: sites pay
    once, and the result is there.
    """
    config = secure(replace(CONFIG, method=method, rounds=1))
    with pytest.raises(KeyboardInterrupt):
        rounds(config, tmp_path / "run", {"shares": ["client-001"]}, killed_before=step)
    state = rounds(config, tmp_path / "run", {})
    there = (
        state.summed
        if method == "private-head"
        else set(state.history[-1].client_metrics)
    )
    assert len(there) == (SITES if step in ("keys", "shares") else SITES - 1)
    for client in there if method == "private-head" else ():
        _, entries = read_account(tmp_path / "run" / "clients" / client)
        assert sum(entry.mechanism.steps > 0 for entry in entries) == 1


class Times(dict[str, Sequence[str]]):
    """Sites that are lost in the first exchanges of a step, as often as `times`
    says.
    """

    times = 1

    def get(self, step: str, default: Any = None) -> Any:
        lost = super().get(step, default)
        self.times -= bool(lost)
        return lost if self.times >= 0 else default


@pytest.mark.parametrize(
    ("step", "times", "entries"),
    [
        ("keys", 2, 1),
        ("shares", 2, 1),
        ("masked", 1, 1),
        ("masked", 2, 2),
        ("survivors", 1, 1),
        ("survivors", 2, 2),
    ],
)
def test_a_sum_is_tried_again_and_another_sum_is_paid_for(
    step: str, times: int, entries: int, tmp_path: Path
) -> None:
    """Sites that come back answer as before. Another sum is another release, if vectors
    of the first have left.
    """
    config = secure(replace(CONFIG, method="private-head", rounds=1))
    lost = Times({step: ["client-000", "client-001"]})
    lost.times = times
    if entries == 2:
        with pytest.raises(QuorumError, match="privacy budget does not allow"):
            rounds(config, tmp_path / "poor", lost)
    config, lost.times = (
        replace(config, privacy=replace(config.privacy, epsilon_total=2.0)),
        times,
    )
    state = rounds(config, tmp_path / "run", lost)
    assert len(state.summed) == SITES
    assert {state.accounts[client].entries for client in state.summed} == {entries}


def test_a_site_with_an_old_copy_of_its_vault_takes_no_part(tmp_path: Path) -> None:
    """It would draw other noise for what it has sent; the server shows the count that
    the site has signed.
    """
    config, folder = (
        secure(replace(CONFIG, method="private-head", rounds=1)),
        tmp_path / "run",
    )
    config = replace(config, privacy=replace(config.privacy, epsilon_total=3.0))
    first = rounds(config, folder, {})
    known = AccountCounts(tmp_path / "accounts.json")
    known.update(first.accounts)
    (folder / "state.safetensors").unlink()
    vault = folder / "clients" / "client-000"
    for path in [
        vault / "account.jsonl",
        *vault.glob("release-*"),
        *vault.glob("sums/*"),
    ]:
        path.unlink()  # a copy from before the run, with its key
    server = make_server(replace(config, seed=1), cache=tmp_path / "cache").in_folder(
        folder
    )
    server = server.with_accounts(tmp_path / "accounts.json")
    federation = in_process(
        server.config, folder, server.cache, bound_function(server.scorer)
    )
    state = run_rounds(server, federation, None, RunWriter(folder).save)
    assert sorted(state.summed) == [f"client-{n:03}" for n in range(1, SITES)]
    reasons = {failure.client: failure.reason for failure in state.history[-1].failures}
    assert "privacy budget does not allow" in reasons["client-000"]


def test_what_cannot_be_summed_is_refused_at_once() -> None:
    with pytest.raises(ValueError, match=r"teachers\.run_on = 'clients'"):
        secure(replace(CONFIG, method="feddf"))
    with pytest.raises(ValueError, match="threshold above 2/3"):
        secure(CONFIG, threshold=0.5)
    trained = replace(CONFIG.privacy, epsilon_total=2.0, private_training=True)
    with pytest.raises(ValueError, match="there is no private training in secure sums"):
        secure(replace(CONFIG, method="fedavg+p", privacy=trained))


@pytest.mark.parametrize("method", ["scaffold+p", "feddyn+p", "fedaux-scaffold"])
def test_clients_that_keep_state_take_part_in_no_secure_sums(method: str) -> None:
    """A server could set the states of two sites apart, and see one site in a sum."""
    plain = replace(CONFIG, method=method, local=SGD, teachers=AT_CLIENTS)
    with pytest.raises(
        ValueError, match="whose clients keep state from round to round"
    ):
        secure(plain)


OWN = replace(
    CONFIG,
    method="fedaux",
    head_only=True,
    head_init="private-head",
    teachers=AT_CLIENTS,
    privacy=replace(CONFIG.privacy, unsafe_seed=-1),
    federation=FederationConfig(secure=True),
)
ALONE = replace(
    OWN, method="private-head", head_init="auto", teachers=TeachersConfig(), rounds=1
)


def events(sites: OwnSites, name: str) -> list[str]:
    """What a site's log has, in its order."""
    return [entry.event for entry in sites.log(name).entries()]


def attempts(asked: Sequence[Order]) -> set[int]:
    """The attempts of sums of releases for which sites were asked."""
    found = set()
    for order in asked:
        if isinstance(order, PrepareOrder):
            found.add(SumTerms.from_json(order.sum).attempt)
    return found


@dataclass
class Heard:
    """A federation that remembers what it was asked."""

    federation: Federation
    asked: list[Order] = field(default_factory=list)

    def ask(self, orders: Sequence[Order]) -> Iterator[Reply]:
        self.asked += orders
        yield from self.federation.ask(orders)


@pytest.fixture
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server does not wait long before it asks owners again."""
    monkeypatch.setattr(agreement, "POLL_INTERVAL", 0.01)


@pytest.mark.usefixtures("quickly")
def test_each_owner_approves_once_and_the_run_goes_to_its_end_over_a_second_attempt(
    tmp_path: Path,
) -> None:
    """Owners are asked one after the other while the server waits. Later attempts and
    rounds are in the plan.
    """
    sites = OwnSites.of(tmp_path, OWN, approval="ask")
    said: list[str] = []
    undecided = list(NAMES)

    def owners(event: ProgressEvent) -> None:
        if not isinstance(event, Notice):
            return
        said.append(event.text)
        if event.text.startswith("waiting for the owners"):
            (proposal,) = sites.approve(undecided.pop(0))
            assert f"`fedaux site approve {proposal.id[:12]}`" in event.text

    lost = Times(shares=["south"])
    lost.times = 2  # it is tried twice before another attempt
    heard: list[Heard] = []

    def wrap(federation: Federation) -> Federation:
        heard.append(Heard(federation))
        return Faulty(heard[0], lost)

    state = sites.run(wrap, owners)
    assert state.round == OWN.rounds
    assert sorted(state.summed) == sorted(NAMES)
    assert [sorted(result.client_metrics) for result in state.history] == [
        sorted(NAMES)
    ] * OWN.rounds
    assert attempts(heard[0].asked) == {0, 1}
    waited_for = [text.partition(":")[0] for text in said]
    assert waited_for == [
        "waiting for the owners of north, south, west",
        "waiting for the owners of south, west",
        "waiting for the owners of west",
    ]
    plans = {
        order.plan
        for order in heard[0].asked
        if isinstance(order, PrepareOrder | TrainOrder)
    }
    for name in NAMES:
        assert events(sites, name) == [
            "proposed",
            "approved",
            *["begun", "answered"] * (1 + OWN.rounds),
        ]
        entries = sites.log(name).entries()
        assert {entry.id for entry in entries} == plans
        answered = [entry.facts for entry in entries if entry.event == "answered"]
        kinds = [order["kind"] for order in answered]
        assert kinds == ["release", *["train"] * OWN.rounds]
        assert len({order["order"] for order in answered}) == 1 + OWN.rounds
        assert len(sites.entries(name)) == state.accounts[name].entries == 1


@pytest.mark.usefixtures("quickly")
def test_a_second_attempt_that_is_paid_for_is_in_the_approved_plan_as_well(
    tmp_path: Path,
) -> None:
    """Vectors of the first attempt had left, so each site enters another release, if
    its owner allows the total.
    """
    rich = replace(ALONE, privacy=replace(ALONE.privacy, epsilon_total=2.0))
    sites = OwnSites.of(tmp_path, rich, approval="ask")
    lost = Times(survivors=["west"])
    lost.times = 2

    def owners(event: ProgressEvent) -> None:
        for name in NAMES if isinstance(event, Notice) else ():
            sites.approve(name)

    state = sites.run(lambda federation: Faulty(federation, lost), owners)
    assert sorted(state.summed) == sorted(NAMES)
    for name in NAMES:
        twice = ["begun", "answered"] * 2
        assert events(sites, name) == ["proposed", "approved", *twice]
        hashes = {entry.facts["order"] for entry in sites.log(name).entries()[2:]}
        assert len(hashes) == 2  # another attempt is another order
        assert len(sites.entries(name)) == 2


def refuses_the_order(sites: OwnSites) -> Callable[[], None]:
    """The owner of a site has asked for more noise than its server says."""
    whole = sites.own["south"]
    sites.own["south"] = replace(whole, privacy=replace(whole.privacy, epsilon=0.5))

    def repair() -> None:
        sites.own["south"] = whole

    return repair


def has_lost_its_records(sites: OwnSites) -> Callable[[], None]:
    folder = sites.folder / "south" / "records"
    for file in ("x.npy", "y.npy"):
        (folder / file).rename(folder / f"{file}.away")

    def repair() -> None:
        for file in ("x.npy", "y.npy"):
            (folder / f"{file}.away").rename(folder / file)

    return repair


@pytest.mark.parametrize(
    ("fault", "reason", "before"),
    [
        (
            refuses_the_order,
            "no keys: the order does not fit the client's settings",
            [0, 0, 0],
        ),
        (has_lost_its_records, "no masked vector: it failed", [1, 1, 1]),
    ],
)
def test_an_attempt_that_failed_costs_nothing_once_it_is_repaired(
    fault: Callable[[OwnSites], Callable[[], None]],
    reason: str,
    before: list[int],
    tmp_path: Path,
) -> None:
    """Entries from which nothing has left serve the next run, and vectors that have
    left are sent again as they are.

    Each of the two runs tries the sum as often as it may. The owner's total is that of
    one release.
    """
    once = OwnSites.of(tmp_path / "once", ALONE).run()
    sites = OwnSites.of(tmp_path / "twice", ALONE)
    repair = fault(sites)
    with pytest.raises(QuorumError, match=reason):
        sites.run()
    assert [len(sites.entries(name)) for name in NAMES] == before
    repair()
    state = sites.run()
    assert sorted(state.summed) == sorted(once.summed) == sorted(NAMES)
    mechanism = release_mechanism(
        len(state.pooled[MLP.label].arrays["values"]), ALONE.privacy
    )
    cost = total_epsilon([mechanism], ALONE.privacy.delta, ALONE.privacy.adjacency)
    assert 0.999 < cost <= ALONE.privacy.epsilon
    for name in NAMES:
        assert [entry.mechanism for entry in sites.entries(name)] == [mechanism]
        assert state.accounts[name].entries == once.accounts[name].entries == 1
        assert state.accounts[name].epsilon == once.accounts[name].epsilon == cost


@pytest.mark.usefixtures("quickly")
@pytest.mark.parametrize("secure", [True, False])
def test_a_run_that_is_started_again_is_proposed_once(
    secure: bool, tmp_path: Path
) -> None:
    """Two proposals for one question would leave owners to guess which one counts."""
    federation = replace(ALONE.federation, connect_timeout=0.5, secure=secure)
    config = replace(ALONE, federation=federation)
    sites = OwnSites.of(tmp_path, config, approval="ask")
    for _ in range(2):
        with pytest.raises(ConsentError):
            sites.run()
    shutil.rmtree(tmp_path / "run")  # its server begins anew
    with pytest.raises(ConsentError):
        sites.run()
    for name in NAMES:
        events = [entry.event for entry in sites.log(name).entries()]
        assert events == ["proposed"]
        assert len(sites.approve(name)) == 1
    sites.run()
    for name in NAMES:
        events = [entry.event for entry in sites.log(name).entries()]
        assert events.count("proposed") == 1


@pytest.mark.usefixtures("quickly")
def test_what_the_server_is_told_when_owners_have_not_approved(tmp_path: Path) -> None:
    impatient = replace(
        ALONE, federation=replace(ALONE.federation, connect_timeout=1.0)
    )
    sites = OwnSites.of(tmp_path, impatient, approval="ask")
    whole = sites.own["west"]
    sites.own["west"] = replace(
        whole, federation=replace(whole.federation, sends=("models",))
    )
    said: list[str] = []

    def hear(event: ProgressEvent) -> None:
        if isinstance(event, Notice):
            said.append(event.text)

    with pytest.raises(ConsentError) as told:
        sites.run(on_progress=hear)
    (proposal,) = sites.log("north").pending()
    # its settings do not allow the plan, so there is nothing to decide
    assert sites.log("west").pending() == []
    plan = proposal.id[:12]
    assert str(told.value) == (
        "Cannot begin: 0 of 3 sites take part in this run, and 3 are needed (north: "
        "its owner has not decided yet; south: its owner has not decided yet; west: "
        "the order does not fit the client's settings). Nothing was spent. Start "
        f"the run again when the owners have approved the plan {plan}."
    )
    assert told.value.code == Exit.CLIENTS
    assert (
        "west does not take part: the order does not fit the client's settings" in said
    )
    assert (
        f"waiting for the owners of north, south: `fedaux site approve {plan}` at each "
        "site approves this run" in said
    )
    sites.own["west"] = whole
    sites.approve("north")
    sites.log("south").decide(plan, "refused", "owner")
    with pytest.raises(ConsentError) as told:
        sites.run()
    assert str(told.value) == (
        "Cannot begin: 1 of 3 sites take part in this run, and 3 are needed (south: "
        "its owner has refused; west: its owner has not decided yet). Nothing was "
        f"spent. Start the run again when the owners have approved the plan {plan}."
    )
    assert [sites.entries(name) for name in NAMES] == [[], [], []]
    sites.log("south").decide(plan, "approved", "owner")
    sites.approve("west")
    assert sorted(sites.run().summed) == sorted(NAMES)  # nobody is asked again
