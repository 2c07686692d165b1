"""Settings chosen from a folder of images, each with its reason. Only headers and a few
images are read.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from fedaux.data.arrays import require_file
from fedaux.data.images import (
    UNREADABLE,
    find_splits,
    list_images,
    site_layout,
    subfolders,
)

SAMPLED_IMAGES = 200  # images that are looked at
LARGEST_SIZE = 64  # larger images, and images of several sizes, are shrunk to this
ENCODER_SIZE = 128  # the same for a published encoder
# up to which the small network does, and from which a published encoder is proposed
SMALL_SIZE = 32
VIEWS = 70_000  # of pre-training: a minute of a processor with the small network
HEAD_STEPS = 200  # of a client in a round; a head makes thousands a second
DISTILL_STEPS = 200
TYPICAL_BATCH = 32
GREY = {"1", "L", "LA", "I", "I;16", "F"}


@dataclass(frozen=True)
class Choice:
    """A setting by its dotted key, and why it has this value."""

    key: str
    value: Any
    why: str


def possible_sites(private: Path) -> dict[str, list[str]]:
    """The folders that may be sites, with their sub-folders, or {}."""
    return site_layout(
        private / find_splits(require_file(private, "your own images"))[0]
    )


def choose_for_images(
    private: Path,
    public: Path,
    clients: int,
    test_fraction: float = 0.2,
    folders: str = "",
    encoder: str = "",
) -> list[Choice]:
    """Choose settings for `fedaux init images --data PRIVATE --public PUBLIC`.

    Args:
        private: The folder of labelled images.
        public: The folder of public images.
        clients: How many clients to simulate, unless folders are sites.
        test_fraction: The share that is held out where there is no folder `test`.
        folders: What the folders are where they may be both (`possible_sites`): "sites"
            or "classes".
        encoder: A published encoder that is installed here, if any. It was trained on
            photos, and is chosen for images in colour of at least 32 pixels.
    """
    split, test = find_splits(require_file(private, "your own images"))
    root = private / split
    sites = list[str]()
    groups = subfolders(root)
    if folders == "sites":
        sites = [folder.name for folder in groups]
        clients = len(sites)
        groups = [folder for site in groups for folder in subfolders(site)]
    counts = Counter[str]()
    for folder in groups:
        counts[folder.name] += len(list_images(folder))
    if len(counts) < 2:
        raise ValueError(
            f"{root} must have a folder of images for each of at least two classes, "
            f"not {len(counts)}"
        )
    seen = list_images(require_file(public, "public images"))
    if len(seen) < 2:
        raise ValueError(
            f"{public} holds {len(seen)} images; public ones, of any content, are what "
            "clients meet on"
        )
    records = sum(counts.values())
    sizes, mode = _look([*list_images(root), *seen])
    if mode == "L" or min(map(min, sizes)) < SMALL_SIZE:
        encoder = ""
    size, how = _format(sizes, mode, ENCODER_SIZE if encoder else LARGEST_SIZE)
    share = records * (1 if test else 1 - test_fraction) / clients
    batches = max(1, math.ceil(share / TYPICAL_BATCH))
    epochs = max(1, math.ceil(HEAD_STEPS / batches))
    options: dict[str, Any] = {"size": size, "mode": mode}
    parts = {
        name: folder for name, folder in (("split", split), ("test", test)) if folder
    }
    held = (
        f"tested on those in {test}"
        if test
        else f"{test_fraction:.0%} of them are held out for testing"
    )
    names = ", ".join(f"{count:,} {name}" for name, count in list(counts.items())[:10])
    return [
        Choice("data.path", str(private), f"{records:,} images: {names}; {held}"),
        Choice(
            "data.options",
            options | parts | ({"folders": folders} if folders == "classes" else {}),
            how,
        ),
        *_clients(root, sites, clients, share),
        Choice("aux.path", str(public), f"{len(seen):,} public images"),
        Choice("aux.options", options, "as the private ones"),
        *(_published(encoder) if encoder else _pretrained(size, mode, len(seen))),
        Choice(
            "local.epochs",
            epochs,
            f"{batches} batches of {TYPICAL_BATCH} each: {epochs * batches} steps a round",
        ),
        Choice("privacy.expected_records", round(share * clients), "of all clients"),
        Choice(
            "distill.steps",
            DISTILL_STEPS,
            "steps, not epochs: they do not depend on how many public images",
        ),
    ]


def _published(encoder: str) -> list[Choice]:
    return [
        Choice(
            "prototypes",
            [encoder],
            (
                "a published encoder, installed here; --pretrain trains a network of "
                "your own"
            ),
        ),
        Choice("pretrain.epochs", 0, "it comes with its weights"),
    ]


def _pretrained(size: int, mode: str, public: int) -> list[Choice]:
    """Choose a network, and its pre-training on so many public images."""
    small = size <= SMALL_SIZE
    epochs = min(100, max(10, round(VIEWS / (2 * public))))
    return [
        Choice(
            "prototypes",
            ["cnn"] if small else [{"name": "resnet8", "width": 16}],
            (
                f"{size}×{size} pixels are "
                f"{'small' if small else 'too many for the smallest network'}"
            ),
        ),
        Choice(
            "pretrain.epochs",
            epochs,
            f"about {2 * public * epochs:,} views of {public:,} images",
        ),
        Choice("pretrain.batch_size", min(256, public), "several steps an epoch"),
        Choice(
            "pretrain.flip",
            mode != "L",
            "grey images are often scans or writing" if mode == "L" else "colour",
        ),
    ]


def _clients(root: Path, sites: list[str], clients: int, share: float) -> list[Choice]:
    if not sites:
        return [Choice("data.clients", clients, f"about {share:,.0f} images each")]
    sizes = ", ".join(
        f"{name} {len(list_images(root / name)):,}" for name in sites[:10]
    )
    return [
        Choice("data.partition", "folders", f"each folder is a client: {sizes} images"),
        Choice("data.clients", clients, "as many as there are folders"),
        Choice("federation.sites", sites, "their names"),
    ]


def _look(files: list[Path]) -> tuple[Counter[tuple[int, int]], str]:
    """(how many images of each size, mode), of evenly spread images."""
    some = files[:: max(1, len(files) // SAMPLED_IMAGES)]
    sizes = Counter[tuple[int, int]]()
    grey = True
    for file in some:
        try:
            with Image.open(file) as image:
                grey = grey and (image.mode in GREY or _is_grey(image))
                sizes[image.size] += 1
        except UNREADABLE:
            continue
    if not sizes:
        raise ValueError(
            f"not one of the {len(some)} files looked at can be read as an image, "
            f"{some[0]} for one"
        )
    return sizes, "L" if grey else "RGB"


def _format(
    sizes: Counter[tuple[int, int]], mode: str, largest: int
) -> tuple[int, str]:
    """(size, why); the size is at most `largest`."""
    colour = "grey" if mode == "L" else "in colour"
    (width, height), _ = sizes.most_common(1)[0]
    if len(sizes) == 1 and width == height and width <= largest:
        return (
            width,
            f"{sizes.total()} images looked at are all {width}×{height} and {colour}",
        )
    size = min(largest, min(map(min, sizes)))
    least = min(sizes)
    most = max(sizes)
    span = f"{least[0]}×{least[1]}" + (
        f" to {most[0]}×{most[1]}" if len(sizes) > 1 else ""
    )
    return (
        size,
        (
            f"{sizes.total()} images looked at have {span} pixels, {colour}: cropped "
            "and shrunk"
        ),
    )


def _is_grey(image: Image.Image) -> bool:
    x = np.asarray(image.convert("RGB"))
    return bool((x[..., 0] == x[..., 1]).all() and (x[..., 1] == x[..., 2]).all())
