"""Runs of one arm as a plain value."""

import json
from pathlib import Path

import numpy as np

from fedaux.report.measured import Measured


def test_it_is_plain_json_with_folders_that_can_move() -> None:
    base = Path("/somewhere")
    arm = Measured(
        "FedAUX, α = 0.1",
        {"method": "fedaux", "data.alpha": 0.1},
        {"method": "FedAUX", "data.alpha": "α = 0.1"},
        (0, 1),
        (base / "runs" / "a", base / "runs" / "b"),
        np.array([[0.5, 0.6], [0.4, 0.7]]),
        "a statement",
    )
    assert json.loads(json.dumps(arm.to_dict(base))) == {
        "label": "FedAUX, α = 0.1",
        "settings": {"method": "fedaux", "data.alpha": 0.1},
        "seeds": [0, 1],
        "folders": ["runs/a", "runs/b"],
        "curves": [[0.5, 0.6], [0.4, 0.7]],
        "privacy": "a statement",
    }
