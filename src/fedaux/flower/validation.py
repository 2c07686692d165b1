"""Validation of every reply before it reaches a model: an invalid one costs the
client's contribution, not the round.

Its form follows from the declarations (`messages.check_reply`). Here is what makes it
plausible: norms, noise, sizes. A client may still lie within these bounds, about its
labels for one. `teachers.max_share` limits the effect.
"""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedaux.config.sections import MAX_RECORDS
from fedaux.core.accounts import Account
from fedaux.core.arrays import Arrays
from fedaux.messages import (
    Answer,
    Consent,
    Counts,
    InvalidReplyError,
    LookOrder,
    Masked,
    Order,
    PrepareOrder,
    Release,
    SumReply,
    Sums,
    SumsOrder,
    Tallies,
    TrainOrder,
    Update,
    check_reply,
)
from fedaux.messages.replies import MAX_STEPS
from fedaux.messages.tallies import STEPS
from fedaux.methods.analytic_heads import SUM_BITS, FeatureMoments, FeatureSums
from fedaux.methods.contribution import ENSEMBLE_BITS
from fedaux.methods.hooks import Hooks, LocalWork, hooks_of, with_extra
from fedaux.privacy.mechanism import (
    CALIBRATIONS,
    UNIT_SENSITIVITY,
    Bound,
    Bounds,
    release_multiplier,
)
from fedaux.privacy.units import UNITS

# a model's norm may be this many times that of the model sent, plus one per parameter
NORM_FACTOR = 1e4
# between server and client, which both compute the same number
RELATIVE_TOLERANCE = 1e-6
# standard deviations by which its norm may exceed √size; honest noise does with
# probability e⁻⁵⁰
NOISE_TAIL = 10.0


def validate_reply(
    order: Order,
    reply: Answer,
    max_records: int = MAX_RECORDS,
    bounds: Bounds | None = None,
) -> None:
    """Raise `InvalidReplyError` unless the reply answers the order and is plausible.
    `bounds` are its scorer's.
    """
    # two faults that the declarations refuse as well, in words that say more
    if reply.client != order.client:
        raise InvalidReplyError(f"answers for {reply.client!r}")
    if isinstance(reply, Update) and not np.isfinite(reply.loss):
        raise InvalidReplyError(f"its training diverged: the loss is {reply.loss}")
    check_reply(order, reply)
    if isinstance(reply, Consent | SumReply):
        return
    _check_account(reply.account)
    if isinstance(reply, Masked):
        # a masked vector is as good as random: next to its form there is nothing that a
        # server could check
        return
    if isinstance(reply, Counts):
        _check_look(order, reply, max_records)
        return
    if not 1 <= reply.records <= max_records:
        raise InvalidReplyError(
            f"claims {reply.records} records, but only 1 to {max_records} are allowed"
        )
    if isinstance(order, PrepareOrder) and isinstance(reply, Release):
        _check_release(order, reply, bounds)
    elif isinstance(order, SumsOrder) and isinstance(reply, Sums):
        _check_sums(order, reply, max_records)
    elif isinstance(order, TrainOrder) and isinstance(reply, Update):
        _check_update(order, reply)


def _check_update(order: TrainOrder, reply: Update) -> None:
    check_norms(order.weights, reply.weights)
    expected = with_extra({}, untrained(order, reply))
    extra = with_extra({}, reply.extra)
    check_form(expected, extra)
    check_norms(expected, extra)
    _check_ensemble(reply.ensemble)


def untrained(order: TrainOrder, reply: Update) -> Arrays:
    """Return what a client with unchanged weights would send next to its model: the
    expected form and scale.
    """
    hooks = hooks_of(order.method, json.loads(order.method_options))
    if type(hooks).client_update is Hooks.client_update:
        return {}
    start = order.weights["parameters"].astype(np.float32, copy=False)
    steps = reply.steps or order.epochs * math.ceil(reply.records / order.batch_size)
    work = LocalWork(steps, order.lr, order.optimizer, order.momentum, order.mu)
    return hooks.client_update(start, start, work, order.broadcast, {}).extra


def max_release_norm(bound: Bound, scale: float, size: int) -> float:
    """The norm, in steps, that an honest release of `size` integers does not exceed,
    noise of that scale included.
    """
    return bound.norm + scale * (math.sqrt(size) + NOISE_TAIL)


