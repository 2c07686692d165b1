"""Attacks by one record: on what the others contribute, and on the noise that must hide
it.

By its presence, its text, its label, or as one of a person's; neighbours at the claimed
distance; and canaries in a single run of training.
"""

from __future__ import annotations

import importlib
import json
import secrets
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from attacks.package.bounds import (
    FAILURE_PROBABILITY,
    AuditConfig,
    DrawnResult,
    Vector,
    distinguish,
    one_run_bound,
)
from attacks.package.orders import (
    gradient,
    head_order,
    noisy_sum,
    score_order,
    scores,
    tell_apart,
    training,
)
from fedaux.audit.result import AttackResult, AttackSkipped
from fedaux.audit.site import AuditedSite, HostileServer, compare_releases
from fedaux.client.looks import count_in_bins
from fedaux.config.prototype import PrototypeSpec
from fedaux.config.sections import PrivacyConfig
from fedaux.core.arrays import Arrays
from fedaux.flower.federation import read_reply
from fedaux.messages import Tallies, Tally, TrainOrder, Update
from fedaux.messages.tallies import STEPS
from fedaux.privacy.looks import look_budget
from fedaux.privacy.mechanism import Summary, release
from fedaux.privacy.module_validation import UnsupportedModuleError, validate_module
from helpers.audited_sites import audited_site, set_mlp, write_rows

Floats = NDArray[np.float32]
# (h, w, n) → h·w, n times over, by a kernel for n rows
Product = Callable[[Floats, Floats, int], NDArray[Any]]
Rows = Sequence[tuple[str, str]]  # (label, text)
TRIES = 500  # of the search for vectors on which kernels disagree
HUGE = 2.0**50  # a power of two: no product is rounded differently
AGREE = "the matrix kernels of this machine agree on all that was tried"
PERSON = "100 of 104 records, of which 10 are used"
WORDS = ("good", "film", "but", "far", "too", "long", "for", "me", "now")
CANARIES = 400
LOUD = 1000.0  # a canary's feature: its gradient is clipped to norm 1, however large


def map_kernel(folder: Path, audit: AuditConfig) -> AttackResult:
    """All features are equal, and the public map's product with them has the sign that
    the kernel gives it.
    """
    rows, width = 1953, 128

    def product(h: Floats, column: Floats, count: int) -> NDArray[Any]:
        return (
            np.tile(h, (count, 1)).astype(np.float64) @ np.outer(column, np.eye(4)[0])
        )[:, 0]

    h, column, *_ = find_shape_dependent(product, width, rows)
    sites, server = one_record_more(folder, rows, audit, hidden=1, features=width)
    set_mlp(server.model, bias=h)
    basis = np.outer(column, np.eye(4)[0]).astype(np.float32)
    order = server.prepare({"mean": np.zeros(width, np.float32), "basis": basis})
    return tell_apart(
        sites, order, audit.fewer_draws(), f"{rows:,} records or one more"
    )


def network_kernel(folder: Path, audit: AuditConfig) -> AttackResult:
    """The same inside the network, whose weights are the server's: a feature is a
    rounding error.
    """
    rows, width = 15, 512
    h, weights, small, large = find_shape_dependent(_linear, width, rows)
    sites, server = one_record_more(folder, rows, audit, hidden=width, features=3)
    set_mlp(server.model, hidden=h, second=np.outer(np.eye(3)[0], weights))
    order = server.prepare(server.map(mean=max(small, large) / 2))
    return tell_apart(sites, order, audit.fewer_draws(), f"{rows} records or one more")


def training_kernel(folder: Path, audit: AuditConfig) -> AttackResult:
    """The same in private training: weights of 2⁵⁰ turn the sign of a logit into all of
    the gradient.
    """
    rows, width = 15, 512
    h, weights, small, large = find_shape_dependent(_linear, width, rows)
    sites, server = one_record_more(
        folder, rows, audit, training(audit), hidden=1, features=width
    )
    set_mlp(server.model, bias=h)
    head = np.append(np.outer(np.eye(3)[0], weights * HUGE), np.zeros(3))
    order = server.train(head, lr=1e25)  # those weights are negligible beside it
    first, second = (
        gradient(h, np.array([HUGE * logit, 0, 0]), 2) for logit in (small, large)
    )
    return tell_apart(
        sites, order, audit.fewer_draws(), f"{rows} records or one more", second - first
    )


