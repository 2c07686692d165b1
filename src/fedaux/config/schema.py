"""The configuration of a run: frozen, validated, read from TOML with overrides, and
hashed.
"""

from __future__ import annotations

import copy
import hashlib
import json
import math
import os
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from fedaux.config.distillation import DistillConfig, TeachersConfig
from fedaux.config.methods import Method, find_method, method_name
from fedaux.config.parsing import (
    ConfigError,
    Count,
    Options,
    Settings,
    Share,
    Within,
    apply_override,
    dotted,
    from_table,
    require,
    to_plain,
)
from fedaux.config.prototype import PrototypeSpec
from fedaux.config.sections import (
    OPTIMIZERS,
    AuxConfig,
    DataConfig,
    FederationConfig,
    LocalConfig,
    PretrainConfig,
    PrivacyConfig,
)
from fedaux.core import here

RandomFeatures = Annotated[int, Within("[0, 100000]")]
BALANCED = "balanced"  # of `class_weights`
TABLE_SOURCES = ("table", "schema")
Precision = Literal["auto", "float32", "bfloat16"]


@dataclass(frozen=True)
class Config(Settings):
    """All settings of a run. `--preset paper` has those of the FedAUX paper."""

    # a name of `METHODS`, or your own method as module:attribute
    method: str = "fedaux"
    # options of the method if it has any, such as beta of fedavgm
    method_options: Options = ()
    # T: the number of rounds
    rounds: Count = 5
    # C: the fraction of the clients that is selected in each round
    fraction: Share = 1.0
    # train only the heads, on features of the frozen extractor h0, computed once
    head_only: bool = False
    # for head_only: features of h0 as they are (raw), or standardised by the mean and
    # deviation of the negatives D⁻
    head_features: Literal["standardised", "raw"] = "standardised"
    # for head_only: the number of random ReLU features to train heads on. With 0, heads
    # train on the features of h0
    random_features: RandomFeatures = 0
    # the head from which training starts: private-head, ridge, discriminant,
    # class-means or random. auto is private-head if clients make releases, and random
    # otherwise
    head_init: str = "auto"
    # how much a record of each class counts, in the order of data.classes, for example
    # [1, 3]. balanced makes all classes count alike, by the counts that releases or sums
    # of features contain. With [], every record counts 1
    class_weights: tuple[float, ...] | Literal["balanced"] = ()
    # which clients are asked before round 1: those selected for it, or all. auto is all
    # for a private head
    prepare: Literal["auto", "selected", "all"] = "auto"
    # the seed of everything random except the privacy noise
    seed: int = 0
    # cpu, cuda, cuda:1 or mps. auto is a GPU if there is one. Each site chooses its own
    device: str = "auto"
    # the precision of products in networks. Weights and sums stay in float32. auto uses
    # the one that is faster in a timed trial
    precision: Precision = "float32"
    # the networks, which are assigned to the clients in turn. For tables, the default is
    # tabular, or linear if features stay frozen
    prototypes: tuple[PrototypeSpec, ...] = (PrototypeSpec("mlp"),)
    data: DataConfig = field(default_factory=DataConfig)
    aux: AuxConfig = field(default_factory=AuxConfig)
    pretrain: PretrainConfig = field(default_factory=PretrainConfig)
    local: LocalConfig = field(default_factory=LocalConfig)
    distill: DistillConfig = field(default_factory=DistillConfig)
    teachers: TeachersConfig = field(default_factory=TeachersConfig)
    privacy: PrivacyConfig = field(default_factory=PrivacyConfig)
    federation: FederationConfig = field(default_factory=FederationConfig)

    def check(self) -> None:
        """Check settings across sections: each group of settings against the
        method's row and the other sections.
        """
        object.__setattr__(self, "method", method_name(self.method))
        method = find_method(self.method)
        self._check_hooks(method)
        self._check_sites()
        require(
            re.fullmatch(r"auto|cpu|mps|cuda(:\d+)?", self.device) is not None,
            "Cannot use these settings: device must be auto, cpu, cuda, cuda:1 … or "
            f"mps, not {self.device!r}. Correct the value.",
        )
        self._check_features()
        self._check_analytic_head()
        self._check_class_weights(method)
        self._check_secure(method)
        self._check_privacy()
        self._check_prototypes()

    def _check_hooks(self, method: Method) -> None:
        hooks = method.make_hooks(dict(self.method_options))
        if hooks is None:
            return
        require(
            self.local.optimizer in ("auto", *hooks.optimizers),
            f"Cannot use local.optimizer = {self.local.optimizer!r}: {method.label} is "
            f"not meant for {self.local.optimizer}. Set local.optimizer to "
            f"{' or '.join(hooks.optimizers)}.",
        )
        require(
            self.federation.precision == "float32" or hooks.half_precision,
            f"Cannot run {method.label} in half precision: it drowns what its clients "
            "send. Set federation.precision = 'float32'.",
        )

    def _check_sites(self) -> None:
        """Check the sites against the partition; folders are as many clients as they
        are named.
        """
        sites = self.federation.sites
        if self.data.partition == "folders":
            require(
                bool(sites),
                "Cannot use data.partition = 'folders': it needs federation.sites, the "
                "names of the folders below data.path. Write them into [federation], "
                "one client for each.",
            )
            object.__setattr__(self, "data", replace(self.data, clients=len(sites)))
        require(
            not sites
            or self.data.partition == "own"
            or len(sites) == self.data.clients,
            f"Cannot run with data.clients: federation.sites names {len(sites)} sites. "
            f"Set data.clients to {len(sites)}, or data.partition = 'own' if each site "
            "reads its own data.",
        )
        require(
            self.data.partition != "own" or bool(sites),
            "Cannot use data.partition = 'own': it needs federation.sites, the names "
            "of the sites. Write them into [federation].",
        )
        require(
            self.data.partition != "own"
            or self.teachers.run_on == "server"
            or self.aux.source != "",
            "Cannot use teachers.run_on = 'clients': it needs aux.source, the public "
            "data that the server has as well. Name it in [aux]. A site whose run has "
            "no teachers, such as that of a private head, needs neither. Set method to "
            "that of the run, and teachers.run_on = 'server'.",
        )

    def _check_features(self) -> None:
        """Check the features that heads are on. A method that computes its head trains
        no other part, so random features need no word of `head_only` there.
        """
        if self.random_features and find_method(self.method).analytic:
            object.__setattr__(self, "head_only", True)
        require(
            self.head_only or self.random_features == 0,
            "Cannot use random_features: they are of heads. Set head_only = true.",
        )
        require(
            self.head_only or self.head_features == "standardised",
            "Cannot use head_features: it needs head_only = true. Set it, or leave "
            "head_features out.",
        )

    def _check_privacy(self) -> None:
        privacy = self.privacy
        require(
            not self.releases or privacy.epsilon <= privacy.epsilon_budget,
            f"Cannot use privacy.epsilon_total = {privacy.epsilon_total:g}: it is less "
            f"than privacy.epsilon = {privacy.epsilon:g}, which the scores already "
            "cost. Set a larger total.",
        )
        require(
            not self.tests_at_sites or privacy.look_epsilon > 0,
            "Cannot use data.site_test_fraction: it holds out records of each site, "
            "and privacy.look_epsilon = 0 lets no site be asked about them. Set "
            "privacy.look_epsilon, for example to 1.",
        )
        require(
            not (self.tests_at_sites and privacy.private_training),
            "Cannot use data.site_test_fraction: privacy.private_training spends all "
            "of privacy.epsilon_total, so nothing is left for a look. Leave "
            "data.site_test_fraction out.",
        )
        require(
            privacy.unit == "record" or self.data.person != "",
            "Cannot use privacy.unit = 'person': it needs data.person, the person a "
            "record belongs to. Set data.person.",
        )

    def _check_prototypes(self) -> None:
        require(
            len(self.prototypes) >= 1,
            "Cannot run without a network: prototypes must name at least one network. "
            "Write its name into prototypes.",
        )
        require(
            len(set(self.prototypes)) == len(self.prototypes),
            "Cannot use a prototype twice: prototypes must differ from one another. "
            "Delete the second one.",
        )

    @property
    def local_training(self) -> LocalConfig:
        """`local`, completed with the method's defaults."""
        hooks = find_method(self.method).make_hooks(dict(self.method_options))
        allowed = hooks.optimizers if hooks is not None else OPTIMIZERS
        return self.local.resolved(allowed, self.head_start != "random", self.head_only)

    @property
    def under_computed_head(self) -> bool:
        """Whether a whole network is trained that starts from a computed head."""
        return self.head_start != "random" and not self.head_only

    def distill_steps(self, round_: int, batches_an_epoch: int = 1) -> int:
        """Return the number of steps of the distillation in round 1, 2, …"""
        return self.distill.steps_in_round(
            round_, batches_an_epoch, fading=self.under_computed_head
        )

    @property
    def head_start(self) -> str:
        """`head_init`, completed: the head of the releases, if the method asks for
        them anyway.
        """
        if self.head_init != "auto":
            return self.head_init
        releases = find_method(self.method).scores and self.privacy.scorer in (
            "class-embedding",
            "class-moments",
        )
        return "private-head" if releases and self.random_features == 0 else "random"

    @property
    def prepares_all(self) -> bool:
        """Whether all clients are asked before round 1, not only those of that
        round.
        """
        private_head = "private-head" in (self.method, self.head_start)
        return self.prepare == "all" or (self.prepare == "auto" and private_head)

    def _check_analytic_head(self) -> None:
        method, head = find_method(self.method), self.analytic_head
        require(
            self.head_init in ("auto", "random") or not method.analytic,
            f"Cannot use head_init: {method.label} computes its head. Leave head_init "
            "out.",
        )
        if head is None:
            return
        require(
            head.analytic,
            f"Cannot use these settings: head_init = {self.head_init!r} must be auto, "
            "random, or a method that computes its head. Run `fedaux methods` for "
            "their names.",
        )
        head.make_hooks(dict(self.method_options) if method.analytic else {})
        require(
            head.sends != "releases"
            or self.privacy.scorer in ("class-embedding", "class-moments"),
            "Cannot use these settings: the private head needs privacy.scorer = "
            "'class-embedding' or 'class-moments'. Set one of them.",
        )
        require(
            head.sends != "releases" or self.random_features == 0,
            "Cannot use random_features: the private head uses the features of h0 "
            "itself. Set random_features = 0. Random features of a table are "
            "prototypes = ['cosine'].",
        )
        require(
            not self.privacy.private_training
            or (not head.sums and not method.analytic),
            "Cannot use privacy.private_training: it is for training, and "
            f"{head.label} sends sums of features without noise, or trains nothing. "
            "Set method = 'private-head' or head_init = 'private-head', which compute "
            "a head under noise.",
        )

    def _check_class_weights(self, method: Method) -> None:
        weights = self.class_weights
        if not weights:
            return
        require(
            isinstance(weights, str)
            or all(0 < weight < math.inf for weight in weights),
            "Cannot use these settings: class_weights must be numbers above 0, not "
            f"{weights}. Correct the value.",
        )
        require(
            weights != BALANCED or self.knows_class_counts,
            "Cannot use these settings: class_weights = 'balanced' needs to know how "
            f"many records each class has, and with {method.label} clients send no "
            "such counts. Write the weights yourself, for example class_weights = [1, "
            "3].",
        )
        require(
            not self.privacy.private_training,
            "Cannot use these settings: class_weights have no effect with "
            "privacy.private_training, which clips every record's gradient to one "
            "length. Leave class_weights out.",
        )

    def _check_secure(self, method: Method) -> None:
        federation = self.federation
        if not federation.secure:
            return
        require(
            federation.threshold > 2 / 3,
            "Cannot use federation.secure: it needs federation.threshold above 2/3, "
            "because two sums of fewer sites could differ. Raise federation.threshold.",
        )
        require(
            not method.distils or self.teachers.run_on == "clients",
            "Cannot use federation.secure: with it only a client sees its model, and "
            f"{method.label} needs it run on public data. Set teachers.run_on = "
            "'clients', with the server's public data in [aux]. If this is a site's "
            "file, set method to that of the run, for example 'private-head', which "
            "has no teachers.",
        )
        require(
            not self.privacy.private_training,
            "Cannot use privacy.private_training: there is no private training in "
            "secure sums, because it added nothing to the private head. Set "
            "privacy.private_training = false, or federation.secure = false.",
        )
        require(
            federation.over_selection == 0,
            "Cannot use federation.over_selection: it ends a round early, and a secure "
            "sum needs all of its sites. Set it to 0.",
        )
        hooks = method.make_hooks(dict(self.method_options))
        require(
            hooks is None or not hooks.keeps_state,
            "Cannot use federation.secure: there are no secure sums of "
            f"{method.label}, whose clients keep state from round to round, because a "
            "server could set the states apart so that a sum shows one site. Choose a "
            "method without such state, or set federation.secure = false.",
        )

    @property
    def analytic_head(self) -> Method | None:
        """The method whose head is computed: the run's own, or the one whose head
        training starts from, else None.
        """
        method = find_method(self.method)
        if method.analytic or self.head_start == "random":
            return method if method.analytic else None
        return find_method(self.head_start)

    @property
    def knows_class_counts(self) -> bool:
        """Whether clients send counts of their classes, with or without noise."""
        scorers = ("class-embedding", "class-moments")
        counted = self.releases and self.privacy.scorer in scorers
        return counted or self.analytic_head is not None

    @property
    def trains(self) -> bool:
        """Whether clients train, rather than send what a head is computed from."""
        return not find_method(self.method).analytic

    @property
    def frozen_features(self) -> bool:
        """Whether only heads are computed or trained, on features of h0, which stays
        as it is.
        """
        return self.head_only or not self.trains

    @property
    def tests_at_sites(self) -> bool:
        """Whether the final model is tested on records that the sites hold out."""
        return self.data.site_test_fraction > 0

    @property
    def releases(self) -> bool:
        """Whether clients make a release, to be weighted as teachers or to compute a
        head.
        """
        head = self.analytic_head
        return find_method(self.method).scores or (
            head is not None and head.sends == "releases"
        )

    @classmethod
    def load(cls, path: str | Path, overrides: Sequence[str] = ()) -> Config:
        """Read the settings of a run from a TOML or JSON file.

        Data paths in the file are looked up next to it, then in the working directory.
        Data paths in overrides are looked up in the working directory. A table `[tune]`
        is ignored: it is for `fedaux tune`.

        Args:
            path: The file.
            overrides: Settings that replace those of the file, as `key=value`:
                `local.lr=0.01`.

        Returns:
            The validated settings.
        """
        return cls.from_dict(
            {key: value for key, value in read_table(path).items() if key != "tune"},
            overrides,
        )

    @classmethod
    def from_dict(
        cls, table: Mapping[str, Any], overrides: Sequence[str] = ()
    ) -> Config:
        """Build the settings from nested tables, as TOML or JSON has them.

        Args:
            table: Settings by name, with one table per section. It is not modified.
            overrides: Settings that replace those of the table, as `key=value`:
                `local.lr=0.01`.

        Returns:
            The validated settings. Settings that the table leaves out have their
            defaults, or those of the method.
        """
        merged = copy.deepcopy(dict(table))
        for text in overrides:
            apply_override(merged, text)
        _complete(merged)
        built = from_table(cls, merged)
        assert isinstance(built, cls)
        return built

    def to_dict(self) -> dict[str, Any]:
        """Return all settings as nested tables for JSON or TOML, which `from_dict`
        reads back.
        """
        return dict(to_plain(self))

    def save(self, path: str | Path) -> Path:
        """Write all settings to a TOML file, which `load` reads back.

        Objects that exist only in this session cannot be written. The error names the
        settings that have them.

        Args:
            path: The file to write.

        Returns:
            The file's path.
        """
        from fedaux.config.toml import to_complete_toml

        if self.session_keys:
            own = ", ".join(self.session_keys)
            raise ConfigError(
                f"Cannot write the config: {own} cannot be written, being objects of "
                "this Python session. Save arrays with numpy.savez and give the file. "
                "Put a class, function or Method into a module."
            )
        path = Path(path)
        path.write_text(to_complete_toml(self), encoding="utf-8")
        return path

    @property
    def session_keys(self) -> list[str]:
        """The keys whose values are objects of this Python session (`core.here`), which
        no other process has.
        """
        return [
            key for key, value in dotted(self.to_dict()) if here.PREFIX in str(value)
        ]

    @property
    def hash(self) -> str:
        """16 hex digits that are the same for the same settings, defaults included."""
        return _hash(self.to_dict())

    @property
    def run_id(self) -> str:
        """An id that stays the same when a run continues with more rounds, other
        timeouts or another device.
        """
        return run_id(self.to_dict())


