"""A handler's reply or one of five words crosses, never the text of an error."""

import json
import logging
from pathlib import Path

import pytest
from flwr.app import ConfigRecord, Context, Message, RecordDict

from fedaux.config.parsing import ConfigError
from fedaux.core.errors import SettingsError
from fedaux.core.failures import OrderError, Refusal
from fedaux.flower.error_redaction import redact_errors, refusal_of
from fedaux.flower.in_process import InProcessGrid
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


@pytest.mark.parametrize(
    ("kind", "refusal"),
    KINDS.items(),
    ids=lambda value: getattr(value, "__name__", str(value)),
)
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


@pytest.fixture
def events(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FEDAUX_LOG", str(tmp_path / "events.jsonl"))
    return tmp_path / "events.jsonl"


@pytest.mark.parametrize(
    ("kind", "refusal"),
    KINDS.items(),
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_a_log_that_is_collected_quotes_no_record(
    kind: type[Exception], refusal: Refusal, events: Path
) -> None:
    """What depends on orders and settings alone is told; what may depend on a record is
    told by type and place.
    """

    def train(message: Message, context: Context) -> Message:
        try:
            raise RuntimeError(SECRET)
        except RuntimeError as error:
            raise kind(SECRET) from error

    ask(train)
    row = json.loads(events.read_text())
    assert (row["event"], row["level"], row["task"], row["kind"]) == (
        "order-refused",
        "warning",
        "train",
        refusal,
    )
    if refusal is Refusal.FAILED:
        assert SECRET not in events.read_text()
        assert row["message"].startswith(
            f"train: {kind.__name__} in test_error_redaction.py, line "
        )
    else:
        assert row["message"] == f"train: {SECRET}"


def test_an_order_that_is_answered_is_a_line_with_its_round_and_client(
    events: Path,
) -> None:
    def train(message: Message, context: Context) -> Message:
        return Message(RecordDict(), reply_to=message)

    grid = InProcessGrid(redact_errors(train), 1, {"clients": "berlin,paris"})
    (node,) = grid.get_node_ids()
    facts = ConfigRecord({"client": "berlin\x1b", "round": 3, "run": "f00d", "seed": 7})
    grid.send_and_receive([Message(RecordDict({"fedaux": facts}), node, "train")])
    row = json.loads(events.read_text())
    assert (row["event"], row["run"], row["round"], row["site"]) == (
        "order-answered",
        "f00d",
        3,
        "berlin ",
    )
    assert set(row) == {
        *[
            "time",
            "level",
            "run",
            "round",
            "site",
            "event",
            "message",
            "task",
            "seconds",
        ]
    }
