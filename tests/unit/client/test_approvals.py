"""No order is answered that the site's owner has not approved, and the log shows
whoever tampers with it.
"""

import hashlib
import json
import stat
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from typer.testing import CliRunner

from fedaux.cli import app
from fedaux.client import handlers
from fedaux.client.approvals import (
    APPROVALS_KEY_FILE,
    HEAD,
    LOG,
    MOST_PENDING,
    SHORT,
    ApprovalError,
    ApprovalLog,
    LogError,
    check_approval,
    difference,
    find_plan,
    keep_plan,
    plan_path,
    under_approval,
)
from fedaux.client.gate import admit
from fedaux.client.proposals import Proposal, cost_in_words
from fedaux.client.secure_sums import REMEMBERED_SUMS, Participation
from fedaux.client.site import Site
from fedaux.client.training import ClientTask
from fedaux.config.schema import Config
from fedaux.core.arrays import Arrays
from fedaux.core.errors import Exit
from fedaux.core.failures import OrderError, Refusal
from fedaux.flower.error_redaction import refusal_of
from fedaux.messages import (
    Consent,
    DataOrder,
    Part,
    PlanOrder,
    PrepareOrder,
    Release,
    RunPlan,
    SumsOrder,
    TrainOrder,
    Update,
    fields_of,
    plan_of,
    question,
)
from fedaux.messages.plan import ATTEMPTS, SPARE_ROUNDS, Ask
from helpers.asked_site import RELEASE, SUMS, TRAIN, asked_site
from helpers.samples import release, sums, terms, update, weights
from helpers.sum_server import MODELS, NAMES, RELEASES, SumServer

ORDERS = [RELEASE, SUMS, TRAIN]
LEAVES = {"release": "noisy sums", "sums": "second moments", "train": "models"}
FIXED = [
    (order, field.name)
    for order in ORDERS
    for field in fields_of(type(order))
    if field.marks.part is Part.RUN
]


def named(value: Any) -> str:
    return value if isinstance(value, str) else type(value).__name__


def site(
    folder: Path, *standing: str, approval: str = "ask", **federation: Any
) -> Site:
    return asked_site(
        folder, {"approval": approval, "standing": list(standing), **federation}
    )


def plan_for(
    *orders: DataOrder, run: str = "cafe", rounds: int = 1, secure: bool = False
) -> RunPlan:
    return plan_of(run, "fedaux", rounds, secure, orders)


def at_most(count: int, *orders: DataOrder, run: str = "cafe") -> RunPlan:
    """A plan with so many orders of each kind."""
    return RunPlan(
        run, "fedaux", 1, False, tuple(Ask.of(order, count) for order in orders)
    )


def under(plan: RunPlan, order: DataOrder, **changes: Any) -> Any:
    """The order as one of this plan."""
    return replace(order, plan=plan.hash, **changes)


def show(plan: RunPlan, own: Site) -> str:
    """Send a plan, as a server does, and return what was decided so far."""
    consent = handlers.answer(PlanOrder(own.clients[0], plan.to_json()), own)
    assert isinstance(consent, Consent)
    assert consent.plan == plan.hash
    return consent.decision


def log_of(own: Site) -> ApprovalLog:
    return ApprovalLog(own.vault)


def approve(plan: RunPlan, own: Site) -> None:
    show(plan, own)
    log_of(own).decide(plan.hash, "approved", "anna")


def answer(order: DataOrder, own: Site, start: str = "") -> None:
    """Let an order pass the gate, and write it down, as its handler does."""
    admit(order, own)
    with under_approval(order, own, lambda: start):
        pass


def is_refused(order: DataOrder, own: Site, why: str, start: str = "") -> None:
    """Check that an order is not computed, and that nothing of it is written down."""
    before = (own.vault / LOG).read_bytes()
    with (
        pytest.raises(ApprovalError, match=why) as caught,
        under_approval(order, own, lambda: start),
    ):
        pytest.fail("it was computed")
    assert refusal_of(caught.value) is Refusal.APPROVAL
    assert (own.vault / LOG).read_bytes() == before


def has_no_room(order: DataOrder, own: Site, most: int, start: str = "") -> None:
    """Check that an order of an approved plan, which the gate admits, is not begun."""
    admit(order, own)
    kind = Ask.of(order, most).kind
    is_refused(
        order,
        own,
        (
            f"the approved plan has at most {most} orders to {kind}, and all of them "
            "were begun"
        ),
        start,
    )


def name_of(order: DataOrder, start: str = "") -> str:
    """What the log calls an order that starts from this state."""
    return hashlib.sha256(
        json.dumps([question(order), order.sum, start]).encode()
    ).hexdigest()


def logged(own: Site, event: str) -> list[str]:
    return [
        entry.facts["order"] for entry in log_of(own).entries() if entry.event == event
    ]


def begun(own: Site) -> list[str]:
    """What the log calls the orders that were begun."""
    return logged(own, "begun")


def answered(own: Site) -> list[str]:
    """What the log calls the orders that were answered."""
    return logged(own, "answered")


@pytest.mark.parametrize("order", ORDERS, ids=named)
def test_an_order_waits_for_its_owner(tmp_path: Path, order: DataOrder) -> None:
    own, plan = site(tmp_path), plan_for(order)
    asked = under(plan, order)
    with pytest.raises(
        ApprovalError, match="belongs to no plan that this site's owner was shown"
    ):
        admit(asked, own)
    for _ in range(2):
        assert show(plan, own) == "pending"
        with pytest.raises(
            ApprovalError, match="waits for this site's owner"
        ) as caught:
            admit(asked, own)
    assert refusal_of(caught.value) is Refusal.APPROVAL
    log = log_of(own)
    (found,) = log.pending()
    assert (found.event, found.id, found.by) == ("proposed", plan.hash, "server")
    log.decide(found.id, "approved", "anna")
    assert log.pending() == []
    assert show(plan, own) == "approved"
    answer(asked, own)
    events = ["proposed", "approved", "begun", "answered"]
    assert [entry.event for entry in log.entries()] == events
    log.decide(found.id, "refused", "anna")  # the last word counts
    assert show(plan, own) == "refused"
    with pytest.raises(ApprovalError, match="was refused by"):
        admit(asked, own)
    is_refused(asked, own, "was refused by")  # though it was begun before
    log.decide(found.id, "approved", "anna")
    answer(asked, own)
    assert [entry.event for entry in log.entries()] == [*events, "refused", "approved"]


