"""The configuration of a run: frozen, validated, read from TOML with overrides, and hashed."""

from __future__ import annotations

import copy
import hashlib
import json
import math
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedaux.config.methods import find_method
from fedaux.config.parsing import (
    ConfigError,
    Options,
    apply_override,
    from_table,
    require,
    require_choice,
    sorted_options,
    to_plain,
)
from fedaux.config.prototype import PrototypeSpec


@dataclass(frozen=True)
class DataConfig:
    """Private and test data, and how the private records are split between the clients."""

    source: str = "digits"  # a name of `data.sources`, or module:function
    path: str = ""  # of the source, if it takes one
    options: Options = ()  # further arguments of the source
    classes: tuple[str, ...] = ()  # names of labels 0, 1, …, the same at all sites; required by partition = "own"
    person: str = ""  # the person a record belongs to: a column, an array's name, or a regular expression over paths
    test_fraction: float = 0.2  # of the training records, held out if the source has no test set
    clients: int = 10  # number of simulated clients
    partition: str = "dirichlet"  # or shards, iid; "own": each real site reads its own data
    alpha: float = 0.01  # of the Dirichlet split: 0.01 is about one class per client, 100 nearly even
    shards: int = 2  # per client, for partition = "shards"

    def __post_init__(self) -> None:
        object.__setattr__(self, "options", sorted_options("data.options", self.options))
        require(len(set(self.classes)) == len(self.classes), "data.classes must differ from one another.")
        require(self.shards >= 1, f"data.shards must be at least 1, not {self.shards}.")
        require_choice("data.partition", self.partition, ("dirichlet", "shards", "iid", "own"))
        require(self.clients >= 1, f"data.clients must be at least 1, not {self.clients}.")
        require(self.alpha > 0, f"data.alpha must be above 0, not {self.alpha}: 0.01 is extreme, 100 nearly even.")
        require(0 < self.test_fraction < 1, f"data.test_fraction must lie between 0 and 1, not {self.test_fraction}.")


@dataclass(frozen=True)
class AuxConfig:
    """Public unlabelled data: a source of its own, or records held out of the private source, labels dropped."""

    source: str = ""  # as data.source; "" holds records out of the private source
    path: str = ""  # of the source, if it takes one
    options: Options = ()  # further arguments of the source
    fraction: float = 0.5  # of the training records, held out if there is no source of its own
    limit: int = 0  # maximum number of records; 0: all
    negatives: float = 0.2  # fraction used as negatives D⁻; the rest is D_distill

    def __post_init__(self) -> None:
        object.__setattr__(self, "options", sorted_options("aux.options", self.options))
        require(0 < self.fraction < 1, f"aux.fraction must lie between 0 and 1, not {self.fraction}.")
        require(0 < self.negatives < 1, f"aux.negatives must lie between 0 and 1, not {self.negatives}.")
        require(self.limit >= 0, f"aux.limit must be 0 (all) or a number of records, not {self.limit}.")


@dataclass(frozen=True)
class PretrainConfig:
    """P1: self-supervised training of each prototype's extractor on all auxiliary data (SimCLR, for text masked LM)."""

    epochs: int = 100  # 0 leaves the extractor random
    seed: int = 0  # separate from the run's, so that all splits and seeds of a study share one extractor
    lr: float = 1e-3  # Adam's
    weight_decay: float = 1e-6  # Adam's
    batch_size: int = 512  # images, two views each
    micro_batch_size: int = 0  # images in one forward pass, to save memory; 0: the whole batch
    temperature: float = 0.5  # of the contrastive loss
    projection_dim: int = 128  # output of the projection head
    min_crop_area: float = 0.2  # smallest fraction of the area that a random crop keeps
    precision: str = "float32"  # or bfloat16, faster where the processor supports it: 32×32 images, wide networks
    flip: bool = True  # random horizontal flips; false where left and right differ: digits, text in images, anatomy

    def __post_init__(self) -> None:
        require_choice("pretrain.precision", self.precision, ("float32", "bfloat16"))
        require(self.epochs >= 0, f"pretrain.epochs must not be negative, it is {self.epochs}.")
        require(
            self.batch_size >= 2,
            f"pretrain.batch_size must be at least 2, not {self.batch_size}: views are contrasted with others.",
        )
        require(
            self.micro_batch_size == 0 or self.micro_batch_size >= 2,
            f"pretrain.micro_batch_size must be 0 or at least 2, not {self.micro_batch_size}.",
        )
        require(self.projection_dim >= 1, f"pretrain.projection_dim must be at least 1, not {self.projection_dim}.")
        require(self.weight_decay >= 0, f"pretrain.weight_decay must not be negative, it is {self.weight_decay}.")
        require(
            0 < self.min_crop_area <= 1,
            f"pretrain.min_crop_area must be above 0 and at most 1, not {self.min_crop_area}.",
        )
        require(0 < self.lr <= 1e20 and self.temperature > 0, "pretrain.lr and pretrain.temperature must be above 0.")


