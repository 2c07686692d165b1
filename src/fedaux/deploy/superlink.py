"""`flower-superlink` with the same options, but only the fleet API open to the network.

Flower serves three APIs at one port: the fleet API for sites, which authenticate by their keys; the control API, which
starts apps and registers keys; and the runtime API of its own processes. Its open edition does not authenticate callers
of the control API, so whoever reaches the port could start an app, and its code would run here. Therefore all but the
fleet API answers only callers on this machine.

    python -m fedaux.deploy.superlink --host 0.0.0.0 --port 8443 ...
"""

from __future__ import annotations

from starlette.middleware import Middleware
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from fedaux.deploy.connection_limits import BodyLimitMiddleware, is_loopback, raise_file_limit, serve


class LocalOnlyMiddleware:
    """ASGI middleware: other machines reach the fleet API and the health check only."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan" or is_public(scope["path"]) or is_local(scope.get("client")):
            await self.app(scope, receive, send)
        elif scope["type"] == "http":
            await PlainTextResponse("only the fleet API is open to other machines", 403)(scope, receive, send)


def is_public(path: str) -> bool:
    return path == "/health" or path.startswith("/v1/fleet/")


def is_local(client: tuple[str, int] | None) -> bool:
    return client is not None and is_loopback(client[0])


def main() -> None:
    import uvicorn
    from flwr.superlink import extensions
    from flwr.superlink.cli.flower_superlink import flower_superlink

    default = extensions.get_middleware
    own = Middleware(LocalOnlyMiddleware), Middleware(BodyLimitMiddleware)
    extensions.get_middleware = lambda: (*own, *default())
    uvicorn.run = serve
    raise_file_limit()
    flower_superlink()


if __name__ == "__main__":
    main()
