"""The network, its local training and its test."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from fedaux import per_record_safe


@per_record_safe
class Net(nn.Module):
    """Three linear layers, which treat every record separately."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1 = nn.Linear(64, 256)
        self.fc2 = nn.Linear(256, 64)
        self.fc3 = nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.fc1(x))
        x = F.relu(self.fc2(x))
        return self.fc3(x)


def train(
    model: nn.Module,
    data: dict[str, Tensor],
    epochs: int,
    learning_rate: float,
    batch_size: int,
    proximal_mu: float = 0.0,
) -> float:
    """Train with Adam and FedProx's term, and return the mean loss of the last epoch."""
    start = [parameter.detach().clone() for parameter in model.parameters()]
    optimiser = torch.optim.Adam(model.parameters(), lr=learning_rate)
    rows = TensorDataset(data["image"], data["label"])
    model.train()
    losses: list[float] = []
    for _ in range(epochs):
        losses = []
        for x, y in DataLoader(rows, batch_size=batch_size, shuffle=True):
            loss = F.cross_entropy(model(x), y)
            distance = sum(
                ((now - before) ** 2).sum()
                for now, before in zip(model.parameters(), start, strict=True)
            )
            optimiser.zero_grad()
            (loss + proximal_mu / 2 * distance).backward()
            optimiser.step()
            losses.append(loss.item())
    return sum(losses) / len(losses)


@torch.no_grad()
def accuracy(model: nn.Module, data: dict[str, Tensor]) -> float:
    model.eval()
    return (model(data["image"]).argmax(dim=1) == data["label"]).float().mean().item()
