"""Regional servers as the operator of the server that merges them sees them: by what each says of itself."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from fedaux.deploy.link import FlowerRun, Node
from fedaux.runs.status import FILE, RunStatus, is_alive

FOLDER = "regions"  # as in server/regions.py, which would bring PyTorch along


@dataclass(frozen=True)
class RegionalServers:
    """In the place of a SuperLink, which a merging server has none of; `run` is the folder that all servers share."""

    run: Path
    clock: Callable[[], float] = time.time

    def check(self) -> None:
        """There is nobody to be asked."""

    def nodes(self) -> list[Node]:
        return [_node(path.parent, self.clock()) for path in sorted((self.run / FOLDER).glob(f"*/{FILE}"))]

    def last_run(self) -> FlowerRun | None:
        return None


def merges_regions(folder: Path) -> bool:
    return (folder / FOLDER).is_dir()


def _node(home: Path, now: float) -> Node:
    record = RunStatus.load(home)
    lives = record is not None and record.outcome == "running" and is_alive(home, now)
    since = record.started if record and lives else (home / FILE).stat().st_mtime
    return Node(home.name, 0, "online" if lives else "offline", datetime.fromtimestamp(since, UTC).isoformat())
