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
from typing import TYPE_CHECKING, Any, Self

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
from fedaux.data.table_schema import TableSchema
from fedaux.data.tables import as_frame, from_frame
from fedaux.export.column_effects import ColumnEffect, column_effects
from fedaux.export.onnx_graph import to_onnx
from fedaux.messages.declaration import Protection
from fedaux.models import Prototype, build
from fedaux.models.compute import place_by_settings
from fedaux.models.encoders import TOKENIZER_OPTION, TextExtractor
from fedaux.models.inference import predict
from fedaux.models.registry import hidden_head
from fedaux.privacy.accounting import round_up
from fedaux.server.run_state import STATE_FILE

if TYPE_CHECKING:
    from fedaux.export.classifier import Classifier

FORMAT = 1  # of the card
CARD = "card.json"
WEIGHTS = "model.safetensors"
ONNX = "model.onnx"
PAGE = "README.md"
TOKENIZER = "tokenizer"
PAGE_METRICS = (
    "accuracy",
    "balanced_accuracy",
    "macro_f1",
    "auc",
    "average_precision",
)
HUB_TASKS = {
    "image": "image-classification",
    "numbers": "tabular-classification",
    "text": "text-classification",
}
SHOWN = 50  # classes listed in README.md

Card = dict[str, Any]  # card.json: what programs read; README.md is made of it


# what a damaged or foreign folder may raise
_UNREADABLE = (
    KeyError,
    TypeError,
    ValueError,
    AttributeError,
    RuntimeError,
    SafetensorError,
)


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

    @property
    def schema(self) -> TableSchema | None:
        """The columns of its records, if it was trained on a table."""
        described = self.card.get("schema")
        return None if described is None else TableSchema.from_dict(described)

    @property
    def classifier(self) -> Classifier:
        """The model with scikit-learn's manners: `predict` returns names of classes,
        `predict_proba` probabilities.
        """
        from fedaux.export.classifier import Classifier

        return Classifier(self)

    @property
    def columns(self) -> list[ColumnEffect]:
        """Of the linear model of a table, how far each column can move a prediction,
        largest first, or [] for others. It is computed only from the weights, so it
        has the guarantee of the weights, at the same ε.
        """
        schema = self.schema
        if schema is None:
            return []
        return column_effects(self.network, schema, self.classes)

    def predict(self, records: Any) -> NDArray[np.float32]:
        """Predict the class of each record.

        Args:
            records: uint8 images (N, H, W, C), rows of numbers (N, ...), or a list of
                texts, as `record_spec` says. If there is a `schema`, a DataFrame or a
                list of dictionaries with its columns.

        Returns:
            Probabilities (N, C), with columns in the order of `classes`.
        """
        logits = torch.from_numpy(self.logits(records))
        probabilities: NDArray[np.float32] = logits.softmax(dim=1).numpy()
        return probabilities

    def logits(self, records: Any) -> NDArray[np.float32]:
        """Compute the logits behind `predict`.

        Args:
            records: As for `predict`.

        Returns:
            Logits (N, C), with columns in the order of `classes`.
        """
        schema = self.schema
        frame = as_frame(records)
        if schema is not None and frame is not None:
            records = from_frame(frame, schema, labels=False).train.x
        elif len(records):
            records = as_rows(records)
        rows = self.record_spec.validate(records)
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
            folder: The folder of the model, or its parent or run if that has only one
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
            network = _network(card, folder, shape)
            network.load_state_dict(load(_checked_weights(card, folder)))
        except _UNREADABLE as error:
            reason = " ".join(str(error).split())
            if isinstance(error, KeyError):
                reason = f"no {error}"
            raise ModelError(
                f"Cannot load the model in {folder}: {reason}. Export the run again."
            ) from error
        return cls(place_by_settings(network.eval(), device, precision, shape), card)

    def save_pretrained(self, folder: str | Path, onnx: bool = False) -> Path:
        """Write weights, README.md, an ONNX graph if requested, and last the card,
        which marks a complete export.

        Args:
            folder: The folder to write to. It is created if necessary.
            onnx: Also write an ONNX graph.

        Returns:
            The folder's path.
        """
        folder = Path(folder)
        card = {key: value for key, value in self.card.items() if key != "onnx"}
        # before anything is written: not every network has a graph
        graph = to_onnx(self.network, self.record_spec, self.schema) if onnx else None
        weights = self._weights()
        parameters = sum(values.numel() for values in self.network.parameters())
        card["weights"] = {
            "file": WEIGHTS,
            "sha256": hashlib.sha256(weights).hexdigest(),
            "parameters": parameters,
        }
        write_atomically(folder / WEIGHTS, weights)
        card["prototype"] = self._save_tokenizer(folder)
        (folder / ONNX).unlink(missing_ok=True)  # of an earlier export
        if graph:
            content, card["onnx"] = graph
            write_atomically(folder / ONNX, content)
        page = render_page(card, folder.name)
        write_atomically(folder / PAGE, page.encode())
        card_text = json.dumps(card, indent=1, ensure_ascii=False)
        write_atomically(folder / CARD, card_text.encode())
        return folder

    def _weights(self) -> bytes:
        """Return the weights as a file of safetensors."""
        tensors = {}
        for name, values in self.network.state_dict().items():
            # safetensors rejects tensors that share memory
            tensors[name] = values.detach().clone().contiguous()
        return save(tensors)

    def _save_tokenizer(self, folder: Path) -> Card:
        """Write the tokenizer of a network for texts; return the card's prototype,
        which then names it.
        """
        prototype: Card = self.card["prototype"]
        features = self.network.features
        option = TOKENIZER_OPTION.get(prototype["name"])
        if option is None or not isinstance(features, TextExtractor):
            return prototype
        features.save_tokenizer(folder / TOKENIZER)
        return {**prototype, "options": {**prototype["options"], option: TOKENIZER}}


