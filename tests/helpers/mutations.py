"""Defects, put back one at a time into the code that a client runs: what the audit is for."""

import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

import fedaux.flower.dropin_client as flower_client
import fedaux.privacy.dp_sgd as private
from fedaux.audit.attack import AuditConfig
from fedaux.client import handlers
from fedaux.client import site as client_site
from fedaux.client import training as client_training
from fedaux.config.sections import PrivacyConfig
from fedaux.core.messages import Account, Release, SumsOrder, Update
from fedaux.data import federated
from fedaux.data.images import image_folder
from fedaux.data.sources import SOURCES
from fedaux.flower import client_app as client
from fedaux.flower import serialization
from fedaux.flower.serialization import make_reply
from fedaux.models.inference import predict_batches
from fedaux.privacy import account, accounting, ledger, mechanism, module_validation, per_record
from fedaux.privacy.account import BudgetStore
from fedaux.privacy.units import Units
from fedaux.scoring import embedding, registry
from fedaux.server.run_state import RunState

USUAL = AuditConfig()
FINE = AuditConfig(draws=400)  # twice the distance, seen with certainty
Patch = Callable[[pytest.MonkeyPatch], None]


@dataclass(frozen=True)
class Mutation:
    """`attacks` must all find it."""

    name: str
    patch: Patch
    attacks: tuple[str, ...]
    audit: AuditConfig = USUAL
    slow: bool = False


def whole_batches(patch: pytest.MonkeyPatch) -> None:
    """Features of many records in one call: texts share a padding, rows a kernel, BatchNorm a mean."""
    patch.setattr(per_record, "outputs", predict_batches)


def unchecked_modules(patch: pytest.MonkeyPatch) -> None:
    """What a network is made of is not looked at; it sees records in batches."""
    patch.setattr(per_record, "validate_module", lambda module, training=False: None)
    patch.setattr(per_record, "outputs", predict_batches)


def matrix_product(patch: pytest.MonkeyPatch) -> None:
    """The public map as one product over all rows."""

    def project(rows: Any, mean: Any, basis: Any) -> Any:
        return (np.asarray(rows, np.float64) - mean) @ np.asarray(basis, np.float64)

    patch.setattr(embedding, "project", project)


def wrapping_integers(patch: pytest.MonkeyPatch) -> None:
    """Any type of number crosses, and the magnitude of an integer is the integer or its negative."""
    patch.setattr(serialization, "check_order", lambda order: None)

    def project(rows: Any, mean: Any, basis: Any) -> Any:
        bits = (53 - (len(basis) - 1).bit_length()) // 2
        largest = np.maximum(basis.max(axis=1, keepdims=True, initial=0), -basis.min(axis=1, keepdims=True, initial=0))
        balance = np.frexp(np.asarray(largest, np.float64))[1]
        weights = np.rint(np.ldexp(np.asarray(basis, np.float64), bits - balance))
        steps = np.subtract(rows, mean, dtype=np.float64) * np.ldexp(1.0, balance.T)
        unit = np.frexp(np.abs(steps).max(axis=1, keepdims=True))[1] - bits
        return np.ldexp(np.rint(np.ldexp(steps, -unit)) @ weights, unit - bits)

    patch.setattr(embedding, "project", project)


def trusted_modules(patch: pytest.MonkeyPatch) -> None:
    """What a network is made of is not looked at, before a pass or after it."""
    patch.setattr(per_record, "validate_module", lambda module, training=False: None)
    patch.setattr(per_record, "verified", lambda replicas, attempt: nullcontext())


def only_layers_drop(patch: pytest.MonkeyPatch) -> None:
    """Dropout is looked for in layers of that type alone."""
    patch.setattr(module_validation, "_dropouts", lambda module: [])


def one_colour(patch: pytest.MonkeyPatch) -> None:
    """What a client keeps of plain and of private training lies in the same place."""
    patch.setattr(PrivacyConfig, "colour", "plain")


def records_counted(patch: pytest.MonkeyPatch) -> None:
    """Replies state how many records there are, whatever was declared."""
    for module in (handlers, client_training, registry):
        patch.setattr(module, "public_size", lambda records, privacy: len(records))


def seeds_forgotten(patch: pytest.MonkeyPatch) -> None:
    """The owner's total does not know that its noise was seeded."""

    def total(entries: Any, delta: float, adjacency: str) -> float:
        return accounting.total_epsilon([entry.mechanism for entry in entries], delta, adjacency)

    patch.setattr(account, "account_epsilon", total)


