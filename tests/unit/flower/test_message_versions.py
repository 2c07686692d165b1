"""Messages of the version before are read, and written as it wrote them: to the byte, from those that it left."""

import json
from dataclasses import replace

import pytest
from flwr.common.serde import recorddict_to_proto

from fedaux.config.parsing import ConfigError
from fedaux.core.messages import Account, PrepareOrder, Release, Sums, TrainOrder, Update
from fedaux.flower.message_versions import PREVIOUS, VERSION, common_version
from fedaux.flower.serialization import FIELDS, MessageError, deserialize, serialize
from helpers.previous_version import KINDS, scalars, stored, stored_message
from helpers.samples import prepare_order, release, sums, train_order, update

TYPES = {kind.__name__: kind for kind in FIELDS}
SIGNED = Account(0.1, 1e-5, "replace-one", "record", 1, "f00d")


def test_there_is_one_of_every_kind() -> None:
    assert sorted(TYPES) == KINDS


@pytest.mark.parametrize("kind", KINDS)
def test_what_the_version_before_wrote_is_read_and_written_again(kind: str) -> None:
    item = deserialize(TYPES[kind], stored_message(kind))
    again = serialize(item, PREVIOUS)
    extra = {"speaks": PREVIOUS} if kind == "Hello" else {}
    assert scalars(again) == scalars(stored_message(kind)) | extra
    if not extra:
        assert recorddict_to_proto(again).SerializeToString(deterministic=True) == stored(kind)


@pytest.mark.parametrize("order", [prepare_order(heard=3, heard_signature="s"), train_order(heard_signature="s")])
def test_an_order_of_the_version_before_is_not_signed(order: PrepareOrder | TrainOrder) -> None:
    sent = serialize(order, PREVIOUS)
    assert "heard_signature" not in scalars(sent)
    back = deserialize(type(order), sent)
    assert (back.heard, back.heard_signature) == (order.heard, "")
    assert deserialize(type(order), serialize(order)).heard_signature == "s"


def test_a_way_of_training_that_the_version_before_does_not_know_is_not_dropped_in_silence() -> None:
    order = train_order(freeze_batch_norm=True)
    assert deserialize(TrainOrder, serialize(order)).freeze_batch_norm
    with pytest.raises(ConfigError, match="upgrade the site"):
        serialize(order, PREVIOUS)


@pytest.mark.parametrize("reply", [release(), sums(), update()], ids=lambda reply: type(reply).__name__)
def test_an_account_of_the_version_before_is_not_signed(reply: Release | Sums | Update) -> None:
    """It would be refused: its reader takes the entries that it knows, and no others."""
    item = replace(reply, account=SIGNED.to_json())
    sent = scalars(serialize(item, PREVIOUS))
    assert json.loads(str(sent["account"])).keys() == {"epsilon", "delta", "adjacency", "unit", "entries"}
    back = deserialize(type(item), serialize(item, PREVIOUS))
    assert Account.from_json(back.account) == Account(0.1, 1e-5, "replace-one", "record", 1)
    assert Account.from_json(deserialize(type(item), serialize(item)).account) == SIGNED


def test_a_text_that_is_no_account_stays_what_it_is() -> None:
    for text in ("", "[]", "{"):
        assert scalars(serialize(release(account=text), PREVIOUS))["account"] == text


def test_both_sides_speak_the_newest_version_that_both_know() -> None:
    assert [common_version(speaks) for speaks in (PREVIOUS, VERSION, VERSION + 1)] == [PREVIOUS, VERSION, VERSION]


def test_two_versions_back_is_too_far() -> None:
    content = stored_message("Release")
    content["fedaux"]["version"] = PREVIOUS - 1  # type: ignore[index]
    with pytest.raises(MessageError, match=f"has version {PREVIOUS - 1}, this side speaks {PREVIOUS} and {VERSION}"):
        deserialize(TYPES["Release"], content)
