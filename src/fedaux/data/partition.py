"""Splits of records: private ones among clients, public ones into D⁻ and D_distill,
those of an epoch into batches.

A partition takes labels and gives one sorted array of positions per client, every
record once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray

from fedaux.core.arrays import Matrix
from fedaux.data.records import Indices

PARTITIONS = ("dirichlet", "shards", "iid")
UNIT = 2**40  # costs are integers in units of 1/UNIT of a record
FAR = 2**60  # larger than any sum of costs
NEARLY_ZERO = 1e-300


def partition(
    labels: NDArray[np.int64],
    kind: str,
    clients: int,
    alpha: float,
    per_client: int,
    rng: np.random.Generator,
) -> list[Indices]:
    """The partition named `kind`. Only `dirichlet` uses `alpha`, only `shards` uses
    `per_client`.
    """
    if kind == "dirichlet":
        return dirichlet(labels, clients, alpha, rng)
    if kind == "shards":
        return shards(labels, clients, per_client, rng)
    if kind == "iid":
        return iid(labels, clients, rng)
    raise ValueError(
        f"Cannot split the records: unknown partition {kind!r}. Choose one of: "
        f"{', '.join(PARTITIONS)}."
    )


def iid(
    labels: NDArray[np.int64], clients: int, rng: np.random.Generator
) -> list[Indices]:
    """Equal parts of a random permutation."""
    _check(labels, clients)
    order = rng.permutation(len(labels))
    return [np.sort(share) for share in np.array_split(order, clients)]


def shards(
    labels: NDArray[np.int64], clients: int, per_client: int, rng: np.random.Generator
) -> list[Indices]:
    """Sort by label, cut into clients × per_client shards, assign `per_client` to each
    (McMahan et al. 2017).
    """
    if per_client < 1:
        raise ValueError(
            "Cannot split the records: a client needs at least one shard, not "
            f"{per_client}. Set the number of shards to 1 or more."
        )
    _check(labels, clients * per_client, "shards")
    order = rng.permutation(len(labels))
    order = order[np.argsort(labels[order], kind="stable")]
    pieces = np.array_split(order, clients * per_client)
    assigned = rng.permutation(len(pieces)).reshape(clients, per_client)
    shares = [[pieces[index] for index in row] for row in assigned]
    return [np.sort(np.concatenate(share)) for share in shares]


def dirichlet(
    labels: NDArray[np.int64], clients: int, alpha: float, rng: np.random.Generator
) -> list[Indices]:
    """Dirichlet(α) label mixtures with client sizes that differ by at most one record.

    An n×c matrix of Gamma(α) draws is scaled to both margins (`sinkhorn`) and rounded
    with the margins kept (`round_to_margins`). Because of the scaling, Dirichlet rows
    and Dirichlet columns give the same distribution.
    """
    _check(labels, clients)
    if not 1e-6 <= alpha <= 1e6:
        raise ValueError(
            "Cannot split the records: alpha must lie between 1e-6 (one class per "
            f"client) and 1e6 (all alike), not {alpha}. Try 0.1."
        )
    _, label_index, totals = np.unique(labels, return_inverse=True, return_counts=True)
    sizes = np.array([len(share) for share in np.array_split(labels, clients)])
    shape = (clients, len(totals))
    # Gamma(α) = Gamma(α+1)·U^(1/α), in logarithms: at α = 0.01 most draws would
    # underflow to zero.
    log_gamma = np.log(rng.standard_gamma(alpha + 1, shape))
    log_draw = log_gamma - rng.standard_exponential(shape) / alpha
    table = sinkhorn(log_draw, sizes, totals)
    counts = round_to_margins(table, sizes, totals)
    pieces: list[list[Indices]] = [[] for _ in range(clients)]
    for label, column in enumerate(counts.T):
        members = rng.permutation(np.flatnonzero(label_index == label))
        split = np.split(members, np.cumsum(column)[:-1])
        for client, piece in zip(pieces, split, strict=True):
            client.append(piece)
    return [np.sort(np.concatenate(share)) for share in pieces]


def sinkhorn(
    log_draw: Matrix,
    rows: NDArray[np.int64],
    columns: NDArray[np.int64],
    steps: int = 1000,
) -> Matrix:
    """Sinkhorn scaling of exp(log_draw), (n, c) → (n, c), until the margins are off by
    less than half a record in all.

    Near-infeasible supports (small α) converge slowly. After `steps` `round_to_margins`
    corrects the rest.
    """
    log_rows = np.log(rows)[:, None]
    log_columns = np.log(columns)
    table = log_draw
    for _ in range(steps):
        table = table + (log_columns - np.logaddexp.reduce(table, axis=0))
        excess = log_rows - np.logaddexp.reduce(table, axis=1, keepdims=True)
        if np.abs(np.expm1(-excess[:, 0]) * rows).sum() < 0.5:
            break
        table = table + excess
    return np.exp(table)


def round_to_margins(
    table: Matrix, rows: NDArray[np.int64], columns: NDArray[np.int64]
) -> NDArray[np.int64]:
    """The nearest integer table with exactly these margins, from a non-negative one
    with approximately these margins.

    The real table is first moved into the transport polytope (Altschuler et al. 2017,
    alg. 2). Subtracting its floor leaves F, 0 ≤ F ≤ 1 with integer margins; wanted is
    the 0/1 table `up` with these margins that maximises ⟨F, up⟩. Start: every row takes
    its largest entries of F, the optimum if columns are ignored. Then single records
    move along shortest paths from columns with surplus to columns with deficit
    (successive shortest paths): row sums stay exact, the table stays optimal for its
    column sums, and each step brings two column sums closer by one record. A path
    always exists: by Hoffman's theorem a 0/1 table exists iff certain inequalities
    between integers hold, and the float error in the margins of F is too small to
    violate one of them by 1.
    """
    table = table * np.minimum(1, rows / np.maximum(table.sum(1), NEARLY_ZERO))[:, None]
    table = table * np.minimum(1, columns / np.maximum(table.sum(0), NEARLY_ZERO))
    row_deficit = np.maximum(rows - table.sum(1), 0)
    column_deficit = np.maximum(columns - table.sum(0), 0)
    table = table + np.outer(row_deficit, column_deficit) / max(
        row_deficit.sum(), NEARLY_ZERO
    )
    # paths lead from column to column: fewer of them are found faster
    if len(rows) < len(columns):
        return _round(table.T, columns, rows).T
    return _round(table, rows, columns)


def _round(
    table: Matrix, rows: NDArray[np.int64], columns: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Round a table to integers with these row and column sums."""
    floor = np.floor(table + 1e-9).astype(np.int64)
    # integers, so that no path depends on float error
    gain = np.rint((table - floor) * UNIT).astype(np.int64)
    rank = np.argsort(np.argsort(-gain, axis=1, kind="stable"), axis=1)
    up = rank < (rows - floor.sum(1))[:, None]
    moves = _Moves(up, gain)
    while (surplus := (floor + up).sum(0) - columns).any():
        moves.move_record(surplus)
    counts: NDArray[np.int64] = floor + up
    return counts


