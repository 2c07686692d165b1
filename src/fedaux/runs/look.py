"""`fedaux look`: a look at the sites' data before a run, in a folder of its own."""

from __future__ import annotations

import json
from pathlib import Path

from fedaux.config.schema import Config
from fedaux.core.io import write_atomically
from fedaux.core.progress import OnProgress
from fedaux.core.timing import Costs
from fedaux.messages import Federation
from fedaux.report.look_page import write_look_page
from fedaux.runs.reporting import ReportingFederation
from fedaux.runs.run_lock import RunLock
from fedaux.runs.runner import in_process, progress_panel
from fedaux.server.data_figures import figures_by_site, figures_of_all, scaled_schema
from fedaux.server.data_look import (
    DataLook,
    look_at_data,
    prepare_look,
    tallies_to_count,
)
from fedaux.server.loop import answering
from fedaux.server.run_state import StateError
from fedaux.server.server import Server, make_server

LOOK_FILE = "look.json"
SCALED_SCHEMA = "schema.toml"
SCHEMA_COMMENTS = (
    "A look at the sites' data under noise gave deciles of columns (quantiles), and",
    "found missing values. Anyone may see these. Columns whose deciles noise hides,",
    "ranges and values are those of the schema that was there.",
)


def run_look(
    config: Config,
    folder: str | Path,
    *,
    on_progress: OnProgress | None = None,
    cache: Path | None = None,
) -> DataLook:
    """Count the records of simulated clients by class and by column, under noise.

    Args:
        config: The settings of the run that is to follow. `privacy.look_epsilon` is the
            ε of the look, and `data.look_columns` and `data.look_bins` say what is
            counted.
        folder: Where the page, the counts and a schema are written.
        on_progress: Called with events of `fedaux.core.progress`, as in `run`.
        cache: The folder for extractors and features, as in `run`.

    Returns:
        The counts.
    """
    folder = Path(folder)
    with progress_panel(on_progress), RunLock(folder):
        server = make_server(config, cache)
        clients = in_process(config, folder, server.cache)
        return look_in_folder(folder, server, ReportingFederation(clients))


def look_in_folder(folder: Path, server: Server, federation: Federation) -> DataLook:
    """Look over any federation, and write the page, the counts and a schema. What is in
    the folder already is not asked for again.
    """
    found = stored_look(folder, server.config)
    if found is None:
        server = server.in_folder(folder)
        state, tallies = prepare_look(server, federation)
        sites = answering(server, federation, state, Costs())
        state, found = look_at_data(server, sites, state, tallies)
        if server.orders.known_accounts is not None:
            server.orders.known_accounts.update(state.accounts)
    write_look(folder, found, server.config)
    return found


def stored_look(folder: Path, config: Config) -> DataLook | None:
    """Return the look in a folder, or None if there is none yet."""
    path = folder / LOOK_FILE
    if not path.is_file():
        return None
    facts = json.loads(path.read_bytes())
    found = DataLook.from_dict(facts, config)
    if facts["run"] != config.run_id or found.tallies != tallies_to_count(config):
        raise StateError(
            f"Cannot look: {folder} holds another look, because its settings or its "
            "schema differ. Choose a new folder."
        )
    return found


def write_look(folder: Path, found: DataLook, config: Config) -> None:
    """Write everything that a look has found."""
    figures = figures_of_all(found)
    facts = {
        "run": config.run_id,
        **found.to_dict(),
        "all_sites": figures.to_dict(),
        "sites": {site.name: site.to_dict() for site in figures_by_site(found)},
    }
    write_atomically(folder / LOOK_FILE, json.dumps(facts, indent=1).encode())
    if found.schema is not None:
        schema = scaled_schema(found.schema, figures)
        content = schema.to_toml(SCHEMA_COMMENTS)
        write_atomically(folder / SCALED_SCHEMA, content.encode())
    write_look_page(folder, found, config)
