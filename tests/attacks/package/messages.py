"""Attacks on messages: orders that no client should answer, undisclosed fields, class
names, texts of errors.

And on the handler that `fedaux.flower.add_release_handler` adds to a user's own Flower
app.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from flwr.app import ArrayRecord, ConfigRecord, Message, RecordDict
from flwr.clientapp import ClientApp
from numpy.typing import NDArray
from torch import Tensor, nn

from attacks.package.bounds import AuditConfig, Vector, distinguish
from attacks.package.orders import head_order, score_order, scores, training
from attacks.package.records import write_csv
from fedaux.audit.result import AttackResult, AttackSkipped
from fedaux.audit.site import AuditedSite, ask, compare_replies, refused
from fedaux.config.methods import SUM_KINDS
from fedaux.core.arrays import Arrays
from fedaux.data.records import Corpus
from fedaux.flower import client_app as client
from fedaux.flower.dropin_client import add_release_handler
from fedaux.flower.federation import read_reply
from fedaux.flower.in_process import InProcessGrid
from fedaux.flower.serialization import serialize
from fedaux.flower.user_model import ACTION, FeaturesOf
from fedaux.messages import (
    ORDERS,
    EveryOrder,
    Hello,
    HelloOrder,
    PrepareOrder,
    Protection,
    Release,
    Sums,
    SumsOrder,
    TrainOrder,
    Update,
    answer_type,
    fields_of,
)
from fedaux.messages.declaration import Answered
from fedaux.models import flatten_state
from fedaux.privacy.module_validation import per_record_safe
from helpers.audited_sites import audited_site, write_rows

# φ is a feature's sign
MAP: Arrays = {"mean": np.zeros(4, np.float32), "basis": np.eye(4, 1, dtype=np.float32)}
# that a client answers
KNOWN = {f"{name}.default" if name == "train" else name for name in ORDERS.values()}
OTHERS = (
    "evaluate",
    "evaluate.default",
    "evaluate.score",
    "query",
    "query.evaluate",
    "query.fedaux",
    "train.evaluate",
)
SECRET = "Jane Doe 1970 HIV positive"


def broken_source(path: Path) -> Corpus:
    """A site's own source that fails on a record."""
    return Corpus(float(SECRET))  # type: ignore[arg-type]


def oracle(folder: Path, audit: AuditConfig) -> AttackResult:
    """An answer to any other message type, or sums of features that the site never
    agreed to, no account covers.
    """
    site = _trainer(folder / "one", (1, 0), audit)
    contents = [serialize(order) for order in _orders(site)] + [RecordDict()]
    answered = [
        kind
        for kind in OTHERS
        for content in contents
        if not site.message(content, kind).has_error()
    ]
    sums = [_sums_order(score_order(site), sends) for sends in SUM_KINDS]
    answered += [
        f"query.sums for {order.sends}"
        for order in sums
        if not site.send(order).has_error()
    ]
    known = set(client.app._registered_funcs)
    extra = sorted({*answered, *(known - KNOWN)})
    count = len(OTHERS) * len(contents) + len(sums)
    detail = (
        f"answers {', '.join(extra)}" if extra else f"{count} other orders are refused"
    )
    return AttackResult.exact(bool(extra), detail)


def fields(folder: Path, audit: AuditConfig) -> AttackResult:
    """Every field of a reply is in the disclosure table, and public ones do not depend
    on the record.
    """
    sites = [
        _trainer(folder / which, row, audit)
        for which, row in (("one", (1, 0)), ("other", (0, 1)))
    ]
    wrong = set()
    for order in _orders(sites[0]):
        first, second = (
            _without_signature(dict(_fields(site.send(order)))) for site in sites
        )
        declared = {field.name: field.marks for field in fields_of(reply_type(order))}
        public = {
            name
            for name, marks in declared.items()
            if isinstance(marks, Answered)
            and marks.disclosure.private is Protection.PUBLIC
        }
        wrong |= {
            f"{name} is not declared" for name in {*first, *second} - set(declared)
        }
        wrong |= {
            f"{name} is said to be public"
            for name in public
            if first.get(name) != second.get(name)
        }
    detail = "; ".join(sorted(wrong)) or "all are classified, and the public ones agree"
    return AttackResult.exact(bool(wrong), detail)


