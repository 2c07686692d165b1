"""Declared classes: the federation's owner names them, so that a record's label depends on that record alone.

If labels were numbered from the records, a single new label could renumber all others, and one record would change the
contributions of all others.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from fedaux.config.parsing import ConfigError, require
from fedaux.config.sections import DataConfig
from fedaux.data.arrays import read_classes
from fedaux.data.record_spec import RecordsError
from fedaux.data.records import UNDECLARED, Corpus, Indices, Records


def declared_classes(data: DataConfig) -> tuple[str, ...]:
    """`data.classes`, or the lines of classes.txt beside the data; the data itself is not read."""
    if data.classes:
        return data.classes
    path = Path(data.path).expanduser()
    file = (path if path.is_dir() else path.parent) / "classes.txt" if data.path else None
    if file is None or not file.is_file():
        beside = f", or one a line into {file}" if file else ""
        raise ConfigError(
            'the classes are not declared: write their names into [data], classes = ["first", "second", ...], the same '
            f"at the server and at every site{beside}."
        )
    classes = read_classes(file)
    require(bool(classes) and all(classes), f"{file} must name one class a line, without an empty line between them.")
    require(len(set(classes)) == len(classes), f"{file}: the names of classes must differ from one another.")
    return classes


def relabel(corpus: Corpus, classes: tuple[str, ...]) -> Corpus:
    """Map labels to positions in `classes`, by name, or by number if the corpus has no names; others: `UNDECLARED`."""
    position = {name: label for label, name in enumerate(classes)}
    table = np.array([position.get(name, UNDECLARED) for name in corpus.classes] or range(len(classes)), dtype=np.int64)

    def mapped(records: Records) -> Records:
        if records.y is None:
            return records
        known = (records.y >= 0) & (records.y < len(table))
        return replace(records, y=np.where(known, table[np.where(known, records.y, 0)], UNDECLARED))

    test = None if corpus.test is None else mapped(corpus.test)
    return replace(corpus, train=mapped(corpus.train), test=test, classes=classes)


def named_by_numbers(corpus: Corpus, rows: Indices | slice = slice(None)) -> Corpus:
    """Classes without names are the labels that these training records have: labels from 1 on make no class 0."""
    if corpus.classes or corpus.train.y is None or corpus.train.labels.min(initial=0) < 0:
        return corpus
    found = np.unique(corpus.train.labels[rows])
    names = tuple(map(str, found))
    unknown = np.setdiff1d(corpus.test.labels, found) if corpus.test is not None else ()
    if len(unknown):
        raise RecordsError(
            f"the test records have the label {', '.join(map(str, unknown[:5]))}, which no training record has; "
            "take such records out, or declare all classes in data.classes"
        )
    if np.array_equal(found, np.arange(len(found))):
        return replace(corpus, classes=names)
    position = {int(label): index for index, label in enumerate(found)}

    def mapped(records: Records) -> Records:
        y = [position.get(label, UNDECLARED) for label in (() if records.y is None else records.y.tolist())]
        return replace(records, y=np.array(y, dtype=np.int64))

    note = f"labels {names[0]} to {names[-1]} without names: they are {len(names)} classes, called by their numbers"
    test = None if corpus.test is None else mapped(corpus.test)
    return replace(corpus, train=mapped(corpus.train), test=test, classes=names, notes=(*corpus.notes, note))


def relabel_strictly(corpus: Corpus, classes: tuple[str, ...]) -> Corpus:
    """The same for public records: an undeclared label is an error that names it."""
    relabelled = relabel(corpus, classes)
    for before, after in ((corpus.train, relabelled.train), (corpus.test, relabelled.test)):
        if before is None or after is None or before.y is None:
            continue
        undeclared = np.unique(before.labels[after.labels == UNDECLARED])
        if len(undeclared):
            names = [_label_name(corpus, int(label)) for label in undeclared[:5]]
            raise RecordsError(
                f"labels {', '.join(names)} are not among the declared classes {', '.join(classes)}; declare them in "
                "data.classes or classes.txt, the same everywhere, or take such records out"
            )
    return relabelled


def _label_name(corpus: Corpus, label: int) -> str:
    return corpus.classes[label] if 0 <= label < len(corpus.classes) else str(label)
