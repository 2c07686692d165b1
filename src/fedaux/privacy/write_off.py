"""What an owner does whose newest vault is lost for good: what is missing counts as all that was left of the budget.

The account learns how many entries are missing from the server, which shows the client's own signature of their number,
but not what they cost. With those that are there they cost at most the owner's ε: more would have been refused.
"""

from __future__ import annotations

from fedaux.privacy.account_file import LOST, Entry, count_costly
from fedaux.privacy.accounting import BudgetError, Mechanism, training_noise_multiplier
from fedaux.privacy.budget import BudgetStore

NO_COST = 2.0**30  # noise
MORE = 0.995  # of the noise that would use up the total, so that nothing is left of it


def write_off(store: BudgetStore, known_entries: int) -> int:
    """Enter what is missing of so many entries, at noise that uses up the owner's total; how many were missing."""
    with store._locked() as entries:
        there = count_costly(entries)
        missing = known_entries - there
        if missing < 1:
            raise BudgetError(f"{store.folder} has {there} entries: of {known_entries}, none is missing")
        entry = store._entry(LOST, Mechanism(_noise(store, entries, missing)))
        for _ in range(missing):
            store.enter(entry)
    return missing


def _noise(store: BudgetStore, entries: list[Entry], missing: int) -> float:
    privacy, before = store.privacy, [entry.mechanism for entry in entries]
    epsilon, delta, adjacency = privacy.epsilon_budget, privacy.delta, privacy.adjacency
    try:
        return MORE * training_noise_multiplier(epsilon, delta, adjacency, 1.0, missing, before=before)
    except BudgetError:  # nothing was left
        return NO_COST
