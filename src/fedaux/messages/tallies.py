"""Tallies: public divisions of records into bins, which a look counts under noise.

A server declares its tallies in the order, and an owner who approves the run reads them
there. A record counts in one bin of each tally, or in none. So what one record can
change is known from the tallies alone (`sensitivity`).

Before a run, tallies divide all records by their class and by the columns of a table.
After it, they divide the records held out by what the model says of them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fedaux.core.failures import OrderError

# steps of one count: noise is added to integers, and one record changes many of them
STEPS = 2**20
LEAST_WEIGHT = 1 / 8
MAX_TALLIES = 64
MAX_BINS = 2**16  # of all tallies of an order together
MAX_EDGES = 2**8  # of a tally
LARGEST_EDGE = 1e300

OF_CLASSES = "classes"
OF_COLUMN = "column"
OF_ANSWERS = "answers"
OF_HITS = "hits"
OF_SCORES = "scores"
MEANINGS_OF_TALLIES = {
    OF_CLASSES: "records of each class, and those of none",
    OF_COLUMN: "records by their value in a column of a table",
    OF_ANSWERS: "records that the model answers wrongly, and rightly",
    OF_HITS: "the same for each class",
    OF_SCORES: "records of each of two classes by the score of the model",
}
WITHOUT_MODEL = (OF_CLASSES, OF_COLUMN)


@dataclass(frozen=True)
class Tally:
    """One division of records into bins.

    Attributes:
        kind: What is counted, one of `MEANINGS_OF_TALLIES`.
        weight: How much of the look's accuracy this tally gets, from `LEAST_WEIGHT` to
            1: the noise on its counts is that of the look divided by this.
        edges: For scores and columns of numbers, where one bin ends and the next one
            begins. Scores are differences between the logit of the second class and
            that of the first.
        column: The column of a table that is counted by.
        values: Of a column that has no numbers, each in a bin of its own.
    """

    kind: str
    weight: float = 1.0
    edges: tuple[float, ...] = ()
    column: str = ""
    values: tuple[str, ...] = ()

    def bins(self, classes: int) -> int:
        """Return the number of bins; those of a class follow one another."""
        if self.kind == OF_CLASSES:
            return classes + 1
        if self.kind == OF_COLUMN:
            # intervals, or values and any other one; the last bin is for none
            return len(self.edges or self.values) + 2
        if self.kind == OF_ANSWERS:
            return 2
        if self.kind == OF_HITS:
            return 2 * classes
        return classes * (len(self.edges) + 1)

    @property
    def steps(self) -> int:
        """The integer that one record adds to its bin."""
        return math.floor(self.weight * STEPS)

    def check(self, classes: int) -> None:
        """Raise an `OrderError` unless a record belongs to one of the bins at most."""
        if self.kind not in MEANINGS_OF_TALLIES:
            raise _refusal(f"{self.kind!r} is not known here")
        if not LEAST_WEIGHT <= self.weight <= 1:
            raise _refusal(f"a weight lies between {LEAST_WEIGHT:g} and 1")
        if self.kind == OF_SCORES and classes != 2:
            raise _refusal("scores are those of two classes")
        if len(self.edges) > MAX_EDGES:
            raise _refusal(f"a tally has at most {MAX_EDGES} edges")
        increasing = sorted(set(self.edges)) == list(self.edges)
        if not increasing or not all(abs(edge) <= LARGEST_EDGE for edge in self.edges):
            raise _refusal("edges are finite and increase")
        if self.kind == OF_COLUMN:
            self._check_column()
        elif self.column or self.values:
            raise _refusal("only a tally by a column has a column and values")
        elif bool(self.edges) != (self.kind == OF_SCORES):
            raise _refusal("scores and columns have edges, and nothing else has")

    def _check_column(self) -> None:
        if not self.column or bool(self.edges) == bool(self.values):
            raise _refusal("a column has a name, and either edges or values")
        if len(set(self.values)) < len(self.values):
            raise _refusal("the values of a column differ from one another")

    def to_row(self) -> dict[str, Any]:
        """Return a table for JSON."""
        row: dict[str, Any] = {
            "kind": self.kind,
            "weight": self.weight,
            "edges": list(self.edges),
        }
        if self.column:
            row |= {"column": self.column, "values": list(self.values)}
        return row

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Tally:
        return cls(
            str(row["kind"]),
            float(row["weight"]),
            tuple(float(edge) for edge in row["edges"]),
            str(row.get("column", "")),
            tuple(str(value) for value in row.get("values", ())),
        )


def _refusal(why: str) -> OrderError:
    return OrderError(
        f"Cannot count what the order asks for: {why}. Install the same version of "
        "fedaux at the server and the sites."
    )


@dataclass(frozen=True)
class Tallies:
    """All tallies of a look, by name. Their bins follow one another in one vector."""

    by_name: Mapping[str, Tally]

    @classmethod
    def from_json(cls, text: str) -> Tallies:
        """Read tallies; raise an `OrderError` if the text has none."""
        try:
            rows: dict[str, dict[str, Any]] = json.loads(text)
            tallies = {name: Tally.from_row(row) for name, row in rows.items()}
        except (
            ValueError,
            TypeError,
            KeyError,
            AttributeError,
            OverflowError,
        ) as error:
            raise _refusal("its tallies are not of this version of fedaux") from error
        return cls(tallies)

    def to_json(self) -> str:
        return json.dumps({name: row.to_row() for name, row in self.by_name.items()})

    def check(self, classes: int) -> None:
        """Raise an `OrderError` unless a site can count in these bins."""
        if not 1 <= len(self.by_name) <= MAX_TALLIES:
            raise _refusal(f"it has 1 to {MAX_TALLIES} tallies")
        for tally in self.by_name.values():
            tally.check(classes)
        if self.size(classes) > MAX_BINS:
            raise _refusal(f"its tallies have at most {MAX_BINS} bins together")
        names = [tally.column for tally in self.columns]
        if len(set(names)) < len(names):
            raise _refusal("a column is counted by once")

    def size(self, classes: int) -> int:
        """Return the number of bins of all tallies."""
        return sum(tally.bins(classes) for tally in self.by_name.values())

    def slices(self, classes: int) -> dict[str, slice]:
        """Return the place of each tally's bins in the vector."""
        places: dict[str, slice] = {}
        start = 0
        for name, tally in self.by_name.items():
            end = start + tally.bins(classes)
            places[name] = slice(start, end)
            start = end
        return places

    def sensitivity(self, adjacency: str) -> float:
        """Return how far, in ℓ₂ and in steps, one unit of privacy moves the counts.

        A record adds `steps` to one bin of each tally. A record that is exchanged for
        another leaves one bin and enters another one, so it moves two of them. The same
        holds for a person, whose records share the weight of one.
        """
        squares = sum(tally.steps**2 for tally in self.by_name.values())
        moved = 2 if adjacency == "replace-one" else 1
        return math.sqrt(moved * squares)

    @property
    def needs_model(self) -> bool:
        """Whether some tally is of what a model says of the records."""
        return any(tally.kind not in WITHOUT_MODEL for tally in self.by_name.values())

    @property
    def columns(self) -> list[Tally]:
        """The tallies by a column of a table."""
        return [tally for tally in self.by_name.values() if tally.kind == OF_COLUMN]
