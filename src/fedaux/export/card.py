"""The model card: card.json for programs, README.md for people."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

from jinja2 import Environment, PackageLoader

from fedaux import __version__
from fedaux.config.methods import METHODS
from fedaux.config.prototype import PrototypeSpec
from fedaux.core.metrics import METRIC_NAMES
from fedaux.data.federated import PublicData, client_names
from fedaux.data.records import RecordSpec
from fedaux.models.inference import fingerprint_arrays
from fedaux.server.result import last_evaluations
from fedaux.server.run_state import RunState

FORMAT = 1
SHOWN = 50  # classes listed in README.md
TASKS = {"image": "image-classification", "numbers": "tabular-classification", "text": "text-classification"}

Card = dict[str, Any]


def make_card(state: RunState, spec: PrototypeSpec, public: PublicData, record_spec: RecordSpec) -> Card:
    """The card of one prototype of a finished run; `save_pretrained` adds what it knows of the files."""
    config, accuracy = state.config, state.history[-1].accuracy
    split: dict[str, Card] = {"dirichlet": {"alpha": config.data.alpha}, "shards": {"shards": config.data.shards}}
    return {
        "format": FORMAT,
        "fedaux": __version__,
        "prototype": {"name": spec.name, "options": dict(spec.options)},
        "extractor_hash": fingerprint_arrays(state.extractors.get(spec.label, {})) if state.extractors else "",
        "hidden": config.random_features,  # of the head; 0: it is linear
        "record": record_spec.to_card(),
        "classes": list(public.classes),
        "method": config.method,
        "rounds": state.round,
        "metrics": {
            "accuracy": accuracy[spec.label],
            "accuracy_per_prototype": accuracy,
            "test_records": len(public.test),
            **_figures(state, spec, public.classes),
        },
        "privacy": state.ledger.to_dict(),
        "data": {
            "source": config.data.source,
            "clients": len(client_names(config)),
            "split": {"partition": config.data.partition, **split.get(config.data.partition, {})},
            "auxiliary": {
                "source": config.aux.source or f"held out of {config.data.source}",
                "records": len(public.aux),
            },
        },
        "config": config.to_dict(),
    }


def _figures(state: RunState, spec: PrototypeSpec, classes: tuple[str, ...]) -> Card:
    """Everything that belongs beside an accuracy, and what is wrong with the model, if anything is."""
    evaluation = last_evaluations(state)[spec.label]
    recalls = {name: vars(evaluation.of_class(label)) for label, name in enumerate(classes) if evaluation.counts[label]}
    return {**evaluation.summary(), "recall": recalls, "warning": evaluation.collapse(classes)}


def render_page(card: Card, folder: str) -> str:
    """README.md: front matter for model hubs, then the card as text. `folder` is the model's name in the examples.

    The front matter is YAML with JSON values, which quote names safely.
    """
    record_spec, source = RecordSpec.from_card(card["record"]), card["data"]["source"]
    task = TASKS[record_spec.kind]
    tags = ["federated-learning", "fedaux", *(["differential-privacy"] if card["privacy"]["weights_covered"] else [])]
    result = {
        "task": {"type": task},
        "dataset": {"name": source, "type": source},
        "metrics": [
            {"type": name, "value": round(card["metrics"][name], 4)}
            for name in ("accuracy", "balanced_accuracy", "macro_f1", "auc")
            if name in card["metrics"]
        ],
    }
    environment = Environment(loader=PackageLoader("fedaux.export"), trim_blocks=True, keep_trailing_newline=True)
    environment.filters["json"] = partial(json.dumps, ensure_ascii=False)
    return environment.get_template("README.md").render(
        card=card,
        folder=folder,
        task=task,
        tags=tags,
        index=[{"name": card["prototype"]["name"], "results": [result]}],
        method=_label(card["method"]),
        takes=record_spec.description,
        split=", ".join(f"{key} {value}" for key, value in card["data"]["split"].items()),
        shown=SHOWN,
        names=METRIC_NAMES,
    )


def _label(method: str) -> str:
    """A card may come from anywhere: the module that it names is not imported."""
    return METHODS[method].label if method in METHODS else method
