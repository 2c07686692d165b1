"""A site's part in secure sums: what it keeps between messages, and what it refuses a
server that lies.
"""

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from numpy.typing import NDArray

from fedaux import Config
from fedaux.client import handlers, releases
from fedaux.client.approvals import ApprovalError
from fedaux.client.site import Site
from fedaux.config.prototype import PrototypeSpec
from fedaux.config.sections import FederationConfig
from fedaux.core.accounts import Account
from fedaux.core.errors import FedauxError, SettingsError
from fedaux.core.failures import OrderError
from fedaux.messages import (
    Consent,
    DataOrder,
    PlanOrder,
    PrepareOrder,
    SumsOrder,
    TrainOrder,
    plan_of,
)
from fedaux.messages.orders import SUM_STEPS
from fedaux.privacy.account import BudgetStore
from fedaux.privacy.account_file import Entry
from fedaux.privacy.accounting import BudgetError, release_mechanism, total_epsilon
from fedaux.privacy.roster import (
    ROSTER_FILE,
    SUM_KEY_FILE,
    read_roster,
    roster_fingerprint,
    write_roster,
)
from fedaux.privacy.secure_sum import Keys, SecureSumError, SiteState, sum_settings
from helpers import own_sites
from helpers.own_sites import OwnSites
from helpers.sum_server import MODELS, NAMES, RELEASES, SUMS, Shares, SumServer

ALL = pytest.mark.parametrize(
    "config", [SUMS, MODELS, RELEASES], ids=["sums", "models", "releases"]
)
WITHOUT_NOISE = pytest.mark.parametrize(
    "config", [SUMS, MODELS], ids=["sums", "models"]
)
Simulated = Callable[..., SumServer]
# sites, and the values of their releases under noise
Drawn = list[tuple[str, NDArray[np.int64]]]
FIRST, *OTHERS = NAMES
FIVE = NAMES[:5]
NORTH, SOUTH, WEST = own_sites.NAMES
TWO_RELEASES = replace(RELEASES, privacy=replace(RELEASES.privacy, epsilon_total=1.5))
# class sums of four dimensions and a count, of ten classes
MECHANISM = release_mechanism(50, RELEASES.privacy)
ONE_RELEASE = total_epsilon(
    [MECHANISM], RELEASES.privacy.delta, RELEASES.privacy.adjacency
)


class Killed(BaseException):
    """A process that ends here."""


