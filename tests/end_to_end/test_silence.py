"""Nothing is silent for more than two seconds, from the first import to the report, on
a terminal of 80 columns.
"""

import fcntl
import os
import pty
import select
import struct
import sys
import termios
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

CONFIG = """
method = "fedaux"
rounds = 1
prototypes = [{name = "resnet8", width = 16}]
[data]
source = "images"
path = "scans"
options = {size = 32}
clients = 3
alpha = 1.0
[pretrain]
epochs = 1
batch_size = 64
micro_batch_size = 32
"""


def play(folder: Path, *words: str) -> tuple[float, str]:
    """(longest silence in seconds, all that was shown) of `fedaux WORDS`, played in a
    folder.
    """
    child, terminal = pty.fork()
    if child == 0:
        os.chdir(folder)
        os.environ.update(TERM="xterm", FEDAUX_CACHE=str(folder / "cache"))
        os.execv(sys.executable, [sys.executable, "-m", "fedaux", *words])
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 80, 0, 0))
    last, longest, shown = time.monotonic(), 0.0, b""
    while True:
        select.select([terminal], [], [], 120)
        try:
            data = os.read(terminal, 65536)
        except OSError:  # the program has ended
            break
        longest, last = max(longest, time.monotonic() - last), time.monotonic()
        shown += data
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0, shown.decode()[
        -2000:
    ]
    return longest, shown.decode()


@pytest.mark.slow  # a busy machine may itself be silent
def test_a_folder_of_images_from_start_to_report(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for name in ("ill", "well"):
        (tmp_path / "scans" / name).mkdir(parents=True)
        for number in range(400):
            pixels = rng.integers(0, 256, (160, 160, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / "scans" / name / f"{number}.png")
    (tmp_path / "my.toml").write_text(CONFIG)
    longest, shown = play(tmp_path, "run", "my.toml", "--out", "out")
    for words in (
        "loading PyTorch",
        "reading files",
        "steps of pre-training",
        "round 1",
        "writing the report",
    ):
        assert words in shown
    assert longest < 2
    longest, shown = play(tmp_path, "export", "out")
    assert longest < 2
    assert "exporting" in shown
