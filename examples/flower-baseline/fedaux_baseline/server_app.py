"""The server."""

import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp

from fedaux_baseline.dataset import SEED, federated_dataset
from fedaux_baseline.model import Net, accuracy
from fedaux_baseline.strategy import make_strategy

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    config = context.run_config
    name = str(config["algorithm-name"])
    torch.manual_seed(SEED)
    model = Net()
    strategy = make_strategy(name, model)
    settings = ("local-epochs", "learning-rate", "batch-size")
    proximal_mu = config["proximal-mu"] if name == "fedprox" else 0.0
    strategy.start(
        grid=grid,
        initial_arrays=ArrayRecord(model.state_dict()),
        num_rounds=int(config["num-server-rounds"]),
        train_config=ConfigRecord(
            {**{key: config[key] for key in settings}, "proximal-mu": proximal_mu}
        ),
        evaluate_fn=evaluate,
    )
    if name == "fedaux":
        print(strategy.privacy, flush=True)


def evaluate(server_round: int, arrays: ArrayRecord) -> MetricRecord:
    model = Net()
    model.load_state_dict(arrays.to_torch_state_dict())
    found = accuracy(model, federated_dataset(1).load_split("test"))
    print(f"accuracy {100 * found:.1f} % after round {server_round}", flush=True)
    return MetricRecord({"accuracy": found})
