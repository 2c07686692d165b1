"""The server of one region in a Flower run: it serves a merging one, `fedaux run CONFIG
--out FOLDER --regions 2`.

    flwr run . north \\
        --run-config 'config="/path/fedaux.toml" out="/path/run" region="1/2"'

`out` is the folder of the merging server's run, which both see.
"""

from __future__ import annotations

from pathlib import Path

from fedaux.config.schema import Config
from fedaux.core.progress import RunStarted, report
from fedaux.data.federated import client_names
from fedaux.flower.server_app import Connect, regional_app
from fedaux.report.progress import print_progress
from fedaux.runs.folders import stored_state
from fedaux.runs.reporting import ReportingFederation, reporting
from fedaux.runs.run_lock import RunLock
from fedaux.runs.runner import without_auto_head
from fedaux.runs.session import setting_line
from fedaux.server.regions import Region, RegionSpec
from fedaux.server.server import make_server


def main(config: Config, folder: Path, region: RegionSpec, connect: Connect) -> None:
    config = without_auto_head(config)
    home = region.folder(folder)
    clients = region.clients(client_names(config))
    with RunLock(home) as lock, reporting(home, config, print_progress, clients):
        state = stored_state(config, folder)
        server = make_server(config, state=state)
        history = state.history if state else ()
        setting = setting_line(config)
        report(RunStarted(server.method.label, setting, history, config.rounds))
        federation = ReportingFederation(connect(server))
        Region(server, federation, folder, region, lock.check).serve()
    print(f"region {region.number} of {region.count}: all rounds are done", flush=True)


app = regional_app(main)
