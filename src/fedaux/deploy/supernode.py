"""`flower-supernode` with the same options, which runs no code but the fedaux that is
installed at the site.

Anyone who starts a Flower app sends its code to the sites, and a plain SuperNode runs
that code next to the private records: a site's settings would mean nothing. So an app is
refused here unless it only names its components, and its ClientApp is fedaux's own.

Flower serves a node's local API at a TCP port, where it hands the site's orders to any
caller: with weights, the paths of the site, and a token that answers in its name. The
token is also in the command line of the process that works on the order, for everyone
to read. Here the API is at a Unix socket that only the node's own user can open, the
kernel checks who calls, and the token goes through a pipe.

    python -m fedaux.deploy.supernode --superlink example.org:8443 ...
    # started by the first: asks for orders
    python -m fedaux.deploy.supernode superexec SOCKET PARENT
    # works on one. Its token is the standard input
    python -m fedaux.deploy.supernode clientapp SOCKET PARENT
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import tomllib
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import BytesIO
from itertools import pairwise
from logging import ERROR, WARNING
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
from flwr.common.logger import log
from flwr.supercore.constant import TaskType
from flwr.supercore.runtime import RuntimeHttpClient
from flwr.supercore.superexec.executor.types import ExecutionSpec, LaunchResult

from fedaux.core.memory import reuse_memory
from fedaux.deploy import flower_patches

if TYPE_CHECKING:
    from flwr.supercore.protobuf.client import ProtobufClientInterceptor
    from flwr.supercore.retry import RetryInvoker

CLIENT_APP = "fedaux.flower.client_app:app"
PROJECT = "pyproject.toml"
BUNDLED_FILES = {PROJECT, ".info/CONTENT"}
# of the bundle, and of each file in it: an app of names alone has some hundred
MAX_BUNDLE_BYTES = 2**16
# names and versions of which Flower makes the names of folders
PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,63}")


def rejection_reason(bundle: bytes) -> str:
    """Why this site refuses an app, given its bundle; empty if it runs it."""
    if len(bundle) > MAX_BUNDLE_BYTES:
        return (
            f"it has {len(bundle):,} bytes. An app that only has names has at most "
            f"{MAX_BUNDLE_BYTES:,}"
        )
    try:
        return bundle_problem(bundle)
    except Exception as error:  # odd archives and texts fail in many ways
        return f"it is no Flower app: {str(error)[:200]}"


def bundle_problem(bundle: bytes) -> str:
    """Return why a bundle of this size is refused, or ""; raises if it is no app."""
    with zipfile.ZipFile(BytesIO(bundle)) as archive:
        names = archive.namelist()
        large = [
            info.filename
            for info in archive.infolist()
            if info.file_size > MAX_BUNDLE_BYTES
        ]
        foreign = sorted(set(names) - BUNDLED_FILES)
        if foreign or len(names) != len(set(names)):
            return f"it contains files that are not allowed: {', '.join(foreign or names)[:200]}"
        if large:
            return f"{', '.join(large)} has more than {MAX_BUNDLE_BYTES:,} bytes"
        project = tomllib.loads(read_project(archive))
    app = project["tool"]["flwr"]["app"]
    labels = [
        project["project"]["name"],
        project["project"]["version"],
        app["publisher"],
    ]
    client = app["components"].get("clientapp")
    others = sorted(set(app["components"]) - {"clientapp", "serverapp"})
    if not all(isinstance(label, str) and PLAIN.fullmatch(label) for label in labels):
        return f"its name, version or publisher is none: {str(labels)[:200]}"
    if client != CLIENT_APP or others:
        wanted = ", ".join([str(client), *others])
        return f"it wants to run {wanted[:200]} here, not {CLIENT_APP}"
    return ""


def read_project(archive: zipfile.ZipFile) -> str:
    """Read the project's settings up to the limit, whatever size the archive states."""
    with archive.open(PROJECT) as file:
        return file.read(MAX_BUNDLE_BYTES + 1).decode()


