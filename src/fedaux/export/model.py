"""A trained model, loaded from the folder that `export_model` wrote.

model = Model.from_pretrained("runs/digits/model")
probabilities = model.predict(images)
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from jinja2 import Environment, PackageLoader
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.torch import load, save

from fedaux.config.methods import METHODS
from fedaux.config.prototype import PrototypeSpec
from fedaux.core.errors import Exit, FedauxError
from fedaux.core.io import write_atomically
from fedaux.core.metrics import METRIC_NAMES
from fedaux.data.objects import as_rows
from fedaux.data.records import Records, RecordSpec
from fedaux.export.onnx_graph import to_onnx
from fedaux.models import Prototype, build
from fedaux.models.compute import place_by_settings
from fedaux.models.encoders import TOKENIZER_OPTION, TextExtractor
from fedaux.models.inference import predict
from fedaux.models.registry import hidden_head
from fedaux.server.run_state import STATE_FILE

FORMAT = 1  # of the card
CARD, WEIGHTS, ONNX, PAGE, TOKENIZER = (
    "card.json",
    "model.safetensors",
    "model.onnx",
    "README.md",
    "tokenizer",
)
TASKS = {
    "image": "image-classification",
    "numbers": "tabular-classification",
    "text": "text-classification",
}
SHOWN = 50  # classes listed in README.md

Card = dict[str, Any]  # card.json: what programs read; README.md is made of it


class ModelError(FedauxError, ValueError):
    """A folder holds no model, or a damaged one."""

    code = Exit.FOLDER


@dataclass(frozen=True, eq=False)
class Model:
    """A trained network and its card.

    Attributes:
        network: The network, in eval mode.
        card: Facts about the model, among them its `metrics` and `privacy` statement.
    """

    network: Prototype = field(repr=False)
    card: Card

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the classes, in the order of the columns of `predict`."""
        return tuple(self.card["classes"])

    @property
    def record_spec(self) -> RecordSpec:
        """Kind and shape of one record."""
        return RecordSpec.from_card(self.card["record"])

    def predict(self, records: Any) -> NDArray[np.float32]:
        """Predict the class of each record.

        Args:
            records: uint8 images (N, H, W, C), rows of numbers (N, ...), or a list of
                texts, as `record_spec` says.

        Returns:
            Probabilities (N, C), with columns in the order of `classes`.
        """
        probabilities: NDArray[np.float32] = (
            torch.from_numpy(self.logits(records)).softmax(dim=1).numpy()
        )
        return probabilities

    def logits(self, records: Any) -> NDArray[np.float32]:
        """Compute the logits behind `predict`.

        Args:
            records: As for `predict`.

        Returns:
            Logits (N, C), with columns in the order of `classes`.
        """
        rows = self.record_spec.validate(as_rows(records) if len(records) else records)
        if len(rows) == 0:
            return np.zeros((0, len(self.classes)), np.float32)
        return predict(self.network, Records(rows))

    @classmethod
    def from_pretrained(
        cls, folder: str | Path, device: str = "auto", precision: str = "float32"
    ) -> Self:
        """Load a model that `export_model` or `save_pretrained` wrote.

        A card may name a network as `module:function`, which is imported and called:
        load only models from people you trust.

        Args:
            folder: The folder of the model, or its parent or run if that holds only one
                model.
            device: As in a configuration: auto, cpu, cuda, …
            precision: As in a configuration: float32, …

        Returns:
            The model, in eval mode on the device.
        """
        folder = find_model(Path(folder).expanduser())
        card = read_card(folder)
        try:
            shape = RecordSpec.from_card(card["record"]).input_shape
            network = build(_spec(card, folder), shape, len(card["classes"]), seed=0)
            if hidden := int(card.get("hidden", 0)):
                network.head = hidden_head(network.width, hidden, len(card["classes"]))  # type: ignore[assignment]
            if not (folder / WEIGHTS).is_file():
                raise ValueError(f"{WEIGHTS} is missing")
            data = (folder / WEIGHTS).read_bytes()
            if hashlib.sha256(data).hexdigest() != card["weights"]["sha256"]:
                raise ValueError(
                    f"{WEIGHTS} is not the file that the card was written for"
                )
            network.load_state_dict(load(data))
        except (
            KeyError,
            TypeError,
            ValueError,
            AttributeError,
            RuntimeError,
            SafetensorError,
        ) as error:
            reason = (
                f"no {error}"
                if isinstance(error, KeyError)
                else " ".join(str(error).split())
            )
            raise ModelError(
                f"the model in {folder} cannot be read: {reason}"
            ) from error
        return cls(place_by_settings(network.eval(), device, precision, shape), card)

    def save_pretrained(self, folder: str | Path, onnx: bool = False) -> Path:
        """Write weights, README.md, an ONNX graph if requested, and last the card,
        which marks a complete export.

        Args:
            folder: The folder to write to; it is created if necessary.
            onnx: Also write an ONNX graph.

        Returns:
            The folder's path.
        """
        folder, card = (
            Path(folder),
            {key: value for key, value in self.card.items() if key != "onnx"},
        )
        graph = to_onnx(self.network, self.record_spec) if onnx else None
        tensors = {
            name: value.detach().clone().contiguous()
            for name, value in self.network.state_dict().items()
        }
        data = save(tensors)  # cloned: safetensors rejects shared memory
        card["weights"] = {
            "file": WEIGHTS,
            "sha256": hashlib.sha256(data).hexdigest(),
            "parameters": sum(
                parameter.numel() for parameter in self.network.parameters()
            ),
        }
        write_atomically(folder / WEIGHTS, data)
        if (
            isinstance(self.network.features, TextExtractor)
            and card["prototype"]["name"] in TOKENIZER_OPTION
        ):
            self.network.features.save_tokenizer(folder / TOKENIZER)
            options = {
                **card["prototype"]["options"],
                TOKENIZER_OPTION[card["prototype"]["name"]]: TOKENIZER,
            }
            card["prototype"] = {**card["prototype"], "options": options}
        (folder / ONNX).unlink(missing_ok=True)  # of an earlier export
        if graph:
            write_atomically(folder / ONNX, graph[0])
            card["onnx"] = graph[1]
        write_atomically(folder / PAGE, render_page(card, folder.name).encode())
        write_atomically(
            folder / CARD, json.dumps(card, indent=1, ensure_ascii=False).encode()
        )
        return folder


