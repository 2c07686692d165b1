"""The clients."""

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from torch import Tensor

from fedaux.flower import add_release_handler, input_of
from fedaux_baseline.dataset import federated_dataset
from fedaux_baseline.model import Net
from fedaux_baseline.model import train as fit
from fedaux_baseline.utils import EPSILON, STORE

app = ClientApp()


def partition(context: Context) -> dict[str, Tensor]:
    node = context.node_config
    dataset = federated_dataset(int(node["num-partitions"]))
    return dataset.load_partition(int(node["partition-id"]))


@app.train()
def train(message: Message, context: Context) -> Message:
    config, data = message.content["config"], partition(context)
    model = Net()
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    loss = fit(
        model,
        data,
        epochs=int(config["local-epochs"]),
        learning_rate=float(config["learning-rate"]),
        batch_size=int(config["batch-size"]),
        proximal_mu=float(config["proximal-mu"]),
    )
    metrics = MetricRecord({"num-examples": len(data["label"]), "loss": loss})
    return Message(
        RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": metrics}),
        reply_to=message,
    )


def own_records(context: Context) -> tuple[Tensor, Tensor]:
    data = partition(context)
    return data["image"], data["label"]


add_release_handler(
    app,
    model=Net,
    features=input_of("fc3"),
    data=own_records,
    epsilon=EPSILON,
    vault=STORE,
)