@pytest.fixture(scope="module")
def features(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Features of the bundled digits, which are the same in all tests."""
    return tmp_path_factory.mktemp("features")


@pytest.fixture
def simulated(tmp_path: Path, features: Path) -> Simulated:
    """Makes a sum of simulated sites; they have the same vaults within a test."""
    return partial(SumServer.simulated, tmp_path, features)


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> Drawn:
    """The releases that are drawn during the test."""
    found: Drawn = []
    draw = releases.release

    def watched(*arguments: Any) -> Any:
        release = draw(*arguments)
        found.append((release.client, release.arrays["values"]))
        return release

    monkeypatch.setattr(releases, "release", watched)
    return found


def file_of(server: SumServer, name: str = FIRST) -> Path:
    (path,) = server.folder(name).glob("sum-*.json")
    return path


def files(server: SumServer, name: str = FIRST) -> set[str]:
    """All files that a site has, but locks, which are empty."""
    vault = server.sites[name].vault
    return {
        path.relative_to(vault).as_posix()
        for path in vault.rglob("*")
        if path.is_file() and path.name != ".lock"
    }


def masked(server: SumServer, shares: Shares, name: str = FIRST) -> NDArray[np.uint64]:
    return server.masked(name, shares).arrays["masked"]


@dataclass(frozen=True)
class Fault:
    """A function that does not work while the fault is there."""

    where: Any
    name: str
    error: type[BaseException]

    def hits(self, server: SumServer, shares: Shares, name: str = FIRST) -> None:
        """Ask a site for its vector, in vain."""

        def fail(*_: Any, **__: Any) -> Any:
            raise self.error

        with pytest.MonkeyPatch.context() as broken:
            broken.setattr(self.where, self.name, fail)
            with pytest.raises(self.error):
                server.masked(name, shares)


NO_RECORDS = Fault(handlers, "load_records", OSError)


@ALL
@pytest.mark.parametrize("lost", [(), ("client-003",)])
def test_the_sum_is_that_of_the_survivors(
    simulated: Simulated, config: Config, lost: tuple[str, ...], drawn: Drawn
) -> None:
    server = simulated(config)
    total = server.total(lost)
    survivors = [name for name in NAMES if name not in lost]
    vectors = (
        dict(drawn)
        if config is RELEASES
        else {name: server.vector(name) for name in survivors}
    )
    assert sorted(vectors) == survivors
    assert np.array_equal(total, sum(vectors.values()))


# the same question, and another one


@ALL
def test_the_same_question_gets_the_same_bytes_and_another_is_refused(
    simulated: Simulated, config: Config
) -> None:
    server = simulated(config)
    keys, shares = server.keys(), server.shares()
    assert server.keys() == keys
    assert server.shares() == shares
    with pytest.raises(OrderError, match="to another question"):
        server.ask(FIRST, "shares", {name: keys[name] for name in FIVE})
    first = masked(server, shares)
    assert np.array_equal(masked(server, shares), first)
    with pytest.raises(OrderError, match="to another question"):
        server.masked(FIRST, {name: shares[name] for name in FIVE})
    for name in OTHERS:
        server.masked(name, shares)
    signatures = server.signatures(NAMES)
    assert server.signatures(NAMES) == signatures
    with pytest.raises(OrderError, match="to another question"):
        server.ask(FIRST, "survivors", dict.fromkeys(FIVE, b""))
    answer = server.ask(FIRST, "unmask", signatures)
    assert server.ask(FIRST, "unmask", signatures) == answer
    with pytest.raises(OrderError, match="to another question"):
        server.ask(FIRST, "unmask", {name: signatures[name] for name in FIVE})
    assert len(server.entries(FIRST)) == (config is RELEASES)


@pytest.mark.parametrize("change", [{"seed": 7}, {"last_round": 1}], ids=str)
def test_a_sum_that_was_begun_is_begun_with_no_other_order(
    simulated: Simulated, change: dict[str, Any]
) -> None:
    """What is a site's own is not in the identity of an order. What the site keeps is
    the first order.
    """
    server = simulated(MODELS)
    server.shares()
    with pytest.raises(OrderError, match="to another question"):
        server.begin(FIRST, **change)
    assert np.array_equal(server.total(), sum(map(server.vector, NAMES)))


def with_other_statistics(order: SumsOrder) -> dict[str, Any]:
    return {
        "standardisation": {
            "mean": np.ones(8, np.float32),
            "deviation": np.full(8, 3e38, np.float32),
        }
    }


def with_other_map(order: PrepareOrder) -> dict[str, Any]:
    return {"public": {**order.public, "basis": np.zeros_like(order.public["basis"])}}


def with_other_weights(order: TrainOrder) -> dict[str, Any]:
    return {
        "weights": {name: np.zeros_like(array) for name, array in order.weights.items()}
    }


OTHER_ORDERS: list[tuple[Config, Callable[[Any], dict[str, Any]]]] = [
    (SUMS, with_other_statistics),
    (SUMS, lambda order: {"sends": "class-sums"}),
    (RELEASES, with_other_map),
    (RELEASES, lambda order: {"h0": "0" * 64}),
    (MODELS, with_other_weights),
    (MODELS, lambda order: {"lr": 1e-30}),
    (MODELS, lambda order: {"round": 2}),
]


@pytest.mark.parametrize(("config", "change"), OTHER_ORDERS)
def test_an_order_that_the_terms_are_not_for_is_refused_before_anything_is_stored(
    simulated: Simulated, config: Config, change: Callable[[Any], dict[str, Any]]
) -> None:
    """Asked something else than all others, a site would be seen alone: what they
    answer could be known.
    """
    server = simulated(config)
    with pytest.raises(OrderError, match="the terms are for another order"):
        server.begin(FIRST, **change(server.order))
    assert files(server) == set()
    server.begin(FIRST)  # and costs nothing


def test_an_order_of_another_kind_is_not_what_the_terms_are_for(
    simulated: Simulated,
) -> None:
    terms = simulated(SUMS).terms
    server = replace(simulated(MODELS), terms=terms)
    with pytest.raises(OrderError, match="the terms are for another order"):
        server.begin(FIRST)
    assert files(server) == set()


@pytest.mark.parametrize("step", SUM_STEPS)
def test_a_step_of_a_sum_that_was_not_begun_is_refused(
    simulated: Simulated, step: str
) -> None:
    server = simulated()
    with pytest.raises(OrderError, match="knows nothing of the sum"):
        server.masked(FIRST, {}) if step == "masked" else server.ask(FIRST, step)
    assert files(server) == set()


def test_steps_come_in_their_order(simulated: Simulated) -> None:
    server = simulated()
    keys = server.keys()
    with pytest.raises(OrderError, match="has not shared its secrets"):
        server.masked(FIRST, {})
    server.ask(FIRST, "shares", keys)
    with pytest.raises(SecureSumError, match="a second set of survivors was named"):
        server.ask(FIRST, "survivors", dict.fromkeys(NAMES, b""))
    with pytest.raises(SecureSumError, match="out of turn"):
        server.ask(FIRST, "unmask", {})
    # nothing of it has changed the sum
    assert np.array_equal(server.total(), sum(map(server.vector, NAMES)))


# what is kept, and for how long


@ALL
def test_at_the_end_the_secrets_are_gone(simulated: Simulated, config: Config) -> None:
    server = simulated(config)
    shares = server.shares()
    before = json.loads(file_of(server).read_bytes())
    assert len(before["mask_key"]) == len(before["seed"]) == 64
    server.masked(FIRST, shares)
    kinds = {path.name.partition("-")[0] for path in server.folder(FIRST).glob("*-*")}
    assert kinds == {"sum", "order", "masked"}
    assert all(
        path.stat().st_mode & 0o077 == 0 for path in server.folder(FIRST).glob("*-*")
    )
    server.total()
    text = file_of(server).read_text()
    assert json.loads(text)["finished"]
    assert not any(before[name] in text for name in ("mask_key", "share_key", "seed"))
    assert [path.name for path in server.folder(FIRST).glob("*-*")] == [
        file_of(server).name
    ]
    assert file_of(server).stat().st_mode & 0o077 == 0
    with pytest.raises(OrderError, match="to another question"):
        server.begin(FIRST)
    with pytest.raises(OrderError, match="knows nothing of the sum"):
        server.masked(FIRST, shares)


# a second sum, without noise


@WITHOUT_NOISE
def test_without_noise_a_second_sum_over_one_site_less_is_refused(
    simulated: Simulated, config: Config
) -> None:
    """The difference of the two sums would be the vector of the site that is left
    out.
    """
    server = simulated(config)
    server.total()
    second = server.with_terms(sites=FIVE)
    shares = second.shares()
    with pytest.raises(OrderError, match="has taken part in a sum of"):
        second.masked(FIRST, shares)
    assert not list(server.folder(FIRST).glob("masked-*"))


@pytest.mark.parametrize(
    ("config", "change"),
    [
        (SUMS, with_other_statistics),
        (SUMS, lambda order: {"sends": "class-sums"}),
        (MODELS, with_other_weights),
        (MODELS, lambda order: {"lr": 0.5}),
    ],
)
def test_without_noise_a_run_has_no_second_sum_of_another_order_either(
    simulated: Simulated, config: Config, change: Callable[[Any], dict[str, Any]]
) -> None:
    """Sums of the same records, of features in one scale and in another, or of models
    from two starts in one round.
    """
    server = simulated(config)
    server.total()
    second = server.asking(**change(server.order)).with_terms(sites=FIVE)
    shares = second.shares()
    with pytest.raises(OrderError, match="has taken part in a sum of"):
        second.masked(FIRST, shares)


def test_each_round_has_a_sum_of_models(simulated: Simulated) -> None:
    server = simulated(MODELS)
    server.total()
    later = server.asking(round=2)
    assert np.array_equal(later.total(), sum(map(later.vector, NAMES)))


def forget_all(server: SumServer) -> None:
    for name in server.sites:
        shutil.rmtree(server.folder(name))


def forget_keys(server: SumServer) -> None:
    """The vector, under masks that nobody knows any more, is still there."""
    for name in server.sites:
        file_of(server, name).unlink()


FORGOTTEN = pytest.mark.parametrize("forget", [forget_all, forget_keys])


@FORGOTTEN
@WITHOUT_NOISE
def test_a_forgotten_sum_without_noise_is_not_answered_again(
    simulated: Simulated, config: Config, forget: Callable[[SumServer], None]
) -> None:
    """Its terms are the same, its keys are not: with other survivors the difference
    would be what one site sent.
    """
    server = simulated(config)
    server.masked(FIRST, server.shares())
    forget(server)
    shares = server.shares()
    with pytest.raises(OrderError, match="has taken part in a sum"):
        server.masked(FIRST, shares)


# a second sum, with noise


def test_a_sum_that_is_begun_again_after_the_vectors_is_another_release(
    simulated: Simulated, drawn: Drawn
) -> None:
    """With noise a second sum is possible, and it has another entry in the account, and
    noise of its own.
    """
    server = simulated(TWO_RELEASES)
    vectors = []
    entries = []
    for attempt in (0, 1, 1, 0):
        again = server.with_terms(attempt=attempt)
        vectors.append(masked(again, again.shares()))
        entries.append(len(server.entries(FIRST)))
    assert entries == [1, 2, 2, 2]
    assert [name for name, _ in drawn] == [FIRST, FIRST]
    assert not np.array_equal(drawn[0][1], drawn[1][1])
    assert np.array_equal(vectors[1], vectors[2])
    assert np.array_equal(vectors[0], vectors[3])


def test_after_the_vectors_a_second_attempt_is_refused_where_the_owner_allows_one_release(
    simulated: Simulated, drawn: Drawn
) -> None:
    server = simulated(RELEASES)
    shares = server.shares()
    first = masked(server, shares)
    second = server.with_terms(attempt=1)
    others = second.shares()
    with pytest.raises(BudgetError, match="another release is refused"):
        second.masked(FIRST, others)
    assert len(drawn) == len(server.entries(FIRST)) == 1
    assert np.array_equal(masked(server, shares), first)


@FORGOTTEN
def test_a_forgotten_sum_gets_fresh_keys_and_so_another_request(
    simulated: Simulated, forget: Callable[[SumServer], None], drawn: Drawn
) -> None:
    """A vault from an older copy, or a file that was deleted, must not lead to the same
    noise in two sums.
    """
    server = simulated(TWO_RELEASES)
    keys = server.keys()
    first = masked(server, server.shares())
    forget(server)
    assert not set(server.keys().values()) & set(keys.values())
    second = masked(server, server.shares())
    assert len(server.entries(FIRST)) == 2
    assert not np.array_equal(drawn[0][1], drawn[1][1])
    assert not np.array_equal(first, second)
    forget(server)
    shares = server.shares()
    with pytest.raises(BudgetError, match="another release is refused"):
        server.masked(FIRST, shares)


# what a failed attempt costs


def check_one_release(server: SumServer, shares: Shares) -> None:
    """The site answers now, and all that its owner has paid for is this one release."""
    reply = server.masked(FIRST, shares)
    account = Account.from_json(reply.account)
    assert (account.entries, account.epsilon) == (1, ONE_RELEASE)
    assert [entry.mechanism for entry in server.entries(FIRST)] == [MECHANISM]


@pytest.mark.parametrize("step", ["keys", "shares"])
def test_an_attempt_that_ends_before_the_vectors_costs_nothing(
    simulated: Simulated, step: str
) -> None:
    server = simulated(RELEASES)
    if step == "keys":
        server.keys()
    else:
        server.shares()
    assert server.entries(FIRST) == []
    second = server.with_terms(attempt=1)
    check_one_release(second, second.shares())


FAULTS = {
    "its records cannot be read": NO_RECORDS,
    "it has no room for features": Fault(handlers, "load_features", MemoryError),
    "it is killed before it draws": Fault(releases, "release", Killed),
    "it is killed before it has stored the vector": Fault(SiteState, "mask", Killed),
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
@pytest.mark.parametrize("attempt", [0, 1])
def test_an_attempt_from_which_no_vector_has_left_costs_nothing_once_the_next_is_answered(
    simulated: Simulated, fault: Fault, attempt: int
) -> None:
    """The sum may be tried again, or given up and followed by another attempt: the
    entry serves either.
    """
    server = simulated(RELEASES)
    shares = server.shares()
    for _ in range(2):
        fault.hits(server, shares)
    assert len(server.entries(FIRST)) == 1
    assert not list(server.folder(FIRST).glob("masked-*"))
    later = server.with_terms(attempt=attempt)
    check_one_release(later, later.shares())


def test_an_attempt_that_fails_once_its_noise_was_drawn_is_spent(
    simulated: Simulated,
) -> None:
    """Whether it fails may depend on what was drawn."""
    server = simulated(RELEASES)
    shares = server.shares()
    Fault(SiteState, "mask", SecureSumError).hits(server, shares)
    with pytest.raises(BudgetError, match="another release is refused"):
        server.masked(FIRST, shares)
    second = server.with_terms(attempt=1)
    others = second.shares()
    with pytest.raises(BudgetError, match="another release is refused"):
        second.masked(FIRST, others)


def is_killed_as_it_closes_the_entry(server: SumServer, shares: Shares) -> None:
    """The vector was computed, and the account still has its entry as one from which
    nothing has left.
    """
    append = BudgetStore._append

    def ends(self: BudgetStore, entry: Entry) -> None:
        if entry.mechanism.steps == 0:
            raise Killed
        append(self, entry)

    with pytest.MonkeyPatch.context() as broken:
        broken.setattr(BudgetStore, "_append", ends)
        with pytest.raises(Killed):
            server.masked(FIRST, shares)
    assert len(server.entries(FIRST)) == 1


@pytest.mark.parametrize("attempts", [(0, 1), (1, 0)])
def test_of_two_attempts_one_uses_the_entry_of_a_process_that_was_killed(
    simulated: Simulated, attempts: tuple[int, int]
) -> None:
    """Else two vectors, with noise of their own, would leave at the cost of one."""
    server = simulated(RELEASES)
    is_killed_as_it_closes_the_entry(server, server.shares())
    first, second = (server.with_terms(attempt=attempt) for attempt in attempts)
    shares = first.shares()
    check_one_release(first, shares)
    vector = masked(first, shares)
    others = second.shares()
    with pytest.raises(BudgetError, match="another release is refused"):
        second.masked(FIRST, others)
    assert np.array_equal(masked(first, shares), vector)
    check_one_release(first, shares)


def test_a_vector_that_was_sent_stays_while_another_attempt_fails(
    simulated: Simulated,
) -> None:
    """And asking for it again does not use up the entry of the other attempt."""
    server = simulated(TWO_RELEASES)
    shares = server.shares()
    vector = masked(server, shares)
    second = server.with_terms(attempt=1)
    others = second.shares()
    NO_RECORDS.hits(second, others)
    assert np.array_equal(masked(server, shares), vector)
    second.masked(FIRST, others)
    assert np.array_equal(masked(server, shares), vector)
    assert len(server.entries(FIRST)) == 2


def test_masks_are_those_of_the_first_shares_even_if_the_vector_could_not_be_computed(
    simulated: Simulated,
) -> None:
    server = simulated()
    shares = server.shares()
    Fault(handlers, "load_mapped", Killed).hits(server, shares)
    with pytest.raises(OrderError, match="to another question"):
        server.masked(FIRST, {name: shares[name] for name in FIVE})
    assert np.array_equal(server.total(), sum(map(server.vector, NAMES)))


@pytest.mark.parametrize(
    "vector",
    [None, np.zeros(7, np.int64), np.full(126, 2**62, np.int64)],
    ids=["none", "too short", "too large"],
)
def test_a_site_that_cannot_compute_its_sums_adds_nothing_and_the_server_is_not_told(
    simulated: Simulated,
    vector: NDArray[np.int64] | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whether its records can be summed is a fact of this site alone. It holds to what
    it has sent, as ever.
    """
    server = simulated()
    shares = server.shares()

    def broken(*_: Any) -> NDArray[np.int64]:
        if vector is None:
            raise OSError
        return vector

    with monkeypatch.context() as patch:
        patch.setattr(handlers, "vector_of", broken)
        sent = masked(server, shares)
    assert np.array_equal(masked(server, shares), sent)
    assert np.array_equal(server.total(), sum(map(server.vector, OTHERS)))


# what the site's own settings decide


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"threshold": 4}, "ask for at least 5 of 6"),
        ({"colluders": 0}, "with 1"),
        ({"sites": NAMES[1:]}, "Cannot take part in this secure sum"),
        ({"sites": [*NAMES[:5], NAMES[0]]}, "different names"),
        ({"sites": [*NAMES[:5], 7]}, "different names"),
        ({"sites": NAMES[:2], "threshold": 2}, "protects no one|3 to 300"),
    ],
)
def test_terms_that_the_site_does_not_accept(
    simulated: Simulated, changes: dict[str, object], reason: str
) -> None:
    server = simulated()
    lying = server.with_terms(**changes)
    with pytest.raises(FedauxError, match=reason):
        lying.begin(FIRST)
    assert files(server) == set()
    shares = server.shares()
    before = files(server)
    for step in SUM_STEPS:  # of a sum that was begun under other terms
        with pytest.raises(FedauxError, match=reason):
            lying.masked(FIRST, shares) if step == "masked" else lying.ask(FIRST, step)
    assert files(server) == before


