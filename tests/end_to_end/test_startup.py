"""A client's process is started anew for every message: what it imports is time that each order takes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from benchmarks.startup import write_site

HEAVY = ("sklearn", "scipy.stats", "scipy.optimize", "torch._dynamo", "ray", "pandas", "matplotlib")


@pytest.mark.parametrize("kind", ["prepare", "train"])
def test_a_new_process_imports_little_before_its_first_reply(tmp_path: Path, kind: str) -> None:
    """Flower starts one for each message: every import is paid for in each round at each site."""
    code = (
        "import sys; from pathlib import Path; from benchmarks.startup import main\n"
        f"main(*map(Path, sys.argv[1:])); print([name for name in {HEAVY} if name in sys.modules])"
    )
    words = [sys.executable, "-c", code, str(write_site(tmp_path)[kind]), str(tmp_path / "vault")]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(words, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "[]"
