"""Callbacks that log a run to TensorBoard, MLflow or Weights & Biases, each once its package is installed."""

from __future__ import annotations

import os
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from typing import Any

from fedaux.config.methods import find_method
from fedaux.config.schema import Config, flatten
from fedaux.core.errors import MissingPackageError, unknown_name
from fedaux.runs.callbacks import Callback, Row, round_metrics
from fedaux.server.run_state import RunState


class Tracker(Callback):
    """Logs the metrics of every round once. What it missed is logged at the next round, or when the run is resumed."""

    logged = 0  # rounds

    def on_run_start(self, config: Config, folder: Path, state: RunState | None) -> None:
        self.open(config, folder)
        if state:
            self.on_round_end(state)

    def on_round_end(self, state: RunState) -> None:
        for result in state.history[self.logged :]:
            self.log(round_metrics(result), result.round)
            self.logged = result.round

    def open(self, config: Config, folder: Path) -> None:
        """Start, or continue; `logged` is how many rounds are there already."""
        raise NotImplementedError

    def log(self, row: Row, step: int) -> None:
        raise NotImplementedError


class TensorBoard(Tracker):
    """Event files in `FOLDER/tensorboard`; look at them with `tensorboard --logdir FOLDER`."""

    def __init__(self) -> None:
        self._writer_class: Any = import_module("torch.utils.tensorboard").SummaryWriter

    def open(self, config: Config, folder: Path) -> None:
        self._writer = self._writer_class(str(folder / "tensorboard"), purge_step=0)  # everything is written anew
        self._writer.add_text("config", "\n".join(f"    {key} = {value}" for key, value in flatten(config).items()))

    def log(self, row: Row, step: int) -> None:
        for name, value in row.items():
            self._writer.add_scalar(name, value, step)
        self._writer.flush()

    def on_run_end(self) -> None:
        self._writer.close()


class MLflow(Tracker):
    """In `FOLDER/mlflow.db`, or where $MLFLOW_TRACKING_URI says; a run is found again by its folder's name and hash."""

    def __init__(self) -> None:
        self._mlflow: Any = import_module("mlflow")

    def open(self, config: Config, folder: Path) -> None:
        mlflow = self._mlflow
        mlflow.set_tracking_uri(os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{folder.absolute()}/mlflow.db")
        experiment = mlflow.set_experiment("fedaux")
        identity = f"{folder.name}-{config.hash}"
        known = mlflow.search_runs([experiment.experiment_id], f"tags.fedaux = '{identity}'", output_format="list")
        if known:
            mlflow.start_run(run_id=known[0].info.run_id)
            self.logged = int(known[0].data.metrics.get("round", 0))
        else:
            mlflow.start_run(
                run_name=folder.name, tags={"fedaux": identity, "method": find_method(config.method).label}
            )
            mlflow.log_params(flatten(config))

    def log(self, row: Row, step: int) -> None:
        self._mlflow.log_metrics({name: float(value) for name, value in row.items()}, step=step)

    def on_run_end(self) -> None:
        self._mlflow.end_run()


class WandB(Tracker):
    """Project `fedaux`, or $WANDB_PROJECT; with WANDB_MODE=offline below the run's folder, to be synced later."""

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

    def log(self, row: Row, step: int) -> None:
        self._run.log(row, step=step)

    def on_run_end(self) -> None:
        self._run.finish()


TRACKERS: dict[str, type[Tracker]] = {"tensorboard": TensorBoard, "mlflow": MLflow, "wandb": WandB}


def make_callbacks(names: Iterable[str]) -> list[Callback]:
    """By name, as `fedaux run --track NAME` has them."""
    callbacks: list[Callback] = []
    for name in names:
        if name not in TRACKERS:
            raise unknown_name("tracker", name, TRACKERS)
        try:
            callbacks.append(TRACKERS[name]())
        except ImportError as error:
            raise MissingPackageError(f"--track {name} needs {name}: pip install 'fedaux[{name}]'") from error
    return callbacks
