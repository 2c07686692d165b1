"""TensorBoard, MLflow and Weights & Biases, each an extra: `pip install 'fedaux[mlflow]'`, `fedaux run --track mlflow`.

All of them keep what they are told below the run's folder unless their own environment variables send it elsewhere.
A run that goes on after a stop goes on in the same place.
"""

from __future__ import annotations

import os
from importlib import import_module
from pathlib import Path
from typing import Any

from fedaux.algorithms.run_state import RunState
from fedaux.config.methods import find_method
from fedaux.config.schema import Config, flatten
from fedaux.experiments.tracking import Row, Tracker, round_metrics


class _EachRound:
    """Passes every round's numbers on once."""

    _round = 0

    def saved(self, state: RunState) -> None:
        if state.round > self._round:
            self._round = state.round
            self.log(round_metrics(state.history[-1]), state.round)

    def log(self, row: Row, step: int) -> None:
        raise NotImplementedError


class TensorBoard(_EachRound):
    """Event files in `FOLDER/tensorboard`; look at them with `tensorboard --logdir FOLDER`."""

    def __init__(self) -> None:
        self._writer_class: Any = import_module("torch.utils.tensorboard").SummaryWriter

    def start(self, config: Config, folder: Path, state: RunState | None) -> None:
        self._round = state.round if state else 0
        self._writer = self._writer_class(str(folder / "tensorboard"), purge_step=self._round + 1)
        if state is None:
            self._writer.add_text("config", "\n".join(f"    {key} = {value}" for key, value in flatten(config).items()))

    def log(self, row: Row, step: int) -> None:
        for name, value in row.items():
            self._writer.add_scalar(name, value, step)
        self._writer.flush()

    def end(self) -> None:
        self._writer.close()


class MLflow(_EachRound):
    """In `FOLDER/mlflow.db`, or where $MLFLOW_TRACKING_URI says; a run is found again by its folder's name and hash."""

    def __init__(self) -> None:
        self._mlflow: Any = import_module("mlflow")

    def start(self, config: Config, folder: Path, state: RunState | None) -> None:
        mlflow, self._round = self._mlflow, state.round if state else 0
        mlflow.set_tracking_uri(os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{folder.absolute()}/mlflow.db")
        experiment = mlflow.set_experiment("fedaux")
        identity = f"{folder.name}-{config.hash}"
        known = mlflow.search_runs([experiment.experiment_id], f"tags.fedaux = '{identity}'", output_format="list")
        if known:
            mlflow.start_run(run_id=known[0].info.run_id)
        else:
            mlflow.start_run(
                run_name=folder.name, tags={"fedaux": identity, "method": find_method(config.method).label}
            )
            mlflow.log_params(flatten(config))

    def log(self, row: Row, step: int) -> None:
        self._mlflow.log_metrics({name: float(value) for name, value in row.items()}, step=step)

    def end(self) -> None:
        self._mlflow.end_run()


class WandB(_EachRound):
    """Project `fedaux`, or $WANDB_PROJECT; with WANDB_MODE=offline below the run's folder, to be synced later."""

    def __init__(self) -> None:
        self._wandb: Any = import_module("wandb")

    def start(self, config: Config, folder: Path, state: RunState | None) -> None:
        self._round = state.round if state else 0
        self._run = self._wandb.init(
            project=os.environ.get("WANDB_PROJECT", "fedaux"),
            name=folder.name,
            id=f"{folder.name}-{config.hash}",
            resume="allow",
            dir=str(folder),
            config=flatten(config),
        )

    def log(self, row: Row, step: int) -> None:
        self._run.log(row, step=step)

    def end(self) -> None:
        self._run.finish()


TRACKERS: dict[str, type[Tracker]] = {"tensorboard": TensorBoard, "mlflow": MLflow, "wandb": WandB}
