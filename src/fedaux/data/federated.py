"""The data of a federation: disjoint private records, test data and auxiliary data.

Simulated clients split one source between them. Real sites (`data.partition = "own"`)
read their own source: `[data]` in a site's settings is its private data, `[data]` in
the server's is labelled test data, and classes are declared
(`labels.declared_classes`).

Private records among public ones would be shown, sent and distilled on as public:
overlap is refused.
"""

from __future__ import annotations

import hashlib
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from fedaux.config.parsing import ConfigError
from fedaux.config.schema import Config
from fedaux.config.sections import AuxConfig, DataConfig
from fedaux.core.errors import FedauxError
from fedaux.core.rng import numpy_stream
from fedaux.data.labels import (
    declared_classes,
    named_by_numbers,
    relabel,
    relabel_strictly,
)
from fedaux.data.partition import class_counts, partition
from fedaux.data.records import Corpus, Indices, Records, is_text
from fedaux.data.sources import SOURCES, accepts, can_be_private, open_source

SAMPLE = 50_000  # records of a set that are compared, drawn at random from a larger one
FEW = 8  # records of a client, or of the test set: with fewer, a figure says nothing
TOLERATED = 0.01  # share of equal records that may be chance; a notice tells of them


@dataclass(frozen=True, eq=False)
class FederatedData:
    """All data of simulated clients and their server."""

    private: Records
    parts: tuple[Indices, ...]  # positions in `private`, one array per client
    # or, with data.validation_fraction, validation records in their place
    test: Records
    aux: Records
    classes: tuple[str, ...]
    clients: tuple[str, ...]  # names, in the order of `parts`
    notes: tuple[str, ...] = ()  # remarks on the sources for the user

    def client(self, index: int) -> Records:
        return self.private.take(self.parts[index])

    @cached_property
    def index_of(self) -> dict[str, int]:
        """The position of a client by its name."""
        return {name: index for index, name in enumerate(self.clients)}

    def counts(self) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
        """Number of records of each class (columns) at each client (rows)."""
        return class_counts(self.private.labels, list(self.parts), len(self.classes))


@dataclass(frozen=True, eq=False)
class ServerData:
    """The server's data."""

    aux: Records
    test: Records
    classes: tuple[str, ...]
    notes: tuple[str, ...] = ()
    # of simulated clients together; real sites' are not known here
    private_records: int = 0


def client_names(config: Config) -> list[str]:
    return list(
        config.federation.sites or map(_simulated_name, range(config.data.clients))
    )


def client_name(config: Config, index: int) -> str:
    """One of `client_names`, without the others."""
    sites = config.federation.sites
    return sites[index] if sites else _simulated_name(range(config.data.clients)[index])


def _simulated_name(index: int) -> str:
    return f"client-{index:03d}"


def open_data(config: Config) -> FederatedData:
    """Read the data of all simulated clients and their server, and split them; the
    result is cached per process.

    Args:
        config: The settings, of which `data`, `aux`, `seed` and `federation.sites` are
            used.

    Returns:
        The private records with each client's part, the test records, the auxiliary
        records and the classes.
    """
    if config.data.partition == "own":
        raise ValueError(
            "data.partition = 'own': each site reads its own data, there is no common "
            "split to open"
        )
    return _split(config.data, config.aux, config.seed, config.federation.sites)


@lru_cache(maxsize=4)
def open_public(config: Config) -> ServerData:
    """Read the server's data. A real server has its own labelled test data and
    auxiliary data.
    """
    if config.data.partition != "own":
        data = open_data(config)
        return ServerData(
            data.aux, data.test, data.classes, data.notes, len(data.private)
        )
    if not config.aux.source:
        raise ValueError(
            "data.partition = 'own' needs aux.source: there is no private data here to "
            "hold some out of"
        )
    classes = class_names(config)
    refuse_same_source(config.data, config.aux)
    corpus = _cached_corpus(replace(config.data, person=""))  # test data is public
    tested = (
        corpus if corpus.test is None else replace(corpus, train=corpus.test, test=None)
    )
    corpus = relabel_strictly(tested, classes)
    public = _open_auxiliary(config.aux, corpus.train, strict=config.data.strict)
    return ServerData(
        public.train.unlabelled(), corpus.train, classes, (*corpus.notes, *public.notes)
    )


