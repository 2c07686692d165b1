"""The configuration of a run: frozen, validated, read from TOML with overrides, and hashed."""

from __future__ import annotations

import copy
import hashlib
import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedaux.config.distillation import DistillConfig, TeachersConfig
from fedaux.config.methods import Method, find_method, method_name
from fedaux.config.parsing import (
    ConfigError,
    Options,
    apply_override,
    dotted,
    from_table,
    require,
    require_choice,
    require_within,
    sorted_options,
    to_plain,
)
from fedaux.config.prototype import PrototypeSpec
from fedaux.config.sections import AuxConfig, DataConfig, FederationConfig, LocalConfig, PretrainConfig, PrivacyConfig


@dataclass(frozen=True)
class Config:
    """A run. Defaults are the paper's, except where docs/rulings.md says otherwise."""

    method: str = "fedaux"  # a name of `METHODS`, or your own: module:attribute
    method_options: Options = ()  # of the method, where it has any: beta of fedavgm, …
    rounds: int = 10  # T: how often clients are asked to train
    fraction: float = 1.0  # C: the fraction of clients selected each round
    head_only: bool = False  # train only the heads, on features of the frozen extractor h0, computed once
    head_features: str = "standardised"  # head_only: h0's features, with the mean and deviation of D⁻'s; or raw
    random_features: int = 0  # head_only: train heads on so many random ReLU features of them; 0: on themselves
    head_init: str = "random"  # or the head of closed-form, from releases; or of ridge, discriminant, class-means
    prepare: str = "selected"  # who makes a release, or sends sums, before round 1: its clients; or all
    seed: int = 0  # of everything random except the privacy noise
    device: str = "auto"  # a GPU if there is one; or cpu, cuda, cuda:1, mps. Each site chooses its own
    precision: str = "float32"  # of networks' products; or bfloat16; or auto, whichever a timed trial finds faster here
    prototypes: tuple[PrototypeSpec, ...] = (PrototypeSpec("mlp"),)  # assigned to the clients in turn
    data: DataConfig = field(default_factory=DataConfig)
    aux: AuxConfig = field(default_factory=AuxConfig)
    pretrain: PretrainConfig = field(default_factory=PretrainConfig)
    local: LocalConfig = field(default_factory=LocalConfig)
    distill: DistillConfig = field(default_factory=DistillConfig)
    teachers: TeachersConfig = field(default_factory=TeachersConfig)
    privacy: PrivacyConfig = field(default_factory=PrivacyConfig)
    federation: FederationConfig = field(default_factory=FederationConfig)

    def __post_init__(self) -> None:
        object.__setattr__(self, "method", method_name(self.method))
        object.__setattr__(self, "method_options", sorted_options("method_options", self.method_options))
        method = find_method(self.method)
        hooks = method.make_hooks(dict(self.method_options))
        if hooks is not None:
            require(
                self.local.optimizer in hooks.optimizers,
                f"{method.label} is not meant for {self.local.optimizer}: set local.optimizer to "
                f"{' or '.join(hooks.optimizers)}.",
            )
            require(
                self.federation.precision == "float32" or hooks.half_precision,
                f"{method.label} needs federation.precision = 'float32': half precision drowns what its clients send.",
            )
        require_within("rounds", self.rounds, "[1, inf)")
        require_within("fraction", self.fraction, "(0, 1]")
        require(
            not self.federation.sites
            or self.data.partition == "own"
            or len(self.federation.sites) == self.data.clients,
            f"federation.sites names {len(self.federation.sites)} sites; data.clients must be as many, "
            "or data.partition = 'own' where each site reads its own data.",
        )
        require(
            self.data.partition != "own" or bool(self.federation.sites),
            "data.partition = 'own' needs federation.sites, the names of the sites.",
        )
        require(
            re.fullmatch(r"auto|cpu|mps|cuda(:\d+)?", self.device) is not None,
            f"device must be auto, cpu, cuda, cuda:1 … or mps, not {self.device!r}.",
        )
        require_choice("precision", self.precision, ("auto", "float32", "bfloat16"))
        require_choice("head_features", self.head_features, ("standardised", "raw"))
        require_within("random_features", self.random_features, "[0, 100000]")
        require(self.head_only or self.random_features == 0, "random_features are of heads: set head_only = true.")
        require(self.head_only or self.head_features == "standardised", "head_features needs head_only = true.")
        require_choice("prepare", self.prepare, ("selected", "all"))
        self._check_analytic_head()
        require(
            not self.releases or self.privacy.epsilon <= self.privacy.epsilon_budget,
            f"privacy.epsilon_total = {self.privacy.epsilon_total:g} is less than privacy.epsilon = "
            f"{self.privacy.epsilon:g}, which the scores alone cost.",
        )
        require(
            self.privacy.unit == "record" or self.data.person != "",
            "privacy.unit = 'person' needs data.person, the person a record belongs to.",
        )
        require(len(self.prototypes) >= 1, "prototypes must name at least one network.")
        require(len(set(self.prototypes)) == len(self.prototypes), "prototypes must differ from one another.")

    def _check_analytic_head(self) -> None:
        method, head = find_method(self.method), self.analytic_head
        require(
            self.head_init == "random" or not method.analytic,
            f"{method.label} computes its head: leave head_init out.",
        )
        if head is None:
            return
        require(head.analytic, f"head_init = {self.head_init!r} must be random, or a method that computes its head.")
        head.make_hooks(dict(self.method_options) if method.analytic else {})
        require(
            head.sends != "releases" or self.privacy.scorer == "class-embedding",
            "a head of the releases, closed-form, needs privacy.scorer = 'class-embedding'.",
        )
        require(
            head.sends != "releases" or self.random_features == 0,
            "a head of the releases, closed-form, is one on h0's own features: set random_features = 0.",
        )
        require(
            not self.privacy.private_training or (not head.sums and not method.analytic),
            f"{head.label} sends sums of features without noise, or trains nothing, and privacy.private_training is "
            "for training: method = 'closed-form+p' or head_init = 'closed-form' compute a head under noise.",
        )

    @property
    def analytic_head(self) -> Method | None:
        """The method whose head is computed: that of the run, or the one whose head training starts from."""
        method = find_method(self.method)
        if method.analytic or self.head_init == "random":
            return method if method.analytic else None
        return find_method(self.head_init)

    @property
    def releases(self) -> bool:
        """Whether clients make a release: to be weighted as teachers, or for a head."""
        head = self.analytic_head
        return find_method(self.method).scores or (head is not None and head.sends == "releases")

    @classmethod
    def load(cls, path: str | Path, overrides: Sequence[str] = ()) -> Config:
        """Read a TOML file, or JSON; then apply `key=value` overrides such as `local.lr=0.01`.

        Paths of data in the file are looked for beside it, and else in the working directory, as those of overrides
        are. A table `[tune]` is there for `fedaux tune` alone.
        """
        return cls.from_dict({key: value for key, value in read_table(path).items() if key != "tune"}, overrides)

    @classmethod
    def from_dict(cls, table: Mapping[str, Any], overrides: Sequence[str] = ()) -> Config:
        """Build from nested tables, as TOML or JSON has them, which are left unchanged."""
        merged = copy.deepcopy(dict(table))
        for text in overrides:
            apply_override(merged, text)
        built = from_table(cls, merged)
        assert isinstance(built, cls)
        return built

    def to_dict(self) -> dict[str, Any]:
        """As nested tables for JSON or TOML; `from_dict` reads them back."""
        return dict(to_plain(self))

    @property
    def hash(self) -> str:
        """16 hex digits that are the same for the same settings, defaults included."""
        return _hash(self.to_dict())

    @property
    def run_id(self) -> str:
        """The same for a run that goes on with more rounds, other patience or elsewhere; a client's state bears it."""
        return run_id(self.to_dict())


