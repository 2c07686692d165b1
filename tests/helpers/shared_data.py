"""Real data for tests, if it is there: read as the studies read it, and never part of
the repository.
"""

from __future__ import annotations

import pytest
from studies.sources import ROOT, load

__all__ = ["load", "needs"]


def needs(*names: str) -> pytest.MarkDecorator:
    """Skip a test unless these files are there."""
    missing = [name for name in ("load_data.py", *names) if not (ROOT / name).exists()]
    return pytest.mark.skipif(
        bool(missing), reason=f"no {', '.join(missing)} in {ROOT}; set FEDAUX_DATA"
    )
