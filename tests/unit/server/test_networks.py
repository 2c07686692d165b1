"""Resident networks: one per prototype, the same from the same seed, weights loaded
into them in turn.
"""

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import softmax
from sklearn.metrics import roc_auc_score

from fedaux.models import flatten_state
from fedaux.models.inference import predict
from fedaux.server.networks import MAX_SCORES, Networks, evaluate_classes, evaluations
from helpers.scripted import CONFIG, MLP, WIDE, make_server

BOTH = replace(CONFIG, prototypes=(MLP, WIDE))


def test_the_same_seed_gives_the_same_networks() -> None:
    one, two, other = (
        Networks.build(replace(BOTH, seed=seed), (4,), 3).weights()
        for seed in (1, 1, 2)
    )
    for label in (MLP.label, WIDE.label):
        assert np.array_equal(one[label]["parameters"], two[label]["parameters"])
        assert not np.array_equal(one[label]["parameters"], other[label]["parameters"])


def test_with_head_only_the_heads_of_the_networks_are_trained() -> None:
    networks = Networks.build(replace(BOTH, head_only=True), (4,), 3)
    for label, width in ((MLP.label, 6), (WIDE.label, 8)):
        head = flatten_state(networks.whole[label].head)["parameters"]
        assert len(head) == 3 * (width + 1)
        assert np.array_equal(networks.weights()[label]["parameters"], head)
        assert networks.extractors[label] is networks.whole[label].features


def test_rows_are_true_classes_and_columns_predicted_ones() -> None:
    server = make_server()
    model, test = server.networks.whole[MLP.label], server.public.test
    assert test is not None
    found, outputs = evaluate_classes(model, test, 3), predict(model, test)
    table, answers = found.table, outputs.argmax(axis=1)
    assert found.auc == pytest.approx(
        roc_auc_score(test.labels, softmax(outputs, axis=1), multi_class="ovr")
    )
    for true in range(3):
        for predicted in range(3):
            assert table[true, predicted] == np.sum(
                (test.labels == true) & (answers == predicted)
            )


def test_each_prototype_is_tested_with_its_own_weights() -> None:
    server = make_server(replace(CONFIG, prototypes=(MLP, WIDE)))
    weights = server.networks.weights()
    tests = evaluations(server.networks, weights, server.public.test_inputs, 3)
    assert {label: int(one.table.sum()) for label, one in tests.items()} == {
        MLP.label: 60,
        WIDE.label: 60,
    }
    moved = {
        **weights,
        WIDE.label: {
            **weights[WIDE.label],
            "parameters": -weights[WIDE.label]["parameters"],
        },
    }
    again = evaluations(server.networks, moved, server.public.test_inputs, 3)
    assert np.array_equal(again[MLP.label].table, tests[MLP.label].table)
    assert not np.array_equal(again[WIDE.label].table, tests[WIDE.label].table)


def test_the_area_is_left_out_where_it_would_need_too_much_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = make_server()
    test = server.public.test
    assert test is not None
    assert len(test) * 3 <= MAX_SCORES
    monkeypatch.setattr("fedaux.server.networks.MAX_SCORES", 100)
    assert evaluate_classes(server.networks.whole[MLP.label], test, 3).auc is None
