"""Settings chosen from a folder of images, each with its reason. Only headers and a few
images are read.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from fedaux.config.sections import PretrainConfig
from fedaux.data.arrays import require_file
from fedaux.data.image_folders import (
    find_splits,
    list_images,
    site_layout,
    subfolders,
)
from fedaux.data.images import UNREADABLE

SAMPLED_IMAGES = 200  # images that are looked at
LARGEST_SIZE = 64  # larger images, and images of several sizes, are shrunk to this
ENCODER_SIZE = 128  # the same for a published encoder
# up to which the small network does, and from which a published encoder is proposed
SMALL_SIZE = 32
GREY = {"1", "L", "LA", "I", "I;16", "F"}


@dataclass(frozen=True)
class Choice:
    """A setting by its dotted key, and why it has this value."""

    key: str
    value: Any
    why: str


def possible_sites(private: Path) -> dict[str, list[str]]:
    """The folders that may be sites, with their sub-folders, or {}."""
    split, _ = find_splits(require_file(private, "your own images"))
    return site_layout(private / split)


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
            f"Cannot choose settings: {root} must have a folder of images for each of "
            f"at least two classes, not {len(counts)}. Add folders."
        )
    public_images = list_images(require_file(public, "public images"))
    if len(public_images) < 2:
        raise ValueError(
            f"Cannot choose settings: {public} has {len(public_images)} images. Add "
            "public images, which can be of any content."
        )
    records = sum(counts.values())
    sizes, mode = _look([*list_images(root), *public_images])
    if mode == "L" or min(map(min, sizes)) < SMALL_SIZE:
        encoder = ""
    if encoder:
        size, how = _format(sizes, mode, ENCODER_SIZE)
        network = _published(encoder)
    else:
        size, how = _format(sizes, mode, LARGEST_SIZE)
        network = _pretrained(size, mode, len(public_images))
    if test:
        held_out = 0.0
        tested = f"tested on those in {test}"
    else:
        held_out = test_fraction
        tested = f"{test_fraction:.0%} of them are held out for testing"
    share = records * (1 - held_out) / clients
    options: dict[str, Any] = {"size": size, "mode": mode}
    layout = {"split": split, "test": test}
    if folders == "classes":
        layout["folders"] = folders
    chosen = {name: value for name, value in layout.items() if value}
    names = ", ".join(f"{count:,} {name}" for name, count in list(counts.items())[:10])
    return [
        Choice("data.path", str(private), f"{records:,} images: {names}; {tested}"),
        Choice("data.options", options | chosen, how),
        *_clients(root, sites, clients, share),
        Choice("aux.path", str(public), f"{len(public_images):,} public images"),
        Choice("aux.options", options, "as the private ones"),
        *network,
        Choice("privacy.expected_records", round(share * clients), "of all clients"),
    ]


def _published(encoder: str) -> list[Choice]:
    return [
        Choice(
            "prototypes",
            [encoder],
            (
                "a published encoder, installed here. Use --pretrain to train a "
                "network of your own"
            ),
        ),
        Choice("pretrain.epochs", 0, "it comes with its weights"),
    ]


def _pretrained(size: int, mode: str, public: int) -> list[Choice]:
    """Choose a network, and its pre-training on so many public images."""
    network: Any = {"name": "resnet8", "width": 16}
    pixels = "too many for the smallest network"
    if size <= SMALL_SIZE:
        network = "cnn"
        pixels = "small"
    epochs = PretrainConfig().for_records(public).epochs
    views = f"about {2 * public * epochs:,} views of {public:,} images"
    colour = "grey images are often scans or writing" if mode == "L" else "colour"
    return [
        Choice("prototypes", [network], f"{size}×{size} pixels are {pixels}"),
        Choice("pretrain.epochs", epochs, views),
        Choice("pretrain.batch_size", min(256, public), "several steps an epoch"),
        Choice("pretrain.flip", mode != "L", colour),
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
            f"Cannot choose settings: not one of the {len(some)} files looked at can "
            f"be read as an image, {some[0]} for one. Give image files."
        )
    return sizes, "L" if grey else "RGB"


def _format(
    sizes: Counter[tuple[int, int]], mode: str, largest: int
) -> tuple[int, str]:
    """(size, why). The size is at most `largest`."""
    colour = "grey" if mode == "L" else "in colour"
    (width, height), _ = sizes.most_common(1)[0]
    looked_at = f"{sizes.total()} images looked at"
    if len(sizes) == 1 and width == height and width <= largest:
        return width, f"{looked_at} are all {width}×{height} and {colour}"
    size = min(largest, min(map(min, sizes)))
    extremes = sorted({min(sizes), max(sizes)})
    span = " to ".join(f"{width}×{height}" for width, height in extremes)
    return size, f"{looked_at} have {span} pixels, {colour}: cropped and shrunk"


def _is_grey(image: Image.Image) -> bool:
    red, green, blue = np.moveaxis(np.asarray(image.convert("RGB")), -1, 0)
    return np.array_equal(red, green) and np.array_equal(green, blue)
