"""Mutations of what stands between an order and private records: orders, the account,
secure sums, approvals.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import ConfigRecord, Context, Message, RecordDict

from fedaux.client import gate, handlers, releases, secure_sums
from fedaux.client import site as client_site
from fedaux.client import training as client_training
from fedaux.client.answers import AnswerStore
from fedaux.client.kept_state import ClientState
from fedaux.client.secure_sums import Participation
from fedaux.client.site import Site
from fedaux.client.summaries import embedding
from fedaux.config.schema import Config
from fedaux.core.accounts import Account
from fedaux.core.io import hashed_name
from fedaux.data import federated
from fedaux.deploy import checks, layout
from fedaux.flower import client_app, dropin_client, serialization
from fedaux.flower.federation import GridFederation
from fedaux.messages import (
    DataOrder,
    EveryOrder,
    SumOrder,
    SumsOrder,
    SumTerms,
    TrainOrder,
    Update,
    declaration,
    orders,
)
from fedaux.messages.declaration import Part, fields_of
from fedaux.messages.types import ArrayType, Number
from fedaux.privacy import account, accounting, ledger, roster, site_account, units
from fedaux.privacy.account import BudgetStore
from fedaux.privacy.account_file import Entry, read_account
from fedaux.privacy.accounting import Mechanism
from fedaux.privacy.secure_sum import Keys, SiteState, SumSettings
from fedaux.privacy.secure_sum import site as sum_site
from helpers.mutations.registry import fails, found_by

ACCOUNT = "unit/privacy/test_account.py"
CLIENT_APP = "unit/flower/test_client_app.py"
CLIENT_SUMS = "unit/client/test_secure_sums.py"
CHECKS = "unit/messages/test_checks.py"
SECURE_SUM = "unit/privacy/test_secure_sum.py"
FAULTS = "end_to_end/test_fault_schedule.py"


# which orders a site answers


def _read_orders_as(
    patch: pytest.MonkeyPatch, change: Callable[[Site, Any], dict[str, Any]]
) -> None:
    """Let the gate judge an order for private records as if these of its fields were
    others.
    """
    admit = gate.admit

    def admit_changed(order: EveryOrder, site: Site) -> None:
        changes = change(site, order) if hasattr(order, "prototype") else {}
        admit(replace(order, **changes), site)

    patch.setattr(gate, "admit", admit_changed)
    patch.setattr(handlers, "admit", admit_changed)


@fails(
    f"{CLIENT_APP}::test_a_client_answers_to_its_own_name_only",
    red="DID NOT RAISE OrderError",
    attack="3",
)
def orders_to_others_are_answered(patch: pytest.MonkeyPatch) -> None:
    """A client answers orders to any client."""
    _read_orders_as(patch, lambda site, order: {"client": site.clients[0]})


@fails(
    f"{CLIENT_APP}::test_a_network_that_the_clients_own_settings_do_not_list_is_not_built",
    red="+ it failed, and the reason is in the client's log",
    attack="10",
)
def any_network_is_built(patch: pytest.MonkeyPatch) -> None:
    """An order may name any network."""
    _read_orders_as(
        patch, lambda site, order: {"prototype": site.config.prototypes[0].to_json()}
    )


@fails(
    f"{CLIENT_APP}::test_an_order_for_other_classes_than_were_declared_is_refused",
    red="DID NOT RAISE OrderError",
    attack="10",
)
def any_number_of_classes_is_accepted(patch: pytest.MonkeyPatch) -> None:
    """An order may be for other classes than the site declares."""
    _read_orders_as(
        patch,
        lambda site, order: {
            "classes": len(gate.class_names(site.config, order.client))
        },
    )


@fails(
    f"{CLIENT_APP}::test_an_order_may_ask_for_as_many_epochs_as_the_clients_own_settings_allow",
    red="AttributeError: 'Update' object has no attribute 'reason'",
    attack="10",
)
def any_number_of_epochs_is_trained(patch: pytest.MonkeyPatch) -> None:
    """An order may ask for any number of epochs."""
    _read_orders_as(
        patch, lambda site, order: {"epochs": 1} if hasattr(order, "epochs") else {}
    )


@fails(
    f"{CLIENT_SUMS}::test_a_site_in_secure_sums_answers_nothing_alone_and_the_other_way_round",
    red="DID NOT RAISE OrderError",
    attack="29",
)
def site_answers_alone(patch: pytest.MonkeyPatch) -> None:
    """The order decides whether a reply is part of a secure sum."""
    _read_orders_as(
        patch,
        lambda site, order: {"sum": "a sum" if site.config.federation.secure else ""},
    )


@found_by("oracle")
def sums_for_anybody(patch: pytest.MonkeyPatch) -> None:
    """A client sends sums of its features whatever its own settings say."""
    admit = handlers.admit

    def admit_sums(order: EveryOrder, site: Site) -> None:
        if not isinstance(order, SumsOrder):
            admit(order, site)

    patch.setattr(handlers, "admit", admit_sums)


@fails(
    f"{CHECKS}::test_more_random_features_than_a_site_has_room_for_are_refused",
    red="DID NOT RAISE OrderError",
    attack="10",
)
def any_number_of_random_features_is_made(patch: pytest.MonkeyPatch) -> None:
    """An order for sums may ask for 10¹² random features."""
    for kind in (SumsOrder, TrainOrder):
        _redeclare(patch, kind, "random_features", type=Number(0, 10**12))


def _redeclare(patch: pytest.MonkeyPatch, kind: type, name: str, **marks: Any) -> None:
    """Give a field of an order other marks."""
    fields = [
        replace(field, marks=replace(field.marks, **marks))
        if field.name == name
        else field
        for field in fields_of(kind)
    ]
    patch.setitem(declaration._FIELDS, kind, tuple(fields))


@fails(
    f"{CHECKS}::test_what_is_wrong_is_named",
    red="DID NOT RAISE OrderError",
    attack="14",
)
def public_map_may_be_of_integers(patch: pytest.MonkeyPatch) -> None:
    """An order may bring a public map of 64-bit integers."""
    basis = ArrayType((*orders.FLOAT, "int64"), ("H", "k"))
    public = {
        scorer: {**arrays, "basis": basis} if "basis" in arrays else arrays
        for scorer, arrays in orders.PUBLIC_ARRAYS.items()
    }
    patch.setattr(orders, "PUBLIC_ARRAYS", public)


@fails(
    "attacks/test_order_enumeration.py"
    "::test_every_field_is_refused_or_keeps_all_other_records[prepare, class-embedding]",
    red="it should have been refused",
    attack="14",
)
def orders_are_not_checked(patch: pytest.MonkeyPatch) -> None:
    """The fields of an order may have any type, shape and range."""
    patch.setattr(serialization, "check_order", lambda order: None)


@found_by("integer-map")
def wrapping_integers(patch: pytest.MonkeyPatch) -> None:
    """Any type of number crosses, and the magnitude of an integer is the integer or its
    negative.
    """
    orders_are_not_checked(patch)

    def project(rows: Any, mean: Any, basis: Any) -> Any:
        bits = (53 - (len(basis) - 1).bit_length()) // 2
        largest = np.maximum(
            basis.max(axis=1, keepdims=True, initial=0),
            -basis.min(axis=1, keepdims=True, initial=0),
        )
        balance = np.frexp(np.asarray(largest, np.float64))[1]
        weights = np.rint(np.ldexp(np.asarray(basis, np.float64), bits - balance))
        steps = np.subtract(rows, mean, dtype=np.float64) * np.ldexp(1.0, balance.T)
        unit = np.frexp(np.abs(steps).max(axis=1, keepdims=True))[1] - bits
        return np.ldexp(np.rint(np.ldexp(steps, -unit)) @ weights, unit - bits)

    patch.setattr(embedding, "project", project)


# what a reply says


@found_by("errors")
@fails(
    f"{CLIENT_APP}::test_no_handler_lets_an_error_out",
    red="+ ValueError: the patients' mean",
    attack="5",
)
def errors_leave_handlers(patch: pytest.MonkeyPatch) -> None:
    """Errors cross as Flower lets them."""
    handlers_of_app = client_app.app._registered_funcs
    for name, redacted in list(handlers_of_app.items()):
        patch.setitem(handlers_of_app, name, redacted.__wrapped__)  # type: ignore[attr-defined]


@found_by("errors")
def errors_leave_a_drop_in(patch: pytest.MonkeyPatch) -> None:
    """Errors cross as Flower lets them, from a client that fedaux only scores."""
    patch.setattr(dropin_client, "redact_errors", lambda handler: handler)


@found_by("oracle")
def evaluates_again(patch: pytest.MonkeyPatch) -> None:
    """A handler tells how many records a model gets right."""

    def evaluate(message: Message, context: Context) -> Message:
        return Message(
            RecordDict({"fedaux": ConfigRecord({"correct": 7})}), reply_to=message
        )

    patch.setitem(client_app.app._registered_funcs, "evaluate.default", evaluate)


@found_by("hello")
def classes_by_record(patch: pytest.MonkeyPatch) -> None:
    """Hello tells the classes that the records have."""

    def names_in_records(config: Config, client: str) -> tuple[str, ...]:
        corpus = federated._open_corpus(config.data)
        return federated.named_by_numbers(corpus).classes

    patch.setattr(handlers, "class_names", names_in_records)


@found_by("fields")
def extra_field(patch: pytest.MonkeyPatch) -> None:
    """A reply has one more field than anybody classified."""
    make_reply = serialization.make_reply

    def reply(message: Message, item: Any) -> Message:
        packed = make_reply(message, item)
        packed.content["fedaux"]["mean"] = 0.5  # type: ignore[index]
        return packed

    patch.setattr(client_app, "make_reply", reply)


@found_by("fields")
def seconds_are_told(patch: pytest.MonkeyPatch) -> None:
    """A reply tells how long private training took."""
    make_reply = serialization.make_reply

    def reply(message: Message, item: Any) -> Message:
        timed = (
            replace(item, seconds=time.perf_counter())
            if isinstance(item, Update)
            else item
        )
        return make_reply(message, timed)

    patch.setattr(client_app, "make_reply", reply)


@found_by("declared-size")
@fails(
    "unit/privacy/test_units.py::test_the_size_that_replies_state_is_the_same_for_neighbours",
    red="AssertionError",
    attack="20",
)
def records_are_counted(patch: pytest.MonkeyPatch) -> None:
    """Replies state how many records there are, whatever was declared."""
    for module in (units, releases, handlers, client_training):
        patch.setattr(module, "public_size", lambda records, privacy: len(records))


@found_by("printed")
def ledger_rounds_to_nearest(patch: pytest.MonkeyPatch) -> None:
    """The statement of a run prints ε to three digits, up or down."""
    patch.setattr(ledger, "round_up", lambda epsilon: f"{epsilon:.3g}")


@found_by("printed")
def account_rounds_to_nearest(patch: pytest.MonkeyPatch) -> None:
    """The account of a site prints ε to three digits, up or down."""
    patch.setattr(site_account, "round_up", lambda epsilon: f"{epsilon:.3g}")


# what a client keeps


@found_by("kept-state")
@fails(
    "attacks/test_kept_state.py::test_records_of_plain_training_do_not_reach_a_private_model",
    red="assert sent[0] == sent[1]",
    attack="18",
)
def plain_and_private_state_share_a_file(patch: pytest.MonkeyPatch) -> None:
    """The state of a method after plain training is where private training begins."""
    patch.setattr(
        ClientState, "_stem", property(lambda self: f"state-{hashed_name(self.client)}")
    )


@fails(
    "unit/messages/test_identity.py::test_what_a_field_changes_follows_from_its_part",
    red="AssertionError",
    attack="1",
)
def what_the_server_has_heard_changes_an_order(patch: pytest.MonkeyPatch) -> None:
    """An order that is sent again is another one if the server has heard more since."""
    module = import_module("fedaux.messages.identity")  # its function has the same name
    parts = module._parts
    patch.setattr(
        module, "_parts", lambda order, *wanted: parts(order, *wanted, Part.CARRIER)
    )


@fails(
    f"{ACCOUNT}::test_the_same_training_is_paid_for_once_and_its_model_stays",
    red="another round was planned",
    attack="1",
)
def trained_model_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    """A client keeps no trained model, so the same order is planned, paid for and
    trained again.
    """
    answer = BudgetStore.answer

    def answer_again(
        self: BudgetStore, request: str, path: Path, *rest: Any, **more: Any
    ) -> bytes:
        path.unlink(missing_ok=True)
        return answer(self, request, path, *rest, **more)

    patch.setattr(BudgetStore, "answer", answer_again)


@fails(
    f"{ACCOUNT}::test_a_killed_training_goes_on_at_the_noise_of_its_entry",
    red="another round was planned",
    attack="1",
)
@fails(
    f"{FAULTS}::test_whatever_happens_each_round_is_paid_for_once_and_the_result_is_the_same[0]",
    red="no budget is left for the rounds that are",
    attack="1",
)
def killed_training_is_paid_for_again(patch: pytest.MonkeyPatch) -> None:
    """Training that was killed is entered once more, although nothing of it was
    sent.
    """
    patch.setattr(account, "_open_attempts", lambda entries: [])


@fails(
    "unit/flower/test_federation.py::test_an_order_without_an_answer_is_sent_again",
    red="At index 1 diff: <class 'fedaux.core.failures.Failure'>",
    attack="1",
)
def orders_are_sent_once(patch: pytest.MonkeyPatch) -> None:
    """The server gives up an order whose answer was lost, whatever the settings say."""
    ask = GridFederation.ask

    def ask_once(self: GridFederation, orders: Sequence[DataOrder]) -> Iterator[Any]:
        self.retries = 0
        return ask(self, orders)

    patch.setattr(GridFederation, "ask", ask_once)


@found_by("questions", "many-names")
@fails(
    f"{CLIENT_APP}::test_the_same_request_gets_the_same_bytes",
    red="array_equal",
    attack="1",
)
def answers_are_not_stored(patch: pytest.MonkeyPatch) -> None:
    """A question that is asked again gets new noise."""

    def answer(
        self: BudgetStore,
        request: str,
        path: Path,
        plan: Any,
        read: Any,
        draw: Any,
        *known_entries: Any,
    ) -> bytes:
        with self._locked() as entries:
            mechanism = plan([entry for entry in entries if entry.mechanism.steps > 0])
            entry = Entry(request, mechanism, self.privacy.unsafe_seed >= 0)
            if request not in {earlier.request for earlier in entries}:
                self._check_total(entries, entry)
                self._append(entry)
            content: bytes = draw(entry.mechanism, read())
            path.write_bytes(content)
            return content

    patch.setattr(BudgetStore, "answer", answer)


# the account


@found_by("questions")
def account_is_not_written(patch: pytest.MonkeyPatch) -> None:
    """Nothing is entered in the account."""
    patch.setattr(BudgetStore, "_append", lambda self, entry: None)


@found_by("questions")
def uncapped(patch: pytest.MonkeyPatch) -> None:
    """Entries are written, and nothing is refused for what it would bring the
    total to.
    """
    total = BudgetStore._total
    patch.setattr(
        BudgetStore,
        "_total",
        lambda self, entries: 0.0 if entries else total(self, entries),
    )


@found_by("rounds-raised")
def only_rounds_are_capped(patch: pytest.MonkeyPatch) -> None:
    """A plan is for so many rounds, whatever was spent before; nothing but the number
    of rounds is capped.
    """
    uncapped(patch)
    plan = accounting.plan_training

    def plan_anew(
        privacy: Any,
        local: Any,
        size: int,
        rounds: int,
        parameters: int,
        before: Any,
        last: float,
    ) -> Any:
        return plan(privacy, local, size, rounds + len(before), parameters)

    patch.setattr(client_training, "plan_training", plan_anew)


@found_by("half-way")
def any_entry(patch: pytest.MonkeyPatch) -> None:
    """A question that has an entry is answered, whatever noise the entry states."""
    answer = BudgetStore.answer

    def answer_as_entered(
        self: BudgetStore, request: str, path: Path, plan: Any, *rest: Any, **more: Any
    ) -> bytes:
        entries = read_account(self.folder)[1]
        entered = [entry.mechanism for entry in entries if entry.request == request]
        return answer(
            self,
            request,
            path,
            lambda before: entered[0] if entered else plan(before),
            *rest,
            **more,
        )

    patch.setattr(BudgetStore, "answer", answer_as_entered)


@found_by("wrong-size")
def any_size(patch: pytest.MonkeyPatch) -> None:
    """The size that an order states is entered, whatever its public arrays make of it."""
    _redeclare(patch, orders.PrepareOrder, "size", type=Number(1, 2**62))

    def plan_for_stated_size(self: releases.Releases, order: Any) -> Any:
        mechanism = accounting.release_mechanism(order.size, self.privacy)
        return lambda entries: mechanism

    summary = releases.Releases.summary

    def summary_of_any_size(self: releases.Releases, order: Any) -> Any:
        size = releases.make_scorer(self.privacy, order.classes).size(order.public)
        return summary(self, replace(order, size=size))

    patch.setattr(releases.Releases, "_plan", plan_for_stated_size)
    patch.setattr(releases.Releases, "summary", summary_of_any_size)


@found_by("many-names")
def account_by_name(patch: pytest.MonkeyPatch) -> None:
    """There is an account for every name, whichever records they have."""
    patch.setattr(
        client_site, "account_folder", lambda config, vault, name: vault / name
    )


@found_by("seeded")
@fails(
    f"{ACCOUNT}::test_noise_from_a_known_seed_makes_the_account_worthless",
    red="AssertionError",
    attack="21",
)
def seeds_are_forgotten(patch: pytest.MonkeyPatch) -> None:
    """The owner's total does not know that its noise was seeded."""

    def total(entries: Any, delta: float, adjacency: str) -> float:
        return accounting.total_epsilon(
            [entry.mechanism for entry in entries], delta, adjacency
        )

    for module in (account, site_account):
        patch.setattr(module, "account_epsilon", total)


