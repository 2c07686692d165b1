"""Attacks by one record on what the others contribute: its presence, or all records of a person together."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fedaux.audit.attack_result import AttackResult, AttackSkipped, AuditConfig, Draw, distinguish
from fedaux.audit.site import NAME, Server, Site, Vector, compare_releases, set_mlp, write_rows
from fedaux.config.prototype import PrototypeSpec
from fedaux.core.messages import Arrays, PrepareOrder, TrainOrder, Update
from fedaux.flower.federation import read_reply
from fedaux.privacy.module_validation import UnsupportedModuleError, validate_module

Floats = NDArray[np.float32]
Product = Callable[[Floats, Floats, int], NDArray[Any]]  # (h, w, n) → h·w, n times over, by a kernel for n rows
TRIES = 500  # of the search for vectors on which kernels disagree
MANY = 10**6  # declared records: gradients are divided by it, which lets Adam's first step be inverted
HUGE = 2.0**50  # a power of two: no product is rounded differently
PERSON = "100 of 104 records, of which 10 are used"
IDENTITY = PrototypeSpec.of("mlp", hidden=2, features=2, norm="none")


def scores(audit: AuditConfig, **more: Any) -> dict[str, Any]:
    """Settings of a site that releases scores."""
    return {"privacy": {"epsilon": audit.epsilon, "delta": audit.delta, **more}}


def training(audit: AuditConfig, **more: Any) -> dict[str, Any]:
    """Settings of a site that trains heads for one round, in one step on all records, under add-remove."""
    privacy = {
        "epsilon": audit.epsilon,
        "epsilon_total": audit.epsilon,
        "delta": audit.delta,
        "train_rounds": 1,
        "private_training": True,
        "sample_rate": 1.0,
        "adjacency": "add-remove",
        "declared_records": MANY,
    }
    return {"method": "fedavg", "head_only": True, "rounds": 1, "privacy": {**privacy, **more}}


def map_kernel(folder: Path, audit: AuditConfig) -> AttackResult:
    """All features are equal, and the public map's product with them has the sign that the kernel gives it."""
    rows, width = 1953, 128

    def product(h: Floats, column: Floats, count: int) -> NDArray[Any]:
        return (np.tile(h, (count, 1)).astype(np.float64) @ np.outer(column, np.eye(4)[0]))[:, 0]

    h, column, *_ = find_shape_dependent(product, width, rows)
    spec = PrototypeSpec.of("mlp", hidden=1, features=width, norm="none")
    settings = scores(audit, adjacency="add-remove", declared_records=rows)
    sites, server = one_record_more(folder, rows, spec, settings)
    set_mlp(server.model, bias=h)
    basis = np.outer(column, np.eye(4)[0]).astype(np.float32)
    order = server.prepare({"mean": np.zeros(width, np.float32), "basis": basis})
    draws = [partial(site.values, order) for site in sites]
    return distinguish(draws, audit.fewer_draws(), f"{rows:,} records or one more")


def network_kernel(folder: Path, audit: AuditConfig) -> AttackResult:
    """The same inside the network, whose weights are the server's: a feature is a rounding error."""
    rows, width = 15, 512
    h, weights, small, large = find_shape_dependent(_linear, width, rows)
    spec = PrototypeSpec.of("mlp", hidden=width, features=3, norm="none")
    settings = scores(audit, adjacency="add-remove", declared_records=rows)
    sites, server = one_record_more(folder, rows, spec, settings)
    set_mlp(server.model, hidden=h, second=np.outer(np.eye(3)[0], weights))
    order = server.prepare(server.map(mean=max(small, large) / 2))
    draws = [partial(site.values, order) for site in sites]
    return distinguish(draws, audit.fewer_draws(), f"{rows} records or one more")


def training_kernel(folder: Path, audit: AuditConfig) -> AttackResult:
    """The same in private training: weights of 2⁵⁰ turn the sign of a logit into all of the gradient."""
    rows, width = 15, 512
    h, weights, small, large = find_shape_dependent(_linear, width, rows)
    spec = PrototypeSpec.of("mlp", hidden=1, features=width, norm="none")
    sites, server = one_record_more(folder, rows, spec, training(audit))
    set_mlp(server.model, bias=h)
    head = np.append(np.outer(np.eye(3)[0], weights * HUGE), np.zeros(3))
    order = server.train(head, lr=1e25)  # those weights are negligible beside it
    first, second = (gradient(h, np.array([HUGE * logit, 0, 0]), 2) for logit in (small, large))
    draws = [partial(site.noisy_sum, order) for site in sites]
    return distinguish(draws, audit.fewer_draws(), f"{rows} records or one more", second - first)


