"""Optimisers by name, step by step against their formulas; gradients as one flat
vector.
"""

import copy
from typing import Any

import pytest
import torch
from torch import nn

from fedaux.models.optimizer import Optimizer, StackedDescent, add_to_gradients, flat


def test_an_unknown_optimiser_names_the_others() -> None:
    with pytest.raises(ValueError, match=r"'adamw'.*Choose from adam, sgd"):
        Optimizer("adamw").make([nn.Parameter(torch.zeros(1))])


def test_a_flat_vector_is_a_copy_in_the_order_of_the_parameters() -> None:
    model = nn.Linear(2, 1)
    vector = flat(list(model.parameters()))
    assert torch.equal(
        vector, torch.cat([model.weight.detach().reshape(-1), model.bias.detach()])
    )
    assert not vector.requires_grad
    vector.zero_()
    assert model.weight.abs().sum() > 0


def test_a_vector_is_added_to_gradients_but_not_to_frozen_parameters() -> None:
    model = nn.Sequential(nn.Linear(2, 1), nn.Linear(1, 1))
    frozen, *_ = model[1].parameters()
    frozen.requires_grad_(False)
    parameters = list(model.parameters())
    model[0].weight.grad = torch.ones(1, 2)
    add_to_gradients(parameters, torch.arange(5.0))
    assert model[0].weight.grad.tolist() == [[1.0, 2.0]]  # what was there, and (0, 1)
    assert model[0].bias.grad is not None
    assert model[0].bias.grad.tolist() == [2.0]
    assert frozen.grad is None
    assert model[1].bias.grad is not None
    assert model[1].bias.grad.tolist() == [4.0]


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (
            Optimizer("adam", 0.01, weight_decay=0.1),
            lambda p: torch.optim.Adam(p, 0.01, weight_decay=0.1),
        ),
        (
            Optimizer("sgd", 0.01, 0.9, 0.1),
            lambda p: torch.optim.SGD(p, 0.01, 0.9, weight_decay=0.1),
        ),
        (Optimizer("sgd", 0.01), lambda p: torch.optim.SGD(p, 0.01)),
    ],
    ids=["adam", "momentum", "sgd"],
)
def test_steps_are_those_of_torch_to_the_bit(ours: Optimizer, theirs: Any) -> None:
    """Also where a parameter has no gradient at first, or never one."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 4), nn.Linear(4, 4), nn.Linear(4, 3))
    twin, x = copy.deepcopy(model), torch.randn(8, 5)
    for network in (model, twin):
        network[1].bias.requires_grad_(False)
    pairs = [
        (model, ours.make(list(model.parameters()))),
        (twin, theirs(list(twin.parameters()))),
    ]
    for step in range(6):
        for network, optimizer in pairs:
            network[2].weight.requires_grad_(step >= 2)
            optimizer.zero_grad()
            network(x).square().sum().backward()
            optimizer.step()
    for one, other in zip(model.parameters(), twin.parameters(), strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("name", ["adam", "sgd"])
def test_without_any_gradient_nothing_moves(name: str) -> None:
    parameter = nn.Parameter(torch.ones(2))
    Optimizer(name).make([parameter]).step()
    assert parameter.tolist() == [1.0, 1.0]


@pytest.mark.parametrize(
    "optimizer",
    [
        Optimizer(lr=0.1),
        Optimizer(lr=0.1, weight_decay=0.1),
        Optimizer("sgd", 0.1, 0.9, 0.1),
    ],
)
def test_stacked_steps_are_those_of_each_model(optimizer: Optimizer) -> None:
    """The second model stops after two of three steps."""
    start, rng = (
        torch.tensor([[1.0, -2.0, 0.5], [3.0, 0.0, 7.0]]),
        torch.Generator().manual_seed(0),
    )
    gradients = torch.randn(3, 2, 3, generator=rng)
    stack = start.clone()
    descent = StackedDescent(optimizer, stack)
    for step, active in enumerate((2, 2, 1)):
        descent.step(gradients[step, :active].clone())
    for row, count in enumerate((3, 2)):
        parameter = nn.Parameter(start[row].clone())
        alone = optimizer.make([parameter])
        for step in range(count):
            parameter.grad = gradients[step, row].clone()
            alone.step()
        assert torch.equal(parameter.detach(), stack[row])
