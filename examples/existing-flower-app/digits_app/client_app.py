"""The clients."""

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from digits_app.task import Net, load_data
from digits_app.task import train as fit
from fedaux.flower import add_release_handler, input_of

app = ClientApp()


def own_data(context: Context):
    return load_data(
        int(context.node_config["partition-id"]),
        int(context.node_config["num-partitions"]),
    )


@app.train()
def train(message: Message, context: Context) -> Message:
    model, (x, y), config = Net(), own_data(context), message.content["config"]
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    loss = fit(model, x, y, epochs=config["epochs"], lr=config["lr"])
    metrics = MetricRecord({"num-examples": len(x), "loss": loss})
    return Message(
        RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": metrics}),
        reply_to=message,
    )


add_release_handler(
    app,
    model=Net,
    features=input_of("fc3"),
    data=own_data,
    epsilon=1.0,
    vault="~/.fedaux/digits-app",
)
