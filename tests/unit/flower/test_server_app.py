"""A Flower server around any function: it gets the run's settings, and waits for the
sites when it connects.
"""

import io
import json
import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp

from fedaux.config.schema import Config
from fedaux.core.errors import FedauxError
from fedaux.flower import node_registry
from fedaux.flower.in_process import InProcessGrid
from fedaux.flower.node_registry import MissingSitesError
from fedaux.flower.serialization import serialize
from fedaux.flower.server_app import Connect, connect, regional_app, server_app
from fedaux.messages import MESSAGE_VERSION, Hello
from fedaux.server.regions import RegionSpec
from helpers.scripted import make_server
from helpers.tiny import TINY_CONFIG

NAMES = ("client-000", "client-001", "client-002")


def sites(count: int) -> InProcessGrid:
    """Nodes that say who they are."""
    app = ClientApp()

    @app.query("hello")
    def hello(message: Message, context: Context) -> Message:
        name = NAMES[int(context.node_config["partition-id"])]
        digits = [str(digit) for digit in range(10)]
        return Message(
            serialize(Hello(json.dumps([name]), json.dumps(digits), MESSAGE_VERSION)),
            reply_to=message,
        )

    return InProcessGrid(app, count, {})


def test_the_function_gets_what_the_run_configuration_names(tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text("rounds = 7\n")
    runs: list[tuple[Config, Path]] = []
    looks: list[tuple[Config, Path]] = []

    def main(config: Config, folder: Path, connect: Connect) -> None:
        runs.append((config, folder))

    def look(config: Config, folder: Path, connect: Connect) -> None:
        looks.append((config, folder))

    settings = {
        "config": str(tmp_path / "run.toml"),
        "out": str(tmp_path / "out"),
        "set": "seed=3",
    }
    app = server_app(main, look)
    app(sites(0), Context(1, 1, {}, RecordDict(), settings))  # type: ignore[arg-type]
    named = (Config(rounds=7, seed=3), tmp_path / "out")
    assert (runs, looks) == ([named], [])
    settings["look"] = "true"
    app(sites(0), Context(1, 1, {}, RecordDict(), settings))  # type: ignore[arg-type]
    assert (runs, looks) == ([named], [named])


def test_a_regional_server_knows_its_part_and_waits_for_no_others(
    tmp_path: Path,
) -> None:
    (tmp_path / "run.toml").write_text("rounds = 7\n")
    server, grid, calls = (
        replace(make_server(), config=TINY_CONFIG, clients=NAMES[:2]),
        sites(1),
        [],
    )

    def main(config: Config, folder: Path, part: RegionSpec, connect: Connect) -> None:
        calls.append((config.rounds, folder, part, connect(server).nodes))

    settings = {
        "config": str(tmp_path / "run.toml"),
        "out": str(tmp_path / "out"),
        "region": "1/2",
    }
    regional_app(main)(grid, Context(1, 1, {}, RecordDict(), settings))  # type: ignore[arg-type]
    (node,) = grid.get_node_ids()
    assert calls == [(7, tmp_path / "out", RegionSpec(1, 2), {NAMES[0]: node})]


def test_where_names_are_demanded_keys_without_one_take_no_part(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(node_registry, "POLL_INTERVAL", 0.01)
    policy = replace(TINY_CONFIG.federation, connect_timeout=0.05, registered_only=True)
    server = replace(
        make_server(), config=replace(TINY_CONFIG, federation=policy), clients=NAMES
    )
    with pytest.raises(MissingSitesError, match="0 of 3 clients connected"):
        connect(sites(3), server)


@pytest.fixture
def flower_log() -> Iterator[io.StringIO]:
    """What Flower's logger writes, without the filters that a test leaves."""
    log = logging.getLogger("flwr")
    filters = list(log.filters)
    written = io.StringIO()
    handler = logging.StreamHandler(written)
    log.addHandler(handler)
    yield written
    log.removeHandler(handler)
    log.filters[:] = filters


@pytest.mark.parametrize("known", [True, False])
def test_an_end_that_a_user_can_mend_is_a_sentence(
    tmp_path: Path, flower_log: io.StringIO, known: bool
) -> None:
    """Owners that had not decided yet were a traceback, and "Exit Code: 201"."""
    (tmp_path / "run.toml").write_text("rounds = 7\n")
    reason = "Cannot begin: 1 of 2 sites take part."

    def main(config: Config, folder: Path, connect: Connect) -> None:
        raise FedauxError(reason) if known else RuntimeError(reason)

    settings = {"config": str(tmp_path / "run.toml"), "out": str(tmp_path / "out")}
    context = Context(1, 1, {}, RecordDict(), settings)  # type: ignore[arg-type]
    try:
        server_app(main, main)(sites(0), context)
    except Exception as error:  # as Flower's process does
        log = logging.getLogger("flwr")
        log.error("%s raised an exception", "ServerApp", exc_info=error)
        log.error("Exit Code: 201\n\nFor more information, visit: <…>")
    told = flower_log.getvalue()
    assert ("Traceback" in told, "Exit Code" in told) == (not known, not known)
    assert told == f"{reason}\n" or not known
