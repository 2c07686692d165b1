"""Standing teachers: a client's last logits on D_distill stay in the ensemble until it
sends another model.

Each client's are a file in the run's folder, named after client and round. The
committed state says in which round a client's update was last used, and so which file
is valid: a run that is killed before it commits a round still has the files of earlier
rounds, and rewrites the others.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedaux.core.io import write_atomically
from fedaux.server.run_state import StateError

TEACHERS_FOLDER = "teachers"  # of a run's folder


@dataclass(frozen=True)
class StandingTeachers:
    """Stores 4·N·C bytes for each client that has ever contributed. They are read in
    blocks, to bound memory.
    """

    folder: Path

    @classmethod
    def of_run(cls, folder: Path) -> StandingTeachers:
        return cls(folder / TEACHERS_FOLDER)

    def path(self, client: str, round_: int) -> Path:
        return self.folder / f"{client}.{round_}.npy"

    def save(self, client: str, round_: int, logits: NDArray[np.float32]) -> None:
        """Save logits (N, C) on all of D_distill. They are valid once the state says
        that this round used them.
        """
        data = io.BytesIO()
        np.save(data, logits)
        write_atomically(self.path(client, round_), data.getvalue())

    def load(self, client: str, round_: int) -> NDArray[np.float32]:
        path = self.path(client, round_)
        try:
            logits: NDArray[np.float32] = np.load(path, mmap_mode="r")
        except (OSError, ValueError) as error:
            raise StateError(
                f"Cannot continue: {path} is missing or damaged, the logits of a "
                f"standing teacher. Restore the folder {TEACHERS_FOLDER} of the run, "
                "or start it again in another folder."
            ) from error
        return logits

    def keep(self, last_round: Mapping[str, int]) -> None:
        """Delete all files that are no longer valid; called once the state is on
        disk.
        """
        if not self.folder.is_dir():
            return
        valid = {self.path(client, number) for client, number in last_round.items()}
        for path in self.folder.iterdir():
            if path not in valid:
                path.unlink()
