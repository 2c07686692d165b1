"""The artifact of pre-training: made once, found again, never mistaken for another."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from safetensors.numpy import load_file

from fedaux.config.prototype import PrototypeSpec
from fedaux.config.sections import PretrainConfig
from fedaux.data.sources import open_source
from fedaux.models import build, flatten_state
from fedaux.models.pretraining.store import load_or_pretrain, read_pretraining_card

SPEC = PrototypeSpec.of("cnn", width=8, features=16)
CONFIG = PretrainConfig(epochs=2, batch_size=64, min_crop_area=0.5, flip=False)


def make(
    cache: Path, config: PretrainConfig = CONFIG, rows: int = 150
) -> tuple[Path, bool, int]:
    torch.set_num_threads(1)
    aux = open_source("digits").train.take(np.arange(rows)).unlabelled()
    model, seen = build(SPEC, aux.shape, 10, seed=1), []
    path, known = load_or_pretrain(
        SPEC, model, aux, config, cache, lambda epoch: seen.append(epoch.loss)
    )
    assert np.array_equal(
        load_file(path)["parameters"], flatten_state(model.features)["parameters"]
    )
    return path, known, len(seen)


def test_a_second_request_finds_the_first_ones_work(tmp_path: Path) -> None:
    first, known, epochs = make(tmp_path)
    assert (known, epochs) == (False, 2)
    assert make(tmp_path) == (first, True, 0)
    card = read_pretraining_card(first)
    assert card["prototype"] == "cnn(features=16, width=8)"
    assert len(card["curve"]) == 2
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [
        ".json",
        ".safetensors",
    ]


def test_other_data_settings_or_seeds_are_other_artifacts(tmp_path: Path) -> None:
    paths = {
        make(tmp_path)[0],
        make(tmp_path, rows=140)[0],
        make(tmp_path, replace(CONFIG, seed=1))[0],
        make(tmp_path, replace(CONFIG, lr=1e-4))[0],
    }
    assert len(paths) == 4