@dataclass(frozen=True)
class LocalConfig:
    """T1: local training at the clients."""

    epochs: int = 1  # E: passes over the client's records a round
    optimizer: str = "adam"  # or sgd; each round starts it anew
    lr: float = 1e-3  # learning rate, of the first round where there is a schedule
    momentum: float = 0.0  # SGD's
    weight_decay: float = 0.0  # λ of the λ/2 ‖θ‖² that is added to the loss
    schedule: str = (
        "constant"  # of lr over the rounds; or cosine, or step: down after a half and three quarters of them
    )
    final_lr_fraction: float = 0.01  # share of lr that cosine and step end with
    batch_size: int = 32  # of records
    mu: float = 0.01  # FedPROX only

    def __post_init__(self) -> None:
        require_choice("local.optimizer", self.optimizer, ("adam", "sgd"))
        require_choice("local.schedule", self.schedule, ("constant", "cosine", "step"))
        require(self.epochs >= 1 and self.batch_size >= 1, "local.epochs and local.batch_size must be at least 1.")
        require(0 < self.lr <= 1e20 and self.mu >= 0, "local.lr must be above 0 and local.mu not below 0.")
        require(0 <= self.momentum < 1, f"local.momentum must be at least 0 and below 1, not {self.momentum}.")
        require(
            self.momentum == 0 or self.optimizer == "sgd",
            "local.momentum is SGD's, Adam has its own: set local.optimizer = 'sgd', or leave local.momentum out.",
        )
        require(
            0 <= self.weight_decay < math.inf, f"local.weight_decay must not be negative, it is {self.weight_decay}."
        )
        require(
            0 < self.final_lr_fraction <= 1,
            f"local.final_lr_fraction must be above 0 and at most 1, not {self.final_lr_fraction}.",
        )

    def lr_at(self, round_: int, rounds: int) -> float:
        """The learning rate of round 1, 2, …, `rounds`."""
        if self.schedule == "cosine":
            half_turn = math.pi * (round_ - 1) / max(1, rounds - 1)
            return self.lr * (self.final_lr_fraction + (1 - self.final_lr_fraction) * (1 + math.cos(half_turn)) / 2)
        if self.schedule == "step":
            drops = sum((round_ - 1) / rounds >= share for share in (0.5, 0.75))
            return self.lr * math.pow(self.final_lr_fraction, drops / 2)
        return self.lr


@dataclass(frozen=True)
class DistillConfig:
    """T3: distillation of the ensemble into the students (Adam, KL divergence)."""

    epochs: int = 1  # passes over D_distill per round
    lr: float = 5e-5  # Adam's
    batch_size: int = 128  # of public examples
    samples: int = 10  # models drawn from the Gaussian, FedBE only

    def __post_init__(self) -> None:
        require(self.epochs >= 1 and self.batch_size >= 1, "distill.epochs and distill.batch_size must be at least 1.")
        require(0 < self.lr <= 1e20 and self.samples >= 1, "distill.lr must be above 0 and distill.samples at least 1.")


@dataclass(frozen=True)
class TeachersConfig:
    """T2: the weights of the clients' models in the ensemble."""

    weights: str = "odds"  # from a client's scores s: odds are s/(1 − s), certainty is s
    max_share: float = 1.0  # largest share of the teachers' weight that one client may have on a public example
    run_on: str = "server"  # who runs the clients' models on D_distill; "clients": each its own, on its copy of [aux]
    examples: int = 0  # of D_distill in a round, drawn anew for each; 0: all of them

    def __post_init__(self) -> None:
        require_choice("teachers.weights", self.weights, ("odds", "certainty"))
        require(0 < self.max_share <= 1, f"teachers.max_share must be above 0 and at most 1, not {self.max_share}.")
        require_choice("teachers.run_on", self.run_on, ("server", "clients"))
        require(
            self.run_on == "server" or self.max_share == 1,
            "teachers.max_share below 1 needs teachers.run_on = 'server': only the server sees all teachers' weights.",
        )
        require(self.examples >= 0, f"teachers.examples must be 0 (all) or a number of examples, not {self.examples}.")


