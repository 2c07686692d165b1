"""The contract: the bits of what a record adds are its own, alone and in any company,
at any place, in any thread.
"""

from collections.abc import Callable

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from fedaux.config.prototype import PrototypeSpec
from fedaux.core.errors import Exit
from fedaux.data.records import Records
from fedaux.models import build, linear_head
from fedaux.models.compute import Compute, place
from fedaux.models.inference import predict
from fedaux.privacy import per_record
from fedaux.privacy.mechanism import clip_rows, unit_rows
from fedaux.privacy.module_validation import UnsupportedModuleError, per_record_safe
from fedaux.privacy.per_record import (
    ImpureModuleError,
    gradient,
    parallel_apply,
    project,
    replicate,
    single_thread,
    validate_placement,
    verified,
)
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
        placed = (
            buffer[offset : offset + rows.nbytes].view(np.float32).reshape(rows.shape)
        )
        placed[:] = rows
        assert (
            collected(module, Records(placed)).tobytes()
            == collected(module, Records(rows)).tobytes()
        )
    other = np.asfortranarray(rows)
    assert (
        collected(module, Records(other)).tobytes()
        == collected(module, Records(rows)).tobytes()
    )


def test_the_rows_are_those_of_a_batch_up_to_rounding_and_come_in_blocks() -> None:
    torch.set_num_threads(2)
    records, module = (
        Records(RNG.normal(size=(1100, 5)).astype(np.float32)),
        nn.Linear(5, 3),
    )
    assert [rows for rows, _ in per_record.outputs(module, records)] == list(
        records.blocks(per_record.BLOCK)
    )
    assert np.allclose(collected(module, records), predict(module, records), atol=1e-6)
    texts, encoder = Records(TEXT_ROWS), text_network("encoder")
    assert np.allclose(collected(encoder, texts), predict(encoder, texts), atol=1e-5)


def test_one_thread_computes_in_every_worker_and_the_number_is_restored() -> None:
    torch.set_num_threads(2)
    module = nn.Linear(2, 2)
    found = parallel_apply(
        [module, module],
        lambda _, items: (torch.get_num_threads(), list(items)),
        range(5),
    )
    assert found == [(1, [0, 2, 4]), (1, [1, 3])]
    assert torch.get_num_threads() == 2
    with single_thread():
        assert torch.get_num_threads() == 1
    with pytest.raises(KeyError), single_thread():
        raise KeyError
    assert torch.get_num_threads() == 2


def test_workers_share_weights_and_come_only_where_they_pay(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    @per_record_safe
    class Own(nn.Linear):
        pass

    torch.set_num_threads(2)
    module = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3))
    first, second = replicate(module, lambda one: None, 100)
    assert first is module
    assert second is not module
    for one, other in (
        (first.parameters(), second.parameters()),
        (first.buffers(), second.buffers()),
    ):
        assert [id(tensor) for tensor in one] == [id(tensor) for tensor in other]
    # what it keeps to itself is not known
    assert replicate(nn.Sequential(Own(3, 3)), lambda one: None, 100)[1:] == []
    assert replicate(module, lambda one: None, 3)[1:] == []
    monkeypatch.setattr(per_record, "MIN_PARALLEL_SECONDS", 1.0)
    assert replicate(module, lambda one: None, 100)[1:] == []
    torch.set_num_threads(1)
    monkeypatch.setattr(per_record, "MIN_PARALLEL_SECONDS", 0.0)
    assert replicate(module, lambda one: None, 100)[1:] == []


def test_an_output_that_is_no_row_is_refused() -> None:
    with pytest.raises(
        ValueError, match=r"as \(1, H\), not \(3, 8, 8\)|not \(1, 3, 8, 8\)"
    ):
        collected(nn.ReLU(), Records(ROWS))


def test_weights_are_float32_on_the_processor() -> None:
    """Wherever they are in the network, and not only the first."""
    records = Records(RNG.normal(size=(3, 2)).astype(np.float32))
    networks = {
        "1.weight": nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2).half()),
        "0.weight": nn.Sequential(nn.Linear(2, 2, dtype=torch.float64)),
        "running_mean": nn.BatchNorm1d(2, device="meta", affine=False),
        "seen": nn.Identity(),
    }
    networks["seen"].register_buffer("seen", torch.eye(2).to_sparse())
    for name, network in networks.items():
        with pytest.raises(
            UnsupportedModuleError,
            match=rf"in float32 \({name} is not\). Place it there with \.cpu",
        ):
            collected(network, records)
    placed = place(nn.Linear(2, 2), Compute(precision="bfloat16"))
    with pytest.raises(
        UnsupportedModuleError, match=r"on the processor in float32\. Place it"
    ):
        collected(placed, records)
    # the counter is an integer
    validate_placement(nn.Sequential(nn.BatchNorm1d(2), nn.Identity()))


def passed(modules: list[nn.Module], work: Callable[[], object] = lambda: None) -> None:
    """A pass over one record, in which `work` happens."""
    with verified(modules, lambda module: module(torch.ones(1, 2)).detach().numpy()):
        work()


