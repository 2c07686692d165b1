"""Entries of a privacy account, without records and without the noise itself."""

from collections.abc import Callable

from fedaux.privacy.account import BudgetStore
from fedaux.privacy.accounting import Mechanism


def enter(
    store: BudgetStore,
    request: str,
    mechanism: Mechanism,
    draw: Callable[[], bytes] = lambda: b"answer",
) -> bytes:
    """Answer a request as a client would: entered in the account, drawn, stored."""
    path = store.folder / f"release-{request}.json"
    return store.answer(
        request,
        path,
        lambda entries: mechanism,
        lambda: None,
        lambda chosen, read: draw(),
    )


def fails() -> bytes:
    """An answer that is drawn, and lost."""
    raise ZeroDivisionError