def _check_account(account_json: str) -> None:
    """A client may understate what it spent, to its own harm alone, but the values must
    be valid.
    """
    account = Account.from_json(account_json)
    in_range = (
        account.epsilon >= 0 and 0 < account.delta < 1 and 0 <= account.entries < 2**40
    )
    is_known = account.adjacency in UNIT_SENSITIVITY and account.unit in UNITS
    if not in_range or not is_known or len(account.signature) > 64:
        raise InvalidReplyError(
            "the account that it gives of its privacy is out of range"
        )


def check_form(sent: Arrays, received: Arrays) -> None:
    """Raise an error unless the arrays have the names, shapes and types of those that
    were sent, for replies that are not declared. `check_reply` does it for the others.
    """
    if set(received) != set(sent):
        raise InvalidReplyError(
            f"sends arrays {sorted(received)}, expected {sorted(sent)}"
        )
    for name, ours in sent.items():
        theirs = received[name]
        if theirs.shape != ours.shape or theirs.dtype != ours.dtype:
            raise InvalidReplyError(
                f"{name} is {theirs.dtype}{theirs.shape}, expected "
                f"{ours.dtype}{ours.shape}"
            )


def check_norms(sent: Arrays, received: Arrays) -> None:
    """Raise an error unless arrays of the same form are as large as training makes
    them.
    """
    for name, ours in sent.items():
        theirs = received[name]
        if not np.issubdtype(theirs.dtype, np.floating):
            if np.any(theirs - ours.astype(np.float64) > MAX_STEPS):
                raise InvalidReplyError(
                    f"{name} counts more than {MAX_STEPS} steps in one round"
                )
            continue
        norm = _norm(theirs)
        limit = NORM_FACTOR * (_norm(ours) + np.sqrt(ours.size))
        # a norm that is not a number is refused as well
        if not norm <= limit:
            raise InvalidReplyError(
                f"{name} has norm {norm:.3g}, but at most {limit:.3g} is allowed"
            )


def _check_ensemble(ensemble: Arrays) -> None:
    """Check a client's part of the ensemble: weights in (0, 1], and logits that
    `Ensemble.of` would take.
    """
    if not ensemble:
        return
    logits = ensemble["logits"]
    mass = ensemble["mass"]
    squares = ensemble["squares"]
    if (
        mass.min() < 1
        or mass.max() > 2**ENSEMBLE_BITS
        or squares.min() < 0
        or (squares > mass).any()
    ):
        raise InvalidReplyError("its teacher weights are not above 0 and at most 1")
    limit = 2 ** (58 - ENSEMBLE_BITS)
    most = limit * mass[:, None]
    if (logits > most).any() or (logits < -most).any():
        raise InvalidReplyError(f"its logits exceed {limit}")


def _check_look(order: Order, reply: Counts, max_records: int) -> None:
    """Counts of at most so many records, noise included."""
    assert isinstance(order, LookOrder)
    tallies = Tallies.from_json(order.tallies)
    if reply.sensitivity != tallies.sensitivity(reply.adjacency):
        raise InvalidReplyError("its sensitivity is not that of the bins")
    largest = max_records * STEPS * math.sqrt(len(tallies.by_name))
    limit = largest + reply.scale * (math.sqrt(order.size) + NOISE_TAIL)
    norm = float(np.linalg.norm(reply.arrays["values"].astype(np.float64)))
    if not norm <= limit:
        raise InvalidReplyError(
            f"its counts have norm {norm:.3g} in steps; {limit:.3g} is the limit for "
            f"{max_records} records"
        )


def _check_sums(order: SumsOrder, reply: Sums, max_records: int) -> None:
    _check_counts(reply, max_records)
    for steps in reply.arrays.values():
        if max(int(steps.max()), -int(steps.min())) >= 2**58:
            raise InvalidReplyError("its sums are out of range")
    sums = FeatureSums.from_arrays(reply.arrays).value()
    _check_absent_classes(sums)
    squares = _sums_of_squares(sums)
    limit = NORM_FACTOR * sums.records * order.width
    if order.standardisation and not float(squares.sum()) <= limit:
        raise InvalidReplyError(
            f"its features have a squared norm of {squares.sum():.3g}, but {limit:.3g} "
            "is the limit"
        )