@pytest.mark.parametrize(
    ("config", "changes", "reason"),
    [
        (SUMS, {"scale": 1000.0}, "for noise of scale"),
        (MODELS, {"scale": 1000.0}, "for noise of scale"),
        (RELEASES, {"scale": 0.0}, "for noise of scale"),
        (RELEASES, {"scale": 1000.0}, "for noise of scale"),
        (
            RELEASES,
            {"length": 49},
            "the terms are for 49 numbers, and the answer to the order has 50",
        ),
        (MODELS, {"run": "another"}, "the terms to 'another'"),
    ],
)
def test_the_vector_must_be_what_the_terms_say(
    simulated: Simulated, config: Config, changes: dict[str, object], reason: str
) -> None:
    server = simulated(config)
    with pytest.raises(OrderError, match=reason):
        server.with_terms(**changes).begin(FIRST)
    assert files(server) == set()


@ALL
def test_a_site_in_secure_sums_answers_nothing_alone_and_the_other_way_round(
    simulated: Simulated, config: Config
) -> None:
    server = simulated(config)
    alone: DataOrder = replace(server.order, client=FIRST)
    with pytest.raises(OrderError, match="takes part in secure sums only"):
        handlers.answer(alone, server.sites[FIRST])
    assert files(server) == set()
    plain = server.with_settings(replace(config, federation=FederationConfig()))
    with pytest.raises(OrderError, match=r"federation\.secure is false"):
        plain.begin(FIRST)
    for step in SUM_STEPS:
        with pytest.raises(OrderError, match=r"federation\.secure is false"):
            plain.masked(FIRST, {}) if step == "masked" else plain.ask(FIRST, step)
    assert files(server) == set()


