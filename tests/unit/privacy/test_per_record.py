"""The contract: the bits of what a record adds are its own, alone and in any company, at any place, in any thread."""

from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn

from fedaux.config.prototype import PrototypeSpec
from fedaux.data.records import Records
from fedaux.models import Prototype, build, linear_head
from fedaux.models.inference import predict
from fedaux.privacy import per_record
from fedaux.privacy.clipping import GRID, clip_rows, quantize, unit_rows
from fedaux.privacy.dp_sgd import clipped_unit_gradient, sum_clipped_gradients
from fedaux.privacy.module_validation import keeps_records_apart
from fedaux.privacy.per_record import parallel_apply, project, replicate, single_thread
from fedaux.privacy.units import Units
from helpers.private_networks import IMAGES, TEXTS, image_network, text_network

RNG = np.random.default_rng(0)
SHAPE = (3, 8, 8)
ROWS = np.stack(
    [
        *RNG.normal(size=(4, *SHAPE)),
        *(np.full(SHAPE, value) for value in (np.nan, np.inf, -np.inf, 3e38, -3e38, 1e-45, 0.0)),
    ]
).astype(np.float32)
PICTURES = np.stack([*RNG.integers(0, 256, (4, 8, 8, 3)), np.zeros((8, 8, 3)), np.full((8, 8, 3), 255)]).astype(
    np.uint8
)
STRINGS = [
    "the team was new",
    "oil",
    "rocket launch in the old league",
    "",
    "the " * 100,
    "[PAD] [PAD] [PAD]",
    "é\x00 😀 star",
]
TEXT_ROWS = np.array(STRINGS, dtype=object)

