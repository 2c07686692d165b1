"""What crosses between server and client: accounts survive as JSON, refusals have words, arrays stay out of logs."""

import dataclasses
import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedaux.core.messages import Account, Failure, OrderError, Refusal
from helpers.samples import prepare_order, release, train_order, update


@given(
    st.builds(
        Account,
        epsilon=st.floats(min_value=0, allow_nan=False),
        delta=st.floats(0, 1),
        adjacency=st.sampled_from(["replace-one", "add-remove"]),
        unit=st.sampled_from(["record", "person"]),
        entries=st.integers(0, 2**53),
    )
)
def test_an_account_survives_as_json(account: Account) -> None:
    assert Account.from_json(account.to_json()) == account


def test_an_infinite_epsilon_survives() -> None:
    assert math.isinf(Account.from_json(Account(math.inf, 1e-5, "replace-one", "record", 1).to_json()).epsilon)


@pytest.mark.parametrize("text", ["{", "[]", '{"epsilon": 1}', '{"surprise": 1}'])
def test_what_is_no_account_is_refused(text: str) -> None:
    with pytest.raises((TypeError, json.JSONDecodeError)):
        Account.from_json(text)


def test_every_refusal_has_words_of_its_own() -> None:
    words = [refusal.description for refusal in Refusal]
    assert all(words)
    assert len(set(words)) == len(Refusal)
    assert Refusal("budget") is Refusal.BUDGET


def test_an_order_error_is_a_matter_of_privacy() -> None:
    assert issubclass(OrderError, ValueError)
    assert OrderError.code.name == "PRIVACY"


@pytest.mark.parametrize(
    "message", [prepare_order(), release(), train_order(), update()], ids=lambda m: type(m).__name__
)
def test_messages_are_frozen_and_their_repr_shows_no_array(message: object) -> None:
    assert "array(" not in repr(message)
    with pytest.raises(dataclasses.FrozenInstanceError):
        message.client = "somebody else"  # type: ignore[attr-defined]


def test_failures_with_the_same_reason_are_equal() -> None:
    assert Failure("a", "gone") == Failure("a", "gone") != Failure("b", "gone")