def _check_counts(reply: Sums, max_records: int) -> None:
    """Whole numbers of records, of at most those that the client states where these are
    counted, not declared or of persons.
    """
    counts = reply.arrays["counts"]
    account = Account.from_json(reply.account)
    is_counted = (account.adjacency, account.unit) == ("replace-one", "record")
    most = reply.records if is_counted else max_records
    total = int(counts.sum()) >> SUM_BITS
    if counts.min() < 0 or (counts % 2**SUM_BITS).any() or not 1 <= total <= most:
        raise InvalidReplyError(
            f"its counts are not those of the classes of at most {most} records"
        )


def _check_absent_classes(sums: FeatureMoments) -> None:
    is_absent = sums.counts == 0
    if (sums.class_sums[is_absent] != 0).any():
        raise InvalidReplyError("it has sums of classes without records")


def _sums_of_squares(sums: FeatureMoments) -> NDArray[np.float64]:
    """Return Σ ψ² of each feature, or its least value if it is not sent; raise an error
    if no rows can have it: by Cauchy-Schwarz (Σ ψ)² ≤ n Σ ψ² in each class.
    """
    records = np.maximum(sums.counts, 1)[:, None]
    least: NDArray[np.float64] = np.square(sums.class_sums) / records
    if sums.moments is None:
        return least
    least = least.sum(axis=0)
    squares = np.diagonal(sums.moments)
    if (least > squares * (1 + RELATIVE_TOLERANCE) + RELATIVE_TOLERANCE).any():
        raise InvalidReplyError(
            "no rows of features have the sums and the second moments that it sends"
        )
    return squares


def _norm(array: NDArray[Any]) -> float:
    """Not finite if any entry is not. Half precision holds a model's entries, but not
    the square of its norm.
    """
    with np.errstate(over="ignore"):
        return float(np.linalg.norm(array.astype(np.float32, copy=False)))


def _check_release(order: PrepareOrder, reply: Release, bounds: Bounds | None) -> None:
    if reply.scorer != order.scorer:
        raise InvalidReplyError(f"its release was made by the scorer {reply.scorer!r}")
    if reply.adjacency not in UNIT_SENSITIVITY:
        raise InvalidReplyError(
            f"states its budget for the adjacency {reply.adjacency!r}, which is not "
            "known"
        )
    if reply.calibration not in CALIBRATIONS:
        raise InvalidReplyError(
            f"states its budget for the calibration {reply.calibration!r}, which is "
            "not known"
        )
    if bounds is not None:
        _check_bound(reply, bounds(order.public, reply.adjacency, reply.records))
    _check_noise(reply)


def _check_bound(reply: Release, bound: Bound) -> None:
    """The scorer fixes the step and the sensitivity. Only the noise is the client's own
    choice.
    """
    _check_stated("step", reply, reply.step, bound.step)
    _check_stated("sensitivity", reply, reply.sensitivity, bound.sensitivity)
    values = reply.arrays["values"]
    norm = float(np.linalg.norm(values))
    limit = max_release_norm(bound, reply.scale, len(values))
    if norm > limit:
        raise InvalidReplyError(
            f"its release has norm {norm:.3g}, but {reply.records} records and its "
            f"noise reach {limit:.3g}"
        )


def _check_stated(name: str, reply: Release, stated: float, expected: float) -> None:
    if not math.isclose(stated, expected, rel_tol=RELATIVE_TOLERANCE):
        raise InvalidReplyError(
            f"states a {name} of {stated:.7g}, but for {reply.records} records the "
            f"scorer's is {expected:.7g}"
        )


def _check_noise(reply: Release) -> None:
    """Releases are weighted by their noise: one that states too little would dominate
    the others.
    """
    size = len(reply.arrays["values"])
    try:
        multiplier = release_multiplier(
            reply.epsilon, reply.delta, reply.calibration, reply.adjacency, size
        )
    except Exception as error:  # the calibrations fail in many ways on hostile budgets
        raise InvalidReplyError(
            f"no noise gives the budget it states, ε = {reply.epsilon:g}, δ = "
            f"{reply.delta:g}"
        ) from error
    expected = multiplier * reply.sensitivity
    if not math.isclose(reply.scale, expected, rel_tol=RELATIVE_TOLERANCE):
        raise InvalidReplyError(
            f"states noise of scale {reply.scale:.7g}, but its budget asks for "
            f"{expected:.7g}"
        )
