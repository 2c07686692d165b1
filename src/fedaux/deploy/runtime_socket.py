"""A SuperNode's local API on a Unix socket that only its own user can open, and the two processes that call it.

Flower serves this API at a TCP port, where it hands the site's orders to any caller: with weights, the paths of the
site, and a token that answers in its name. The token is also in the command line of the process that works on the
order, for everybody to read. Here the kernel checks who calls, and the token goes through a pipe.

    python -m fedaux.deploy.runtime_socket superexec SOCKET PARENT     # asks for orders
    python -m fedaux.deploy.runtime_socket clientapp SOCKET PARENT     # works on one; its token is the standard input
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import httpx
from flwr.supercore.constant import TaskType
from flwr.supercore.runtime import RuntimeHttpClient
from flwr.supercore.superexec.executor.subprocess_executor import SubprocessExecutor
from flwr.supercore.superexec.executor.types import ExecutionSpec, LaunchResult

if TYPE_CHECKING:
    from flwr.supercore.protobuf.client import ProtobufClientInterceptor
    from flwr.supercore.retry import RetryInvoker


@contextmanager
def private_socket() -> Iterator[Path]:
    """The path of a socket in a new folder that is closed to other users. Short: the kernel allows 107 bytes."""
    folder = Path(tempfile.mkdtemp(prefix="fedaux-"))  # mode 0700
    try:
        yield folder / "runtime.sock"
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def serve_at(path: Path) -> None:
    """Have the SuperNode of this process listen at the socket, whatever its host and port, and its SuperExec call."""
    import uvicorn
    from flwr.supernode import start_client_internal as internal

    uvicorn.Config = partial(uvicorn.Config, uds=str(path))  # type: ignore[misc, assignment]
    # the only process that this module starts
    internal.subprocess = SimpleNamespace(Popen=lambda words: start("superexec", str(path)))  # type: ignore[assignment, attr-defined]


def start(role: str, address: str, **streams: Any) -> subprocess.Popen[bytes]:
    """One of the processes above, which ends with this one."""
    return subprocess.Popen([sys.executable, "-m", __spec__.name, role, address, str(os.getpid())], **streams)


class SocketClient(RuntimeHttpClient):
    """Flower's client of the runtime API, at the path of a socket instead of a host and a port."""

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
        client = cls("http://supernode", interceptors=interceptors, retry_invoker=retry_invoker)
        timeout, transport = client._client.timeout, httpx.HTTPTransport(uds=server_address)
        client._client.close()
        client._client = httpx.Client(transport=transport, timeout=timeout, trust_env=False)  # no proxies
        return client


def launch(executor: SubprocessExecutor, spec: ExecutionSpec) -> LaunchResult:
    """Start a ClientApp. Its token is on no command line and in no environment."""
    if spec.task_type != TaskType.CLIENT_APP:
        return LaunchResult.failed(f"a site runs no {spec.task_type}")
    process = start("clientapp", spec.runtime_api_address, stdin=subprocess.PIPE)
    assert process.stdin
    process.stdin.write(spec.token.encode())
    process.stdin.close()
    return LaunchResult.accepted()


def superexec(address: str, parent: int) -> None:
    from flwr.supercore.superexec import run_superexec as module
    from flwr.supercore.utils import disable_process_dumping

    disable_process_dumping(strict=False)  # as Flower's own does
    module.RuntimeHttpClient = SocketClient  # type: ignore[attr-defined]
    SubprocessExecutor.launch = launch  # type: ignore[method-assign, assignment]
    module.run_superexec(address, insecure=True, parent_pid=parent)


def clientapp(address: str, parent: int) -> None:
    from flwr.supernode.runtime import run_clientapp as module

    module.RuntimeHttpClient = SocketClient  # type: ignore[attr-defined]
    token = sys.stdin.buffer.read().decode().strip()
    module.run_clientapp(address, token, insecure=True, parent_pid=parent)


if __name__ == "__main__":
    role, address, parent = sys.argv[1:]
    {"superexec": superexec, "clientapp": clientapp}[role](address, int(parent))
