"""The tables of a configuration: each a frozen dataclass whose values are checked when it is made."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Literal

from fedaux.config.parsing import Options, require, require_choice, require_within, sorted_options

Colour = Literal["plain", "private"]  # of what a client keeps: whether noise stands between it and the records


@dataclass(frozen=True)
class DataConfig:
    """Private and test data, and how the private records are split between the clients."""

    source: str = "digits"  # a name of `data.sources`, or module:function
    path: str = ""  # of the source, if it takes one
    options: Options = ()  # further arguments of the source
    classes: tuple[str, ...] = ()  # names of labels 0, 1, …, the same at all sites; required by partition = "own"
    person: str = ""  # the person a record belongs to: a column, an array's name, or a regular expression over paths
    strict: bool = False  # stop at an image file that cannot be read, instead of leaving it out; also of [aux]
    test_fraction: float = 0.2  # of the training records, held out if the source has no test set
    test_seed: int = -1  # of which records those are; −1: the run's seed, so that every seed has its own
    validation_fraction: float = 0.0  # of the private records, held out and evaluated in place of the test set: `tune`
    clients: int = 10  # number of simulated clients
    partition: str = "dirichlet"  # or shards, iid; "own": each real site reads its own data
    alpha: float = 0.01  # of the Dirichlet split: 0.01 is about one class per client, 100 nearly even
    shards: int = 2  # per client, for partition = "shards"

    def __post_init__(self) -> None:
        object.__setattr__(self, "options", sorted_options("data.options", self.options))
        require(len(set(self.classes)) == len(self.classes), "data.classes must differ from one another.")
        require_choice("data.partition", self.partition, ("dirichlet", "shards", "iid", "own"))
        require_within("data.test_fraction", self.test_fraction, "(0, 1)")
        require_within("data.test_seed", self.test_seed, "[-1, inf)", "-1 is the run's own seed")
        require_within("data.validation_fraction", self.validation_fraction, "[0, 1)")
        require(
            self.validation_fraction == 0 or self.partition != "own",
            "data.validation_fraction holds out records of simulated clients; with data.partition = 'own' every site "
            "has its own. Tune on a simulation, and give real sites what it has chosen.",
        )
        require_within("data.clients", self.clients, "[1, inf)")
        require_within("data.alpha", self.alpha, "(0, inf)", "0.01 is extreme, 100 nearly even")
        require_within("data.shards", self.shards, "[1, inf)")


@dataclass(frozen=True)
class AuxConfig:
    """Public unlabelled data: a source of its own, or records held out of the private source, labels dropped."""

    source: str = ""  # as data.source; "" holds records out of the private source
    path: str = ""  # of the source, if it takes one
    options: Options = ()  # further arguments of the source
    fraction: float = 0.5  # of the training records, held out if there is no source of its own
    public: bool = False  # anyone may see its records: reports show some. Published sources such as cifar10 are
    limit: int = 0  # maximum number of records; 0: all
    negatives: float = 0.2  # fraction used as negatives D⁻; the rest is D_distill

    def __post_init__(self) -> None:
        object.__setattr__(self, "options", sorted_options("aux.options", self.options))
        require_within("aux.fraction", self.fraction, "(0, 1)")
        require_within("aux.limit", self.limit, "[0, inf)", "0 takes all records")
        require_within("aux.negatives", self.negatives, "(0, 1)")


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
    flip: bool = True  # random horizontal flips; false where left and right differ: digits, text in images, anatomy

    def __post_init__(self) -> None:
        require_within("pretrain.epochs", self.epochs, "[0, inf)")
        require_within("pretrain.lr", self.lr, "(0, 1e20]")
        require_within("pretrain.weight_decay", self.weight_decay, "[0, inf)")
        require_within("pretrain.batch_size", self.batch_size, "[2, inf)", "views are contrasted with others")
        require(self.micro_batch_size != 1, "pretrain.micro_batch_size must be 0 or at least 2, not 1.")
        require_within("pretrain.micro_batch_size", self.micro_batch_size, "[0, inf)", "0 takes the whole batch")
        require_within("pretrain.temperature", self.temperature, "(0, inf)")
        require_within("pretrain.projection_dim", self.projection_dim, "[1, inf)")
        require_within("pretrain.min_crop_area", self.min_crop_area, "(0, 1]")


@dataclass(frozen=True)
class LocalConfig:
    """T1: local training at the clients."""

    epochs: int = 1  # E: passes over the client's records a round
    optimizer: str = "adam"  # or sgd; each round starts it anew
    lr: float = 1e-3  # learning rate, of the first round where there is a schedule
    momentum: float = 0.0  # SGD's
    weight_decay: float = 0.0  # λ of the λ/2 ‖θ‖² that is added to the loss
    schedule: str = "constant"  # of lr over the rounds; or cosine, or step: lower after 1/2 and 3/4 of them
    final_lr_fraction: float = 0.01  # share of lr that cosine and step end with
    batch_size: int = 32  # of records
    mu: float = 0.01  # FedPROX only
    freeze_batch_norm: bool = False  # BatchNorm keeps the server's statistics: those of few classes are others

    def __post_init__(self) -> None:
        require_choice("local.optimizer", self.optimizer, ("adam", "sgd"))
        require_choice("local.schedule", self.schedule, ("constant", "cosine", "step"))
        require_within("local.epochs", self.epochs, "[1, inf)")
        require_within("local.lr", self.lr, "(0, 1e20]")
        require_within("local.momentum", self.momentum, "[0, 1)")
        require(
            self.momentum == 0 or self.optimizer == "sgd",
            "local.momentum is SGD's, Adam has its own: set local.optimizer = 'sgd', or leave local.momentum out.",
        )
        require_within("local.weight_decay", self.weight_decay, "[0, inf)")
        require_within("local.final_lr_fraction", self.final_lr_fraction, "(0, 1]")
        require_within("local.batch_size", self.batch_size, "[1, inf)")
        require_within("local.mu", self.mu, "[0, inf)")

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
    ridge: float = 0.01  # logistic: regularisation λ
    private_training: bool = False  # DP-SGD with what scores leave of epsilon_total; false: models are not private
    train_rounds: int = 0  # rounds of private training the budget is planned for; 0: the rounds of the run
    sample_rate: float = 0.0  # of a client's records in a step of DP-SGD; 0: local.batch_size of them
    max_grad_norm: float = 1.0  # to which a record's gradient is clipped
    declared_records: int = 0  # public |D_i| in units; required by add-remove, replace-one counts the records
    unsafe_seed: int = -1  # ≥ 0 seeds the noise, which voids all privacy: tests and studies only

    def __post_init__(self) -> None:
        if ":" not in self.scorer:  # else a module:function of the user's
            scorers = ("class-embedding", "mean-embedding", "logistic", "module:function")
            require_choice("privacy.scorer", self.scorer, scorers)
        require_choice("privacy.unit", self.unit, ("record", "person"))
        require_choice("privacy.adjacency", self.adjacency, ("replace-one", "add-remove"))
        require_choice("privacy.calibration", self.calibration, ("opendp", "analytic"))
        require_within("privacy.epsilon", self.epsilon, "(0, inf)", "for no scores set method = 'feddf+p'")
        require_within("privacy.epsilon_total", self.epsilon_total, "[0, inf)")
        require_within("privacy.delta", self.delta, "(0, 1)")
        require_within("privacy.max_records_per_person", self.max_records_per_person, "[1, inf)")
        require_within("privacy.embedding_dim", self.embedding_dim, "[1, inf)")
        require_within("privacy.ridge", self.ridge, "[1e-6, inf)")
        require_within("privacy.train_rounds", self.train_rounds, "[0, inf)", "0 plans for the rounds of the run")
        require_within("privacy.sample_rate", self.sample_rate, "[0, 1]")
        require_within("privacy.max_grad_norm", self.max_grad_norm, "(0, inf)")
        require_within("privacy.declared_records", self.declared_records, "[0, inf)")
        require(
            self.adjacency == "replace-one" or self.declared_records >= 1,
            "privacy.adjacency = 'add-remove' needs privacy.declared_records, a size that neighbours share.",
        )
        require(
            self.epsilon_total > 0 or not self.private_training,
            "privacy.private_training needs privacy.epsilon_total, what scores and training may cost together.",
        )

    @property
    def epsilon_budget(self) -> float:
        """ε of all releases and private training of a client, ever."""
        return self.epsilon_total or self.epsilon

    @property
    def colour(self) -> Colour:
        """Of all that training under these settings leaves behind: private only under noise that nobody knows."""
        return "private" if self.private_training and self.unsafe_seed < 0 else "plain"


@dataclass(frozen=True)
class FederationConfig:
    """Sites, timeouts, quorum, and the limits on what a client may claim."""

    sites: tuple[str, ...] = ()  # names of real sites; empty: clients are simulated from one source
    registered_only: bool = False  # a node takes part only under the name that its key was registered with
    connect_timeout: float = 600.0  # seconds to wait for the sites before the first round
    timeout: float = 3600.0  # seconds to wait for the replies of a round
    retries: int = 2  # how often an order without an answer is sent again in a round; the same order is paid for once
    reconnect_timeout: float = 180.0  # seconds that a round waits for a site that has dropped out
    quorum: float = 0.5  # fraction of the selected clients whose contributions a round needs
    over_selection: float = 0.0  # fraction of additional clients to select; the round ends when enough have replied
    precision: str = "float32"  # of models on the wire; float16 halves the bytes
    max_records: int = 1_000_000  # largest number of records a client may report
    max_epochs: int = 100  # at a site: that an order may ask for in a round; its own local.epochs always

    def __post_init__(self) -> None:
        require_choice("federation.precision", self.precision, ("float32", "float16"))
        require(len(set(self.sites)) == len(self.sites), "federation.sites must differ from one another.")
        for name in self.sites:
            require(
                re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}", name) is not None,
                f"federation.sites: {name!r} is no name of a site; use letters, digits, - and _.",
            )
        require_within("federation.connect_timeout", self.connect_timeout, "(0, inf)")
        require_within("federation.timeout", self.timeout, "(0, inf)")
        require_within("federation.retries", self.retries, "[0, inf)")
        require_within("federation.reconnect_timeout", self.reconnect_timeout, "[0, inf)")
        require_within("federation.quorum", self.quorum, "[0, 1]")
        require_within("federation.over_selection", self.over_selection, "[0, inf)")
        require_within("federation.max_records", self.max_records, "[1, inf)")
        require_within("federation.max_epochs", self.max_epochs, "[1, inf)")