def open_auxiliary(config: Config) -> Records:
    """Read the auxiliary data alone, for a client that has its own copy."""
    if config.data.partition != "own":
        return open_data(config).aux
    if not config.aux.source:
        raise ConfigError(
            "teachers.run_on = 'clients' needs aux.source, the public data that the "
            "server has as well."
        )
    return _cached_auxiliary(config.aux).train.unlabelled()


def open_private(config: Config, client: str) -> tuple[Records, tuple[str, ...]]:
    """Return a client's records and the class names: its part of the split, or all
    records of a real site's source.

    Labels that a real site has not declared are `UNDECLARED`.
    """
    if config.data.partition != "own":
        data = open_data(config)
        return data.client(data.index_of[client]), data.classes
    classes = class_names(config, client)
    return _cached_private(
        replace(config.data, path=config.data.path.replace("{client}", client)), classes
    ), classes


def class_names(config: Config, client: str = "") -> tuple[str, ...]:
    """Return the names of all classes. Real sites declare them, and read no data to
    find them.
    """
    if config.data.partition != "own":
        return open_data(config).classes
    return declared_classes(
        replace(config.data, path=config.data.path.replace("{client}", client))
    )


def read_private(data: DataConfig, classes: tuple[str, ...]) -> Records:
    """Read all records of a site's own source, which accepts `declared` and rejects no
    record for its content.

    A user's own source need not accept it; its author then vouches for the source.
    """
    if not can_be_private(data.source):
        able = ", ".join(name for name in SOURCES if accepts(name, "declared"))
        raise ConfigError(
            f"data.source = {data.source!r} reads a published data set as a whole, in "
            "which one record may decide on others. A site's own records can be read "
            f"with {able}, or with a function of your own, module:function."
        )
    lenient = {"declared": classes} if accepts(data.source, "declared") else {}
    return relabel(_open_corpus(data, **lenient), classes).train


_cached_private = lru_cache(maxsize=64)(read_private)


def _open_corpus(data: DataConfig, **options: Any) -> Corpus:
    person = {"person": data.person} if data.person else {}
    given = {
        **dict(data.options),
        **_strictly(data.source, data.strict),
        **person,
        **options,
    }
    return open_source(data.source, data.path or None, **given)


def _strictly(source: str, strict: bool) -> dict[str, bool]:
    return {"strict": True} if strict and accepts(source, "strict") else {}


_cached_corpus = lru_cache(maxsize=64)(_open_corpus)


def _open_auxiliary(
    aux: AuxConfig,
    like: Records | None = None,
    held_out: Records | None = None,
    strict: bool = False,
) -> Corpus:
    options = {
        **dict(aux.options),
        **(_strictly(aux.source, strict) if aux.source else {}),
    }
    if aux.source and accepts(aux.source, "folders"):
        options["folders"] = "classes"  # of any kind: nobody reads the labels
    corpus = (
        Corpus(held_out)
        if held_out is not None
        else open_source(aux.source, aux.path or None, **options)
    )
    public = corpus.train
    if aux.limit:
        public = public.take(
            np.sort(
                numpy_stream(0, "aux", "limit").permutation(len(public))[: aux.limit]
            )
        )
    if like is not None and like.x.shape[1:] == public.x.shape[1:]:
        _refuse_other_dtype(like, public)
    if like is not None and public.shape != like.shape:
        raise ValueError(
            f"auxiliary rows have shape {public.shape}, private rows {like.shape}; "
            "use the source's `size` option, or another auxiliary source"
        )
    return Corpus(public, notes=corpus.notes)


def _refuse_other_dtype(private: Records, public: Records) -> None:
    """Refuse numbers of another kind: a network would be pre-trained on one scale and
    see another.
    """
    if is_text(private.x) != is_text(public.x) or private.x.dtype != public.x.dtype:
        raise ConfigError(
            f"private records are {_dtype(private)} and auxiliary ones "
            f"{_dtype(public)}: give both the same type, images as uint8 from 0 to "
            "255, other numbers as float32."
        )