@found_by("reported")
def training_is_not_reported(patch: pytest.MonkeyPatch) -> None:
    """The account that a client reports leaves training out."""
    total = BudgetStore._account

    def total_of_releases(self: BudgetStore, entries: list[Entry]) -> Account:
        return total(self, [entry for entry in entries if not entry.trains])

    patch.setattr(BudgetStore, "_account", total_of_releases)


@found_by("lost-replies")
def only_history_is_counted(patch: pytest.MonkeyPatch) -> None:
    """The server adds up the rounds that it kept."""

    def of(
        cls: Any,
        releases: Any,
        accounts: Any,
        awaiting_reply: Any,
        history: Any,
        *_more: Any,
        **_options: Any,
    ) -> Any:
        spent: dict[str, list[Mechanism]] = {}
        for result in history:
            for name, training in result.private_training.items():
                spent.setdefault(name, []).append(
                    Mechanism(training.noise, training.rate, training.steps)
                )
        totals = {
            name: replace(
                accounts[name],
                epsilon=accounting.total_epsilon(
                    mechanisms, 1e-5, accounts[name].adjacency
                ),
            )
            for name, mechanisms in spent.items()
        }
        return cls(
            releases,
            totals,
            {name: len(rounds) for name, rounds in spent.items()},
            0,
            awaiting_reply,
        )

    patch.setattr(ledger.Ledger, "of", classmethod(of))


