"""Everything that fedaux changes in Flower and uvicorn while they run: one function for
each change.

Each first checks that what it replaces is there, and that the code which is meant to
use it still does. A change that would have no effect would leave a site or a server
open without a sign, so it ends the process instead.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from importlib import import_module
from importlib.metadata import version
from inspect import signature
from logging import WARNING
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import httpx

from fedaux.core.errors import Exit, FedauxError
from fedaux.core.versions import untested_flower

if TYPE_CHECKING:
    from flwr.supercore.fab import Fab
    from starlette.middleware import Middleware


class PatchError(FedauxError, RuntimeError):
    """The installed Flower or uvicorn is not built as a security measure of fedaux
    expects.
    """

    code = Exit.MISSING


def refuse_untested_flower() -> None:
    """End before anything starts if no one has tried this version of Flower."""
    problem = untested_flower()
    if problem:
        raise PatchError(
            f"Cannot start: {problem}. What protects a deployment changes Flower from "
            "within, so a version that is not known is refused. Install the extra "
            "deploy of fedaux, or pip install 'flwr>=1.41,<1.43'."
        )


def serve_at_socket(path: Path) -> None:
    """A SuperNode's local API listens at a Unix socket, whatever its host and port.

    At a TCP port, Flower would hand the site's orders to any user of the machine.
    """
    import uvicorn

    _expect(
        "flwr.supernode.cli.flower_supernode:_start_supernode_http_api",
        uses=("uvicorn", "Config"),
    )
    _expect("uvicorn:Config", takes=("uds",))
    uvicorn.Config = partial(uvicorn.Config, uds=str(path))  # type: ignore[misc, assignment]


def start_superexec_with(start: Callable[[], object]) -> None:
    """A SuperNode starts its SuperExec by `start`, and no other process: Flower's own
    would call the TCP port.
    """
    internal: Any = _expect(
        f"{NODE}:start_client_internal", uses=("subprocess", "Popen")
    )
    internal.subprocess = SimpleNamespace(Popen=lambda words: start())


def verify_apps_with(rejection_reason: Callable[[bytes], str]) -> None:
    """A SuperNode asks `rejection_reason` about every app before any of it is used, or ""
    lets the app pass.

    Flower verifies an app only if there are trusted entities and the app has a licence:
    every app is given both.
    """
    from flwr.common.logger import log

    _expect(f"{NODE}:start_client_internal", uses=("_pull_and_store_message",))
    parameters = ("get_fab", "trusted_entities")
    internal: Any = _expect(
        f"{NODE}:_pull_and_store_message",
        uses=("_verify_fab", "verifications"),
        takes=parameters,
    )
    _expect(f"{NODE}:_verify_fab", takes=("fab", "trusted_entities"))
    pull = internal._pull_and_store_message

    def pull_verified(*args: Any, **kwargs: Any) -> int | None:
        get = kwargs["get_fab"]
        kwargs["get_fab"] = lambda name, run: replace(
            get(name, run), verifications={"valid_license": "fedaux"}
        )
        kwargs["trusted_entities"] = {"fedaux": "itself"}
        message_id: int | None = pull(*args, **kwargs)
        return message_id

    def verify(fab: Fab, trusted_entities: dict[str, str]) -> bool:
        reason = rejection_reason(fab.content)
        if reason:
            log(WARNING, "An app was refused: %s.", reason)
        return not reason

    internal._pull_and_store_message = pull_verified
    internal._verify_fab = verify


class NodeFailure(BaseException):
    """A call to the server has failed for good. An `Exception` would be swallowed by
    Flower's loop.
    """


def end_node_on_failure() -> None:
    """A SuperNode ends when the server fails it, to be started again.

    Flower logs the failure and continues: a reply is lost and its round waits for the
    timeout, or the loop returns while other threads keep the process alive.
    """
    _expect(f"{NODE}:start_client_internal", uses=("_init_connection",))
    internal: Any = _expect(f"{NODE}:_init_connection", takes=("server_address",))
    connect = internal._init_connection

    def ending(call: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            try:
                return call(*args, **kwargs)
            except httpx.HTTPError as error:
                if (
                    isinstance(error, httpx.HTTPStatusError)
                    and error.response.status_code < 500
                ):
                    raise  # the server refuses this one message
                raise NodeFailure(f"the server has failed: {error}") from error

        return wrapped

    @contextmanager
    def watched(**options: Any) -> Iterator[tuple[Any, ...]]:
        with connect(**options) as (node, *calls):
            yield (node, *(ending(call) for call in calls))

    internal._init_connection = watched


def superexec_calls_with(client: type) -> None:
    """A site's SuperExec asks for orders by this client, at the socket."""
    internal: Any = _expect(
        f"{SUPEREXEC}:run_superexec", uses=("RuntimeHttpClient", "from_server_address")
    )
    internal.RuntimeHttpClient = client


def superexec_launches_with(launch: Callable[[Any, Any], object]) -> None:
    """A site's SuperExec starts a ClientApp by `launch`: Flower writes the order's
    token on its command line.
    """
    _expect(
        "flwr.supercore.superexec.plugin.base_exec_plugin:BaseExecPlugin.launch_task",
        uses=("executor", "launch"),
    )
    executor = "flwr.supercore.superexec.executor.subprocess_executor"
    internal: Any = _expect(f"{executor}:SubprocessExecutor.launch", takes=("spec",))
    internal.SubprocessExecutor.launch = launch


