"""A trained model on its own: read from the folder that `export` wrote, and asked for predictions.

model = Model.from_pretrained("runs/digits/model")
probabilities = model.predict(images)
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.torch import load, save

from fedaux.algorithms.run_state import FILE
from fedaux.config.prototype import PrototypeSpec
from fedaux.core.errors import Exit, FedauxError
from fedaux.core.io import write_atomically
from fedaux.data.record_spec import RecordSpec
from fedaux.data.records import Records
from fedaux.export.card import FORMAT, Card, render_page
from fedaux.export.onnx_graph import to_onnx
from fedaux.models import Prototype, build
from fedaux.models.inference import predict
from fedaux.models.text import TOKENIZER_OPTION, TextExtractor

CARD, WEIGHTS, ONNX, PAGE, TOKENIZER = "card.json", "model.safetensors", "model.onnx", "README.md", "tokenizer"


class ModelError(FedauxError, ValueError):
    """A folder that holds no model, or a damaged one."""

    code = Exit.FOLDER


@dataclass(frozen=True, eq=False)
class Model:
    """A network in eval mode and its card. `card["metrics"]` and `card["privacy"]` say what it is worth and cost."""

    network: Prototype = field(repr=False)
    card: Card

    @property
    def classes(self) -> tuple[str, ...]:
        """Their names, in the order of the columns of `predict`."""
        return tuple(self.card["classes"])

    @property
    def record_spec(self) -> RecordSpec:
        """What one record looks like."""
        return RecordSpec(self.card["record"]["kind"], tuple(self.card["record"]["shape"]))

    def predict(self, records: Any) -> NDArray[np.float32]:
        """Probabilities (N, C) for uint8 images (N, H, W, C), rows of numbers (N, ...), or a list of texts."""
        probabilities: NDArray[np.float32] = torch.from_numpy(self.logits(records)).softmax(dim=1).numpy()
        return probabilities

    def logits(self, records: Any) -> NDArray[np.float32]:
        """What the network says before the softmax, (N, C)."""
        rows = self.record_spec.validate(records)
        if len(rows) == 0:
            return np.zeros((0, len(self.classes)), np.float32)
        return predict(self.network, Records(rows))

    @classmethod
    def from_pretrained(cls, folder: str | Path) -> Self:
        """Read a folder that `export` wrote; the folder above it, or its run, will do if there is but one model in it.

        A card may name a network of the user's own as `module:function`, which is then imported and called: read such
        models from people you trust only.
        """
        folder = find_model(Path(folder).expanduser())
        card = read_card(folder)
        try:
            record_spec = RecordSpec(card["record"]["kind"], tuple(card["record"]["shape"]))
            network = build(_spec(card, folder), record_spec.input_shape, len(card["classes"]), seed=0)
            data = _read(folder / WEIGHTS)
            if hashlib.sha256(data).hexdigest() != card["weights"]["sha256"]:
                raise ValueError(f"{WEIGHTS} is not the file that the card was written for")
            network.load_state_dict(load(data))
        except (KeyError, TypeError, ValueError, AttributeError, RuntimeError, SafetensorError) as error:
            reason = f"no {error}" if isinstance(error, KeyError) else " ".join(str(error).split())
            raise ModelError(f"the model in {folder} cannot be read: {reason}") from error
        return cls(network.eval(), card)

    def save_pretrained(self, folder: str | Path, onnx: bool = False) -> Path:
        """Weights, card, page and on request an ONNX graph; the card comes last, so that a torn export shows."""
        folder, card = Path(folder), {key: value for key, value in self.card.items() if key != "onnx"}
        graph = to_onnx(self.network, self.record_spec) if onnx else None
        tensors = {name: value.detach().clone().contiguous() for name, value in self.network.state_dict().items()}
        data = save(tensors)  # clones, because the format refuses tensors that share memory
        card["weights"] = {
            "file": WEIGHTS,
            "sha256": hashlib.sha256(data).hexdigest(),
            "parameters": sum(parameter.numel() for parameter in self.network.parameters()),
        }
        write_atomically(folder / WEIGHTS, data)
        if isinstance(self.network.features, TextExtractor) and card["prototype"]["name"] in TOKENIZER_OPTION:
            self.network.features.save_tokenizer(folder / TOKENIZER)
            options = {**card["prototype"]["options"], TOKENIZER_OPTION[card["prototype"]["name"]]: TOKENIZER}
            card["prototype"] = {**card["prototype"], "options": options}
        (folder / ONNX).unlink(missing_ok=True)  # one of other weights must not stay beside these
        if graph:
            write_atomically(folder / ONNX, graph[0])
            card["onnx"] = graph[1]
        write_atomically(folder / PAGE, render_page(card, folder.name).encode())
        write_atomically(folder / CARD, json.dumps(card, indent=1, ensure_ascii=False).encode())
        return folder


def find_model(folder: Path) -> Path:
    """The folder of the one model that is here: in `folder` itself, below it, or below the `model` of a run."""
    if (folder / CARD).is_file():
        return folder
    found = sorted(card.parent for pattern in (f"*/{CARD}", f"model/*/{CARD}") for card in folder.glob(pattern))
    if len(found) == 1:
        return found[0]
    if found:
        raise ModelError(f"{folder} holds several models, choose one of {', '.join(map(str, found))}")
    if (folder / FILE).is_file():
        raise ModelError(f"{folder} is a run that was not exported yet; do so with `fedaux export {folder}`")
    raise ModelError(f"{folder} holds no model ({CARD} is missing); `fedaux export RUN` makes one of a finished run")


def read_card(folder: Path) -> Card:
    """The card of a model, of a version that this code reads."""
    try:
        card = json.loads((folder / CARD).read_bytes())
    except ValueError as error:
        raise ModelError(f"{folder / CARD} is damaged ({error}); export the run again") from error
    version = card.get("format") if isinstance(card, dict) else None
    if version != FORMAT:
        raise ModelError(f"{folder / CARD} was written by another version of fedaux (format {version}, not {FORMAT})")
    return dict(card)


def _read(file: Path) -> bytes:
    if not file.is_file():
        raise ValueError(f"{file.name} is missing")
    return file.read_bytes()


def _spec(card: Card, folder: Path) -> PrototypeSpec:
    """The network that a card names. The tokenizer of a text network came with it, and lies beside the card."""
    name, options = card["prototype"]["name"], dict(card["prototype"]["options"])
    if name in TOKENIZER_OPTION and options.get(TOKENIZER_OPTION[name]) == TOKENIZER:
        options[TOKENIZER_OPTION[name]] = str(folder / TOKENIZER)
    if not all(isinstance(value, int | float | str | bool) for value in options.values()):
        raise ValueError(f"the options of prototype {name!r} must be numbers or words")
    return PrototypeSpec.of(name, **options)