def find_model(folder: Path) -> Path:
    """Find the folder of the only model in `folder`, below it, or below the `model`
    folder of a run.
    """
    if (folder / CARD).is_file():
        return folder
    cards = [*folder.glob(f"*/{CARD}"), *folder.glob(f"model/*/{CARD}")]
    models = sorted(card.parent for card in cards)
    if len(models) == 1:
        return models[0]
    if models:
        names = ", ".join(map(str, models))
        raise ModelError(
            f"Cannot load a model: {folder} holds several models. Choose one of "
            f"{names}."
        )
    if (folder / STATE_FILE).is_file():
        raise ModelError(
            f"Cannot load a model: {folder} is a run that was not exported yet. Run "
            f"`fedaux export {folder}`."
        )
    raise ModelError(
        f"Cannot load a model: {folder} holds no model ({CARD} is missing). Run "
        "`fedaux export RUN` to make one of a finished run."
    )


def read_card(folder: Path) -> Card:
    """Read the card of a model; raise an error if it has another format version."""
    try:
        card = json.loads((folder / CARD).read_bytes())
    except ValueError as error:
        raise ModelError(
            f"Cannot load the model: {folder / CARD} is damaged ({error}). Export the "
            "run again."
        ) from error
    version = card.get("format") if isinstance(card, dict) else None
    if version != FORMAT:
        raise ModelError(
            f"Cannot load the model: {folder / CARD} was written by another version of "
            f"fedaux (format {version}, not {FORMAT}). Export the run again."
        )
    return dict(card)