def federation(config: Config, **changes: Any) -> Config:
    return replace(config, federation=replace(config.federation, **changes))


def privacy(config: Config, **changes: Any) -> Config:
    return replace(config, privacy=replace(config.privacy, **changes))


OTHER_NETWORK = (PrototypeSpec.of("mlp", hidden=9, features=8),)


@pytest.mark.parametrize(
    ("config", "changed", "reason"),
    [
        (SUMS, federation(SUMS, secure=False), r"federation\.secure is false"),
        (SUMS, federation(SUMS, sends=("models",)), "Cannot send second moments"),
        (SUMS, federation(SUMS, threshold=1.0), "ask for at least 6 of 6"),
        (SUMS, federation(SUMS, colluders=2), "with 2"),
        (
            SUMS,
            replace(SUMS, head_only=True, random_features=64),
            "random_features = 64",
        ),
        (MODELS, federation(MODELS, sends=("noisy sums",)), "Cannot send models"),
        (
            MODELS,
            replace(MODELS, method="fedprox"),
            "Cannot train with the method 'fedavg'",
        ),
        (MODELS, replace(MODELS, prototypes=OTHER_NETWORK), "Cannot use the network"),
        (RELEASES, federation(RELEASES, sends=("models",)), "Cannot send noisy sums"),
        (
            RELEASES,
            privacy(RELEASES, scorer="class-moments"),
            "Cannot release with the scorer",
        ),
        (
            RELEASES,
            privacy(RELEASES, epsilon=0.5),
            "for noise of scale",
        ),
        (
            RELEASES,
            privacy(RELEASES, epsilon=4.0),
            "for noise of scale",
        ),
    ],
)
def test_the_owners_settings_count_when_the_vector_is_asked_for(
    simulated: Simulated, config: Config, changed: Config, reason: str
) -> None:
    """Whatever they were when the sum began. Nothing is entered, and nothing changes in
    the sum.
    """
    server = simulated(config)
    shares = server.shares()
    before = file_of(server).read_bytes()
    with pytest.raises(OrderError, match=reason):
        server.with_settings(changed).masked(FIRST, shares)
    assert file_of(server).read_bytes() == before
    assert not list(server.folder(FIRST).glob("masked-*"))
    assert server.entries(FIRST) == []
    server.masked(FIRST, shares)