def batched_gradients(patch: pytest.MonkeyPatch) -> None:
    """Gradients of all drawn records from one pass over them."""

    def sums_received(workers: Any, records: Any, units: Any, clip: float) -> Any:
        model, rows = workers[0], np.concatenate(units)
        x, labels = records.batch(rows), torch.from_numpy(records.labels[rows])
        with torch.no_grad():
            error = torch.softmax(model(x), dim=1) - torch.nn.functional.one_hot(labels, model.head.out_features)
        each = torch.cat([(error[:, :, None] * x[:, None, :]).flatten(1), error], dim=1)
        return private.quantize(private.clip_rows(each.double().numpy() / clip)).sum(axis=0)

    patch.setattr(private, "sum_clipped_gradients", sums_received)


def evaluate_again(patch: pytest.MonkeyPatch) -> None:
    """A handler that tells how many records a model gets right."""

    def evaluate(message: Message, context: Context) -> Message:
        return Message(RecordDict({"fedaux": ConfigRecord({"correct": 7})}), reply_to=message)

    patch.setitem(client.app._registered_funcs, "evaluate.default", evaluate)


def labels_by_record(patch: pytest.MonkeyPatch) -> None:
    """Labels are numbered from the records that are there."""
    patch.setattr(federated, "_cached_private", lambda data, classes: federated._open_corpus(data).train)


def guessed_split(patch: pytest.MonkeyPatch) -> None:
    """A sub-folder called train is taken for the training images."""

    def guessing(path: Path, declared: Any = (), **options: Any) -> Any:
        return image_folder(path / "train" if (path / "train").is_dir() else path, declared=declared, **options)

    patch.setitem(SOURCES, "images", guessing)


def classes_by_record(patch: pytest.MonkeyPatch) -> None:
    """Hello tells the classes that the records have."""

    def told(config: Any, name: str) -> tuple[str, ...]:
        corpus = federated._open_corpus(config.data)
        return corpus.classes or federated._numbers(corpus.train)

    patch.setattr(handlers, "class_names", told)


def sums_for_anybody(patch: pytest.MonkeyPatch) -> None:
    """A client that sends sums of its features whatever its own settings say."""
    checked = handlers.validate_order

    def willing(site: Any, order: Any) -> Any:
        config = checked(site, order)
        open_hearted = replace(config.privacy, private_training=False)
        return replace(config, method="ridge", privacy=open_hearted) if isinstance(order, SumsOrder) else config

    patch.setattr(handlers, "validate_order", willing)


def history_only(patch: pytest.MonkeyPatch) -> None:
    """The server adds up the rounds that it kept."""

    def of(cls: Any, releases: Any, accounts: Any, awaiting_reply: Any, history: Any, *_more: Any) -> Any:
        spends: dict[str, list[accounting.Mechanism]] = {}
        for result in history:
            for name, spent in result.private_training.items():
                spends.setdefault(name, []).append(accounting.Mechanism(spent.noise, spent.rate, spent.steps))
        totals = {
            name: replace(accounts[name], epsilon=accounting.total_epsilon(one, 1e-5, accounts[name].adjacency))
            for name, one in spends.items()
        }
        return cls(releases, totals, {name: len(one) for name, one in spends.items()}, 0, awaiting_reply)

    patch.setattr(ledger.Ledger, "of", classmethod(of))


def silence_forgotten(patch: pytest.MonkeyPatch) -> None:
    """Who was asked and did not answer is not remembered."""
    known = RunState.with_accounts
    patch.setattr(RunState, "with_accounts", lambda self, asked, accounts: known(self, (), accounts))


def uncapped(patch: pytest.MonkeyPatch) -> None:
    """Entries are written, and nothing is refused for what it would bring the total to."""
    total = BudgetStore._total
    patch.setattr(BudgetStore, "_total", lambda self, entries: 0.0 if entries else total(self, entries))


def rounds_counted(patch: pytest.MonkeyPatch) -> None:
    """A plan for so many rounds, whatever was spent before; nothing but the number of rounds is capped."""
    uncapped(patch)
    plan = accounting.plan_training

    def fresh(privacy: Any, local: Any, size: int, rounds: int, parameters: int, before: Any, known: float) -> Any:
        return plan(privacy, local, size, rounds + len(before), parameters)

    patch.setattr(client_training, "plan_training", fresh)


def unwritten(patch: pytest.MonkeyPatch) -> None:
    """The account is not written."""
    patch.setattr(BudgetStore, "_append", lambda self, entry: None)


def unstored(patch: pytest.MonkeyPatch) -> None:
    """A question that is asked again gets new noise."""

    def release(self: BudgetStore, request: str, mechanism: Any, make: Any, *known: Any) -> Release:
        with self._locked() as entries:
            if request not in {entry.request for entry in entries}:
                self._add(entries, self._entry(request, mechanism), "")
            return replace(make(), account=self._account(self._read()).to_json())

    patch.setattr(BudgetStore, "release", release)