def test_a_pass_that_leaves_no_trace_is_verified_whatever_the_weights_are() -> None:
    torch.set_num_threads(2)
    module = nn.Sequential(
        nn.Linear(2, 2), nn.BatchNorm1d(2), nn.ReLU(inplace=True)
    ).eval()
    with torch.no_grad():
        module[0].weight[0, 0], module[1].running_mean[0] = torch.nan, -0.0
    with torch.inference_mode():
        # which has no version
        module.register_buffer("made", torch.ones(3, dtype=torch.bool))
        module.complex = torch.ones(1, dtype=torch.complex128)
    passed(list(replicate(module, lambda one: None, 100)))
    assert torch.get_num_threads() == 2
    with pytest.raises(KeyError):  # not hidden by another error
        passed([module], lambda: {}["none"])


def test_every_trace_of_a_pass_is_found_in_every_replica() -> None:
    torch.set_num_threads(2)
    module = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)).eval()
    linear, norm = module
    replicas = list(replicate(module, lambda one: None, 100))

    @torch.no_grad()
    def there_and_back() -> None:
        linear.weight[0, 0] += 1024.0
        linear.weight[0, 0] = 0.0

    with torch.no_grad():
        linear.weight[0, 0] = 0.0
    traces: dict[str, Callable[[], object]] = {
        r"weight of Linear \(0\) was changed": there_and_back,  # the version tells
        # the bits tell
        r"bias of Linear \(0\) was changed": lambda: linear.bias.data.add_(1.0),
        r"running_mean of BatchNorm1d \(1\) was changed": lambda: np.negative(
            norm.running_mean.numpy(), out=norm.running_mean.numpy()
        ),
        r"running_var of BatchNorm1d \(1\) was set": lambda: setattr(
            norm, "running_var", torch.ones(2)
        ),
        r"last of Sequential \(the network\) was set": lambda: setattr(
            module, "last", torch.ones(2)
        ),
        r"last of Linear \(0, replica 1\) was set": lambda: setattr(
            replicas[1][0], "last", torch.ones(2)
        ),
        "Sequential drew from torch's random numbers": lambda: torch.rand(1),
        "Sequential returned something else for the same record": lambda: setattr(
            norm, "eps", norm.eps + 1.0
        ),
    }
    for said, trace in traces.items():
        with pytest.raises(
            ImpureModuleError, match=f"while private records passed, {said}"
        ):
            passed(replicas, trace)
        for one in replicas:
            for part in one.modules():
                vars(part).pop("last", None)
        replicas = list(replicate(module, lambda one: None, 100))
    module.last = torch.ones(2)
    with pytest.raises(
        ImpureModuleError, match=r"last of Sequential \(the network\) was deleted"
    ) as caught:
        passed([module], lambda: delattr(module, "last"))
    assert caught.value.code == Exit.PRIVACY
    assert isinstance(caught.value, ValueError)


def test_replicas_answer_alike() -> None:
    modules = [nn.Linear(2, 2), nn.Linear(2, 2)]
    with pytest.raises(
        ImpureModuleError, match="Linear returned something else for the same record"
    ):
        passed(modules)