@contextmanager
def private_socket() -> Iterator[Path]:
    """The path of a socket in a new folder that is closed to other users. Short: the
    kernel allows 107 bytes.
    """
    folder = Path(tempfile.mkdtemp(prefix="fedaux-"))  # mode 0700
    try:
        yield folder / "runtime.sock"
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class SocketClient(RuntimeHttpClient):
    """Flower's client of the runtime API, at the path of a socket instead of a host and
    a port.
    """

    @classmethod
    def from_server_address(
        cls,
        server_address: str,
        insecure: bool,
        root_certificates: bytes | str | None,
        interceptors: Sequence[ProtobufClientInterceptor],
        *,
        retry_invoker: RetryInvoker | None = None,
    ) -> SocketClient:
        client = cls(
            "http://supernode", interceptors=interceptors, retry_invoker=retry_invoker
        )
        timeout = client._client.timeout
        transport = httpx.HTTPTransport(uds=server_address)
        client._client.close()
        # no proxies
        client._client = httpx.Client(
            transport=transport, timeout=timeout, trust_env=False
        )
        return client


def start(role: str, address: str, **streams: Any) -> subprocess.Popen[bytes]:
    """A process of this module, which ends with the one that calls."""
    return subprocess.Popen(
        [sys.executable, "-m", __spec__.name, role, address, str(os.getpid())],
        **streams,
    )


def start_superexec(path: Path) -> subprocess.Popen[bytes]:
    """Start what asks for orders. The node's API listens by now."""
    flower_patches.check_socket(path)
    return start("superexec", str(path))


def launch(executor: object, spec: ExecutionSpec) -> LaunchResult:
    """Start a ClientApp. Its token is on no command line and in no environment."""
    if spec.task_type != TaskType.CLIENT_APP:
        return LaunchResult.failed(f"a site runs no {spec.task_type}")
    process = start("clientapp", spec.runtime_api_address, stdin=subprocess.PIPE)
    assert process.stdin
    process.stdin.write(spec.token.encode())
    process.stdin.close()
    return LaunchResult.accepted()


def superexec(address: str, parent: int) -> None:
    from flwr.supercore.superexec.run_superexec import run_superexec
    from flwr.supercore.utils import disable_process_dumping

    disable_process_dumping(strict=False)  # as Flower's own does
    flower_patches.superexec_calls_with(SocketClient)
    flower_patches.superexec_launches_with(launch)
    run_superexec(address, insecure=True, parent_pid=parent)


def clientapp(address: str, parent: int) -> None:
    from flwr.supernode.runtime.run_clientapp import run_clientapp

    reuse_memory()
    flower_patches.clientapp_calls_with(SocketClient)
    token = sys.stdin.buffer.read().decode().strip()
    run_clientapp(address, token, insecure=True, parent_pid=parent)


def clock_problem(words: Sequence[str]) -> str:
    """Why the server may have refused a node with this command line, or "" if clocks agree
    or cannot be compared.
    """
    from fedaux.deploy.checks import check_clock

    options = dict(pairwise(words))
    address = options.get("--superlink", "")
    ca = Path(options.get("--root-certificates", ""))
    if not address or not ca.is_file():
        return ""
    clock = check_clock(address, ca)
    if clock.ok is not False:
        return ""
    return f"this machine's clock is {clock.detail}; {clock.remedy}"


def log_clock_problem(words: Sequence[str]) -> None:
    """Name a wrong clock as the node ends: the server refuses it with a 401 that does
    not say so.
    """
    problem = clock_problem(words)
    if problem:
        log(WARNING, "The node has ended: %s.", problem)


def main() -> None:
    from flwr.supernode.cli.flower_supernode import flower_supernode

    flower_patches.refuse_untested_flower()
    flower_patches.verify_apps_with(rejection_reason)
    flower_patches.end_node_on_failure()
    threading.excepthook = end_with_thread
    try:
        with private_socket() as path:
            flower_patches.serve_at_socket(path)
            flower_patches.start_superexec_with(lambda: start_superexec(path))
            flower_supernode()
        log(ERROR, "The node has stopped working.")  # it should never return
    except (Exception, flower_patches.NodeFailure) as error:
        log(ERROR, "The node has failed.", exc_info=error)
    finally:
        log_clock_problem(sys.argv[1:])
    os._exit(1)  # else its threads would keep alive a process that does nothing


def end_with_thread(failed: threading.ExceptHookArgs) -> None:
    """End the process with any of its threads: without its heartbeat, the server takes
    a node for gone.
    """
    if failed.exc_type is not SystemExit:
        name = "unknown"
        if failed.thread:
            name = failed.thread.name
        log(
            ERROR,
            "The node has failed: its thread %s has ended.",
            name,
            exc_info=failed.exc_value,
        )
        os._exit(1)


if __name__ == "__main__":
    roles = {"superexec": superexec, "clientapp": clientapp}
    if sys.argv[1:2] and sys.argv[1] in roles:
        roles[sys.argv[1]](sys.argv[2], int(sys.argv[3]))
    else:
        main()
