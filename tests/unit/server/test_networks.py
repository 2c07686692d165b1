"""Resident networks: one per prototype, the same from the same seed, weights loaded into them in turn."""

from dataclasses import replace

import numpy as np

from fedaux.models import flatten_state
from fedaux.server.networks import Learners
from helpers.scripted import CONFIG, MLP, WIDE

BOTH = replace(CONFIG, prototypes=(MLP, WIDE))


def test_the_same_seed_gives_the_same_networks() -> None:
    one, two, other = (Learners.build(replace(BOTH, seed=seed), (4,), 3).weights() for seed in (1, 1, 2))
    for label in (MLP.label, WIDE.label):
        assert np.array_equal(one[label]["parameters"], two[label]["parameters"])
        assert not np.array_equal(one[label]["parameters"], other[label]["parameters"])


def test_weights_pass_through_the_one_network_of_a_prototype() -> None:
    learners = Learners.build(BOTH, (4,), 3)
    first = learners.weights()[MLP.label]
    moved = {name: array + array.dtype.type(1) for name, array in first.items()}
    learner = learners.loaded(MLP.label, moved)
    assert learner is learners.trained[MLP.label] is learners.networks[MLP.label]
    assert all(np.array_equal(array, moved[name]) for name, array in learners.weights()[MLP.label].items())
    assert not np.array_equal(first["parameters"], moved["parameters"])  # what was dumped is a copy


def test_with_head_only_the_heads_of_the_networks_are_trained() -> None:
    learners = Learners.build(replace(BOTH, head_only=True), (4,), 3)
    for label, width in ((MLP.label, 6), (WIDE.label, 8)):
        head = flatten_state(learners.networks[label].head)["parameters"]
        assert len(head) == 3 * (width + 1)
        assert np.array_equal(learners.weights()[label]["parameters"], head)
        assert learners.extractors[label] is learners.networks[label].features