@dataclass(frozen=True)
class PrivacyConfig:
    """P2, P3 and private training: privacy budgets, noise and scorer."""

    scorer: str = "class-embedding"  # or mean-embedding, logistic, module:function
    epsilon: float = 0.1  # of one release of scores
    epsilon_total: float = 0.0  # of all releases and private training of a client, ever; 0: one release of scores only
    delta: float = 1e-5  # of everything; well below 1 / number of records
    unit: str = "record"  # of privacy: a record, or a person with all their records (data.person)
    max_records_per_person: int = 10  # unit = "person": records of a person beyond this number are not used
    adjacency: str = "replace-one"  # neighbouring datasets; or add-remove
    calibration: str = "analytic"  # of the noise: analytic Gaussian, or opendp: zCDP, 7 to 11 % more noise
    embedding_dim: int = 32  # class- and mean-embedding: dimension of the public PCA
    ratio: str = "bayes"  # mean-embedding: how the server turns means into odds; or kliep
    ridge: float = 0.01  # logistic: regularisation λ
    private_training: bool = False  # DP-SGD with what scores leave of epsilon_total; false: models are not private
    train_rounds: int = 0  # rounds of private training the budget is planned for; 0: the rounds of the run
    sample_rate: float = 0.0  # of a client's records in a step of DP-SGD; 0: local.batch_size of them
    max_grad_norm: float = 1.0  # to which a record's gradient is clipped
    declared_records: int = 0  # public |D_i| in units; required by add-remove, replace-one counts the records
    unsafe_seed: int = -1  # ≥ 0 seeds the noise, which voids all privacy: tests and studies only

    def __post_init__(self) -> None:
        if ":" not in self.scorer:  # else a module:function of the user's
            require_choice(
                "privacy.scorer", self.scorer, ("class-embedding", "mean-embedding", "logistic", "module:function")
            )
        require_choice("privacy.ratio", self.ratio, ("bayes", "kliep"))
        require_choice("privacy.adjacency", self.adjacency, ("replace-one", "add-remove"))
        require_choice("privacy.calibration", self.calibration, ("opendp", "analytic"))
        require(
            self.adjacency == "replace-one" or self.declared_records >= 1,
            "privacy.adjacency = 'add-remove' needs privacy.declared_records, a size that neighbours share.",
        )
        require(
            0 < self.epsilon < math.inf,
            f"privacy.epsilon must be above 0, not {self.epsilon}; for no scores: method = 'feddf+p'.",
        )
        require(0 < self.delta < 1, f"privacy.delta must lie between 0 and 1, not {self.delta}.")
        require_choice("privacy.unit", self.unit, ("record", "person"))
        require(
            self.max_records_per_person >= 1,
            f"privacy.max_records_per_person must be at least 1, not {self.max_records_per_person}.",
        )
        require(
            0 <= self.epsilon_total < math.inf, f"privacy.epsilon_total must not be negative: {self.epsilon_total}."
        )
        require(
            self.epsilon_total > 0 or not self.private_training,
            "privacy.private_training needs privacy.epsilon_total, what scores and training may cost together.",
        )
        require(
            self.train_rounds >= 0 and 0 <= self.sample_rate <= 1,
            "privacy.train_rounds must not be negative, privacy.sample_rate is at most 1.",
        )
        require(0 < self.max_grad_norm < math.inf, f"privacy.max_grad_norm must be above 0, not {self.max_grad_norm}.")
        require(self.embedding_dim >= 1, f"privacy.embedding_dim must be at least 1, not {self.embedding_dim}.")
        require(1e-6 <= self.ridge < math.inf, f"privacy.ridge must be at least 1e-6, not {self.ridge}.")
        require(
            self.declared_records >= 0, f"privacy.declared_records must not be negative, not {self.declared_records}."
        )

    @property
    def epsilon_budget(self) -> float:
        """ε of all releases and private training of a client, ever."""
        return self.epsilon_total or self.epsilon


