"""An exported model on labelled records: all metrics, of all records and of each
site.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedaux.core.metrics import Evaluation
from fedaux.data.image_folders import list_images, subfolders
from fedaux.data.labels import relabel_strictly
from fedaux.data.records import RecordsError
from fedaux.data.sources import open_source
from fedaux.data.table_encoding import same_name
from fedaux.data.tables import column_of, table
from fedaux.export.input_files import (
    ARRAYS,
    READ_AT_ONCE,
    SCHEMA_TABLES,
    TABLES,
    InputReader,
    suffix_of,
)
from fedaux.export.model import Model

OnRecords = Callable[[int, int], None]  # (done, total)


@dataclass(frozen=True, eq=False)
class LabelledBlock:
    """Records of one site with their labels. `site` is "" where there are no sites."""

    site: str
    names: list[str]
    records: Any
    labels: NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class ModelEvaluation:
    """`sites` is empty where the folder names none."""

    total: Evaluation
    sites: dict[str, Evaluation]
    skipped: tuple[Path, ...] = ()  # files that could not be read
    wrong: tuple[tuple[str, str, str], ...] = ()  # (input, its class, the answer)

    def to_dict(self, classes: tuple[str, ...]) -> dict[str, Any]:
        sites = {name: site.to_dict(classes) for name, site in self.sites.items()}
        return {
            **self.total.to_dict(classes),
            "warning": self.total.collapse(classes),
            "confusion": self.total.table.tolist(),
            "sites": sites,
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
    per site, arrays x and y, or a table with a column `label`. A table may have the
    column of sites that its schema names.
    """
    reader = reader or InputReader(model.record_spec, schema=model.schema)
    predictions = _Predictions()
    for block in _labelled(model, Path(path), reader, label, on_records):
        predictions.add(block, model.predict(block.records))
    if not predictions.labels:
        raise RecordsError(
            f"Cannot evaluate {path}: not one of {len(reader.skipped)} files can be "
            "read as an image. Give images, such as .png or .jpg."
        )
    return predictions.evaluate(model.classes, reader.skipped)


def was_trained_on(model: Model, path: Path) -> bool:
    """Whether these are records that the model was trained on, by the paths of its
    settings: of a simulation's private data, or of a folder around or in them.
    """
    data = model.card["config"]["data"]
    if not data["path"] or data["partition"] == "own":
        return False
    trained = Path(data["path"]).expanduser().resolve()
    evaluated = path.expanduser().resolve()
    if evaluated == trained or trained.is_relative_to(evaluated):
        return True
    tested = str(dict(data["options"]).get("test", "test"))
    inside = evaluated.is_relative_to(trained)
    return inside and tested not in evaluated.relative_to(trained).parts


@dataclass
class _Predictions:
    """What a model answers to all blocks so far."""

    names: list[str] = field(default_factory=list)
    sites: list[str] = field(default_factory=list)
    labels: list[NDArray[np.int64]] = field(default_factory=list)
    probabilities: list[NDArray[np.float32]] = field(default_factory=list)

    def add(self, block: LabelledBlock, probabilities: NDArray[np.float32]) -> None:
        self.names += block.names
        self.sites += [block.site] * len(block.labels)
        self.labels.append(block.labels)
        self.probabilities.append(probabilities)

    def evaluate(
        self, classes: tuple[str, ...], skipped: Sequence[Path]
    ) -> ModelEvaluation:
        probabilities = np.concatenate(self.probabilities)
        labels = np.concatenate(self.labels)
        site_of_record = np.array(self.sites)
        sites = {}
        for name in dict.fromkeys(self.sites):
            if name:
                here = site_of_record == name
                sites[name] = Evaluation.of(probabilities[here], labels[here])
        answers = probabilities.argmax(axis=1)
        wrong = [
            (self.names[row], classes[labels[row]], classes[answers[row]])
            for row in np.flatnonzero(answers != labels).tolist()
        ]
        total = Evaluation.of(probabilities, labels)
        return ModelEvaluation(total, sites, tuple(skipped), tuple(wrong))


