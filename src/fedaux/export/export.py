"""Export of a finished run: each prototype in its own folder, with weights and model card."""

from __future__ import annotations

import re
from pathlib import Path
from typing import cast

from fedaux.config.prototype import PrototypeSpec
from fedaux.data.federated import open_public
from fedaux.data.record_spec import RecordSpec
from fedaux.export.card import make_card
from fedaux.export.model import Model
from fedaux.export.onnx_graph import check_onnx_support
from fedaux.models import HeadFeatures, Prototype, build, linear_head, load_state
from fedaux.server.run_state import RunState, StateError


def export_model(run: str | Path, out: str | Path | None = None, onnx: bool = False) -> list[Path]:
    """Write every prototype of a run to `out`/NAME-i; `out` is `run`/model by default.

    The run's public data must be available: the card holds the shape of a record and the names of the classes.
    """
    run = Path(run)
    state = RunState.load(run)
    if state.round < state.config.rounds:
        raise StateError(
            f"{run} has finished {state.round} of {state.config.rounds} rounds; "
            f"go on with `fedaux resume {run}` and export it then."
        )
    return write_models(state, run / "model" if out is None else Path(out), onnx)


def write_models(state: RunState, out: Path, onnx: bool = False) -> list[Path]:
    """The same from a loaded state; nothing is written if ONNX is requested but not supported."""
    models = make_models(state)
    if onnx:
        check_onnx_support(next(iter(models.values())).record_spec)
    folders = []
    for index, spec in enumerate(state.config.prototypes):
        folder = out / f"{re.sub(r'[^A-Za-z0-9_-]', '-', spec.name.rpartition(':')[2])}-{index}"
        folders.append(models[spec.label].save_pretrained(folder, onnx))
    return folders


def make_models(state: RunState) -> dict[str, Model]:
    """The trained network of each prototype, by its label."""
    public = open_public(state.config)
    record_spec = RecordSpec.of(public.test)
    return {
        spec.label: Model(
            restore_network(state, spec, record_spec, len(public.classes)), make_card(state, spec, public, record_spec)
        )
        for spec in state.config.prototypes
    }


def restore_network(state: RunState, spec: PrototypeSpec, record_spec: RecordSpec, classes: int) -> Prototype:
    """The trained network in eval mode; in head-only runs, the extractor and the trained head as one."""
    network = build(spec, record_spec.input_shape, classes, seed=0)
    if state.config.head_only:
        load_state(network.features, state.extractors[spec.label])
        head = linear_head(network.width, classes, state.config.random_features)
        load_state(head, state.weights[spec.label])
        features = cast(HeadFeatures, head.features)
        features.standardise(state.standardisation.get(spec.label, {}))
        network.head = features.fold(head.head)  # type: ignore[assignment]
    else:
        load_state(network, state.weights[spec.label])
    return network.eval()
