"""Every reply is checked before it touches a model: what is wrong costs that client's contribution, never the round."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedaux.exchange import Arrays, EvaluateOrder, Order, PrepareOrder, Release, Score, TrainOrder, Update
from fedaux.privacy.bounded import REACH
from fedaux.privacy.gaussian import CERTIFICATES

NORM_FACTOR = 1e4  # a reply may not be longer than this many times what was sent, plus one per number


MAX_STEPS = 10**6  # of private training in one round
MAX_RECORDS = 10**8  # of one client; a larger claim would drown all others in the average


class Refused(ValueError):
    """A reply that must not be used, and why."""


def check(order: Order, reply: Release | Update | Score) -> None:
    """Raise `Refused` unless the reply answers the order and is sane."""
    if reply.client != order.client:
        raise Refused(f"answers for {reply.client!r}")
    if not 1 <= reply.records <= MAX_RECORDS:
        raise Refused(f"claims {reply.records} records")
    if isinstance(order, PrepareOrder) and isinstance(reply, Release):
        _check_release(order, reply)
    elif isinstance(order, TrainOrder) and isinstance(reply, Update):
        _check_round(order, reply)
        _check_weights(order.weights, reply.weights)
        if not np.isfinite(reply.loss):
            raise Refused(f"its training diverged: the loss is {reply.loss}")
        if not (0 <= reply.noise < 2.0**60 and 0 < reply.rate <= 1 and 0 <= reply.steps <= MAX_STEPS):
            raise Refused("the noise it states for its training means nothing here")
    elif isinstance(order, EvaluateOrder) and isinstance(reply, Score):
        _check_round(order, reply)
        if not (0 <= reply.correct <= reply.records and np.isfinite(reply.loss)):
            raise Refused(f"claims {reply.correct} of {reply.records} correct at a loss of {reply.loss}")
    else:
        raise Refused(f"sends a {type(reply).__name__} for a {type(order).__name__}")


def _check_round(order: Any, reply: Update | Score) -> None:
    if reply.round != order.round:
        raise Refused(f"answers round {reply.round}, not {order.round}")


def _check_weights(sent: Arrays, got: Arrays) -> None:
    if set(got) != set(sent):
        raise Refused(f"sends arrays {sorted(got)}, expected {sorted(sent)}")
    for name, ours in sent.items():
        theirs = got[name]
        if theirs.shape != ours.shape or theirs.dtype != ours.dtype:
            raise Refused(f"{name} is {theirs.dtype}{theirs.shape}, expected {ours.dtype}{ours.shape}")
        if not np.issubdtype(theirs.dtype, np.floating):
            continue
        with np.errstate(over="ignore"):
            size = float(np.linalg.norm(theirs))  # not finite if any entry is not
        limit = NORM_FACTOR * (float(np.linalg.norm(ours)) + np.sqrt(ours.size))
        if not size <= limit:
            raise Refused(f"{name} has norm {size:.3g}; more than {limit:.3g} is not believed")


def _check_release(order: PrepareOrder, reply: Release) -> None:
    if reply.scorer != order.scorer:
        raise Refused(f"its release was made by the scorer {reply.scorer!r}")
    values = reply.arrays.get("values")
    if set(reply.arrays) != {"values"} or values is None or values.dtype != np.int64 or values.shape != (order.size,):
        raise Refused(f"its release is not one vector of {order.size} integers")
    if not all(0 < number < 2.0**60 for number in (reply.scale, reply.sensitivity, reply.step, reply.epsilon)):
        raise Refused("the noise, the sensitivity or the budget it states is not a positive number")
    if reply.adjacency not in REACH or reply.certificate not in CERTIFICATES or not 0 < reply.delta < 1:
        raise Refused("the budget it states means nothing here")
