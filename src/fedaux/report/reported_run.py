"""A finished run with what its data say, for the page of it."""

from __future__ import annotations

import base64
import io
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedaux.config.methods import find_method
from fedaux.config.schema import Config
from fedaux.core.metrics import Evaluation
from fedaux.data.federated import client_names, open_data, open_public
from fedaux.data.records import Records, is_image, is_text
from fedaux.export.column_effects import ColumnEffect
from fedaux.export.export import effects_of_columns
from fedaux.report.arms import require_rounds
from fedaux.report.page import TopExamples
from fedaux.server.result import FinishedRun
from fedaux.server.run_state import RunState
from fedaux.server.server import make_server

# Of the closest public examples.
MAX_CLIENTS = 12
EXAMPLES_PER_CLIENT = 10
MAX_TEXTS = 4
# sources whose records anyone may see
PUBLISHED = ("digits", "cifar10", "cifar100", "stl10", "tinyimagenet")


@dataclass(frozen=True, eq=False)
class ReportedRun(FinishedRun):
    """A finished run, and what its data say. `counts` is None for real sites, which
    keep their class counts to themselves.
    """

    classes: tuple[str, ...]
    clients: tuple[str, ...]
    counts: NDArray[np.int64] | None
    top_examples: tuple[TopExamples, ...]
    missing: str  # why the data could not be opened, or ""
    # of a table, what its columns do to a linear model
    columns: tuple[ColumnEffect, ...] = ()


def confusion(state: RunState) -> NDArray[np.int64]:
    """Return the last round's confusion matrix, summed over prototypes: true class
    (rows) by predicted class; empty if the server has no test data.
    """
    matrices = state.history[-1].confusion or {}
    if not matrices:
        return np.zeros((0, 0), np.int64)
    counts = [np.array(matrix, np.int64) for matrix in matrices.values()]
    return np.asarray(np.sum(counts, axis=0))


def recall(state: RunState) -> NDArray[np.float64]:
    """Test accuracy on each class after the last round; NaN for one that the test data
    lack.
    """
    return Evaluation(confusion(state)).recalls


def seconds(state: RunState) -> float:
    """Return the total duration of all rounds."""
    return float(sum(sum(result.seconds.values()) for result in state.history))


def load_run(folder: Path, cache: Path | None = None) -> ReportedRun:
    """Load the run in `folder`, and what its data say. Nothing is trained; top examples
    need features of the auxiliary data.
    """
    state = require_rounds(RunState.load(folder), folder)
    config = state.config
    classes = tuple(map(str, range(len(confusion(state)))))
    counts: NDArray[np.int64] | None = None
    top_examples: list[TopExamples] = []
    missing = ""
    columns: list[ColumnEffect] = []
    try:
        public = open_public(config)
        classes = public.classes
        columns = effects_of_columns(state, public)
        if config.data.partition != "own":
            counts = open_data(config).counts()
        scores = find_method(config.method).scores
        if scores and state.releases and may_show(config):
            top_examples = find_top_examples(state, cache)
    except (ValueError, OSError, ImportError) as error:
        missing = str(error)
    return ReportedRun(
        state,
        folder,
        classes=classes,
        clients=tuple(client_names(config)),
        counts=counts,
        top_examples=tuple(top_examples),
        missing=missing,
        columns=tuple(columns),
    )


def expected_accuracy(
    counts: NDArray[np.int64], recall: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the expected accuracy on each client's own mix of classes: Σ_c p_i(c) ·
    accuracy on class c.
    """
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    return np.asarray(shares @ np.nan_to_num(recall))


def may_show(config: Config) -> bool:
    """Whether records of D_aux may be shown: their owner says so, or they were
    published with their dataset.
    """
    return config.aux.public or (config.aux.source or config.data.source) in PUBLISHED


def find_top_examples(state: RunState, cache: Path | None) -> list[TopExamples]:
    """Find, for some clients, the examples of D_distill with the highest odds of being
    theirs.
    """
    server = make_server(state.config, cache=cache, state=state)
    embedding = server.restore(state)
    clients = sorted(state.releases)[:MAX_CLIENTS]
    if embedding is None:
        return []
    weights = embedding.teacher_weights(state.releases, clients)
    shown: list[TopExamples] = []
    for client in clients:
        order = np.argsort(-weights.log_odds(client), kind="stable")
        records = server.public.distill.take(order[:EXAMPLES_PER_CLIENT])
        examples = _shown(client, records)
        if examples is not None:
            shown.append(examples)
    return shown


def _shown(client: str, records: Records) -> TopExamples | None:
    rows = records.gather()
    if is_image(rows):
        return TopExamples(client, image=image_strip(rows))
    if is_text(rows):
        beginnings = [str(words)[:160] for words in rows[:MAX_TEXTS]]
        return TopExamples(client, texts=tuple(beginnings))
    return None


def image_strip(images: NDArray[np.uint8], height: int = 48) -> str:
    """Images (N, H, W, C) side by side as a PNG in a data: URI, enlarged without
    smoothing if they are small.
    """
    from PIL import Image

    scale = max(1, round(height / images.shape[1]))
    block = np.ones((scale, scale, 1), np.uint8)
    pictures: list[NDArray[np.uint8]] = []
    for image in images:
        enlarged = np.kron(image, block)
        if pictures:
            gap = np.full((enlarged.shape[0], 3, enlarged.shape[2]), 255, np.uint8)
            pictures.append(gap)
        pictures.append(enlarged)
    strip = np.concatenate(pictures, axis=1)
    # Pillow has no third axis for grey
    pixels = strip[..., 0] if strip.shape[2] == 1 else strip[..., :3]
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    encoded = base64.b64encode(file.getvalue()).decode()
    return f"data:image/png;base64,{encoded}"