@found_by("old-copy")
@fails(
    f"{CLIENT_APP}::test_an_old_copy_of_a_vault_is_refused_and_a_count_that_was_made_up_is_not",
    red="== Failure(",
    attack="12",
)
def old_copy_of_a_vault_answers(patch: pytest.MonkeyPatch) -> None:
    """What the server has heard of before is not asked."""
    patch.setattr(
        BudgetStore,
        "_check_known",
        lambda self, entries, known_entries, signature: None,
    )


@fails(
    "end_to_end/test_private_run.py::test_an_old_copy_of_a_vault_trains_no_more",
    red="== Failure(",
    attack="12",
)
def old_copy_of_a_vault_trains(patch: pytest.MonkeyPatch) -> None:
    """Private training does not ask what the server has heard of before."""
    with_noise = AnswerStore.with_noise

    def without_count(self: AnswerStore, order: DataOrder, *rest: Any) -> bytes:
        trains = isinstance(order, TrainOrder)
        unasked = {"known_entries": 0, "known_signature": ""} if trains else {}
        return with_noise(self, replace(order, **unasked), *rest)

    patch.setattr(AnswerStore, "with_noise", without_count)


@fails(
    f"{ACCOUNT}::test_a_count_that_the_client_never_signed_does_not_shut_it_out",
    red="this is an old copy of the account",
    attack="12",
)
def made_up_counts_are_believed(patch: pytest.MonkeyPatch) -> None:
    """A server can shut a client out by a number of entries that it has made up."""
    patch.setattr(account, "verify_count", lambda folder, entries, signature: True)


