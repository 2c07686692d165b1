"""The server of a Flower run: the very loop of `fedaux run`, over whatever grid Flower gives, simulated or real.

    flwr run . --run-config 'config="/path/fedaux.toml" out="/path/run"'

A run that finds its folder with rounds in it goes on after them: Flower itself does not resume.
"""

from __future__ import annotations

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from fedaux.data.federated import open_public
from fedaux.experiment import make_server, run_in, stored_state
from fedaux.models.export import write_models
from fedaux.prepare.scoring import bounds_of
from fedaux.report.run_page import write_run_report
from fedaux.rounds import quorum
from fedaux.runtime.directory import Directory
from fedaux.runtime.federation import GridFederation
from fedaux.runtime.settings import run_settings

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    config, folder = run_settings(context)
    policy = config.federation
    server = make_server(config, _say)
    state = stored_state(config, folder)
    directory = Directory(grid, server.clients, open_public(config).classes, lambda text: print(text, flush=True))
    here = directory.wait(policy.wait, enough=quorum(config, len(server.clients)))
    bounds = bounds_of(server.scorer)
    federation = GridFederation(grid, here, policy.timeout, policy.max_records, directory.look, bounds)
    result = run_in(folder, server, federation, state)
    for path in write_models(result.state, folder / "model"):
        print(f"model: {path}", flush=True)
    print(f"report: {write_run_report(folder)}", flush=True)
    print(f"accuracy {result.accuracy:.4f}. Privacy: {result.privacy}", flush=True)


def _say(what: str, done: int, of: int, note: str) -> None:
    print(f"{what}: {done}/{of} {note}", flush=True)