def integer_map(folder: Path, audit: AuditConfig) -> AttackResult:
    """The public map as 64-bit integers, among them the smallest there is, whose
    magnitude no such integer has.

    Products of more than 53 bits are rounded, by a kernel that depends on the number of
    rows.
    """
    rows, width = 244, 512
    deviation, basis = _overflowing_map(rows, width)
    sites, server = one_record_more(folder, rows, audit, hidden=1, features=width)
    set_mlp(server.model, bias=deviation + 1024.0)
    public: Arrays = {"mean": np.full(width, 1024, np.float32), "basis": basis}
    return compare_releases(
        sites, server.prepare(public), f"{rows} records or one more"
    )


def one_record_more(
    folder: Path,
    rows: int,
    audit: AuditConfig,
    settings: dict[str, Any] | None = None,
    **mlp: int,
) -> tuple[list[AuditedSite], HostileServer]:
    """Two sites, one with a record more than the other, and a server; without other
    settings they release scores.
    """
    x, spec = (
        np.random.default_rng(0).normal(size=(rows + 1, 5)),
        PrototypeSpec.of("mlp", norm="none", **mlp),
    )
    settings = settings or scores(audit, adjacency="add-remove", declared_records=rows)
    counts = {"fewer": rows, "more": rows + 1}
    data = [
        write_rows(folder / which, x[:n], [2] * n, ("a", "b", "c"))
        for which, n in counts.items()
    ]
    sites = [audited_site(path, spec, **settings) for path in data]
    return sites, HostileServer.against(sites[0], (5,), 3)


