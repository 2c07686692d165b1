"""Refusals have words of their own, and are a matter of privacy."""

import pytest

from fedaux.core.failures import Failure, OrderError, Refusal, attempt


def test_every_refusal_has_words_of_its_own() -> None:
    words = [refusal.description for refusal in Refusal]
    assert all(words)
    assert len(set(words)) == len(Refusal)
    assert Refusal("budget") is Refusal.BUDGET


def test_an_order_error_is_a_matter_of_privacy() -> None:
    assert issubclass(OrderError, ValueError)
    assert OrderError.code.name == "PRIVACY"


def test_failures_with_the_same_reason_are_equal() -> None:
    assert Failure("a", "gone") == Failure("a", "gone") != Failure("b", "gone")


def test_only_errors_are_caught() -> None:
    def stop() -> None:
        raise KeyboardInterrupt

    assert attempt(int, "x") is None
    with pytest.raises(KeyboardInterrupt):
        attempt(stop)