def integer_map(folder: Path, audit: AuditConfig) -> AttackResult:
    """The public map as 64-bit integers, among them the smallest there is, whose magnitude no such integer has.

    Products of more than 53 bits are rounded, by a kernel that depends on the number of rows.
    """
    rows, width = 244, 512
    deviation, basis = _overflowing_map(rows, width)
    spec = PrototypeSpec.of("mlp", hidden=1, features=width, norm="none")
    settings = scores(audit, adjacency="add-remove", declared_records=rows)
    sites, server = one_record_more(folder, rows, spec, settings)
    set_mlp(server.model, bias=deviation + 1024.0)
    public: Arrays = {"mean": np.full(width, 1024, np.float32), "basis": basis}
    return compare_releases(sites, server.prepare(public), audit, f"{rows} records or one more")


def _overflowing_map(rows: int, width: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(h − μ, the map B): their product is 0, but for a rounding error whose sign the number of rows decides."""
    rng, half = np.random.default_rng(0), width // 2
    for _ in range(TRIES):
        shift, weight, order = rng.integers(1, 2**10, half), -rng.integers(2**40, 2**62, half), rng.permutation(width)
        deviation, column = np.concatenate([shift, -shift])[order], np.concatenate([weight, weight])[order]
        basis = np.tile(column[:, None], (1, 8))
        basis[:, 0] = np.iinfo(np.int64).min
        small, large = (np.tile(deviation, (n, 1)).astype(float) @ basis.astype(float) for n in (rows, rows + 1))
        if (small[:, 1] * large[0, 1] < 0).all() and (large[:, 1] * small[0, 1] < 0).all():
            return deviation, basis
    raise AttackSkipped("the matrix kernels of this machine agree on all that was tried")


def kept_state(folder: Path, audit: AuditConfig) -> AttackResult:
    """SCAFFOLD's control variate of plain training, in the private training that the owner has switched on since."""
    settings = training(audit, adjacency="replace-one", declared_records=0)
    settings |= {"method": "scaffold", "local": {"optimizer": "sgd", "batch_size": 8}}
    draws, direction = [], np.array([-1.0, -1.0, 0, 0, 0, 0])
    for which, row in (("one", (0.0, 0.0)), ("other", (300.0, 300.0))):
        data = write_rows(folder / which, np.array([row, *[(1, 1)] * 7]), [0] * 8, ("a", "b"))
        private = Site.at(data, IDENTITY, **settings)
        plain = Site.at(data, IDENTITY, **{**settings, "privacy": {"epsilon": audit.epsilon}})
        order = replace(head_order(plain), method="scaffold", optimizer="sgd", run="r", lr=0.01)
        order = replace(order, broadcast={"c": np.zeros(6, np.float32)})
        draws.append(partial(_after_plain, plain, private, order))
    return distinguish(draws, audit.fewer_draws(), "a round of plain training before", direction)


def _after_plain(plain: Site, private: Site, order: TrainOrder) -> Vector:
    """The model of private training after a round of plain training, whose reply nobody took."""
    private.forget()
    plain.send(order)
    update = read_reply(Update, private.send(replace(order, round=2, last_round=1)))
    return np.asarray(update.weights["parameters"], np.float64)


def functional_dropout(folder: Path, audit: AuditConfig) -> AttackResult:
    """A published network that drops attention at random without a layer of its own for it, in private training."""
    try:
        transformers = importlib.import_module("transformers")
    except ModuleNotFoundError as error:
        raise AttackSkipped("transformers is not installed: pip install 'fedaux[text]'") from error
    size = {"hidden_size": 4, "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 4}
    config = transformers.ViTConfig(**size, image_size=4, patch_size=4, attention_probs_dropout_prob=0.5)
    config.hidden_dropout_prob = 0.0
    network = transformers.ViTModel(config, add_pooling_layer=False).train()
    try:
        validate_module(network, training=True)
    except UnsupportedModuleError as error:
        return AttackResult.exact(False, str(error)[:200])
    return AttackResult.exact(True, "a network that draws its attention at random is accepted")


def person(folder: Path, audit: AuditConfig) -> AttackResult:
    """A person's hundred records, all moved together, where the privacy unit is a person."""
    settings = scores(audit, unit="person", max_records_per_person=10)
    sites = [_persons(folder / which, row, settings) for which, row in (("one", (1, 0)), ("other", (0, 1)))]
    return distinguish(opposite_scores(sites), audit.fewer_draws(), PERSON)


def person_training(folder: Path, audit: AuditConfig) -> AttackResult:
    """The same in private training: a person who takes part, or not."""
    settings = training(audit, unit="person", max_records_per_person=10)
    sites = [_persons(folder / which, row, settings) for which, row in (("without", None), ("with", (1000, 0)))]
    order = head_order(sites[0])
    direction = gradient(np.array([1000.0, 0.0]), np.zeros(2), 0)
    draws = [partial(site.noisy_sum, order) for site in sites]
    return distinguish(draws, audit.fewer_draws(), PERSON, direction)


def score_order(site: Site, scale: float = 1.0, client: str = NAME) -> PrepareOrder:
    """Asks for scores under a map that has the records (1, 0) and (0, scale) at opposite φ."""
    server = _identity_server(site)
    return server.prepare(server.map(column=np.array([1.0, -scale])), client)


def head_order(site: Site, round_: int = 1) -> TrainOrder:
    """Asks for a step of training from a head of zeros, with records as features."""
    return replace(_identity_server(site).train(np.zeros(6)), round=round_)


def opposite_scores(sites: Sequence[Site]) -> list[Draw]:
    """Releases of the sites for `score_order`."""
    order = score_order(sites[0])
    return [partial(site.values, order) for site in sites]


def cancelling_pairs(width: int) -> Iterator[tuple[Floats, Floats]]:
    """(h > 0, w) whose product cancels in pairs: h·w is zero but for rounding."""
    rng = np.random.default_rng(1)
    for _ in range(TRIES):
        half = np.abs(rng.normal(size=width // 2)).astype(np.float32)
        signs, order = rng.normal(size=width // 2).astype(np.float32), rng.permutation(width)
        yield np.concatenate([half, half])[order], np.concatenate([signs, -signs])[order]


def find_shape_dependent(product: Product, width: int, rows: int) -> tuple[Floats, Floats, float, float]:
    """(h, w, h·w among `rows`, h·w among one more) with products of different signs, if there are such.

    A hostile server could search at home: kernels choose the order of their sums by the shape.
    """
    for h, weights in cancelling_pairs(width):
        small, large = product(h, weights, rows), product(h, weights, rows + 1)
        uniform = small.min() == small.max() and large.min() == large.max()
        if uniform and small[0] * large[0] < 0:
            return h, weights, float(small[0]), float(large[0])
    raise AttackSkipped("the matrix kernels of this machine agree on all that was tried")


def one_record_more(
    folder: Path, rows: int, spec: PrototypeSpec, settings: dict[str, Any]
) -> tuple[list[Site], Server]:
    """Two sites, one with a record more than the other, and a server."""
    x = np.random.default_rng(0).normal(size=(rows + 1, 5))
    counts = {"fewer": rows, "more": rows + 1}
    data = [write_rows(folder / which, x[:n], [2] * n, ("a", "b", "c")) for which, n in counts.items()]
    sites = [Site.at(path, spec, **settings) for path in data]
    return sites, Server.against(sites[0], (5,), 3)


def gradient(h: NDArray[Any], logits: Vector, label: int) -> Vector:
    """A record's clipped gradient by the head (W, b), flattened, as an attacker who knows the record computes it."""
    probabilities = np.exp(logits - logits.max())
    error = probabilities / probabilities.sum() - np.eye(len(logits))[label]
    flat = np.append(np.outer(error, h).ravel(), error)
    return np.asarray(flat / max(1.0, float(np.linalg.norm(flat))))


def _identity_server(site: Site) -> Server:
    """A server whose network returns two positive numbers as they are."""
    server = Server.against(site, (2,), 2)
    set_mlp(server.model, first=np.eye(2), second=np.eye(2))
    return server


def _linear(h: Floats, weights: Floats, count: int) -> NDArray[Any]:
    second = torch.outer(torch.eye(3)[0], torch.from_numpy(weights))
    return torch.nn.functional.linear(torch.from_numpy(np.tile(h, (count, 1))), second, torch.zeros(3))[:, 0].numpy()


def _persons(folder: Path, row: tuple[float, float] | None, settings: dict[str, Any]) -> Site:
    """Four persons with a record each, and one with a hundred like `row`."""
    many = 0 if row is None else 100
    x = np.array([*[row] * many, *[(1, 1)] * 4])
    data = write_rows(folder, x, [0] * len(x), ("a", "b"), [*["many"] * many, "p", "q", "r", "s"])
    return Site.at(data, IDENTITY, person="person", **settings)