# settings of a deployment


@fails(
    "unit/deploy/test_layout.py::test_settings_are_what_was_asked_for",
    red="registered_only=False",
    attack="3",
)
def deployments_demand_no_names(patch: pytest.MonkeyPatch) -> None:
    """The settings of a new deployment let nodes take part under any name."""
    server_config = layout.server_config

    def lenient_config(*arguments: Any) -> Config:
        config = server_config(*arguments)
        return replace(
            config, federation=replace(config.federation, registered_only=False)
        )

    patch.setattr(layout, "server_config", lenient_config)


@fails(
    "unit/deploy/test_supernode.py::test_a_clock_that_is_wrong_is_named_when_the_node_ends",
    red="assert 'clock is +2' in ''",
    attack="13",
)
def clock_may_be_a_minute_ahead(patch: pytest.MonkeyPatch) -> None:
    """A clock counts as right although Flower refuses it."""
    patch.setattr(checks, "MAX_AHEAD", 60.0)
    patch.setattr(checks, "MAX_BEHIND", 600.0)


# secure sums and approvals


@fails(
    f"{SECURE_SUM}::test_keys_that_the_server_made_up_or_altered_are_refused",
    red="DID NOT RAISE",
    attack="23",
)
def signatures_are_not_verified(patch: pytest.MonkeyPatch) -> None:
    """A message counts as that of a site whoever has signed it."""
    patch.setattr(SumSettings, "verify", lambda self, name, signature, message: None)


