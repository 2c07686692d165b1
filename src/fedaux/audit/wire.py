"""Attacks on messages: orders that no client should answer, undisclosed fields, class names, texts of errors."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, RecordDict
from flwr.clientapp import ClientApp

from fedaux.audit.attack_result import AttackResult, AuditConfig
from fedaux.audit.dropin import MAP, Net
from fedaux.audit.records import IDENTITY, head_order, score_order, scores, training
from fedaux.audit.site import Site, refused, write_rows
from fedaux.audit.texts import write_csv
from fedaux.config.methods import SUMS
from fedaux.core.messages import Hello, HelloOrder, PrepareOrder, Release, Sums, SumsOrder, TrainOrder, Update
from fedaux.data.records import Corpus
from fedaux.flower import client_app as client
from fedaux.flower.dropin_client import answer
from fedaux.flower.federation import read_reply
from fedaux.flower.in_process import InProcessGrid
from fedaux.flower.serialization import serialize
from fedaux.flower.user_model import ACTION
from fedaux.models import flatten_state
from fedaux.privacy.ledger import DISCLOSED_FIELDS, PUBLIC

ORDERS = {"query.hello", "query.prepare", "query.sums", "train.default"}  # the message types that a client answers
OTHERS = ("evaluate", "evaluate.default", "evaluate.score", "query", "query.evaluate", "query.fedaux", "train.evaluate")
SECRET = "Jane Doe 1970 HIV positive"
REPLY_TYPES: dict[type, type] = {HelloOrder: Hello, PrepareOrder: Release, TrainOrder: Update}


def broken_source(path: Path) -> Corpus:
    """A site's own source that fails on a record."""
    return Corpus(float(SECRET))  # type: ignore[arg-type]


def oracle(folder: Path, audit: AuditConfig) -> AttackResult:
    """An answer to any other message type, or sums of features that the site never agreed to, no account covers."""
    site = _trainer(folder / "one", (1, 0), audit)
    contents = [serialize(order) for order in _orders(site)] + [RecordDict()]
    answered = [kind for kind in OTHERS for content in contents if not site.message(content, kind).has_error()]
    sums = [_sums_order(score_order(site), sends) for sends in SUMS]
    answered += [f"query.sums for {order.sends}" for order in sums if not site.send(order).has_error()]
    known = set(client.app._registered_funcs)
    extra = sorted({*answered, *(known - ORDERS)})
    count = len(OTHERS) * len(contents) + len(sums)
    detail = f"answers {', '.join(extra)}" if extra else f"{count} other orders are refused"
    return AttackResult.exact(bool(extra), detail)


def fields(folder: Path, audit: AuditConfig) -> AttackResult:
    """Every field of a reply is in the disclosure table, and public ones do not depend on the record."""
    sites = [_trainer(folder / which, row, audit) for which, row in (("one", (1, 0)), ("other", (0, 1)))]
    wrong = set()
    for order in _orders(sites[0]):
        first, second = (_without_signature(dict(_fields(site.send(order)))) for site in sites)
        classes = DISCLOSED_FIELDS[REPLY_TYPES[type(order)]]
        public = {name for name, disclosure in classes.items() if disclosure.private is PUBLIC}
        wrong |= {f"{name} is not classified" for name in {*first, *second} - set(classes)}
        wrong |= {f"{name} is said to be public" for name in public if first.get(name) != second.get(name)}
    detail = "; ".join(sorted(wrong)) or "all are classified, and the public ones agree"
    return AttackResult.exact(bool(wrong), detail)


def _without_signature(fields: dict[str, Any]) -> dict[str, Any]:
    """A site signs the count of its account with a key that it has drawn: random, and never of its records."""
    if "account" not in fields:
        return fields
    account = json.loads(fields["account"])
    return {**fields, "account": {name: value for name, value in account.items() if name != "signature"}}


def hello(folder: Path, audit: AuditConfig) -> AttackResult:
    """A record with an undeclared label must not show in a node's reply to hello."""
    rows = [("cold", "good"), ("flu", "good")]
    tables = [write_csv(folder / label / "table.csv", [*rows, (label, "good")]) for label in ("flu", "aids")]
    sites = [Site.at(path, IDENTITY, source="csv", **scores(audit)) for path in tables]
    arrays = [write_rows(folder / f"rows-{y}", np.ones((3, 2)), [0, 1, y], ("a", "b")) for y in (1, 7)]
    sites += [Site.at(path, IDENTITY, **scores(audit)) for path in arrays]
    replies = [dict(_fields(site.send(HelloOrder()))) for site in sites]
    differ = replies[0] != replies[1] or replies[2] != replies[3]
    return AttackResult.exact(differ, f"says {replies[1]['classes']}")