def find_model(folder: Path) -> Path:
    """Find the folder of the only model in `folder`, below it, or below the `model`
    folder of a run.
    """
    if (folder / CARD).is_file():
        return folder
    models = sorted(
        card.parent
        for pattern in (f"*/{CARD}", f"model/*/{CARD}")
        for card in folder.glob(pattern)
    )
    if len(models) == 1:
        return models[0]
    if models:
        raise ModelError(
            f"{folder} holds several models, choose one of "
            f"{', '.join(map(str, models))}"
        )
    if (folder / STATE_FILE).is_file():
        raise ModelError(
            f"{folder} is a run that was not exported yet; do so with `fedaux export "
            f"{folder}`"
        )
    raise ModelError(
        f"{folder} holds no model ({CARD} is missing); `fedaux export RUN` makes one "
        "of a finished run"
    )


def read_card(folder: Path) -> Card:
    """Read the card of a model; raise an error if it has another format version."""
    try:
        card = json.loads((folder / CARD).read_bytes())
    except ValueError as error:
        raise ModelError(
            f"{folder / CARD} is damaged ({error}); export the run again"
        ) from error
    version = card.get("format") if isinstance(card, dict) else None
    if version != FORMAT:
        raise ModelError(
            f"{folder / CARD} was written by another version of fedaux (format "
            f"{version}, not {FORMAT})"
        )
    return dict(card)


def render_page(card: Card, folder: str) -> str:
    """Return README.md: front matter for model hubs, then the card as text. Examples
    call the model `folder`.

    The front matter is YAML with JSON values, which quote names safely.
    """
    record_spec, source, method = (
        RecordSpec.from_card(card["record"]),
        card["data"]["source"],
        card["method"],
    )
    task = TASKS[record_spec.kind]
    tags = [
        "federated-learning",
        "fedaux",
        *(["differential-privacy"] if card["privacy"]["weights_covered"] else []),
    ]
    result = {
        "task": {"type": task},
        "dataset": {"name": source, "type": source},
        "metrics": [
            {"type": name, "value": round(card["metrics"][name], 4)}
            for name in ("accuracy", "balanced_accuracy", "macro_f1", "auc")
            if name in card["metrics"]
        ],
    }
    environment = Environment(
        loader=PackageLoader("fedaux.export"),
        trim_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["json"] = partial(json.dumps, ensure_ascii=False)
    return environment.get_template("README.md").render(
        card=card,
        folder=folder,
        task=task,
        tags=tags,
        index=[{"name": card["prototype"]["name"], "results": [result]}],
        # a card may come from anywhere: no import
        method=METHODS[method].label if method in METHODS else method,
        takes=record_spec.description,
        split=", ".join(
            f"{key} {value}" for key, value in card["data"]["split"].items()
        ),
        shown=SHOWN,
        names=METRIC_NAMES,
    )


def _spec(card: Card, folder: Path) -> PrototypeSpec:
    """The prototype of a card; a text prototype takes its tokenizer from the model's
    folder.
    """
    name, options = card["prototype"]["name"], dict(card["prototype"]["options"])
    if name in TOKENIZER_OPTION and options.get(TOKENIZER_OPTION[name]) == TOKENIZER:
        options[TOKENIZER_OPTION[name]] = str(folder / TOKENIZER)
    if not all(
        isinstance(value, int | float | str | bool) for value in options.values()
    ):
        raise ValueError(f"the options of prototype {name!r} must be numbers or words")
    return PrototypeSpec.of(name, **options)