def _complete(table: dict[str, Any]) -> None:
    """Add the method's own defaults to a table, and those of rows of a table, where it
    leaves these settings out.
    """
    name = table.get("method", Config.method)
    for key, value in find_method(name).defaults if isinstance(name, str) else ():
        section, _, leaf = key.rpartition(".")
        place = table.setdefault(section, {}) if section else table
        # else a section that is made already, or an error that `from_table` describes
        if isinstance(place, dict):
            place.setdefault(leaf, value)
    if any(_reads_table(table.get(section)) for section in ("data", "aux")):
        method = find_method(name) if isinstance(name, str) else None
        frozen = table.get("head_only") is True or (method and method.analytic)
        table.setdefault("prototypes", [network_for_numbers(bool(frozen))])


def network_for_numbers(frozen: bool) -> str:
    """The network for rows of numbers where none is named, by whether its features stay
    as they are. Both scale columns like public ones, which `mlp` does not. Trained,
    `tabular` is more accurate (`test_columns_of_any_scale_are_scaled_like_public_ones`).
    """
    return "linear" if frozen else "tabular"


def _reads_table(section: Any) -> bool:
    """Whether a section names a table of numbers and categories."""
    if isinstance(section, (DataConfig, AuxConfig)):
        return section.source in TABLE_SOURCES
    return isinstance(section, Mapping) and section.get("source") in TABLE_SOURCES