def render_page(card: Card, folder: str) -> str:
    """Return README.md: front matter for model hubs, then the card as text. Examples
    call the model `folder`.

    The front matter is YAML with JSON values, which quote names safely.
    """
    record_spec = RecordSpec.from_card(card["record"])
    task = HUB_TASKS[record_spec.kind]
    tags = ["federated-learning", "fedaux"]
    privacy = card["privacy"]
    if privacy["weights_covered"] and not privacy.get("schema_of_records"):
        tags.append("differential-privacy")
    metrics = card["metrics"]
    source = card["data"]["source"]
    figures = [
        {"type": name, "value": round(metrics[name], 4)}
        for name in PAGE_METRICS
        if name in metrics
    ]
    index: list[Card] = []
    if figures:
        dataset = {"name": source, "type": source}
        result = {"task": {"type": task}, "dataset": dataset, "metrics": figures}
        index.append({"name": card["prototype"]["name"], "results": [result]})
    split = [f"{key} {value}" for key, value in card["data"]["split"].items()]
    method = card["method"]
    if method in METHODS:  # a card may come from anywhere: no import
        method = METHODS[method].label
    environment = Environment(
        loader=PackageLoader("fedaux.export"),
        trim_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["json"] = partial(json.dumps, ensure_ascii=False)
    template = environment.get_template("README.md")
    return template.render(
        card=card,
        folder=folder,
        task=task,
        tags=tags,
        index=index,
        method=method,
        takes=record_spec.description,
        crosses=privacy_rows(card["privacy"]),
        split=", ".join(split),
        shown=SHOWN,
        names=METRIC_NAMES,
    )


def privacy_rows(privacy: Card) -> list[tuple[str, ...]]:
    """What a client sends, what protects it, and if that is noise, ε, δ, unit and
    adjacency. What no record influences has one row.
    """
    no_budget = ("–", "–", "–", "–")
    budget = no_budget
    if privacy["epsilon"] is not None:
        budget = (
            round_up(privacy["epsilon"]),
            f"{privacy['delta']:g}",
            ", ".join(privacy.get("units", [])),
            ", ".join(privacy.get("adjacencies", [])),
        )
    rows: list[tuple[str, ...]] = []
    public: list[str] = []
    for row in privacy["crosses"]:
        what = row["what"]
        match row["protection"]:
            case Protection.PUBLIC.value:
                public.append(what)
            case Protection.COVERED.value:
                if budget != no_budget:  # else nothing was released under noise
                    rows.append((what, "noise", *budget))
            case Protection.SUMMED.value:
                noise = "noise, in a secure sum"
                rows += [(covered, noise, *budget) for covered in privacy["covered"]]
                if not privacy["weights_covered"]:
                    rows.append((what, "a secure sum, without noise", *no_budget))
            case _:
                rows.append((what, "nothing", *no_budget))
    if public:
        reason = "no need, because no record influences it"
        rows.append((", ".join(public), reason, *no_budget))
    return rows


def _spec(card: Card, folder: Path) -> PrototypeSpec:
    """The prototype of a card. A text prototype takes its tokenizer from the model's
    folder.
    """
    name = card["prototype"]["name"]
    options = dict(card["prototype"]["options"])
    tokenizer_option = TOKENIZER_OPTION.get(name, "")
    if options.get(tokenizer_option) == TOKENIZER:
        options[tokenizer_option] = str(folder / TOKENIZER)
    for value in options.values():
        if not isinstance(value, int | float | str | bool):
            raise ValueError(
                f"the options of prototype {name!r} must be numbers or words"
            )
    return PrototypeSpec.of(name, **options)


def _network(card: Card, folder: Path, shape: tuple[int, ...]) -> Prototype:
    """The network of a card, with other weights than it was trained to."""
    classes = len(card["classes"])
    network = build(_spec(card, folder), shape, classes, seed=0)
    hidden = int(card.get("hidden", 0))
    if hidden:
        network.head = hidden_head(network.width, hidden, classes)  # type: ignore[assignment]
    return network


def _checked_weights(card: Card, folder: Path) -> bytes:
    path = folder / WEIGHTS
    if not path.is_file():
        raise ValueError(f"{WEIGHTS} is missing")
    content = path.read_bytes()
    if hashlib.sha256(content).hexdigest() != card["weights"]["sha256"]:
        raise ValueError(f"{WEIGHTS} is not the file that the card was written for")
    return content
