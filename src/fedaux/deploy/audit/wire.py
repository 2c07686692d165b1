"""Attacks on what crosses the wire: orders that nobody should answer, fields, class names and the words of errors."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, RecordDict
from flwr.clientapp import ClientApp

from fedaux.core.messages import Hello, HelloOrder, PrepareOrder, Release, TrainOrder, Update
from fedaux.data.records import Corpus
from fedaux.deploy.audit.attack_result import NO_PRIVACY, AttackResult, AuditConfig
from fedaux.deploy.audit.dropin import Net
from fedaux.deploy.audit.records import PASSING, passing, scores, training
from fedaux.deploy.audit.site import Server, Site, refused, write_rows
from fedaux.deploy.audit.texts import write_csv
from fedaux.flower import client_app as client
from fedaux.flower.dropin_client import answer
from fedaux.flower.in_process import InProcessGrid
from fedaux.flower.serialization import serialize
from fedaux.flower.user_model import ACTION
from fedaux.models import flatten_state
from fedaux.privacy.disclosure import DISCLOSED_FIELDS, PUBLIC

ORDERS = {"query.hello", "query.prepare", "train.default"}  # all that a client answers
OTHERS = ("evaluate", "evaluate.default", "evaluate.score", "query", "query.evaluate", "query.fedaux", "train.evaluate")
SECRET = "Jane Doe 1970 HIV positive"
ANSWERS: dict[type, type] = {HelloOrder: Hello, PrepareOrder: Release, TrainOrder: Update}


def broken_source(path: Path) -> Corpus:
    """A source of the site's own that stumbles over a record."""
    return Corpus(float(SECRET))  # type: ignore[arg-type]


def oracle(folder: Path, terms: AuditConfig) -> AttackResult:
    """Any answer to any order but the three is one that no account knows of."""
    site, server = _trainer(folder / "one", (1, 0), terms)
    contents = [serialize(one) for one in _orders(server)] + [RecordDict()]
    answered = [kind for kind in OTHERS for one in contents if not site.message(one, kind).has_error()]
    known = set(client.app._registered_funcs)
    extra = sorted({*answered, *(known - ORDERS)})
    detail = f"answers {', '.join(extra)}" if extra else f"{len(OTHERS) * len(contents)} other orders are refused"
    return AttackResult.of(
        "oracle", "orders beyond hello, prepare and train", 0.0, NO_PRIVACY if extra else 0.0, 0, detail
    )


def fields(folder: Path, terms: AuditConfig) -> AttackResult:
    """Every field is classified, and those that are public are the same whatever the record is."""
    sites = [_trainer(folder / which, row, terms) for which, row in (("one", (1, 0)), ("other", (0, 1)))]
    wrong = set()
    for order in _orders(sites[0][1]):
        one, other = (dict(_fields(site.send(order))) for site, _ in sites)
        classes = DISCLOSED_FIELDS[ANSWERS[type(order)]]
        public = {name for name, disclosure in classes.items() if disclosure.private is PUBLIC}
        wrong |= {f"{name} is not classified" for name in {*one, *other} - set(classes)}
        wrong |= {f"{name} is said to be public" for name in public if one.get(name) != other.get(name)}
    detail = "; ".join(sorted(wrong)) or "all are classified, and the public ones agree"
    return AttackResult.of(
        "fields", "fields of replies of two neighbours", 0.0, NO_PRIVACY if wrong else 0.0, 0, detail
    )