@fails(
    f"{SECURE_SUM}::test_a_site_signs_one_set_of_survivors_that_has_itself_in_it",
    red="DID NOT RAISE",
    attack="24",
)
def second_set_of_survivors_is_signed(patch: pytest.MonkeyPatch) -> None:
    """A site signs every set of survivors that it is asked for."""
    agree = SiteState.agree
    patch.setattr(
        SiteState,
        "agree",
        lambda self, survivors, key: agree(replace(self, survivors=()), survivors, key),
    )


@fails(
    f"{SECURE_SUM}::test_nothing_is_unmasked_without_t_signatures_of_one_set",
    red="DID NOT RAISE",
    attack="24",
)
def signatures_count_in_later_sums(patch: pytest.MonkeyPatch) -> None:
    """What a site signs does not depend on the keys of this sum."""

    def signed(
        settings: SumSettings, keys: Mapping[str, Keys], names: tuple[str, ...]
    ) -> bytes:
        return b"survivors" + settings.context + json.dumps(sorted(names)).encode()

    patch.setattr(sum_site, "survivors_signed", signed)


@fails(
    f"{SECURE_SUM}::test_nothing_is_unmasked_without_t_signatures_of_one_set",
    red="DID NOT RAISE",
    attack="25",
)
def any_number_of_sites_is_enough(patch: pytest.MonkeyPatch) -> None:
    """A site does not count how many others are left."""
    patch.setattr(SiteState, "_enough", lambda self, names: None)


