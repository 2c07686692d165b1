"""A dry run says what is there, what it costs and what does not fit; and leaves nothing
behind.
"""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from fedaux.config.prototype import PrototypeSpec
from fedaux.config.sections import AuxConfig, PretrainConfig
from fedaux.data.records import Records
from fedaux.privacy.module_validation import UnsupportedModuleError
from fedaux.runs import dry_run as module
from fedaux.runs.dry_run import (
    KEPT_MEMORY,
    DoesNotFitError,
    describe_duplicates,
    dry_run,
)
from fedaux.server.preparation import initial_state
from fedaux.server.server import make_server
from helpers.tiny import CNN, TINY_CONFIG

CONFIG = replace(
    TINY_CONFIG,
    method="fedaux",
    prototypes=(CNN,),
    aux=AuxConfig(limit=100),
    pretrain=PretrainConfig(epochs=3),
)


def test_what_is_found_and_planned(tmp_path: Path) -> None:
    plan = dry_run(CONFIG, tmp_path)
    assert plan.found["records"] == "uint8 images of shape (N, 8, 8, 1)"
    assert plan.found["auxiliary"] == "100 records"
    assert plan.found["private"].endswith("each")
    assert "none between private, test, auxiliary" in plan.found["duplicates"]
    assert {
        "pre-training",
        "features",
        "local training",
        "teachers",
        "distillation",
    } <= set(plan.seconds)
    assert plan.total_seconds == pytest.approx(sum(plan.seconds.values()))
    (network,) = plan.networks.values()
    assert plan.bytes_per_round == 2 * 3 * network.sent  # three clients, there and back
    assert plan.problems == ()
    plan.raise_problems()
    assert json.dumps(plan.to_dict())
    assert list(tmp_path.iterdir()) == []


class Mixing(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.flatten(1)


def mixing() -> nn.Module:
    return nn.Sequential(Mixing(), nn.Linear(64, 8))


def test_a_network_that_the_run_refuses_is_refused_before_pre_training(
    tmp_path: Path,
) -> None:
    """The dry run was content, and the run pre-trained for hours first."""
    config = replace(CONFIG, prototypes=(PrototypeSpec(f"{__name__}:mixing"),))
    with pytest.raises(UnsupportedModuleError, match=r"Mixing\) is not known"):
        dry_run(config, tmp_path)
    with pytest.raises(UnsupportedModuleError, match=r"Mixing\) is not known"):
        initial_state(make_server(config, cache=tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_only_what_is_trained_is_sent_in_a_round(tmp_path: Path) -> None:
    """Heads counted as whole networks: 902.9 MB for heads of 31 kB."""
    whole = dry_run(CONFIG, tmp_path)
    heads = dry_run(replace(CONFIG, head_only=True), tmp_path)
    parameters = (8 + 1) * 10  # of a head on eight features
    assert heads.networks[CNN.label].sent == 4 * parameters
    assert heads.bytes_per_round == 2 * 3 * 4 * parameters
    # h0 goes to each of three clients once, in either case
    extractor = whole.networks[CNN.label].sent - 4 * parameters
    assert heads.bytes_once == whole.bytes_once == 3 * extractor
    sums = replace(CONFIG, method="private-head", head_only=True)
    assert dry_run(sums, tmp_path).bytes_per_round == 0
    assert dry_run(replace(CONFIG, method="fedavg"), tmp_path).bytes_once == 0


def test_time_grows_with_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fixed = dry_run(CONFIG, tmp_path).networks[CNN.label]
    monkeypatch.setattr(module, "measure", lambda network, records: fixed)
    once, twice = (
        dry_run(replace(CONFIG, rounds=rounds), tmp_path).seconds for rounds in (2, 4)
    )
    assert twice["local training"] == pytest.approx(2 * once["local training"])
    assert twice["pre-training"] == pytest.approx(once["pre-training"])
    plain = dry_run(replace(CONFIG, method="fedavg"), tmp_path).seconds
    assert set(plain) == {"local training", "tests"}


def test_what_does_not_fit_is_refused_with_what_would(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    network = dry_run(CONFIG, tmp_path).networks[CNN.label]
    free = KEPT_MEMORY * network.training_memory(150) / 0.8
    monkeypatch.setattr(module, "available_memory", lambda: free)
    plan = dry_run(CONFIG, tmp_path)  # SimCLR: two views of all 100 images
    with pytest.raises(DoesNotFitError, match=r"Set pretrain\.micro_batch_size = 128"):
        plan.raise_problems()
    fits = replace(CONFIG, pretrain=replace(CONFIG.pretrain, micro_batch_size=128))
    assert dry_run(fits, tmp_path).problems == ()


def test_a_process_holds_a_quarter_more_than_its_largest_step(tmp_path: Path) -> None:
    plan = dry_run(CONFIG, tmp_path)
    largest_step = plan.networks[CNN.label].training_memory(200)
    assert plan.memory == pytest.approx(1.25 * largest_step, abs=1)


def test_a_step_that_fits_without_the_quarter_more_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    network = dry_run(CONFIG, tmp_path).networks[CNN.label]
    free = 1.2 * network.training_memory(200) / 0.8
    monkeypatch.setattr(module, "available_memory", lambda: free)
    (problem,) = dry_run(CONFIG, tmp_path).problems
    assert "Set pretrain.micro_batch_size = 128" in problem


def test_records_in_two_parts_are_counted() -> None:
    rows = np.arange(40, dtype=np.uint8).reshape(10, 2, 2, 1)
    parts = {
        "private": Records(rows[:6]),
        "test": Records(rows[4:]),
        "auxiliary": Records(rows[8:] + 100),
    }
    assert describe_duplicates(parts) == "2 in both private and test"
    texts = {
        name: Records(np.array(words, object))
        for name, words in (("a", ["x", "y"]), ("b", ["y", "z"]))
    }
    assert describe_duplicates(texts) == "1 in both a and b"
