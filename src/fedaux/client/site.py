"""A site: its settings, its vault and its clients. What it may reveal is decided here
alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fedaux.config.schema import Config
from fedaux.config.sends import needed_by
from fedaux.privacy.account import account_folder


@dataclass(frozen=True)
class Site:
    """What a site knows of itself; none of it comes with an order.

    Attributes:
        config: The site's own settings.
        vault: The folder of its privacy accounts and its state.
        clients: The clients of the site. More than one only in a simulation.
        features: The folder for features of its records, if not next to the account.
        keeps_results: Whether models trained without privacy are stored as well. A
            simulation trains them again.
        server: The address that the node calls, for the owner to read, or "" in a
            simulation.
    """

    config: Config
    vault: Path
    clients: tuple[str, ...]
    features: Path | None = None
    keeps_results: bool = True
    server: str = ""

    @property
    def is_simulated(self) -> bool:
        """Whether this is a part of a simulation, whose settings are those of the
        run.
        """
        return not self.keeps_results

    @property
    def sends(self) -> tuple[str, ...]:
        """What may leave, in the words of `config.sends`, or () for a real site whose
        owner has not said so.
        """
        return self.config.federation.sends or (
            needed_by(self.config) if self.is_simulated else ()
        )

    def account_folder(self, client: str) -> Path:
        return account_folder(self.config, self.vault, client)

    def feature_folder(self, client: str) -> Path:
        return self.features or self.account_folder(client)
