"""What a model gets right, by class and for each prototype; nothing where there is no test data."""

from dataclasses import replace

import numpy as np

from fedaux.algorithms.evaluation import confusion, confusions, evaluate
from fedaux.data.records import Records
from fedaux.models.inference import predict
from helpers.scripted import CONFIG, MLP, WIDE, make_server


def test_rows_are_true_classes_and_columns_predicted_ones() -> None:
    server = make_server()
    model, test = server.learners.networks[MLP.label], server.public.test
    assert test is not None
    table, answers = confusion(model, test, 3), predict(model, test).argmax(axis=1)
    for true in range(3):
        for predicted in range(3):
            assert table[true, predicted] == np.sum((test.labels == true) & (answers == predicted))
    assert evaluate(model, test)[0] == np.trace(table)


def test_each_prototype_is_tested_with_its_own_weights() -> None:
    server = make_server(replace(CONFIG, prototypes=(MLP, WIDE)))
    weights = server.learners.weights()
    tables = confusions(server.learners, weights, server.public.test_inputs, 3)
    assert {label: int(table.sum()) for label, table in tables.items()} == {MLP.label: 60, WIDE.label: 60}
    moved = {**weights, WIDE.label: {**weights[WIDE.label], "parameters": -weights[WIDE.label]["parameters"]}}
    again = confusions(server.learners, moved, server.public.test_inputs, 3)
    assert np.array_equal(again[MLP.label], tables[MLP.label])
    assert not np.array_equal(again[WIDE.label], tables[WIDE.label])


def test_without_test_data_there_is_no_table() -> None:
    server = make_server()
    none: Records | None = None
    assert confusions(server.learners, server.learners.weights(), lambda label: none, 3) == {}
