"""A tiny run, and what a run leaves behind without the run itself."""

from dataclasses import replace
from pathlib import Path

from fedaux import Config, run
from fedaux.config.methods import METHODS
from fedaux.core.accounts import Account
from fedaux.core.results import ClientMetrics, RoundResult
from fedaux.data.federated import open_data
from fedaux.models import build, flatten_state
from fedaux.server.networks import calibrations, evaluate_classes
from fedaux.server.result import FinishedRun
from fedaux.server.run_state import ClientRecord, RunState
from fedaux.server.run_writer import RunWriter
from helpers.samples import release
from helpers.tiny import TINY_CONFIG

ACCOUNT = Account(0.1, 1e-5, "replace-one", "record", 1)


def tiny_run(folder: Path, config: Config = TINY_CONFIG) -> FinishedRun:
    return run(config, folder / "run", cache=folder / "cache")


def finished_state(config: Config = TINY_CONFIG) -> RunState:
    """As after the last round, with networks that have learned nothing and the accuracy
    that they really have.
    """
    data, scores = open_data(config), METHODS[config.method].scores
    networks = {
        spec.label: build(spec, data.test.shape, len(data.classes), config.seed)
        for spec in config.prototypes
    }
    tests = {
        label: evaluate_classes(network, data.test, len(data.classes))
        for label, network in networks.items()
    }
    share = 1 / len(data.clients) if METHODS[config.method].distils else None
    result = RoundResult(
        config.rounds,
        {label: one.accuracy for label, one in tests.items()},
        {
            name: ClientMetrics(len(data.client(i)), 0.5, 1.0, share)
            for i, name in enumerate(data.clients)
        },
        epsilon=ACCOUNT.epsilon if scores else None,
        effective_teachers=float(len(data.clients)) if share else None,
        bytes_sent=3000,
        bytes_received=2000,
        seconds={"train": 2.0, "test": 1.0},
        metrics={label: one.summary() for label, one in tests.items()},
        confusion={label: one.table.tolist() for label, one in tests.items()},
        calibration=calibrations(tests),
    )
    trained = {
        label: network.head if config.head_only else network
        for label, network in networks.items()
    }
    frozen = {
        label: network.features
        for label, network in networks.items()
        if config.head_only
    }
    return RunState(
        config,
        config.rounds,
        {label: flatten_state(module) for label, module in trained.items()},
        {label: flatten_state(module) for label, module in frozen.items()},
        releases={name: release(name) for name in data.clients} if scores else {},
        clients=dict.fromkeys(data.clients, ClientRecord(ACCOUNT)) if scores else {},
        history=(
            *(
                replace(result, round=i, confusion=None, calibration=None)
                for i in range(1, config.rounds)
            ),
            result,
        ),
    )


def finished_run(folder: Path, config: Config = TINY_CONFIG) -> FinishedRun:
    """The same, saved in a folder."""
    state = finished_state(config)
    RunWriter(folder).save(state)
    return FinishedRun(state, folder)
