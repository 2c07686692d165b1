"""How many entries each site's account has had, in all runs of a deployment: an older copy of one is recognised."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from fedaux.core.io import write_atomically
from fedaux.core.messages import Account
from fedaux.server.run_state import StateError


class Heard:
    """In one file, a JSON object by name: the number, and the site's signature of it, by which it knows the number.

    To accept a new account of a site, take its name out.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._entries = path, dict[str, tuple[int, str]]()
        if path.is_file():
            try:
                self._entries = {
                    name: (int(entries), str(signature))
                    for name, (entries, signature) in json.loads(path.read_bytes()).items()
                }
            except (ValueError, TypeError, AttributeError) as error:
                raise StateError(
                    f"{path} is damaged ({error}): restore it, or sites may spend their budgets twice"
                ) from error

    def entries(self, client: str) -> tuple[int, str]:
        return self._entries.get(client, (0, ""))

    def update(self, accounts: Mapping[str, Account]) -> None:
        """On disk when this returns. Counts only grow; of the same one, the last signature is kept."""
        now = {name: (account.entries, account.signature) for name, account in accounts.items() if account.entries}
        more = {
            name: (entries, signature)
            for name, (entries, signature) in now.items()
            if entries > self.entries(name)[0] or (entries, bool(signature)) == (self.entries(name)[0], True)
        }
        if any(known != self.entries(name) for name, known in more.items()):
            self._entries |= more
            write_atomically(self._path, json.dumps(self._entries, indent=1, sort_keys=True).encode())
