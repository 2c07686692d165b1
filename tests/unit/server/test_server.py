"""The parts put together: restored from a state, twice as well as once."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedaux import Config
from fedaux.config.sections import AuxConfig, DataConfig, PrivacyConfig
from fedaux.data.federated import open_data
from fedaux.scoring.class_moments import ClassMomentsScorer
from fedaux.server.preparation import initial_state
from fedaux.server.server import deal
from fedaux.server.server import make_server as make_run_server
from helpers.scripted import CONFIG, MLP, WIDE, make_server


def test_restoring_knows_the_extractors_of_the_state() -> None:
    first, second = make_server(), make_server()
    state = initial_state(first)
    moved = {
        name: array + array.dtype.type(1)
        for name, array in state.extractors[MLP.label].items()
    }
    other = replace(state, extractors={MLP.label: moved})
    one, two = second.restore(state), second.restore(other)
    assert one is not None
    assert two is not None
    # not what an earlier state had
    assert not np.allclose(one.embedded[MLP.label], two.embedded[MLP.label])
    h0 = second.public.h0[MLP.label]
    second.restore(other)
    assert second.public.h0[MLP.label] is h0  # features are computed once


def test_who_scores_nobody_needs_no_embedding() -> None:
    server = make_server(replace(CONFIG, method="feddf"))
    assert server.restore(initial_state(server)) is None


def test_a_run_has_the_data_and_networks_of_its_config(tmp_path: Path) -> None:
    config = Config(
        prototypes=(MLP,),
        data=DataConfig(clients=3),
        aux=AuxConfig(limit=50, negatives=0.4),
    )
    server = make_run_server(config, cache=tmp_path)
    assert (list(server.clients), server.classes) == (
        ["client-000", "client-001", "client-002"],
        10,
    )
    assert (len(server.public.split.negatives), len(server.public.distill)) == (20, 30)
    assert server.method.label == "FedAUX"
    assert server.cache == tmp_path


@pytest.mark.parametrize(
    ("privacy", "expected"),
    [
        ({}, None),
        ({"expected_records": 77}, 77),
        ({"adjacency": "add-remove", "declared_records": 9}, 3 * 9),
    ],
)
def test_what_is_chosen_is_chosen_for_the_records_that_are_simulated_or_declared(
    privacy: dict[str, Any], expected: int | None, tmp_path: Path
) -> None:
    data, moments = DataConfig(clients=3), PrivacyConfig("class-moments", **privacy)
    config = Config(
        method="private-head", prototypes=(MLP,), data=data, privacy=moments
    )
    scorer = make_run_server(config, cache=tmp_path).scorer
    assert isinstance(scorer, ClassMomentsScorer)
    assert scorer.facts.records == (expected or len(open_data(config).private))


SPECS = (MLP, WIDE)


def test_prototypes_are_dealt_in_turn_and_stay_with_names() -> None:
    first = deal(["a", "b", "c"], SPECS, {})
    assert first == {"a": MLP, "b": WIDE, "c": MLP}
    labels = {client: spec.label for client, spec in first.items()}
    assert deal(["c", "b", "a"], SPECS, labels) == first
    gone = deal(["b", "c"], SPECS, labels)
    assert gone == first  # also of who has left: releases of it are there
    assert deal(["b", "c", "d", "e"], SPECS, labels) == {**first, "d": MLP, "e": WIDE}
    assert deal(["b", "d", "e"], SPECS, labels) == {**first, "d": MLP, "e": MLP}
