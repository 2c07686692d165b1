"""The data of a federation: disjoint private records, test data and auxiliary data.

Simulated clients split one source between them. Real sites (`data.partition = "own"`)
read their own source: `[data]` in a site's settings is its private data, `[data]` in
the server's is labelled test data, which it need not have if the sites test the final
model. Classes are declared (`labels.declared_classes`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from fedaux.config.parsing import ConfigError
from fedaux.config.schema import Config
from fedaux.config.sections import AuxConfig, DataConfig
from fedaux.core.rng import numpy_stream
from fedaux.data.labels import (
    declared_classes,
    named_by_numbers,
    relabel,
    relabel_strictly,
)
from fedaux.data.overlap import refuse_overlap, refuse_same_source
from fedaux.data.partition import class_counts, partition
from fedaux.data.records import Corpus, Indices, Records, is_text
from fedaux.data.sources import (
    SOURCES,
    accepts,
    can_be_private,
    needs_path,
    open_source,
)
from fedaux.data.tables import schema_of, table_bins

FEW = 8  # records of a client, or of the test set: with fewer, a figure says nothing


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
    test: Records  # of the shape of `aux`; none where only the sites test
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
    """Read the data of all simulated clients and their server, and split them. The
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
    """Read the server's data. A real server has its own auxiliary data, and its own
    labelled test data unless the sites test the final model.
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
    if not has_test_data(config):
        return _untested(config, classes)
    # test data are public: no one's
    source = _cached_corpus(replace(config.data, person=""))
    if source.test is not None:
        source = replace(source, train=source.test, test=None)
    test = relabel_strictly(source, classes)
    if not len(test.train):
        return _untested(config, classes)
    public = _open_auxiliary(config.aux, test.train, strict=config.data.strict)
    notes = (*test.notes, *public.notes)
    return ServerData(public.train.unlabelled(), test.train, classes, notes)


def has_test_data(config: Config) -> bool:
    """Whether the server names labelled test data: those of a simulation, or a source
    of its own, with a path where the source reads one.
    """
    data = config.data
    if data.partition != "own":
        return True
    if not data.source:
        return False
    return bool(data.path) or not needs_path(data.source)


def _untested(config: Config, classes: tuple[str, ...]) -> ServerData:
    """The data of a real server that has no test data, because its sites test the final
    model.
    """
    if not config.tests_at_sites:
        raise ConfigError(
            "Cannot test the model: [data] names no labelled test data of the server, "
            "and no site holds out records for a test. Name test data in data.source "
            "and data.path, or let the sites test the final model: set "
            "data.site_test_fraction = 0.2 and privacy.look_epsilon = 1, at the server "
            "and at every site."
        )
    public = _open_auxiliary(config.aux, strict=config.data.strict)
    aux = public.train.unlabelled()
    test = Records(aux.x[:0], np.zeros(0, np.int64))
    return ServerData(aux, test, classes, public.notes)


def open_auxiliary(config: Config) -> Records:
    """Read the auxiliary data alone, for a client that has its own copy."""
    if config.data.partition != "own":
        return open_data(config).aux
    if not config.aux.source:
        raise ConfigError(
            "Cannot let clients teach: teachers.run_on = 'clients' needs aux.source, "
            "the public data that the server has as well. Name it in [aux]."
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
    return _cached_private(_data_of(config, client), classes), classes


def class_names(config: Config, client: str = "") -> tuple[str, ...]:
    """Return the names of all classes. Real sites declare them, and read no data to
    find them.
    """
    if config.data.partition != "own":
        return open_data(config).classes
    return declared_classes(_data_of(config, client))


def _data_of(config: Config, client: str) -> DataConfig:
    """The settings of a client's own source. `{client}` in its path is the name."""
    path = config.data.path.replace("{client}", client)
    return replace(config.data, path=path)


def read_private(data: DataConfig, classes: tuple[str, ...]) -> Records:
    """Read all records of a site's own source, which accepts `declared` and rejects no
    record for its content.

    A user's own source need not accept it. Its author then vouches for the source.
    """
    if not can_be_private(data.source):
        able = ", ".join(name for name in SOURCES if accepts(name, "declared"))
        raise ConfigError(
            f"Cannot read a site's records: data.source = {data.source!r} reads a "
            "published data set as a whole, in which one record may decide on others. "
            f"Choose {able}, or your function, module:function."
        )
    options = {"declared": classes} if accepts(data.source, "declared") else {}
    corpus = _open_corpus(data, **options)
    return relabel(corpus, classes).train


_cached_private = lru_cache(maxsize=64)(read_private)


def read_bins(
    config: Config, client: str, edges: Mapping[str, tuple[float, ...]]
) -> NDArray[np.uint16]:
    """Return the bins of a client's table in these columns, (columns, records), with
    the records of `x` in what `open_private` returns. See `tables.table_bins`.
    """
    data = _data_of(config, client)
    return _cached_bins(data, tuple(edges.items()), config.data.partition == "own")