def run_id(table: Mapping[str, Any]) -> str:
    """Of settings as a run's folder has them: a version with more settings knows the run by the same id."""
    return _hash({key: value for key, value in table.items() if key not in ("rounds", "federation", "device")})


def _hash(table: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(table, sort_keys=True).encode()).hexdigest()[:16]


def flatten(config: Config) -> dict[str, str | float]:
    """Settings by dotted key, as trackers take them: `local.lr` → 0.001. Lists are JSON."""
    return {key: json.dumps(value) if isinstance(value, list) else value for key, value in dotted(config.to_dict())}


def _beside(file: Path, table: dict[str, Any]) -> dict[str, Any]:
    """With the paths of data that lie beside the file; others stay as they are."""
    for section in (table.get("data"), table.get("aux")):
        path = section.get("path") if isinstance(section, dict) else None
        if isinstance(section, dict) and isinstance(path, str) and path and (file.parent / path).exists():
            section["path"] = str(file.parent / path)
    return table


def read_table(path: str | Path) -> dict[str, Any]:
    """The tables of a TOML or JSON file, not yet validated."""
    path = Path(path)
    if not path.is_file():
        raise ConfigError(f"there is no config file {path}; `fedaux demo` runs without one and shows how one looks.")
    try:
        text = path.read_text(encoding="utf-8")
        return _beside(path, dict(json.loads(text) if path.suffix == ".json" else tomllib.loads(text)))
    except (json.JSONDecodeError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not valid {'JSON' if path.suffix == '.json' else 'TOML'}: {error}") from error
