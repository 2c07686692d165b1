"""The server."""

import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp

from digits_app.task import Net, accuracy, load_test, public_images
from fedaux.flower import FedAUX, input_of

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    config = context.run_config
    torch.manual_seed(0)
    model = Net()
    strategy = FedAUX(
        model=model,
        features=input_of("fc3"),
        public=public_images(),
        classes=10,
        embedding_dim=12,
        keep="~/.fedaux/digits-app.safetensors",
        fraction_evaluate=0.0,
    )
    strategy.start(
        grid=grid,
        initial_arrays=ArrayRecord(model.state_dict()),
        num_rounds=config["rounds"],
        train_config=ConfigRecord({"epochs": config["epochs"], "lr": config["lr"]}),
        evaluate_fn=evaluate,
    )
    print(strategy.privacy, flush=True)


def evaluate(server_round: int, arrays: ArrayRecord) -> MetricRecord:
    model = Net()
    model.load_state_dict(arrays.to_torch_state_dict())
    found = accuracy(model, *load_test())
    print(f"accuracy {100 * found:.1f} % after round {server_round}", flush=True)
    return MetricRecord({"accuracy": found})