def hello(folder: Path, terms: AuditConfig) -> AttackResult:
    """A record with a label of its own must not show in what a node says when it is greeted."""
    rows = [("cold", "good"), ("flu", "good")]
    tables = [write_csv(folder / label / "table.csv", [*rows, (label, "good")]) for label in ("flu", "aids")]
    sites = [Site.at(one, PASSING, source="csv", **scores(terms)) for one in tables]
    arrays = [write_rows(folder / f"rows-{y}", np.ones((3, 2)), [0, 1, y], ("a", "b")) for y in (1, 7)]
    sites += [Site.at(one, PASSING, **scores(terms)) for one in arrays]
    told = [dict(_fields(site.send(HelloOrder()))) for site in sites]
    differ = told[0] != told[1] or told[2] != told[3]
    bound = NO_PRIVACY if differ else 0.0
    return AttackResult.of(
        "hello", "a label that is not declared, in Hello", 0.0, bound, 0, f"says {told[1]['classes']}"
    )


def errors(folder: Path, terms: AuditConfig) -> AttackResult:
    """Sources, tables and apps that fail over a record, whose text is in the exception."""
    own = write_rows(folder / "own", np.ones((2, 2)), [0, 1], ("a", "b"))
    table = write_csv(folder / "table" / "table.csv", [])
    table.write_text(f"{SECRET},flu\n{SECRET},cold", encoding="utf-8")  # no header: the first record is taken for it
    bare = table.with_name("elsewhere") / "table.csv"  # no classes are declared there
    bare.parent.mkdir()
    bare.write_text(table.read_text(encoding="utf-8"), encoding="utf-8")
    sites = [
        Site.at(own, PASSING, source=f"{__name__}:broken_source", **training(terms)),
        Site.at(table, PASSING, source="csv", **training(terms)),
        Site.at(bare, PASSING, source="csv", **training(terms)),
    ]
    server = passing(sites[0])
    replies = [site.send(order) for site in sites for order in _orders(server)]
    replies.append(_app_that_fails(folder / "app", server))
    said = [one for one in replies if SECRET in repr(dict(_fields(one))) or (one.has_error() and not refused(one))]
    detail = "; ".join(sorted({str(one.error.reason) if one.has_error() else "in a reply" for one in said}))
    bound, silent = (
        (NO_PRIVACY if said else 0.0),
        f"{sum(map(refused, replies))} failures, each told as one of four words",
    )
    return AttackResult.of("errors", "a record in the text of an exception", 0.0, bound, 0, detail[:200] or silent)


def _app_that_fails(folder: Path, server: Server) -> Message:
    """A drop-in whose own data cannot be read."""
    app = ClientApp()
    answer(app, model=Net, data=lambda context: (float(SECRET),), vault=folder, epsilon=1.0)
    order = server.prepare(server.map())
    public = {"mean": np.zeros(4, np.float32), "basis": np.eye(4, 1, dtype=np.float32)}
    order = PrepareOrder("1", "model", order.scorer, 2, 4, "", 0, flatten_state(Net()), public)
    (reply,) = InProcessGrid(app, 1, {}).send_and_receive([Message(serialize(order), 2, f"query.{ACTION}")])
    return reply


def _trainer(folder: Path, row: tuple[float, float], terms: AuditConfig) -> tuple[Site, Server]:
    data = write_rows(folder, np.array([row, (1, 1), (1, 1)]), [0, 0, 1], ("a", "b"))
    settings = training(terms)
    settings["privacy"] |= {"epsilon": terms.epsilon / 4}
    site = Site.at(data, PASSING, **{**settings, "method": "fedaux"})
    return site, passing(site)


def _orders(server: Server) -> list[Any]:
    """One of each kind."""
    return [HelloOrder(), server.prepare(server.map(column=np.array([1, -1]))), server.train(np.zeros(6))]


def _fields(reply: Message) -> Iterator[tuple[str, Any]]:
    """All that a reply holds: names and values of scalars, names and bytes of arrays, or the words of its error."""
    if reply.has_error():
        yield "error", reply.error.reason
        return
    for room, record in reply.content.items():
        if isinstance(record, ConfigRecord):
            yield from ((name, value) for name, value in record.items() if name not in ("version", "kind"))
        elif isinstance(record, ArrayRecord):
            yield room, {name: array.data for name, array in record.items()}
        else:
            yield room, record
