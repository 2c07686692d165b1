"""Cache of pre-trained extractors (P1), keyed by data, prototype and settings."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from safetensors.numpy import load_file, save

from fedaux.config.parsing import to_plain
from fedaux.config.prototype import PrototypeSpec
from fedaux.config.sections import PretrainConfig
from fedaux.core.io import write_atomically
from fedaux.core.rng import derive_seed
from fedaux.data.fingerprints import fingerprint_records
from fedaux.data.records import Records, is_text
from fedaux.models import Prototype, build, flatten_state, load_state
from fedaux.models.networks import TableMap
from fedaux.models.pretraining.tasks import (
    CorruptedRows,
    MaskedLanguageModel,
    SimCLR,
)
from fedaux.models.pretraining.trainer import EpochMetrics, SelfSupervisedTask, pretrain


def load_or_pretrain(
    spec: PrototypeSpec,
    model: Prototype,
    aux: Records,
    config: PretrainConfig,
    cache: Path,
    on_epoch: Callable[[EpochMetrics], None],
) -> tuple[Path, bool]:
    """Pre-train the extractor of `model`, or load it from the cache. An interrupted
    training is resumed.

    Returns the artifact's path and whether it was cached. A card (JSON) next to it holds
    the settings and the curve.
    """
    data = fingerprint_records(aux)
    path = artifact_path(spec, data, config, cache)
    if path.is_file():
        load_state(model.features, load_file(path))
        return path, True
    checkpoint = path.with_suffix(".checkpoint")
    init_seed = derive_seed(config.seed, "init", spec.label)
    fresh = build(spec, aux.shape, model.head.out_features, init_seed)
    # so that the artifact depends on its key alone
    load_state(model.features, flatten_state(fresh.features))
    seed = derive_seed(config.seed, "pretrain", spec.label)
    task: SelfSupervisedTask
    if is_text(aux.x):
        task = MaskedLanguageModel(model.features, model.width, aux, config, seed)
    elif isinstance(model.features, TableMap):
        task = CorruptedRows(model.features, model.width, aux, config, seed)
    else:
        task = SimCLR(model.features, model.width, aux, config, seed)
    curve = pretrain(task, on_epoch, checkpoint)
    card = {
        "prototype": spec.label,
        "data": {"count": len(aux), "shape": aux.shape, "fingerprint": data},
        "pretrain": to_plain(config),
        "torch": torch.__version__,
        "curve": [asdict(epoch) for epoch in curve],
    }
    write_atomically(path.with_suffix(".json"), json.dumps(card, indent=1).encode())
    write_atomically(path, save(flatten_state(model.features)))
    checkpoint.unlink(missing_ok=True)
    return path, False


def artifact_path(
    spec: PrototypeSpec, data: str, config: PretrainConfig, cache: Path
) -> Path:
    """The path of this extractor in the cache. `data` is the fingerprint of D_aux."""
    key = hashlib.sha256(repr((data, spec, config)).encode()).hexdigest()[:24]
    return cache / f"extractor-{key}.safetensors"


def read_pretraining_card(artifact: Path) -> dict[str, Any]:
    content = artifact.with_suffix(".json").read_text(encoding="utf-8")
    card: dict[str, Any] = json.loads(content)
    return card