@fails(
    f"{CLIENT_SUMS}::test_without_noise_a_second_sum_over_one_site_less_is_refused",
    red="DID NOT RAISE",
    attack="26",
)
def sums_without_noise_are_repeated(patch: pytest.MonkeyPatch) -> None:
    """A client takes part in any number of sums without noise."""
    patch.setattr(AnswerStore, "only_once", lambda self, what, request: None)


@fails(
    f"{CLIENT_SUMS}::test_a_forgotten_sum_without_noise_is_not_answered_again",
    red="DID NOT RAISE",
    attack="26",
)
def forgotten_sum_without_noise_is_repeated(patch: pytest.MonkeyPatch) -> None:
    """A sum under other keys counts as the same if its terms are."""
    only_once = AnswerStore.only_once
    patch.setattr(
        AnswerStore,
        "only_once",
        lambda self, what, request: only_once(self, what, what),
    )


@fails(
    f"{CLIENT_SUMS}::test_a_forgotten_sum_gets_fresh_keys_and_so_another_request",
    red="assert 1 == 2",
    attack="27",
)
def sums_share_their_noise(patch: pytest.MonkeyPatch) -> None:
    """All sums of a run are the same request to the account."""

    def hash_of_run(self: Participation, state: SiteState) -> str:
        return hashlib.sha256(state.settings.run.encode()).hexdigest()

    patch.setattr(Participation, "own_hash", hash_of_run)


