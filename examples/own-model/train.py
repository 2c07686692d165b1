"""The same through Python: python train.py"""

from fedaux import Config, run

settings = {
    "rounds": 5,
    "prototypes": [{"name": "mine:network", "width": 32}],
    "data": {"source": "mine:tumours", "clients": 4, "alpha": 0.1},
    "aux": {"fraction": 0.4},
    "pretrain": {"epochs": 0},
    "privacy": {"epsilon": 1.0, "delta": 1e-5, "embedding_dim": 4},
}

for method in ("fedavg", "feddf", "fedaux"):
    result = run(
        Config.from_dict({**settings, "method": method}), f"runs/train-{method}"
    )
    print(
        f"{method:7} {' '.join(f'{100 * accuracy:.1f}' for accuracy in result.curve)} %"
    )
print(result.privacy)
