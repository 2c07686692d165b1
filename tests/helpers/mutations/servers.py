"""Mutations of the server of a run: its folder, its networks, its nodes; and of how
errors leave a site.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from flwr.app import Error, Message

from fedaux.config.prototype import PrototypeSpec
from fedaux.flower import error_redaction, node_registry
from fedaux.flower import server_app as flower_server_app
from fedaux.flower.in_process import CLIENT_EXCEPTION
from fedaux.flower.node_registry import NodeRegistry
from fedaux.runs import region_app, run_lock, server_app, session
from fedaux.runs.run_lock import RunLock
from fedaux.server import server
from fedaux.server.run_state import RunState
from fedaux.server.run_writer import RunWriter
from helpers.mutations.registry import fails, found_by

REDACTION = "unit/flower/test_error_redaction.py"
RUNNER = "unit/runs/test_runner.py"
RUN_LOCK = "unit/runs/test_run_lock.py"
REGISTRY = "unit/flower/test_node_registry.py"
SITES_COME_AND_GO = f"{RUNNER}::test_sites_that_leave_and_come_do_not_end_a_run_nor_change_the_prototypes_of_others"
Deal = dict[str, PrototypeSpec]


@fails(
    f"{RUN_LOCK}::test_a_second_writer_is_refused_and_told_who_is_there",
    red="DID NOT RAISE LockedError",
    attack="2",
)
def folder_has_two_writers(patch: pytest.MonkeyPatch) -> None:
    """A lock keeps no other process out."""
    unlocked = SimpleNamespace(flock=lambda file, operation: None, LOCK_EX=2, LOCK_NB=4)
    patch.setattr(run_lock, "fcntl", unlocked)


@fails(
    f"{RUN_LOCK}::test_a_writer_on_another_machine_counts_while_it_shows_signs_of_life",
    red="DID NOT RAISE LockedError",
    attack="2",
)
def writer_elsewhere_does_not_count(patch: pytest.MonkeyPatch) -> None:
    """A lock does not look for a writer on another machine."""
    patch.setattr(RunLock, "_lives_elsewhere", lambda self: False)


@fails(
    f"{RUNNER}::test_a_run_that_lost_its_folder_to_another_process_saves_nothing_more",
    red="DID NOT RAISE LockedError",
    attack="2",
)
def lost_folder_is_written_to(patch: pytest.MonkeyPatch) -> None:
    """A run does not ask whether its folder is still its own."""
    run_in_folder = session.run_in_folder
    patch.setattr(
        session,
        "run_in_folder",
        lambda *run, lock=None, **more: run_in_folder(*run[:6], **more),
    )


@fails(
    "end_to_end/test_server_app.py::test_a_second_server_in_the_same_folder_asks_nobody",
    red="MissingSitesError",
    attack="2",
)
def server_app_locks_another_folder(patch: pytest.MonkeyPatch) -> None:
    """A server locks a folder that no other server writes to."""
    patch.setattr(server_app, "RunLock", lambda folder: RunLock(folder / "elsewhere"))


@fails(
    "end_to_end/test_region_app.py::test_a_second_server_of_a_region_asks_nobody",
    red="MissingSitesError",
    attack="2",
)
def region_app_locks_another_folder(patch: pytest.MonkeyPatch) -> None:
    """A region's server locks a folder that no other server writes to."""
    patch.setattr(region_app, "RunLock", lambda folder: RunLock(folder / "elsewhere"))


@fails(
    "end_to_end/test_server_app.py::test_a_vault_from_an_old_backup_answers_no_new_run",
    red="accounts.json",
    attack="12",
)
def server_forgets_accounts_between_runs(patch: pytest.MonkeyPatch) -> None:
    """A server does not remember in the next run how much its sites have spent in this
    one.
    """
    patch.setattr(
        server_app, "accounts_file", lambda folder: folder / server_app.SPENDING_FILE
    )


