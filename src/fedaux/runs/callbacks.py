"""Callbacks of a run: JSON lines always; TensorBoard, MLflow, Weights & Biases and your
own on demand.

A round is saved before any callback is called. A callback that raises loses its own
record, never the round.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from fedaux.config.methods import find_method
from fedaux.config.schema import Config, flatten
from fedaux.core.errors import MissingPackageError, install_command, unknown_name
from fedaux.core.metrics import METRIC_NAMES
from fedaux.core.results import RoundResult
from fedaux.server.run_state import RunState

log = logging.getLogger(__name__)
METRICS = "metrics.jsonl"
CLIENTS = "clients.jsonl"
Row = dict[str, Any]


class Callback:
    """Base class of callbacks: override the methods you need. A resumed run calls
    `on_run_start` again.
    """

    def on_run_start(
        self, config: Config, folder: Path, state: RunState | None
    ) -> None:
        """Called before the run does anything.

        Args:
            config: The settings of the run.
            folder: The folder of the run.
            state: The state that a resumed run continues from, or None for a new run.
        """

    def on_round_end(self, state: RunState) -> None:
        """Called after a round is saved.

        Args:
            state: The state after the round. `state.history[-1]` is its result.
        """

    def on_run_end(self) -> None:
        """Called at the end of the run, also if it was stopped or has failed."""


class CallbackGroup:
    """Calls the callbacks of a run.

    The first error of each callback is logged, and it is called again after the next
    round. A callback that fails to start is dropped.
    """

    def __init__(self, callbacks: Iterable[Callback]) -> None:
        self._active = list(callbacks)
        self._warned: set[int] = set()  # ids of callbacks

    def start(self, config: Config, folder: Path, state: RunState | None) -> None:
        """Call `on_run_start` of all callbacks."""
        self._active = [
            callback
            for callback in self._active
            if self._call(callback, callback.on_run_start, config, folder, state)
        ]

    def end_round(self, state: RunState) -> None:
        """Call `on_round_end` of all callbacks."""
        for callback in self._active:
            self._call(callback, callback.on_round_end, state)

    def end(self) -> None:
        """Call `on_run_end` of all callbacks."""
        for callback in self._active:
            self._call(callback, callback.on_run_end)

    def _call(
        self, callback: Callback, hook: Callable[..., None], *arguments: Any
    ) -> bool:
        """Call a hook; return whether it succeeded."""
        try:
            hook(*arguments)
        except Exception as error:
            if id(callback) not in self._warned:
                self._warned.add(id(callback))
                log.warning(
                    "%s failed in %s (%s). The run continues, but its record may have "
                    "gaps",
                    type(callback).__name__,
                    hook.__name__,
                    f"{type(error).__name__}: {error}",
                )
            return False
        return True


def round_metrics(result: RoundResult) -> Row:
    """Return the metrics of a round as one flat row, without those that do not apply,
    such as FedAvg's teachers.
    """
    row: Row = {"round": result.round, "accuracy": result.mean_accuracy}
    row["start"] = result.mean_start
    if len(result.accuracy) > 1:
        row |= _named("accuracy", result.accuracy)
    for name in METRIC_NAMES:
        row[name] = result.mean_metric(name)
    largest_share = None
    if result.largest_teacher is not None:
        _, largest_share = result.largest_teacher
    row |= {
        "local_loss": result.local_loss or None,  # where no one trains, or tells it
        "distill_loss": result.distill_loss,
        "effective_teachers": result.effective_teachers,
        "largest_teacher_share": largest_share,
        "clients": len(result.client_metrics),
        "failed": len(result.failures),
        "epsilon": result.epsilon,
        "bytes_sent": result.bytes_sent,
        "bytes_received": result.bytes_received,
        "seconds": sum(result.seconds.values()),
    }
    row |= _named("seconds", result.seconds)
    return {key: value for key, value in row.items() if value is not None}


def client_rows(result: RoundResult, hidden: bool = False) -> list[Row]:
    """Return one row for each client asked in a round: its metrics unless they are
    hidden, or why it failed.
    """
    rows: list[Row] = []
    for client, metrics in result.client_metrics.items():
        figures = {} if hidden else vars(metrics)
        rows.append({"round": result.round, "client": client, **figures})
    for failure in result.failures:
        row = {"client": failure.client, "failure": failure.reason}
        rows.append({"round": result.round, **row})
    return rows


def _named(prefix: str, values: Mapping[str, float]) -> Row:
    return {f"{prefix}/{name}": value for name, value in values.items()}


class Tracker(Callback):
    """Logs the metrics of every round once. A round that it missed is logged with the
    next, or when the run resumes.
    """

    logged: int  # rounds

    def on_run_start(
        self, config: Config, folder: Path, state: RunState | None
    ) -> None:
        self.logged = 0
        self.open(config, folder)
        if state:
            self.on_round_end(state)

    def on_round_end(self, state: RunState) -> None:
        for result in state.history[self.logged :]:
            self.log(result)
            self.logged = result.round

    def open(self, config: Config, folder: Path) -> None:
        """Start or continue the record. Set `logged` to the number of rounds that it
        already holds.
        """
        raise NotImplementedError

    def log(self, result: RoundResult) -> None:
        raise NotImplementedError


class JsonLines(Tracker):
    """`metrics.jsonl` and `clients.jsonl`."""

    def open(self, config: Config, folder: Path) -> None:
        """Rewrite everything: a killed run may have left half a line, or a round that
        was never saved.
        """
        folder.mkdir(parents=True, exist_ok=True)
        # in a secure sum, a site's figures are means over all sites
        self._hides_clients = config.federation.secure
        self._metrics = folder / METRICS
        self._clients = folder / CLIENTS
        # bytes that are complete
        self._sizes = {self._metrics: 0, self._clients: 0}
        for path in self._sizes:
            path.write_bytes(b"")

    def log(self, result: RoundResult) -> None:
        tables = {
            self._metrics: [round_metrics(result)],
            self._clients: client_rows(result, self._hides_clients),
        }
        sizes: dict[Path, int] = {}
        for path, rows in tables.items():
            lines = [json.dumps(row, ensure_ascii=False) + "\n" for row in rows]
            with path.open("ab") as file:
                # a write that failed may have left some of this round
                file.truncate(min(self._sizes[path], file.tell()))
                file.write("".join(lines).encode())
                sizes[path] = file.tell()
        self._sizes = sizes


class TensorBoard(Tracker):
    """Event files in `FOLDER/tensorboard`; look at them with `tensorboard --logdir
    FOLDER`.
    """

    def __init__(self) -> None:
        self._writer_class: Any = import_module("torch.utils.tensorboard").SummaryWriter

    def open(self, config: Config, folder: Path) -> None:
        # everything is written anew
        self._writer = self._writer_class(str(folder / "tensorboard"), purge_step=0)
        settings = [f"    {key} = {value}" for key, value in flatten(config).items()]
        self._writer.add_text("config", "\n".join(settings))

    def log(self, result: RoundResult) -> None:
        for name, value in round_metrics(result).items():
            self._writer.add_scalar(name, value, result.round)
        self._writer.flush()

    def on_run_end(self) -> None:
        self._writer.close()


class MLflow(Tracker):
    """Logs to `FOLDER/mlflow.db`, or to $MLFLOW_TRACKING_URI. A run is found again by
    its folder's name and hash.
    """

    def __init__(self) -> None:
        self._mlflow: Any = import_module("mlflow")

    def open(self, config: Config, folder: Path) -> None:
        mlflow = self._mlflow
        in_folder = f"sqlite:///{folder.absolute()}/mlflow.db"
        mlflow.set_tracking_uri(os.environ.get("MLFLOW_TRACKING_URI") or in_folder)
        experiment = mlflow.set_experiment("fedaux")
        identity = f"{folder.name}-{config.hash}"
        earlier_runs = mlflow.search_runs(
            [experiment.experiment_id],
            f"tags.fedaux = '{identity}'",
            output_format="list",
        )
        if earlier_runs:
            run = earlier_runs[0]
            mlflow.start_run(run_id=run.info.run_id)
            self.logged = int(run.data.metrics.get("round", 0))
            return
        tags = {"fedaux": identity, "method": find_method(config.method).label}
        mlflow.start_run(run_name=folder.name, tags=tags)
        mlflow.log_params(flatten(config))

    def log(self, result: RoundResult) -> None:
        metrics = {name: float(value) for name, value in round_metrics(result).items()}
        self._mlflow.log_metrics(metrics, step=result.round)

    def on_run_end(self) -> None:
        self._mlflow.end_run()


class WandB(Tracker):
    """Logs to project `fedaux`, or $WANDB_PROJECT. With WANDB_MODE=offline to the run's
    folder, to be synced later.
    """

    def __init__(self) -> None:
        self._wandb: Any = import_module("wandb")

    def open(self, config: Config, folder: Path) -> None:
        self._run = self._wandb.init(
            project=os.environ.get("WANDB_PROJECT", "fedaux"),
            name=folder.name,
            id=f"{folder.name}-{config.hash}",
            resume="allow",
            dir=str(folder),
            config=flatten(config),
        )
        self.logged = int(self._run.summary.get("round") or 0)

    def log(self, result: RoundResult) -> None:
        self._run.log(round_metrics(result), step=result.round)

    def on_run_end(self) -> None:
        self._run.finish()


TRACKERS: dict[str, type[Tracker]] = {
    "tensorboard": TensorBoard,
    "mlflow": MLflow,
    "wandb": WandB,
}


def make_callbacks(names: Iterable[str]) -> list[Callback]:
    """Make callbacks by name, as `fedaux run --track NAME` does.

    Args:
        names: Names of `TRACKERS`: tensorboard, mlflow, wandb.

    Returns:
        The callbacks, in the order of the names.
    """
    callbacks: list[Callback] = []
    for name in names:
        if name not in TRACKERS:
            raise unknown_name("tracker", name, TRACKERS)
        try:
            callbacks.append(TRACKERS[name]())
        except ImportError as error:
            raise MissingPackageError(
                f"Cannot use --track {name}: {name} is not installed. Run "
                f"{install_command(name)}."
            ) from error
    return callbacks
