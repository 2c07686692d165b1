"""The client's half: one handler that answers the server's one question about the data,
under the client's own budget.

The question carries weights and public arrays. What may be revealed is said by the
client's code, and by its node's configuration, which has the last word: never by a
message, and never by a run's configuration, which is the server's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from flwr.app import Context, Message
from flwr.clientapp import ClientApp
from torch import nn

from fedaux.client.answers import AnswerStore
from fedaux.client.features import private_outputs
from fedaux.client.loading import load_ordered
from fedaux.client.releases import Releases
from fedaux.config.sections import PrivacyConfig
from fedaux.core.errors import SettingsError
from fedaux.core.failures import OrderError
from fedaux.data.records import Records
from fedaux.data.user_rows import UserRecords
from fedaux.flower.error_redaction import redact_errors
from fedaux.flower.serialization import deserialize, make_reply
from fedaux.flower.user_model import ACTION, FeaturesOf, UserExtractor
from fedaux.messages import PrepareOrder
from fedaux.models.inference import Rows


def add_release_handler(
    app: ClientApp,
    *,
    model: Callable[[], nn.Module],
    data: Callable[[Context], Any],
    vault: str | Path,
    epsilon: float,
    delta: float = 1e-5,
    features: str | FeaturesOf = "features",
    **privacy: Any,
) -> None:
    """Add the handler `query.fedaux`, which makes the client's release, to a ClientApp.
    Everything else stays the same.

    Args:
        app: Your app.
        model: A function that makes the network that the app trains, such as its class.
        data: A function of the context that returns this client's (x, labels) or (x,
            labels, people), rows as the model takes them, each record exactly once, or
            the `Dataset` or `DataLoader` that the client trains on.
        vault: An absolute path to a folder that only this client uses, which keeps its
            privacy account.
        epsilon: The ε of one release.
        delta: The δ of one release, well below one over the number of records.
        features: The same value as in `FedAUX`.
        privacy: Further settings of `PrivacyConfig`: epsilon_total, unit, adjacency,
            declared_records, scorer, …
    """
    from_code = ClientSettings(
        _absolute(vault), PrivacyConfig(epsilon=epsilon, delta=delta, **privacy)
    )

    @app.query(ACTION)
    @redact_errors
    def fedaux(message: Message, context: Context) -> Message:
        order = deserialize(PrepareOrder, message.content)
        settings = from_code.at(context)
        if order.scorer != settings.privacy.scorer:
            raise OrderError(
                "Cannot make a release: the order asks for the scorer "
                f"{order.scorer!r}, this client has {settings.privacy.scorer!r}. Set "
                "the same scorer at the server and at every client."
            )

        @cache
        def own_data() -> tuple[Records, Rows]:
            extractor = UserExtractor(model().cpu(), features)
            records = UserRecords.of_data(data(context))
            load_ordered(extractor.model, order.extractor)
            return records, private_outputs(extractor, records)

        store = AnswerStore(settings.vault, order.client, settings.privacy)
        return make_reply(message, Releases(store, own_data).release(order))


@dataclass(frozen=True)
class ClientSettings:
    """The privacy budget that this client allows, and the vault that keeps its
    account.
    """

    vault: Path
    privacy: PrivacyConfig

    def __post_init__(self) -> None:
        if self.privacy.private_training:
            raise SettingsError(
                "Cannot make a client: private_training has no effect here, where the "
                "app trains itself. Leave it out. The apps of fedaux can train "
                "privately."
            )

    def at(self, context: Context) -> ClientSettings:
        """Apply the node's own configuration: fedaux-vault, fedaux-epsilon,
        -epsilon-total and -delta take precedence.

        Each node with a partition-id, as simulated nodes have, gets a folder of its
        own.
        """
        node = context.node_config
        folder = _absolute(str(node.get("fedaux-vault", self.vault)))
        if "partition-id" in node:
            folder = folder / f"client-{node['partition-id']}"
        epsilon = float(node.get("fedaux-epsilon", self.privacy.epsilon))
        total = float(node.get("fedaux-epsilon-total", self.privacy.epsilon_total))
        delta = float(node.get("fedaux-delta", self.privacy.delta))
        return ClientSettings(
            folder,
            replace(self.privacy, epsilon=epsilon, epsilon_total=total, delta=delta),
        )


def _absolute(folder: str | Path) -> Path:
    path = Path(folder).expanduser()
    if not path.is_absolute():
        raise SettingsError(
            f"Cannot make a client: vault = {str(folder)!r} must be an absolute path, "
            "or begin with ~, because Flower runs apps from folders that come and go, "
            "and a client that forgets its release would make another. Correct it."
        )
    return path