def _labelled(
    model: Model, path: Path, reader: InputReader, label: str, on_records: OnRecords
) -> Iterator[LabelledBlock]:
    has_arrays = (path / "x.npy").exists()
    if path.is_dir() and model.record_spec.kind == "image" and not has_arrays:
        yield from _images(model, path, reader, on_records)
        return
    records, labels, sites = _rows(model, path, reader, label)
    total = len(labels)
    is_text = model.record_spec.kind == "text"
    done = 0
    for site, rows in sites.items():
        for start in range(0, len(rows), READ_AT_ONCE):
            block = rows[start : start + READ_AT_ONCE]
            names = [f"{path}[{index}]" for index in block.tolist()]
            taken = list(records[block]) if is_text else records[block]
            yield LabelledBlock(site, names, taken, labels[block])
            done += len(block)
            on_records(done, total)


def _images(
    model: Model, path: Path, reader: InputReader, on_records: OnRecords
) -> Iterator[LabelledBlock]:
    """Class folders, or site folders with class folders in them."""
    groups = []
    for site, folders in _class_folders(path, model.classes).items():
        for folder in folders:
            label = model.classes.index(folder.name)
            groups.append((site, label, list_images(folder)))
    total = sum(len(files) for _, _, files in groups)
    done = 0
    for site, label, files in groups:
        for names, images in reader.images(files, reader.strict):
            labels = np.full(len(names), label, np.int64)
            yield LabelledBlock(site, names, images, labels)
            done += len(names)
            on_records(done, total)


def _class_folders(path: Path, classes: tuple[str, ...]) -> dict[str, list[Path]]:
    """Return the class folders of each site. "" is the site where there are none."""
    folders = subfolders(path)
    inner = {folder.name: subfolders(folder) for folder in folders}
    if folders and all(_are_classes(inside, classes) for inside in inner.values()):
        return inner
    if not folders:
        raise _wrong_folders(path, "no folders", classes)
    unknown = [folder.name for folder in folders if folder.name not in classes]
    if unknown:
        names = ", ".join(unknown[:5])
        problem = f"folders {names}, which are no class of this model"
        raise _wrong_folders(path, problem, classes)
    return {"": folders}


def _are_classes(folders: Sequence[Path], classes: tuple[str, ...]) -> bool:
    return bool(folders) and all(folder.name in classes for folder in folders)


def _wrong_folders(path: Path, problem: str, classes: tuple[str, ...]) -> RecordsError:
    return RecordsError(
        f"Cannot evaluate {path}: it has {problem}. Give one folder per class "
        f"({', '.join(classes[:10])}), or one per site with these in it."
    )


def _rows(
    model: Model, path: Path, reader: InputReader, label: str
) -> tuple[NDArray[Any], NDArray[np.int64], dict[str, NDArray[np.int64]]]:
    """(records, labels, rows of each site; "" is the site where there are none)."""
    suffix = ".npy" if path.is_dir() else suffix_of(path)
    if suffix not in (*ARRAYS, *TABLES):
        raise RecordsError(
            f"Cannot evaluate {path}: labels are needed. Give a folder of images, "
            f"{', '.join((*ARRAYS, *TABLES))} with labels."
        )
    if reader.schema is not None and suffix in SCHEMA_TABLES:
        source = table(path, reader.schema)
    else:
        options = {}
        if suffix in TABLES:
            options = {"text": reader.column, "label": label}
        source = open_source(suffix[1:], path, **options)
    corpus = relabel_strictly(source, model.classes)
    labelled = corpus.test or corpus.train
    sites = {"": np.arange(len(labelled))}
    if corpus.site is not None and reader.schema is not None:
        column = column_of(path, reader.schema, reader.schema.header.site)
        names = np.array(list(map(same_name, column)))
        sites = {str(name): np.flatnonzero(names == name) for name in np.unique(names)}
    return labelled.gather(), labelled.labels, sites
