"""What the version before this one has left: a run of one round, one message of each kind, and how strict it was."""

import json
from pathlib import Path

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.common.serde import recorddict_from_proto
from flwr.proto.recorddict_pb2 import RecordDict as ProtoRecordDict

from fedaux.flower.in_process import Handler
from fedaux.flower.message_versions import PREVIOUS

FOLDER = Path(__file__).parents[1] / "fixtures" / f"version-{PREVIOUS}"
KINDS = sorted(path.stem for path in (FOLDER / "messages").iterdir())


def stored(kind: str) -> bytes:
    return (FOLDER / "messages" / f"{kind}.bin").read_bytes()


def stored_message(kind: str) -> RecordDict:
    return recorddict_from_proto(ProtoRecordDict.FromString(stored(kind)))


def scalars(content: RecordDict) -> dict[str, object]:
    record = content["fedaux"]
    assert isinstance(record, ConfigRecord)
    return dict(record)


def as_previous(app: Handler) -> Handler:
    """The same site, as the version before would be: it reads and writes messages of that version, and no others."""

    def handle(message: Message, context: Context) -> Message:
        check(message.content)
        reply = app(message, context)
        if reply.has_content():
            facts = scalars(reply.content)
            facts.pop("speaks", None)  # of which it knew nothing
            reply.content["fedaux"] = ConfigRecord(facts)  # type: ignore[arg-type]
            check(reply.content)
        return reply

    return handle


def check(content: RecordDict) -> None:
    """As the version before read a message: by its number, and an account by the names of its entries."""
    facts = scalars(content)
    example = scalars(stored_message(str(facts["kind"])))
    if facts["version"] != PREVIOUS:
        raise ValueError(f"the message has version {facts['version']}, this side has {PREVIOUS}")
    assert facts.keys() == example.keys()
    if "account" in facts:
        assert json.loads(str(facts["account"])).keys() == json.loads(str(example["account"])).keys()