class _Moves:
    """Compute the cost of moving a record from column j to k: the smallest loss of a
    row that exchanges j for k.
    """

    def __init__(self, up: NDArray[np.bool_], gain: NDArray[np.int64]) -> None:
        self._up = up
        self._gain = gain
        c = up.shape[1]
        self._cost = np.full((c, c), FAR)
        self._row = np.zeros((c, c), dtype=np.int64)
        self._price(np.arange(c))

    def move_record(self, surplus: NDArray[np.int64]) -> None:
        """Along the shortest path from a column with surplus to one with deficit
        (Bellman-Ford).
        """
        distance = np.where(surplus > 0, 0, FAR)
        before = np.full(len(surplus), -1)
        nearer = np.flatnonzero(surplus > 0)
        while len(nearer):
            reach = distance[nearer, None] + self._cost[nearer]
            closer = reach.min(0) < np.minimum(distance, FAR // 2)
            distance[closer] = reach.min(0)[closer]
            before[closer] = nearer[reach.argmin(0)[closer]]
            nearer = np.flatnonzero(closer)
        end = int(np.where(surplus < 0, distance, FAR).argmin())
        touched = list[int]()
        if before[end] < 0:
            raise RuntimeError(
                "no path leads to a column with deficit: the table was not finite"
            )
        # by a row that changes, before or after
        changed = np.zeros(len(surplus), dtype=np.bool_)
        while before[end] >= 0:
            start = before[end]
            row = self._row[start, end]
            changed |= self._up[row]
            self._up[row, start] = False
            self._up[row, end] = True
            touched.append(row)
            end = start
        self._price(np.flatnonzero(changed | self._up[touched].any(0)))

    def _price(self, columns: NDArray[np.int64]) -> None:
        """Anew for records of these columns."""
        for column in columns:
            holders = np.flatnonzero(self._up[:, column])
            self._cost[column] = FAR
            if len(holders):
                free = np.where(self._up[holders], -FAR, self._gain[holders])
                loss = self._gain[holders, column, None] - free
                self._cost[column] = loss.min(0)
                self._row[column] = holders[loss.argmin(0)]


def class_counts(
    labels: NDArray[np.int64], parts: Sequence[Indices], classes: int
) -> NDArray[np.int64]:
    """Number of records of each class at each client, (n, c)."""
    counts = [np.bincount(labels[share], minlength=classes) for share in parts]
    return np.array(counts, dtype=np.int64)


def _check(labels: NDArray[np.int64], pieces: int, noun: str = "clients") -> None:
    if not 1 <= pieces <= len(labels):
        raise ValueError(
            f"Cannot split the records: {len(labels)} records cannot make {pieces} "
            f"{noun} of at least one record. Use between 1 and {len(labels)}."
        )


@dataclass(frozen=True, eq=False)
class AuxSplit:
    """Sorted, disjoint positions in D_aux, of negatives D⁻ and of the distillation set
    D_distill.

    Scores fitted on a record must not be evaluated on it.
    """

    negatives: Indices
    distill: Indices

    def __post_init__(self) -> None:
        if not len(self.negatives) or not len(self.distill):
            raise ValueError(
                "Cannot split the public data: the auxiliary split has "
                f"{len(self.negatives)} negatives and {len(self.distill)} records to "
                "distil. Give more auxiliary data, or a share of negatives nearer to "
                "0.2."
            )
        positions = np.concatenate([self.negatives, self.distill])
        if len(np.unique(positions)) < len(positions):
            raise ValueError(
                "Cannot split the public data: negatives and distillation set must be "
                "disjoint and without repeats. Use AuxSplit.draw to make them so."
            )

    @classmethod
    def draw(cls, size: int, fraction: float, rng: np.random.Generator) -> Self:
        """A random split of `size` records. `fraction` is the share of D⁻."""
        if not 0 < fraction < 1:
            raise ValueError(
                "Cannot split the public data: the share of negatives must lie between "
                f"0 and 1, not {fraction}. The paper uses 0.2."
            )
        negatives, distill = np.split(rng.permutation(size), [round(fraction * size)])
        return cls(np.sort(negatives), np.sort(distill))


def batch_starts(size: int, batch_size: int) -> range:
    """Where the batches of an epoch start.

    A last batch of a single row is merged into the one before: BatchNorm cannot train
    on it.
    """
    return range(0, max(1, size - 1 if batch_size > 1 else size), batch_size)


def shuffled(size: int, generator: torch.Generator) -> NDArray[np.int64]:
    """Positions in the order of an epoch."""
    order: NDArray[np.int64] = torch.randperm(size, generator=generator).numpy()
    return order


def batches(
    size: int, batch_size: int, generator: torch.Generator
) -> Iterator[NDArray[np.int64]]:
    """One shuffled epoch."""
    order = shuffled(size, generator)
    for start, stop in pairwise([*batch_starts(size, batch_size), size]):
        yield order[start:stop]
