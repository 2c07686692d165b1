"""The server of one region in a Flower run: it serves a merging one, `fedaux run CONFIG
--out FOLDER --regions 2`.

    flwr run . north --run-config 'config="/path/fedaux.toml" out="/path/run" region="1/2"'

`out` is the folder of the merging server's run, which both see.
"""

from __future__ import annotations

from pathlib import Path

from fedaux.config.schema import Config
from fedaux.core.progress import RunStarted, each_of, report_to
from fedaux.data.federated import client_names
from fedaux.flower.server_app import Connect, regional_app
from fedaux.report.progress import print_progress
from fedaux.runs.folders import stored_state
from fedaux.runs.reporting import ReportingFederation, reporting
from fedaux.runs.run_lock import RunLock
from fedaux.runs.runner import describe, without_auto_head
from fedaux.server.regions import Region, RegionSpec
from fedaux.server.server import make_server


def main(config: Config, folder: Path, part: RegionSpec, connect: Connect) -> None:
    config = without_auto_head(config)
    home, own = part.folder(folder), part.clients(client_names(config))
    with RunLock(home) as lock, reporting(home, config, own) as report:
        on_progress = each_of(report, print_progress)
        with report_to(on_progress):
            state = stored_state(config, folder)
            server, before = (
                make_server(config, on_progress, state=state),
                state.history if state else (),
            )
            on_progress(
                RunStarted(server.method.label, describe(config), before, config.rounds)
            )
            Region(
                server,
                ReportingFederation(connect(server), on_progress),
                folder,
                part,
                lock.check,
            ).serve()
    print(f"region {part.number} of {part.count}: all rounds are done", flush=True)


app = regional_app(main)
