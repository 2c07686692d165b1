"""The one store of what a client has answered: entered, computed, stored, and only then
sent.

Whatever leaves a client with noise is entered in its account first (`privacy.account`)
and stored before it is sent, so that the same question gets the same bytes, no matter
who asks and how often. Models and sums without noise cost nothing. They are stored
under the same names, so that asking again for a lost reply does not train again.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from fedaux.client.site import Site
from fedaux.config.sections import PrivacyConfig
from fedaux.core.accounts import Account
from fedaux.core.failures import OrderError
from fedaux.core.io import locked, write_atomically
from fedaux.messages import LookOrder, PrepareOrder, TrainOrder
from fedaux.privacy.account import BudgetStore
from fedaux.privacy.account_file import Entry
from fedaux.privacy.accounting import Mechanism

ONLY_ONCE = "unprotected.json"  # which sums without noise this client has taken part in
T = TypeVar("T")
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class AnswerStore:
    """The answers of one client, next to its account in `folder`."""

    folder: Path
    client: str
    privacy: PrivacyConfig
    person: str = ""  # what a person is, where the unit of privacy is one

    @classmethod
    def of(cls, site: Site, client: str) -> AnswerStore:
        return cls(
            site.account_folder(client),
            client,
            site.config.privacy,
            site.config.data.person,
        )

    def account(self) -> Account:
        """Return the client's total so far."""
        return self._budget.account()

    def with_noise(
        self,
        order: PrepareOrder | TrainOrder | LookOrder,
        request: str,
        path: Path,
        plan: Callable[[list[Entry]], Mechanism],
        read: Callable[[], T],
        draw: Callable[[Mechanism, T], bytes],
        before_entry: Callable[[], None] = lambda: None,
    ) -> bytes:
        """Return the stored answer, or one that is entered in the account, computed and
        stored, in this order.

        See `BudgetStore.answer`.
        """
        return self._budget.answer(
            request,
            path,
            plan,
            read,
            draw,
            order.known_entries,
            order.known_signature,
            before_entry,
        )

    def without_noise(
        self, path: Path, make: Callable[[], bytes], must_store: bool = False
    ) -> bytes:
        """Return the stored answer, or a new one, which is stored.

        A full disk is no reason to fail, unless the answer `must_store`: a masked
        vector that came out differently the second time would reveal the difference.
        """
        if path.exists():
            return path.read_bytes()
        content = make()
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            write_atomically(path, content, private=True)
        except OSError as error:
            if must_store:
                raise
            log.warning(
                (
                    "%s computes its answer again if it is lost, as it cannot be "
                    "stored: %s"
                ),
                self.client,
                error,
            )
        return content

    def only_once(self, what: str, request: str) -> None:
        """Allow one request for `what`; raise an `OrderError` for another one.

        The difference of two sums over almost the same sites, both without noise, would
        be what one site sent.
        """
        name = f"{self.client}|{what}"
        path = self.folder / ONLY_ONCE
        with locked(self.folder / ".once.lock"):
            requests: dict[str, str] = {}
            if path.exists():
                requests = json.loads(path.read_bytes())
            if requests.setdefault(name, request) != request:
                raise OrderError(
                    f"Cannot answer: {self.client} has taken part in a sum of {what} "
                    "in this run, without noise, and the difference to a second one "
                    "could be what one site sent. Start another run."
                )
            write_atomically(path, json.dumps(requests).encode(), private=True)

    @property
    def _budget(self) -> BudgetStore:
        return BudgetStore(self.folder, self.privacy, self.person)
