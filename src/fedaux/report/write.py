"""One page for one run, one page for several: whichever the folders hold."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fedaux.report.arms import find_runs, group
from fedaux.report.comparison_page import write_comparison
from fedaux.report.run_page import write_run_report


def write_report(*folders: str | Path, out: str | Path | None = None, cache: Path | None = None) -> Path:
    """`report.html` of the run in a folder, or of all runs in and below several, side by side; returns its path."""
    paths: Sequence[Path] = [Path(folder) for folder in folders]
    runs = find_runs(paths)
    if len(runs) == 1 and out is None:
        return write_run_report(runs[0], cache)
    return write_comparison(Path(out or paths[0]), f"{len(runs)} runs side by side", group(runs))
