"""Distillation loss and proximal term, against their formulas."""

import numpy as np
import pytest
import torch

from fedaux.algorithms.losses import distillation_loss, proximal_term


def test_distillation_is_the_mean_kl_divergence() -> None:
    rng = np.random.default_rng(0)
    student, teacher = rng.normal(size=(4, 3)), rng.dirichlet(np.ones(3), size=4)
    naive = 0.0
    for logits, target in zip(student, teacher, strict=True):
        predicted = np.exp(logits) / np.exp(logits).sum()
        naive += sum(t * np.log(t / p) for t, p in zip(target, predicted, strict=True)) / 4
    assert distillation_loss(torch.tensor(student), torch.tensor(teacher)).item() == pytest.approx(naive, rel=1e-12)


def test_a_perfect_student_loses_nothing() -> None:
    logits = torch.randn(5, 7, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    assert distillation_loss(logits, logits.softmax(dim=1)).item() == pytest.approx(0.0, abs=1e-12)


def test_proximal_term_and_its_gradient() -> None:
    ours = [torch.tensor([1.0, 2.0], requires_grad=True), torch.tensor([[3.0]], requires_grad=True)]
    theirs = [torch.tensor([0.0, 4.0]), torch.tensor([[1.0]])]
    loss = proximal_term(ours, theirs, mu=0.5)
    assert loss.item() == pytest.approx(0.5 / 2 * (1 + 4 + 4))
    loss.backward()
    assert ours[0].grad is not None
    assert ours[0].grad.tolist() == [0.5 * 1.0, 0.5 * -2.0]
