"""Before a run: the plan that all sites are shown, the answers of their owners, and
what the server makes of them.
"""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from fedaux import Config
from fedaux.config.sections import DataConfig
from fedaux.core.failures import Failure
from fedaux.core.progress import Notice, ProgressEvent, report_to
from fedaux.messages import (
    Consent,
    Order,
    PlanOrder,
    PrepareOrder,
    Reply,
    RunPlan,
    TrainOrder,
)
from fedaux.messages.plan import SPARE_ROUNDS
from fedaux.server import agreement
from fedaux.server.agreement import ConsentError, agree_on_plan, make_plan
from fedaux.server.loop import run
from fedaux.server.preparation import initial_state
from fedaux.server.server import Server
from helpers.scripted import (
    CLIENTS,
    CONFIG,
    MLP,
    WIDE,
    Answer,
    Scripted,
    honest,
    make_server,
)

OWN = replace(
    CONFIG,
    data=DataConfig("npy", "records", partition="own", classes=("x", "y", "z")),
    federation=replace(CONFIG.federation, sites=CLIENTS),
)
QUICK = replace(OWN, federation=replace(OWN.federation, connect_timeout=0.05))


def saying(*words: str) -> Answer:
    """What an owner says each time that the plan is shown; the last word counts from
    then on.
    """
    left = list(words)

    def answer(order: Order) -> Reply | None:
        if not isinstance(order, PlanOrder):
            return honest(order)
        word = left.pop(0) if len(left) > 1 else left[0]
        if word == "silence":
            return None
        if word == "failure":
            return Failure(order.client, "no answer within 3 s")
        hash_ = "0" * 64 if word == "another plan" else order.plan_hash
        return Consent(
            order.client, hash_, "approved" if word == "another plan" else word
        )

    return answer


def agree(
    config: Config, script: Mapping[str, Answer], said: list[str] | None = None
) -> tuple[Server, Scripted]:
    def hear(event: ProgressEvent) -> None:
        if said is not None and isinstance(event, Notice):
            said.append(event.text)

    server = make_server(config)
    federation = Scripted(script)
    with report_to(hear):
        agree_on_plan(server, federation, initial_state(server))
    return server, federation


@pytest.fixture(autouse=True)
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agreement, "POLL_INTERVAL", 0.001)


def test_simulated_clients_have_no_owners_to_ask() -> None:
    server, federation = agree(CONFIG, {})
    assert federation.asked == []
    assert server.orders.agreement.plan == ""


def test_every_order_of_a_run_is_in_the_plan_that_all_sites_were_shown() -> None:
    config = replace(OWN, prototypes=(MLP, WIDE), rounds=3)
    server = make_server(config)
    federation = Scripted()
    run(server, federation, None, lambda state: None)
    shown = federation.of_kind(PlanOrder)
    assert [order.client for order in shown] == list(CLIENTS)
    assert federation.asked[: len(CLIENTS)] == shown  # before anything else
    (text,) = {order.plan for order in shown}
    plan = RunPlan.from_json(text)
    assert (plan.method, plan.rounds, plan.secure) == (config.method, 3, False)
    assert [(ask.kind, ask.at_most) for ask in plan.asks] == [
        ("release", 1),
        ("train", 3 + SPARE_ROUNDS),
    ] * 2
    for order in [*federation.of_kind(PrepareOrder), *federation.of_kind(TrainOrder)]:
        assert order.plan == plan.hash == shown[0].plan_hash
        ask = plan.ask_for(order)
        assert ask is not None
        assert ask.facts["prototype"] == server.orders.spec_of(order.client).to_json()


def test_the_plan_of_a_run_that_goes_on_is_the_plan_that_was_approved() -> None:
    server = make_server(OWN)
    begun = run(server, Scripted(), None, lambda state: None, until=1)
    assert begun.round == 1
    again = make_server(OWN, state=begun)
    again.restore(begun)
    assert make_plan(again, begun).hash == server.orders.agreement.plan


def test_the_server_waits_for_owners_and_asks_nobody_twice_who_has_decided() -> None:
    said: list[str] = []
    script = {
        "a": saying("approved"),
        "b": saying("pending", "pending", "approved"),
        "c": saying("pending", "approved"),
        "d": saying("pending", "pending", "refused"),
    }
    server, federation = agree(OWN, script, said)
    assert [order.client for order in federation.asked] == [*"abcd", *"bcd", *"bd"]
    plan = server.orders.agreement.plan[:12]
    command = f"`fedaux site approve {plan}` at each site approves this run"
    assert said == [
        f"waiting for the owners of b, c, d: {command}",
        f"waiting for the owners of b, d: {command}",
        "d does not take part: its owner has refused",
    ]


@pytest.mark.parametrize(
    ("word", "reason"),
    [
        ("refused", "its owner has refused"),
        # a site that approves something else has not approved this
        ("another plan", "its owner has refused"),
        ("failure", "no answer within 3 s"),
        ("pending", "its owner has not decided yet"),
    ],
)
def test_too_few_owners_stop_a_run_before_anything_is_asked(
    word: str, reason: str
) -> None:
    """A quorum of a half: two of four must take part."""
    agree(QUICK, {"c": saying(word), "d": saying(word)})
    script = {name: saying(word) for name in "bcd"}
    with pytest.raises(ConsentError) as told:
        agree(QUICK, script)
    text = str(told.value)
    assert text.startswith(
        "Cannot begin: 1 of 4 sites take part in this run, and 2 are needed (b: "
        f"{reason}; c: {reason}; d: {reason})."
    )
    assert "Nothing was spent." in text
    federation = Scripted(script)
    with pytest.raises(ConsentError):
        run(make_server(QUICK), federation, None, lambda state: None)
    assert {type(order) for order in federation.asked} == {PlanOrder}


def test_a_site_that_does_not_answer_has_not_approved() -> None:
    with pytest.raises(ConsentError, match="1 of 4 sites take part"):
        agree(QUICK, {name: saying("silence") for name in "bcd"})
