"""The parts of a server, put together for a run of this package or for an existing
Flower app.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from fedaux.config.methods import Method, find_method
from fedaux.config.prototype import PrototypeSpec
from fedaux.config.schema import Config
from fedaux.core.arrays import Arrays
from fedaux.core.io import cache_folder
from fedaux.core.progress import Notice, report
from fedaux.core.versions import untested_flower
from fedaux.data.federated import client_names, open_public
from fedaux.data.records import Records
from fedaux.methods.hooks import Hooks
from fedaux.privacy.accounting import weak_guarantees
from fedaux.privacy.roster import ROSTER_FILE, read_roster
from fedaux.scoring.base import PublicScorer
from fedaux.scoring.features import H0, FeatureCache
from fedaux.scoring.public_data import PublicData
from fedaux.scoring.registry import make_scorer
from fedaux.scoring.teacher_weights import PublicEmbedding
from fedaux.server.networks import Networks
from fedaux.server.orders import AccountCounts, Orders
from fedaux.server.run_state import RunState
from fedaux.server.standing import StandingTeachers


@dataclass(frozen=True, eq=False)
class Server:
    """The parts of a server.

    Attributes:
        config: The settings of the run.
        classes: The number of classes.
        clients: The names of all clients.
        networks: One network for each prototype.
        public: The public data.
        scorer: What releases are made and read with.
        orders: Makes the orders to clients.
        cache: The folder for public features. None keeps them in memory.
        standing: Keeps standing teachers, for a run that has them. See `in_folder`.
        folder: The folder of the run.
        assignment: The prototype of each client, including sites that have left.
    """

    config: Config
    classes: int
    clients: Sequence[str]
    networks: Networks
    public: PublicData
    scorer: PublicScorer
    orders: Orders
    cache: Path | None = None
    standing: StandingTeachers | None = None
    folder: Path | None = None
    assignment: Mapping[str, PrototypeSpec] = field(default_factory=dict, repr=False)

    @classmethod
    def of(
        cls,
        config: Config,
        aux: Records,
        test: Records,
        classes: int,
        clients: Sequence[str],
        cache: Path,
        known: Mapping[str, str] | None = None,
        records: int = 0,
    ) -> Server:
        """Make a server for the networks of `config`.

        Args:
            config: The settings of the run.
            aux: The public records.
            test: The test records; with none, no round is tested.
            classes: The number of classes.
            clients: The names of all clients.
            cache: The folder for public features.
            known: The prototypes of sites in a stored state, which keep them.
            records: Of all clients together where that is known, for what is chosen on
                public data.
        """
        assignment = deal(clients, config.prototypes, known or {})
        networks = Networks.build(config, test.shape, classes)
        if config.privacy.adjacency != "replace-one":
            records = 0  # neighbours differ in it
        declared = config.privacy.declared_records * len(clients)
        releases = 1 if config.federation.secure else max(1, len(clients))
        heads_only = find_method(config.method).sends == "releases"
        scorer = make_scorer(
            config.privacy, classes, releases, records or declared, heads_only
        )
        tested = test if len(test) else None
        public = PublicData(
            aux, tested, config.aux.negatives, config.seed, config.head_only
        )
        orders = Orders(
            config, classes, scorer, networks, public, assignment.__getitem__
        )
        return cls(
            config,
            classes,
            clients,
            networks,
            public,
            scorer,
            orders,
            cache,
            assignment=assignment,
        )

    def in_folder(self, folder: Path) -> Server:
        """Return a server that keeps standing teachers, if the run has any, and secure
        sums in the run's folder.
        """
        standing = None
        if self.config.teachers.standing and self.method.distils:
            standing = StandingTeachers.of_run(folder)
        return replace(self, standing=standing, folder=folder)

    @cached_property
    def roster(self) -> dict[str, bytes] | None:
        """The public keys of real sites, from the file next to the run's folder, or None:
        sites are simulated.
        """
        if self.folder is None:
            return None
        path = self.folder.parent / ROSTER_FILE
        simulated = self.config.data.partition != "own"
        if simulated and not path.exists():
            return None
        return read_roster(path)

    def with_accounts(self, path: Path) -> Server:
        """Return a server that reads and records the sites' account counts in a file
        shared by all runs.
        """
        orders = replace(self.orders, known_accounts=AccountCounts(path))
        return replace(self, orders=orders)

    @property
    def method(self) -> Method:
        return find_method(self.config.method)

    @property
    def hooks(self) -> Hooks:
        return self.orders.hooks

    @cached_property
    def clients_per_prototype(self) -> Counter[str]:
        return Counter(map(self.label_of, self.clients))

    @property
    def site_labels(self) -> dict[str, str]:
        """The prototype of each real site, which a run's state keeps; simulated clients
        get theirs by number.
        """
        if not self.config.federation.sites:
            return {}
        return {client: spec.label for client, spec in self.assignment.items()}

    def label_of(self, client: str) -> str:
        """The prototype that a client trains."""
        return self.orders.spec_of(client).label

    def restore(self, state: RunState) -> PublicEmbedding | None:
        """Load each prototype's h0 and its public features before any round, or None for a
        method without scores.
        """
        for label, arrays in state.extractors.items():
            self._load_extractor(label, arrays)
            if self.config.head_only:
                statistics = state.standardisation.get(label, {})
                self.networks.standardise(label, statistics)
                # features are computed now
                self.public.distill_inputs(label)
                self.public.test_inputs(label)
        if not state.public:
            return None
        return self.public.embedding(
            self.scorer, state.public, self.label_of, self.config.teachers
        )

    def _load_extractor(self, label: str, arrays: Arrays) -> None:
        loaded = self.public.h0.get(label)
        if loaded is not None and loaded.arrays is arrays:
            return
        specs = {spec.label: spec for spec in self.config.prototypes}
        cache = None
        if self.cache is not None:
            cache = FeatureCache(self.cache, label)
        extractor = self.networks.extractors[label]
        self.public.h0[label] = H0(specs[label], extractor, arrays, cache)


def deal(
    clients: Sequence[str], specs: Sequence[PrototypeSpec], known: Mapping[str, str]
) -> dict[str, PrototypeSpec]:
    """Assign a prototype to every client by name: `known` clients keep theirs, new ones
    get the least common one.
    """
    by_label = {spec.label: spec for spec in specs}
    assignment = {
        client: by_label[label] for client, label in known.items() if label in by_label
    }
    counts = Counter(dict.fromkeys(by_label, 0))
    for client in clients:
        if client in assignment:
            counts[assignment[client].label] += 1
    for client in clients:
        if client not in assignment:
            label = min(by_label, key=counts.__getitem__)  # the first of several
            assignment[client] = by_label[label]
            counts[label] += 1
    return assignment


def make_server(
    config: Config, cache: Path | None = None, state: RunState | None = None
) -> Server:
    """Make a server with the data and networks of `config`. In a run resumed from
    `state`, sites keep prototypes.
    """
    data = open_public(config)
    for note in data.notes:
        report(Notice(note))
    untested = untested_flower()
    if untested:
        report(Notice(untested))
    if config.releases or config.privacy.private_training:
        for note in weak_guarantees(config.privacy):
            report(Notice(note))
    return Server.of(
        config,
        data.aux,
        data.test,
        len(data.classes),
        client_names(config),
        cache or cache_folder(),
        state.assignment if state else {},
        data.private_records,
    )
