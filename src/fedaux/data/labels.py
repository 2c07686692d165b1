"""The class and the person of a record: from its own values and the declared names,
never from other records.

The federation's owner declares the classes. If labels were numbered from the records, a
single new label could renumber all others, and one record would change the
contributions of all others. A person is an integer id. Records without a person share
the id of the empty name.
"""

from __future__ import annotations

import math
import re
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Real
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from fedaux.config.parsing import ConfigError, require
from fedaux.config.sections import DataConfig
from fedaux.data.records import UNDECLARED, Corpus, Indices, Records, RecordsError

# 1, and what becomes of it in a column of floats
DECIMAL = re.compile(r"([0-9]+)(?:\.0*)?")


def to_name(value: Any) -> str | None:
    """A label or person as text, whatever type a table stores it in: 3 and 3.0 are the
    same, or None if it is missing.
    """
    if value is None:
        return None
    if isinstance(value, float):
        if math.isnan(value):
            return None
        if value.is_integer():
            return str(int(value))
    return str(value)


def name_or_nobody(value: Any) -> str:
    """Return the name, or "" if there is none or it cannot be printed: nested without
    end, or too large a number.
    """
    try:
        return to_name(value) or ""
    except (ValueError, RecursionError):
        return ""


def factorize(names: Iterable[Hashable]) -> NDArray[np.int64]:
    """Integer ids in the order of first appearance."""
    ids: dict[Hashable, int] = {}
    return np.array([ids.setdefault(name, len(ids)) for name in names], dtype=np.int64)


@dataclass(frozen=True)
class DeclaredClasses:
    """The classes of a federation by name, and by the numbers that a source may use for
    them.
    """

    position: Mapping[str, int]
    numbered: Sequence[int]  # the class of label 0, 1, …

    @classmethod
    def of(cls, declared: Sequence[str], names: Sequence[str] = ()) -> Self:
        """Make the classes; `names` belong to the source's labels 0, 1, …; without them
        numbers index `declared`.
        """
        position = {name: place for place, name in enumerate(declared)}
        numbered = [position.get(name, UNDECLARED) for name in names or declared]
        return cls(position, numbered)

    def by_name(self, name: str) -> int:
        """Where 1 is declared, 1.0 means it, too: so tables are written whose column
        has a gap.
        """
        if name in self.position:
            return self.position[name]
        number = DECIMAL.fullmatch(name)
        if number is None:
            return UNDECLARED
        return self.position.get(number[1], UNDECLARED)

    def by_number(self, number: Any) -> int:
        if 0 <= number < len(self.numbered) and number == int(number):
            return self.numbered[int(number)]
        return UNDECLARED

    def label(self, value: Any) -> int:
        """A text by its name, a number by its place. True and False are names, and
        anything else is no label.
        """
        if isinstance(value, (str, bool, np.bool_)):
            return self.by_name(str(value))
        if isinstance(value, (int, float, Real)):
            return self.by_number(value)
        return UNDECLARED

    def array_label(self, value: Any) -> int:
        """The same whatever type an array has: a number is a number also as a text, and
        True is 1.

        Any other text is a name.
        """
        if isinstance(value, complex):
            value = value.real if value.imag == 0 else None
        if isinstance(value, str):
            if DECIMAL.fullmatch(value):
                value = float(value)
            value = {"False": 0, "True": 1}.get(value, value)
        if isinstance(value, (bool, np.bool_)):
            value = int(value)
        return self.label(value)


def read_classes(file: Path) -> tuple[str, ...]:
    """The names of labels 0, 1, …, one per line."""
    lines = file.read_text("utf-8-sig").rstrip().splitlines()
    return tuple(line.strip() for line in lines)


def declared_classes(data: DataConfig) -> tuple[str, ...]:
    """`data.classes`, or the lines of classes.txt next to the data. The data itself is
    not read.
    """
    if data.classes:
        return data.classes
    path = Path(data.path).expanduser()
    folder = path if path.is_dir() else path.parent
    file = folder / "classes.txt"
    if not data.path or not file.is_file():
        beside = f", or one a line into {file}" if data.path else ""
        raise ConfigError(
            "Cannot read labels: the classes are not declared. Write their names into "
            '[data], classes = ["first", "second", ...], the same at the server and at '
            f"every site{beside}."
        )
    classes = read_classes(file)
    require(
        bool(classes) and all(classes),
        f"Cannot read {file}: it must name one class a line, without an empty line "
        "between them. Correct the file.",
    )
    require(
        len(set(classes)) == len(classes),
        f"Cannot read {file}: the names of classes must differ from one another. "
        "Correct the file.",
    )
    return classes


def relabel(corpus: Corpus, classes: tuple[str, ...]) -> Corpus:
    """Map labels to positions in `classes`, by name, or by number if the corpus has no
    names. Others: `UNDECLARED`.
    """
    declared = DeclaredClasses.of(classes, corpus.classes)
    table = np.array(declared.numbered, dtype=np.int64)

    def mapped(records: Records) -> Records:
        if records.y is None:
            return records
        valid = (records.y >= 0) & (records.y < len(table))
        labels = table[np.where(valid, records.y, 0)]
        return replace(records, y=np.where(valid, labels, UNDECLARED))

    return replace(corpus.map(mapped), classes=classes)


def relabel_strictly(corpus: Corpus, classes: tuple[str, ...]) -> Corpus:
    """Convert labels of public records: an undeclared label raises an error that names
    it.
    """
    relabelled = relabel(corpus, classes)
    parts = ((corpus.train, relabelled.train), (corpus.test, relabelled.test))
    for before, after in parts:
        if before is None or after is None or before.y is None:
            continue
        undeclared = np.unique(before.labels[after.labels == UNDECLARED])[:5].tolist()
        if undeclared:
            names = dict(enumerate(corpus.classes))
            shown = [names.get(label, str(label)) for label in undeclared]
            raise RecordsError(
                f"Cannot read the records: labels {', '.join(shown)} are not among the "
                f"declared classes {', '.join(classes)}. Declare them in data.classes "
                "or classes.txt, the same everywhere, or take such records out."
            )
    return relabelled


def named_by_numbers(corpus: Corpus, rows: Indices | slice = slice(None)) -> Corpus:
    """Classes without names are the labels that these training records have: labels
    from 1 on make no class 0.
    """
    if corpus.classes or corpus.train.y is None:
        return corpus
    labels = corpus.train.labels
    if labels.min(initial=0) < 0:
        return corpus
    numbers = np.unique(labels[rows])
    names = tuple(map(str, numbers))
    tested = numbers if corpus.test is None else corpus.test.labels
    unknown = np.setdiff1d(tested, numbers)
    if len(unknown):
        raise RecordsError(
            "Cannot read the test records: they have the label "
            f"{', '.join(map(str, unknown[:5]))}, which no training record has. Take "
            "such records out, or declare all classes in data.classes."
        )
    if np.array_equal(numbers, np.arange(len(numbers))):
        return replace(corpus, classes=names)

    def mapped(records: Records) -> Records:
        assert records.y is not None
        places = np.searchsorted(numbers, records.y)
        y = np.where(np.isin(records.y, numbers), places, UNDECLARED)
        return replace(records, y=y)

    note = (
        f"labels {names[0]} to {names[-1]} without names: they are {len(names)} "
        "classes, called by their numbers"
    )
    return replace(corpus.map(mapped), classes=names, notes=(*corpus.notes, note))
