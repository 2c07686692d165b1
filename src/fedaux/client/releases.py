"""P2, P3 at a client: the summary of its records, released with noise, once for each
question.

A release is entered in the account before it is computed. Before that, and only if the
owner's ε allows the entry, the client looks whether the public data suit its records
(`far_features`), for its owner's log.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from fedaux.client.answers import AnswerStore
from fedaux.client.far_features import warn_of_far_features
from fedaux.client.summaries import summarise
from fedaux.config.sections import PrivacyConfig
from fedaux.core.failures import OrderError
from fedaux.data.records import Records
from fedaux.messages import Counts, PrepareOrder, Release, identity
from fedaux.privacy.account_file import SUM_REQUEST, Entry
from fedaux.privacy.accounting import Mechanism, release_mechanism
from fedaux.privacy.mechanism import Summary, release
from fedaux.privacy.units import Units, public_size
from fedaux.scoring.base import Features
from fedaux.scoring.moments_plan import MAX_DIMENSION
from fedaux.scoring.registry import make_scorer

T = TypeVar("T", Release, Counts)
OwnData = Callable[[], tuple[Records, Features]]


@dataclass(frozen=True)
class Releases:
    """The releases of one client.

    Attributes:
        store: Where they are kept.
        own_data: Loads the client's records and their features.
        once_in: The vault of a simulation, whose clients warn once together.
        drawn: Whether the public rows are drawn from a table's schema.
    """

    store: AnswerStore
    own_data: OwnData
    once_in: Path | None = None
    drawn: bool = False

    @property
    def privacy(self) -> PrivacyConfig:
        return self.store.privacy

    def release(self, order: PrepareOrder) -> Release:
        """Return the stored release, or a new one: entered in the account before it is
        computed.
        """
        request = identity(order)
        path = self.store.folder / f"release-{request}.json"

        def draw(mechanism: Mechanism, summary: Summary) -> bytes:
            return noisy_to_bytes(release(summary, order.client, self.privacy))

        content = self._with_noise(order, request, path, draw)
        account = self.store.account().to_json()
        stored = noisy_from_bytes(Release, content)
        return replace(stored, client=order.client, account=account)

    def masked(
        self,
        order: PrepareOrder,
        path: Path,
        honest: int,
        mask: Callable[[NDArray[np.int64]], bytes],
    ) -> bytes:
        """Return this client's part of a secure sum of releases, masked and stored at
        `path`.

        The entry in the account is the order's own. So a sum that failed before
        anything left this site does not cost another entry.
        """
        request = SUM_REQUEST + identity(order)

        def draw(mechanism: Mechanism, summary: Summary) -> bytes:
            noisy = release(summary, order.client, self.privacy, honest)
            return mask(noisy.arrays["values"])

        return self._with_noise(order, request, path, draw)

    def _with_noise(
        self,
        order: PrepareOrder,
        request: str,
        path: Path,
        draw: Callable[[Mechanism, Summary], bytes],
    ) -> bytes:
        return self.store.with_noise(
            order,
            request,
            path,
            self._plan(order),
            lambda: self.summary(order),
            draw,
            lambda: warn_of_far_features(
                order, self.own_data, self.once_in, self.drawn
            ),
        )

    def _plan(self, order: PrepareOrder) -> Callable[[list[Entry]], Mechanism]:
        """Return the noise of a release, which does not depend on what was spent
        before.

        An order whose size is not that of its public arrays would be entered at another
        noise than its release has.
        """
        check_width(order, self.privacy)
        size = make_scorer(self.privacy, order.classes).size(order.public)
        if size != order.size:
            raise OrderError(
                "Cannot make a release: the order declares that a release has "
                f"{order.size} numbers, its public arrays make it {size}. Set the same "
                "privacy.scorer and privacy.embedding_dim at the server and at every "
                "site."
            )
        mechanism = release_mechanism(size, self.privacy)
        return lambda entries: mechanism

    def summary(self, order: PrepareOrder) -> Summary:
        """Compute what is released, without noise."""
        records, features = self.own_data()
        privacy = self.privacy
        units = Units.of(records, privacy.unit, privacy.max_records_per_person)
        scorer = make_scorer(privacy, order.classes)
        size = public_size(records, privacy)
        summary = summarise(
            scorer,
            order.public,
            features,
            records.labels,
            privacy.adjacency,
            size,
            units.shares,
        )
        # the account has an entry for the size in the order
        if len(summary.values) != order.size:
            raise OrderError(
                "Cannot make a release: the order declares that a release has "
                f"{order.size} numbers, this one has {len(summary.values)}. Set the "
                "same privacy.scorer and privacy.embedding_dim at the server and at "
                "every site."
            )
        return summary


def check_width(order: PrepareOrder, privacy: PrivacyConfig) -> None:
    """Raise an error if the public map is so wide that computing φ would take more
    memory than the owner expects.
    """
    allowed = max(privacy.embedding_dim, MAX_DIMENSION)
    width = order.public["basis"].shape[1] if "basis" in order.public else 0
    if width > allowed:
        raise OrderError(
            f"Cannot release sums under a public map of {width} dimensions: this "
            f"client computes at most {allowed}. Ask its owner, who can allow more by "
            "privacy.embedding_dim."
        )


def noisy_to_bytes(item: Release | Counts) -> bytes:
    """Return an answer with noise as JSON, without the account, which changes."""
    fields = {
        key: value
        for key, value in vars(item).items()
        if key not in ("arrays", "account")
    }
    return json.dumps({**fields, "values": item.arrays["values"].tolist()}).encode()


def noisy_from_bytes(kind: type[T], content: bytes) -> T:
    """Read what `noisy_to_bytes` wrote."""
    fields = json.loads(content)
    values = np.asarray(fields.pop("values"), dtype=np.int64)
    return kind(**fields, account="", arrays={"values": values})
