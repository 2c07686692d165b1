"""The network, the data and the training of this app, as they were for FedAvg."""

from functools import cache

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from fedaux import per_record_safe


@per_record_safe
class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc1 = nn.Linear(64, 256)
        self.fc2 = nn.Linear(256, 64)
        self.fc3 = nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.fc1(x))
        x = F.relu(self.fc2(x))
        return self.fc3(x)


@cache
def digits() -> tuple[Tensor, Tensor]:
    """All images in a random order that never changes, (1797, 64), and their labels."""
    x, y = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(x))
    return torch.tensor(x[order] / 8 - 1).float(), torch.tensor(y[order])


def load_data(partition: int, partitions: int) -> tuple[Tensor, Tensor]:
    """A client's images: sorted by digit and cut into two parts for each client, so
    with ten clients two digits.
    """
    x, y = (part[:1200] for part in digits())
    parts = np.array_split(np.argsort(y.numpy(), kind="stable"), 2 * partitions)
    own = np.concatenate([parts[partition], parts[partition + partitions]])
    return x[own], y[own]


def public_images() -> Tensor:
    """Images that anybody may see, and whose labels nobody knows."""
    return digits()[0][1200:1500]


def load_test() -> tuple[Tensor, Tensor]:
    x, y = (part[1500:] for part in digits())
    return x, y


def train(model: nn.Module, x: Tensor, y: Tensor, epochs: int, lr: float) -> float:
    """The mean loss of the last epoch."""
    optimiser = torch.optim.Adam(model.parameters(), lr=lr)
    model.train()
    losses = []
    for _ in range(epochs):
        losses = []
        for rows, labels in DataLoader(
            TensorDataset(x, y), batch_size=32, shuffle=True
        ):
            loss = F.cross_entropy(model(rows), labels)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            losses.append(loss.item())
    return sum(losses) / len(losses)


@torch.no_grad()
def accuracy(model: nn.Module, x: Tensor, y: Tensor) -> float:
    model.eval()
    return (model(x).argmax(dim=1) == y).float().mean().item()
