"""Export of a finished run: each prototype in its own folder, with weights and model
card.
"""

from __future__ import annotations

import math
import re
from datetime import date
from pathlib import Path
from typing import cast

from fedaux import __version__
from fedaux.config.methods import find_method
from fedaux.config.prototype import PrototypeSpec
from fedaux.config.sections import DataConfig
from fedaux.core.arrays import fingerprint_arrays
from fedaux.data.federated import ServerData, client_names, open_public
from fedaux.data.records import RecordSpec
from fedaux.data.tables import schema_of_records
from fedaux.export.column_effects import ColumnEffect, column_effects
from fedaux.export.model import FORMAT, Card, Model
from fedaux.export.onnx_graph import check_onnx_support
from fedaux.models import HeadFeatures, Prototype, build, linear_head, load_state
from fedaux.models.encoders import VisionExtractor
from fedaux.server.result import describe_unknown_classes, last_evaluations
from fedaux.server.run_state import RunState, StateError
from fedaux.server.site_figures import describe_cost_of_look, figures_of_test


def export_model(
    run: str | Path, out: str | Path | None = None, onnx: bool = False
) -> list[Path]:
    """Write the trained model of every prototype of a finished run to a separate
    folder, `out`/NAME-i.

    The run's public data must be available: the card has the shape of a record and
    the names of the classes.

    Args:
        run: The folder of the run.
        out: The parent of the model folders. By default `run`/model.
        onnx: Also write an ONNX graph.

    Returns:
        The folders of the models, in the order of the prototypes.
    """
    run = Path(run)
    state = RunState.load(run)
    if state.round < state.config.rounds:
        raise StateError(
            f"Cannot export {run}: it has finished {state.round} of "
            f"{state.config.rounds} rounds. Continue with `fedaux resume {run}` and "
            "export it then."
        )
    return write_models(state, run / "model" if out is None else Path(out), onnx)


def write_models(state: RunState, out: Path, onnx: bool = False) -> list[Path]:
    """Write the models of a loaded state. Nothing is written if ONNX is requested but
    not supported.
    """
    models = make_models(state)
    if onnx:
        check_onnx_support(next(iter(models.values())).record_spec)
    folders = []
    for index, spec in enumerate(state.config.prototypes):
        # of module:function the function
        _, _, name = spec.name.rpartition(":")
        safe_name = re.sub(r"[^A-Za-z0-9_-]", "-", name)
        folder = out / f"{safe_name}-{index}"
        folders.append(models[spec.label].save_pretrained(folder, onnx))
    return folders


def make_models(state: RunState) -> dict[str, Model]:
    """Return the trained network of each prototype, by its label."""
    public = open_public(state.config)
    record_spec = RecordSpec.of(public.test)
    pretrained_by_method = find_method(state.config.method).pretrained
    schema = schema_of_records(state.config.data)
    models: dict[str, Model] = {}
    for spec in state.config.prototypes:
        network = restore_network(state, spec, record_spec, len(public.classes))
        card = make_card(state, spec, public, record_spec)
        if isinstance(network.features, VisionExtractor):
            card["encoder"] = network.features.to_card(pretrained_by_method)
        if schema is not None:
            card["schema"] = schema.to_dict()
            card["privacy"]["schema_of_records"] = not schema.header.confirmed
        model = Model(network, card)
        effects = model.columns
        if effects:
            card["columns"] = [vars(effect) for effect in effects]
        models[spec.label] = model
    return models


def effects_of_columns(state: RunState, public: ServerData) -> list[ColumnEffect]:
    """Return how far each column of a table can move the first linear model of a run;
    [] where there is none.
    """
    schema = schema_of_records(state.config.data)
    if schema is None:
        return []
    record_spec = RecordSpec.of(public.test)
    for spec in state.config.prototypes:
        network = restore_network(state, spec, record_spec, len(public.classes))
        effects = column_effects(network, schema, public.classes)
        if effects:
            return effects
    return []


def restore_network(
    state: RunState, spec: PrototypeSpec, record_spec: RecordSpec, classes: int
) -> Prototype:
    """Return the trained network in eval mode, in head-only runs, the extractor and the
    trained head joined.
    """
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


def make_card(
    state: RunState, spec: PrototypeSpec, public: ServerData, record_spec: RecordSpec
) -> Card:
    """Return the card of one prototype of a finished run. `save_pretrained` adds what
    it knows of the files.
    """
    config = state.config
    extractor_hash = ""
    if state.extractors:
        extractor_hash = fingerprint_arrays(state.extractors.get(spec.label, {}))
    return {
        "format": FORMAT,
        "fedaux": __version__,
        "created": date.today().isoformat(),
        "prototype": {"name": spec.name, "options": dict(spec.options)},
        "extractor_hash": extractor_hash,
        "hidden": config.random_features,  # of the head; 0: it is linear
        "record": record_spec.to_card(),
        "classes": list(public.classes),
        "method": config.method,
        "rounds": state.round,
        "metrics": {
            **_figures(state, spec, public.classes),
            "test_records": len(public.test),
            "unknown_classes": describe_unknown_classes(state, spec.label),
            **_figures_of_sites(state, spec),
        },
        "privacy": state.ledger.to_dict() | _cost_of_look(state),
        "data": {
            "source": config.data.source,
            "clients": len(client_names(config)),
            "split": _split(config.data),
            "auxiliary": {
                "source": config.aux.source or f"held out of {config.data.source}",
                "records": len(public.aux),
            },
        },
        "config": config.to_dict(),
    }


def _split(data: DataConfig) -> Card:
    """How the records were split among clients, with the number that decides it."""
    split: Card = {"partition": data.partition}
    if data.partition == "dirichlet":
        split["alpha"] = data.alpha
    if data.partition == "shards":
        split["shards"] = data.shards
    return split


def _figures_of_sites(state: RunState, spec: PrototypeSpec) -> Card:
    """Return the figures of the test at the sites, {} if there was none."""
    if state.site_test is None:
        return {}
    of_prototype = [
        tested.to_dict()
        for tested in figures_of_test(state.site_test)
        if tested.network == spec.label
    ]
    return {"tested_at_sites": of_prototype[0]} if of_prototype else {}


def _cost_of_look(state: RunState) -> Card:
    """Return what learning cost and what the look, apart; {} if there was no look."""
    test = state.site_test
    if test is None:
        return {}
    learning = test.total_before
    if learning is not None and math.isinf(learning):  # which JSON does not have
        learning = None
    return {
        "epsilon_of_learning": learning,
        "epsilon_of_look": test.epsilon,
        "look": describe_cost_of_look(test),
    }


def _figures(state: RunState, spec: PrototypeSpec, classes: tuple[str, ...]) -> Card:
    """The accuracy with everything that belongs next to it, and what is wrong with the
    model, if anything is; without test data at the server, nothing is known to be.
    """
    accuracy = state.history[-1].accuracy
    evaluation = last_evaluations(state).get(spec.label)
    if evaluation is None:
        return {"warning": ""}
    curve = evaluation.calibration
    recalls = {
        classes[label]: vars(evaluation.of_class(label)) for label in evaluation.tested
    }
    return {
        "accuracy": accuracy[spec.label],
        "accuracy_per_prototype": accuracy,
        **evaluation.summary(),
        "recall": recalls,
        "calibration": curve.to_rows() if curve is not None else [],
        "warning": evaluation.collapse(classes),
    }
