"""`examples/hospitals` as a user runs it: three nodes over TLS, a result, a statement,
and nothing left running.
"""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from helpers.harness import Patience
from helpers.shared_data import load, needs

ROOT = Path(__file__).resolve().parents[3]
RUN = ROOT / "examples" / "hospitals" / "run.py"
QUICK = ["--set", "rounds=2", "--set", "pretrain.epochs=5"]


def start(folder: Path, *words: str) -> subprocess.Popen[str]:
    environment = {
        **os.environ,
        "PYTHONPATH": f"{ROOT / 'src'}:{os.environ.get('PYTHONPATH', '')}",
    }
    environment.pop("FEDAUX_CACHE", None)
    command = [sys.executable, str(RUN), "--folder", str(folder), *words]
    return subprocess.Popen(
        command,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=folder.parent,
        # also where the tests run in the background
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


def left_running(folder: Path) -> list[str]:
    """Commands of processes whose working directory is below the folder."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and (entry / "cwd").readlink().is_relative_to(
                folder
            ):
                found.append((entry / "cmdline").read_text().replace("\0", " "))
        except OSError:
            continue  # it has just ended, or is somebody else's
    return found


def medmnist(path: Path) -> Path:
    """PneumoniaMNIST as MedMNIST distributes it: grey images without a channel, labels
    in a column.
    """
    arrays = {}
    for part in ("train", "val", "test"):
        x, y = load(f"pneumoniamnist_{part}.npz")
        assert y is not None
        arrays |= {
            f"{part}_images": x.reshape(-1, 28, 28),
            f"{part}_labels": y.reshape(-1, 1).astype(np.uint8),
        }
    np.savez_compressed(path, **arrays)
    return path


def test_no_record_is_in_two_places_and_shares_differ(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(RUN.parent))
    monkeypatch.setenv("FEDAUX_CACHE", str(tmp_path / "cache"))
    from split import HOSPITALS, class_names, open_set, split

    rng = np.random.default_rng(0)
    x, y = (
        rng.permutation(256 * 256)[:1200].astype(np.uint16),
        rng.integers(0, 2, (1200, 1)),
    )
    images = x.view(np.uint8).reshape(1200, 1, 2)  # every record a different number
    np.savez(tmp_path / "d.npz", train_images=images[:1000], train_labels=y[:1000],
             test_images=images[1000:], test_labels=y[1000:])  # fmt: skip
    corpus = open_set(tmp_path / "d.npz")
    assert class_names(corpus) == ("0", "1")
    split(corpus, tmp_path / "made", ("well", "ill"))
    server, sites = tmp_path / "made" / "server", tmp_path / "made" / "sites"
    folders = [
        server / "public",
        server / "test",
        *(sites / name / "records" for name in HOSPITALS),
    ]
    numbers = [
        np.load(folder / "x.npy").reshape(-1, 2).copy().view(np.uint16).ravel()
        for folder in folders
    ]
    assert sorted(np.concatenate(numbers)) == sorted(x)
    assert not (server / "public" / "y.npy").exists()
    label = dict(zip(x.tolist(), y.ravel().tolist(), strict=True))
    for folder, own in zip(folders[1:], numbers[1:], strict=True):
        assert np.load(folder / "y.npy").tolist() == [
            label[one] for one in own.tolist()
        ]
    ill = [np.load(folder / "y.npy").mean() for folder in folders[2:]]
    assert ill[0] > 0.85
    assert ill[1] < 0.15
    assert ill[2] > 0.85


@pytest.mark.slow
@needs("pneumoniamnist_train.npz", "pneumoniamnist_val.npz", "pneumoniamnist_test.npz")
def test_three_hospitals_learn_from_real_images(tmp_path: Path) -> None:
    data = medmnist(tmp_path / "pneumoniamnist.npz")
    running = start(
        tmp_path / "run", "--data", str(data), "--classes", "normal,pneumonia", *QUICK
    )
    text = running.communicate(timeout=1500)[0]
    assert running.returncode == 0, text[-3000:]
    balanced = re.search(
        r"balanced (\d+\.\d) % \(normal (\d+\.\d) %, pneumonia (\d+\.\d) %\)",
        text,
    )
    assert balanced, text[-3000:]
    assert float(balanced[1]) > 70  # a model that calls everyone ill reaches 50
    assert (
        "The certainty scores and the local models of this run are together (1.4, "
        "1e-05)-" in text
    )
    assert left_running(tmp_path / "run") == []


@pytest.mark.slow
def test_digits_stand_in_and_ctrl_c_stops_everything(tmp_path: Path) -> None:
    running = start(tmp_path / "run", *QUICK)
    try:
        patience = Patience(300)
        # the hospitals
        while (
            sum(
                "deploy.supernode" in command
                for command in left_running(tmp_path / "run")
            )
            < 3
        ):
            assert running.poll() is None
            assert not patience.over()
            time.sleep(0.5)
        running.send_signal(signal.SIGINT)
        text = running.communicate(timeout=200)[0]
    finally:
        running.kill()
    assert running.returncode != 0
    assert "berlin: " in text
    assert left_running(tmp_path / "run") == []
    again = start(tmp_path / "run", *QUICK)
    assert "Take a new one: --folder" in again.communicate(timeout=60)[0]