def run_id(table: Mapping[str, Any]) -> str:
    """Compute the id of a run from the settings stored in its folder, so that newer
    versions find the same id.
    """
    return _hash(
        {
            key: value
            for key, value in table.items()
            if key not in ("rounds", "federation", "device")
        }
    )


def _hash(table: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(table, sort_keys=True).encode()).hexdigest()[:16]


def flatten(config: Config) -> dict[str, str | float]:
    """Return settings by dotted key, as trackers expect them: `local.lr` → 0.001. Lists
    become JSON.
    """
    return {
        key: json.dumps(value) if isinstance(value, list) else value
        for key, value in dotted(config.to_dict())
    }


def _beside(file: Path, table: dict[str, Any]) -> dict[str, Any]:
    """Resolve the data paths that exist next to the file. Other paths stay as they
    are.
    """
    for section in (table.get("data"), table.get("aux")):
        path = section.get("path") if isinstance(section, dict) else None
        if (
            isinstance(section, dict)
            and isinstance(path, str)
            and path
            and (file.parent / path).exists()
        ):
            section["path"] = os.path.normpath(file.parent / path)
        options = section.get("options") if isinstance(section, dict) else None
        if isinstance(options, dict) and isinstance(options.get("schema"), str):
            beside = file.parent / options["schema"]
            if beside.is_file():
                options["schema"] = os.path.normpath(beside)
    return table


def read_table(path: str | Path) -> dict[str, Any]:
    """Read the tables of a TOML or JSON file without validating them."""
    path = Path(path)
    if not path.is_file():
        raise ConfigError(
            f"Cannot read the config: there is no config file {path}. Run `fedaux "
            "init` to write one, or `fedaux demo`, which needs none."
        )
    try:
        text = path.read_text(encoding="utf-8")
        return _beside(
            path,
            dict(json.loads(text) if path.suffix == ".json" else tomllib.loads(text)),
        )
    except (json.JSONDecodeError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"Cannot read the config: {path} is not valid "
            f"{'JSON' if path.suffix == '.json' else 'TOML'} ({error}). Correct the "
            "file."
        ) from error
