"""Do scores show whose records they were made of? The public images a client scores
highest, and what is nearest.

A score that knows a client's *classes* finds public images that are near to its
records, and just as near to other records of these classes. One that knew the *records*
would find images nearer to them than to others: so each client's nearest records are
held against as many held-out records of the same classes.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedaux.client.features import PrivateFeatureCache
from fedaux.core.io import cache_folder, write_atomically
from fedaux.core.rng import numpy_stream
from fedaux.data.federated import open_data
from fedaux.data.records import is_image
from fedaux.privacy.mechanism import unit_rows
from fedaux.report.tables import markdown
from fedaux.scoring.features import H0
from fedaux.server.run_state import RunState
from fedaux.server.server import make_server
from fedaux.sweeps.results import SweepResult

Rows = NDArray[np.floating]
TOP = 5  # public images of a client
NEIGHBOURS = 4  # records shown beside each
SHOWN = 4  # clients in the picture


@dataclass(frozen=True)
class Leak:
    """Cosine similarities of a client's top public images to the nearest of some
    records, mean over the images.
    """

    own: float  # the client's records
    held_out: float  # as many records of the same classes that no client has
    random: float  # its records, for public images drawn at random


def similarities(rows: Rows, others: Rows) -> NDArray[np.float64]:
    """Cosine similarity of each of `rows` to each of `others`."""
    return np.asarray(unit_rows(rows) @ unit_rows(others).T)


def matched(
    own: NDArray[np.int64], others: NDArray[np.int64], rng: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Positions in two arrays of labels, as many of each class from both: all, or as
    many as the scarcer one has.
    """
    mine = []
    theirs = []
    for label in np.unique(own):
        my_places = np.flatnonzero(own == label)
        their_places = np.flatnonzero(others == label)
        count = min(len(my_places), len(their_places))
        mine.append(rng.permutation(my_places)[:count])
        theirs.append(rng.permutation(their_places)[:count])
    return np.concatenate(mine), np.concatenate(theirs)


def leaks(folder: Path) -> tuple[list[Leak], list[NDArray[np.uint8]]]:
    """Return what each client of a finished run leaks, and a picture of the first few
    clients.

    A picture has a row for each top image: the image, then its nearest records of the
    client.
    """
    state = RunState.load(folder)
    data = open_data(state.config)
    server = make_server(state.config, state=state)
    embedding = server.restore(state)
    assert embedding is not None, "leakage is of methods that score"
    clients = sorted(state.releases)
    rng = numpy_stream(state.config.seed, "leakage")
    weights = embedding.teacher_weights(state.releases, clients)
    features = {}
    for label, h0 in server.public.h0.items():
        public = h0.features(server.public.aux).take(server.public.split.distill)
        private_h0 = _private(h0)
        private = private_h0.features(data.private)
        held_out = private_h0.features(data.test)
        features[label] = (public, private, held_out)
    leaked: list[Leak] = []
    pictures: list[NDArray[np.uint8]] = []
    for client in clients:
        place = data.index_of[client]
        public, private, held_out = features[server.label_of(client)]
        client_rows = private.take(data.parts[place])
        order = np.argsort(-weights.log_odds(client), kind="stable")
        top = order[:TOP]
        mine, theirs = matched(client_rows.labels, held_out.labels, rng)
        drawn = rng.choice(len(public), TOP, replace=False)
        top_rows = public.take(top).gather()
        near = client_rows.take(mine).gather()
        far = held_out.take(theirs).gather()
        leaked.append(
            Leak(
                own=_to_nearest(top_rows, near),
                held_out=_to_nearest(top_rows, far),
                random=_to_nearest(public.take(drawn).gather(), near),
            )
        )
        records = data.client(place)
        if len(pictures) < SHOWN and is_image(records.gather()[:1]):
            closeness = similarities(top_rows, client_rows.gather())
            nearest = np.argsort(-closeness, axis=1)[:, :NEIGHBOURS]
            neighbours = [records.take(places).gather() for places in nearest]
            images = server.public.distill.take(top).gather()
            pictures.append(tiled(images, neighbours))
    return leaked, pictures


def _to_nearest(rows: Rows, others: Rows) -> float:
    """The similarity of each row to the nearest of the others, mean over the rows."""
    return float(similarities(rows, others).max(axis=1).mean())


def _private(h0: H0) -> H0:
    """The same extractor for private records, whose features clients have computed
    already.
    """
    return H0(h0.spec, h0.module, h0.arrays, PrivateFeatureCache(cache_folder()))


def tiled(
    images: NDArray[np.uint8], neighbours: Sequence[NDArray[np.uint8]]
) -> NDArray[np.uint8]:
    """One row for each image, (H, W, C): the image, a white gap, its neighbours."""
    gap = np.full((images.shape[1], 4, images.shape[3]), 255, np.uint8)
    rows = []
    for image, nearest in zip(images, neighbours, strict=True):
        rows.append(np.concatenate([image, gap, *nearest], axis=1))
    return np.concatenate(rows, axis=0)


def save_picture(pictures: Sequence[NDArray[np.uint8]], path: Path) -> None:
    """Write pictures of clients side by side, enlarged without smoothing, as a PNG."""
    from PIL import Image

    height, _, channels = pictures[0].shape
    gap = np.full((height, 8, channels), 255, np.uint8)
    pieces = [pictures[0]]
    for picture in pictures[1:]:
        pieces += [gap, picture]
    row = np.concatenate(pieces, axis=1)
    image = Image.fromarray(row[..., 0] if channels == 1 else row)
    size = (2 * image.width, 2 * image.height)
    image.resize(size, Image.Resampling.NEAREST).save(path)


def study(result: SweepResult) -> str:
    """Write leakage.json, leakage.md and a picture for each arm, and return the
    table.
    """
    runs: dict[str, list[list[Leak]]] = {}
    for arm in result.arms:
        runs[arm.label] = []
        for folder in arm.folders:
            leaked, pictures = leaks(folder)
            runs[arm.label].append(leaked)
            if pictures and folder == arm.folders[0]:
                save_picture(pictures, result.folder / f"leakage-{folder.name}.png")
    table = markdown([_row(label, leaked) for label, leaked in runs.items()], HEADER)
    values = {
        label: [[vars(leak) for leak in run] for run in leaked]
        for label, leaked in runs.items()
    }
    as_json = json.dumps(values, indent=0, ensure_ascii=False)
    write_atomically(result.folder / "leakage.json", as_json.encode())
    write_atomically(result.folder / "leakage.md", table.encode())
    return table


HEADER = (
    "scores",
    "to own records",
    "to held-out ones",
    "own − held-out",
    "clients nearer to own",
    "random images",
)


def _row(label: str, runs: Sequence[Sequence[Leak]]) -> tuple[str, ...]:
    """Means over clients and runs; the difference with the 95 % interval of its mean
    over clients.
    """
    leaked = [leak for run in runs for leak in run]
    own = np.array([leak.own for leak in leaked])
    held_out = np.array([leak.held_out for leak in leaked])
    drawn = np.array([leak.random for leak in leaked])
    gap = own - held_out
    half = 1.96 * gap.std(ddof=1) / np.sqrt(len(gap))
    return (
        label,
        f"{own.mean():.3f}",
        f"{held_out.mean():.3f}",
        f"{gap.mean():+.4f} ± {half:.4f}",
        f"{np.mean(gap > 0):.0%}",
        f"{drawn.mean():.3f}",
    )
