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

from fedaux.core.io import cache_folder, write_atomically
from fedaux.core.rng import numpy_stream
from fedaux.data.federated import open_data
from fedaux.data.records import is_image
from fedaux.privacy.mechanism import unit_rows
from fedaux.report.tables import markdown
from fedaux.scoring.features import H0, FeatureCache
from fedaux.server.run_state import RunState
from fedaux.server.server import make_server
from fedaux.sweeps.engine import SweepResult

Rows = NDArray[np.floating]
# public images and neighbours of each, clients in the picture
TOP, NEIGHBOURS, SHOWN = 5, 4, 4


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
    chosen: list[list[NDArray[np.int64]]] = [[], []]
    for label in np.unique(own):
        places = [np.flatnonzero(labels == label) for labels in (own, others)]
        count = min(map(len, places))
        for kept, each in zip(chosen, places, strict=True):
            kept.append(rng.permutation(each)[:count])
    mine, theirs = (np.concatenate(kept) for kept in chosen)
    return mine, theirs


def leaks(folder: Path) -> tuple[list[Leak], list[NDArray[np.uint8]]]:
    """Return what each client of a finished run leaks, and a picture of the first few
    clients.

    A picture has a row for each top image: the image, then its nearest records of the
    client.
    """
    state = RunState.load(folder)
    data, server = open_data(state.config), make_server(state.config, state=state)
    embedding = server.restore(state)
    assert embedding is not None, "leakage is of methods that score"
    clients, rng = sorted(state.releases), numpy_stream(state.config.seed, "leakage")
    weights = embedding.teacher_weights(state.releases, clients)
    rows = {
        label: (
            h0.features(server.public.aux).take(server.public.split.distill),
            *(_private(h0).features(records) for records in (data.private, data.test)),
        )
        for label, h0 in server.public.h0.items()
    }
    found, pictures = list[Leak](), list[NDArray[np.uint8]]()
    for client in clients:
        place = data.index_of[client]
        public, everyone, held_out = rows[server.label_of(client)]
        own = everyone.take(data.parts[place])
        top = np.argsort(-weights.log_odds(client), kind="stable")[:TOP]
        mine, theirs = matched(own.labels, held_out.labels, rng)
        near, far = own.take(mine).gather(), held_out.take(theirs).gather()
        best, drawn = (
            public.take(places).gather()
            for places in (top, rng.choice(len(public), TOP, replace=False))
        )
        pairs = ((best, near), (best, far), (drawn, near))
        found.append(
            Leak(*(float(similarities(*pair).max(axis=1).mean()) for pair in pairs))
        )
        records = data.client(place)
        if len(pictures) < SHOWN and is_image(records.gather()[:1]):
            ranked = np.argsort(-similarities(best, own.gather()), axis=1)[
                :, :NEIGHBOURS
            ]
            images = server.public.distill.take(top).gather()
            pictures.append(
                tiled(images, [records.take(row).gather() for row in ranked])
            )
    return found, pictures


def _private(h0: H0) -> H0:
    """The same extractor for private records, whose features clients have computed
    already.
    """
    return H0(h0.spec, h0.module, h0.arrays, FeatureCache(cache_folder(), private=True))


def tiled(
    images: NDArray[np.uint8], neighbours: Sequence[NDArray[np.uint8]]
) -> NDArray[np.uint8]:
    """One row for each image, (H, W, C): the image, a white gap, its neighbours."""
    gap = np.full((images.shape[1], 4, images.shape[3]), 255, np.uint8)
    rows = [
        np.concatenate([one, gap, *near], axis=1)
        for one, near in zip(images, neighbours, strict=True)
    ]
    return np.concatenate(rows, axis=0)


def save_picture(pictures: Sequence[NDArray[np.uint8]], path: Path) -> None:
    """Write pictures of clients side by side, enlarged without smoothing, as a PNG."""
    from PIL import Image

    gap = np.full((pictures[0].shape[0], 8, pictures[0].shape[2]), 255, np.uint8)
    row = np.concatenate(
        [part for picture in pictures for part in (picture, gap)][:-1], axis=1
    )
    image = Image.fromarray(row[..., 0] if row.shape[2] == 1 else row)
    image.resize((2 * image.width, 2 * image.height), Image.Resampling.NEAREST).save(
        path
    )


def study(result: SweepResult) -> str:
    """Write leakage.json, leakage.md and a picture for each arm, and return the
    table.
    """
    found: dict[str, list[list[Leak]]] = {}
    for arm in result.arms:
        for folder in arm.folders:
            leaked, pictures = leaks(folder)
            found.setdefault(arm.label, []).append(leaked)
            if pictures and folder == arm.folders[0]:
                save_picture(pictures, result.folder / f"leakage-{folder.name}.png")
    text = markdown([_row(label, runs) for label, runs in found.items()], HEADER)
    plain = {
        label: [[vars(leak) for leak in run] for run in runs]
        for label, runs in found.items()
    }
    write_atomically(
        result.folder / "leakage.json",
        json.dumps(plain, indent=0, ensure_ascii=False).encode(),
    )
    write_atomically(result.folder / "leakage.md", text.encode())
    return text


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
    own, held_out, drawn = (
        np.array([getattr(leak, name) for run in runs for leak in run])
        for name in ("own", "held_out", "random")
    )
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
