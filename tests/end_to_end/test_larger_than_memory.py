"""Auxiliary data larger than the memory a process may have: mapped, read in blocks,
never loaded.
"""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

IMAGES = 200_000  # 614 MB
# MB beyond what the process holds after its imports; its peak was 206 of them
ROOM = 450

SCRIPT = f"""
import resource, sys
import torch
from fedaux import Config, run
from pathlib import Path

torch.set_num_threads(1)
folder = Path(sys.argv[1])
config = Config.from_dict({{
    "method": "fedaux", "rounds": 1, "prototypes": [{{"name": "mlp", "hidden": 16, "features": 16}}],
    "data": {{"source": "npz", "path": str(folder / "private.npz"), "clients": 3, "alpha": 1.0}},
    "aux": {{"source": "npy", "path": str(folder / "public.npy")}},
    "pretrain": {{"epochs": 1, "batch_size": 256}},
    "privacy": {{"epsilon": 1.0, "embedding_dim": 4}},
}})
import opendp.prelude  # what is imported late counts as well
held = int(next(line for line in open("/proc/self/status") if line.startswith("VmData")).split()[1])
limit = held * 1024 + {ROOM} * 2**20
resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
result = run(config, folder / "run", cache=folder)
print(len(result.state.history), len(result.state.history[0].client_metrics), list(result.state.history[0].failures))
try:
    (folder / "public.npy").read_bytes()
except MemoryError:
    print("the data do not fit")
"""


@pytest.mark.slow
@pytest.mark.skipif(
    sys.platform != "linux", reason="RLIMIT_DATA means what it says on Linux only"
)
def test_a_run_completes_where_the_auxiliary_data_do_not_fit(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    public = np.lib.format.open_memmap(
        tmp_path / "public.npy", mode="w+", dtype=np.uint8, shape=(IMAGES, 32, 32, 3)
    )
    for start in range(0, IMAGES, 10_000):
        public[start : start + 10_000] = rng.integers(
            0, 256, (1, 32, 32, 3), dtype=np.uint8
        )
    public.flush()
    del public
    images, labels = (
        rng.integers(0, 256, (300, 32, 32, 3), dtype=np.uint8),
        np.arange(300) % 3,
    )
    np.savez(
        tmp_path / "private.npz",
        x=images[:200],
        y=labels[:200],
        x_test=images[200:],
        y_test=labels[200:],
    )
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(sys.path),
        "OMP_NUM_THREADS": "1",
        "FEDAUX_CACHE": str(tmp_path / "cache"),
    }
    program = [sys.executable, "-c", SCRIPT, str(tmp_path)]
    done = subprocess.run(
        program, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["1 3 []", "the data do not fit"]
