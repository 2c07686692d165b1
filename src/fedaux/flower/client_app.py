"""The ClientApp of a site: Flower's messages in and out, `client.handlers.answer`
between them.
"""

from __future__ import annotations

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from fedaux.client import handlers
from fedaux.core.memory import reuse_memory
from fedaux.flower.error_redaction import redact_errors
from fedaux.flower.node_settings import is_simulation, open_site
from fedaux.flower.serialization import deserialize, make_reply
from fedaux.messages import (
    EveryOrder,
    HelloOrder,
    LookOrder,
    PlanOrder,
    PrepareOrder,
    SumOrder,
    SumsOrder,
    TrainOrder,
)

app = ClientApp()


@app.query("hello")
@redact_errors
def hello(message: Message, context: Context) -> Message:
    return answer(HelloOrder, message, context)


@app.query("plan")
@redact_errors
def plan(message: Message, context: Context) -> Message:
    return answer(PlanOrder, message, context)


@app.query("prepare")
@redact_errors
def prepare(message: Message, context: Context) -> Message:
    return answer(PrepareOrder, message, context)


@app.query("sums")
@redact_errors
def sums(message: Message, context: Context) -> Message:
    return answer(SumsOrder, message, context)


@app.query("look")
@redact_errors
def look(message: Message, context: Context) -> Message:
    return answer(LookOrder, message, context)


@app.query("sum")
@redact_errors
def secure_sum(message: Message, context: Context) -> Message:
    return answer(SumOrder, message, context)


@app.train()
@redact_errors
def train(message: Message, context: Context) -> Message:
    return answer(TrainOrder, message, context)


def answer(kind: type[EveryOrder], message: Message, context: Context) -> Message:
    """Answer a message with an order of this kind, which is checked field by field
    before the gate sees it.
    """
    if is_simulation():  # in a worker of Ray's, a process for clients alone
        reuse_memory()
    order: EveryOrder = deserialize(kind, message.content)
    return make_reply(message, handlers.answer(order, open_site(context)))
