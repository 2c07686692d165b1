"""An order on disk is the order that came, to the bit, or it is not read."""

from dataclasses import fields
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load, save

from fedaux.core.failures import OrderError
from fedaux.messages import identity, question
from fedaux.messages.stored import order_from_bytes, order_to_bytes
from helpers.samples import prepare_order, sums_order, terms, train_order, weights

FIT = {"a|b": np.array([1.5]), "fit|x": np.zeros((0, 3), np.float32), "": np.array(2.5)}
HALF = {
    "parameters": np.ones(6, np.float16),
    "buffers": np.array([-np.inf, 0], np.float16),
}
ORDERS = [
    prepare_order(),
    prepare_order(
        extractor={}, plan="f" * 64, sum=terms(sites=["ä", "b", "c"]).to_json()
    ),
    sums_order(),
    sums_order(standardisation={}, extractor={}),
    train_order(),
    train_order(
        weights=HALF,
        fit=FIT,
        client_fit=FIT,
        broadcast={"c": np.full(6, -0.0, np.float32)},
    ),
    train_order(lr=0.1 + 0.2, freeze_batch_norm=True, seed=0),
]


@pytest.mark.parametrize("order", ORDERS, ids=lambda order: type(order).__name__)
def test_an_order_comes_back_to_the_bit(order: Any) -> None:
    found = order_from_bytes(order_to_bytes(order))
    assert type(found) is type(order)
    for field in fields(order):
        ours = getattr(order, field.name)
        theirs = getattr(found, field.name)
        assert type(ours) is type(theirs)
        if not isinstance(ours, dict):
            assert ours == theirs
            continue
        assert set(ours) == set(theirs)
        for name, array in ours.items():
            assert (array.dtype, array.shape) == (
                theirs[name].dtype,
                theirs[name].shape,
            )
            assert array.tobytes() == theirs[name].tobytes()
    assert (identity(found), question(found)) == (identity(order), question(order))


def test_what_was_altered_on_disk_is_checked_again() -> None:
    content = order_to_bytes(train_order())
    spoiled = {**load(content), "weights|parameters": np.full(6, np.nan, np.float32)}
    with pytest.raises(OrderError, match=r"TrainOrder\.weights must be"):
        order_from_bytes(save(spoiled))
    with pytest.raises(OrderError, match=r"TrainOrder\.epochs must be"):
        order_from_bytes(content.replace(b'"epochs": 1', b'"epochs": 0'))


def test_a_changed_bit_is_another_order() -> None:
    order = train_order()
    other = order_from_bytes(
        order_to_bytes(
            train_order(weights=weights(float(np.nextafter(np.float32(1), 2))))
        )
    )
    assert identity(other) != identity(order)
