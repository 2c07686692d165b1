"""The parts of a server, put together for a run of this package or for an existing
Flower app.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path

from fedaux.config.methods import Method, find_method
from fedaux.config.prototype import PrototypeSpec
from fedaux.config.schema import Config
from fedaux.core.io import cache_folder
from fedaux.core.progress import Notice, OnProgress, WorkProgress, no_progress
from fedaux.data.federated import client_names, open_public
from fedaux.data.records import Records
from fedaux.methods.hooks import Hooks
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
    config: Config
    classes: int
    clients: Sequence[str]
    networks: Networks
    public: PublicData
    scorer: PublicScorer
    orders: Orders
    cache: Path | None = None  # for public features; None keeps them in memory
    on_progress: OnProgress = field(default=no_progress, repr=False)
    # of a run with teachers.standing, see `in_folder`
    standing: StandingTeachers | None = None
    folder: Path | None = None  # of the run
    # including sites that have left
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
        on_progress: OnProgress = no_progress,
        known: Mapping[str, str] | None = None,
        records: int = 0,
    ) -> Server:
        """Make a server for the networks of `config`. Sites `known` from a stored state
        keep their prototypes.

        `records`: of all clients together where that is known, for what is chosen on
        public data.
        """
        assignment = deal(clients, config.prototypes, known or {})
        releases = 1 if config.federation.secure else max(1, len(clients))
        networks = Networks.build(config, test.shape, classes)
        # elsewhere neighbours differ in it
        counted = records if config.privacy.adjacency == "replace-one" else 0
        scorer = make_scorer(
            config.privacy,
            classes,
            releases,
            counted or config.privacy.declared_records * len(clients),
        )
        public = PublicData(
            aux, test, config.aux.negatives, config.seed, config.head_only
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
            on_progress,
            assignment=assignment,
        )

    def in_folder(self, folder: Path) -> Server:
        """Return a server that keeps standing teachers, if the run has any, and secure
        sums in the run's folder.
        """
        wanted = self.config.teachers.standing and self.method.distils
        return replace(
            self,
            standing=StandingTeachers.of_run(folder) if wanted else None,
            folder=folder,
        )

    @cached_property
    def roster(self) -> dict[str, bytes] | None:
        """The public keys of real sites, from the file beside the run's folder; None:
        sites are simulated.
        """
        path = None if self.folder is None else self.folder.parent / ROSTER_FILE
        if path is None or (self.config.data.partition != "own" and not path.exists()):
            return None
        return read_roster(path)

    def with_accounts(self, path: Path) -> Server:
        """Return a server that reads and records the sites' account counts in a file
        shared by all runs.
        """
        return replace(
            self, orders=replace(self.orders, known_accounts=AccountCounts(path))
        )

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
        return (
            {client: spec.label for client, spec in self.assignment.items()}
            if self.config.federation.sites
            else {}
        )

    def label_of(self, client: str) -> str:
        """The prototype that a client trains."""
        return self.orders.spec_of(client).label

    def restore(self, state: RunState) -> PublicEmbedding | None:
        """Load each prototype's h0 and its public features before any round; None for a
        method without scores.
        """
        specs = {spec.label: spec for spec in self.config.prototypes}
        for label, arrays in state.extractors.items():
            if (
                label not in self.public.h0
                or self.public.h0[label].arrays is not arrays
            ):
                report = partial(self.report_features, label)
                cache = (
                    None
                    if self.cache is None
                    else FeatureCache(self.cache, on_progress=report)
                )
                self.public.h0[label] = H0(
                    specs[label], self.networks.extractors[label], arrays, cache
                )
            if self.config.head_only:
                self.networks.standardise(label, state.standardisation.get(label, {}))
                self.public.distill_inputs(label)
                self.public.test_inputs(label)
        if not state.public:
            return None
        return self.public.embedding(
            self.scorer, state.public, self.label_of, self.config.teachers
        )

    def report_features(self, label: str, done: int, total: int) -> None:
        self.on_progress(
            WorkProgress(f"features of {label}", done, total, phase="features")
        )


def deal(
    clients: Sequence[str], specs: Sequence[PrototypeSpec], known: Mapping[str, str]
) -> dict[str, PrototypeSpec]:
    """Assign a prototype to every client by name: `known` clients keep theirs, new ones
    get the least common one.
    """
    labels = {spec.label: spec for spec in specs}
    assignment = {
        client: labels[label] for client, label in known.items() if label in labels
    }
    counts = Counter(dict.fromkeys(labels, 0))
    counts.update(
        assignment[client].label for client in clients if client in assignment
    )
    for client in clients:
        if client not in assignment:
            label = min(labels, key=counts.__getitem__)  # the first of several
            assignment[client] = labels[label]
            counts[label] += 1
    return assignment


def make_server(
    config: Config,
    on_progress: OnProgress = no_progress,
    cache: Path | None = None,
    state: RunState | None = None,
) -> Server:
    """Make a server with the data and networks of `config`. In a run resumed from
    `state`, sites keep prototypes.
    """
    data, names, known = (
        open_public(config),
        client_names(config),
        state.assignment if state else {},
    )
    folder = cache or cache_folder()
    for note in data.notes:
        on_progress(Notice(note))
    given = (config, data.aux, data.test, len(data.classes), names, folder)
    return Server.of(*given, on_progress, known, data.private_records)