# real sites: rosters, keys and owners


@pytest.fixture
def own(tmp_path: Path) -> OwnSites:
    return OwnSites.of(tmp_path, RELEASES)


def test_a_real_site_has_its_own_roster(own: OwnSites) -> None:
    """A server that invents a site, or gives one another key, finds nobody who sums
    with it.
    """
    server = SumServer.of(own)
    vault = own.vault(NORTH)
    roster = read_roster(vault / ROSTER_FILE)
    assert set(roster) == set(own_sites.NAMES)
    two_names = replace(server.sites[NORTH], clients=(NORTH, SOUTH))
    before = files(server, NORTH)
    with pytest.raises(OrderError, match="are one site, whose records count once"):
        replace(server, sites={NORTH: two_names}).begin(NORTH)
    write_roster(vault / ROSTER_FILE, {**roster, SOUTH: roster[WEST]})
    with pytest.raises(SettingsError, match="one key under two names"):
        server.begin(NORTH)
    write_roster(vault / ROSTER_FILE, roster)
    assert files(server, NORTH) == before
    keys = server.keys()
    assert set(server.ask(NORTH, "shares", keys)) == {SOUTH, WEST}
    parsed = Keys.from_bytes(WEST, keys[WEST])
    signature = Ed25519PrivateKey.generate().sign(
        parsed.signed(sum_settings(server.terms, roster))
    )
    forged = replace(parsed, signature=signature).to_bytes()
    with pytest.raises(OrderError, match="does not bear its signature"):
        server.ask(SOUTH, "shares", {**keys, WEST: forged})
    # what was refused is forgotten
    assert set(server.ask(SOUTH, "shares", keys)) == {NORTH, WEST}
    assert roster_fingerprint(roster) != roster_fingerprint(
        {**roster, NORTH: roster[SOUTH]}
    )


