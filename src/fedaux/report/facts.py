"""Facts about one run, from its folder and, where it can be opened, its data."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedaux.config.methods import find_method
from fedaux.config.schema import Config
from fedaux.core.metrics import Evaluation
from fedaux.data.federated import client_names, open_data, open_public
from fedaux.data.records import Records, is_image, is_text
from fedaux.report.svg import tone
from fedaux.server.result import FinishedRun
from fedaux.server.run_state import RunState, StateError
from fedaux.server.server import make_server

SHOWN, EACH = 12, 10  # clients, and top examples of each
PUBLISHED = ("digits", "cifar10", "cifar100", "stl10", "svhn", "tinyimagenet", "imagenet32")  # sources
MAX_LISTED = 40  # clients or classes that a page lists one by one


@dataclass(frozen=True, eq=False)
class TopExamples:
    """The public examples that a client's release scores highest: one strip of images, or texts."""

    client: str
    image: str = ""  # data: URI
    texts: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class RunFacts:
    """`counts` is None where nobody knows who holds what: real sites keep it to themselves."""

    result: FinishedRun
    classes: tuple[str, ...]
    clients: tuple[str, ...]
    counts: NDArray[np.int64] | None
    top_examples: tuple[TopExamples, ...]
    missing: str  # why the data could not be opened, or ""

    @property
    def state(self) -> RunState:
        return self.result.state


def confusion(state: RunState) -> NDArray[np.int64]:
    """Of the last round, summed over prototypes: true class (rows) by predicted class."""
    matrices = state.history[-1].confusion or {}
    return np.asarray(np.sum([np.array(matrix, np.int64) for matrix in matrices.values()], axis=0))


def recall(state: RunState) -> NDArray[np.float64]:
    """Test accuracy on each class after the last round; NaN for one that the test data lack."""
    return Evaluation(confusion(state)).recalls


def seconds(state: RunState) -> float:
    """Of all rounds and all their phases."""
    return float(sum(sum(result.seconds.values()) for result in state.history))


def require_rounds(state: RunState, folder: Path) -> RunState:
    """The state, if there is a round to report."""
    if not state.history:
        raise StateError(f"{folder} has not finished a round yet; continue with `fedaux resume {folder}`.")
    return state


def load_facts(folder: Path, cache: Path | None = None) -> RunFacts:
    """Of the run in `folder`. Nothing is trained; top examples need features of the auxiliary data."""
    state = require_rounds(RunState.load(folder), folder)
    names, counts, top_examples, missing = tuple(client_names(state.config)), None, list[TopExamples](), ""
    classes = tuple(map(str, range(len(confusion(state)))))
    try:
        classes = open_public(state.config).classes
        if state.config.data.partition != "own":
            counts = open_data(state.config).counts()
        if find_method(state.config.method).scores and state.releases and may_show(state.config):
            top_examples = find_top_examples(state, cache)
    except (ValueError, OSError, ImportError) as error:
        missing = str(error)
    return RunFacts(FinishedRun(state, folder), classes, names, counts, tuple(top_examples), missing)


def expected_accuracy(counts: NDArray[np.int64], recall: NDArray[np.float64]) -> NDArray[np.float64]:
    """What each client can expect on its own mix of classes: Σ_c p_i(c) · accuracy on class c."""
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    return np.asarray(shares @ np.nan_to_num(recall))


def may_show(config: Config) -> bool:
    """Whether records of D_aux may be shown: their owner says so, or they were published with their dataset."""
    return config.aux.public or (config.aux.source or config.data.source) in PUBLISHED


def find_top_examples(state: RunState, cache: Path | None) -> list[TopExamples]:
    """For some clients, the examples of D_distill with the highest odds of being theirs."""
    server = make_server(state.config, cache=cache, state=state)
    embedding, clients = server.restore(state), sorted(state.releases)[:SHOWN]
    if embedding is None:
        return []
    weights = embedding.teacher_weights(state.releases, clients)
    top = {client: np.argsort(-weights.log_odds(client), kind="stable")[:EACH] for client in clients}
    shown = [_shown(client, server.public.distill.take(rows)) for client, rows in top.items()]
    return [top_examples for top_examples in shown if top_examples is not None]


def _shown(client: str, records: Records) -> TopExamples | None:
    rows = records.gather()
    if is_image(rows):
        return TopExamples(client, image=image_strip(rows))
    if is_text(rows):
        return TopExamples(client, texts=tuple(str(text)[:160] for text in rows[:4]))
    return None


def image_strip(images: NDArray[np.uint8], height: int = 48) -> str:
    """Images (N, H, W, C) side by side as a PNG in a data: URI, enlarged without smoothing if they are small."""
    from PIL import Image

    scale = max(1, round(height / images.shape[1]))
    tiles = [np.kron(image, np.ones((scale, scale, 1), np.uint8)) for image in images]
    gap = np.full((tiles[0].shape[0], 3, tiles[0].shape[2]), 255, np.uint8)
    row = np.concatenate([part for tile in tiles for part in (tile, gap)][:-1], axis=1)
    file = io.BytesIO()
    Image.fromarray(row[..., 0] if row.shape[2] == 1 else row[..., :3]).save(file, "PNG")
    return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"


def tones(labels: Sequence[str]) -> dict[str, str]:
    """A class of the style sheet for each: FedAUX has a colour of its own, +P shares that of its method."""
    found: dict[str, str] = {}
    for label in labels:
        base = label.removesuffix("+P")
        found.setdefault(base, "hero" if base == "FedAUX" else tone(len(set(found) - {"FedAUX"})))
    return {label: found[label.removesuffix("+P")] for label in labels}
