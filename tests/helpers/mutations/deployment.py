"""Mutations of servers and sites that are deployed: the SuperLink, the SuperNode, their
scripts, keys, certificates.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from flwr.supercore.superexec.executor.types import ExecutionSpec, LaunchResult
from uvicorn.protocols.http.auto import AutoHTTPProtocol

from fedaux.deploy import flower_patches, membership, run_control, superlink, supernode
from fedaux.deploy.link import ControlLink
from fedaux.deploy.run_control import RunControl
from fedaux.deploy.superlink import (
    ConnectionPhase,
    ConnectionRate,
    LimitedProtocol,
    Waiting,
)
from helpers.mutations.registry import fails

RUN_CONTROL = "unit/deploy/test_run_control.py"
SUPERLINK = "unit/deploy/test_superlink.py"
SUPERNODE = "unit/deploy/test_supernode.py"
LOCAL_USERS = (
    "end_to_end/test_local_users.py::test_another_user_gets_neither_orders_nor_tokens"
)
FLOWERS_SERVER = (
    f"{SUPERLINK}::test_flowers_own_server_answers_strangers_only_about_the_fleet"
)


@fails(
    f"{RUN_CONTROL}::test_a_run_that_goes_on_is_attended_and_no_second_one_started",
    red="assert 1 == 0",
    attack="2",
)
def living_run_is_not_found(patch: pytest.MonkeyPatch) -> None:
    """run.sh starts a second run beside the one that goes on."""
    patch.setattr(RunControl, "living", lambda self: "")


@fails(
    f"{RUN_CONTROL}::test_a_restart_of_the_server_is_waited_for_and_no_line_is_shown_twice",
    red="the server has not answered for 600 s",
    attack="2",
)
def restart_is_not_waited_for(patch: pytest.MonkeyPatch) -> None:
    """run.sh gives a server up after it has been silent once."""
    patch.setattr(run_control, "PAUSE", run_control.SILENCE_LIMIT)


@fails(
    f"{RUN_CONTROL}::test_the_exit_code_is_that_of_the_run",
    red="assert 0 == <Exit.NEGATIVE: 1>",
    attack="11",
)
def failed_run_counts_as_complete(patch: pytest.MonkeyPatch) -> None:
    """Whatever becomes of a run, it counts as complete."""
    control = RunControl.main

    def main(self: RunControl, words: Sequence[str]) -> int:
        control(self, words)
        return 0

    patch.setattr(RunControl, "main", main)


@fails(
    "end_to_end/test_deploy_scripts.py::test_run_ends_as_the_run_ends",
    red=r"assert (0, 'round 1/1\n') == (1, 'round 1/1\n')",
    attack="11",
)
def script_drops_the_exit_code(patch: pytest.MonkeyPatch) -> None:
    """The process behind run.sh ends with 0, whatever it has found out about the
    run.
    """
    leave = sys.exit
    patch.setattr(sys, "exit", lambda code=0: leave(0))


@fails(
    "unit/deploy/test_membership.py::test_a_site_joins",
    red="KeyError: 'oslo'",
    attack="3",
)
def keys_are_registered_without_names(patch: pytest.MonkeyPatch) -> None:
    """The server registers a site's key, but not whose it is."""
    register_key = membership.register_key
    patch.setattr(
        membership, "register_key", lambda key, name, link: register_key(key, "", link)
    )


@fails(
    "unit/deploy/test_link.py::test_keys_are_sent_as_flower_sends_them",
    red="assert '' == 'berlin'",
    attack="e",
)
def names_are_not_sent_to_flower(patch: pytest.MonkeyPatch) -> None:
    """Flower's own list of nodes has keys and no names."""
    register = ControlLink.register
    patch.setattr(
        ControlLink,
        "register",
        lambda self, public_key, name: register(self, public_key, ""),
    )


@fails(
    "unit/deploy/test_membership.py::test_a_certificate_is_renewed_for_the_same_hosts_by_the_same_authority",
    red="not_valid_after",
    attack="f",
)
def renewed_certificate_is_not_written(patch: pytest.MonkeyPatch) -> None:
    """The server keeps its old certificate beside the key of the new one."""
    write = membership.write_atomically

    def write_all_but_certificates(
        path: Path, content: bytes, private: bool = False
    ) -> None:
        if path.suffix != ".pem":
            write(path, content, private=private)

    patch.setattr(membership, "write_atomically", write_all_but_certificates)


@fails(
    f"{SUPERNODE}::test_orders_are_taken_at_the_socket",
    red="ConnectError: [Errno 2] No such file",
    attack="4",
)
def orders_are_served_at_a_port(patch: pytest.MonkeyPatch) -> None:
    """A node's local API listens at a TCP port, which every user of the machine may
    call.
    """
    patch.setattr(flower_patches, "serve_at_socket", lambda path: None)