@pytest.mark.parametrize("order", ORDERS, ids=named)
def test_every_handler_asks_before_anything_else(
    tmp_path: Path, order: DataOrder
) -> None:
    """The site's records cannot be read: whoever tries fails with something else."""
    own, plan = site(tmp_path), plan_for(order)
    for _ in range(2):
        with pytest.raises(ApprovalError):
            handlers.answer(under(plan, order), own)
        show(plan, own)
    assert begun(own) == []
    approve(plan, own)
    with pytest.raises(Exception) as caught:  # noqa: PT011
        handlers.answer(under(plan, order), own)
    assert not isinstance(caught.value, ApprovalError)
    assert begun(own) == [name_of(order)]
    assert answered(own) == []  # nothing has left


@pytest.mark.parametrize("order", ORDERS, ids=named)
def test_an_order_without_a_plan_is_not_answered(
    tmp_path: Path, order: DataOrder
) -> None:
    own = site(tmp_path, *LEAVES.values())
    assert show(plan_for(order), own) == "approved"
    with pytest.raises(ApprovalError, match="belongs to no plan"):
        admit(order, own)


def test_one_approval_lasts_for_a_run_and_for_no_other(tmp_path: Path) -> None:
    own, plan = site(tmp_path), plan_for(TRAIN, RELEASE)
    approve(plan, own)
    later = {
        "round": 3,
        "lr": 0.01,
        "seed": 9,
        "known_entries": 3,
        "last_round": 2,
        "weights": weights(7.0),
    }
    answer(under(plan, TRAIN), own)
    answer(under(plan, TRAIN, **later), own)
    moved = {**RELEASE.public, "mean": np.ones(3, np.float32)}
    others = [
        replace(TRAIN, run="beef"),
        replace(TRAIN, epochs=50),
        replace(RELEASE, public=moved),
        SUMS,
    ]
    for other in others:
        with pytest.raises(
            OrderError, match="the approved plan does not have this order"
        ):
            admit(under(plan, other), own)
        proposed = plan_for(other)
        show(proposed, own)
        with pytest.raises(ApprovalError, match="waits for"):
            admit(under(proposed, other), own)


@pytest.mark.parametrize(("order", "name"), FIXED, ids=named)
def test_what_differs_from_the_plan_is_named(
    tmp_path: Path, order: DataOrder, name: str
) -> None:
    own, plan = site(tmp_path), plan_for(*ORDERS)
    approve(plan, own)
    value = getattr(order, name)
    other: Any = (
        {"another": np.ones(3, np.float32)} if isinstance(value, dict) else f"{value}x"
    )
    changed = under(plan, order, **{name: other})
    assert difference(changed, plan) == f"These differ: {name}."
    with pytest.raises(OrderError) as caught:
        check_approval(changed, own)
    assert str(caught.value) == (
        "Cannot answer: the approved plan does not have this order. These differ: "
        f"{name}. Start the run again to propose a plan that has it."
    )
    assert refusal_of(caught.value) is Refusal.ORDER


def test_all_that_differs_from_the_plan_is_named_and_so_is_a_kind_that_it_lacks() -> (
    None
):
    plan = plan_for(TRAIN)
    changed = replace(
        TRAIN, epochs=50, batch_size=7, standardisation=SUMS.standardisation, lr=0.5
    )
    assert (
        difference(changed, plan)
        == "These differ: batch_size, epochs, standardisation."
    )
    assert difference(RELEASE, plan) == "It has no orders to release."
    assert difference(SUMS, plan) == "It has no orders to sums."


@pytest.mark.parametrize(
    "name",
    ["", "0" * 63, "0" * 65, "F" * 64, "../" * 21 + "x", "g" * 64, "\n" + "0" * 63],
)
def test_a_servers_words_are_no_part_of_a_path(tmp_path: Path, name: str) -> None:
    own = site(tmp_path)
    assert plan_path(own, name) is None
    with pytest.raises(ApprovalError, match="belongs to no plan"):
        find_plan(replace(RELEASE, plan=name), own)


def test_a_plan_is_kept_for_the_sites_owner_only(tmp_path: Path) -> None:
    own, plan = site(tmp_path), plan_for(*ORDERS)
    show(plan, own)
    path = plan_path(own, plan.hash)
    assert path == own.vault / "plans" / f"{plan.hash}.json"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert find_plan(under(plan, TRAIN), own) == plan


def test_a_plan_that_was_changed_on_disk_approves_nothing(tmp_path: Path) -> None:
    own, plan = site(tmp_path), at_most(1, TRAIN)
    approve(plan, own)
    path = plan_path(own, plan.hash)
    assert path is not None
    path.write_text(at_most(99, TRAIN).to_json())
    with pytest.raises(ApprovalError, match="waits for this site's owner"):
        admit(under(plan, TRAIN), own)


def test_an_order_counts_for_the_plan_that_was_compared_with_it(tmp_path: Path) -> None:
    """Another approved plan in the place of the first gives no more orders than
    it has.
    """
    own, first, second = site(tmp_path), at_most(1, RELEASE), at_most(1, TRAIN)
    for plan in (first, second):
        approve(plan, own)
    path = plan_path(own, first.hash)
    assert path is not None
    path.write_text(second.to_json())
    answer(under(first, TRAIN), own)
    for plan in (first, second):
        has_no_room(under(plan, TRAIN, seed=1), own, 1)


# how many orders


def test_a_plan_has_as_many_orders_as_it_says(tmp_path: Path) -> None:
    own, plan = site(tmp_path), plan_for(TRAIN, rounds=2)
    approve(plan, own)
    seeds = range(2 + SPARE_ROUNDS)
    for seed in seeds:
        answer(under(plan, TRAIN, seed=seed), own)
    for change in (
        {"seed": len(seeds)},
        {"round": 9},
        {"weights": weights(2.0)},
        {"lr": 0.1},
    ):
        other = under(plan, TRAIN, **{"seed": 0, **change})
        has_no_room(other, own, 7)
        with pytest.raises(ApprovalError) as caught, under_approval(other, own):
            pytest.fail("it was computed")
    assert str(caught.value) == (
        "Cannot answer: the approved plan has at most 7 orders to train, and all of "
        "them were begun. Start another run at the server."
    )
    assert refusal_of(caught.value) is Refusal.APPROVAL
    for seed in seeds:
        answer(under(plan, TRAIN, seed=seed), own)  # the same questions again
    names = [name_of(replace(TRAIN, seed=seed)) for seed in seeds]
    assert begun(own) == answered(own) == names


@pytest.mark.parametrize("order", ORDERS, ids=named)
def test_the_gate_asks_for_the_owners_decision_and_writes_nothing(
    tmp_path: Path, order: DataOrder
) -> None:
    """Room is taken by what is begun, however often an order passes the gate before."""
    own, plan = site(tmp_path), at_most(1, order)
    approve(plan, own)
    before = (own.vault / LOG).read_bytes()
    for _ in range(3):
        admit(under(plan, order), own)
        check_approval(under(plan, order), own)
    assert (own.vault / LOG).read_bytes() == before
    answer(under(plan, order), own)


