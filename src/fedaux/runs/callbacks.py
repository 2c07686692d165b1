"""Callbacks of a run: JSON lines always; TensorBoard, MLflow, Weights & Biases and your
own on demand.

A round is saved before any callback is called. A callback that raises loses its own
record, never the round.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from fedaux.config.methods import find_method
from fedaux.config.schema import Config, flatten
from fedaux.core.errors import MissingPackageError, unknown_name
from fedaux.core.metrics import METRIC_NAMES
from fedaux.core.progress import OnProgress, ProgressEvent, RoundFinished, RunStarted
from fedaux.core.results import RoundResult
from fedaux.server.run_state import RunState

log = logging.getLogger(__name__)
METRICS, CLIENTS = "metrics.jsonl", "clients.jsonl"
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
            state: The state that a resumed run continues from; None for a new run.
        """

    def on_round_end(self, state: RunState) -> None:
        """Called after a round is saved.

        Args:
            state: The state after the round; `state.history[-1]` is its result.
        """

    def on_run_end(self) -> None:
        """Called at the end of the run, also if it was stopped or has failed."""


@contextmanager
def calling(
    callbacks: Sequence[Callback],
    config: Config,
    folder: Path,
    saved: Callable[[], RunState | None],
) -> Iterator[OnProgress]:
    """Yield a listener that calls the callbacks at the events of a run, with the state
    last `saved`.

    The first error of each callback is logged, and it is called again after the next
    round. A callback that fails to start is dropped.
    """
    active, warned = list(callbacks), set[int]()

    def succeeds(callback: Callback, hook: str, *arguments: Any) -> bool:
        try:
            getattr(callback, hook)(*arguments)
        except Exception as error:
            if id(callback) not in warned:
                warned.add(id(callback))
                name, reason = (
                    type(callback).__name__,
                    f"{type(error).__name__}: {error}",
                )
                log.warning(
                    "%s failed in %s (%s); the run continues, its record may have gaps",
                    name,
                    hook,
                    reason,
                )
            return False
        return True

    def on_progress(event: ProgressEvent) -> None:
        if isinstance(event, RunStarted):
            active[:] = [
                one
                for one in active
                if succeeds(one, "on_run_start", config, folder, saved())
            ]
        elif isinstance(event, RoundFinished):
            for one in active:
                succeeds(one, "on_round_end", saved())

    try:
        yield on_progress
    finally:
        for one in active:
            succeeds(one, "on_run_end")


def round_metrics(result: RoundResult) -> Row:
    """Return the metrics of a round as one flat row, without those that do not apply,
    such as FedAVG's teachers.
    """
    row = {
        "round": result.round,
        "accuracy": result.mean_accuracy,
        **(_named("accuracy", result.accuracy) if len(result.accuracy) > 1 else {}),
        **{name: result.mean_metric(name) for name in METRIC_NAMES},
        "local_loss": result.local_loss,
        "distill_loss": result.distill_loss,
        "effective_teachers": result.effective_teachers,
        "largest_teacher_share": result.largest_teacher[1]
        if result.largest_teacher
        else None,
        "clients": len(result.client_metrics),
        "failed": len(result.failures),
        "epsilon": result.epsilon,
        "bytes_sent": result.bytes_sent,
        "bytes_received": result.bytes_received,
        "seconds": sum(result.seconds.values()),
        **_named("seconds", result.seconds),
    }
    return {key: value for key, value in row.items() if value is not None}


def client_rows(result: RoundResult) -> list[Row]:
    """Return one row for each client asked in a round: its metrics, or why it
    failed.
    """
    counted = [
        {"round": result.round, "client": name, **vars(one)}
        for name, one in result.client_metrics.items()
    ]
    failed = [
        {"round": result.round, "client": one.client, "failure": one.reason}
        for one in result.failures
    ]
    return counted + failed


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
        """Start or continue the record; set `logged` to the number of rounds that it
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
        self._files = folder / METRICS, folder / CLIENTS
        self._sizes = [0, 0]  # bytes that are complete
        for path in self._files:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"")

    def log(self, result: RoundResult) -> None:
        sizes, tables = [], ([round_metrics(result)], client_rows(result))
        for path, size, rows in zip(self._files, self._sizes, tables, strict=True):
            with path.open("ab") as file:
                # a write that failed may have left some of this round
                file.truncate(min(size, file.tell()))
                file.write(
                    "".join(
                        json.dumps(row, ensure_ascii=False) + "\n" for row in rows
                    ).encode()
                )
                sizes.append(file.tell())
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
        self._writer.add_text(
            "config",
            "\n".join(f"    {key} = {value}" for key, value in flatten(config).items()),
        )

    def log(self, result: RoundResult) -> None:
        for name, value in round_metrics(result).items():
            self._writer.add_scalar(name, value, result.round)
        self._writer.flush()

    def on_run_end(self) -> None:
        self._writer.close()


class MLflow(Tracker):
    """Logs to `FOLDER/mlflow.db`, or to $MLFLOW_TRACKING_URI; a run is found again by
    its folder's name and hash.
    """

    def __init__(self) -> None:
        self._mlflow: Any = import_module("mlflow")

    def open(self, config: Config, folder: Path) -> None:
        mlflow = self._mlflow
        mlflow.set_tracking_uri(
            os.environ.get("MLFLOW_TRACKING_URI")
            or f"sqlite:///{folder.absolute()}/mlflow.db"
        )
        experiment = mlflow.set_experiment("fedaux")
        identity = f"{folder.name}-{config.hash}"
        known = mlflow.search_runs(
            [experiment.experiment_id],
            f"tags.fedaux = '{identity}'",
            output_format="list",
        )
        if known:
            mlflow.start_run(run_id=known[0].info.run_id)
            self.logged = int(known[0].data.metrics.get("round", 0))
        else:
            tags = {"fedaux": identity, "method": find_method(config.method).label}
            mlflow.start_run(run_name=folder.name, tags=tags)
            mlflow.log_params(flatten(config))

    def log(self, result: RoundResult) -> None:
        metrics = {name: float(value) for name, value in round_metrics(result).items()}
        self._mlflow.log_metrics(metrics, step=result.round)

    def on_run_end(self) -> None:
        self._mlflow.end_run()


class WandB(Tracker):
    """Logs to project `fedaux`, or $WANDB_PROJECT; with WANDB_MODE=offline to the run's
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
                f"--track {name} needs {name}: pip install 'fedaux[{name}]'"
            ) from error
    return callbacks
