"""An exported model on labelled records: all metrics, of all records and of each
site.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedaux.core.metrics import Evaluation
from fedaux.data.images import list_images, subfolders
from fedaux.data.labels import relabel_strictly
from fedaux.data.records import RecordsError
from fedaux.data.sources import open_source
from fedaux.export.input_files import ARRAYS, BLOCK, TABLES, InputReader, suffix_of
from fedaux.export.model import Model

OnRecords = Callable[[int, int], None]  # (done, total)
Labelled = tuple[str, list[str], Any, NDArray[np.int64]]  # site, names, records, labels


@dataclass(frozen=True, eq=False)
class ModelEvaluation:
    """`sites` is empty where the folder names none."""

    total: Evaluation
    sites: dict[str, Evaluation]
    skipped: tuple[Path, ...] = ()  # files that could not be read
    wrong: tuple[tuple[str, str, str], ...] = ()  # (input, its class, the answer)

    def to_dict(self, classes: tuple[str, ...]) -> dict[str, Any]:
        return {
            **self.total.to_dict(classes),
            "warning": self.total.collapse(classes),
            "confusion": self.total.table.tolist(),
            "sites": {name: one.to_dict(classes) for name, one in self.sites.items()},
            "skipped": [str(file) for file in self.skipped],
        }


def evaluate_model(
    model: Model,
    path: str | Path,
    *,
    reader: InputReader | None = None,
    label: str = "label",
    on_records: OnRecords = lambda done, total: None,
) -> ModelEvaluation:
    """Evaluate a model on labelled records.

    These are a folder with one sub-folder of images per class, or with one such folder
    per site; arrays x and y; or a table with a column `label`.
    """
    reader = reader or InputReader(model.record_spec)
    probabilities, labels, sites, names = [], [], [], []
    for site, block_names, x, y in _labelled(
        model, Path(path), reader, label, on_records
    ):
        probabilities.append(model.predict(x))
        labels.append(y)
        names += block_names
        sites += [site] * len(y)
    if not labels:
        raise RecordsError(
            f"{path}: not one of {len(reader.skipped)} files can be read as an image"
        )
    p, y, at = np.concatenate(probabilities), np.concatenate(labels), np.array(sites)
    found = {
        name: Evaluation.of(p[at == name], y[at == name])
        for name in dict.fromkeys(sites)
        if name
    }
    answers = p.argmax(axis=1)
    wrong = tuple(
        (names[i], model.classes[y[i]], model.classes[answers[i]])
        for i in np.flatnonzero(answers != y).tolist()
    )
    return ModelEvaluation(Evaluation.of(p, y), found, tuple(reader.skipped), wrong)


def _labelled(
    model: Model, path: Path, reader: InputReader, label: str, on_records: OnRecords
) -> Iterator[Labelled]:
    if (
        path.is_dir()
        and model.record_spec.kind == "image"
        and not (path / "x.npy").exists()
    ):
        yield from _images(model, path, reader, on_records)
        return
    x, y = _rows(model, path, reader, label)
    for start in range(0, len(y), BLOCK):
        part = slice(start, start + BLOCK)
        yield (
            "",
            [f"{path}[{start + i}]" for i in range(len(y[part]))],
            x[part],
            y[part],
        )
        on_records(min(start + BLOCK, len(y)), len(y))


def _images(
    model: Model, path: Path, reader: InputReader, on_records: OnRecords
) -> Iterator[Labelled]:
    """Class folders, or site folders with class folders in them."""
    folders, known = subfolders(path), set(model.classes)
    inner = {folder: subfolders(folder) for folder in folders}
    sites = bool(folders) and all(
        each and {one.name for one in each} <= known for each in inner.values()
    )
    groups = inner if sites else {path: folders}
    unknown = [
        folder.name
        for each in groups.values()
        for folder in each
        if folder.name not in known
    ]
    if unknown or not folders:
        found = (
            f"folders {', '.join(unknown[:5])}, which are no class of this model"
            if unknown
            else "no folders"
        )
        raise RecordsError(
            f"{path} has {found}; give one folder per class "
            f"({', '.join(model.classes[:10])}), or one per site with these in it"
        )
    files = {
        (site.name if sites else "", model.classes.index(folder.name)): list_images(
            folder
        )
        for site, each in groups.items()
        for folder in each
    }
    done, total = 0, sum(map(len, files.values()))
    for (site, index), some in files.items():
        for names, x in reader.images(some, reader.strict):
            yield site, names, x, np.full(len(names), index, np.int64)
            done += len(names)
            on_records(done, total)


def _rows(
    model: Model, path: Path, reader: InputReader, label: str
) -> tuple[Any, NDArray[np.int64]]:
    suffix = ".npy" if path.is_dir() else suffix_of(path)
    if suffix not in (*ARRAYS, *TABLES):
        raise RecordsError(
            f"{path}: give a folder of images, {', '.join((*ARRAYS, *TABLES))} with "
            "labels"
        )
    options = {"text": reader.column, "label": label} if suffix in TABLES else {}
    corpus = relabel_strictly(open_source(suffix[1:], path, **options), model.classes)
    records = corpus.test or corpus.train
    x = records.gather()
    return list(x) if model.record_spec.kind == "text" else x, records.labels
