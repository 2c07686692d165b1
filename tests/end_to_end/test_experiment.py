"""Whole runs on real digits: every method, mixed architectures, failing clients,
bit-exact resume after kill -9.
"""

import os
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from fedaux import Config, run
from fedaux.config.distillation import DistillConfig
from fedaux.config.methods import METHODS
from fedaux.config.prototype import PrototypeSpec
from fedaux.config.sections import (
    AuxConfig,
    DataConfig,
    LocalConfig,
    PretrainConfig,
    PrivacyConfig,
)
from fedaux.data.federated import open_data
from fedaux.server.distill import DivergedError
from fedaux.server.preparation import initial_state
from fedaux.server.run_state import RunState
from fedaux.server.server import Server
from helpers.commands import fedaux

TINY = Config(
    rounds=2,
    prototypes=(PrototypeSpec.of("mlp", hidden=32, features=16),),
    data=DataConfig(clients=4, alpha=0.1),
    pretrain=PretrainConfig(epochs=2, batch_size=128, flip=False),
    local=LocalConfig(epochs=1),
    distill=DistillConfig(epochs=1, lr=1e-3),
    privacy=PrivacyConfig(epsilon=1.0, embedding_dim=8),
)


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


def same_weights(one: RunState, other: RunState) -> bool:
    return all(
        np.array_equal(array, other.weights[label][name])
        for label, arrays in one.weights.items()
        for name, array in arrays.items()
    )


@pytest.mark.parametrize("method", METHODS)
def test_every_method_runs_and_learns_something(method: str, tmp_path: Path) -> None:
    local = LocalConfig(epochs=3, lr=1e-2)
    if "scaffold" in method:
        local = LocalConfig(epochs=3, lr=0.1, optimizer="sgd")
    result = run(
        replace(TINY, method=method, rounds=3, local=local),
        tmp_path / "run",
        cache=tmp_path,
    )
    assert len(result.curve) == 3
    # chance is 0.1; the slowest, FedAdam, has 0.24, most have 0.6
    assert result.accuracy > 0.2
    assert result.state.round == 3
    assert len(result.state.releases) == (4 if result.state.config.releases else 0)
    assert len(result.state.sums_received) == (4 if METHODS[method].sums else 0)
    last = result.state.history[-1]
    assert (last.distill_loss is not None) == METHODS[method].distils
    if METHODS[method].distils:
        assert last.effective_teachers is not None
        if METHODS[method].weights != "uniform":
            assert 1 < last.effective_teachers < 3.9  # they are weighed differently
        else:
            assert last.effective_teachers == pytest.approx(
                15.0 if method.startswith("fedbe") else 4.0
            )
    changed = RunState.load(tmp_path / "run").weights
    assert same_weights(result.state, replace(result.state, weights=changed))


def test_methods_start_from_the_same_weights_and_only_p_pretrains(
    tmp_path: Path,
) -> None:
    starts = {}
    for method in ("fedavg", "fedprox", "feddf", "fedprox+p", "fedaux"):
        data = open_data(TINY)
        server = Server.of(
            replace(TINY, method=method),
            data.aux,
            data.test,
            10,
            data.clients,
            tmp_path,
        )
        starts[method] = initial_state(server).weights[TINY.prototypes[0].label][
            "parameters"
        ]
    assert np.array_equal(starts["fedavg"], starts["fedprox"])
    assert np.array_equal(starts["fedavg"], starts["feddf"])
    assert np.array_equal(starts["fedprox+p"], starts["fedaux"])
    assert not np.array_equal(starts["fedprox"], starts["fedprox+p"])


def test_auxiliary_private_and_test_data_share_no_record() -> None:
    for seed in range(3):
        data = open_data(replace(TINY, seed=seed))
        rows = [
            {bytes(row) for row in part.gather().reshape(len(part), -1)}
            for part in (data.private, data.test, data.aux)
        ]
        # digits has no twins
        assert [len(part) for part in rows] == [
            len(data.private),
            len(data.test),
            len(data.aux),
        ]
        assert sum(map(len, rows)) == len(rows[0] | rows[1] | rows[2]) == 1797


def test_a_finished_run_goes_on_with_more_rounds(tmp_path: Path) -> None:
    config = replace(TINY, method="fedavg", rounds=1)
    run(config, tmp_path / "run")
    more = run(replace(config, rounds=3), tmp_path / "run")
    whole = run(replace(config, rounds=3), tmp_path / "whole")
    assert more.curve == whole.curve


