"""The server of one region in a Flower run: it serves a merging one, `fedaux run CONFIG --out FOLDER --regions 2`.

    flwr run . north --run-config 'config="/path/fedaux.toml" out="/path/run" region="1/2"'

`out` is the folder of the merging server's run, which both see.
"""

from __future__ import annotations

from pathlib import Path

from fedaux.config.schema import Config
from fedaux.core.event_log import EventLog
from fedaux.core.progress import RunStarted, each_of
from fedaux.core.work import listening
from fedaux.data.federated import client_names
from fedaux.flower.server_app import Connect, regional_app
from fedaux.report.progress import print_progress
from fedaux.runs.folders import stored_state
from fedaux.runs.progress_log import ProgressLog
from fedaux.runs.reporting import ReportingFederation
from fedaux.runs.runner import describe
from fedaux.runs.status_file import StatusFile
from fedaux.server.regions import Part, Region
from fedaux.server.run_lock import RunLock
from fedaux.server.server import make_server


def main(config: Config, folder: Path, part: Part, connect: Connect) -> None:
    home, own = part.folder(folder), {client: client for client in part.clients(client_names(config))}
    log = ProgressLog(EventLog.from_environment(config.run_id))
    with RunLock(home) as lock, log, StatusFile(home, config, own) as status:
        on_progress = each_of(status.on_progress, log.on_progress, print_progress)
        with listening(on_progress):
            state = stored_state(config, folder)
            status.restore(state)
            server, before = make_server(config, on_progress, state=state), state.history if state else ()
            on_progress(RunStarted(server.method.label, describe(config), before, config.rounds))
            Region(server, ReportingFederation(connect(server), on_progress), folder, part, lock.check).serve()
    print(f"region {part.number} of {part.count}: all rounds are done", flush=True)


app = regional_app(main)