@pytest.mark.parametrize("order", ORDERS, ids=named)
def test_an_order_is_begun_before_it_is_computed_and_answered_after(
    tmp_path: Path, order: DataOrder
) -> None:
    own, plan = site(tmp_path), at_most(1, order)
    approve(plan, own)
    for number in range(2):
        with under_approval(under(plan, order), own):
            assert (begun(own), answered(own)) == (
                [name_of(order)],
                number * [name_of(order)],
            )
        assert begun(own) == answered(own) == [name_of(order)]


def test_an_order_that_fails_takes_its_room_and_may_come_again(tmp_path: Path) -> None:
    """A failure may tell something too; asking for the same again tells nothing
    more.
    """
    own, plan = site(tmp_path), at_most(1, TRAIN)
    approve(plan, own)
    first = under(plan, TRAIN)
    for _ in range(2):
        with pytest.raises(ZeroDivisionError), under_approval(first, own):
            raise ZeroDivisionError
        assert (begun(own), answered(own)) == ([name_of(first)], [])
        has_no_room(under(plan, TRAIN, seed=1), own, 1)
    answer(first, own)
    assert begun(own) == answered(own) == [name_of(first)]


def test_each_state_that_an_order_starts_from_counts(tmp_path: Path) -> None:
    """The same question, asked of a site that has moved on, has another answer."""
    own, plan = site(tmp_path), at_most(2, TRAIN)
    approve(plan, own)
    order = under(plan, TRAIN)
    for start in ("one", "two", "one", "two"):
        answer(order, own, start)
    for start in ("three", ""):
        has_no_room(order, own, 2, start)
    has_no_room(under(plan, TRAIN, seed=1), own, 2, "one")
    names = [name_of(order, "one"), name_of(order, "two")]
    assert begun(own) == answered(own) == names
    assert len({*names, name_of(order)}) == 3


def test_whoever_trains_from_another_state_is_asked_another_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, plan = site(tmp_path), at_most(2, TRAIN)
    approve(plan, own)
    order, computed = under(plan, TRAIN), list[str]()

    @dataclass
    class Task:
        start_hash: str

    def ask(start: str) -> None:
        def trained(task: Task) -> Update:
            computed.append(task.start_hash)
            return update()

        monkeypatch.setattr(handlers, "open_task", lambda order, site: Task(start))
        monkeypatch.setattr(handlers, "trained_update", trained)
        handlers.answer(order, own)

    for start in ("one", "two", "one"):
        ask(start)
    with pytest.raises(
        ApprovalError, match="at most 2 orders to train, and all of them were begun"
    ):
        ask("three")
    assert computed == ["one", "two", "one"]
    assert begun(own) == answered(own) == [name_of(order, "one"), name_of(order, "two")]


@pytest.mark.parametrize("count", [0, -1, 2**31 + 1])
def test_a_plan_without_room_or_with_too_much_is_not_shown_to_an_owner(
    tmp_path: Path, count: int
) -> None:
    own = site(tmp_path, *LEAVES.values())
    for plan in (
        at_most(count, TRAIN),
        RunPlan("cafe", "fedaux", 1, False, (Ask.of(RELEASE, 1), Ask.of(TRAIN, count))),
    ):
        with pytest.raises(
            OrderError, match="Cannot read the plan of the run: its at_most must be"
        ) as caught:
            show(plan, own)
        assert refusal_of(caught.value) is Refusal.ORDER
        with pytest.raises(ApprovalError, match="belongs to no plan"):
            admit(under(plan, TRAIN), own)
    assert log_of(own).entries() == []


@pytest.mark.parametrize("count", [1, 2**31])
def test_a_plan_with_the_least_and_with_the_most_room_is_shown(
    tmp_path: Path, count: int
) -> None:
    own, plan = site(tmp_path), at_most(count, TRAIN)
    assert show(plan, own) == "pending"
    approve(plan, own)
    answer(under(plan, TRAIN), own)


@pytest.mark.parametrize("count", [0, -1])
def test_a_plan_without_room_has_no_orders(tmp_path: Path, count: int) -> None:
    """Even if it was approved, as no server can have it."""
    own, plan = site(tmp_path), at_most(count, TRAIN)
    log_of(own).propose(Proposal.of(plan, ["models"], own), ["models"])
    keep_plan(plan, own)
    has_no_room(under(plan, TRAIN), own, count)
    assert begun(own) == answered(own) == []


def test_orders_are_counted_for_each_part_of_a_plan_and_for_each_plan(
    tmp_path: Path,
) -> None:
    own = site(tmp_path)
    plans = [
        at_most(1, TRAIN, replace(TRAIN, batch_size=8)),
        at_most(1, TRAIN, run="beef"),
    ]
    for plan in plans:
        approve(plan, own)
    answer(under(plans[0], TRAIN), own)
    answer(under(plans[0], TRAIN, batch_size=8), own)
    answer(under(plans[1], TRAIN, seed=1), own)
    for order in (
        under(plans[0], TRAIN, seed=1),
        under(plans[0], TRAIN, batch_size=8, seed=1),
        under(plans[1], TRAIN),
    ):
        has_no_room(order, own, 1)


def overtaken_by(
    action: Callable[[], object], first: DataOrder, monkeypatch: pytest.MonkeyPatch
) -> Callable[[Site], object]:
    """Do something while the answer to `first` is computed: after it was begun, before
    it is answered.
    """

    def meanwhile(order: DataOrder) -> None:
        if order is first:
            action()

    class Computed:
        def release(self, order: PrepareOrder) -> Release:
            meanwhile(order)
            return release()

    def summed(order: SumsOrder, site: Site) -> tuple[Arrays, int]:
        meanwhile(order)
        return sums().arrays, 3

    def trained(task: ClientTask) -> Update:
        meanwhile(task.order)
        return update()

    monkeypatch.setattr(handlers, "prepare_teaching", lambda order, site: None)
    monkeypatch.setattr(handlers, "releases_of", lambda order, site: Computed())
    monkeypatch.setattr(handlers, "summed_features", summed)
    monkeypatch.setattr(handlers, "trained_update", trained)
    return lambda own: handlers.answer(first, own)


