"""One finished round: what follows from it, and that it survives as JSON."""

import json
from dataclasses import FrozenInstanceError, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedaux.core.failures import Failure
from fedaux.core.results import ClientMetrics, PrivateTraining, RoundResult

METRICS = {"a": ClientMetrics(10, 0.5, 1.0, 0.2), "b": ClientMetrics(30, 1.5, 2.0, 0.8)}
RESULT = RoundResult(
    3,
    {"mlp": 0.5, "cnn": 0.7},
    METRICS,
    (Failure("c", "gone"),),
    {"a": PrivateTraining(5.0, 0.1, 7)},
    unprotected_models=1,
    epsilon=0.5,
    distill_loss=0.25,
    update_norms={"mlp": {"parameters": 1.5}},
    seconds={"train": 2.0},
    confusion={"mlp": [[3, 1], [0, 4]]},
    calibration={"mlp": [[8, 0.5, 0.4]]},
)


def test_means_are_over_prototypes_and_over_clients() -> None:
    assert RESULT.mean_accuracy == pytest.approx(0.6)
    # each client counts once, whatever its records
    assert RESULT.local_loss == pytest.approx(1.0)


def test_the_largest_teacher_is_the_one_with_most_of_the_weight() -> None:
    assert RESULT.largest_teacher == ("b", 0.8)
    silent = {name: replace(one, teacher_share=None) for name, one in METRICS.items()}
    assert replace(RESULT, client_metrics=silent).largest_teacher is None


def test_a_round_survives_as_json_but_for_its_confusion_matrices() -> None:
    assert RoundResult.from_dict(json.loads(json.dumps(RESULT.to_dict()))) == replace(
        RESULT, confusion=None, calibration=None
    )


@given(
    st.dictionaries(
        st.text(max_size=4),
        st.builds(ClientMetrics, st.integers(0), st.floats(0, 9), st.floats(0, 9)),
    )
)
def test_clients_of_any_name_survive(metrics: dict[str, ClientMetrics]) -> None:
    result = RoundResult(1, {}, metrics)
    assert RoundResult.from_dict(json.loads(json.dumps(result.to_dict()))) == result


def test_a_round_of_which_nothing_more_is_known_has_cost_and_revealed_nothing() -> None:
    bare = RoundResult(1, {}, {})
    assert (bare.unprotected_models, bare.bytes_sent, bare.bytes_received) == (0, 0, 0)
    assert (
        bare.epsilon,
        bare.distill_loss,
        bare.effective_teachers,
        bare.confusion,
    ) == (None, None, None, None)


@pytest.mark.parametrize(
    "value",
    [RESULT, METRICS["a"], RESULT.private_training["a"]],
    ids=lambda one: type(one).__name__,
)
def test_history_cannot_be_changed(value: object) -> None:
    with pytest.raises(FrozenInstanceError):
        value.records = 7  # type: ignore[attr-defined]
