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
Schedule = Literal["auto", "constant", "warm-up", "cosine", "step"]
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

    # where the records come from: the name of a source, or module:function
    source: str = "digits"
    # the file or folder of the source, if it needs one
    path: str = ""
    # further arguments of the source, such as size = 32 for images
    options: Options = ()
    # the names of labels 0, 1, … They are the same at all sites, and partition = "own"
    # requires them
    classes: tuple[str, ...] = ()
    # how to find the person of a record: a column, the name of an array, or a regular
    # expression for paths. For unit = "person"
    person: str = ""
    # stop at an image file that cannot be read, instead of leaving it out. Applies to
    # [aux] as well
    strict: bool = False
    # the fraction of the training records that is held out for testing if the source
    # has no test set
    test_fraction: Fraction = 0.2
    # the seed that chooses these records. With −1, it is the seed of the run, so every
    # run holds out other records
    test_seed: Annotated[int, Within("[-1, inf)")] = -1
    # the fraction of the private records that is held out for validation. It replaces
    # the test set
    validation_fraction: Momentum = 0.0
    # the fraction of each site's records that the site never trains on. It tests the
    # final model on them, at the cost of privacy.look_epsilon
    site_test_fraction: Momentum = 0.0
    # the columns of a table that a look before a run counts by. With none, it is all
    # columns of the schema
    look_columns: tuple[str, ...] = ()
    # the number of intervals into which such a look divides a column of numbers
    look_bins: Annotated[int, Within("[2, 100]")] = 8
    # the number of simulated clients
    clients: Count = 10
    # how records are split: by a Dirichlet distribution, in shards, or evenly (iid).
    # With folders, each folder SITE/CLASS is a client. With given, the source decides.
    # With own, real sites read their own data
    partition: Partition = "dirichlet"
    # the parameter of the Dirichlet split: 0.01 gives about one class per client, and
    # 100 is nearly even
    alpha: Alpha = 0.01
    # the number of shards per client, for partition = "shards"
    shards: Count = 2

    def check(self) -> None:
        require(
            len(set(self.classes)) == len(self.classes),
            "Cannot use data.classes: they must differ from one another. Delete the "
            "second of two that are equal.",
        )
        require(
            self.validation_fraction == 0 or self.partition != "own",
            "Cannot use data.validation_fraction: it holds out records of simulated "
            "clients, and with data.partition = 'own' every site has its own. Tune on "
            "a simulation, and give real sites what it has chosen.",
        )


@dataclass(frozen=True)
class AuxConfig(Settings):
    """Public unlabelled data: a separate source, or records held out of the private
    source without their labels.
    """

    section = "aux."

    # as data.source. If it is empty, records of the private source are held out
    source: str = ""
    # the file or folder of the source, if it needs one
    path: str = ""
    # further arguments of the source
    options: Options = ()
    # the fraction of the training records that is held out if there is no source
    fraction: Fraction = 0.5
    # whether anyone may see the records, so that reports can show some of them. This is
    # always so for published sources such as cifar10
    public: bool = False
    # the maximum number of records. With 0, all are used
    limit: Natural = 0
    # the fraction that is used as negatives D⁻. The rest is D_distill
    negatives: Fraction = 0.2


CHOSEN_EPOCHS = -1  # `pretrain.epochs` is left to the number of public records
VIEWS = 70_000  # of pre-training, with two of each record in an epoch
LEAST_EPOCHS = 10
MOST_EPOCHS = 100


@dataclass(frozen=True)
class PretrainConfig(Settings):
    """P1: self-supervised training of each prototype's extractor on all auxiliary data
    (SimCLR, for text masked LM).
    """

    section = "pretrain."

    # passes over the auxiliary data. With 0, the extractor stays random. With −1, they
    # make about 70,000 views: a minute of one core for small images
    epochs: Annotated[int, Within("[-1, inf)")] = CHOSEN_EPOCHS
    # the seed of pre-training. It is separate from the run's seed, so that all splits
    # and seeds of a study share one extractor
    seed: int = 0
    # the learning rate of Adam
    lr: Rate = 1e-3
    # the weight decay of Adam
    weight_decay: NonNegative = 1e-6
    # the number of images in a batch, with two views of each
    batch_size: Annotated[
        int, Within("[2, inf)", "views are contrasted with others")
    ] = 256
    # the number of images in one forward pass. A smaller number saves memory. With 0,
    # it is the whole batch
    micro_batch_size: Natural = 0
    # the temperature of the contrastive loss
    temperature: Positive = 0.5
    # the size of the output of the projection head
    projection_dim: Count = 128
    # the smallest fraction of the area that a random crop keeps
    min_crop_area: Share = 0.5
    # whether images are flipped at random. Set it to false if left and right have a
    # meaning, as in digits, text in images, or anatomy
    flip: bool = True

    def check(self) -> None:
        require(
            self.micro_batch_size != 1,
            "Cannot use these settings: pretrain.micro_batch_size must be 0 or at "
            "least 2, not 1. Correct the value.",
        )

    @property
    def trains(self) -> bool:
        """Whether there is any pre-training."""
        return self.epochs != 0

    def for_records(self, count: int) -> PretrainConfig:
        """Return these settings with the number of epochs for so many public records,
        if it is left to fedaux.
        """
        if self.epochs != CHOSEN_EPOCHS:
            return self
        for_views = round(VIEWS / (2 * max(1, count)))
        return replace(self, epochs=min(MOST_EPOCHS, max(LEAST_EPOCHS, for_views)))


