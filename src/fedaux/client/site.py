"""A site: its settings, its vault, and the clients that it speaks for. What it may reveal is decided here alone."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fedaux.config.schema import Config
from fedaux.privacy.account import account_folder


@dataclass(frozen=True)
class Site:
    """What runs beside private records knows of itself: nothing of it comes with an order.

    Attributes:
        config: The site's own settings.
        vault: The folder of its accounts, and of what it keeps.
        clients: The clients that it speaks for; several only where they are simulated.
        features: Where features of its records are kept, if not beside the account.
        keeps_results: Whether a model that was trained without privacy is stored as well; a simulation trains again.
    """

    config: Config
    vault: Path
    clients: tuple[str, ...]
    features: Path | None = None
    keeps_results: bool = True

    def account_folder(self, client: str) -> Path:
        return account_folder(self.config, self.vault, client)

    def feature_folder(self, client: str) -> Path:
        return self.features or self.account_folder(client)
