"""The contract: the bits of what a record adds are its own, alone and in any company, at any place, in any thread."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from fedaux.config.prototype import PrototypeSpec
from fedaux.data.records import Records
from fedaux.models import build, linear_head
from fedaux.models.inference import predict
from fedaux.privacy import per_record
from fedaux.privacy.clipping import clip_rows, unit_rows
from fedaux.privacy.module_validation import keeps_records_apart
from fedaux.privacy.per_record import gradient, parallel_apply, project, replicate, single_thread
from helpers.networks import IMAGES, image_network, text_network
from helpers.odd_rows import PICTURES, ROWS, TEXT_ROWS, collected, keeps_its_bits

pytestmark = pytest.mark.usefixtures("workers_everywhere")

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("pool", [ROWS, PICTURES], ids=["rows", "pictures"])
def test_a_record_keeps_its_bits_in_any_company(pool: np.ndarray) -> None:
    """In every built-in network: tests/attacks/test_records_apart.py."""
    torch.set_num_threads(1)
    keeps_its_bits(image_network(IMAGES[4]), pool)()


def test_a_text_keeps_its_bits_in_any_company() -> None:
    torch.set_num_threads(1)
    keeps_its_bits(text_network("encoder"), TEXT_ROWS)()


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


@pytest.mark.parametrize("width", [1, 40, 512, 3000])
def test_the_map_is_the_matrix_product_up_to_single_precision(width: int) -> None:
    """Also where features are of very different size, as long as the basis makes up for it."""
    sizes = 10.0 ** RNG.integers(-4, 5, size=width)
    rows, mean, basis = (RNG.normal(size=shape) for shape in ((300, width), width, (width, 7)))
    rows, mean, basis = (rows * sizes).astype(np.float32), mean * sizes, basis / sizes[:, None]
    expected, terms = (rows - mean) @ basis, np.abs(rows - mean) @ np.abs(basis)
    assert (np.abs(project(rows, mean, basis) - expected) <= 1e-6 * terms.max(axis=1, keepdims=True)).all()
    assert project(rows[:0], mean, basis).shape == (0, 7)


def test_the_integers_of_the_map_add_up_without_rounding() -> None:
    """The largest sum there can be, and sums that cancel: exact in any order, so permuted features change no bit."""
    for width in (1, 2, 512, 513, 4096):
        rows, basis = np.full((3, width), 1 - 2.0**-53), np.full((width, 2), 1 - 2.0**-53)
        assert (project(rows, np.zeros(width), basis) == width).all()
        rows, basis = RNG.normal(size=(50, width)), RNG.normal(size=(width, 5))
        order = RNG.permutation(width)
        shuffled = project(rows[:, order], np.zeros(width), basis[order])
        assert project(rows, np.zeros(width), basis).tobytes() == shuffled.tobytes()


def test_a_map_that_is_not_finite_embeds_nothing() -> None:
    rows, mean, basis = RNG.normal(size=(9, 6)), np.zeros(6), RNG.normal(size=(6, 3))
    for mean_entry, basis_entry in ((np.nan, 0.5), (np.inf, 0.5), (0.0, np.inf), (0.0, np.nan)):
        mean[2], basis[2] = mean_entry, basis_entry
        assert not unit_rows(project(rows, mean, basis)).any()


@pytest.mark.parametrize("kind", ["head", "network"])
def test_a_records_gradient_is_autograds(kind: str) -> None:
    shape, network = (1, 8, 8), PrototypeSpec.of("cnn", width=4, features=8, norm="group")
    model = linear_head(64, 3) if kind == "head" else build(network, shape, 3, 0)
    rows = RNG.normal(size=(7, *((64,) if kind == "head" else shape))).astype(np.float32)
    records = Records(rows, RNG.integers(0, 3, 7))
    for position, label in enumerate(records.labels):
        model.zero_grad()
        F.cross_entropy(model(records.tensor()[[position]]), torch.tensor([label])).backward()
        naive = torch.cat([parameter.grad.flatten() for parameter in model.parameters()])  # type: ignore[union-attr]
        assert np.allclose(gradient(model, records, position, int(label)), naive.numpy(), atol=1e-5)


def test_a_label_that_is_no_class_has_no_gradient() -> None:
    model, records = linear_head(4, 3), Records(np.ones((3, 4), np.float32))
    assert gradient(model, records, 0, 1).any()
    for label in (3, -1, 2**40):
        assert not gradient(model, records, 0, label).any()
