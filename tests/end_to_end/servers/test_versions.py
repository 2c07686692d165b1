"""A site that is a version behind, at a real SuperLink: the server speaks with it as it did before, and it counts."""

from collections.abc import Callable

import pytest

from fedaux.algorithms.run_state import RunState
from fedaux.flower.message_versions import PREVIOUS
from helpers import old_site
from helpers.three_sites import SITES, Federation


@pytest.mark.slow
def test_a_site_of_the_version_before_takes_part_in_every_round(federation: Callable[..., Federation]) -> None:
    made = federation()
    made.up()
    made.begin(client="helpers.old_site:app")
    made.servers.finish()
    state = RunState.load(made.out)
    assert [sorted(result.client_metrics) for result in state.history] == [SITES, SITES]
    assert [result.failures for result in state.history] == [(), ()]
    assert sorted(state.releases) == SITES
    unsigned = [name for name, account in state.accounts.items() if not account.signature]
    assert unsigned == [old_site.NAME], f"only version {PREVIOUS} has accounts without a signature"
