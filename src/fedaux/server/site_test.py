"""The test at the sites: after the last round, each site counts how the model
classifies the records that it holds out, and the server learns the counts under noise.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from fedaux.config.schema import Config
from fedaux.core.accounts import Account
from fedaux.core.failures import Failure
from fedaux.core.progress import SitesLooked, report
from fedaux.core.results import NoisyCounts, SiteTest
from fedaux.messages import (
    Counts,
    Federation,
    LookOrder,
    SecureTotal,
    Tallies,
    Tally,
)
from fedaux.messages.tallies import OF_ANSWERS, OF_HITS, OF_SCORES
from fedaux.server.run_state import RunState
from fedaux.server.server import Server

# where bins of scores end, as differences of logits. Scores of a private head are often
# far apart, and more bins would add more noise to the area under the curve than detail
SCORE_EDGES = (-7.0, -5.0, -3.0, -2.0, -1.0, 0.0, 1.0, 2.0, 3.0, 5.0, 7.0)
# accuracy, which most tests are read for, has the weight 1
WEIGHT_OF_HITS = 0.7
WEIGHT_OF_SCORES = 0.85


def tallies_of_test(classes: int) -> Tallies:
    """Return what the sites count: right answers, also by class, and for two classes
    the scores of each.

    A confusion matrix of many classes has so many bins that noise would hide it.
    """
    by_name = {OF_ANSWERS: Tally(OF_ANSWERS), OF_HITS: Tally(OF_HITS, WEIGHT_OF_HITS)}
    if classes == 2:
        by_name[OF_SCORES] = Tally(OF_SCORES, WEIGHT_OF_SCORES, SCORE_EDGES)
    return Tallies(by_name)


def is_test_due(config: Config, state: RunState) -> bool:
    """Whether the run has ended, and its model was not tested at the sites yet."""
    if not config.tests_at_sites or state.round < config.rounds:
        return False
    return state.site_test is None or state.site_test.round < state.round


def look_at_sites(server: Server, federation: Federation, state: RunState) -> RunState:
    """Ask all sites for their counts, and return the state with what they add up to.

    Nothing is chosen by these counts. A second look would be another release.
    """
    tallies = tallies_of_test(server.classes)
    orders = [server.orders.look(state, client, tallies) for client in server.clients]
    return collect_counts(server, federation, state, tallies, orders)


def collect_counts(
    server: Server,
    federation: Federation,
    state: RunState,
    tallies: Tallies,
    orders: Sequence[LookOrder],
) -> RunState:
    """Send the orders of a look, and return the state with what all counts add up
    to.
    """
    accounts: dict[str, Account] = {}
    failures: list[Failure] = []
    by_site: dict[str, NoisyCounts] = {}
    counts: dict[str, NoisyCounts] = {}
    for reply in federation.ask(orders):
        if isinstance(reply, Counts):
            accounts[reply.client] = Account.from_json(reply.account)
            by_site[reply.client] = noisy_counts(
                reply.arrays["values"], reply.scale, tallies, server, [reply.client]
            )
        elif isinstance(reply, SecureTotal):
            accounts |= reply.accounts
            label = server.label_of(reply.order.client)
            # each of these sites has added noise of this scale
            scale = reply.scale * math.sqrt(len(reply.sites))
            counts[label] = noisy_counts(
                reply.vector, scale, tallies, server, reply.sites
            )
        elif isinstance(reply, Failure):
            failures.append(reply)
    for label in state.weights:
        of_label = [
            counted
            for site, counted in sorted(by_site.items())
            if server.label_of(site) == label
        ]
        if of_label:
            counts[label] = sum_of_counts(of_label)
    epsilon = server.config.privacy.look_epsilon
    spent = {name: account.epsilon for name, account in state.accounts.items()}
    report(SitesLooked(epsilon, spent, accounts))
    names = list(server.clients)
    after = replace(state, selected=tuple(names)).with_accounts(names, accounts)
    test = SiteTest(
        round=state.round,
        classes=server.classes,
        edges=tallies.by_name[OF_SCORES].edges if OF_SCORES in tallies.by_name else (),
        epsilon=epsilon,
        total_before=state.max_epsilon,
        total=after.max_epsilon,
        counts=counts,
        by_site=by_site,
        failures=tuple(failures),
    )
    return replace(after, site_test=test)


def noisy_counts(
    values: NDArray[np.int64],
    scale: float,
    tallies: Tallies,
    server: Server,
    sites: Iterable[str],
) -> NoisyCounts:
    """Return a vector of a look as counts of records."""
    counts: dict[str, list[float]] = {}
    deviation: dict[str, float] = {}
    for name, place in tallies.slices(server.classes).items():
        steps = tallies.by_name[name].steps
        counts[name] = (values[place] / steps).tolist()
        deviation[name] = scale / steps
    return NoisyCounts(counts, deviation, tuple(sites))


def sum_of_counts(parts: list[NoisyCounts]) -> NoisyCounts:
    """Add up the counts of several sites; their noises are independent."""
    names = parts[0].values
    values = {
        name: np.sum([part.values[name] for part in parts], axis=0).tolist()
        for name in names
    }
    deviation = {
        name: math.sqrt(sum(part.deviation[name] ** 2 for part in parts))
        for name in names
    }
    sites = tuple(site for part in parts for site in part.sites)
    return NoisyCounts(values, deviation, sites)