def test_invented_sites_are_in_no_roster(own: OwnSites) -> None:
    server = SumServer.of(own)
    before = files(server, NORTH)
    invented = server.with_terms(sites=[*own_sites.NAMES, "invented"], threshold=4)
    scale = server.terms.scale * np.sqrt(2 / 3)  # of the share of three honest sites
    with pytest.raises(SecureSumError, match="invented is not in this site's roster"):
        invented.with_terms(scale=float(scale)).begin(NORTH)
    replaced = server.with_terms(sites=[NORTH, SOUTH, "invented"])
    with pytest.raises(SecureSumError, match="invented is not in this site's roster"):
        replaced.begin(NORTH)
    assert files(server, NORTH) == before


@pytest.mark.parametrize(
    ("missing", "reason"),
    [(ROSTER_FILE, "the roster of all sites"), (SUM_KEY_FILE, "is missing")],
)
def test_a_real_site_without_a_roster_or_a_key_takes_no_part(
    own: OwnSites, missing: str, reason: str
) -> None:
    """It does not fall back on the keys of simulated sites, which anybody can
    compute.
    """
    server = SumServer.of(own)
    (own.vault(NORTH) / missing).unlink()
    with pytest.raises(SettingsError, match=reason):
        server.begin(NORTH)
    assert not list(server.folder(NORTH).glob("*-*"))