def reply_type(order: EveryOrder) -> type:
    return Hello if isinstance(order, HelloOrder) else answer_type(order)


def _without_signature(fields: dict[str, Any]) -> dict[str, Any]:
    """A site signs the count of its account with a key that it has drawn: random, and
    never of its records.
    """
    if "account" not in fields:
        return fields
    account = json.loads(fields["account"])
    return {
        **fields,
        "account": {
            name: value for name, value in account.items() if name != "signature"
        },
    }


def hello(folder: Path, audit: AuditConfig) -> AttackResult:
    """A record with an undeclared label must not show in a node's reply to hello."""
    rows = [("cold", "good"), ("flu", "good")]
    tables = [
        write_csv(folder / label / "table.csv", [*rows, (label, "good")])
        for label in ("flu", "aids")
    ]
    sites = [audited_site(path, source="csv", **scores(audit)) for path in tables]
    arrays = [
        write_rows(folder / f"rows-{y}", np.ones((3, 2)), [0, 1, y]) for y in (1, 7)
    ]
    sites += [audited_site(path, **scores(audit)) for path in arrays]
    replies = [dict(_fields(site.send(HelloOrder()))) for site in sites]
    differ = replies[0] != replies[1] or replies[2] != replies[3]
    return AttackResult.exact(differ, f"says {replies[1]['classes']}")


def declared_size(folder: Path, audit: AuditConfig) -> AttackResult:
    """Under add-remove neighbours share nothing but a declared size: no reply may state
    another, private or not.
    """
    stated: dict[int, list[int]] = {}
    for count in (7, 8):
        data = write_rows(folder / f"{count}", np.ones((count, 2)), [0] * count)
        privacy = {
            "epsilon": audit.epsilon,
            "adjacency": "add-remove",
            "declared_records": 64,
        }
        site = audited_site(data, head_only=True, head_init="ridge", privacy=privacy)
        order = score_order(site)
        release = site.release(order)
        update = read_reply(Update, site.send(head_order(site)))
        sums = read_reply(Sums, site.send(_sums_order(order, "class-sums")))
        stated[count] = [release.records, update.records, sums.records]
    told = f"scores, models and sums state {stated[7]} records of 7, {stated[8]} of 8"
    return AttackResult.exact(stated[7] != stated[8], told)


def errors(folder: Path, audit: AuditConfig) -> AttackResult:
    """Sources, tables and apps that fail on a record, whose text is in the
    exception.
    """
    own = write_rows(folder / "own", np.ones((2, 2)), [0, 1])
    table = write_csv(folder / "table" / "table.csv", [])
    # no header: the first record is taken for it
    table.write_text(f"{SECRET},flu\n{SECRET},cold", encoding="utf-8")
    bare = table.with_name("elsewhere") / "table.csv"  # no classes are declared there
    bare.parent.mkdir()
    bare.write_text(table.read_text(encoding="utf-8"), encoding="utf-8")
    sites = [
        audited_site(own, source=f"{__name__}:broken_source", **training(audit)),
        audited_site(table, source="csv", **training(audit)),
        audited_site(bare, source="csv", **training(audit)),
    ]
    replies = [site.send(order) for site in sites for order in _orders(sites[0])]
    replies.append(_failing_drop_in(folder / "app"))
    leaks = [
        r
        for r in replies
        if SECRET in repr(dict(_fields(r))) or (r.has_error() and not refused(r))
    ]
    detail = "; ".join(
        sorted({str(r.error.reason) if r.has_error() else "in a reply" for r in leaks})
    )[:200]
    detail = (
        detail
        or f"{sum(map(refused, replies))} failures, each sent as one of five words"
    )
    return AttackResult.exact(bool(leaks), detail)


def _failing_drop_in(folder: Path) -> Message:
    """The reply of a drop-in client whose data cannot be read."""
    app = ClientApp()
    add_release_handler(
        app, model=Net, data=lambda context: (float(SECRET),), vault=folder, epsilon=1.0
    )
    return ask(
        InProcessGrid(app, 1, {}),
        _drop_in_order(flatten_state(Net()), MAP),
        f"query.{ACTION}",
    )


