"""A Flower ServerApp around any function of a configuration, a folder and a way to
connect to the sites.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from fedaux.config.schema import Config
from fedaux.core.memory import reuse_memory
from fedaux.data.federated import open_public
from fedaux.flower.federation import GridFederation
from fedaux.flower.node_registry import NodeRegistry
from fedaux.flower.node_settings import run_settings
from fedaux.flower.run_end import ending_in_a_sentence
from fedaux.scoring.base import bound_function
from fedaux.server.loop import quorum
from fedaux.server.regions import ALL_CLIENTS, RegionSpec
from fedaux.server.server import Server

Connect = Callable[[Server], GridFederation]  # waits for the sites
Run = Callable[[Config, Path, Connect], None]
RegionalRun = Callable[[Config, Path, RegionSpec, Connect], None]


def server_app(run: Run, look: Run) -> ServerApp:
    """`run` gets the config and the folder that Flower's run configuration names, and
    `connect`; or `look`, if the run configuration says so.
    """
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        reuse_memory()
        with ending_in_a_sentence():
            config, folder = run_settings(context)
            start = look if context.run_config.get("look") else run
            start(config, folder, lambda server: connect(grid, server))

    return app


def regional_app(run: RegionalRun) -> ServerApp:
    """The same for one of several servers: `run` also gets the region that the run
    configuration names, "1/2".
    """
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        reuse_memory()
        with ending_in_a_sentence():
            config, folder = run_settings(context)
            region = RegionSpec.parse(str(context.run_config.get("region", "")))
            run(config, folder, region, lambda server: connect(grid, server, region))

    return app


def connect(
    grid: Grid, server: Server, region: RegionSpec = ALL_CLIENTS
) -> GridFederation:
    """Wait for the sites of a run, or of one region of it; raises if too few
    connect.
    """
    config = server.config
    policy = config.federation
    clients = region.clients(server.clients)
    classes = open_public(config).classes
    registry = NodeRegistry(grid, clients, classes, policy.registered_only)
    nodes = registry.wait_for_clients(
        policy.connect_timeout, quorum(config, len(clients))
    )
    bounds = bound_function(server.scorer)
    return GridFederation(
        grid,
        nodes,
        policy.timeout,
        policy.max_records,
        registry.refresh,
        bounds,
        retries=policy.retries,
        reconnect_timeout=policy.reconnect_timeout,
    )
