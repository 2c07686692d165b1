"""The ClientApp of a site: Flower's messages in and out, `client.handlers` between them."""

from __future__ import annotations

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from fedaux.client import handlers, secure_sums
from fedaux.core.messages import HelloOrder, PrepareOrder, SumOrder, SumsOrder, TrainOrder
from fedaux.flower.error_redaction import redact_errors
from fedaux.flower.node_settings import open_site
from fedaux.flower.serialization import deserialize, make_reply

app = ClientApp()


@app.query("hello")
@redact_errors
def hello(message: Message, context: Context) -> Message:
    return make_reply(message, handlers.hello(deserialize(HelloOrder, message.content), open_site(context)))


@app.query("prepare")
@redact_errors
def prepare(message: Message, context: Context) -> Message:
    return make_reply(message, handlers.prepare(deserialize(PrepareOrder, message.content), open_site(context)))


@app.query("sums")
@redact_errors
def sums(message: Message, context: Context) -> Message:
    return make_reply(message, handlers.sums(deserialize(SumsOrder, message.content), open_site(context)))


@app.query("sum")
@redact_errors
def secure_sum(message: Message, context: Context) -> Message:
    return make_reply(message, secure_sums.take_part(deserialize(SumOrder, message.content), open_site(context)))


@app.train()
@redact_errors
def train(message: Message, context: Context) -> Message:
    return make_reply(message, handlers.train(deserialize(TrainOrder, message.content), open_site(context)))
