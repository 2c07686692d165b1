"""What a run would do, from a look at its data and a few timed steps: nothing is
trained, nothing is released.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from fedaux.config.methods import find_method
from fedaux.config.schema import Config
from fedaux.core.errors import Exit, FedauxError
from fedaux.core.io import cache_folder
from fedaux.core.progress import track
from fedaux.data.federated import (
    SAMPLE,
    client_names,
    open_data,
    open_public,
    shared_records,
)
from fedaux.data.fingerprints import fingerprint_records
from fedaux.data.records import Records, RecordSpec
from fedaux.models import published_weights
from fedaux.models.inference import Footprint, available_memory, measure
from fedaux.models.pretraining.store import artifact_path
from fedaux.server.server import make_server


class DoesNotFitError(FedauxError):
    """A run that this machine cannot hold; the message says which settings would
    fit.
    """

    code = Exit.SETTINGS


@dataclass(frozen=True)
class DryRun:
    """Facts for readers by topic; seconds of the phases of the whole run; bytes."""

    found: Mapping[str, str]
    networks: Mapping[str, Footprint]
    seconds: Mapping[str, float]
    bytes_per_round: int
    memory: int
    available: int
    problems: tuple[str, ...]

    @property
    def total_seconds(self) -> float:
        return sum(self.seconds.values())

    def raise_problems(self) -> None:
        if self.problems:
            raise DoesNotFitError(" ".join(self.problems))

    def to_dict(self) -> dict[str, Any]:
        networks = {label: vars(one) for label, one in self.networks.items()}
        return {
            **vars(self),
            "networks": networks,
            "problems": list(self.problems),
            "total_seconds": self.total_seconds,
        }


def dry_run(config: Config, cache: Path | None = None) -> DryRun:
    """Read the data, build the networks, time a few steps of each."""
    server = make_server(config, cache=cache)
    networks = {
        spec.label: measure(server.networks.whole[spec.label], server.public.aux)
        for spec in track(config.prototypes, "timing networks")
    }
    memory, problems = _memory(config, networks)
    asked = max(1, round(config.fraction * len(server.clients)))
    sent = 2 * asked * max(one.sent for one in networks.values())
    cached = {
        spec.label: bool(published_weights(server.networks.extractors[spec.label]))
        or artifact_path(
            spec,
            fingerprint_records(server.public.aux),
            config.pretrain,
            cache or cache_folder(),
        ).is_file()
        for spec in config.prototypes
    }
    seconds = _seconds(config, networks, cached, asked)
    return DryRun(
        _found(config), networks, seconds, sent, memory, available_memory(), problems
    )


def _found(config: Config) -> dict[str, str]:
    """Counts per class, sizes, channels, and records that are in several parts."""
    public = open_public(config)
    spec, parts = (
        RecordSpec.of(public.test),
        {"test": public.test, "auxiliary": public.aux},
    )
    found = {
        "records": spec.description,
        "classes": _counts(public.test, public.classes, "test"),
    }
    if config.data.partition != "own":
        data = open_data(config)
        parts = {"private": data.private, **parts}
        sizes = [len(part) for part in data.parts]
        each = (
            f"{min(sizes):,}"
            if min(sizes) == max(sizes)
            else f"{min(sizes):,} to {max(sizes):,}"
        )
        found["private"] = (
            f"{len(data.private):,} records at {len(sizes)} clients, {each} each"
        )
        found["classes"] = _counts(data.private, data.classes, "private")
    found["test"], found["auxiliary"] = (
        f"{len(public.test):,} records",
        f"{len(public.aux):,} records",
    )
    found["duplicates"] = describe_duplicates(parts)
    return found


def _counts(records: Records, classes: tuple[str, ...], part: str) -> str:
    counts = np.bincount(records.labels, minlength=len(classes))
    shown = ", ".join(
        f"{name} {count:,}"
        for name, count in list(zip(classes, counts, strict=False))[:20]
    )
    return f"{shown}{', …' if len(classes) > 20 else ''} ({part})"


def describe_duplicates(parts: Mapping[str, Records]) -> str:
    """How many records two parts share, to the byte; of large parts a random sample is
    compared.
    """
    found = {
        (a, b): shared_records(parts[a], parts[b]) for a, b in combinations(parts, 2)
    }
    shared = [
        f"{one.count:,} in both {a} and {b}"
        for (a, b), one in found.items()
        if one.count
    ]
    sampled = (
        f", of {SAMPLE:,} of each" if max(map(len, parts.values())) > SAMPLE else ""
    )
    return (", ".join(shared) or "none between " + ", ".join(parts)) + sampled


def _memory(
    config: Config, networks: Mapping[str, Footprint]
) -> tuple[int, tuple[str, ...]]:
    """(bytes of the largest step, what does not fit and what would)."""
    method, free, problems = find_method(config.method), 0.8 * available_memory(), []
    aux = len(open_public(config).aux)
    steps = {"local.batch_size": config.local.batch_size}
    if method.pretrained and config.pretrain.epochs and not config.head_only:
        views = 2 * min(config.pretrain.batch_size, aux)
        steps["pretrain.micro_batch_size"] = min(
            config.pretrain.micro_batch_size or views, views
        )
    if method.distils:
        steps["distill.batch_size"] = min(config.distill.batch_size, aux)
    largest = 0
    for label, one in networks.items():
        for key, rows in steps.items():
            needed = one.training_memory(rows)
            largest = max(largest, needed)
            if needed > free:
                fits = one.largest_batch(free)
                advice = (
                    f"set {key} = {1 << (fits.bit_length() - 1)}"
                    if fits
                    else "take a smaller network"
                )
                problems.append(
                    f"{label}: a step with {rows} rows needs about {needed / 1e9:.1f} "
                    f"GB, and {free / 1e9:.1f} GB are free: {advice}, or smaller "
                    "images, data.options.size and aux.options.size."
                )
    return largest, tuple(problems)


def _seconds(
    config: Config,
    networks: Mapping[str, Footprint],
    cached: Mapping[str, bool],
    asked: int,
) -> dict[str, float]:
    """Estimate the seconds of each phase of the whole run, from the numbers of records
    and the time for one.
    """
    method, public = find_method(config.method), open_public(config)
    aux, test = len(public.aux), len(public.test)
    clients = max(len(client_names(config)), 1)
    private = len(open_data(config).private) if config.data.partition != "own" else 0
    distilled = round((1 - config.aux.negatives) * aux)
    distilled = min(distilled, config.teachers.examples or distilled)
    steps = (
        config.distill.steps * config.distill.batch_size
        or config.distill.epochs * distilled
    )
    mean = {
        name: float(np.mean([getattr(one, name) for one in networks.values()]))
        for name in ("forward", "step")
    }
    new = [networks[label] for label, known in cached.items() if not known]
    found: dict[str, float] = {}
    if method.pretrained and config.pretrain.epochs:
        found["pre-training"] = sum(
            2 * aux * config.pretrain.epochs * one.step for one in new
        )
    if config.releases or config.head_only:
        found["features"] = (private + aux + test) * mean["forward"]
    if not config.head_only and not method.analytic:
        trained = private * asked / clients * config.local.epochs * config.rounds
        found["local training"] = trained * mean["step"]
        found["tests"] = config.rounds * test * mean["forward"] * len(networks)
    if method.distils and not config.head_only:
        found["teachers"] = config.rounds * asked * distilled * mean["forward"]
        found["distillation"] = config.rounds * steps * mean["step"] * len(networks)
    return found