def cancelling_pairs(width: int) -> Iterator[tuple[Floats, Floats]]:
    """(h > 0, w) whose product cancels in pairs: h·w is zero but for rounding."""
    rng = np.random.default_rng(1)
    for _ in range(TRIES):
        half = np.abs(rng.normal(size=width // 2)).astype(np.float32)
        signs, order = (
            rng.normal(size=width // 2).astype(np.float32),
            rng.permutation(width),
        )
        yield (
            np.concatenate([half, half])[order],
            np.concatenate([signs, -signs])[order],
        )


def find_shape_dependent(
    product: Product, width: int, rows: int
) -> tuple[Floats, Floats, float, float]:
    """(h, w, h·w among `rows`, h·w among one more) with products of different signs, if
    there are such.

    A hostile server could search at home: kernels choose the order of their sums by the
    shape.
    """
    for h, weights in cancelling_pairs(width):
        small, large = product(h, weights, rows), product(h, weights, rows + 1)
        uniform = small.min() == small.max() and large.min() == large.max()
        if uniform and small[0] * large[0] < 0:
            return h, weights, float(small[0]), float(large[0])
    raise AttackSkipped(AGREE)


def _overflowing_map(
    rows: int, width: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(h − μ, the map B): their product is 0, but for a rounding error whose sign the
    number of rows decides.
    """
    rng, half = np.random.default_rng(0), width // 2
    for _ in range(TRIES):
        shift, weight, order = (
            rng.integers(1, 2**10, half),
            -rng.integers(2**40, 2**62, half),
            rng.permutation(width),
        )
        deviation, column = (
            np.concatenate([shift, -shift])[order],
            np.concatenate([weight, weight])[order],
        )
        basis = np.tile(column[:, None], (1, 8))
        basis[:, 0] = np.iinfo(np.int64).min
        small, large = (
            np.tile(deviation, (n, 1)).astype(float) @ basis.astype(float)
            for n in (rows, rows + 1)
        )
        if (small[:, 1] * large[0, 1] < 0).all() and (
            large[:, 1] * small[0, 1] < 0
        ).all():
            return deviation, basis
    raise AttackSkipped(AGREE)


def _linear(h: Floats, weights: Floats, count: int) -> NDArray[Any]:
    second = torch.outer(torch.eye(3)[0], torch.from_numpy(weights))
    return torch.nn.functional.linear(
        torch.from_numpy(np.tile(h, (count, 1))), second, torch.zeros(3)
    )[:, 0].numpy()


def kept_state(folder: Path, audit: AuditConfig) -> AttackResult:
    """SCAFFOLD's control variate of plain training, in the private training that the
    owner has switched on since.
    """
    settings = training(audit, adjacency="replace-one", declared_records=0)
    settings |= {"method": "scaffold", "local": {"optimizer": "sgd", "batch_size": 8}}
    draws, direction = [], np.array([-1.0, -1.0, 0, 0, 0, 0])
    for which, row in (("one", (0.0, 0.0)), ("other", (300.0, 300.0))):
        data = write_rows(folder / which, np.array([row, *[(1, 1)] * 7]), [0] * 8)
        private = audited_site(data, **settings)
        plain = audited_site(
            data, **{**settings, "privacy": {"epsilon": audit.epsilon}}
        )
        order = replace(
            head_order(plain), method="scaffold", optimizer="sgd", run="r", lr=0.01
        )
        order = replace(order, broadcast={"c": np.zeros(6, np.float32)})
        draws.append(partial(_after_plain, plain, private, order))
    return distinguish(
        draws, audit.fewer_draws(), "a round of plain training before", direction
    )


def _after_plain(plain: AuditedSite, private: AuditedSite, order: TrainOrder) -> Vector:
    """The model of private training after a round of plain training whose reply was
    never fetched.
    """
    private.forget()
    plain.send(order)
    update = read_reply(Update, private.send(replace(order, round=2, last_round=1)))
    return np.asarray(update.weights["parameters"], np.float64)


def functional_dropout(folder: Path, audit: AuditConfig) -> AttackResult:
    """A published network that drops attention at random without a layer of its own for
    it, in private training.
    """
    transformers = _transformers()
    size = {
        "hidden_size": 4,
        "num_hidden_layers": 1,
        "num_attention_heads": 1,
        "intermediate_size": 4,
    }
    config = transformers.ViTConfig(
        **size, image_size=4, patch_size=4, attention_probs_dropout_prob=0.5
    )
    config.hidden_dropout_prob = 0.0
    network = transformers.ViTModel(config, add_pooling_layer=False).train()
    try:
        validate_module(network, training=True)
    except UnsupportedModuleError as error:
        return AttackResult.exact(False, str(error)[:200])
    return AttackResult.exact(
        True, "a network that draws its attention at random is accepted"
    )


def person(folder: Path, audit: AuditConfig) -> AttackResult:
    """A person's hundred records, all moved together, where the privacy unit is a
    person.
    """
    settings = scores(audit, unit="person", max_records_per_person=10)
    sites = [
        _persons(folder / which, row, settings)
        for which, row in (("one", (1, 0)), ("other", (0, 1)))
    ]
    return tell_apart(sites, score_order(sites[0]), audit.fewer_draws(), PERSON)


def person_training(folder: Path, audit: AuditConfig) -> AttackResult:
    """The same in private training: a person who takes part, or not."""
    settings = training(audit, unit="person", max_records_per_person=10)
    sites = [
        _persons(folder / which, row, settings)
        for which, row in (("without", None), ("with", (1000, 0)))
    ]
    direction = gradient(np.array([1000.0, 0.0]), np.zeros(2), 0)
    return tell_apart(
        sites, head_order(sites[0]), audit.fewer_draws(), PERSON, direction
    )


def _persons(
    folder: Path, row: tuple[float, float] | None, settings: dict[str, Any]
) -> AuditedSite:
    """Four persons with a record each, and one with a hundred like `row`."""
    many = 0 if row is None else 100
    x = np.array([*[row] * many, *[(1, 1)] * 4])
    data = write_rows(
        folder, x, [0] * len(x), persons=[*["many"] * many, "p", "q", "r", "s"]
    )
    return audited_site(data, person="person", **settings)


def exchanged(folder: Path, audit: AuditConfig) -> AttackResult:
    """One record of eight exchanged for its opposite in another class: sums and counts
    move by 2, as is claimed.
    """
    neighbours = {"one": ((1, 0), 0), "other": ((0, 1), 1)}
    data = [
        write_rows(folder / which, np.array([row, *[(1, 1)] * 7]), [label] + [0] * 7)
        for which, (row, label) in neighbours.items()
    ]
    sites = [audited_site(path, **scores(audit)) for path in data]
    return tell_apart(sites, score_order(sites[0]), audit.more_draws())


def added(folder: Path, audit: AuditConfig) -> AttackResult:
    """One record more in the sums and counts of φ, at a declared size."""
    settings = scores(audit, adjacency="add-remove", declared_records=8)
    sites = [
        audited_site(
            write_rows(folder / f"{n}", np.array([(1, 0)] * n), [0] * n), **settings
        )
        for n in (7, 8)
    ]
    return tell_apart(sites, score_order(sites[0]), audit.more_draws())


def looked(folder: Path, audit: AuditConfig) -> AttackResult:
    """One held-out record exchanged for one that the model gets wrong, in four equal
    tallies: it leaves a bin of each and enters another.

    Neither a network nor the account has a part in this: the counts are those that a
    client makes, and the noise is its own.
    """
    tallies = Tallies({str(number): Tally("answers") for number in range(4)})
    privacy = PrivacyConfig(look_epsilon=audit.epsilon, delta=audit.delta)
    sensitivity = tallies.sensitivity(privacy.adjacency)

    def draw(label: int) -> Vector:
        labels = np.array([label, *[0] * 7])
        logits = np.tile(np.array([1.0, 0.0], np.float32), (8, 1))
        counts = count_in_bins(tallies, 2, labels, logits, np.ones(8), {})
        summary = Summary(counts, 1 / STEPS, sensitivity, privacy.adjacency, 8)
        noisy = release(summary, "look", look_budget(privacy))
        return np.asarray(noisy.arrays["values"], np.float64)

    direction = np.tile(np.array([1.0, -1.0]), len(tallies.by_name))
    return distinguish([partial(draw, 0), partial(draw, 1)], audit, "", direction)


def trained(folder: Path, audit: AuditConfig) -> AttackResult:
    """One record more in a step of private training, with the largest gradient there
    is.
    """
    x = np.array([*[(1, 1)] * 3, (LOUD, 0)])
    sites = [
        audited_site(write_rows(folder / f"{n}", x[:n], [0] * n), **training(audit))
        for n in (3, 4)
    ]
    direction = gradient(np.array([LOUD, 0.0]), np.zeros(2), 0)
    return tell_apart(
        sites, head_order(sites[0]), audit.more_draws(), direction=direction
    )


def canaries(folder: Path, audit: AuditConfig) -> AttackResult:
    """One run of training in which each of many records takes part or not; each has a
    feature of its own.

    The auditor says of the fourth with the largest gradient that they took part, and of
    the fourth with the smallest that they did not.
    """
    # with some hundred canaries, no more than 4 can be proven
    audit = replace(audit, epsilon=min(1.0, audit.epsilon))
    included = np.array([secrets.randbits(1) for _ in range(CANARIES)], bool)
    labels = np.arange(CANARIES) % 2
    data = write_rows(
        folder / "tossed", LOUD * np.eye(CANARIES)[included], labels[included]
    )
    site = audited_site(
        data,
        PrototypeSpec.of("mlp", hidden=CANARIES, features=CANARIES, norm="none"),
        **training(audit),
    )
    server = HostileServer.against(site, (CANARIES,), 2)
    set_mlp(server.model, first=np.eye(CANARIES), second=np.eye(CANARIES))
    sums = noisy_sum(site, server.train(np.zeros(2 * CANARIES + 2)))
    # canary j moves the two weights of feature j apart, by the sign of its label
    weights, quarter = sums[: 2 * CANARIES].reshape(2, CANARIES), CANARIES // 4
    order = np.argsort((weights[1] - weights[0]) * (1 - 2 * labels))
    right, guesses = (
        int(included[order[-quarter:]].sum() + (~included[order[:quarter]]).sum()),
        2 * quarter,
    )
    bound = one_run_bound(
        CANARIES, guesses, right, audit.delta, 1 - FAILURE_PROBABILITY
    )
    detail = f"{right} of {guesses} guesses on {CANARIES} canaries are right"
    return DrawnResult(audit.epsilon, bound, detail, draws=1)


def text_length(folder: Path, audit: AuditConfig) -> AttackResult:
    """The embedding of the padding overflows: a text beside a longer one would become
    NaN, and count for nothing.
    """
    rows = [("flu", "good")] * 32
    sites = _text_sites(
        folder,
        audit,
        short=[*rows, ("flu", "good")],
        long=[*rows, ("flu", " ".join(WORDS))],
    )
    server = HostileServer.against(sites[0], (), 2)
    text: Any = server.model.features
    with torch.no_grad():
        # twice that is infinite
        text.encoder.embeddings.position_embeddings.weight.fill_(2e38)
        text.encoder.embeddings.word_embeddings.weight[text.tokenizer.pad_token_id] = (
            2e38
        )
    # φ is +1 for every row that is finite
    order = server.prepare(server.map(mean=-1e6))
    return tell_apart(
        sites, order, audit.fewer_draws(), "one of 33 texts, of 1 word or of 9"
    )


def new_label(folder: Path, audit: AuditConfig) -> AttackResult:
    """A record with an undeclared label: if classes were numbered from the records, it
    would renumber all others.
    """
    rows = [(label, "good film") for label in ("cold", "flu") for _ in range(16)]
    sites = _text_sites(
        folder, audit, known=[*rows, ("flu", "good")], new=[*rows, ("aids", "good")]
    )
    server = HostileServer.against(sites[0], (), 2)
    order = server.prepare(server.map(mean=-1e6))
    return tell_apart(sites, order, audit.fewer_draws(), "one of 33 records in a .csv")


def _text_sites(folder: Path, audit: AuditConfig, **tables: Rows) -> list[AuditedSite]:
    spec = text_prototype(folder / "words")
    paths = [
        write_csv(folder / which / "table.csv", rows) for which, rows in tables.items()
    ]
    return [audited_site(path, spec, source="csv", **scores(audit)) for path in paths]


def write_csv(path: Path, rows: Rows) -> Path:
    """A site's table, with its two classes declared beside it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        "\n".join(["label,text", *(",".join(row) for row in rows)]), encoding="utf-8"
    )
    (path.parent / "classes.txt").write_text("cold\nflu", encoding="utf-8")
    return path


def text_prototype(folder: Path) -> PrototypeSpec:
    """A network for texts as small as can be, with a vocabulary of a dozen words in a
    new folder.
    """
    folder.mkdir(parents=True)
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
    (folder / "vocab.txt").write_text("\n".join(vocabulary) + "\n", encoding="utf-8")
    _transformers().BertTokenizerFast(vocab=str(folder / "vocab.txt")).save_pretrained(
        folder
    )
    (folder / "config.json").write_text(
        json.dumps({"model_type": "bert"}), encoding="utf-8"
    )
    return PrototypeSpec.of(
        "bert", layers=1, width=12, heads=2, inner=8, length=16, tokenizer=str(folder)
    )


def _transformers() -> Any:
    try:
        return importlib.import_module("transformers")
    except ModuleNotFoundError as error:
        raise AttackSkipped(
            "transformers is not installed: pip install -e '.[text]'"
        ) from error