def _dtype(records: Records) -> str:
    return "texts" if is_text(records.x) else str(records.x.dtype)


def _few_records(
    parts: Sequence[Indices], test: Records, clients: Sequence[str]
) -> list[str]:
    """Warn of parts that are too small to learn or to measure anything."""
    sizes = {name: len(part) for name, part in zip(clients, parts, strict=True)}
    few = [f"{name} has {size}" for name, size in sizes.items() if size < FEW]
    found = [
        *few[:3],
        *(
            [f"{len(few) - 3} more clients have fewer than {FEW}"]
            if len(few) > 3
            else []
        ),
    ]
    if len(test) < FEW:
        found.append(f"there are {len(test)} to test on")
    return (
        [f"very few records: {', '.join(found)}; accuracies will be chance"]
        if found
        else []
    )


_cached_auxiliary = lru_cache(maxsize=4)(_open_auxiliary)


@lru_cache(maxsize=4)
def _split(
    data: DataConfig, aux: AuxConfig, seed: int, sites: tuple[str, ...]
) -> FederatedData:
    """Disjoint: test, auxiliary and private records; and validation records, which are
    then all that is evaluated on.

    Nothing depends on the test records where there are validation records.
    """
    refuse_same_source(data, aux)
    by_folder = data.partition == "folders"
    if by_folder and not accepts(data.source, "sites"):
        raise ConfigError(
            "data.partition = 'folders' is for data.source = 'images', not "
            f"{data.source!r}."
        )
    corpus = _cached_corpus(data, **({"sites": sites} if by_folder else {}))
    test, validated = corpus.test, data.validation_fraction > 0
    if validated:
        corpus = replace(corpus, test=None)
    rng = numpy_stream(seed, "split")
    order, drawn = rng.permutation(len(corpus.train)), None
    if test is None:
        drawn, order = _hold_out_test(order, data, seed)
    if data.classes:
        corpus = relabel_strictly(corpus, data.classes)
    else:
        corpus = named_by_numbers(corpus, order if validated else slice(None))
    test = corpus.test or test if drawn is None else corpus.train.take(np.sort(drawn))
    assert test is not None
    training = corpus.train.take(order)
    held_out: Records | None = None
    if not aux.source:
        held, order = np.split(order, [round(aux.fraction * len(order))])
        held_out = corpus.train.take(np.sort(held))
    public = _open_auxiliary(aux, corpus.train, held_out, data.strict)
    equal = refuse_overlap(corpus.train, public.train) if held_out is None else ""
    if validated:
        held, order = np.split(order, [round(data.validation_fraction * len(order))])
        test = corpus.train.take(np.sort(held))
    classes = corpus.classes
    for name, part in (
        ("training", training),
        ("validation" if validated else "test", test),
    ):
        if len(part) == 0 or not 0 <= int(part.labels.min()) <= int(
            part.labels.max()
        ) < len(classes):
            labels = (
                f"labels 0..{len(classes) - 1}, one for each class"
                if classes
                else "labels that count from 0"
            )
            raise ValueError(f"the {name} part needs records with {labels}")
    private = corpus.train.take(order)
    if data.partition in ("given", "folders"):
        parts = _given_parts(
            corpus, order, sites or tuple(map(_simulated_name, range(data.clients)))
        )
    else:
        parts = partition(
            private.labels, data.partition, data.clients, data.alpha, data.shards, rng
        )
    clients = sites or tuple(map(_simulated_name, range(data.clients)))
    notes = (
        *corpus.notes,
        *public.notes,
        *([equal] if equal else []),
        *_few_records(parts, test, clients),
    )
    return FederatedData(
        private, tuple(parts), test, public.train.unlabelled(), classes, clients, notes
    )


def _given_parts(
    corpus: Corpus, order: Indices, clients: tuple[str, ...]
) -> list[Indices]:
    """Positions in `order` of each client's records, as the source has distributed
    them.
    """
    if corpus.site is None:
        raise ConfigError(
            "data.partition = 'given' is for a source that says which client a record "
            "belongs to."
        )
    parts = [
        np.flatnonzero(corpus.site[order] == client) for client in range(len(clients))
    ]
    empty = [client for client, part in enumerate(parts) if not len(part)]
    if empty or int(corpus.site.max()) >= len(clients):
        raise ConfigError(
            f"data.clients = {len(clients)}, but the source distributes its records to "
            f"{int(corpus.site.max()) + 1}"
            + (f"; {clients[empty[0]]} has none left to train on" if empty else "")
            + "."
        )
    return parts


