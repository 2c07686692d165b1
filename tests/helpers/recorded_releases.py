"""The ClientApp of sites that also write down what they add to a secure sum, in files
named by client.

A test that imports this module for its names changes nothing in its own process.
"""

import json
import os
from pathlib import Path
from typing import Any

from fedaux.client import releases
from fedaux.flower.client_app import app
from fedaux.messages import Release

__all__ = ["app"]

FOLDER = "RECORDED_RELEASES"  # in the environment
_draw = releases.release


def recorded(*arguments: Any) -> Release:
    made = _draw(*arguments)
    Path(os.environ[FOLDER], f"{made.client}.json").write_text(
        json.dumps(made.arrays["values"].tolist())
    )
    return made


if FOLDER in os.environ:
    releases.release = recorded
