"""The client's half: one handler that answers the server's one question about the data, under the client's own budget.

The question carries weights and public arrays. What may be revealed is said by the client's code, and by its node's
configuration, which has the last word: never by a message, and never by a run's configuration, which is the server's.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from flwr.app import Context, Message
from flwr.clientapp import ClientApp
from torch import nn

from fedaux.config import PrivacyConfig
from fedaux.exchange import PrepareOrder, Release
from fedaux.flower.model import ACTION, Extractor, FeaturesOf, Given
from fedaux.prepare.features import fingerprint_arrays, private_outputs
from fedaux.prepare.scorers import make_scorer
from fedaux.privacy.release import release
from fedaux.privacy.units import Units
from fedaux.privacy.vault import BudgetError, Vault
from fedaux.prototypes import load
from fedaux.runtime.messages import pack, unpack
from fedaux.runtime.settings import SettingsError

log = logging.getLogger(__name__)


def answer(
    app: ClientApp,
    *,
    model: Callable[[], nn.Module],
    data: Callable[[Context], tuple[Any, Any]],
    vault: str | Path,
    epsilon: float,
    delta: float = 1e-5,
    features: str | FeaturesOf = "features",
    **privacy: Any,
) -> None:
    """Give a ClientApp the handler `query.fedaux`; whatever else it does stays as it is.

    Args:
        app: Your app.
        model: Makes the network that the app trains: the class itself will do.
        data: (context) → (x, labels) of this client: rows as the model takes them, each record exactly once.
        vault: An absolute folder of this client's own, which remembers what was released.
        epsilon: The budget of the one release.
        delta: Its δ, well below one over the number of records.
        features: As in `FedAUX`, and the same.
        privacy: Further settings of `PrivacyConfig`: adjacency, declared_records, releases, scorer, certificate, …
    """
    code = Own(_absolute(vault), PrivacyConfig(epsilon=epsilon, delta=delta, **privacy))

    @app.query(ACTION)
    def fedaux(message: Message, context: Context) -> Message:
        order, own = unpack(PrepareOrder, message.content), code.at(context)
        if order.scorer != own.privacy.scorer:
            raise BudgetError(f"the order asks for the scorer {order.scorer!r}, this client has {own.privacy.scorer!r}")
        asked = fingerprint_arrays(order.public, order.extractor, facts=[order.scorer, order.classes])

        def make() -> Release:
            return make_release(order, own, Extractor(model(), features), Given.of(*data(context)))

        try:
            made = Vault(own.vault).once(asked, make, own.privacy.releases)
        except BudgetError:
            raise
        except Exception as error:  # its text may quote private numbers: it stays here
            log.exception("no release was made")
            raise RuntimeError("no release was made; the reason is in the client's log") from error
        return Message(pack(replace(made, client=order.client)), reply_to=message)


@dataclass(frozen=True)
class Own:
    """What this client allows, and where it remembers what it did."""

    vault: Path
    privacy: PrivacyConfig

    def __post_init__(self) -> None:
        if self.privacy.train_epsilon > 0:
            raise SettingsError(
                "train_epsilon has no effect here, where the app trains by itself: leave it out; fedaux's own apps can "
                "train privately"
            )

    def at(self, context: Context) -> Own:
        """As the node's own configuration has it: fedaux-vault, fedaux-epsilon and fedaux-delta overrule the code.

        Nodes with a partition-id, as all simulated ones, have a folder each.
        """
        node = context.node_config
        folder = _absolute(str(node.get("fedaux-vault", self.vault)))
        if "partition-id" in node:
            folder = folder / f"client-{node['partition-id']}"
        epsilon = float(node.get("fedaux-epsilon", self.privacy.epsilon))
        delta = float(node.get("fedaux-delta", self.privacy.delta))
        return Own(folder, replace(self.privacy, epsilon=epsilon, delta=delta))


def make_release(order: PrepareOrder, own: Own, extractor: Extractor, records: Given) -> Release:
    """P2, P3 as everywhere in fedaux: features, summary, noise."""
    privacy = own.privacy
    load(extractor.model, order.extractor)
    units = Units.of(records, "record", privacy.person_records)
    size = units.count if privacy.adjacency == "replace-one" else privacy.declared_records
    scorer, rows = make_scorer(privacy, order.classes), private_outputs(extractor, records)
    found = scorer.summarise(order.public, rows, records.labels, privacy.adjacency, size, units.shares)
    return release(found, own.vault.name, privacy)


def _absolute(folder: str | Path) -> Path:
    found = Path(folder).expanduser()
    if not found.is_absolute():
        raise SettingsError(
            f"vault = {str(folder)!r} must be an absolute path, or begin with ~: Flower runs apps from folders that "
            "come and go, and a client that forgets its release would make another"
        )
    return found