def _hold_out_test(
    order: Indices, data: DataConfig, seed: int
) -> tuple[Indices, Indices]:
    """(test records, the others in their order). Runs with the same `test_seed` have
    the same test records.
    """
    drawn = (
        order
        if data.test_seed in (-1, seed)
        else numpy_stream(data.test_seed, "split").permutation(len(order))
    )
    held = drawn[: round(data.test_fraction * len(order))]
    return held, order[~np.isin(order, held)]


class OverlapError(FedauxError, ValueError):
    """Public data contain private records."""


@dataclass(frozen=True)
class Shared:
    """How many of the compared records of one set are in the other as well."""

    count: int
    compared: int
    # share of records that occur more than once in their own set: equality then proves
    # nothing
    repeats: float

    @property
    def by_chance(self) -> bool:
        return self.count <= self.compared * max(TOLERATED, 3 * self.repeats)


def shared_records(one: Records, other: Records) -> Shared:
    """Count the records that two sets share, byte for byte. Blank records, of a single
    value, are left out.
    """
    if (
        one.shape != other.shape
        or is_text(one.x) != is_text(other.x)
        or one.x.dtype != other.x.dtype
    ):
        return Shared(0, min(len(one), len(other)), 0.0)
    first, second = _digests(one), _digests(other)
    small, large = (
        (first, set(second)) if len(first) <= len(second) else (second, set(first))
    )
    distinct = len(set(first)) + len(set(second))
    repeats = 1 - distinct / max(1, len(first) + len(second))
    return Shared(sum(digest in large for digest in small), len(small), repeats)


def _digests(records: Records) -> list[bytes]:
    """Return a digest of each record; those of whole arrays are cached, since all seeds
    of a study need them.
    """
    if records.rows is not None:
        return _hashed(records)
    reference, digests = _known.get(id(records.x), (lambda: None, []))
    if reference() is not records.x:
        digests = _hashed(records)
        _known[id(records.x)] = weakref.ref(records.x), digests
    return digests


_known: dict[int, tuple[Callable[[], object], list[bytes]]] = {}


def _hashed(records: Records) -> list[bytes]:
    if len(records) > SAMPLE:
        drawn = numpy_stream(0, "overlap").choice(len(records), SAMPLE, replace=False)
        records = records.take(np.sort(drawn))
    kept = (
        row.encode("utf-8", "surrogatepass")
        if isinstance(row, str)
        else np.ascontiguousarray(row).tobytes()
        for rows in records.blocks(4096)
        for row in records.gather(rows)
        if (row.strip() if isinstance(row, str) else row.min() != row.max())
    )
    return [hashlib.blake2b(row, digest_size=12).digest() for row in kept]


def refuse_same_source(data: DataConfig, aux: AuxConfig) -> None:
    """Raise an error if private and public data come from the same files, before any of
    them is read.
    """
    if not (aux.source and aux.path) or (aux.source, aux.options) != (
        data.source,
        data.options,
    ):
        return
    if Path(aux.path).expanduser().resolve() == Path(data.path).expanduser().resolve():
        raise OverlapError(
            f"aux.path and data.path are the same, {aux.path}: the public data would "
            "be the private records themselves. Name a folder of other, public records "
            "in [aux], or delete aux.source and aux.path to hold some out of the "
            "private ones."
        )


def refuse_overlap(private: Records, public: Records) -> str:
    """Raise an error if public data contain private records; return a notice of equal
    records that may be chance.
    """
    found = shared_records(private, public)
    if not found.by_chance:
        raise OverlapError(
            f"of {found.compared} records compared, {found.count} are both in the "
            "private data and in the auxiliary data, which is shown and sent as "
            "public. Take them out of one of the two: aux.path must hold other, public "
            "records."
        )
    if not found.count:
        return ""
    return f"{found.count} of {found.compared} records compared are both private and auxiliary; are they public?"
