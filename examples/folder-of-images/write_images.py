"""PneumoniaMNIST or CIFAR-10 as image files: scans/ is private, public/ has no labels,
held-out/ waits.

python write_images.py ~/pneumoniamnist.npz     # or any .npz with x, uint8 (N, H, W) or
(N, H, W, 3), and y
"""

import sys
from pathlib import Path

import numpy as np
from PIL import Image

CLASSES = {
    2: ("normal", "pneumonia"),
    10: (
        "airplane",
        "automobile",
        "bird",
        "cat",
        "deer",
        "dog",
        "frog",
        "horse",
        "ship",
        "truck",
    ),
}
PUBLIC, HELD_OUT, ALL = 1700, 600, 4707


def main(file: Path, out: Path = Path()) -> None:
    with np.load(file) as arrays:  # MedMNIST's own names, or x and y
        x, y = (
            arrays[name if name in arrays else short]
            for name, short in (("train_images", "x"), ("train_labels", "y"))
        )
    classes, order = (
        CLASSES[int(y.max()) + 1],
        np.random.default_rng(2026).permutation(len(x)),
    )
    for count, index in enumerate(order[:ALL]):
        folder = classes[int(y.reshape(-1)[index])]
        if count < PUBLIC:
            place = out / "public"
        else:
            place = (
                out / ("held-out" if count < PUBLIC + HELD_OUT else "scans") / folder
            )
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(x[index].squeeze()).save(place / f"{index:05}.png")


if __name__ == "__main__":
    main(Path(sys.argv[1]).expanduser(), *map(Path, sys.argv[2:]))