# simulated clients share one table
@lru_cache(maxsize=1)
def _cached_bins(
    data: DataConfig, edges: tuple[tuple[str, tuple[float, ...]], ...], every_line: bool
) -> NDArray[np.uint16]:
    schema = schema_of(data)
    assert schema is not None
    path = Path(data.path).expanduser()
    options: dict[str, Any] = dict(data.options)
    files = options.get("files", ())
    return table_bins(path, schema, dict(edges), every_line, files)


def _open_corpus(data: DataConfig, **options: Any) -> Corpus:
    arguments = {**dict(data.options), **_strictly(data.source, data.strict)}
    if data.person:
        arguments["person"] = data.person
    arguments.update(options)
    return open_source(data.source, data.path or None, **arguments)


def _strictly(source: str, strict: bool) -> dict[str, bool]:
    return {"strict": True} if strict and accepts(source, "strict") else {}


_cached_corpus = lru_cache(maxsize=64)(_open_corpus)


def _open_auxiliary(
    aux: AuxConfig,
    like: Records | None = None,
    held_out: Records | None = None,
    strict: bool = False,
) -> Corpus:
    """The records held out of the private source, or those of a source of their own.
    They must be of the kind and shape of `like`.
    """
    if held_out is not None:
        corpus = Corpus(held_out)
    else:
        options = {**dict(aux.options), **_strictly(aux.source, strict)}
        if accepts(aux.source, "folders"):
            options["folders"] = "classes"  # of any kind: no one reads the labels
        corpus = open_source(aux.source, aux.path or None, **options)
    public = corpus.train
    if aux.limit:
        order = numpy_stream(0, "aux", "limit").permutation(len(public))
        public = public.take(np.sort(order[: aux.limit]))
    if like is None:
        return Corpus(public, notes=corpus.notes)
    if like.x.shape[1:] == public.x.shape[1:]:
        _refuse_other_dtype(like, public)
    if public.shape != like.shape:
        raise ValueError(
            f"Cannot use the public data: auxiliary rows have shape {public.shape}, "
            f"private rows {like.shape}. Use the source's `size` option, or another "
            "auxiliary source."
        )
    return Corpus(public, notes=corpus.notes)


def _refuse_other_dtype(private: Records, public: Records) -> None:
    """Refuse numbers of another kind: a network would be pre-trained on one scale and
    see another.
    """
    if is_text(private.x) != is_text(public.x) or private.x.dtype != public.x.dtype:
        raise ConfigError(
            f"Cannot use the public data: private records are {_dtype(private)} and "
            f"auxiliary ones {_dtype(public)}. Give both the same type, images as "
            "uint8 from 0 to 255, other numbers as float32."
        )


def _dtype(records: Records) -> str:
    return "texts" if is_text(records.x) else str(records.x.dtype)


def _few_records(
    shares: Sequence[Indices], test: Records, clients: Sequence[str]
) -> list[str]:
    """Warn of shares that are too small to learn or to measure anything."""
    sizes = {name: len(share) for name, share in zip(clients, shares, strict=True)}
    small_clients = [f"{name} has {size}" for name, size in sizes.items() if size < FEW]
    warnings = small_clients[:3]
    more = len(small_clients) - len(warnings)
    if more:
        warnings.append(f"{more} more clients have fewer than {FEW}")
    if len(test) < FEW:
        warnings.append(f"there are {len(test)} to test on")
    if not warnings:
        return []
    return [f"very few records: {', '.join(warnings)}. Accuracies will be chance"]


_cached_auxiliary = lru_cache(maxsize=4)(_open_auxiliary)


@dataclass(frozen=True, eq=False)
class Parts:
    """Disjoint positions in the training records of a source, each in the order in
    which they were drawn.
    """

    private: Indices
    validation: Indices
    auxiliary: Indices  # none where auxiliary data have a source of their own
    test: Indices  # none where the source has test records of its own

    @classmethod
    def draw(
        cls,
        count: int,
        has_test: bool,
        data: DataConfig,
        aux: AuxConfig,
        seed: int,
        rng: np.random.Generator,
    ) -> Self:
        """Draw the parts of `count` records: first test, then auxiliary, then
        validation records.

        Runs with the same `test_seed` have the same test records.
        """
        order = rng.permutation(count)
        test_order = order
        if data.test_seed not in (-1, seed):
            test_order = numpy_stream(data.test_seed, "split").permutation(count)
        tested = 0 if has_test else round(data.test_fraction * count)
        test = test_order[:tested]
        training = order[~np.isin(order, test)]
        public = 0 if aux.source else round(aux.fraction * len(training))
        auxiliary, labelled = np.split(training, [public])
        validated = round(data.validation_fraction * len(labelled))
        validation, private = np.split(labelled, [validated])
        return cls(private, validation, auxiliary, test)

    @property
    def training(self) -> Indices:
        """All but the test records."""
        return np.concatenate([self.auxiliary, self.validation, self.private])


