"""How many entries each site's account has had, in all runs of a deployment: an older copy of one is recognised."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from fedaux.algorithms.run_state import StateError
from fedaux.core.io import write_atomically
from fedaux.core.messages import Account


class Heard:
    """In one file, a JSON object of numbers by name. To accept a new account of a site, take its name out."""

    def __init__(self, path: Path) -> None:
        self._path, self._entries = path, dict[str, int]()
        if path.is_file():
            try:
                self._entries = {str(name): int(count) for name, count in json.loads(path.read_bytes()).items()}
            except (ValueError, TypeError, AttributeError) as error:
                raise StateError(
                    f"{path} is damaged ({error}): restore it, or sites may spend their budgets twice"
                ) from error

    def entries(self, client: str) -> int:
        return self._entries.get(client, 0)

    def update(self, accounts: Mapping[str, Account]) -> None:
        """On disk when this returns. Counts only grow."""
        more = {name: one.entries for name, one in accounts.items() if one.entries > self.entries(name)}
        if more:
            self._entries |= more
            write_atomically(self._path, json.dumps(self._entries, indent=1, sort_keys=True).encode())
