"""The path of a person with a folder of images (docs/folder-of-images.md): four
commands, a model that works.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from helpers.shared_data import ROOT as DATA
from helpers.shared_data import needs

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "folder-of-images"
# of two cores; measured in processor time, which a busy machine does not change
MINUTES = 8


def commands() -> list[list[str]]:
    lines = (EXAMPLE / "run.sh").read_text().splitlines()
    return [line.split() for line in lines if line.startswith("fedaux ")]


@pytest.mark.slow
@needs("pneumoniamnist_train.npz")
def test_four_commands_lead_to_a_model_that_is_right_on_held_out_images(
    tmp_path: Path,
) -> None:
    environment = {
        **os.environ,
        "FEDAUX_CACHE": str(tmp_path / "cache"),
        "OMP_NUM_THREADS": "1",
    }
    write = [
        sys.executable,
        str(EXAMPLE / "write_images.py"),
        str(DATA / "pneumoniamnist_train.npz"),
    ]
    subprocess.run(write, cwd=tmp_path, check=True)
    assert len(list((tmp_path / "public").iterdir())) == 1700
    assert len(commands()) <= 4
    before, printed = os.times(), ""
    for words in commands():
        call = [
            sys.executable,
            "-c",
            "from fedaux.cli import main; main()",
            *words[1:],
            "--json",
        ]
        done = subprocess.run(
            call,
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        printed = done.stdout
    spent = sum(os.times()[2:4]) - sum(before[2:4])
    found = json.loads(printed)
    assert found["records"] == 600
    assert found["balanced_accuracy"] >= 0.85
    assert found["warning"] == ""
    assert spent < 60 * MINUTES, time.strftime("%M:%S", time.gmtime(spent))
    assert (tmp_path / "evaluation.html").is_file()
