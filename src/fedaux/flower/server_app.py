"""A Flower ServerApp around any function of a configuration, a folder and the sites that answer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from fedaux.algorithms.loop import quorum
from fedaux.algorithms.server import Server
from fedaux.config.schema import Config
from fedaux.data.federated import open_public
from fedaux.flower.federation import GridFederation
from fedaux.flower.node_registry import Directory
from fedaux.flower.node_settings import run_settings
from fedaux.scoring.base import bounds_of

Connect = Callable[[Server], GridFederation]  # waits for the sites
Run = Callable[[Config, Path, Connect], None]


def server_app(run: Run) -> ServerApp:
    """`run` is called with what Flower's run configuration names, and with a way to reach the sites."""
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        config, folder = run_settings(context)
        run(config, folder, lambda server: connect(grid, server))

    return app


def connect(grid: Grid, server: Server) -> GridFederation:
    """Wait for the sites of a run; raises where too few come up."""
    config, policy = server.config, server.config.federation
    directory = Directory(grid, server.clients, open_public(config).classes, server.on_progress)
    here = directory.wait(policy.connect_timeout, enough=quorum(config, len(server.clients)))
    bounds = bounds_of(server.scorer)
    return GridFederation(grid, here, policy.timeout, policy.max_records, directory.look, bounds)
