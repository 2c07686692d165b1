"""Classes that the federation's owner has declared: what a record is called depends on that record alone.

Were labels numbered from the records themselves, one new label would renumber all others, and one record would change
what every other one contributes.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from fedaux.config.parsing import ConfigError, require
from fedaux.config.schema import DataConfig
from fedaux.data.arrays import read_classes
from fedaux.data.record_spec import RecordsError
from fedaux.data.records import UNDECLARED, Corpus, Records


def declared_classes(data: DataConfig) -> tuple[str, ...]:
    """`data.classes`, else the lines of classes.txt beside the data; the data itself is not opened."""
    if data.classes:
        return data.classes
    file = _file(data)
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


def _file(data: DataConfig) -> Path | None:
    path = Path(data.path).expanduser()
    return (path if path.is_dir() else path.parent) / "classes.txt" if data.path else None


def declare(corpus: Corpus, classes: tuple[str, ...]) -> Corpus:
    """Labels as places in `classes`, by name, or by number where the corpus has no names; any other is `UNDECLARED`."""
    place = {name: label for label, name in enumerate(classes)}
    table = np.array([place.get(name, UNDECLARED) for name in corpus.classes] or range(len(classes)), dtype=np.int64)

    def renumbered(records: Records) -> Records:
        if records.y is None:
            return records
        known = (records.y >= 0) & (records.y < len(table))
        return replace(records, y=np.where(known, table[np.where(known, records.y, 0)], UNDECLARED))

    test = None if corpus.test is None else renumbered(corpus.test)
    return Corpus(renumbered(corpus.train), test, classes)


def all_declared(corpus: Corpus, classes: tuple[str, ...]) -> Corpus:
    """The same for records that are no secret: a label that is not declared is an error that names it."""
    found = declare(corpus, classes)
    for before, after in ((corpus.train, found.train), (corpus.test, found.test)):
        if before is None or after is None or before.y is None:
            continue
        strange = np.unique(before.labels[after.labels == UNDECLARED])
        if len(strange):
            names = [_name(corpus, int(label)) for label in strange[:5]]
            raise RecordsError(
                f"labels {', '.join(names)} are not among the declared classes {', '.join(classes)}; declare them in "
                "data.classes or classes.txt, the same everywhere, or take such records out"
            )
    return found


def _name(corpus: Corpus, label: int) -> str:
    return corpus.classes[label] if 0 <= label < len(corpus.classes) else str(label)