def _trainer(folder: Path, row: tuple[float, float], audit: AuditConfig) -> AuditedSite:
    data = write_rows(folder, np.array([row, (1, 1), (1, 1)]), [0, 0, 1])
    return audited_site(
        data, **{**training(audit, epsilon=audit.epsilon / 4), "method": "fedaux"}
    )


def _orders(site: AuditedSite) -> list[HelloOrder | PrepareOrder | TrainOrder]:
    """One of each kind."""
    return [HelloOrder(), score_order(site), head_order(site)]


def _sums_order(order: PrepareOrder, sends: str) -> SumsOrder:
    """Asks for sums of features instead of scores; records are features, and have two
    columns.
    """
    return SumsOrder(
        order.client,
        order.prototype,
        order.classes,
        sends,
        2,
        order.h0,
        0,
        order.extractor,
    )


def _fields(reply: Message) -> Iterator[tuple[str, Any]]:
    """Return everything in a reply: names and values of scalars, names and bytes of
    arrays, or its error's text.
    """
    if reply.has_error():
        yield "error", reply.error.reason
        return
    for key, record in reply.content.items():
        if isinstance(record, ConfigRecord):
            yield from (
                (name, value)
                for name, value in record.items()
                if name not in ("version", "kind")
            )
        elif isinstance(record, ArrayRecord):
            yield key, {name: array.data for name, array in record.items()}
        else:
            yield key, record


@per_record_safe
class Net(nn.Module):
    """A user's network; with `norm` it normalises over the batch, which private records
    do not allow.
    """

    def __init__(self, norm: bool = False) -> None:
        super().__init__()
        last = nn.BatchNorm1d(4, track_running_stats=False) if norm else nn.Identity()
        self.features = nn.Sequential(nn.Linear(8, 4), nn.ReLU(), last)
        self.head = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.features(x))
        return logits


class DropInClient:
    """A client with no other handler."""

    def __init__(
        self,
        folder: Path,
        rows: NDArray[Any],
        audit: AuditConfig,
        model: Callable[[], nn.Module] = Net,
        public: Arrays = MAP,
        features: str | FeaturesOf = "features",
        **privacy: Any,
    ) -> None:
        self.folder, self.public, app = folder, public, ClientApp()
        labels = np.zeros(len(rows), np.int64)
        add_release_handler(
            app,
            model=model,
            data=lambda context: (rows, labels),
            vault=folder,
            epsilon=audit.epsilon,
            delta=audit.delta,
            features=features,
            **privacy,
        )
        self.grid = InProcessGrid(app, 1, {})

    def ask(self, weights: Arrays) -> Message:
        """The reply of a client that has not been asked before."""
        shutil.rmtree(self.folder, ignore_errors=True)
        return ask(self.grid, _drop_in_order(weights, self.public), f"query.{ACTION}")

    def values(self, weights: Arrays) -> Vector:
        return np.asarray(
            read_reply(Release, self.ask(weights)).arrays["values"], np.float64
        )


def _drop_in_order(weights: Arrays, public: Arrays) -> RecordDict:
    return serialize(
        PrepareOrder("1", "model", "class-embedding", 2, 4, "", 0, weights, public)
    )


def batch_norm(folder: Path, audit: AuditConfig) -> AttackResult:
    """Weights whose activations are zero on random rows, not on the client's: no test
    run would show the mixing.
    """
    rows = np.random.default_rng(0).uniform(0.9, 1.1, size=(64, 8))
    other = np.concatenate([np.full((1, 8), 1000.0), rows[1:]])
    weights = _mixing_weights(norm=True)
    clients = [
        DropInClient(folder / f"{i}", x, audit, partial(Net, norm=True))
        for i, x in enumerate((rows, other))
    ]
    # clients answer such an order
    DropInClient(folder / "control", rows, audit).values(_mixing_weights(norm=False))
    if all(refused(each.ask(weights)) for each in clients):
        return AttackResult(audit.epsilon, 0.0, "both neighbours refuse the network")
    draws = [partial(each.values, weights) for each in clients]
    return distinguish(draws, audit.fewer_draws(), "one of 64 rows is an outlier")


