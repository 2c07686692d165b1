"""Looks that a hostile server asks for, and what an answer to one may tell."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from fedaux.audit.site import HostileServer
from fedaux.config.sections import PrivacyConfig
from fedaux.core.failures import OrderError
from fedaux.core.rng import numpy_stream
from fedaux.messages import Counts, LookOrder, Tallies, Tally
from fedaux.messages.tallies import (
    MAX_EDGES,
    MAX_TALLIES,
    OF_ANSWERS,
    OF_CLASSES,
    OF_COLUMN,
    OF_HITS,
    OF_SCORES,
)
from fedaux.models import flatten_state
from fedaux.privacy.looks import look_scale

EDGES = (-1.0, 1.0)
LOOK_AT_CLASSES = "a look at all records"


def usual_tallies(classes: int) -> Tallies:
    """Return what a server asks for after a run."""
    by_name = {OF_ANSWERS: Tally(OF_ANSWERS), OF_HITS: Tally(OF_HITS, 0.5)}
    if classes == 2:
        by_name[OF_SCORES] = Tally(OF_SCORES, 1.0, EDGES)
    return Tallies(by_name)


def look_order(server: HostileServer, tallies: Tallies | None = None) -> LookOrder:
    """Return a look by a head on features of the server's extractor."""
    inputs = server.config.random_features or server.width
    weights = numpy_stream(0, "audit").normal(size=(inputs + 1) * server.classes)
    return server.look(tallies or usual_tallies(server.classes), weights)


def every_look(server: HostileServer) -> Iterator[tuple[str, LookOrder]]:
    """Looks that no site may answer, and then, as they use up its budget, looks that it
    may answer, by models of the server's choice.
    """
    honest = look_order(server)
    tallies = {
        "bins without order": Tally(OF_SCORES, 1.0, EDGES[::-1]),
        "a weight above 1": Tally(OF_ANSWERS, 2.0),
        "a weight near 0": Tally(OF_ANSWERS, 1e-6),
        "bins without end": Tally(OF_SCORES, 1.0, tuple(range(MAX_EDGES + 1))),
        "bins of another kind": Tally("records"),
        "a column that no site has": Tally(OF_COLUMN, edges=EDGES, column="\u2003"),
    }
    for what, tally in tallies.items():
        bins = Tallies({"tally": tally})
        yield f"a look in {what}", look_order(server, bins)
    many = {str(number): Tally(OF_ANSWERS) for number in range(MAX_TALLIES + 1)}
    yield "a look in too many tallies", look_order(server, Tallies(many))
    for size in (1, honest.size + 1):
        yield f"a look of size {size}", replace(honest, size=size)
    yield "a look", honest
    yield LOOK_AT_CLASSES, look_order(server, Tallies({"all": Tally(OF_CLASSES)}))
    loud = {"parameters": np.float32(3e38) * np.sign(honest.weights["parameters"])}
    yield "a look by a head that overflows", replace(honest, weights=loud)
    parameters = flatten_state(server.model)["parameters"]
    whole = replace(
        honest, weights={"parameters": parameters}, h0="", extractor={}, run="whole"
    )
    yield "a look by a whole network", whole
    same = {str(number): Tally(OF_ANSWERS) for number in range(4)}
    yield "a look that asks the same four times", look_order(server, Tallies(same))


def problem_of_counts(counts: Counts, order: LookOrder, privacy: PrivacyConfig) -> str:
    """Return what is wrong with the noise that an answer states, or with the bins that
    it counts in; "" if nothing is.
    """
    tallies = Tallies.from_json(order.tallies)
    if privacy.look_epsilon == 0:
        return "it answers a look, and its owner allows none"
    try:
        tallies.check(order.classes)
    except OrderError:
        return "it counts in bins that no site may count in"
    if len(counts.arrays["values"]) != tallies.size(order.classes):
        return "it sends more numbers than there are bins"
    least = look_scale(order, privacy)
    if counts.scale < least * (1 - 1e-9):
        return f"it adds noise of scale {counts.scale:.3g} steps instead of {least:.3g}"
    return ""