@lru_cache(maxsize=4)
def _split(
    data: DataConfig, aux: AuxConfig, seed: int, sites: tuple[str, ...]
) -> FederatedData:
    """Disjoint: test, auxiliary and private records, and validation records, which are
    then all that is evaluated on.

    Nothing depends on the test records where there are validation records.
    """
    refuse_same_source(data, aux)
    source = _open_simulated(data, sites)
    rng = numpy_stream(seed, "split")
    has_test = source.test is not None
    parts = Parts.draw(len(source.train), has_test, data, aux, seed, rng)
    corpus = _with_classes(source, parts, data)
    notes = list(corpus.notes)

    if aux.source:
        public = _open_auxiliary(aux, corpus.train, strict=data.strict)
        notes += public.notes
        notice = refuse_overlap(corpus.train, public.train)
        if notice:
            notes.append(notice)
    else:
        held_out = corpus.train.take(np.sort(parts.auxiliary))
        public = _open_auxiliary(aux, corpus.train, held_out)
        notes += public.notes

    test = _evaluated_on(corpus, parts, data)
    training = corpus.train.take(parts.training)
    _check_labels("training", training, corpus.classes)
    test_part = "validation" if data.validation_fraction else "test"
    _check_labels(test_part, test, corpus.classes)

    private = corpus.train.take(parts.private)
    clients = sites or tuple(map(_simulated_name, range(data.clients)))
    if data.partition in ("given", "folders"):
        shares = _given_shares(corpus, parts.private, clients, data.source)
    else:
        shares = partition(
            private.labels, data.partition, data.clients, data.alpha, data.shards, rng
        )
    notes += _few_records(shares, test, clients)
    return FederatedData(
        private,
        tuple(shares),
        test,
        public.train.unlabelled(),
        corpus.classes,
        clients,
        tuple(notes),
    )


def _open_simulated(data: DataConfig, sites: tuple[str, ...]) -> Corpus:
    """The one source that all simulated clients share."""
    if data.partition != "folders":
        return _cached_corpus(data)
    if not accepts(data.source, "sites"):
        raise ConfigError(
            "Cannot use data.partition = 'folders': it is for data.source = 'images', "
            f"not {data.source!r}. Choose another partition."
        )
    return _cached_corpus(data, sites=sites)


def _with_classes(corpus: Corpus, parts: Parts, data: DataConfig) -> Corpus:
    """The corpus with its classes by name, declared or those of the training records.

    With validation records, test records are left out: nothing may depend on them.
    """
    validated = data.validation_fraction > 0
    if validated:
        corpus = replace(corpus, test=None)
    if data.classes:
        return relabel_strictly(corpus, data.classes)
    return named_by_numbers(corpus, parts.training if validated else slice(None))


def _evaluated_on(corpus: Corpus, parts: Parts, data: DataConfig) -> Records:
    """The validation records, if there are any, else the test records."""
    if data.validation_fraction > 0:
        return corpus.train.take(np.sort(parts.validation))
    if corpus.test is not None:
        return corpus.test
    return corpus.train.take(np.sort(parts.test))


def _check_labels(name: str, records: Records, classes: Sequence[str]) -> None:
    if len(records) > 0:
        least = int(records.labels.min())
        most = int(records.labels.max())
        if least >= 0 and most < len(classes):
            return
    labels = "labels that count from 0"
    if classes:
        labels = f"labels 0..{len(classes) - 1}, one for each class"
    raise ValueError(f"the {name} part needs records with {labels}")


def _given_shares(
    corpus: Corpus, positions: Indices, clients: tuple[str, ...], source: str
) -> list[Indices]:
    """The places in `positions` of each client's records, as the source has distributed
    them.
    """
    if corpus.site is None:
        raise ConfigError(
            "Cannot use data.partition = 'given': it is for data that say which client "
            f"a record belongs to, and {source!r} does not. Name the column in `site` "
            "of a table's schema.toml (`fedaux init table --site COLUMN`), return "
            "Corpus(…, site=…) from your source, or in Python give a list with one (x, "
            "y) for each client. To let fedaux split the records, set data.partition = "
            "'dirichlet' or 'iid', and for folders of sites 'folders'."
        )
    site_of = corpus.site[positions]
    shares = [np.flatnonzero(site_of == index) for index in range(len(clients))]
    sizes = {name: len(share) for name, share in zip(clients, shares, strict=True)}
    empty = [name for name, size in sizes.items() if not size]
    sites = int(corpus.site.max()) + 1
    if empty or sites > len(clients):
        nothing_left = f", and {empty[0]} has none left to train on" if empty else ""
        raise ConfigError(
            f"Cannot use data.clients = {len(clients)}: the source distributes its "
            f"records to {sites}{nothing_left}. Set data.clients to the number of "
            "clients with records."
        )
    return shares
