"""The model card: card.json for programs, README.md for people."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from fedaux import __version__
from fedaux.algorithms.run_state import RunState
from fedaux.config.methods import METHODS
from fedaux.config.prototype import PrototypeSpec
from fedaux.data.federated import PublicData, client_names
from fedaux.data.record_spec import RecordSpec

FORMAT = 1
SHOWN = 50  # classes listed in README.md
TASKS = {"image": "image-classification", "numbers": "tabular-classification", "text": "text-classification"}

WEIGHTS_COVERED = {
    True: "The weights of this model are computed from those, from sizes and from public data alone, so the same holds "
    "for them and for its predictions.",
    False: "**The weights of this model and its predictions carry no guarantee**: they may tell of single private "
    "records. Give them only to those who may know.",
}

Card = dict[str, Any]


def make_card(state: RunState, spec: PrototypeSpec, public: PublicData, record_spec: RecordSpec) -> Card:
    """The card of one prototype of a finished run; `save_pretrained` adds what it knows of the files."""
    config, accuracy = state.config, state.history[-1].accuracy
    split: dict[str, Card] = {"dirichlet": {"alpha": config.data.alpha}, "shards": {"shards": config.data.shards}}
    return {
        "format": FORMAT,
        "fedaux": __version__,
        "prototype": {"name": spec.name, "options": dict(spec.options)},
        "record": record_spec.to_card(),
        "classes": list(public.classes),
        "method": config.method,
        "rounds": state.round,
        "metrics": {
            "accuracy": accuracy[spec.label],
            "accuracy_per_prototype": accuracy,
            "test_records": len(public.test),
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


def render_page(card: Card, folder: str) -> str:
    """README.md: front matter for model hubs, then the card as text. `folder` is the model's name in the examples."""
    record_spec = RecordSpec.from_card(card["record"])
    method, privacy, data = _label(card["method"]), card["privacy"], card["data"]
    takes = record_spec.description
    split = ", ".join(f"{key} {value}" for key, value in data["split"].items())
    return f"""{_front_matter(card, record_spec)}
# {card["prototype"]["name"]}, trained with {method}

Tells {len(card["classes"])} classes apart, from {takes}. {data["clients"]} clients trained it together in
{card["rounds"]} rounds of {method} without giving their data away, with fedaux {card["fedaux"]}.
Everything below is also in `card.json`, for programs, with all settings of the run.

## Use

```python
from fedaux.export.model import Model

model = Model.from_pretrained({json.dumps(folder, ensure_ascii=False)})
probabilities = model.predict(records)  # {takes}; returns (N, {len(card["classes"])})
```
{_onnx_use(card)}
Classes, in the order of the columns: {_listed(card["classes"])}.

## Data

| | |
| --- | --- |
| private data | {data["source"]}, {data["clients"]} clients ({split}) |
| public data without labels | {data["auxiliary"]["source"]}, {data["auxiliary"]["records"]} records |
| test data | {card["metrics"]["test_records"]} labelled records at the server |

## Accuracy

After the last round, which need not be the best, {100 * card["metrics"]["accuracy"]:.1f} % of the test records are
classified rightly.

## Privacy

{privacy["statement"]}

{WEIGHTS_COVERED[privacy["weights_covered"]]}

## Limits

- It knows these classes and no other: whatever it is given, it names one of them.
- The probabilities are the network's own; whether they are right as often as they say was not measured.
- The accuracy holds for data like the test data. How good it is for each client or group was not measured.
{_image_limits(record_spec)}
## Licence

None is given: whoever owns the data and the run decides. Put `license:` into the lines at the top before you publish.
"""


def _front_matter(card: Card, record_spec: RecordSpec) -> str:
    """YAML with JSON values, which quote names safely."""
    tags = ["federated-learning", "fedaux", *(["differential-privacy"] if card["privacy"]["weights_covered"] else [])]
    name, task = card["prototype"]["name"], {"type": TASKS[record_spec.kind]}
    dataset = {"name": card["data"]["source"], "type": card["data"]["source"]}
    metrics = [{"type": "accuracy", "value": round(card["metrics"]["accuracy"], 4)}]
    index = [{"name": name, "results": [{"task": task, "dataset": dataset, "metrics": metrics}]}]
    return f"""---
# license: yours to choose, for example apache-2.0
library_name: fedaux
pipeline_tag: {TASKS[record_spec.kind]}
tags: {json.dumps(tags)}
metrics: ["accuracy"]
model-index: {json.dumps(index, ensure_ascii=False)}
---
"""


def _onnx_use(card: Card) -> str:
    if "onnx" not in card:
        return ""
    onnx = card["onnx"]
    return f"""
Without fedaux or PyTorch, `{onnx["file"]}` takes the same records, of type {onnx["dtype"]}:

```python
import onnxruntime

session = onnxruntime.InferenceSession("{onnx["file"]}")
probabilities, logits = session.run(None, {{"{onnx["input"]}": records}})
```
"""


def _image_limits(record_spec: RecordSpec) -> str:
    if record_spec.kind != "image":
        return ""
    return f"""- Images must have this very size. The network inside sees `{record_spec.to_card()["scaling"]}`;
  `Model` and `model.onnx` do that for you.
"""


def _label(method: str) -> str:
    """A card may come from anywhere: the module that it names is not imported."""
    return METHODS[method].label if method in METHODS else method


def _listed(classes: Sequence[str]) -> str:
    more = f" and {len(classes) - SHOWN} more, see `card.json`" if len(classes) > SHOWN else ""
    return ", ".join(classes[:SHOWN]) + more
