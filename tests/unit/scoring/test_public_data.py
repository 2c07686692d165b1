"""Public data: split once, never a row in both parts, and features where only heads
train.
"""

from dataclasses import replace

import numpy as np

from fedaux.config.distillation import TeachersConfig
from fedaux.data.records import Records
from fedaux.models.inference import predict
from fedaux.scoring.public_data import PublicData
from fedaux.server.preparation import initial_state
from helpers.scripted import CONFIG, MLP, WIDE, make_server

ROWS = Records(np.arange(80, dtype=np.float32).reshape(40, 2))


def test_negatives_and_distillation_set_are_parts_of_the_public_rows() -> None:
    public = PublicData(ROWS, None, 0.25, seed=3)
    both = np.concatenate([public.split.negatives, public.split.distill])
    assert (len(public.split.negatives), len(public.distill)) == (10, 30)
    assert sorted(both) == list(range(40))
    again, other = (
        PublicData(ROWS, None, 0.25, seed=3),
        PublicData(ROWS, None, 0.25, seed=4),
    )
    assert np.array_equal(again.split.distill, public.split.distill)
    assert not np.array_equal(other.split.distill, public.split.distill)


def test_learners_see_records_or_where_heads_train_their_features() -> None:
    for head_only in (False, True):
        server = make_server(replace(CONFIG, head_only=head_only))
        server.restore(initial_state(server))
        public, h0 = (
            server.public,
            predict(server.networks.extractors[MLP.label], server.public.aux),
        )
        expected = h0[public.split.distill] if head_only else public.distill.gather()
        assert np.array_equal(public.distill_inputs(MLP.label).gather(), expected)
        test = public.test_inputs(MLP.label)
        assert test is not None
        assert test.gather().shape == ((60, 6) if head_only else (60, 4))
        assert np.array_equal(
            public.negatives(MLP.label).gather(), h0[public.split.negatives]
        )


def test_a_round_takes_its_own_part_of_the_distillation_set() -> None:
    public = PublicData(ROWS, None, 0.25, seed=3)
    first, again, second = (public.part(12, number) for number in (1, 1, 2))
    assert first is not None
    assert second is not None
    assert np.array_equal(first, again)
    assert not np.array_equal(first, second)
    assert sorted(set(first)) == first.tolist()
    assert len(first) == 12
    assert max(first) < 30
    assert np.array_equal(
        public.distill_inputs("any", first).gather(), public.distill.gather(first)
    )
    assert [public.part(examples, 1) for examples in (0, 30, 31)] == [None] * 3


def test_the_hash_is_that_of_the_rows_in_their_order() -> None:
    public = PublicData(ROWS, None, 0.25, seed=3)
    assert (
        public.distill_hash
        == PublicData(Records(ROWS.x.copy()), None, 0.25, seed=3).distill_hash
    )
    changed = ROWS.x.copy()
    changed[public.split.distill[5], 1] += 1
    others = [
        PublicData(Records(changed), None, 0.25, 3),
        PublicData(ROWS, None, 0.25, 4),
        PublicData(ROWS, None, 0.3, 3),
    ]
    assert all(other.distill_hash != public.distill_hash for other in others)


def test_without_test_records_there_are_no_inputs_to_test() -> None:
    assert PublicData(ROWS, None, 0.25, 0, head_only=True).test_inputs("any") is None
    assert PublicData(ROWS, None, 0.25, 0).test_inputs("any") is None


def test_the_embedding_is_that_of_each_prototypes_own_features() -> None:
    server = make_server(replace(CONFIG, prototypes=(MLP, WIDE)))
    state = initial_state(server)
    teachers = TeachersConfig("certainty", 0.5)
    found = server.public.embedding(
        server.scorer, state.public, server.label_of, teachers
    )
    assert found.teachers == teachers
    for label, public in state.public.items():
        features = server.public.h0[label].features(server.public.aux).gather()
        split = server.public.split
        assert np.allclose(
            found.embedded[label],
            server.scorer.embed(public, features[split.distill]),
            atol=1e-6,
        )
        assert np.allclose(
            found.reference[label].rows,
            server.scorer.embed(public, features[split.negatives]),
            atol=1e-6,
        )