@fails(
    f"{CLIENT_SUMS}::test_the_same_question_gets_the_same_bytes_and_another_is_refused",
    red="DID NOT RAISE",
    attack="28",
)
def all_questions_of_a_step_are_the_same(patch: pytest.MonkeyPatch) -> None:
    """A step that is repeated with other keys, sites or signatures counts as the same
    question.
    """
    patch.setattr(secure_sums, "fingerprint_arrays", lambda arrays: "the question")


@fails(
    f"{CLIENT_SUMS}::test_terms_that_the_site_does_not_accept[changes1-with 1]",
    red="DID NOT RAISE",
    attack="30",
)
def server_chooses_the_terms(patch: pytest.MonkeyPatch) -> None:
    """The terms of a sum say how many sites may collude, whatever the site's own
    settings say.
    """
    check = Participation.of.__func__  # type: ignore[attr-defined]

    def of(
        cls: type[Participation], order: SumOrder | DataOrder, site: Site
    ) -> Participation:
        federation = replace(
            site.config.federation, colluders=SumTerms.from_json(order.sum).colluders
        )
        lenient = replace(site, config=replace(site.config, federation=federation))
        checked: Participation = check(cls, order, lenient)
        return checked

    patch.setattr(Participation, "of", classmethod(of))


@fails(
    "unit/client/test_approvals.py::test_an_order_waits_for_its_owner",
    red="DID NOT RAISE ApprovalError",
    attack="31",
)
def orders_need_no_approval(patch: pytest.MonkeyPatch) -> None:
    """A site answers orders that belong to no plan which its owner has approved."""
    patch.setattr(gate, "check_approval", lambda order, site: None)


@fails(
    f"{CLIENT_SUMS}::test_a_real_site_has_its_own_roster",
    red="DID NOT RAISE SettingsError",
    attack="32",
)
def roster_names_a_key_twice(patch: pytest.MonkeyPatch) -> None:
    """A roster may have one key under two names."""

    def read(path: Path) -> dict[str, bytes]:
        return {
            name: bytes.fromhex(key)
            for name, key in json.loads(path.read_bytes())["sites"].items()
        }

    patch.setattr(roster, "read_roster", read)
    patch.setattr(secure_sums, "read_roster", read)


@fails(
    f"{CLIENT_SUMS}::test_a_real_site_has_its_own_roster",
    red="DID NOT RAISE OrderError",
    attack="32",
)
def site_is_in_a_sum_twice(patch: pytest.MonkeyPatch) -> None:
    """A client takes part in a secure sum under two names with one account."""
    check = Participation.of.__func__  # type: ignore[attr-defined]

    def of(
        cls: type[Participation], order: SumOrder | DataOrder, site: Site
    ) -> Participation:
        alone: Participation = check(cls, order, replace(site, clients=(order.client,)))
        return replace(alone, site=site)

    patch.setattr(Participation, "of", classmethod(of))