company = st.lists(st.integers(0, 100), max_size=14)
contract = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(autouse=True)
def _threads(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Workers wherever they are allowed, whether they pay or not."""
    monkeypatch.setattr(per_record, "MIN_PARALLEL_SECONDS", 0.0)
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def collected(module: nn.Module, records: Records) -> np.ndarray:
    return np.concatenate([block for _, block in per_record.outputs(module, records)])


def keeps_its_bits(module: nn.Module, pool: np.ndarray) -> Callable[[], None]:
    """Alone, with 1 thread, against: anywhere among any neighbours, as a view or not, with 1 or 2 threads."""
    alone = [collected(module, Records(pool[[i]])).tobytes() for i in range(len(pool))]

    @contract
    @given(st.integers(0, len(pool) - 1), company, company, st.sampled_from([1, 2]), st.booleans())
    def check(own: int, before: list[int], after: list[int], threads: int, view: bool) -> None:
        positions = np.array([*before, own, *after]) % len(pool)
        torch.set_num_threads(threads)
        found = collected(module, Records(pool).take(positions) if view else Records(pool[positions]))
        assert [row.tobytes() for row in found] == [alone[position] for position in positions]

    return check


@pytest.mark.parametrize("spec", IMAGES, ids=lambda spec: spec.label)
def test_a_record_keeps_its_bits_in_every_network(spec: PrototypeSpec) -> None:
    module = image_network(spec)
    torch.set_num_threads(1)
    keeps_its_bits(module, ROWS)()
    torch.set_num_threads(1)
    keeps_its_bits(module, PICTURES)()


@pytest.mark.parametrize("kind", TEXTS)
def test_a_text_keeps_its_bits_in_every_network(kind: str) -> None:
    torch.set_num_threads(1)
    keeps_its_bits(text_network(kind), TEXT_ROWS)()


def test_memory_that_is_not_aligned_changes_no_bit() -> None:
    module, rows = image_network(IMAGES[3]), ROWS[:4]
    buffer = np.empty(rows.nbytes + 64, np.uint8)
    for offset in (0, 4, 12, 20):
        placed = buffer[offset : offset + rows.nbytes].view(np.float32).reshape(rows.shape)
        placed[:] = rows
        assert collected(module, Records(placed)).tobytes() == collected(module, Records(rows)).tobytes()
    other = np.asfortranarray(rows)
    assert collected(module, Records(other)).tobytes() == collected(module, Records(rows)).tobytes()


def test_the_rows_are_those_of_a_batch_up_to_rounding_and_come_in_blocks() -> None:
    torch.set_num_threads(2)
    records, module = Records(RNG.normal(size=(1100, 5)).astype(np.float32)), nn.Linear(5, 3)
    assert [rows for rows, _ in per_record.outputs(module, records)] == list(records.blocks(per_record.BLOCK))
    assert np.allclose(collected(module, records), predict(module, records), atol=1e-6)
    texts, encoder = Records(TEXT_ROWS), text_network("encoder")
    assert np.allclose(collected(encoder, texts), predict(encoder, texts), atol=1e-5)


def test_one_thread_computes_in_every_worker_and_the_number_is_restored() -> None:
    torch.set_num_threads(2)
    module = nn.Linear(2, 2)
    found = parallel_apply([module, module], lambda _, items: (torch.get_num_threads(), list(items)), range(5))
    assert found == [(1, [0, 2, 4]), (1, [1, 3])]
    assert torch.get_num_threads() == 2
    with single_thread():
        assert torch.get_num_threads() == 1
    with pytest.raises(KeyError), single_thread():
        raise KeyError
    assert torch.get_num_threads() == 2


def test_workers_share_weights_and_come_only_where_they_pay(monkeypatch: pytest.MonkeyPatch) -> None:
    @keeps_records_apart
    class Own(nn.Linear):
        pass

    torch.set_num_threads(2)
    module = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3))
    first, second = replicate(module, lambda one: None, 100)
    assert first is module
    assert second is not module
    for one, other in ((first.parameters(), second.parameters()), (first.buffers(), second.buffers())):
        assert [id(tensor) for tensor in one] == [id(tensor) for tensor in other]
    assert replicate(nn.Sequential(Own(3, 3)), lambda one: None, 100)[1:] == []  # what it keeps to itself is not known
    assert replicate(module, lambda one: None, 3)[1:] == []
    monkeypatch.setattr(per_record, "MIN_PARALLEL_SECONDS", 1.0)
    assert replicate(module, lambda one: None, 100)[1:] == []
    torch.set_num_threads(1)
    monkeypatch.setattr(per_record, "MIN_PARALLEL_SECONDS", 0.0)
    assert replicate(module, lambda one: None, 100)[1:] == []


def test_an_output_that_is_no_row_is_refused() -> None:
    with pytest.raises(ValueError, match=r"as \(1, H\), not \(3, 8, 8\)|not \(1, 3, 8, 8\)"):
        collected(nn.ReLU(), Records(ROWS))


# The public map and the ball

ODD = st.sampled_from([0.0, -0.0, 1.0, np.nan, np.inf, -np.inf, 1e308, -1e308, 5e-324, 1 / 3])


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 2500), st.integers(1, 70), st.integers(1, 9), st.lists(ODD, max_size=6), st.integers(0, 2**30))
def test_a_row_keeps_its_bits_in_the_public_map_and_in_the_ball(
    count: int, width: int, embedding_dim: int, odd: list[float], seed: int
) -> None:
    rng = np.random.default_rng(seed)
    rows, mean, basis = rng.normal(size=(count, width)), rng.normal(size=width), rng.normal(size=(width, embedding_dim))
    rows[rng.integers(count, size=len(odd)), rng.integers(width, size=len(odd))] = odd
    placed = np.empty(rows.nbytes + 8, np.uint8)[8:].view(np.float64).reshape(rows.shape)
    placed[:] = rows
    with np.errstate(all="ignore"):
        for function in (lambda part: project(part, mean, basis), clip_rows, unit_rows):
            whole = function(rows)
            assert function(placed).tobytes() == function(np.asfortranarray(rows)).tobytes() == whole.tobytes()
            for position in {0, count - 1, int(rng.integers(count))}:
                assert function(rows[position : position + 1]).tobytes() == whole[[position]].tobytes()
                assert function(rows[position:]).tobytes() == whole[position:].tobytes()


def test_the_map_is_the_matrix_product_up_to_rounding() -> None:
    rows, mean, basis = RNG.normal(size=(3000, 40)).astype(np.float32), RNG.normal(size=40), RNG.normal(size=(40, 7))
    assert np.allclose(project(rows, mean, basis), (rows - mean) @ basis, rtol=1e-12, atol=1e-12)
    assert project(rows[:0], mean, basis).shape == (0, 7)


@pytest.mark.parametrize("width", [1, 2, 3, 1000, 123_457])
def test_norms_are_right_at_any_width(width: int) -> None:
    rows = RNG.normal(size=(3, width)) * np.array([[1e-9], [1.0], [1e200]])
    norms = np.array([np.linalg.norm(rows[0]), np.linalg.norm(rows[1]), np.linalg.norm(rows[2] / 1e200) * 1e200])
    assert np.allclose(clip_rows(rows), rows / np.maximum(1.0, norms)[:, None], rtol=1e-12, atol=0.0)
    assert np.allclose(np.linalg.norm(unit_rows(rows), axis=1), 1.0)
    assert (np.square(quantize(unit_rows(rows))).sum(axis=1) <= GRID**2).all()


# Gradients


def head_and_network() -> list[tuple[Prototype, np.ndarray]]:
    network = build(PrototypeSpec.of("cnn", width=4, features=8, norm="group"), SHAPE, 3, 0)
    with np.errstate(all="ignore"):
        return [(linear_head(192, 3), ROWS.reshape(len(ROWS), -1)), (network, ROWS)]


@pytest.mark.parametrize(("model", "pool"), head_and_network(), ids=["head", "network"])
def test_a_sum_of_gradients_moves_by_a_records_own_integers(model: Prototype, pool: np.ndarray) -> None:
    """To the last one: added, removed or replaced, wherever it stands, whoever is beside it, with 1 or 2 threads."""
    labels = np.arange(len(pool)) % 5 - 1  # some are none of the classes
    own = [clipped_unit_gradient(model, Records(pool), labels, np.array([i]), 0.5) for i in range(len(pool))]
    assert any(steps.any() for steps in own)

    @contract
    @given(st.integers(0, len(pool) - 1), company, company, st.sampled_from([1, 2]))
    def check(record: int, before: list[int], after: list[int], threads: int) -> None:
        torch.set_num_threads(threads)
        sums = []
        for middle in ([record], []):
            positions = np.array([*before, *middle, *after], np.int64) % len(pool)
            records = Records(pool[positions], labels[positions])
            workers = replicate(model, lambda one: None, len(records))
            sums.append(sum_clipped_gradients(workers, records, Units.of(records, "record", 1).rows, 0.5))
        assert np.array_equal(sums[0] - sums[1], own[record])

    check()


@contract
@given(company, company, st.sampled_from([1, 2]), st.integers(1, 4))
def test_a_sum_of_gradients_moves_by_a_persons_own_integers(
    own: list[int], others: list[int], threads: int, cap: int
) -> None:
    model, pool = head_and_network()[0]
    torch.set_num_threads(threads)
    labels = np.arange(len(pool)) % 4 - 1
    positions = np.array([*others, *own], np.int64) % len(pool)
    person = np.array([*(i % 3 for i in range(len(others))), *[7] * len(own)], np.int64)
    shuffled = np.random.default_rng(len(own)).permutation(len(positions))
    mixed = Records(pool[positions[shuffled]], labels[positions[shuffled]], person=person[shuffled])
    without, alone = (mixed.take(np.flatnonzero(mixed.persons == 7 if his else mixed.persons != 7)) for his in (0, 1))
    sums = [
        sum_clipped_gradients([model], one, Units.of(one, "person", cap).rows, 0.5) for one in (mixed, without, alone)
    ]
    assert np.array_equal(sums[0] - sums[1], sums[2])
