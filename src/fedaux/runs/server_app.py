"""The server of a Flower run: the very loop of `fedaux run`, over whatever grid Flower
gives, simulated or real.

    flwr run . --run-config 'config="/path/fedaux.toml" out="/path/run"'

A run whose folder holds rounds continues after them: Flower itself does not resume.
"""

from __future__ import annotations

from pathlib import Path

from fedaux.config.schema import Config
from fedaux.export.export import write_models
from fedaux.flower.server_app import Connect, server_app
from fedaux.report.progress import print_progress
from fedaux.report.run_page import PAGE_FILE, write_run_report
from fedaux.runs.folders import stored_state
from fedaux.runs.look import look_in_folder
from fedaux.runs.reporting import ReportingFederation, reporting
from fedaux.runs.run_lock import RunLock
from fedaux.runs.session import run_in_folder
from fedaux.server.data_figures import describe_data_look
from fedaux.server.server import Server, make_server
from fedaux.server.site_figures import describe_cost_of_look, describe_site_test

# next to the folders of a deployment's runs: how much its sites have said that they
# spent
SPENDING_FILE = "accounts.json"


def main(config: Config, folder: Path, connect: Connect) -> None:
    with RunLock(folder) as lock, reporting(folder, config, print_progress):
        state = stored_state(config, folder)
        server = with_accounts_of_all_runs(make_server(config, state=state), folder)
        federation = ReportingFederation(connect(server))
        result = run_in_folder(folder, server, federation, state, lock=lock)
        for path in write_models(result.state, folder / "model"):
            print(f"model: {path}", flush=True)
        print(f"report: {write_run_report(folder)}", flush=True)
        for warning in result.warnings:
            print(f"warning: {warning}", flush=True)
    site_test = result.state.site_test
    if site_test is not None:
        print(describe_site_test(site_test), flush=True)
        print(describe_cost_of_look(site_test), flush=True)
    print(f"{result.accuracy_in_words}. Privacy: {result.statement}", flush=True)


def look_main(config: Config, folder: Path, connect: Connect) -> None:
    """Look at the sites' data before a run."""
    with RunLock(folder), reporting(folder, config, print_progress):
        server = with_accounts_of_all_runs(make_server(config), folder)
        federation = ReportingFederation(connect(server))
        found = look_in_folder(folder, server, federation)
        print(f"report: {folder / PAGE_FILE}", flush=True)
    print(describe_data_look(found), flush=True)


def with_accounts_of_all_runs(server: Server, folder: Path) -> Server:
    """Return a server that remembers accounts, if names mean the same sites in every
    run.
    """
    if not server.config.federation.registered_only:
        return server
    return server.with_accounts(accounts_file(folder))


def accounts_file(folder: Path) -> Path:
    """Return the file in which all runs of a deployment remember the sites' accounts,
    given the folder of one run.
    """
    return folder.parent / SPENDING_FILE


app = server_app(main, look_main)
