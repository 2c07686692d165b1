"""Looks: how many records fall into each bin, released with noise once for each
question. With a model they are the records held out, and without one all records.

What a record adds is, to the bit, a function of that record: a network sees it alone,
and its bin follows from comparisons of what the network says, or of its own value in a
column. So two neighbouring data sets differ by what `Tallies.sensitivity` says,
whatever model and bins the order brings.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedaux.client.answers import AnswerStore
from fedaux.client.columns import Bins, bins_of_columns
from fedaux.client.loading import load_all, open_held_out
from fedaux.client.own_figures import keep_own_figures
from fedaux.client.releases import noisy_from_bytes, noisy_to_bytes
from fedaux.client.site import Site
from fedaux.data.records import Records
from fedaux.messages import Counts, LookOrder, Release, Tallies, Tally, identity
from fedaux.messages.tallies import (
    OF_ANSWERS,
    OF_CLASSES,
    OF_COLUMN,
    OF_HITS,
    STEPS,
)
from fedaux.models import Prototype
from fedaux.models.inference import Rows
from fedaux.privacy.account_file import LOOK_REQUEST, SUM_REQUEST, Entry
from fedaux.privacy.accounting import Mechanism, release_mechanism
from fedaux.privacy.looks import as_counts, look_budget
from fedaux.privacy.mechanism import Summary, release
from fedaux.privacy.per_record import outputs
from fedaux.privacy.units import Units
from fedaux.scoring.base import Labels, Shares

NOWHERE = -1  # the bin of a record that adds nothing to a tally


@dataclass(frozen=True)
class Looks:
    """The looks of one client.

    Attributes:
        store: Where their answers are kept.
        site: The client's site.
    """

    store: AnswerStore
    site: Site

    def counts(self, order: LookOrder) -> Counts:
        """Return the stored counts, or new ones: entered in the account before a record
        is read.
        """
        question_hash = identity(order)
        path = self.store.folder / f"look-{question_hash}.json"

        def draw(mechanism: Mechanism, summary: Summary) -> bytes:
            return noisy_to_bytes(as_counts(self._noisy(order, summary)))

        content = self._answer(order, LOOK_REQUEST + question_hash, path, draw)
        counts = noisy_from_bytes(Counts, content)
        account = self.store.account().to_json()
        return replace(counts, client=order.client, account=account)

    def masked(
        self,
        order: LookOrder,
        path: Path,
        honest: int,
        mask: Callable[[NDArray[np.int64]], bytes],
    ) -> bytes:
        """Return this client's part of a secure sum of counts, masked and stored at
        `path`.
        """
        request = SUM_REQUEST + LOOK_REQUEST + identity(order)

        def draw(mechanism: Mechanism, summary: Summary) -> bytes:
            return mask(self._noisy(order, summary, honest).arrays["values"])

        return self._answer(order, request, path, draw)

    def _noisy(self, order: LookOrder, summary: Summary, honest: int = 1) -> Release:
        return release(
            summary, f"look {order.client}", look_budget(self.store.privacy), honest
        )

    def _answer(
        self,
        order: LookOrder,
        request: str,
        path: Path,
        draw: Callable[[Mechanism, Summary], bytes],
    ) -> bytes:
        mechanism = release_mechanism(order.size, look_budget(self.store.privacy))

        def plan(entries: list[Entry]) -> Mechanism:
            return mechanism

        tested: list[tuple[Records, Rows]] = []

        def read() -> Summary:
            records, logits = records_to_count(order, self.site)
            tested.append((records, logits))
            return summary_of_bins(order, self.site, records, logits)

        content = self.store.with_noise(order, request, path, plan, read, draw)
        # the answer is stored, and nobody waits for the account: what goes wrong or
        # takes long from here on costs no ε
        if Tallies.from_json(order.tallies).needs_model and not self.site.is_simulated:
            for records, logits in tested:
                keep_own_figures(order, self.site, records, logits)
        return content


def records_to_count(order: LookOrder, site: Site) -> tuple[Records, Rows]:
    """Return the records of a look, and what its model says of them: nothing, if it has
    none.
    """
    if Tallies.from_json(order.tallies).needs_model:
        model, records = open_held_out(order, site)
        return records, outputs_of_model(model, records)
    records = load_all(site, order)
    return records, np.zeros((len(records), 0), np.float32)


def summary_of_bins(
    order: LookOrder, site: Site, records: Records, logits: Rows
) -> Summary:
    """Count the records in all bins of an order, without noise."""
    tallies = Tallies.from_json(order.tallies)
    privacy = site.config.privacy
    columns = bins_of_columns(tallies, site.config, order.client, records)
    units = Units.of(records, privacy.unit, privacy.max_records_per_person)
    values = count_in_bins(
        tallies, order.classes, records.labels, logits, units.shares, columns
    )
    sensitivity = tallies.sensitivity(privacy.adjacency)
    return Summary(values, 1 / STEPS, sensitivity, privacy.adjacency, units.count)


def count_in_bins(
    tallies: Tallies,
    classes: int,
    labels: Labels,
    logits: Rows,
    shares: Shares,
    columns: Mapping[str, Bins],
) -> NDArray[np.int64]:
    """Return the counts in all bins, in steps; a record of share s adds ⌊s · steps⌋ to
    its bin. `columns` has each record's bin in every column that is counted by.

    By what a model says, a record adds nothing if its label is outside the classes, or
    if the model says something that is not finite.
    """
    declared = (labels >= 0) & (labels < classes)
    answered = declared & np.isfinite(logits).all(axis=1)
    parts: list[NDArray[np.int64]] = []
    for tally in tallies.by_name.values():
        if tally.kind == OF_CLASSES:
            bins = np.where(declared, labels, classes)
        elif tally.kind == OF_COLUMN:
            bins = columns[tally.column]
        else:
            bins = np.full(len(labels), NOWHERE)
            bins[answered] = bins_of_answers(tally, labels[answered], logits[answered])
        counted = bins != NOWHERE
        values = np.zeros(tally.bins(classes), np.int64)
        added = np.floor(shares[counted] * tally.steps).astype(np.int64)
        np.add.at(values, bins[counted], added)
        parts.append(values)
    return np.concatenate(parts)


def bins_of_answers(tally: Tally, labels: Labels, logits: Rows) -> Bins:
    """Return the bin of each record. The bins of a class follow one another."""
    is_right = logits.argmax(axis=1) == labels
    if tally.kind == OF_ANSWERS:
        return np.asarray(is_right, np.int64)
    if tally.kind == OF_HITS:
        return np.asarray(2 * labels + is_right)
    # the difference of two floats is rounded as IEEE 754 says, whatever its neighbours
    scores = logits[:, 1].astype(np.float64) - logits[:, 0]
    bins = np.searchsorted(np.asarray(tally.edges), scores, side="right")
    return np.asarray(labels * (len(tally.edges) + 1) + bins)


def outputs_of_model(model: Prototype, records: Records) -> Rows:
    """Return what the model says of each record, computed alone."""
    rows: list[Rows] = [block for _, block in outputs(model, records)]
    if not rows:
        return np.zeros((0, model.head.out_features), np.float32)
    return np.concatenate(rows)
