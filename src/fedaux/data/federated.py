"""From a config to who holds what: private parts, test data and auxiliary data, never a record in two of them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from fedaux.config import AuxConfig, Config, DataConfig
from fedaux.data.partition import class_counts, partition
from fedaux.data.records import Corpus, Indices, Records
from fedaux.data.sources import open_source
from fedaux.seeds import numpy_stream


@dataclass(frozen=True, eq=False)
class FederatedData:
    private: Records
    parts: tuple[Indices, ...]  # rows of `private`, one array per client
    test: Records
    aux: Records
    classes: tuple[str, ...]

    @property
    def clients(self) -> list[str]:
        return [client_name(i) for i in range(len(self.parts))]

    def client(self, index: int) -> Records:
        return self.private.take(self.parts[index])

    def counts(self) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
        """Records of each class (columns) at each client (rows)."""
        return class_counts(self.private.labels, list(self.parts), len(self.classes))


def client_name(index: int) -> str:
    return f"client-{index:03d}"


def open_data(config: Config) -> FederatedData:
    """Opened and split once per process, however many simulated clients ask."""
    return _open(config.data, config.aux, config.seed)


@lru_cache(maxsize=4)
def _open(data: DataConfig, aux: AuxConfig, seed: int) -> FederatedData:
    corpus = open_source(data.source, data.path or None, **dict(data.options))
    rng = numpy_stream(seed, "split")
    order = rng.permutation(len(corpus.train))
    if corpus.test is None:
        held, order = np.split(order, [round(data.test_share * len(order))])
        test = corpus.train.take(np.sort(held))
    else:
        test = corpus.test
    if aux.source:
        public = open_source(aux.source, aux.path or None, **dict(aux.options)).train
    else:
        held, order = np.split(order, [round(aux.share * len(order))])
        public = corpus.train.take(np.sort(held))
    if aux.limit:
        public = public.take(np.sort(numpy_stream(0, "aux", "limit").permutation(len(public))[: aux.limit]))
    if public.shape != corpus.train.shape:
        raise ValueError(
            f"auxiliary rows have shape {public.shape}, private rows {corpus.train.shape}; "
            "use the source's `size` option, or another auxiliary source"
        )
    classes = _classes(corpus)
    for name, part in (("training", corpus.train), ("test", test)):
        if len(part) == 0 or not 0 <= int(part.labels.min()) <= int(part.labels.max()) < len(classes):
            raise ValueError(f"the {name} part needs records with labels 0..{len(classes) - 1}, one for each class")
    private = corpus.train.take(order)
    parts = partition(private.labels, data.partition, data.clients, data.alpha, data.shards, rng)
    return FederatedData(private, tuple(parts), test, public.unlabelled(), classes)


def _classes(corpus: Corpus) -> tuple[str, ...]:
    return corpus.classes or tuple(str(label) for label in range(int(corpus.train.labels.max()) + 1))
