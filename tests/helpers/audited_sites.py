"""Sites that attacks are run against, with a few records on disk."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fedaux.audit.site import SITE_NAME, AuditedSite
from fedaux.config.prototype import PrototypeSpec
from fedaux.config.schema import Config
from fedaux.config.sends import needed_by
from fedaux.models.registry import Prototype

IDENTITY = PrototypeSpec.of("mlp", hidden=2, features=2, norm="none")


def with_own_sends(config: Config) -> Config:
    """Let a site send what its own method needs, as `fedaux deploy init` writes it,
    unless its settings say more.
    """
    sends = config.federation.sends or needed_by(config)
    return replace(config, federation=replace(config.federation, sends=sends))


def write_rows(
    folder: Path,
    x: NDArray[Any],
    y: Iterable[int],
    classes: Sequence[str] = ("a", "b"),
    persons: Sequence[str] | None = None,
) -> Path:
    """Records as a site has them on disk: x.npy, y.npy, classes.txt and perhaps
    person.npy.
    """
    folder.mkdir(parents=True)
    np.save(folder / "x.npy", x.astype(np.float32))
    np.save(folder / "y.npy", np.array(list(y), np.int64))
    (folder / "classes.txt").write_text("\n".join(classes), encoding="utf-8")
    if persons is not None:
        np.save(folder / "person.npy", np.array(persons))
    return folder


def audited_site(
    data: Path,
    spec: PrototypeSpec = IDENTITY,
    source: str = "npy",
    person: str = "",
    names: tuple[str, ...] = (SITE_NAME,),
    **settings: Any,
) -> AuditedSite:
    """A site whose private records are at `data`."""
    usual = {
        "prototypes": [{"name": spec.name, **dict(spec.options)}],
        "data": {
            "source": source,
            "path": str(data),
            "partition": "own",
            "person": person,
        },
        "federation": {"sites": list(names)},
    }
    config = Config.from_dict({**usual, **settings})
    folder = data.parent / f"{data.stem}-site"
    return AuditedSite(folder, with_own_sends(config), names)


def set_mlp(
    model: Prototype,
    first: NDArray[Any] | None = None,
    hidden: NDArray[Any] | None = None,
    second: NDArray[Any] | None = None,
    bias: NDArray[Any] | None = None,
) -> None:
    """Set the weights and biases of an mlp's two layers; with biases only, all records
    have equal features.
    """
    layers = (first, hidden, second, bias)
    with torch.no_grad():
        for parameter, values in zip(model.features.parameters(), layers, strict=True):
            if values is None:
                parameter.zero_()
            else:
                parameter.copy_(torch.tensor(values))
