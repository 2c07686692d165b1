"""The server of one region in a Flower run: it serves a merging one, `fedaux run CONFIG --out FOLDER --regions 2`.

    flwr run . north --run-config 'config="/path/fedaux.toml" out="/path/run" region="1/2"'

`out` is the folder of the merging server's run, which both see.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import replace
from pathlib import Path

from fedaux.algorithms.regions import Part, Region
from fedaux.algorithms.reporting import ReportingFederation
from fedaux.algorithms.run_lock import RunLock
from fedaux.algorithms.run_state import RunState
from fedaux.algorithms.server import make_server
from fedaux.config.schema import Config
from fedaux.core.event_log import EventLog
from fedaux.core.progress import ProgressEvent, RoundFinished, each_of
from fedaux.core.results import RoundResult
from fedaux.core.work import listening
from fedaux.data.federated import client_names
from fedaux.experiments.folders import stored_state
from fedaux.experiments.progress_log import ProgressLog
from fedaux.experiments.status_file import StatusFile
from fedaux.flower.server_app import Connect, regional_app
from fedaux.report.progress import print_progress


def main(config: Config, folder: Path, part: Part, connect: Connect) -> None:
    own, home = frozenset(part.clients(client_names(config))), part.folder(folder)
    policy = replace(config.federation, sites=tuple(part.clients(config.federation.sites)))
    log = ProgressLog(EventLog.from_environment(config.run_id))
    with RunLock(home), log, StatusFile(home, replace(config, federation=policy)) as status:

        def watch(event: ProgressEvent) -> None:
            if isinstance(event, RoundFinished):
                event = replace(event, result=result_of(event.result, own))
            status.on_progress(event)

        on_progress = each_of(watch, log.on_progress, print_progress)
        with listening(on_progress):
            state = stored_state(config, folder)
            status.restore(state_of(state, own) if state else None)
            server = make_server(config, on_progress, state=state)
            Region(server, ReportingFederation(connect(server), on_progress), folder, part).serve()
    print(f"region {part.number} of {part.count}: all rounds are done", flush=True)


def state_of(state: RunState, own: Container[str]) -> RunState:
    """What concerns these clients; what others have sent is not theirs."""
    results = tuple(replace(result_of(result, own), bytes_sent=0, bytes_received=0) for result in state.history)
    accounts = {client: account for client, account in state.accounts.items() if client in own}
    return replace(state, history=results, accounts=accounts)


def result_of(result: RoundResult, own: Container[str]) -> RoundResult:
    metrics = {client: found for client, found in result.client_metrics.items() if client in own}
    failures = tuple(failure for failure in result.failures if failure.client in own)
    return replace(result, client_metrics=metrics, failures=failures)


app = regional_app(main)