@fails(
    f"{REGISTRY}::test_a_node_speaks_for_the_name_of_its_key_and_for_nobody_else",
    red="{'oslo': 2} != {'oslo': 3}",
    attack="3",
)
def node_speaks_for_any_site(patch: pytest.MonkeyPatch) -> None:
    """A node takes part under whatever names it claims."""
    patch.setattr(NodeRegistry, "_foreign", lambda self, registered, clients: "")


@fails(
    "unit/flower/test_server_app.py::test_where_names_are_demanded_keys_without_one_take_no_part",
    red="DID NOT RAISE MissingSitesError",
    attack="3",
)
def key_without_a_name_takes_part(patch: pytest.MonkeyPatch) -> None:
    """A server app does not pass on that a deployment demands registered names."""

    def lenient_registry(*facts: Any) -> NodeRegistry:
        return NodeRegistry(*facts[:3])

    patch.setattr(flower_server_app, "NodeRegistry", lenient_registry)


@fails(
    f"{REGISTRY}::test_a_node_that_did_not_answer_in_time_is_asked_again",
    red="assert {} == {'berlin':",
    attack="6",
)
def silence_counts_as_a_wrong_answer(patch: pytest.MonkeyPatch) -> None:
    """A node that did not answer in time is excluded for good."""
    patch.setattr(node_registry, "is_lost", lambda reply: False)


@fails(SITES_COME_AND_GO, red="KeyError: 'b'", attack="7")
def site_that_left_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    """A server no longer knows the network of a site that has left."""
    deal = server.deal

    def deal_to_present(
        clients: Sequence[str], specs: Sequence[PrototypeSpec], known: Mapping[str, str]
    ) -> Deal:
        return deal(
            clients,
            specs,
            {client: label for client, label in known.items() if client in clients},
        )

    patch.setattr(server, "deal", deal_to_present)


@fails(SITES_COME_AND_GO, red="Differing items", attack="7")
def networks_are_dealt_anew(patch: pytest.MonkeyPatch) -> None:
    """Sites get other networks as soon as one of them leaves or comes."""
    deal = server.deal

    def deal_anew(
        clients: Sequence[str], specs: Sequence[PrototypeSpec], known: Mapping[str, str]
    ) -> Deal:
        return {**dict.fromkeys(known, specs[0]), **deal(clients, specs, {})}

    patch.setattr(server, "deal", deal_anew)


@fails(SITES_COME_AND_GO, red="KeyError: 'b'", attack="7")
def networks_are_not_stored(patch: pytest.MonkeyPatch) -> None:
    """The state of a run does not say which site has which network."""
    start = RunWriter._start
    patch.setattr(
        RunWriter,
        "_start",
        lambda self, state: start(self, replace(state, assignment={})),
    )


@found_by("spare-clients")
def silence_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    """Who was asked and did not answer is not remembered."""
    with_accounts = RunState.with_accounts
    patch.setattr(
        RunState,
        "with_accounts",
        lambda self, asked, accounts: with_accounts(self, (), accounts),
    )


@fails(
    f"{REDACTION}::test_an_error_crosses_as_one_word_and_stays_in_the_log",
    red="assert 'Jane Doe 1970' == 'budget'",
    attack="5",
)
def error_leaves_with_its_text(patch: pytest.MonkeyPatch) -> None:
    """The text of an error, which may quote a record, leaves the site."""

    def reply(message: Message, error: Exception) -> Message:
        return Message(Error(CLIENT_EXCEPTION, str(error)), reply_to=message)

    patch.setattr(error_redaction, "refusal_reply", reply)


@fails(
    f"{REDACTION}::test_a_log_that_is_collected_quotes_no_record",
    red="'Jane Doe 1970' is contained here",
    attack="5",
)
def collected_log_quotes_records(patch: pytest.MonkeyPatch) -> None:
    """A log that others may collect has the whole text of an error."""
    patch.setattr(error_redaction, "without_records", str)