def any_size(patch: pytest.MonkeyPatch) -> None:
    """The size that an order states is entered, whatever its public arrays make of it; and see `any_entry`."""
    patch.setattr(registry, "stored_release", _stated_size)
    patch.setattr(handlers, "stored_release", _stated_size)
    any_entry(patch)


def _stated_size(order: Any, request: str, store: BudgetStore, own_data: Any) -> Release:
    mechanism = registry.release_mechanism(order.size, store.privacy)
    return store.release(request, mechanism, lambda: registry.release_scores(order, *own_data(), store.privacy))


def any_entry(patch: pytest.MonkeyPatch) -> None:
    """A question that has an entry is answered, whatever noise the entry states."""
    release = BudgetStore.release

    def answered(self: BudgetStore, request: str, mechanism: Any, make: Any, *known_entries: Any) -> Release:
        entries = account.read_account(self.folder)[1]
        known = [entry.mechanism for entry in entries if entry.request == request]
        return release(self, request, known[0] if known else mechanism, make, *known_entries)

    patch.setattr(BudgetStore, "release", answered)


def heard_ignored(patch: pytest.MonkeyPatch) -> None:
    """What the server has heard of before is not asked."""
    patch.setattr(BudgetStore, "_check_known", lambda self, entries, known_entries, signature: None)


def scores_only(patch: pytest.MonkeyPatch) -> None:
    """The account that a client reports leaves training out."""
    account = BudgetStore._account

    def told(self: BudgetStore, entries: Any) -> Account:
        return account(self, [entry for entry in entries if not entry.trains])

    patch.setattr(BudgetStore, "_account", told)


def account_by_name(patch: pytest.MonkeyPatch) -> None:
    """An account for every name, whichever records they have."""
    patch.setattr(client_site, "account_folder", lambda config, vault, name: vault / name)


def plain_handlers(patch: pytest.MonkeyPatch) -> None:
    """Errors cross as Flower lets them."""
    app = ClientApp()
    app.query("hello")(client.hello.__wrapped__)
    app.query("prepare")(client.prepare.__wrapped__)
    app.train()(client.train.__wrapped__)
    patch.setattr(client, "app", app)


