"""What a client says of its account survives as JSON."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedaux.core.accounts import Account


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
    assert math.isinf(
        Account.from_json(
            Account(math.inf, 1e-5, "replace-one", "record", 1).to_json()
        ).epsilon
    )


@pytest.mark.parametrize("text", ["{", "[]", '{"epsilon": 1}', '{"surprise": 1}'])
def test_what_is_no_account_is_refused(text: str) -> None:
    with pytest.raises((TypeError, json.JSONDecodeError)):
        Account.from_json(text)
