"""A handler's reply or one of four words crosses, never the text of an error."""

import logging

import pytest
from flwr.app import Context, Message, RecordDict

from fedaux.config.parsing import ConfigError
from fedaux.core.messages import OrderError, Refusal
from fedaux.flower.error_redaction import redact_errors, refusal_of
from fedaux.flower.in_process import InProcessGrid
from fedaux.flower.node_settings import SettingsError
from fedaux.flower.serialization import MessageError
from fedaux.privacy.accounting import BudgetError

SECRET = "Jane Doe 1970"
KINDS = {
    BudgetError: Refusal.BUDGET,
    OrderError: Refusal.ORDER,
    MessageError: Refusal.ORDER,
    ConfigError: Refusal.SETTINGS,
    SettingsError: Refusal.SETTINGS,
    ValueError: Refusal.FAILED,
    KeyError: Refusal.FAILED,
    MemoryError: Refusal.FAILED,
}


def ask(handler: object) -> Message:
    grid = InProcessGrid(redact_errors(handler), 1, {})  # type: ignore[arg-type]
    (node,) = grid.get_node_ids()
    (reply,) = grid.send_and_receive([Message(RecordDict(), node, "train")])
    return reply


@pytest.mark.parametrize(("kind", "refusal"), KINDS.items(), ids=lambda value: getattr(value, "__name__", str(value)))
def test_an_error_crosses_as_one_word_and_stays_in_the_log(
    kind: type[Exception], refusal: Refusal, caplog: pytest.LogCaptureFixture
) -> None:
    def train(message: Message, context: Context) -> Message:
        raise kind(SECRET)

    with caplog.at_level(logging.ERROR):
        reply = ask(train)
    assert refusal_of(kind(SECRET)) is refusal
    assert reply.has_error()
    assert reply.error.reason == refusal.value
    assert SECRET not in repr(reply.error)
    assert SECRET in caplog.text
    assert ("Traceback" in caplog.text) == (refusal is Refusal.FAILED)
    assert "train" in caplog.text  # which handler it was


def test_a_reply_passes_as_it_is() -> None:
    def train(message: Message, context: Context) -> Message:
        return Message(message.content, reply_to=message)

    assert not ask(train).has_error()
    assert redact_errors(train).__name__ == "train"


def test_an_interrupt_is_no_error_of_the_handler() -> None:
    def train(message: Message, context: Context) -> Message:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ask(train)