@pytest.fixture
def asked(tmp_path: Path) -> OwnSites:
    return OwnSites.of(tmp_path, RELEASES, approval="ask")


def planned(server: SumServer) -> tuple[SumServer, PlanOrder]:
    """The same sum in a run whose plan it belongs to, and the plan as the sites are
    shown it.
    """
    plan = plan_of(
        server.terms.run, RELEASES.method, RELEASES.rounds, True, [server.order]
    )
    return replace(server, order=replace(server.order, plan=plan.hash)), PlanOrder(
        NORTH, plan.to_json()
    )


def show(plan: PlanOrder, name: str, site: Site) -> str:
    reply = handlers.answer(replace(plan, client=name), site)
    assert isinstance(reply, Consent)
    return reply.decision


def events(own: OwnSites, name: str) -> list[str]:
    return [entry.event for entry in own.log(name).entries()]


def test_the_owners_approval_counts_when_the_sum_begins_and_when_the_vector_is_asked_for(
    asked: OwnSites,
) -> None:
    server, plan = planned(SumServer.of(asked))
    with pytest.raises(ApprovalError, match="belongs to no plan"):
        server.begin(NORTH)
    for name, site in server.sites.items():
        assert show(plan, name, site) == "pending"
    with pytest.raises(ApprovalError, match="waits for this site's owner"):
        server.begin(NORTH)
    assert not server.folder(NORTH).exists()
    for name, site in server.sites.items():
        asked.approve(name)
        assert show(plan, name, site) == "approved"
    shares = server.shares()
    asked.log(NORTH).decide(plan.plan_hash, "refused", "owner")
    with pytest.raises(ApprovalError, match="was refused by this site's owner"):
        server.masked(NORTH, shares)
    assert server.entries(NORTH) == []
    asked.log(NORTH).decide(plan.plan_hash, "approved", "owner")
    # keys are no answer
    assert events(asked, NORTH) == ["proposed", "approved", "refused", "approved"]
    server.masked(NORTH, shares)
    assert events(asked, NORTH)[4:] == ["begun", "answered"]
    assert len(server.entries(NORTH)) == 1


def test_one_approval_covers_the_attempts_of_a_sum_in_its_run(asked: OwnSites) -> None:
    server, plan = planned(SumServer.of(asked))
    for name, site in server.sites.items():
        show(plan, name, site)
        asked.approve(name)
    shares = server.shares()
    NO_RECORDS.hits(server, shares, NORTH)
    assert events(asked, NORTH) == ["proposed", "approved", "begun"]
    with pytest.raises(
        OrderError, match="belongs to another run than the approved plan"
    ):
        server.with_terms(run="another").begin(NORTH)
    second = server.with_terms(attempt=1)
    assert len(second.total()) == server.terms.length
    assert events(asked, NORTH) == [
        "proposed",
        "approved",
        "begun",
        "begun",
        "answered",
    ]
    for name in (SOUTH, WEST):
        assert events(asked, name) == ["proposed", "approved", "begun", "answered"]
    for name in own_sites.NAMES:
        assert len(server.entries(name)) == 1
    third = server.with_terms(attempt=2)
    shares = third.shares()
    with pytest.raises(
        ApprovalError, match="at most 2 orders to release, and all of them were begun"
    ):
        third.masked(NORTH, shares)
    assert len(server.entries(NORTH)) == 1
