"""The privacy statement is true, composes all that was revealed, and says what it leaves out."""

import dp_accounting as dpa
import numpy as np
import pytest
from dp_accounting.pld import PLDAccountant

from fedaux.config import LocalConfig, PrivacyConfig
from fedaux.exchange import Release
from fedaux.privacy import gaussian
from fedaux.privacy.accounting import plan_training
from fedaux.privacy.ledger import Ledger


def release(epsilon: float = 0.5, delta: float = 1e-5, adjacency: str = "replace-one", unsafe: bool = False) -> Release:
    scale = gaussian.continuous_multiplier(epsilon, delta) * 100.0
    values = {"values": np.zeros(2, np.int64)}
    return Release("a", "s", 7, epsilon, delta, adjacency, "opendp", 100.0, scale, 1.0, unsafe, values)


def statement(*releases: Release) -> str:
    return Ledger({str(i): one for i, one in enumerate(releases)}).statement()


def test_what_is_covered_and_what_is_not() -> None:
    said = statement(release(), release())
    assert "(0.5, 1e-05)-differentially private for one record of a client exchanged for any other" in said
    assert "2 clients, one release each" in said
    assert "noise from the operating system, certificate opendp." in said
    covered, _, rest = said.partition("Not covered:")
    assert "certainty scores" in covered
    assert "local models and their losses are sent without differential privacy" in rest
    assert "the sizes of the clients' data are sent as they are" in rest
    assert "what other runs reveal about the same data adds to this" in rest


def test_the_adjacency_is_spelt_out() -> None:
    added = "one record of a client added or removed, at a declared size"
    assert f"private for {added}:" in statement(release(adjacency="add-remove"))
    both = statement(release(), release(adjacency="add-remove"))
    assert f"private for {added} or one record of a client exchanged for any other:" in both


def test_the_weakest_release_speaks_for_all() -> None:
    assert "(2.0, 1e-05)" in statement(release(0.5), release(2.0), release(1.0))
    assert "(0.5, 0.001)" in statement(release(0.5, 1e-3), release(0.5, 1e-5))


def test_one_seeded_release_spoils_the_statement() -> None:
    said = statement(release(), release(unsafe=True))
    assert said.startswith("NOT PRIVATE: the noise was drawn from a known seed (privacy.unsafe_seed)")
    assert "differentially private" not in said


def test_nothing_released_promises_nothing() -> None:
    said = statement()
    assert said.startswith("Nothing was released under differential privacy. Not covered: local models")


@pytest.mark.parametrize("adjacency", ["replace-one", "add-remove"])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0])
def test_one_release_costs_what_it_was_calibrated_for(epsilon: float, adjacency: str) -> None:
    """The accountant counts a record's vector, the release its neighbours' distance: twice as far under replace-one."""
    ledger = Ledger({"a": release(epsilon, adjacency=adjacency)})
    assert ledger.epsilon("a") == pytest.approx(epsilon, rel=1e-3)


def test_scores_and_training_compose_as_dp_accounting_has_it_and_below_the_sum() -> None:
    """Scoring at ε = .3, training at ε = 1: against the accountant called by hand."""
    scores = release(0.3)
    plan = plan_training(PrivacyConfig(epsilon_total=1.0), LocalConfig(batch=32), 625, rounds=8, parameters=50)
    history = [{"clients": 1, "spent": {"a": [plan.noise, plan.rate, plan.steps]}}] * 8
    ledger = Ledger.of({"a": scores}, history)

    by_hand = PLDAccountant(dpa.NeighboringRelation.REPLACE_ONE)
    by_hand.compose(dpa.GaussianDpEvent(2 * scores.scale / scores.sensitivity))
    by_hand.compose(dpa.PoissonSampledDpEvent(plan.rate, dpa.GaussianDpEvent(plan.noise)), 8 * plan.steps)
    assert ledger.epsilon("a") == pytest.approx(by_hand.get_epsilon(1e-5), rel=0.01)
    assert 1.0 < ledger.epsilon("a") < 1.3
    ((client, scoring, training, together, added),) = ledger.rows()
    assert (client, scoring) == ("a", "0.300")
    assert float(training) == pytest.approx(1.0, abs=0.01)
    assert float(together) < float(added)
    said = ledger.statement()
    assert (
        f"The certainty scores and the local models of this run are together ({ledger.epsilon('a'):.3g}, 1e-05)" in said
    )
    assert "local models and their losses are sent without" not in said


def test_one_bare_model_takes_the_models_out_of_the_statement() -> None:
    history = [{"clients": 2, "spent": {"a": [5.0, 1.0, 1], "b": [0.0, 1.0, 0]}}]
    said = Ledger.of({"a": release(), "b": release()}, history).statement()
    assert "The certainty scores of this run are (0.5, 1e-05)" in said
    assert "local models and their losses are sent without differential privacy" in said


def test_without_private_training_history_adds_nothing() -> None:
    ledger = Ledger.of({"a": release()}, [{"clients": 3, "spent": {}}])
    assert ledger.training == {}
    assert ledger.bare == 3


def test_a_private_model_that_was_refused_does_not_hide_a_bare_one() -> None:
    """Both were seen, one was used: the count of used models would come out even."""
    history = [{"clients": 1, "spent": {"a": [5.0, 1.0, 1], "b": [0.0, 1.0, 0]}}]
    ledger = Ledger.of({"a": release(), "b": release()}, history)
    assert ledger.bare == 1
    assert "local models and their losses are sent without differential privacy" in ledger.statement()