@fails(LOCAL_USERS, red="assert [False] == [True]", attack="4")
def socket_is_open_to_all_users(patch: pytest.MonkeyPatch) -> None:
    """The folder of a node's socket lets every user of the machine in, and the node
    does not notice.
    """
    private_socket = supernode.private_socket

    @contextmanager
    def open_socket() -> Iterator[Path]:
        with private_socket() as path:
            path.parent.chmod(0o755)
            yield path

    patch.setattr(supernode, "private_socket", open_socket)
    patch.setattr(flower_patches, "check_socket", lambda path: path.chmod(0o777))


@fails(
    f"{SUPERNODE}::test_a_token_goes_through_a_pipe_alone",
    red="'s3cret' is contained here",
    attack="4",
)
def token_is_on_the_command_line(patch: pytest.MonkeyPatch) -> None:
    """The token of an order is in the list of processes, as Flower has it."""

    def launch(executor: object, spec: ExecutionSpec) -> LaunchResult:
        program = [sys.executable, "-X", spec.token, "-m", supernode.__name__]
        words = [*program, "clientapp", spec.runtime_api_address, str(os.getpid())]
        process = subprocess.Popen(words, stdin=subprocess.PIPE)
        assert process.stdin
        process.stdin.write(spec.token.encode())
        process.stdin.close()
        return LaunchResult.accepted()

    patch.setattr(supernode, "launch", launch)


@fails(LOCAL_USERS, red="assert not [b'", attack="4")
def token_is_in_the_environment(patch: pytest.MonkeyPatch) -> None:
    """The token of an order is in the environment of the process that works on it."""
    launches_with = flower_patches.superexec_launches_with

    def leaking(launch: Callable[[Any, Any], object]) -> None:
        def launch_with_token(executor: object, spec: ExecutionSpec) -> object:
            patch.setenv("TOKEN", spec.token)
            return launch(executor, spec)

        launches_with(launch_with_token)

    patch.setattr(flower_patches, "superexec_launches_with", leaking)


@fails(
    f"{SUPERNODE}::test_the_node_says_so_however_it_ends",
    red="The node has ended: this machine's clock is +20 s.",
    attack="13",
)
def wrong_clock_is_not_named(patch: pytest.MonkeyPatch) -> None:
    """A node that was refused ends without a word on its clock."""
    patch.setattr(supernode, "log_clock_problem", lambda words: None)


@fails(
    f"{SUPERNODE}::test_an_archive_that_lies_about_its_sizes_is_read_no_further_than_the_limit",
    red="< (10 ** 7)",
    attack="a",
)
def bundle_is_read_without_end(patch: pytest.MonkeyPatch) -> None:
    """A node reads all of a project's settings, however long they are."""

    def read_project(archive: zipfile.ZipFile) -> str:
        return archive.read(supernode.PROJECT).decode()

    patch.setattr(supernode, "read_project", read_project)


@fails(
    f"{SUPERNODE}::test_any_other_app_is_refused",
    red="'more than 65,536 bytes' in ''",
    attack="a",
)
def bundle_may_have_any_size(patch: pytest.MonkeyPatch) -> None:
    """A node accepts apps of a gigabyte."""
    patch.setattr(supernode, "MAX_BUNDLE_BYTES", 10**9)


@fails(f"{SUPERNODE}::test_any_other_app_is_refused", red="KeyError", attack="b")
def odd_bundle_ends_in_an_error(patch: pytest.MonkeyPatch) -> None:
    """An archive that is no app ends in an error instead of a refusal."""
    patch.setattr(supernode, "rejection_reason", supernode.bundle_problem)


@fails(
    f"{SUPERNODE}::test_any_other_app_is_refused",
    red="'name, version or publisher' in ''",
    attack="c",
)
def app_may_have_any_name(patch: pytest.MonkeyPatch) -> None:
    """Flower's installer makes a folder of whatever an app calls itself."""
    patch.setattr(supernode, "PLAIN", re.compile(".*", re.DOTALL))


@fails(
    f"{SUPERLINK}::test_a_body_that_says_it_is_longer_is_not_read",
    red="TimeoutError: timed out",
    attack="8",
)
def long_body_is_read(patch: pytest.MonkeyPatch) -> None:
    """A body may have any length, and counts as empty."""
    patch.setattr(superlink, "body_size", lambda headers: 0)


@fails(
    f"{SUPERLINK}::test_a_body_that_does_not_say_so_is_not_read",
    red="200 OK",
    attack="8",
)
def body_need_not_say_its_length(patch: pytest.MonkeyPatch) -> None:
    """A body that does not say how long it is counts as empty, and is read to its
    end.
    """

    def stated_size(headers: Mapping[bytes, bytes]) -> int | None:
        size = int(headers.get(b"content-length", b"0"))
        return size if size <= superlink.MAX_BODY else None

    patch.setattr(superlink, "body_size", stated_size)


