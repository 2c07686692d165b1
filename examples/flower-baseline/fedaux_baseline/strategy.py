"""The strategies that this baseline compares."""

from flwr.serverapp.strategy import FedAvg, Strategy

from fedaux.flower import FedAUX, input_of
from fedaux_baseline.dataset import federated_dataset
from fedaux_baseline.model import Net
from fedaux_baseline.utils import STORE


def make_strategy(name: str, model: Net) -> Strategy:
    """FedProx differs from FedAvg only in its clients' loss."""
    if name in ("fedavg", "fedprox"):
        return FedAvg(fraction_evaluate=0.0)
    if name != "fedaux":
        raise ValueError(f"unknown algorithm-name {name!r}: fedaux, fedavg or fedprox")
    return FedAUX(
        model=model,
        features=input_of("fc3"),
        public=federated_dataset(1).load_split("public")["image"],
        classes=10,
        embedding_dim=12,
        keep=f"{STORE}.safetensors",
        fraction_evaluate=0.0,
    )