def hide_tokens_of_apps() -> None:
    """A server's SuperExec gives an app its token in a file without a name, not on its
    command line.

    Who has the token acts as the server's app, and every user of the machine can read
    command lines.
    """
    executor = "flwr.supercore.superexec.executor.subprocess_executor"
    internal: Any = _expect(
        f"{executor}:SubprocessExecutor.launch",
        uses=("subprocess", "Popen"),
        takes=("spec",),
    )
    _expect("flwr.common.args:try_obtain_flwr_app_token", uses=("read_text",))

    def start(words: Sequence[str], **options: Any) -> subprocess.Popen[bytes]:
        place = list(words).index("--token")
        with os.fdopen(os.memfd_create("token"), "w") as file:
            file.write(words[place + 1])
            file.flush()
            hidden = ["--token-file", f"/proc/self/fd/{file.fileno()}"]
            return subprocess.Popen(
                [*words[:place], *hidden, *words[place + 2 :]],
                pass_fds=[file.fileno()],
                **options,
            )

    internal.subprocess = SimpleNamespace(Popen=start, DEVNULL=subprocess.DEVNULL)


def clientapp_calls_with(client: type) -> None:
    """A site's ClientApp gets its order and answers by this client, at the socket."""
    internal: Any = _expect(
        f"{CLIENTAPP}:run_clientapp", uses=("RuntimeHttpClient", "from_server_address")
    )
    internal.RuntimeHttpClient = client


def add_middleware(own: Sequence[Middleware]) -> None:
    """A SuperLink's requests pass `own` first: Flower's open edition authenticates no
    caller of its control API.
    """
    _expect(
        "flwr.superlink.main:_get_middleware", uses=("extensions", "get_middleware")
    )
    _expect("flwr.superlink.main:create_app", uses=("_get_middleware",))
    extensions: Any = _expect("flwr.superlink.extensions:get_middleware")
    default = extensions.get_middleware
    extensions.get_middleware = lambda: (*own, *default())


def limit_replies_with(quotas: Callable[..., Any]) -> None:
    """A SuperLink asks `quotas` about every reply: Flower stores any size, and hands
    out what is incomplete.

    `quotas` is made of the three handlers that it stands before, and has their
    replacements.
    """
    router = "flwr.superlink.routers.fleet.router"
    _expect(f"{router}:fleet_push_messages", uses=("fleet_handlers", "push_messages"))
    _expect(f"{router}:fleet_push_object", uses=("fleet_handlers", "push_object"))
    handlers = "flwr.superlink.servicer"
    fleet: Any = _expect(
        f"{handlers}.fleet.fleet_handlers:push_messages", takes=("request", "state")
    )
    _expect(f"{handlers}.fleet.fleet_handlers:push_object", takes=("request", "state"))
    _expect(
        "flwr.supercore.routers.runtime.router:pull_messages", uses=("pull_messages",)
    )
    runtime: Any = _expect(
        f"{handlers}.runtime.runtime_handlers:pull_messages",
        takes=("request", "state", "task"),
    )
    guard = quotas(fleet.push_messages, fleet.push_object, runtime.pull_messages)
    fleet.push_messages = guard.push_messages
    fleet.push_object = guard.push_object
    runtime.pull_messages = guard.pull


def check_superlink(app: Any, own: Sequence[type]) -> None:
    """Refuse to serve unless requests pass `own` first and replies the quotas, by what
    is there to be called.
    """
    from flwr.superlink.servicer.fleet import fleet_handlers
    from flwr.superlink.servicer.runtime import runtime_handlers

    first = [middleware.cls for middleware in app.user_middleware[: len(own)]]
    handlers = (
        fleet_handlers.push_messages,
        fleet_handlers.push_object,
        app.state.runtime_handlers.pull_messages,
    )
    guarded = (
        all(hasattr(handler, "__self__") for handler in handlers)
        and app.state.runtime_handlers is runtime_handlers
    )
    if first != list(own) or not guarded:
        raise PatchError(
            "Cannot start the SuperLink: the SuperLink's protections are not in "
            "effect. Install the extra deploy of fedaux, or pip install "
            "'flwr>=1.41,<1.43'."
        )


def check_socket(path: Path) -> None:
    """Refuse to continue unless a node's local API is at the socket, open to its own user
    alone.
    """
    if not path.is_socket() or path.parent.stat().st_mode & 0o077:
        raise PatchError(
            f"Cannot start the node: the node's local API is not at {path}, where no "
            "other user can call it. Install the extra deploy of fedaux, or pip "
            "install 'flwr>=1.41,<1.43'."
        )


def serve_superlink_with(serve: Callable[..., None]) -> None:
    """A SuperLink listens by `serve`, under limits: uvicorn's own `run` has none before
    a caller shows a key.
    """
    import uvicorn

    _expect(
        "flwr.superlink.cli.flower_superlink:_run_superlink_http_api",
        uses=("uvicorn", "run"),
    )
    uvicorn.run = serve


NODE = "flwr.supernode.start_client_internal"
SUPEREXEC = "flwr.supercore.superexec.run_superexec"
CLIENTAPP = "flwr.supernode.runtime.run_clientapp"


def _expect(place: str, uses: Sequence[str] = (), takes: Sequence[str] = ()) -> object:
    """The module in `place` ("module:name"), if its function looks up the names `uses`
    and has parameters `takes`.
    """
    module_name, _, path = place.partition(":")
    try:
        module: object = import_module(module_name)
        function: Any = module
        for name in path.split("."):
            function = getattr(function, name)
        missing = [name for name in uses if name not in function.__code__.co_names]
        parameters = signature(function).parameters
        missing += [name for name in takes if name not in parameters]
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        missing = [str(error)]
    if missing:
        installed = f"flwr {version('flwr')} and uvicorn {version('uvicorn')}"
        raise PatchError(
            f"Cannot start: {place} is not as this version of fedaux expects "
            f"({', '.join(missing)}), so its protection would have no effect. "
            f"Installed are {installed}. Install versions that fedaux asks for."
        )
    return module
