"""A finished run as files that others can use: weights by name in safetensors, and a card that says what they are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from safetensors.torch import save

from fedaux.files import write_atomically
from fedaux.prototypes import dump, load
from fedaux.server import Server

if TYPE_CHECKING:
    from fedaux.experiment import Result


def export(result: Result, server: Server, folder: Path) -> list[Path]:
    """One file per prototype, whole networks also where only the heads were trained, each with its card beside it."""
    made = []
    for index, spec in enumerate(server.config.prototypes):
        model, weights = server.models[spec.label], result.state.weights[spec.label]
        if server.config.linear:
            load(server.learners[spec.label], weights)
            load(model.features, result.state.extractors[spec.label])
            load(model.head, dump(server.learners[spec.label].head))
        else:
            load(model, weights)
        path = folder / f"{spec.name.rpartition(':')[2]}-{index}.safetensors"
        write_atomically(path, save({name: value.contiguous() for name, value in model.state_dict().items()}))
        card = {
            "prototype": {"name": spec.name, **dict(spec.options)},
            "shape": list(server.test.shape),
            "classes": server.classes,
            "method": server.config.method,
            "rounds": result.state.round,
            "accuracy": result.state.history[-1]["accuracy"][spec.label],
            "privacy": result.privacy,
            "config": server.config.to_dict(),
        }
        write_atomically(path.with_suffix(".json"), json.dumps(card, indent=1, ensure_ascii=False).encode())
        made.append(path)
    return made