@fails(
    f"{SUPERLINK}::test_a_body_that_was_refused_is_not_read_and_thrown_away",
    red="DID NOT RAISE ConnectionError",
    attack="8",
)
def refused_body_is_read_and_thrown_away(patch: pytest.MonkeyPatch) -> None:
    """Uvicorn reads whatever comes, also after a request was refused."""
    patch.setattr(LimitedProtocol, "data_received", AutoHTTPProtocol.data_received)


@fails(
    f"{SUPERLINK}::test_one_machine_cannot_take_all_connections",
    red="TimeoutError: timed out",
    attack="8",
)
def machine_holds_any_number_of_connections(patch: pytest.MonkeyPatch) -> None:
    """One machine may hold all connections of the server."""
    patch.setattr(LimitedProtocol, "_has_too_many", lambda self, address: False)


@fails(
    f"{SUPERLINK}::test_a_request_that_does_not_arrive_is_given_up",
    red="TimeoutError: timed out",
    attack="8",
)
def half_open_request_is_waited_for(patch: pytest.MonkeyPatch) -> None:
    """The server waits without end for a request that does not arrive."""
    patch.setattr(Waiting, "stalled_since", lambda self, before: False)


@fails(
    f"{SUPERLINK}::test_a_second_request_that_does_not_arrive_is_given_up_too",
    red="TimeoutError: timed out",
    attack="8",
)
def later_half_open_request_is_waited_for(patch: pytest.MonkeyPatch) -> None:
    """The server gives up a connection's first request that does not arrive, but no
    later one.
    """
    stalled_since = Waiting.stalled_since

    def first_request_stalled(self: Waiting, before: Waiting) -> bool:
        first = self.newest is None or self.phase is ConnectionPhase.BODY
        return first and stalled_since(self, before)

    patch.setattr(Waiting, "stalled_since", first_request_stalled)


@fails(
    f"{SUPERLINK}::test_a_machine_that_connects_too_often_is_hung_up_on_before_tls",
    red="TimeoutError: timed out",
    attack="8",
)
def machine_connects_as_often_as_it_likes(patch: pytest.MonkeyPatch) -> None:
    """The server does not count new connections."""
    patch.setattr(ConnectionRate, "allows", lambda self, machine: True)


@fails(
    f"{SUPERLINK}::test_headers_have_an_end",
    red="DID NOT RAISE ConnectionError",
    attack="8",
)
def headers_have_no_end(patch: pytest.MonkeyPatch) -> None:
    """The headers of a request may have a gigabyte."""
    patch.setattr(superlink, "MAX_HEAD", 10**9)


@fails(
    f"{SUPERLINK}::test_no_connection_becomes_a_websocket",
    red="AssertionError",
    attack="8",
)
def connection_becomes_a_websocket(patch: pytest.MonkeyPatch) -> None:
    """Uvicorn takes WebSockets, which it no longer counts among a machine's
    connections.
    """
    _leave_to_uvicorn(patch, "ws")


@fails(
    f"{SUPERLINK}::test_who_calls_is_whom_the_connection_comes_from",
    red="caller: 192.0.2.7",
    attack="9",
)
def headers_say_who_calls(patch: pytest.MonkeyPatch) -> None:
    """The server believes a proxy's headers, whoever sends them."""
    _leave_to_uvicorn(patch, "proxy_headers", "forwarded_allow_ips")


def _leave_to_uvicorn(patch: pytest.MonkeyPatch, *names: str) -> None:
    """Let the caller, or else uvicorn, choose these options."""
    pinned_options = superlink.pinned_options

    def other_options() -> dict[str, Any]:
        return {
            name: value for name, value in pinned_options().items() if name not in names
        }

    patch.setattr(superlink, "pinned_options", other_options)


@fails(
    f"{SUPERLINK}::test_whom_a_connection_counts_on", red="2001:db8::/64", attack="8"
)
def each_ipv6_address_counts_alone(patch: pytest.MonkeyPatch) -> None:
    """An IPv6 machine counts as another one at each of its 2⁶⁴ addresses."""
    patch.setattr(
        superlink, "machine", lambda address: str(superlink._parsed(address) or address)
    )


@fails(FLOWERS_SERVER, red="is <function serve", attack="8")
def flowers_server_is_started_without_limits(patch: pytest.MonkeyPatch) -> None:
    """Flower starts uvicorn by itself, without the limits."""
    patches = {**vars(flower_patches), "serve_superlink_with": lambda serve: None}
    patch.setattr(superlink, "flower_patches", SimpleNamespace(**patches))


@fails(FLOWERS_SERVER, red="== 413", attack="8")
def flowers_server_limits_no_site(patch: pytest.MonkeyPatch) -> None:
    """Flower's own server does not limit what a site may ask for."""
    patch.setattr(superlink, "OWN", superlink.OWN[:2])


@fails(FLOWERS_SERVER, red="assert set() ==", attack="9")
def control_api_answers_everybody(patch: pytest.MonkeyPatch) -> None:
    """Every machine counts as this one, and so may start apps and register keys."""
    patch.setattr(superlink, "is_local", lambda client: True)