# of one client, as far as a server believes it: a larger claim would dominate the average
MAX_RECORDS = 1_000_000
CHOSEN_NORM = -1.0  # `local.max_grad_norm` is left to the method and its start
WARM_UP_ROUNDS = 5  # until local training has its full learning rate


@dataclass(frozen=True)
class LocalConfig(Settings):
    """T1: local training at the clients."""

    section = "local."

    # E: passes over the client's records per round
    epochs: Count = 5
    # the optimiser. auto is SGD if training starts from a computed head or the method
    # needs it, and Adam otherwise
    optimizer: Literal["auto", "adam", "sgd"] = "auto"
    # the learning rate of the first round. With 0, fedaux chooses a suitable one
    lr: Annotated[float, Within("[0, 1e20]")] = 0.0
    # the momentum of SGD
    momentum: Momentum = 0.0
    # the norm to which the gradient of a step is clipped, without noise. 0 is no limit.
    # With -1, it is 1 for a whole network that starts from a computed head, and no limit
    # otherwise
    max_grad_norm: Annotated[float, Within("[-1, 1e20]")] = CHOSEN_NORM
    # λ of the λ/2 ‖θ‖² that is added to the loss
    weight_decay: NonNegative = 0.0
    # how lr changes over the rounds. warm-up raises it to lr over the first five, and
    # step lowers it after 1/2 and 3/4 of them. auto is warm-up for a whole network that
    # starts from a computed head, and constant otherwise
    schedule: Schedule = "auto"
    # the fraction of lr at which cosine and step end
    final_lr_fraction: Share = 0.01
    # the number of records in a batch
    batch_size: Count = 32
    # μ of FedProx. Other methods ignore it
    mu: NonNegative = 0.01
    # whether BatchNorm keeps the server's statistics during local training. This helps
    # clients with few classes, whose statistics differ. auto is true for a whole network
    # that starts from a computed head, since the head is computed with these statistics
    freeze_batch_norm: bool | Literal["auto"] = "auto"

    def check(self) -> None:
        require(
            self.momentum == 0 or self.optimizer != "adam",
            "Cannot use local.momentum: it belongs to SGD. Set local.optimizer = "
            "'sgd', or leave local.momentum out.",
        )
        require(
            self.max_grad_norm >= 0 or self.max_grad_norm == CHOSEN_NORM,
            "Cannot use these settings: local.max_grad_norm must be at least 0, or "
            f"{CHOSEN_NORM:g} for the default, not {self.max_grad_norm:g}. Correct the "
            "value.",
        )

    def resolved(
        self,
        optimizers: Sequence[str],
        computed_head: bool = False,
        heads: bool = False,
    ) -> LocalConfig:
        """Return the settings with all values that are left to the method and its start.

        The weights of a computed head are large: its norm is 25 to 76, that of a new
        layer about 1. The layers below receive gradients as much larger, which wreck
        them within an epoch. So a whole network takes small steps under a computed
        head, none of them large, and the smallest in the first rounds. BatchNorm keeps
        the statistics that the head was computed with: with others, the head is wrong
        even if no weight has changed.

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
        schedule = self.schedule
        if schedule == "auto":
            schedule = "warm-up" if under_computed_head else "constant"
        freeze_batch_norm = self.freeze_batch_norm
        if freeze_batch_norm == "auto":
            freeze_batch_norm = under_computed_head
        return replace(
            self,
            optimizer=optimizer,
            lr=lr,
            max_grad_norm=max_grad_norm,
            schedule=schedule,
            freeze_batch_norm=freeze_batch_norm,
        )

    def lr_at(self, round_: int, rounds: int) -> float:
        """The learning rate of round 1, 2, …, `rounds`."""
        if self.schedule == "warm-up":
            return self.lr * min(1.0, round_ / WARM_UP_ROUNDS)
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

    # how clients describe their data: class-embedding, class-moments, logistic, or
    # module:function
    scorer: str = "class-embedding"
    # ε of one release of scores
    epsilon: Epsilon = 1.0
    # ε of everything that a client ever releases, including private training. With 0,
    # it may make one release and answer one look
    epsilon_total: NonNegative = 0.0
    # ε of one look: noisy counts of the records that a site holds out, by which the
    # final model is tested. With 0, sites answer no looks
    look_epsilon: NonNegative = 0.0
    # δ of everything. Choose it well below 1 / number of records
    delta: Fraction = 1e-5
    # what ε protects: one record, or a person with all their records (see data.person)
    unit: Literal["record", "person"] = "record"
    # the most records of a person that are used with unit = "person"
    max_records_per_person: Count = 10
    # which datasets are neighbours: those that differ in one exchanged unit, or in one
    # unit that is added or removed
    adjacency: Literal["replace-one", "add-remove"] = "replace-one"
    # how the noise is calibrated. opendp uses zCDP and adds 7 to 11 % more noise
    calibration: Literal["opendp", "analytic"] = "analytic"
    # the dimension of the public PCA. With 0, class-moments chooses it on public data,
    # and other scorers use 32
    embedding_dim: Natural = 32
    # about how many records all clients have together. class-moments chooses its
    # dimension for this number. With 0, it is the number of simulated records, or 10,000
    # at real sites
    expected_records: Natural = 0
    # the regularisation λ of the scorer logistic
    ridge: Annotated[float, Within("[1e-6, inf)")] = 0.01
    # whether clients train with DP-SGD, with the part of epsilon_total that the scores
    # leave. If false, models are not private
    private_training: bool = False
    # the number of rounds for which the budget of private training is planned. With 0,
    # it is the number of rounds of the run
    train_rounds: Natural = 0
    # the fraction of a client's records in a step of DP-SGD. With 0, a step uses about
    # local.batch_size records
    sample_rate: Probability = 0.0
    # the norm to which the gradient of each record is clipped
    max_grad_norm: Positive = 1.0
    # the public number of records or people, which add-remove requires. replace-one
    # counts the records instead
    declared_records: Natural = 0
    # a value of at least 0 seeds the noise. This voids all privacy, so use it only in
    # tests and studies
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
            "Cannot use these settings: privacy.adjacency = 'add-remove' needs "
            "privacy.declared_records, a size that neighbours share. Set it.",
        )
        require(
            self.embedding_dim <= 512 or self.scorer != "class-moments",
            "Cannot use these settings: privacy.embedding_dim must be at most 512 with "
            "the scorer class-moments, which sends its square. Set a smaller one.",
        )
        require(
            self.scorer != "class-moments"
            or self.unit == "record"
            or self.max_records_per_person <= 1024,
            "Cannot use these settings: privacy.max_records_per_person must be at most "
            "1024 with the scorer class-moments. Set a smaller one.",
        )
        require(
            self.epsilon_total > 0 or not self.private_training,
            "Cannot use these settings: privacy.private_training needs "
            "privacy.epsilon_total, what scores and training may cost together. Set it.",
        )

    @property
    def epsilon_budget(self) -> float:
        """ε of all releases, looks and private training of a client, ever."""
        return self.epsilon_total or self.epsilon + self.look_epsilon

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
    """Sites, timeouts, quorum, and limits on the claims of a client."""

    section = "federation."

    # the names of real sites. If it is empty, clients are simulated from one source
    sites: tuple[str, ...] = ()
    # whether a node may take part only under the name with which its key is registered
    registered_only: bool = False
    # seconds to wait for the sites before the first round
    connect_timeout: Positive = 600.0
    # seconds to wait for the replies of a round
    timeout: Positive = 3600.0
    # how often an order without an answer is sent again in a round. The client pays for
    # it once
    retries: Natural = 2
    # seconds that a round waits for a site that dropped out
    reconnect_timeout: NonNegative = 180.0
    # the fraction of the selected clients whose contributions a round needs
    quorum: Probability = 0.5
    # the fraction of additional clients to select. The round ends when enough of them
    # have replied
    over_selection: NonNegative = 0.0
    # the precision of models on the wire. float16 halves the bytes
    precision: Literal["float32", "float16"] = "float32"
    # the largest number of records that a client may report. 1,000,000 by default
    max_records: Count = MAX_RECORDS
    # with ask, the owner of a site has to approve a run before the site answers orders
    approval: Literal["none", "ask"] = "none"
    # at a site: the words of `sends` that need no approval, such as "noisy sums"
    standing: tuple[str, ...] = ()
    # at a site: the data that may leave it, such as "noisy sums" or "models". The site
    # refuses to send anything else
    sends: tuple[str, ...] = ()
    # at a site: the most epochs that an order may ask for in a round. The site's
    # local.epochs are always allowed
    max_epochs: Count = 100
    # whether sites take part in secure sums only. The server then learns sums over the
    # sites instead of the messages of each site
    secure: bool = False
    # the fraction of the asked sites that a secure sum needs. It must be above 2/3
    threshold: Annotated[float, Within("(0, 1]")] = 0.8
    # how many sites may work together with the server. The noise of the others is then
    # still enough
    colluders: Natural = 1

    def check(self) -> None:
        require(
            len(set(self.sites)) == len(self.sites),
            "Cannot use federation.sites: they must differ from one another. Delete "
            "the second of two that are equal.",
        )
        for word in self.sends:
            require_choice("federation.sends", word, tuple(MEANINGS))
        for name in self.sites:
            require(
                re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}", name) is not None,
                f"Cannot use federation.sites: {name!r} cannot be the name of a site. "
                "Use letters, digits, - and _.",
            )
