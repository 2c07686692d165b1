"""What answers orders: sites over a network, clients in this process, regional servers,
or secure sums over sites.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from fedaux.core.failures import Failure
from fedaux.messages.orders import Order
from fedaux.messages.replies import Answer, SecureTotal, Subtotal

Reply = Answer | Failure | Subtotal | SecureTotal


class Federation(Protocol):
    """Sends orders to clients and streams their replies in any order. Each can be
    processed and dropped.
    """

    def ask(self, orders: Sequence[Order]) -> Iterator[Reply]: ...