def test_an_order_that_comes_while_the_last_one_is_computed_is_not_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is room for one. What is begun first is what is computed, and what
    leaves.
    """
    own, plan = site(tmp_path), at_most(1, TRAIN)
    approve(plan, own)
    first, second = under(plan, TRAIN, seed=1), under(plan, TRAIN, seed=2)
    computed = list[DataOrder]()

    def ask_second() -> None:
        with pytest.raises(
            ApprovalError, match="at most 1 orders to train, and all of them were begun"
        ):
            handlers.answer(second, own)
        assert (begun(own), answered(own)) == ([name_of(first)], [])

    ask_first = overtaken_by(ask_second, first, monkeypatch)
    trained = handlers.trained_update

    def counted(task: ClientTask) -> Update:
        computed.append(task.order)
        return trained(task)

    monkeypatch.setattr(handlers, "trained_update", counted)
    assert isinstance(ask_first(own), Update)
    assert computed == [first]
    assert begun(own) == answered(own) == [name_of(first)]


def test_an_order_that_is_overtaken_after_the_gate_is_not_begun_beyond_the_plan(
    tmp_path: Path,
) -> None:
    """Both pass the gate while there is room for one. What is written down first is
    what is computed.
    """
    own, plan = site(tmp_path), at_most(1, TRAIN)
    approve(plan, own)
    first, second = under(plan, TRAIN, seed=1), under(plan, TRAIN, seed=2)
    admit(first, own)
    answer(second, own)
    has_no_room(first, own, 1)
    assert begun(own) == answered(own) == [name_of(second)]


@pytest.mark.parametrize("order", ORDERS, ids=named)
def test_an_order_that_is_overtaken_by_itself_is_answered_twice_and_counts_once(
    tmp_path: Path, order: DataOrder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that sends an order again, while the first answer is computed, gets
    both.
    """
    own, plan = site(tmp_path), at_most(1, order)
    approve(plan, own)
    first, again = under(plan, order), under(plan, order)
    left = list[object]()
    ask = overtaken_by(
        lambda: left.append(handlers.answer(again, own)), first, monkeypatch
    )
    left.append(ask(own))
    assert len(left) == 2
    assert type(left[0]) is type(left[1])
    assert [entry.event for entry in log_of(own).entries()] == [
        "proposed",
        "approved",
        "begun",
        "answered",
    ]
    assert begun(own) == answered(own) == [name_of(order)]