def test_distillation_that_diverges_is_not_saved(tmp_path: Path) -> None:
    config = replace(TINY, method="feddf", distill=DistillConfig(lr=1e20, epochs=5))
    with pytest.raises(DivergedError, match=r"Lower distill\.lr"):
        run(config, tmp_path / "run")
    assert RunState.load(tmp_path / "run").round == 0


NETWORK = '''
import os, signal
from pathlib import Path
import fedaux
from torch import nn

@fedaux.per_record_safe
class Fuse(nn.Module):
    """Dies by its own SIGKILL in the middle of a local epoch, once, if the fuse is lit."""
    calls = 0
    def forward(self, x):
        if self.training:
            Fuse.calls += 1
            fuse = Path(os.environ["FUSE"])
            if fuse.exists() and Fuse.calls == int(fuse.read_text()):
                fuse.unlink()
                os.kill(os.getpid(), signal.SIGKILL)
        return x

def network(shape, width=16):
    layers = nn.Sequential(nn.Flatten(), Fuse(), nn.Linear(64, width), nn.BatchNorm1d(width), nn.Dropout(0.1))
    layers.width = width
    return layers
'''
CONFIG = """
method = "{method}"
rounds = 4
fraction = 0.75
seed = 7
prototypes = ["fuse:network"]
[data]
clients = 4
alpha = 0.1
[pretrain]
epochs = 0
[local]
epochs = 1
[distill]
lr = 0.001
[privacy]
epsilon = 1.0
embedding_dim = 8
"""


@pytest.mark.parametrize(
    "method", ["fedaux", pytest.param("fedbe", marks=pytest.mark.slow)]
)
def test_kill_9_in_the_middle_of_a_round_and_resume_is_bit_identical(
    method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "fuse.py").write_text(NETWORK)
    (tmp_path / "config.toml").write_text(CONFIG.format(method=method))
    fuse = tmp_path / "lit"
    environment = {
        **os.environ,
        "FUSE": str(fuse),
        "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path]),
        "OMP_NUM_THREADS": "1",
    }

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FUSE", str(fuse))
    monkeypatch.setenv("FEDAUX_CACHE", str(tmp_path / "cache"))
    monkeypatch.delitem(sys.modules, "fuse", raising=False)
    assert fedaux(monkeypatch, "run", "config.toml", "--out", "whole") == 0
    # Privacy noise comes from no seed: the second run's clients remember the releases
    # of the first, as a client must.
    if method == "fedaux":
        shutil.copytree(tmp_path / "whole" / "clients", tmp_path / "cut" / "clients")
    steps_per_round = 3 * 6  # three clients, 180 records in batches of 32
    fuse.write_text(str(2 * steps_per_round + 8))  # second client of the third round
    words = ["run", "config.toml", "--out", "cut"]
    killed = subprocess.run(
        [sys.executable, "-c", "from fedaux.cli import main; main()", *words],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL
    assert RunState.load(tmp_path / "cut").round == 2
    assert fedaux(monkeypatch, "resume", "cut") == 0
    whole, cut = (RunState.load(tmp_path / name) for name in ("whole", "cut"))
    assert whole.round == cut.round == 4
    assert same_weights(whole, cut)
    assert [result.accuracy for result in whole.history] == [
        result.accuracy for result in cut.history
    ]


@pytest.mark.slow
def test_peak_memory_does_not_grow_with_the_number_of_clients() -> None:
    """20 MB models: 50 clients a round may cost at most 30 MB more than 10 (each in a
    process of its own).
    """
    script = Path(__file__).parents[1] / "helpers" / "memory_probe.py"
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(sys.path),
        "OMP_NUM_THREADS": "1",
    }
    peaks = {}
    for clients in (10, 50):
        out = subprocess.run(
            [sys.executable, script, str(clients)],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        peaks[clients] = float(out.stdout.split()[-1])
    print(f"peak memory: {peaks} MB")
    assert peaks[50] - peaks[10] <= 30


def test_the_auxiliary_source_may_be_another_one(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    np.save(
        tmp_path / "public.npy", rng.integers(0, 255, (90, 8, 8, 1), dtype=np.uint8)
    )
    config = replace(
        TINY,
        method="feddf",
        rounds=1,
        aux=AuxConfig(source="npy", path=str(tmp_path / "public.npy"), limit=60),
    )
    data = open_data(config)
    assert (len(data.aux), data.aux.y) == (60, None)
    assert isinstance(data.aux.x, np.memmap)
    assert run(config, tmp_path / "run").state.round == 1
