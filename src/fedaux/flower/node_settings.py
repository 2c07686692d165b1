"""A node's settings: from its own `--node-config`, or in a simulation on one machine
from the run configuration.

A site's settings decide what it reveals, so a server must not be able to supply them.
Only where Flower simulates all clients in Ray workers next to the server, and there is
no site, do they come with the run.
"""

from __future__ import annotations

import json
import sys
from functools import lru_cache
from pathlib import Path

from flwr.app import Context

from fedaux.client.site import Site
from fedaux.config.schema import Config
from fedaux.core.errors import SettingsError
from fedaux.data.federated import client_name

# settings of a simulated client, which retrains a lost model
SIMULATED = {"keep-results": "no"}


def open_site(context: Context) -> Site:
    """The site of a node, from its settings: `config` (a TOML file, or JSON), `vault`
    (a folder), and optionally `clients`, `partition-id`, `features`, `keep-results`,
    `server`.
    """
    settings = {key: str(value) for key, value in context.node_config.items()}
    if "config" in settings and "vault" in settings:
        config = _parse(settings["config"])
        vault = Path(settings["vault"])
    elif is_simulation():
        config, folder = run_settings(context)
        settings = {**settings, **SIMULATED}
        vault = folder / "clients"
    else:
        raise SettingsError(
            "Cannot answer: this node has no settings. Start its SuperNode with "
            '--node-config \'config="/path/site.toml" vault="/path/vault" '
            'clients="NAME"\', the command that `fedaux deploy init` writes.'
        )
    named = (
        settings["clients"].split(",")
        if "clients" in settings
        else [client_name(config, int(settings["partition-id"]))]
    )
    features = Path(settings["features"]) if "features" in settings else None
    keeps_results = settings.get("keep-results") != SIMULATED["keep-results"]
    return Site(
        config,
        vault,
        tuple(name.strip() for name in named),
        features,
        keeps_results,
        settings.get("server", ""),
    )


def run_settings(context: Context) -> tuple[Config, Path]:
    """(config, folder of the run) from Flower's run configuration: `config`, `out`, and
    `set` for overrides.
    """
    settings = context.run_config
    if "config" not in settings or "out" not in settings:
        raise SettingsError(
            "Cannot run: the run needs config, a TOML file, and out, a folder. Add "
            '--run-config \'config="…" out="…"\'.'
        )
    folder = Path(str(settings["out"]))
    if not folder.is_absolute():
        raise SettingsError(
            f"Cannot run: out = {str(folder)!r} must be an absolute path, because "
            "Flower runs apps from another folder. Correct it."
        )
    overrides = tuple(
        text.strip() for text in str(settings.get("set", "")).split(";") if text.strip()
    )
    return _load(_find_file(str(settings["config"])), overrides), folder


def _find_file(name: str) -> Path:
    """The file itself, or one that was packed with the app, whose folder Flower puts on
    `sys.path`.
    """
    for folder in ("", *sys.path):
        path = Path(folder) / name
        if path.is_file():
            return path
    return Path(name)


def is_simulation() -> bool:
    """Whether this is a Ray worker of Flower's simulation, rather than the ClientApp of
    a real SuperNode.
    """
    ray = sys.modules.get("ray")
    return ray is not None and bool(ray.is_initialized())


def _load(file: Path, overrides: tuple[str, ...] = ()) -> Config:
    """Once for each version of the file: settings that the owner changes count from the
    next order on.
    """
    return _load_version(
        file, file.stat().st_mtime_ns if file.is_file() else 0, overrides
    )


@lru_cache(maxsize=8)
def _load_version(file: Path, modified: int, overrides: tuple[str, ...]) -> Config:
    return Config.load(file, overrides)


def _parse(json_or_file: str) -> Config:
    if json_or_file.startswith("{"):
        return _from_json(json_or_file)
    return _load(Path(json_or_file))


@lru_cache(maxsize=8)
def _from_json(content: str) -> Config:
    return Config.from_dict(json.loads(content))