def test_no_block_is_returned_before_it_is_verified() -> None:
    """The network forgets itself in the second block: the first is returned, and then
    nothing.
    """

    @per_record_safe
    class Own(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.calls = getattr(self, "calls", 0) + 1
            return super().forward(x) + (self.calls > per_record.BLOCK + 100)

    records = Records(RNG.normal(size=(2 * per_record.BLOCK, 2)).astype(np.float32))
    blocks = per_record.outputs(Own(2, 2), records)
    assert next(blocks)[0] == slice(0, per_record.BLOCK)
    with pytest.raises(ImpureModuleError, match="Own returned something else"):
        next(blocks)


ODD = st.sampled_from(
    [0.0, -0.0, 1.0, np.nan, np.inf, -np.inf, 1e308, -1e308, 5e-324, 1 / 3]
)


@settings(max_examples=40, deadline=None)
@given(
    st.integers(1, 2500),
    st.integers(1, 70),
    st.integers(1, 9),
    st.lists(ODD, max_size=6),
    st.integers(0, 2**30),
)
def test_a_row_keeps_its_bits_in_the_public_map_and_in_the_ball(
    count: int, width: int, embedding_dim: int, odd: list[float], seed: int
) -> None:
    rng = np.random.default_rng(seed)
    rows, mean, basis = (
        rng.normal(size=(count, width)),
        rng.normal(size=width),
        rng.normal(size=(width, embedding_dim)),
    )
    rows[rng.integers(count, size=len(odd)), rng.integers(width, size=len(odd))] = odd
    placed = (
        np.empty(rows.nbytes + 8, np.uint8)[8:].view(np.float64).reshape(rows.shape)
    )
    placed[:] = rows
    with np.errstate(all="ignore"):
        for function in (lambda part: project(part, mean, basis), clip_rows, unit_rows):
            whole = function(rows)
            assert (
                function(placed).tobytes()
                == function(np.asfortranarray(rows)).tobytes()
                == whole.tobytes()
            )
            for position in {0, count - 1, int(rng.integers(count))}:
                assert (
                    function(rows[position : position + 1]).tobytes()
                    == whole[[position]].tobytes()
                )
                assert function(rows[position:]).tobytes() == whole[position:].tobytes()


@pytest.mark.parametrize("width", [1, 40, 512, 3000])
def test_the_map_is_the_matrix_product_up_to_single_precision(width: int) -> None:
    """Also where features are of very different size, as long as the basis makes up for
    it.
    """
    sizes = 10.0 ** RNG.integers(-4, 5, size=width)
    rows, mean, basis = (
        RNG.normal(size=shape) for shape in ((300, width), width, (width, 7))
    )
    rows, mean, basis = (
        (rows * sizes).astype(np.float32),
        mean * sizes,
        basis / sizes[:, None],
    )
    expected, terms = (rows - mean) @ basis, np.abs(rows - mean) @ np.abs(basis)
    assert (
        np.abs(project(rows, mean, basis) - expected)
        <= 1e-6 * terms.max(axis=1, keepdims=True)
    ).all()
    assert project(rows[:0], mean, basis).shape == (0, 7)


def test_the_integers_of_the_map_add_up_without_rounding() -> None:
    """The largest sum there can be, and sums that cancel: exact in any order, so
    permuted features change no bit.
    """
    for width in (1, 2, 512, 513, 4096):
        rows, basis = (
            np.full((3, width), 1 - 2.0**-53),
            np.full((width, 2), 1 - 2.0**-53),
        )
        assert (project(rows, np.zeros(width), basis) == width).all()
        rows, basis = RNG.normal(size=(50, width)), RNG.normal(size=(width, 5))
        order = RNG.permutation(width)
        shuffled = project(rows[:, order], np.zeros(width), basis[order])
        assert project(rows, np.zeros(width), basis).tobytes() == shuffled.tobytes()


def test_a_map_that_is_not_finite_embeds_nothing() -> None:
    rows, mean, basis = RNG.normal(size=(9, 6)), np.zeros(6), RNG.normal(size=(6, 3))
    for mean_entry, basis_entry in (
        (np.nan, 0.5),
        (np.inf, 0.5),
        (0.0, np.inf),
        (0.0, np.nan),
    ):
        mean[2], basis[2] = mean_entry, basis_entry
        assert not unit_rows(project(rows, mean, basis)).any()


@pytest.mark.parametrize("kind", ["head", "network"])
def test_a_records_gradient_is_autograds(kind: str) -> None:
    shape, network = (
        (1, 8, 8),
        PrototypeSpec.of("cnn", width=4, features=8, norm="group"),
    )
    model = linear_head(64, 3) if kind == "head" else build(network, shape, 3, 0)
    rows = RNG.normal(size=(7, *((64,) if kind == "head" else shape))).astype(
        np.float32
    )
    records = Records(rows, RNG.integers(0, 3, 7))
    for position, label in enumerate(records.labels):
        model.zero_grad()
        F.cross_entropy(
            model(records.tensor()[[position]]), torch.tensor([label])
        ).backward()
        naive = torch.cat(
            [parameter.grad.flatten() for parameter in model.parameters()]
        )  # type: ignore[union-attr]
        assert np.allclose(
            gradient(model, records, position, int(label)), naive.numpy(), atol=1e-5
        )


def test_a_label_that_is_no_class_has_no_gradient() -> None:
    model, records = linear_head(4, 3), Records(np.ones((3, 4), np.float32))
    assert gradient(model, records, 0, 1).any()
    for label in (3, -1, 2**40):
        assert not gradient(model, records, 0, label).any()


def test_integers_in_the_public_map_are_refused_and_too_many_bits_raise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The proof is about floats; and where it needs a bound on integers, the bound is
    checked.
    """
    rows, mean, basis = (
        np.ones((3, 4), np.float32),
        np.zeros(4, np.float32),
        np.ones((4, 2), np.float32),
    )
    for index in range(3):
        arrays = [rows, mean, basis]
        arrays[index] = arrays[index].astype(np.int64)
        with pytest.raises(ValueError, match=r"not int64\. Nothing is released"):
            project(*arrays)
    monkeypatch.setattr(
        per_record, "_largest", lambda array: np.full((len(array), 1), 2.0**26)
    )
    with pytest.raises(AssertionError, match="too many bits"):
        project(rows, mean, basis)


def test_weights_that_are_no_ordinary_tensors_are_refused() -> None:
    class Strange(torch.Tensor):
        pass

    strange = nn.Linear(2, 2)
    strange._parameters["weight"] = torch.ones(2, 2).as_subclass(Strange)
    with pytest.raises(UnsupportedModuleError, match="weight is not"):
        collected(strange, Records(np.ones((3, 2), np.float32)))
