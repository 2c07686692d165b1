"""The example in the layout of Flower's baselines: it runs as it is, its table is the
stored record, and Flower builds a bundle of it.
"""

import importlib
import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest
from flwr.app import Context, RecordDict
from flwr.cli.build import build_fab_from_disk

from fedaux.flower.in_process import InProcessGrid

BASELINE = Path(__file__).resolve().parents[2] / "examples" / "flower-baseline"


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["fedavg", "fedaux"])
def test_two_rounds(
    algorithm: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.syspath_prepend(BASELINE)
    for name in [name for name in sys.modules if name.startswith("fedaux_baseline")]:
        del sys.modules[name]
    strategies = importlib.import_module("fedaux_baseline.strategy")
    monkeypatch.setattr(strategies, "STORE", str(tmp_path / "first"))
    client = importlib.import_module("fedaux_baseline.client_app")
    server = importlib.import_module("fedaux_baseline.server_app")
    node = {"num-partitions": 10, "fedaux-vault": str(tmp_path / "vault")}
    config = {
        "algorithm-name": algorithm,
        "num-server-rounds": 2,
        "local-epochs": 2,
        "learning-rate": 1e-3,
        "batch-size": 32,
        "proximal-mu": 0.1,
    }
    server.app(
        InProcessGrid(client.app, 10, node), Context(1, 1, {}, RecordDict(), config)
    )
    printed = capsys.readouterr().out
    found = [float(a) for a in re.findall(r"^accuracy ([\d.]+)", printed, re.MULTILINE)]
    assert len(found) == 3
    assert found[-1] > (60 if algorithm == "fedaux" else 35)
    assert ("differentially private" in printed) == (algorithm == "fedaux")


def test_the_table_is_that_of_the_record() -> None:
    (record,) = json.loads((BASELINE / "results.json").read_text()).values()
    page = (BASELINE / "README.md").read_text().replace("**", "")
    for label in ("FedAvg", "FedProx", "FedAUX"):
        runs = 100 * np.array(record[label.lower()])
        means, spreads = runs.mean(0), runs.std(0, ddof=1)
        for number in (0, -1):
            shown = f"{means[number]:.1f} ± {spreads[number]:.1f}"
            assert re.search(rf"^\| {label} \|.*{shown}", page, re.MULTILINE), shown


def test_the_runs_in_flowers_simulation_are_those_of_their_record() -> None:
    (record,) = json.loads((BASELINE / "simulated.json").read_text()).values()
    page = (BASELINE / "README.md").read_text()
    first, last = (100 * record["fedaux"][place] for place in (0, -1))
    others = (100 * record["fedavg"][place] for place in (0, -1))
    words = f"{first:.1f} % after one round and {last:.1f} % after five with FedAUX"
    assert f"{words}, and {' and '.join(f'{one:.1f}' for one in others)} %" in page


def test_flower_builds_a_bundle() -> None:
    assert len(build_fab_from_disk(BASELINE)) > 1000
