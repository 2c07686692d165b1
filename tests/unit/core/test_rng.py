"""Streams depend on the seed and on every part of their name, and on nothing else."""

import numpy as np
import pytest
import torch

from fedaux.core.rng import derive_seed, numpy_stream, seeded_torch, torch_stream

NAMES = [
    (0,),
    (1,),
    (0, "split"),
    (0, "init"),
    (0, "init", "mlp"),
    (0, "batches", "a", 1),
    (0, "batches", "a", 2),
    (0, "batches", "a1"),
]


def test_the_recipe_is_fixed() -> None:
    """A changed recipe would change every published number and every resumed run."""
    assert derive_seed(0, "split") == 6812300375708456965


def test_names_give_different_seeds() -> None:
    assert len({derive_seed(*name) for name in NAMES}) == len(NAMES)
    assert derive_seed(0, "a", "b") != derive_seed(0, "ab")
    assert derive_seed(1, "1", "2") != derive_seed(11, "2")


def test_seeds_fit_torch_numpy_and_a_message() -> None:
    assert all(0 <= derive_seed(seed, "x") < 2**63 for seed in range(-50, 200))


@pytest.mark.parametrize("name", NAMES)
def test_the_same_name_draws_the_same(name: tuple[int, ...]) -> None:
    assert np.array_equal(
        numpy_stream(*name).normal(size=5), numpy_stream(*name).normal(size=5)
    )
    assert torch.equal(
        *(torch.rand(5, generator=torch_stream(*name)) for _ in range(2))
    )


def test_streams_leave_global_state_alone() -> None:
    torch.manual_seed(1)
    before = torch.get_rng_state()
    torch.rand(3, generator=torch_stream(0, "x"))
    assert torch.equal(torch.get_rng_state(), before)


def test_the_global_generator_is_seeded_inside_and_untouched_outside() -> None:
    torch.manual_seed(1)
    before = torch.get_rng_state()
    drawn = []
    for seed in (7, 7, 8):
        with seeded_torch(seed):
            drawn.append(torch.rand(5))
    assert torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[2])
    assert torch.equal(torch.get_rng_state(), before)
    with pytest.raises(ZeroDivisionError), seeded_torch(7):
        torch.rand(5 // 0)
    assert torch.equal(torch.get_rng_state(), before)


def test_what_was_drawn_before_does_not_matter_inside() -> None:
    drawn = []
    for count in (0, 3):
        torch.rand(count)
        with seeded_torch(derive_seed(0, "x")):
            drawn.append(torch.nn.functional.dropout(torch.ones(50)))
    assert torch.equal(*drawn)