@pytest.mark.parametrize("order", ORDERS, ids=named)
def test_what_the_owner_refuses_while_it_is_computed_does_not_leave(
    tmp_path: Path, order: DataOrder, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, plan = site(tmp_path), plan_for(order)
    approve(plan, own)
    ask = overtaken_by(
        lambda: log_of(own).decide(plan.hash, "refused", "anna"),
        under(plan, order),
        monkeypatch,
    )
    with pytest.raises(ApprovalError, match="was refused by"):
        ask(own)
    assert begun(own) == [name_of(order)]
    assert answered(own) == []
    approve(plan, own)
    answer(under(plan, order), own)  # the owner has thought again
    assert begun(own) == answered(own) == [name_of(order)]


@pytest.mark.parametrize("order", ORDERS, ids=named)
def test_what_cannot_be_written_down_does_not_leave(
    tmp_path: Path, order: DataOrder, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, plan = site(tmp_path), plan_for(order)
    approve(plan, own)
    key = (own.vault / APPROVALS_KEY_FILE).read_bytes()
    ask = overtaken_by(
        (own.vault / APPROVALS_KEY_FILE).unlink, under(plan, order), monkeypatch
    )
    with pytest.raises(LogError, match="nothing is answered without it"):
        ask(own)
    (own.vault / APPROVALS_KEY_FILE).write_bytes(key)
    assert begun(own) == [name_of(order)]
    assert answered(own) == []


@pytest.mark.parametrize("order", ORDERS, ids=named)
def test_what_cannot_be_written_down_is_not_computed(
    tmp_path: Path, order: DataOrder
) -> None:
    own, plan = site(tmp_path), plan_for(order)
    approve(plan, own)
    (own.vault / APPROVALS_KEY_FILE).unlink()
    with (
        pytest.raises(LogError, match="nothing is answered without it"),
        under_approval(under(plan, order), own),
    ):
        pytest.fail("it was computed")


def test_of_orders_that_pass_the_gate_at_once_as_many_are_begun_as_the_plan_has(
    tmp_path: Path,
) -> None:
    own, plan = site(tmp_path), at_most(3, TRAIN)
    approve(plan, own)
    count = 8
    all_have_passed = threading.Barrier(count)
    computed = list[str]()

    def ask(seed: int) -> str:
        order = under(plan, TRAIN, seed=seed)
        admit(order, own)
        all_have_passed.wait(timeout=60)
        try:
            with under_approval(order, own):
                computed.append(name_of(order))
        except ApprovalError:
            return ""
        return name_of(order)

    with ThreadPoolExecutor(count) as pool:
        left = [name for name in pool.map(ask, range(count)) if name]
    assert len(left) == 3
    assert (
        sorted(computed) == sorted(begun(own)) == sorted(answered(own)) == sorted(left)
    )


# secure sums


@pytest.mark.parametrize("order", ORDERS, ids=named)
def test_an_approval_covers_attempts_of_a_secure_sum_and_each_counts(
    tmp_path: Path, order: DataOrder
) -> None:
    own = site(tmp_path, secure=True)
    sums_of_run = [
        terms(),
        terms(attempt=1),
        terms(attempt=2, sites=["a", "b", "d"]),
        terms(attempt=2, threshold=2),
    ]
    plan = RunPlan("cafe", "fedaux", 1, True, (Ask.of(order, len(sums_of_run)),))
    approve(plan, own)
    attempts = [under(plan, order, sum=sum_.to_json()) for sum_ in sums_of_run]
    for attempt in [*attempts, *attempts]:  # the second time they are the same orders
        answer(attempt, own)
    for another in (terms(attempt=3), terms(sites=["a", "b"]), terms(scale=1.0)):
        has_no_room(under(plan, order, sum=another.to_json()), own, len(attempts))
    names = [name_of(attempt) for attempt in attempts]
    assert begun(own) == answered(own) == names
    assert len(set(names)) == len(attempts)


def test_a_plan_has_room_for_two_attempts_of_a_secure_release_and_for_one_release_without(
    tmp_path: Path,
) -> None:
    own = site(tmp_path, secure=True)
    plan = plan_for(*ORDERS, secure=True)
    assert ATTEMPTS == 2
    assert [ask.at_most for ask in plan.asks] == [2, 1, 1 + SPARE_ROUNDS]
    assert [ask.at_most for ask in plan_for(*ORDERS).asks] == [1, 1, 1 + SPARE_ROUNDS]
    approve(plan, own)
    for order, most in ((RELEASE, 2), (SUMS, 1)):
        attempts = [
            under(plan, order, sum=terms(attempt=number).to_json())
            for number in range(3)
        ]
        for attempt in attempts[:most]:
            answer(attempt, own)
        for attempt in attempts[most:]:
            has_no_room(attempt, own, most)


@pytest.mark.parametrize("order", ORDERS, ids=named)
def test_a_secure_sum_of_another_run_is_not_covered(
    tmp_path: Path, order: DataOrder
) -> None:
    own, plan = site(tmp_path, secure=True), plan_for(order, secure=True)
    approve(plan, own)
    with pytest.raises(OrderError) as caught:
        admit(under(plan, order, sum=terms(run="beef").to_json()), own)
    assert (
        str(caught.value)
        == "Cannot answer: the secure sum belongs to another run than the approved plan. "
        "Start the run again."
    )


def sum_with_room_for_one(
    folder: Path, settings: Config = MODELS
) -> tuple[SumServer, Site, RunPlan]:
    """A secure sum, one of its sites, and the approved plan, which has room for one."""
    config = replace(settings, federation=replace(settings.federation, approval="ask"))
    server = SumServer.simulated(folder / "vault", folder / "features", config)
    own = server.sites[NAMES[0]]
    plan = RunPlan(server.terms.run, config.method, 1, True, (Ask.of(server.order, 1),))
    approve(plan, own)
    return server.asking(plan=plan.hash), own, plan


def keys_of(server: SumServer, name: str) -> str:
    """What the log adds to the name of an order: the site's own keys in this sum."""
    part = Participation.of(
        replace(server.order, client=name, sum=server.terms.to_json()),
        server.sites[name],
    )
    with part.locked() as remembered:
        assert remembered is not None
        return part.own_hash(remembered.state)


def meanwhile_of_vectors(
    action: Callable[[], object], monkeypatch: pytest.MonkeyPatch
) -> list[DataOrder]:
    """Do something while a vector is computed, and return the orders that it is
    computed for.
    """
    vector_of, computed = handlers.vector_of, list[DataOrder]()

    def overtaken(order: SumsOrder | TrainOrder, site: Site) -> NDArray[np.int64]:
        computed.append(order)
        action()
        return vector_of(order, site)

    monkeypatch.setattr(handlers, "vector_of", overtaken)
    return computed


def test_a_masked_vector_that_is_overtaken_is_not_computed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two sums have shared their secrets while the plan has room for one, and the other
    is begun first.
    """
    server, own, _ = sum_with_room_for_one(tmp_path)
    name, shares = NAMES[0], server.shares()
    assert begun(own) == []  # so far nothing depends on a record
    second = replace(server.order, client=name, round=2, sum=server.terms.to_json())
    answer(second, own)
    computed = meanwhile_of_vectors(lambda: None, monkeypatch)
    for _ in range(2):
        with pytest.raises(
            ApprovalError, match="at most 1 orders to train, and all of them were begun"
        ):
            server.masked(name, shares)
    assert computed == []
    assert list(server.folder(name).glob("masked-*")) == []
    assert begun(own) == answered(own) == [name_of(second)]


def test_a_sum_that_was_forgotten_and_is_begun_again_counts_again(
    tmp_path: Path,
) -> None:
    """A site remembers few sums. Under fresh keys, the same terms would get a vector
    with fresh noise.
    """
    settings = replace(RELEASES, privacy=replace(RELEASES.privacy, epsilon_total=4.0))
    server, own, _ = sum_with_room_for_one(tmp_path, settings)
    name = NAMES[0]
    server.masked(name, server.shares())
    first = begun(own)
    for attempt in range(1, REMEMBERED_SUMS + 2):
        for other in NAMES:
            server.with_terms(attempt=attempt).begin(other)
    with pytest.raises(
        ApprovalError, match="at most 1 orders to release, and all of them were begun"
    ):
        server.masked(name, server.shares())
    assert begun(own) == answered(own) == first


def test_a_sum_that_comes_while_a_masked_vector_is_computed_is_not_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, own, _ = sum_with_room_for_one(tmp_path)
    name, shares = NAMES[0], server.shares()
    first = replace(server.order, client=name, sum=server.terms.to_json())
    refused = list[DataOrder]()

    def ask_others() -> None:
        attempt = replace(server.terms, attempt=1).to_json()
        for other in (replace(first, round=2), replace(first, sum=attempt)):
            has_no_room(other, own, 1)
            refused.append(other)

    computed = meanwhile_of_vectors(ask_others, monkeypatch)
    left = [server.masked(name, shares).arrays["masked"] for _ in range(2)]
    np.testing.assert_array_equal(*left)
    assert (len(computed), len(refused)) == (1, 2)
    assert begun(own) == answered(own) == [name_of(first, keys_of(server, name))]


def test_a_masked_vector_that_the_owner_refuses_while_it_is_computed_is_not_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, own, plan = sum_with_room_for_one(tmp_path)
    name, shares = NAMES[0], server.shares()
    first = replace(server.order, client=name, sum=server.terms.to_json())
    computed = meanwhile_of_vectors(
        lambda: log_of(own).decide(plan.hash, "refused", "anna"), monkeypatch
    )
    for _ in range(2):
        with pytest.raises(ApprovalError, match="was refused by"):
            server.masked(name, shares)
    assert len(computed) == 1
    assert list(server.folder(name).glob("masked-*"))  # it was computed
    assert (begun(own), answered(own)) == ([name_of(first, keys_of(server, name))], [])


# standing rules, and what the owner reads


@pytest.mark.parametrize("order", ORDERS, ids=named)
def test_a_standing_rule_approves_what_it_names(
    tmp_path: Path, order: DataOrder
) -> None:
    plan = plan_for(order)
    word = LEAVES[plan.asks[0].kind]
    own = site(tmp_path, word)
    assert show(plan, own) == "approved"
    answer(under(plan, order), own)
    assert [(entry.event, entry.by) for entry in log_of(own).entries()] == [
        ("proposed", "server"),
        ("approved", f"standing rule {word}"),
        ("begun", "site"),
        ("answered", "site"),
    ]
    for other in ORDERS:
        expected = "approved" if other is order else "pending"
        assert show(plan_for(other, run="beef"), own) == expected
    assert show(plan_for(*ORDERS), own) == "pending"  # all that leaves must be named


def test_a_standing_rule_may_name_more_than_leaves(tmp_path: Path) -> None:
    own, plan = (
        site(tmp_path, "noisy sums", "second moments", "models"),
        plan_for(*ORDERS),
    )
    assert show(plan, own) == "approved"
    (approved,) = [
        entry for entry in log_of(own).entries() if entry.event == "approved"
    ]
    assert approved.by == "standing rule noisy sums, second moments, models"
    assert show(plan_for(RELEASE), own) == "approved"


@pytest.mark.parametrize(
    "rule",
    ["release:*", "train:fedaux", "*", "", "noisy", "noisy sums and models", "sums"],
)
def test_what_is_no_word_of_sends_approves_nothing(tmp_path: Path, rule: str) -> None:
    own = site(tmp_path, rule)
    for order in ORDERS:
        assert show(plan_for(order), own) == "pending"


def test_a_plan_that_asks_for_nothing_is_not_approved_by_a_rule(tmp_path: Path) -> None:
    assert show(plan_for(), site(tmp_path, *LEAVES.values())) == "pending"


def test_the_owners_word_is_above_a_standing_rule(tmp_path: Path) -> None:
    own, plan = site(tmp_path, "noisy sums"), plan_for(RELEASE)
    assert show(plan, own) == "approved"
    log_of(own).decide(plan.hash, "refused", "anna")
    assert show(plan, own) == "refused"
    with pytest.raises(ApprovalError, match="was refused by"):
        admit(under(plan, RELEASE), own)


def test_a_rule_that_is_written_later_approves_what_waits(tmp_path: Path) -> None:
    plan = plan_for(RELEASE)
    assert show(plan, site(tmp_path)) == "pending"
    own = site(tmp_path, "noisy sums")
    assert show(plan, own) == "approved"
    assert show(plan, own) == "approved"
    assert [entry.event for entry in log_of(own).entries()] == ["proposed", "approved"]


def test_an_owner_reads_all_that_a_plan_asks_for(tmp_path: Path) -> None:
    own, plan = (
        replace(site(tmp_path), server="fl.example.org:8443"),
        plan_for(*ORDERS, rounds=4),
    )
    show(plan, own)
    (found,) = log_of(own).pending()
    facts = dict(found.facts)
    release, summed, train = facts.pop("orders")
    assert facts == {
        "asked by": "fl.example.org:8443",
        "run": "cafe",
        "method": "fedaux",
        "rounds": 4,
        "leaves": "models WITHOUT noise and noisy sums at ε = 1, δ = 1e-05 and second moments WITHOUT noise",
        "secure sum": "no",
        "words": ["models", "noisy sums", "second moments"],
    }
    assert release == {"to": "release", "at most": 1, **plan.asks[0].facts}
    assert summed == {"to": "sums", "at most": 1, **plan.asks[1].facts}
    assert train == {"to": "train", "at most": 4 + SPARE_ROUNDS, **plan.asks[2].facts}


def test_an_owner_reads_who_sees_what_in_a_secure_sum(tmp_path: Path) -> None:
    own = site(tmp_path, secure=True)
    facts = Proposal.of(plan_for(TRAIN, secure=True), ["models"], own).facts
    assert facts["secure sum"] == "yes: the server sees sums over the sites"
    assert facts["asked by"] == "the server of this run"


def test_what_leaves_is_said_with_its_cost_rounded_up(tmp_path: Path) -> None:
    privacy = {"epsilon": 0.12341, "epsilon_total": 2.34561, "private_training": True}
    config = asked_site(tmp_path, privacy=privacy, head_init="random").config
    assert cost_in_words(["noisy sums"], config) == "noisy sums at ε = 0.124, δ = 1e-05"
    looked = replace(config, privacy=replace(config.privacy, look_epsilon=0.5))
    counts = cost_in_words(["noisy counts"], looked)
    assert counts == "noisy counts at ε = 0.5, δ = 1e-05"
    assert (
        cost_in_words(["noisy models"], config)
        == "noisy models within a total of ε = 2.35, δ = 1e-05"
    )
    assert (
        cost_in_words(["models", "sums"], config)
        == "models WITHOUT noise and sums WITHOUT noise"
    )


def test_the_cost_of_several_releases_is_not_that_of_one(tmp_path: Path) -> None:
    """Each map of the server's is another release: nine of them cost what the owner's
    total allows.
    """
    moved = [
        replace(RELEASE, public={**RELEASE.public, "mean": np.full(3, m, np.float32)})
        for m in range(9)
    ]
    own = asked_site(
        tmp_path, {"approval": "ask"}, privacy={"epsilon": 1.0, "epsilon_total": 8.0}
    )
    show(plan_for(*moved), own)
    (found,) = log_of(own).pending()
    assert (
        found.facts["leaves"]
        == "noisy sums at ε = 1, up to 9 times, within a total of ε = 8, δ = 1e-05"
    )


def test_the_cost_of_a_secure_release_is_that_of_all_its_attempts(
    tmp_path: Path,
) -> None:
    privacy = {"epsilon": 1.0, "epsilon_total": 2.0}
    own = asked_site(tmp_path, {"approval": "ask", "secure": True}, privacy=privacy)
    show(plan_for(RELEASE, secure=True), own)
    (found,) = log_of(own).pending()
    assert (
        found.facts["leaves"]
        == "noisy sums at ε = 1, up to 2 times, within a total of ε = 2, δ = 1e-05"
    )
    assert found.facts["orders"][0]["at most"] == 2


def test_where_nobody_asks_nothing_is_written(tmp_path: Path) -> None:
    own = site(tmp_path, approval="none")
    assert show(plan_for(TRAIN), own) == "approved"
    for order in ORDERS:
        answer(order, own)
        with under_approval(
            order, own, lambda: pytest.fail("there is nothing to write down")
        ):
            pass
    assert not (tmp_path / "vault").exists()


# the owner's decisions


def test_a_server_cannot_fill_the_disk_with_plans(tmp_path: Path) -> None:
    own = site(tmp_path)
    plans = [plan_for(TRAIN, run=str(number)) for number in range(MOST_PENDING + 1)]
    for plan in plans[:-1]:
        assert show(plan, own) == "pending"
    before = (own.vault / LOG).read_bytes()
    with pytest.raises(OrderError) as caught:
        show(plans[-1], own)
    assert str(caught.value) == (
        "Cannot take another plan: 20 of them wait for this site's owner. Run "
        "`fedaux site refuse` to refuse them."
    )
    assert show(plans[0], own) == "pending"  # one of those that wait
    assert (own.vault / LOG).read_bytes() == before
    assert len(list((own.vault / "plans").iterdir())) == MOST_PENDING
    assert [entry.id for entry in log_of(own).pending()] == [
        plan.hash for plan in plans[:-1]
    ]
    log_of(own).decide(plans[0].hash, "refused", "anna")
    assert show(plans[-1], own) == "pending"
    with pytest.raises(OrderError, match="Cannot take another plan"):
        show(plan_for(TRAIN, run="one more"), own)


@dataclass(frozen=True)
class Named(Proposal):
    """A proposal with an ID of one's choice."""

    name: str = ""

    @property
    def id(self) -> str:
        return self.name


def test_the_first_digits_of_a_plan_are_enough_where_they_are_its_own(
    tmp_path: Path,
) -> None:
    log = ApprovalLog(tmp_path)
    shared = "f" * SHORT
    names = [shared + "0" * 52, shared + "1" * 52, "e" * 64]
    for name in names:
        log.propose(Named(plan_for(), {"words": []}, name), ())
    for start in ("e" * (SHORT - 1), "", "d" * 64, "e" * 65, " " + "e" * 63):
        with pytest.raises(ApprovalError, match="no plan has this id"):
            log.decide(start, "approved", "anna")
    with pytest.raises(ApprovalError) as caught:
        log.decide(shared, "approved", "anna")
    assert (
        str(caught.value)
        == f"Cannot decide on '{shared}': 2 plans begin so. Write all of the id."
    )
    assert len(log.pending()) == 3
    log.decide("e" * SHORT, "approved", "anna")
    log.decide(names[1], "refused", "bert")
    assert [entry.id for entry in log.pending()] == [names[0]]
    decisions = [(entry.event, entry.id, entry.by) for entry in log.entries()[3:]]
    assert decisions == [("approved", names[2], "anna"), ("refused", names[1], "bert")]


def test_nothing_is_decided_that_nobody_has_proposed(tmp_path: Path) -> None:
    """An approval in advance would be one of a plan that the owner has not read."""
    own, plan = site(tmp_path), plan_for(TRAIN)
    with pytest.raises(ApprovalError) as caught:
        log_of(own).decide(plan.hash, "approved", "anna")
    assert str(caught.value) == (
        f"Cannot decide on '{plan.hash}': no plan has this id. Run `fedaux site "
        "pending` for the list. The first 12 digits of one are enough."
    )
    assert show(plan, own) == "pending"


def test_what_waits_and_what_was_refused_says_what_the_owner_can_do(
    tmp_path: Path,
) -> None:
    own, plan = site(tmp_path), plan_for(TRAIN)
    told = []
    with pytest.raises(ApprovalError) as never_shown:
        check_approval(under(plan, TRAIN), own)
    show(plan, own)
    for _ in range(2):
        with pytest.raises(ApprovalError) as caught:
            check_approval(under(plan, TRAIN), own)
        told.append(str(caught.value))
        log_of(own).decide(plan.hash, "refused", "anna")
    how = f"Run `fedaux site approve {plan.hash[:12]}` to approve it."
    assert str(never_shown.value) == (
        "Cannot answer: the order belongs to no plan that this site's owner was shown. "
        "Start the run with a server that sends its plan before any other order."
    )
    assert told == [
        f"Cannot answer: the plan of this run waits for this site's owner. {how}",
        f"Cannot answer: the plan of this run was refused by this site's owner. {how}",
    ]
    assert ApprovalError.code is Exit.PRIVACY
    assert LogError.code is Exit.NEGATIVE


# the log


def test_the_log_names_each_order_that_was_begun_and_that_was_answered(
    tmp_path: Path,
) -> None:
    own, plan = site(tmp_path, *LEAVES.values()), plan_for(*ORDERS)
    show(plan, own)
    for order in ORDERS:
        answer(under(plan, order), own)
    entries = [
        entry for entry in log_of(own).entries() if entry.event in ("begun", "answered")
    ]
    assert [entry.event for entry in entries] == ["begun", "answered"] * 3
    assert {(entry.id, entry.by) for entry in entries} == {(plan.hash, "site")}
    assert [entry.facts for entry in entries[::2]] == [
        entry.facts for entry in entries[1::2]
    ]
    told = [
        (entry.facts["kind"], entry.facts["order"], entry.facts.get("round"))
        for entry in entries[::2]
    ]
    assert told == [
        ("release", name_of(RELEASE), None),
        ("sums", name_of(SUMS), None),
        ("train", name_of(TRAIN), TRAIN.round),
    ]
    assert len({entry.facts["ask"] for entry in entries}) == 3


@pytest.fixture
def vault(tmp_path: Path) -> Path:
    """After a plan that was refused, and one that was approved and answered."""
    own, refused, approved = (
        site(tmp_path, "noisy sums"),
        plan_for(TRAIN),
        plan_for(RELEASE),
    )
    show(refused, own)
    log_of(own).decide(refused.hash, "refused", "anna")
    show(approved, own)
    answer(under(approved, RELEASE), own)
    events = [entry.event for entry in log_of(own).entries()]
    assert events == [
        "proposed",
        "refused",
        "proposed",
        "approved",
        "begun",
        "answered",
    ]
    return own.vault


def lines(vault: Path) -> list[str]:
    return (vault / LOG).read_text().splitlines()


def write(vault: Path, kept: list[str]) -> None:
    (vault / LOG).write_text("".join(f"{line}\n" for line in kept))


def forge(vault: Path) -> None:
    """An approval in place of a refusal."""
    (vault / LOG).write_text(
        (vault / LOG).read_text().replace('"refused"', '"approved"')
    )


def add(vault: Path) -> None:
    """A line of somebody who does not have the key."""
    code, _, text = lines(vault)[-1].partition(" ")
    write(vault, [*lines(vault), f"{code} {text}"])


def repeat(vault: Path) -> None:
    """A line that the site has written, once more."""
    write(vault, [*lines(vault), lines(vault)[3]])


def cut(vault: Path) -> None:
    """The answer is forgotten."""
    write(vault, lines(vault)[:-1])


def cut_two(vault: Path) -> None:
    """The order is forgotten, so that there would be room for another."""
    write(vault, lines(vault)[:-2])


def cut_three(vault: Path) -> None:
    """The approval is forgotten too."""
    write(vault, lines(vault)[:-3])


def cut_with_head(vault: Path) -> None:
    """The head as it would be if that were its form."""
    kept = lines(vault)[:2]
    write(vault, kept)
    (vault / HEAD).write_text(f"2:{kept[-1].partition(' ')[0]}")


def remove(vault: Path) -> None:
    kept = lines(vault)
    write(vault, [*kept[:2], *kept[3:]])


def remove_begun(vault: Path) -> None:
    """What was answered was never begun."""
    kept = lines(vault)
    write(vault, [*kept[:4], *kept[5:]])


def reorder(vault: Path) -> None:
    first, second, *rest = lines(vault)
    write(vault, [second, first, *rest])


def lose_key(vault: Path) -> None:
    (vault / APPROVALS_KEY_FILE).unlink()


def another_key(vault: Path) -> None:
    (vault / APPROVALS_KEY_FILE).write_bytes(bytes(32))


def lose_head(vault: Path) -> None:
    (vault / HEAD).unlink()


def empty(vault: Path) -> None:
    (vault / LOG).unlink()


ATTACKS = [
    forge,
    add,
    repeat,
    cut,
    cut_two,
    cut_three,
    cut_with_head,
    remove,
    remove_begun,
    reorder,
    lose_key,
    another_key,
    lose_head,
    empty,
]


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.__name__)
def test_a_log_that_was_tampered_with_is_an_error_and_approves_nothing(
    vault: Path, attack: Callable[[Path], None]
) -> None:
    own, log = site(vault.parent, "noisy sums"), ApprovalLog(vault)
    noted = log.head
    log.entries()
    attack(vault)
    content = {path.name: path.read_bytes() for path in vault.glob("approvals.*")}
    plans = plan_for(TRAIN), plan_for(RELEASE)

    def begin(order: DataOrder) -> None:
        with under_approval(order, own):
            pytest.fail("it was computed")

    uses: list[Callable[[], object]] = [
        log.entries,
        log.pending,
        lambda: log.head,
        lambda: log.check_head(noted),
        lambda: log.decide(plans[0].hash, "approved", "anna"),
        lambda: show(plan_for(RELEASE, run="beef"), own),
        lambda: show(plans[1], own),
        lambda: admit(under(plans[0], TRAIN), own),
        lambda: admit(under(plans[1], RELEASE), own),
        lambda: answer(under(plans[1], RELEASE), own),
        lambda: begin(under(plans[0], TRAIN)),
        lambda: begin(under(plans[1], RELEASE)),
    ]
    for use in uses:
        with pytest.raises(LogError) as caught:
            use()
        assert refusal_of(caught.value) is Refusal.APPROVAL
    assert {
        path.name: path.read_bytes() for path in vault.glob("approvals.*")
    } == content


def test_a_log_that_was_begun_anew_does_not_go_on_from_a_head_that_was_noted(
    vault: Path, tmp_path: Path
) -> None:
    own, log = site(tmp_path, "noisy sums"), ApprovalLog(vault)
    plans = [plan_for(RELEASE, run=run) for run in ("cafe", "beef", "f00d")]
    noted = log.head
    log.check_head(noted)
    for plan in plans:
        show(plan, own)
        answer(under(plan, RELEASE), own)
    assert len(log.entries()) == 6 + 2 * 4  # the first plan was answered before
    log.check_head(noted)
    for name in (LOG, HEAD, APPROVALS_KEY_FILE):
        (vault / name).unlink()
    for plan in plans:
        show(plan, own)
        answer(under(plan, RELEASE), own)
    assert len(log.entries()) == 3 * 4  # more than were noted
    with pytest.raises(LogError, match="does not continue from the head"):
        log.check_head(noted)


@pytest.mark.parametrize(
    "noted", ["", ":", "0:", "1:", "-1:", "5:", "7:", "9:", "one:two", "x"]
)
def test_what_is_no_head_is_none_of_this_log(vault: Path, noted: str) -> None:
    log = ApprovalLog(vault)
    count, _, code = log.head.partition(":")
    assert count == "6"
    for text in (noted, noted + code):
        with pytest.raises(LogError, match="does not continue from the head"):
            log.check_head(text)
    log.check_head(f"6:{code}")


def test_a_process_that_was_killed_between_two_writes_leaves_a_log_that_is_whole(
    vault: Path,
) -> None:
    log, name = ApprovalLog(vault), plan_for(TRAIN).hash
    before = (vault / HEAD).read_text()
    log.decide(name, "approved", "anna")
    (vault / HEAD).write_text(before)
    log.decide(name, "refused", "bert")
    assert [entry.by for entry in log.entries()][-2:] == ["anna", "bert"]


def test_a_process_that_was_killed_in_its_first_line_leaves_a_log_that_is_whole(
    tmp_path: Path,
) -> None:
    own, plan = site(tmp_path), plan_for(TRAIN)
    show(plan, own)
    (own.vault / HEAD).unlink()
    approve(plan, own)
    answer(under(plan, TRAIN), own)
    assert [entry.event for entry in log_of(own).entries()] == [
        "proposed",
        "approved",
        "begun",
        "answered",
    ]


def test_a_process_that_was_killed_as_it_wrote_an_order_down_has_begun_it(
    tmp_path: Path,
) -> None:
    own, plan = site(tmp_path), at_most(1, TRAIN)
    approve(plan, own)
    before = (own.vault / HEAD).read_text()
    with pytest.raises(KeyboardInterrupt), under_approval(under(plan, TRAIN), own):
        raise KeyboardInterrupt
    (own.vault / HEAD).write_text(before)
    has_no_room(under(plan, TRAIN, seed=1), own, 1)
    assert (begun(own), answered(own)) == ([name_of(TRAIN)], [])
    answer(under(plan, TRAIN), own)
    assert begun(own) == answered(own) == [name_of(TRAIN)]


def test_the_log_and_its_key_are_for_the_sites_owner_only(vault: Path) -> None:
    assert stat.S_IMODE(vault.stat().st_mode) == 0o700
    for name in (APPROVALS_KEY_FILE, HEAD):
        assert stat.S_IMODE((vault / name).stat().st_mode) == 0o600


# the commands of an owner


def run(folder: Path, *words: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["site", *words, "--site", str(folder)])
    return result.exit_code, result.output


def test_the_commands_of_an_owner(tmp_path: Path) -> None:
    own, plan = replace(site(tmp_path), server="fl.example.org:8443"), plan_for(TRAIN)
    (tmp_path / "site.env").write_text("NAME=a\nSERVER=fl.example.org:8443\n")
    show(plan, own)
    code, shown = run(tmp_path, "pending")
    assert code == 0
    for part in (
        plan.hash,
        "asked by = fl.example.org:8443",
        "method = fedaux",
        "leaves = models WITHOUT noise",
        "at most 6 orders to train",
        "epochs = 1",
    ):
        assert part in shown
    code, text = run(tmp_path, "pending", "--json")
    (told,) = json.loads(text)["pending"]
    assert (code, told["id"], told["words"]) == (0, plan.hash, ["models"])
    assert run(tmp_path, "approve", plan.hash[:SHORT])[0] == 0
    answer(under(plan, TRAIN), own)
    assert "nothing waits" in run(tmp_path, "pending")[1]
    assert f"train order {name_of(TRAIN)}" in run(tmp_path, "log")[1]
    entries = json.loads(run(tmp_path, "log", "--json")[1])["entries"]
    assert [entry["event"] for entry in entries] == [
        "proposed",
        "approved",
        "begun",
        "answered",
    ]
    assert {entry["facts"]["order"] for entry in entries[2:]} == {name_of(TRAIN)}
    code, told = run(tmp_path, "log", "--verify")
    assert (code, "the log is whole" in told) == (0, True)
    assert run(tmp_path, "log", "--verify", "--head", log_of(own).head)[0] == 0
    assert run(tmp_path, "log", "--verify", "--head", "2:f00d")[0] != 0
    assert run(tmp_path, "refuse", plan.hash)[0] == 0
    with pytest.raises(ApprovalError, match="was refused by"):
        admit(under(plan, TRAIN), own)
    assert run(tmp_path, "approve", "0" * 64)[0] != 0
    forge(own.vault)
    assert run(tmp_path, "log", "--verify")[0] != 0
