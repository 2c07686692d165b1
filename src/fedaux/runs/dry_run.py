"""What a run would do, from a look at its data and a few timed steps: nothing is
trained, nothing is released.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from fedaux.config.methods import find_method
from fedaux.config.prototype import PrototypeSpec
from fedaux.config.schema import Config
from fedaux.core.errors import Exit, FedauxError
from fedaux.core.io import cache_folder
from fedaux.core.progress import track
from fedaux.data.federated import client_names, open_data, open_public
from fedaux.data.fingerprints import fingerprint_records
from fedaux.data.overlap import COMPARED_RECORDS, shared_records
from fedaux.data.partition import batch_starts
from fedaux.data.records import Records, RecordSpec, is_table
from fedaux.models import flatten_state, published_weights
from fedaux.models.inference import Footprint, available_memory, measure
from fedaux.models.networks import TableMap
from fedaux.models.pretraining.store import artifact_path
from fedaux.privacy.accounting import weak_guarantees
from fedaux.server.preparation import check_start, takes_features
from fedaux.server.server import Server, make_server

# A process that keeps the memory it frees (`core.memory.reuse_memory`) holds this many
# times what a step needs: freed arrays do not fit all new ones.
KEPT_MEMORY = 1.25


class DoesNotFitError(FedauxError):
    """A run that this machine cannot hold. The message says which settings would
    fit.
    """

    code = Exit.SETTINGS


@dataclass(frozen=True)
class DryRun:
    """Facts for readers by topic; seconds of the phases of the whole run; bytes. A run
    with problems does not fit, and one with warnings may not be what was meant.
    """

    found: Mapping[str, str]
    networks: Mapping[str, Footprint]
    seconds: Mapping[str, float]
    bytes_per_round: int  # of models, both ways
    bytes_once: int  # of extractors, to the clients that have no copy
    memory: int
    available: int
    problems: tuple[str, ...]
    warnings: tuple[str, ...] = ()

    @property
    def total_seconds(self) -> float:
        return sum(self.seconds.values())

    def raise_problems(self) -> None:
        if self.problems:
            raise DoesNotFitError(" ".join(self.problems))

    def to_dict(self) -> dict[str, Any]:
        networks = {label: vars(network) for label, network in self.networks.items()}
        return {
            **vars(self),
            "networks": networks,
            "problems": list(self.problems),
            "warnings": list(self.warnings),
            "total_seconds": self.total_seconds,
        }


def dry_run(config: Config, cache: Path | None = None) -> DryRun:
    """Read the data, build the networks, time a few steps of each."""
    server = make_server(config, cache=cache)
    check_start(server)
    networks: dict[str, Footprint] = {}
    for spec in track(config.prototypes, "timing networks"):
        network = server.networks.whole[spec.label]
        footprint = measure(network, server.public.aux)
        sent = 0  # sums of features, and no models
        if config.trains:
            sent = _bytes(server.networks.trained[spec.label])
        networks[spec.label] = replace(footprint, sent=sent)
    memory, problems = _memory(config, networks)
    chosen = max(1, round(config.fraction * len(server.clients)))
    to_pretrain = [
        networks[spec.label]
        for spec in config.prototypes
        if not _is_pretrained(server, spec)
    ]
    return DryRun(
        _findings(config),
        networks,
        _seconds(config, networks, to_pretrain, chosen),
        2 * chosen * max(network.sent for network in networks.values()),
        _bytes_once(server),
        memory,
        available_memory(),
        problems,
        _warnings(config),
    )


def _warnings(config: Config) -> tuple[str, ...]:
    """Say which part of the guarantee is worth nothing."""
    if not (config.releases or config.privacy.private_training):
        return ()
    largest = 0
    if config.data.partition != "own":
        largest = max(len(rows) for rows in open_data(config).parts)
    return tuple(weak_guarantees(config.privacy, largest))


def _bytes_once(server: Server) -> int:
    """Bytes of the extractors that clients get once, for features of their records."""
    config = server.config
    if not (config.releases or takes_features(config)):
        return 0
    total = 0
    for client in server.clients:
        extractor = server.networks.extractors[server.label_of(client)]
        if not (server.method.pretrained and published_weights(extractor)):
            total += _bytes(extractor)
    return total


def _bytes(network: nn.Module) -> int:
    return sum(array.nbytes for array in flatten_state(network).values())


def _is_pretrained(server: Server, spec: PrototypeSpec) -> bool:
    """Whether a prototype's extractor is published, in the cache, or for rows of
    numbers, on which only `tabular` is pre-trained.
    """
    extractor = server.networks.extractors[spec.label]
    if is_table(server.public.aux.x) and not isinstance(extractor, TableMap):
        return True
    if published_weights(extractor):
        return True
    path = artifact_path(
        spec,
        fingerprint_records(server.public.aux),
        server.config.pretrain.for_records(len(server.public.aux)),
        server.cache or cache_folder(),
    )
    return path.is_file()


def _findings(config: Config) -> dict[str, str]:
    """Counts per class, sizes, channels, and records that are in several parts."""
    public = open_public(config)
    records = {"test": public.test, "auxiliary": public.aux}
    findings = {
        "records": RecordSpec.of(public.test).description,
        "classes": _counts(public.test, public.classes, "test"),
        "test": f"{len(public.test):,} records",
    }
    if not len(public.test):
        del records["test"]
        findings["classes"] = ", ".join(public.classes)
        findings["test"] = (
            "no records at the server: the final model is tested at the sites, at "
            f"ε = {config.privacy.look_epsilon:g}"
        )
    if config.data.partition != "own":
        data = open_data(config)
        records = {"private": data.private, **records}
        sizes = [len(rows) for rows in data.parts]
        per_client = f"{min(sizes):,}"
        if min(sizes) != max(sizes):
            per_client += f" to {max(sizes):,}"
        findings["private"] = (
            f"{len(data.private):,} records at {len(sizes)} clients, {per_client} each"
        )
        findings["classes"] = _counts(data.private, data.classes, "private")
    findings["auxiliary"] = f"{len(public.aux):,} records"
    findings["duplicates"] = describe_duplicates(records)
    return findings


def _counts(records: Records, classes: tuple[str, ...], kind: str) -> str:
    counts = np.bincount(records.labels, minlength=len(classes))
    pairs = list(zip(classes, counts, strict=False))
    shown = ", ".join(f"{name} {count:,}" for name, count in pairs[:20])
    if len(classes) > 20:
        shown += ", …"
    return f"{shown} ({kind})"


def describe_duplicates(records: Mapping[str, Records]) -> str:
    """How many records two parts share, to the byte. In large parts a random sample is
    compared.
    """
    shared: list[str] = []
    for first, second in combinations(records, 2):
        count = shared_records(records[first], records[second]).count
        if count:
            shared.append(f"{count:,} in both {first} and {second}")
    line = ", ".join(shared) or "none between " + ", ".join(records)
    if max(map(len, records.values())) > COMPARED_RECORDS:
        line += f", of {COMPARED_RECORDS:,} of each"
    return line


def _memory(
    config: Config, networks: Mapping[str, Footprint]
) -> tuple[int, tuple[str, ...]]:
    """(bytes of the process at its largest step, what does not fit and what would)."""
    free = 0.8 * available_memory()
    batch_sizes = _batch_sizes(config)
    largest = 0
    problems: list[str] = []
    for label, network in networks.items():
        for key, rows in batch_sizes.items():
            needed = math.ceil(KEPT_MEMORY * network.training_memory(rows))
            largest = max(largest, needed)
            if needed <= free:
                continue
            advice = "Take a smaller network"
            fits = network.largest_batch(free / KEPT_MEMORY)
            if fits:
                advice = f"Set {key} = {1 << (fits.bit_length() - 1)}"
            problems.append(
                f"Cannot train {label}: a step with {rows} rows needs about "
                f"{needed / 1e9:.1f} GB, and {free / 1e9:.1f} GB are free. {advice}, "
                "or choose smaller images with data.options.size and "
                "aux.options.size."
            )
    return largest, tuple(problems)


def _batch_sizes(config: Config) -> dict[str, int]:
    """Return the rows of a step of each kind of training, by the setting for them."""
    method = find_method(config.method)
    aux = len(open_public(config).aux)
    rows = {"local.batch_size": config.local.batch_size}
    if method.pretrained and config.pretrain.trains and not config.head_only:
        views = 2 * min(config.pretrain.batch_size, aux)
        micro = config.pretrain.micro_batch_size or views
        rows["pretrain.micro_batch_size"] = min(micro, views)
    if method.distils:
        rows["distill.batch_size"] = min(config.distill.batch_size, aux)
    return rows


def _seconds(
    config: Config,
    networks: Mapping[str, Footprint],
    to_pretrain: Sequence[Footprint],
    chosen: int,
) -> dict[str, float]:
    """Estimate the seconds of each phase of the whole run, from the numbers of records
    and the time for one.
    """
    method = find_method(config.method)
    public = open_public(config)
    aux = len(public.aux)
    test = len(public.test)
    clients = max(len(client_names(config)), 1)
    private = 0
    if config.data.partition != "own":
        private = len(open_data(config).private)
    forward = float(np.mean([network.forward for network in networks.values()]))
    step = float(np.mean([network.step for network in networks.values()]))
    rounds = config.rounds
    seconds: dict[str, float] = {}
    if method.pretrained and config.pretrain.trains:
        views = 2 * aux * config.pretrain.for_records(aux).epochs
        seconds["pre-training"] = sum(views * network.step for network in to_pretrain)
    if config.releases or config.head_only:
        seconds["features"] = (private + aux + test) * forward
    if not config.head_only and not method.analytic:
        trained = private * chosen / clients * config.local.epochs * rounds
        seconds["local training"] = trained * step
        seconds["tests"] = rounds * test * forward * len(networks)
    if method.distils and not config.head_only:
        distilled = round((1 - config.aux.negatives) * aux)
        distilled = min(distilled, config.teachers.examples or distilled)
        seconds["teachers"] = rounds * chosen * distilled * forward
        batch = config.distill.batch_size
        batches = len(batch_starts(distilled, batch))
        steps = sum(config.distill_steps(r + 1, batches) for r in range(rounds))
        rows = steps * min(batch, distilled)
        seconds["distillation"] = rows * step * len(networks)
    return seconds
