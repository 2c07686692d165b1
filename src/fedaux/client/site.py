"""A site: its settings, its vault and its clients. What it may reveal is decided here alone."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fedaux.config.schema import Config
from fedaux.privacy.account import account_folder


@dataclass(frozen=True)
class Site:
    """What a site knows of itself; none of it comes with an order.

    Attributes:
        config: The site's own settings.
        vault: The folder of its privacy accounts and its state.
        clients: The clients of the site; more than one only in a simulation.
        features: The folder for features of its records, if not beside the account.
        keeps_results: Whether models trained without privacy are stored as well; a simulation trains them again.
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
