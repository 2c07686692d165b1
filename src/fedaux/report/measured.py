"""What several runs of one arm have shown: a plain value for tables, pictures and reports."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class Measured:
    """settings: what makes the arm differ, by dotted key; words: the same for readers (FedAUX, α = 0.01).

    seeds, folders and rows of `curves`, (seeds, rounds), are in the same order: those of the runs that are finished.
    """

    label: str
    settings: dict[str, Any]
    words: dict[str, str]
    seeds: tuple[int, ...]
    folders: tuple[Path, ...]
    curves: NDArray[np.float64]
    privacy: str = ""  # the statement of the first run, where anything was released under noise

    def to_dict(self, base: Path) -> dict[str, Any]:
        """For JSON; folders relative to `base`."""
        return {
            "label": self.label,
            "settings": self.settings,
            "seeds": list(self.seeds),
            "folders": [str(folder.relative_to(base)) for folder in self.folders],
            "curves": self.curves.tolist(),
            "privacy": self.privacy,
        }
