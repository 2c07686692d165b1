"""Real data for tests, if it is there: `FEDAUX_DATA`, else `../shared/data` beside the repository. Never part of it."""

from __future__ import annotations

import importlib.util
import os
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

ROOT = Path(os.environ.get("FEDAUX_DATA") or Path(__file__).resolve().parents[2] / "shared" / "data")


def needs(*names: str) -> pytest.MarkDecorator:
    """Skip a test unless these files are there."""
    missing = [name for name in ("load_data.py", *names) if not (ROOT / name).exists()]
    return pytest.mark.skipif(bool(missing), reason=f"no {', '.join(missing)} in {ROOT}; set FEDAUX_DATA")


@cache
def load(name: str) -> tuple[NDArray[np.uint8], NDArray[np.int64] | None]:
    """(x, y) of one file, read by the folder's own `load_data.py`."""
    spec = importlib.util.spec_from_file_location("load_data", ROOT / "load_data.py")
    assert spec is not None
    assert spec.loader is not None
    module: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    x, y = module.load(ROOT / name)
    return x, y