@dataclass(frozen=True)
class FederationConfig:
    """Sites, timeouts, quorum, and the limits on what a client may claim."""

    sites: tuple[str, ...] = ()  # names of real sites; empty: clients are simulated from one source
    connect_timeout: float = 600.0  # seconds to wait for the sites before the first round
    timeout: float = 3600.0  # seconds to wait for the replies of a round
    quorum: float = 0.5  # fraction of the selected clients whose contributions a round needs
    over_selection: float = 0.0  # fraction of additional clients to select; the round ends when enough have replied
    precision: str = "float32"  # of models on the wire; float16 halves the bytes
    max_records: int = 1_000_000  # largest number of records a client may report

    def __post_init__(self) -> None:
        require_choice("federation.precision", self.precision, ("float32", "float16"))
        require(len(set(self.sites)) == len(self.sites), "federation.sites must differ from one another.")
        for name in self.sites:
            require(
                re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}", name) is not None,
                f"federation.sites: {name!r} is no name of a site; use letters, digits, - and _.",
            )
        require(
            0 < self.connect_timeout < math.inf and 0 < self.timeout < math.inf,
            "federation.connect_timeout and federation.timeout must be above 0.",
        )
        require(0 <= self.quorum <= 1, f"federation.quorum must lie between 0 and 1, not {self.quorum}.")
        require(
            0 <= self.over_selection < math.inf,
            f"federation.over_selection must not be negative, it is {self.over_selection}.",
        )
        require(self.max_records >= 1, f"federation.max_records must be at least 1, not {self.max_records}.")


@dataclass(frozen=True)
class Config:
    """A run. Defaults are the paper's, except where docs/rulings.md says otherwise."""

    method: str = "fedaux"  # a name of `METHODS`, or your own: module:attribute
    method_options: Options = ()  # of the method, where it has any: beta of fedavgm, …
    rounds: int = 10  # T: how often clients are asked to train
    fraction: float = 1.0  # C: the fraction of clients selected each round
    head_only: bool = False  # train only the heads, on features of the frozen extractor h0, computed once
    head_init: str = "random"  # or closed-form: computed from the first round's releases, at no additional ε
    seed: int = 0  # of everything random except the privacy noise
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
        require(self.rounds >= 1, f"rounds must be at least 1, not {self.rounds}.")
        require(0 < self.fraction <= 1, f"fraction must be above 0 and at most 1, not {self.fraction}.")
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
        require_choice("head_init", self.head_init, ("random", "closed-form"))
        require(
            self.head_init == "random" or (method.scores and self.privacy.scorer == "class-embedding"),
            "head_init = 'closed-form' needs method = 'fedaux' and privacy.scorer = 'class-embedding'.",
        )
        require(
            not method.scores or self.privacy.epsilon <= self.privacy.epsilon_budget,
            f"privacy.epsilon_total = {self.privacy.epsilon_total:g} is less than privacy.epsilon = "
            f"{self.privacy.epsilon:g}, which the scores alone cost.",
        )
        require(
            self.privacy.unit == "record" or self.data.person != "",
            "privacy.unit = 'person' needs data.person, the person a record belongs to.",
        )
        require(len(self.prototypes) >= 1, "prototypes must name at least one network.")
        require(len(set(self.prototypes)) == len(self.prototypes), "prototypes must differ from one another.")

    @classmethod
    def load(cls, path: str | Path, overrides: Sequence[str] = ()) -> Config:
        """Read a TOML file, or JSON; then apply `key=value` overrides such as `local.lr=0.01`."""
        return cls.from_dict(read_table(path), overrides)

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
        """The same for a run that goes on with more rounds or other patience, by which a client knows its own state."""
        table = self.to_dict()
        return _hash({key: value for key, value in table.items() if key not in ("rounds", "federation")})


def _hash(table: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(table, sort_keys=True).encode()).hexdigest()[:16]


def flatten(config: Config) -> dict[str, str | float]:
    """Settings by dotted key, as trackers take them: `local.lr` → 0.001."""

    def walk(value: Any, key: str) -> Iterable[tuple[str, str | float]]:
        if isinstance(value, Mapping):
            for name, item in value.items():
                yield from walk(item, f"{key}.{name}" if key else name)
        elif isinstance(value, Sequence) and not isinstance(value, str):
            yield key, json.dumps(value)
        else:
            yield key, value

    return dict(walk(config.to_dict(), ""))


def read_table(path: str | Path) -> dict[str, Any]:
    """The tables of a TOML or JSON file, not yet validated."""
    path = Path(path)
    if not path.is_file():
        raise ConfigError(f"there is no config file {path}; `fedaux demo` runs without one and shows how one looks.")
    try:
        text = path.read_text(encoding="utf-8")
        return dict(json.loads(text) if path.suffix == ".json" else tomllib.loads(text))
    except (json.JSONDecodeError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not valid {'JSON' if path.suffix == '.json' else 'TOML'}: {error}") from error