def embedding_memory(folder: Path, audit: AuditConfig) -> AttackResult:
    """An embedding that shortens its own rows when they are looked up, `max_norm`: it
    remembers who came before.

    The first record looks all rows up, or none. One such row is another number the
    second time.
    """
    tokens, width = 64, 8
    row, column, once = _shortened_twice(width)
    weights = _memory_net(tokens, width, row, column)
    # record i has the token i once, and paddings
    x = np.zeros((tokens, tokens - 1), np.int64)
    x[1:, 0] = np.arange(1, tokens)
    other = x.copy()
    other[0] = np.arange(1, tokens)
    # φ is 0 the first time, and ±1 the second
    public = {**MAP, "mean": np.array([once, 0, 0, 0], np.float32)}
    network = partial(_embedding_net, tokens, width)
    clients = [
        DropInClient(folder / f"{i}", rows, audit, network, public, "0", unsafe_seed=1)
        for i, rows in enumerate((x, other))
    ]
    replies = [each.ask(weights) for each in clients]
    detail = f"one of {tokens} records has all {tokens - 1} tokens, or none"
    return compare_replies(replies, audit.epsilon, audit.delta, detail)


def _embedding_net(tokens: int, width: int) -> nn.Module:
    embedding = nn.Embedding(tokens, width, max_norm=1.0)
    extractor = nn.Sequential(
        embedding, nn.Flatten(), nn.Linear(width * (tokens - 1), 4)
    )
    return nn.Sequential(extractor, nn.Linear(4, 2))


def _shortened_twice(width: int) -> tuple[Tensor, int, float]:
    """(a row that one shortening leaves too long, a coordinate that the second one
    changes, its value in between).
    """
    rng = np.random.default_rng(0)
    for _ in range(10_000):
        embedding = nn.Embedding(1, width, max_norm=1.0)
        row = torch.from_numpy((1000 * rng.normal(size=width)).astype(np.float32))
        with torch.no_grad():
            embedding.weight[0] = row
            once, twice = (embedding(torch.tensor([0]))[0].clone() for _ in range(2))
        column = int((once - twice).abs().argmax())
        if once[column] != twice[column]:
            return row, column, float(once[column])
    raise AttackSkipped("embeddings of this machine are shortened once and for all")


def _memory_net(tokens: int, width: int, row: Tensor, column: int) -> Arrays:
    """The first feature is this coordinate of a record's first token."""
    net: Any = _embedding_net(tokens, width)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.zero_()
        net[0][0].weight[1:] = row
        net[0][2].weight[0, column] = 1.0
    return flatten_state(net)


def dropin_noise(folder: Path, audit: AuditConfig) -> AttackResult:
    """One record exchanged for its opposite: the sum of its class moves by 2, as far as
    is claimed.
    """
    rows, middle = np.ones((8, 8)), {**MAP, "mean": np.full(4, 0.5, np.float32)}
    other, weights = (
        np.concatenate([np.zeros((1, 8)), rows[1:]]),
        _first_layer(Net(), np.eye(8)[0]),
    )
    clients = [
        DropInClient(folder / f"{i}", x, audit, public=middle)
        for i, x in enumerate((rows, other))
    ]
    return distinguish(
        [partial(each.values, weights) for each in clients], audit.more_draws()
    )


def _mixing_weights(norm: bool) -> Arrays:
    """φ is the sign of z + 0.02, with z a row's sum in units of the batch's
    deviation.
    """
    net = Net(norm)
    if norm:
        nn.init.constant_(net.features[2].bias, 0.02)  # type: ignore[arg-type]
    return _first_layer(net, np.ones(8), -5.0)


def _first_layer(net: Net, row: NDArray[Any], bias: float = 0.0) -> Arrays:
    """The network's weights with a first layer of zeros but for its first feature."""
    with torch.no_grad():
        for parameter in net.features[0].parameters():
            parameter.zero_()
        net.features[0].weight[0] = torch.from_numpy(row)  # type: ignore[operator]
        net.features[0].bias[0] = bias  # type: ignore[operator]
    return flatten_state(net)
