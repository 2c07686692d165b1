"""The two losses that are not cross-entropy, as pure functions of tensors."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor


def distillation_loss(student: Tensor, soft_labels: Tensor) -> Tensor:
    """Eq. 1: batch mean of KL(ỹ ‖ softmax(f(x))). student: logits (B, C); soft_labels: probabilities (B, C)."""
    return F.kl_div(F.log_softmax(student, dim=1), soft_labels, reduction="batchmean")


def proximal_term(parameters: Sequence[Tensor], anchor: Sequence[Tensor], mu: float) -> Tensor:
    """FedPROX: μ/2 ‖θ − θ_t‖² over all parameters, θ_t being what the server sent."""
    squares = [(ours - theirs).square().sum() for ours, theirs in zip(parameters, anchor, strict=True)]
    return 0.5 * mu * torch.stack(squares).sum()
