"""The tables of a configuration: each a frozen dataclass whose values are checked when
it is made.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Literal

from fedaux.config.parsing import (
    Count,
    Fraction,
    Momentum,
    Natural,
    NonNegative,
    Options,
    Positive,
    Probability,
    Rate,
    Settings,
    Share,
    Within,
    require,
    require_choice,
)
from fedaux.config.sends import MEANINGS

OPTIMIZERS: tuple[str, ...] = ("adam", "sgd")  # of local training
Partition = Literal["dirichlet", "shards", "iid", "folders", "given", "own"]
Schedule = Literal["constant", "cosine", "step"]
Alpha = Annotated[float, Within("(0, inf)", "0.01 is extreme, 100 nearly even")]
Seed = Annotated[int, Within("[-1, inf)")]
Epsilon = Annotated[float, Within("(0, inf)", "for no scores set method = 'feddf+p'")]
# of what a client keeps: whether noise stands between it and the records
Colour = Literal["plain", "private"]


@dataclass(frozen=True)
class DataConfig(Settings):
    """Private and test data, and how the private records are split between the
    clients.
    """

    section = "data."

    source: str = "digits"  # a name of `data.sources`, or module:function
    path: str = ""  # of the source, if it takes one
    options: Options = ()  # further arguments of the source
    # names of labels 0, 1, …, the same at all sites; required by partition = "own"
    classes: tuple[str, ...] = ()
    # the person a record belongs to: a column, an array's name, or a regular expression
    # over paths
    person: str = ""
    # stop at an image file that cannot be read, instead of leaving it out; also of
    # [aux]
    strict: bool = False
    # of the training records, held out if the source has no test set
    test_fraction: Fraction = 0.2
    test_seed: Annotated[
        int, Within("[-1, inf)")
        # of which records those are; −1: the run's seed, so that every seed has its own
    ] = -1
    # of the private records, held out and evaluated in place of the test set
    validation_fraction: Momentum = 0.0
    clients: Count = 10  # number of simulated clients
    # or shards, iid; folders: SITE/CLASS/; given: by the source; own: real sites
    partition: Partition = "dirichlet"
    # of the Dirichlet split: 0.01 is about one class per client, 100 nearly even
    alpha: Alpha = 0.01
    shards: Count = 2  # per client, for partition = "shards"

    def check(self) -> None:
        require(
            len(set(self.classes)) == len(self.classes),
            "data.classes must differ from one another.",
        )
        require(
            self.validation_fraction == 0 or self.partition != "own",
            "data.validation_fraction holds out records of simulated clients; with "
            "data.partition = 'own' every site has its own. Tune on a simulation, and "
            "give real sites what it has chosen.",
        )


@dataclass(frozen=True)
class AuxConfig(Settings):
    """Public unlabelled data: a source of its own, or records held out of the private
    source, labels dropped.
    """

    section = "aux."

    source: str = ""  # as data.source; "" holds records out of the private source
    path: str = ""  # of the source, if it takes one
    options: Options = ()  # further arguments of the source
    # of the training records, held out if there is no source of its own
    fraction: Fraction = 0.5
    # anyone may see its records: reports show some. Published sources such as cifar10
    # are
    public: bool = False
    limit: Natural = 0  # maximum number of records; 0: all
    negatives: Fraction = 0.2  # fraction used as negatives D⁻; the rest is D_distill


@dataclass(frozen=True)
class PretrainConfig(Settings):
    """P1: self-supervised training of each prototype's extractor on all auxiliary data
    (SimCLR, for text masked LM).
    """

    section = "pretrain."

    epochs: Natural = 100  # 0 leaves the extractor random
    # separate from the run's, so that all splits and seeds of a study share one
    # extractor
    seed: int = 0
    lr: Rate = 1e-3  # Adam's
    weight_decay: NonNegative = 1e-6  # Adam's
    # images, two views each
    batch_size: Annotated[
        int, Within("[2, inf)", "views are contrasted with others")
    ] = 512
    # images in one forward pass, to save memory; 0: the whole batch
    micro_batch_size: Natural = 0
    temperature: Positive = 0.5  # of the contrastive loss
    projection_dim: Count = 128  # output of the projection head
    min_crop_area: Share = 0.2  # smallest fraction of the area that a random crop keeps
    # random horizontal flips; false where left and right differ: digits, text in
    # images, anatomy
    flip: bool = True

    def check(self) -> None:
        require(
            self.micro_batch_size != 1,
            "pretrain.micro_batch_size must be 0 or at least 2, not 1.",
        )


# of one client, as far as a server believes it: a larger claim would dominate the average
MAX_RECORDS = 1_000_000
CHOSEN_NORM = -1.0  # `local.max_grad_norm` is left to the method and its start


@dataclass(frozen=True)
class LocalConfig(Settings):
    """T1: local training at the clients."""

    section = "local."

    epochs: Count = 5  # E: passes over the client's records a round
    # SGD from a computed head or where the method needs it; or Adam
    optimizer: Literal["auto", "adam", "sgd"] = "auto"
    # learning rate, of the first round; 0: one that suits
    lr: Annotated[float, Within("[0, 1e20]")] = 0.0
    momentum: Momentum = 0.0  # SGD's
    # largest norm of a step's gradient, without noise; 0: any; -1: 1 for a whole network
    # under a computed head, else any
    max_grad_norm: Annotated[float, Within("[-1, 1e20]")] = CHOSEN_NORM
    weight_decay: NonNegative = 0.0  # λ of the λ/2 ‖θ‖² that is added to the loss
    # of lr over the rounds; or cosine, or step: lower after 1/2 and 3/4 of them
    schedule: Schedule = "constant"
    final_lr_fraction: Share = 0.01  # share of lr that cosine and step end with
    batch_size: Count = 32  # of records
    mu: NonNegative = 0.01  # FedProx only
    # BatchNorm keeps the server's statistics: those of few classes are others
    freeze_batch_norm: bool = False

    def check(self) -> None:
        require(
            self.momentum == 0 or self.optimizer != "adam",
            (
                "local.momentum is SGD's, Adam has its own: set local.optimizer = "
                "'sgd', or leave local.momentum out."
            ),
        )
        require(
            self.max_grad_norm >= 0 or self.max_grad_norm == CHOSEN_NORM,
            (
                f"local.max_grad_norm must be at least 0, or {CHOSEN_NORM:g} for the "
                f"default, not {self.max_grad_norm:g}."
            ),
        )

    def resolved(
        self,
        optimizers: Sequence[str],
        computed_head: bool = False,
        heads: bool = False,
    ) -> LocalConfig:
        """Return the settings with an optimiser, its learning rate and the bound of its
        gradient, where they are left to the method.

        The weights of a computed head are large: its norm is 25 to 76, that of a new
        layer about 1. The layers below receive gradients as much larger, which wreck
        them within an epoch. So a whole network takes small steps under a computed
        head, and none of them is large.

        Args:
            optimizers: Those that the method allows.
            computed_head: Whether training starts from a computed head, which Adam's
                first steps would undo.
            heads: Whether only heads are trained, on standardised features.
        """
        under_computed_head = computed_head and not heads
        optimizer = self.optimizer
        if optimizer == "auto":
            adam = "adam" in optimizers and not self.momentum and not computed_head
            optimizer = "adam" if adam else "sgd"
        lr = self.lr
        if lr == 0 and optimizer == "adam":
            lr = 1e-3
        if lr == 0:
            lr = 0.05 if under_computed_head else 0.1
        max_grad_norm = self.max_grad_norm
        if max_grad_norm == CHOSEN_NORM:
            max_grad_norm = 1.0 if under_computed_head else 0.0
        return replace(self, optimizer=optimizer, lr=lr, max_grad_norm=max_grad_norm)

    def lr_at(self, round_: int, rounds: int) -> float:
        """The learning rate of round 1, 2, …, `rounds`."""
        if self.schedule == "cosine":
            half_turn = math.pi * (round_ - 1) / max(1, rounds - 1)
            return self.lr * (
                self.final_lr_fraction
                + (1 - self.final_lr_fraction) * (1 + math.cos(half_turn)) / 2
            )
        if self.schedule == "step":
            drops = sum((round_ - 1) / rounds >= share for share in (0.5, 0.75))
            return self.lr * math.pow(self.final_lr_fraction, drops / 2)
        return self.lr


@dataclass(frozen=True)
class PrivacyConfig(Settings):
    """P2, P3 and private training: privacy budgets, noise and scorer."""

    section = "privacy."

    # or class-moments, logistic, module:function
    scorer: str = "class-embedding"
    epsilon: Epsilon = 0.1  # of one release of scores
    # of all that a client ever releases, private training too; 0: one release only
    epsilon_total: NonNegative = 0.0
    delta: Fraction = 1e-5  # of everything; well below 1 / number of records
    # of privacy; or a person with all their records (data.person)
    unit: Literal["record", "person"] = "record"
    # unit = "person": records of a person beyond this number are not used
    max_records_per_person: Count = 10
    # neighbouring datasets; or add-remove
    adjacency: Literal["replace-one", "add-remove"] = "replace-one"
    # of the noise; or opendp: zCDP, 7 to 11 % more noise
    calibration: Literal["opendp", "analytic"] = "analytic"
    # dimension of the public PCA; 0: chosen on public data (class-moments), else 32
    embedding_dim: Natural = 32
    # class-moments: of all clients, to choose for; 0: simulated ones, else 10,000
    expected_records: Natural = 0
    ridge: Annotated[float, Within("[1e-6, inf)")] = 0.01  # logistic: regularisation λ
    # DP-SGD with what scores leave of epsilon_total; false: models are not private
    private_training: bool = False
    # rounds of private training the budget is planned for; 0: the rounds of the run
    train_rounds: Natural = 0
    # of a client's records in a step of DP-SGD; 0: local.batch_size of them
    sample_rate: Probability = 0.0
    max_grad_norm: Positive = 1.0  # to which a record's gradient is clipped
    # public |D_i| in units; required by add-remove, replace-one counts the records
    declared_records: Natural = 0
    # ≥ 0 seeds the noise, which voids all privacy: tests and studies only
    unsafe_seed: int = -1

    def check(self) -> None:
        if ":" not in self.scorer:  # else a module:function of the user's
            scorers = (
                "class-embedding",
                "class-moments",
                "logistic",
                "module:function",
            )
            require_choice("privacy.scorer", self.scorer, scorers)
        require(
            self.adjacency == "replace-one" or self.declared_records >= 1,
            (
                "privacy.adjacency = 'add-remove' needs privacy.declared_records, a "
                "size that neighbours share."
            ),
        )
        require(
            self.embedding_dim <= 512 or self.scorer != "class-moments",
            (
                "privacy.embedding_dim must be at most 512 with the scorer "
                "class-moments, which sends its square."
            ),
        )
        require(
            self.scorer != "class-moments"
            or self.unit == "record"
            or self.max_records_per_person <= 1024,
            (
                "privacy.max_records_per_person must be at most 1024 with the scorer "
                "class-moments."
            ),
        )
        require(
            self.epsilon_total > 0 or not self.private_training,
            (
                "privacy.private_training needs privacy.epsilon_total, what scores and "
                "training may cost together."
            ),
        )

    @property
    def epsilon_budget(self) -> float:
        """ε of all releases and private training of a client, ever."""
        return self.epsilon_total or self.epsilon

    @property
    def dimension(self) -> int:
        """`embedding_dim` of scorers that do not choose one."""
        return self.embedding_dim or 32

    @property
    def colour(self) -> Colour:
        """The colour of everything that training leaves behind: private only with
        private training and secret noise.
        """
        return "private" if self.private_training and self.unsafe_seed < 0 else "plain"


@dataclass(frozen=True)
class FederationConfig(Settings):
    """Sites, timeouts, quorum, and the limits on what a client may claim."""

    section = "federation."

    # names of real sites; empty: clients are simulated from one source
    sites: tuple[str, ...] = ()
    # a node takes part only under the name that its key was registered with
    registered_only: bool = False
    # seconds to wait for the sites before the first round
    connect_timeout: Positive = 600.0
    timeout: Positive = 3600.0  # seconds to wait for the replies of a round
    # how often an order without an answer is sent again in a round; it is paid for once
    retries: Natural = 2
    # seconds that a round waits for a site that has dropped out
    reconnect_timeout: NonNegative = 180.0
    # fraction of the selected clients whose contributions a round needs
    quorum: Probability = 0.5
    # fraction of additional clients to select; enough replies end the round
    over_selection: NonNegative = 0.0
    # of models on the wire; float16 halves the bytes
    precision: Literal["float32", "float16"] = "float32"
    max_records: Count = MAX_RECORDS  # largest number of records a client may report
    # ask: at a site, its owner approves before an order is answered
    approval: Literal["none", "ask"] = "none"
    # at a site: words of `sends` that need no approval, such as "noisy sums"
    standing: tuple[str, ...] = ()
    # at a site: what may leave it, such as "noisy sums", "models"; all else is refused
    sends: tuple[str, ...] = ()
    # at a site: that an order may ask for in a round; its own local.epochs always
    max_epochs: Count = 100
    # the server learns sums over the sites, and nothing of a site alone (secure sums)
    secure: bool = False
    # share of the asked sites that a secure sum needs; above 2/3
    threshold: Annotated[float, Within("(0, 1]")] = 0.8
    # sites that may work together with the server: the noise suffices without theirs
    colluders: Natural = 1

    def check(self) -> None:
        require(
            len(set(self.sites)) == len(self.sites),
            "federation.sites must differ from one another.",
        )
        for word in self.sends:
            require_choice("federation.sends", word, tuple(MEANINGS))
        for name in self.sites:
            require(
                re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}", name) is not None,
                (
                    f"federation.sites: {name!r} cannot be the name of a site; use "
                    "letters, digits, - and _."
                ),
            )