def declared_size(folder: Path, audit: AuditConfig) -> AttackResult:
    """Under add-remove neighbours share nothing but a declared size: no reply may state another, private or not."""
    stated: dict[int, list[int]] = {}
    for count in (7, 8):
        data = write_rows(folder / f"{count}", np.ones((count, 2)), [0] * count, ("a", "b"))
        privacy = {"epsilon": audit.epsilon, "adjacency": "add-remove", "declared_records": 64}
        site = Site.at(data, IDENTITY, head_only=True, head_init="ridge", privacy=privacy)
        order = score_order(site)
        release = site.release(order)
        update = read_reply(Update, site.send(head_order(site)))
        sums = read_reply(Sums, site.send(_sums_order(order, "class-sums")))
        stated[count] = [release.records, update.records, sums.records]
    told = f"scores, models and sums state {stated[7]} records of 7, {stated[8]} of 8"
    return AttackResult.exact(stated[7] != stated[8], told)


def errors(folder: Path, audit: AuditConfig) -> AttackResult:
    """Sources, tables and apps that fail on a record, whose text is in the exception."""
    own = write_rows(folder / "own", np.ones((2, 2)), [0, 1], ("a", "b"))
    table = write_csv(folder / "table" / "table.csv", [])
    table.write_text(f"{SECRET},flu\n{SECRET},cold", encoding="utf-8")  # no header: the first record is taken for it
    bare = table.with_name("elsewhere") / "table.csv"  # no classes are declared there
    bare.parent.mkdir()
    bare.write_text(table.read_text(encoding="utf-8"), encoding="utf-8")
    sites = [
        Site.at(own, IDENTITY, source=f"{__name__}:broken_source", **training(audit)),
        Site.at(table, IDENTITY, source="csv", **training(audit)),
        Site.at(bare, IDENTITY, source="csv", **training(audit)),
    ]
    replies = [site.send(order) for site in sites for order in _orders(sites[0])]
    replies.append(_failing_drop_in(folder / "app"))
    leaks = [r for r in replies if SECRET in repr(dict(_fields(r))) or (r.has_error() and not refused(r))]
    detail = "; ".join(sorted({str(r.error.reason) if r.has_error() else "in a reply" for r in leaks}))[:200]
    detail = detail or f"{sum(map(refused, replies))} failures, each sent as one of four words"
    return AttackResult.exact(bool(leaks), detail)


def _failing_drop_in(folder: Path) -> Message:
    """The reply of a drop-in client whose data cannot be read."""
    app = ClientApp()
    answer(app, model=Net, data=lambda context: (float(SECRET),), vault=folder, epsilon=1.0)
    order = PrepareOrder("1", "model", "class-embedding", 2, 4, "", 0, flatten_state(Net()), MAP)
    (reply,) = InProcessGrid(app, 1, {}).send_and_receive([Message(serialize(order), 2, f"query.{ACTION}")])
    return reply


def _trainer(folder: Path, row: tuple[float, float], audit: AuditConfig) -> Site:
    data = write_rows(folder, np.array([row, (1, 1), (1, 1)]), [0, 0, 1], ("a", "b"))
    return Site.at(data, IDENTITY, **{**training(audit, epsilon=audit.epsilon / 4), "method": "fedaux"})


def _orders(site: Site) -> list[HelloOrder | PrepareOrder | TrainOrder]:
    """One of each kind."""
    return [HelloOrder(), score_order(site), head_order(site)]


def _sums_order(order: PrepareOrder, sends: str) -> SumsOrder:
    """Asks for sums of features instead of scores; records are features, and have two columns."""
    return SumsOrder(order.client, order.prototype, order.classes, sends, 2, order.h0, 0, order.extractor)


def _fields(reply: Message) -> Iterator[tuple[str, Any]]:
    """All that a reply holds: names and values of scalars, names and bytes of arrays, or the text of its error."""
    if reply.has_error():
        yield "error", reply.error.reason
        return
    for key, record in reply.content.items():
        if isinstance(record, ConfigRecord):
            yield from ((name, value) for name, value in record.items() if name not in ("version", "kind"))
        elif isinstance(record, ArrayRecord):
            yield key, {name: array.data for name, array in record.items()}
        else:
            yield key, record
