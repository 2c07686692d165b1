"""A file that remembers what the clients of an app are asked with: their accounts know the question by its bits."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import numpy as safetensors
from torch import nn

from fedaux.core.errors import FedauxError
from fedaux.core.io import write_atomically
from fedaux.core.messages import Arrays
from fedaux.data.records import Records
from fedaux.models import flatten_state, load_state
from fedaux.models.inference import fingerprint
from fedaux.privacy.module_validation import validate_module
from fedaux.server.run_state import RunState
from fedaux.server.server import Server

log = logging.getLogger("flwr")  # where Flower's own strategies write
AUTO = "auto"  # the file that `default_file` names
PARTS = ("h0", "map")  # the extractor, and what the scorer published


class KeptError(FedauxError, ValueError):
    """A file that was kept from another app."""


def default_file(model: nn.Module, public: Records, privacy: Mapping[str, Any], classes: int, seed: int) -> Path:
    """In ~/.fedaux, by everything but the weights: an app that starts without a seed has others in every run."""
    shapes = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    facts = type(model).__name__, sorted(shapes.items()), sorted(privacy.items()), classes, seed
    return Path.home() / ".fedaux" / f"question-{fingerprint(public, facts)}.safetensors"


def save_question(path: Path, h0: Arrays, public: Arrays) -> None:
    parts = zip(PARTS, (h0, public), strict=True)
    flat = {f"{part}.{name}": array for part, arrays in parts for name, array in arrays.items()}
    write_atomically(path, safetensors.save({key: np.ascontiguousarray(array) for key, array in flat.items()}))


def load_question(path: Path) -> tuple[Arrays, Arrays]:
    """(h0, what the scorer published), to the bit as they were saved."""
    parts: dict[str, Arrays] = {part: {} for part in PARTS}
    for key, array in safetensors.load_file(path).items():
        part, _, name = key.partition(".")
        parts[part][name] = array
    return parts["h0"], parts["map"]


def first_state(server: Server, label: str, keep: Path | None) -> RunState:
    """h0 and what the scorer publishes: of the model as it is, or those that were kept."""
    extractor = server.learners.extractors[label]
    validate_module(extractor)  # every client would refuse it, and keep the reason to itself
    state = RunState(server.config, 0, {})
    if keep is not None and keep.exists():
        h0, public = load_question(keep)
        given = flatten_state(extractor)
        try:
            load_state(extractor, h0)
        except ValueError as error:
            raise KeptError(
                f"keep = {str(keep)!r} is of another model: name another file. To the clients that is another "
                "question, which they answer if their epsilon_total allows it"
            ) from error
        if any(not np.array_equal(given[name], array) for name, array in h0.items()):
            text = "clients are asked with the weights of the first run, which %s has kept; the model's own differ"
            log.warning(text, keep)
        return replace(state, extractors={label: h0}, public={label: public})
    state = replace(state, extractors={label: flatten_state(extractor)})
    server.restore(state)
    state = replace(state, public=server.public.publish(server.scorer))
    if keep is not None:
        save_question(keep, state.extractors[label], state.public[label])
    return state