def plain_drop_in(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(flower_client, "redact_errors", lambda handler: handler)


def to_nearest(module: Any) -> Patch:
    """ε printed to three digits, up or down."""
    return lambda patch: patch.setattr(module, "round_up", lambda epsilon: f"{epsilon:.3g}")


def extra_field(patch: pytest.MonkeyPatch) -> None:
    """A reply with one more field than anybody classified."""

    def reply(message: Message, item: Any) -> Message:
        packed = make_reply(message, item)
        packed.content["fedaux"]["mean"] = 0.5  # type: ignore[index]
        return packed

    patch.setattr(client, "make_reply", reply)


def seconds_told(patch: pytest.MonkeyPatch) -> None:
    """How long private training took."""

    def reply(message: Message, item: Any) -> Message:
        return make_reply(message, replace(item, seconds=time.perf_counter()) if isinstance(item, Update) else item)

    patch.setattr(client, "make_reply", reply)


def persons_ignored(patch: pytest.MonkeyPatch) -> None:
    """Every record is a unit of its own."""
    of = Units.of
    patch.setattr(Units, "of", lambda records, unit, cap: of(records, "record", cap))


def person_cap_ignored(patch: pytest.MonkeyPatch) -> None:
    """Each record of a person counts 1/cap, however many there are."""
    of = Units.of

    def uncapped(records: Any, unit: str, cap: int) -> Units:
        units = of(records, unit, 10**6)
        return Units(units.rows, np.full(len(records), 1 / cap))

    patch.setattr(Units, "of", uncapped)


def person_summed(patch: pytest.MonkeyPatch) -> None:
    """A person's gradient is the sum of their records', each shortened by itself."""
    one = private.clipped_unit_gradient

    def steps(model: Any, records: Any, labels: Any, rows: Any, clip: float) -> Any:
        return sum(one(model, records, labels, rows[i : i + 1], clip) for i in range(len(rows)))

    patch.setattr(private, "clipped_unit_gradient", steps)


def noise(make: Callable[[Any, float], Any]) -> Patch:
    """Other noise than is claimed, wherever noise is drawn."""

    def put(patch: pytest.MonkeyPatch) -> None:
        patch.setattr(mechanism, "add_noise", make)

    return put


_real = mechanism.add_noise


def seeded(values: Any, scale: float) -> Any:
    return values + np.rint(np.random.default_rng(3).normal(0, scale, len(values))).astype(np.int64)


def without_counts(values: Any, scale: float) -> Any:
    """The last number of each class stays bare."""
    noisy = _real(values, scale)
    noisy[1::2] = values[1::2]
    return noisy


def unclipped(patch: pytest.MonkeyPatch) -> None:
    """Gradients as long as they are."""
    patch.setattr(private, "clip_rows", lambda rows: rows)
    patch.setattr(private, "quantize", lambda rows: np.trunc(rows * 2**30).astype(np.int64))


def half_reach(patch: pytest.MonkeyPatch) -> None:
    """A sensitivity that counts one of the two records that are exchanged."""
    patch.setattr(embedding, "SENSITIVITY", {"replace-one": 1.0, "add-remove": 1.0})


def _all() -> Iterator[Mutation]:
    text = "text-length"
    yield Mutation("whole batches", whole_batches, (text, "batch-shape-network"))  # 1, 2
    yield Mutation("a matrix product", matrix_product, ("batch-shape-map",))  # 2
    yield Mutation("wrapping integers", wrapping_integers, ("integer-map",))
    yield Mutation("trusted modules", trusted_modules, ("embedding-memory",))
    yield Mutation("only layers drop", only_layers_drop, ("functional-dropout",))
    yield Mutation("one colour", one_colour, ("kept-state",))
    yield Mutation("records counted", records_counted, ("declared-size",))
    yield Mutation("seeds forgotten", seeds_forgotten, ("seeded",))
    yield Mutation("batched gradients", batched_gradients, ("batch-shape-training",))  # 2
    yield Mutation("evaluate", evaluate_again, ("oracle",))  # 3
    yield Mutation("sums for anybody", sums_for_anybody, ("oracle",))
    tables = ("odd-arrays", "odd-lines", "odd-parquet", "odd-datasets")
    yield Mutation("labels by record", labels_by_record, ("new-label", *tables))  # 4
    yield Mutation("a split that is guessed", guessed_split, ("odd-images",))
    yield Mutation("classes by record", classes_by_record, ("hello",))  # 4
    yield Mutation("unchecked modules", unchecked_modules, ("drop-in-batchnorm",))  # 5
    yield Mutation("history only", history_only, ("lost-replies",))  # 6
    yield Mutation("silence forgotten", silence_forgotten, ("spare-clients",))  # 6
    yield Mutation("rounds counted", rounds_counted, ("rounds-raised",))  # 7
    yield Mutation("uncapped", uncapped, ("questions",))  # 7
    yield Mutation("account by name", account_by_name, ("many-names",))  # 8
    yield Mutation("plain handlers", plain_handlers, ("errors",))  # 9
    yield Mutation("plain drop-in", plain_drop_in, ("errors",))  # 9
    yield Mutation("printed to nearest by the run", to_nearest(ledger), ("printed",))  # 10
    yield Mutation("printed to nearest by the site", to_nearest(account), ("printed",))  # 10
    yield Mutation("seconds told", seconds_told, ("fields",))  # 10
    yield Mutation("extra field", extra_field, ("fields",))
    yield Mutation("account unwritten", unwritten, ("questions",))
    yield Mutation("answers unstored", unstored, ("questions", "many-names"))
    yield Mutation("any entry", any_entry, ("half-way",))
    yield Mutation("any size", any_size, ("wrong-size",))
    yield Mutation("heard ignored", heard_ignored, ("old-copy",))
    yield Mutation("scores only", scores_only, ("reported",))
    yield Mutation("persons ignored", persons_ignored, ("person", "person-training"))
    yield Mutation("person cap ignored", person_cap_ignored, ("person",))
    yield Mutation("a person's gradients summed", person_summed, ("person-training",))
    half = noise(lambda values, scale: _real(values, scale / 2))
    yield Mutation("half the noise", half, ("noise-scores",), FINE)
    yield Mutation("half the noise", half, ("noise-mean", "noise-drop-in", "noise-training"), FINE, slow=True)
    yield Mutation("half the reach", half_reach, ("noise-scores",), FINE, slow=True)
    yield Mutation("seeded noise", noise(seeded), ("noise-scores", "noise-training"), AuditConfig(draws=100))
    yield Mutation("seeded noise", noise(seeded), ("noise-mean", "noise-drop-in"), AuditConfig(draws=100), slow=True)
    yield Mutation("no noise", noise(lambda values, scale: values), ("canaries",))
    yield Mutation("bare counts", noise(without_counts), ("noise-scores",), AuditConfig(draws=100))
    yield Mutation("unclipped", unclipped, ("canaries", "noise-training"), AuditConfig(draws=100))


MUTATIONS = tuple(_all())
