"""PneumoniaMNIST as a hospital has it, as files: scans/ is private, public/ has no labels, held-out/ waits.

python write_images.py ~/pneumoniamnist.npz
"""

import sys
from pathlib import Path

import numpy as np
from PIL import Image

CLASSES = ("normal", "pneumonia")
PUBLIC, HELD_OUT = 1700, 600


def main(file: Path, out: Path = Path()) -> None:
    with np.load(file) as arrays:  # MedMNIST's own names, or x and y
        x, y = (
            arrays[name if name in arrays else short] for name, short in (("train_images", "x"), ("train_labels", "y"))
        )
    order = np.random.default_rng(2026).permutation(len(x))
    for count, index in enumerate(order):
        folder = CLASSES[int(y.reshape(-1)[index])]
        if count < PUBLIC:
            place = out / "public"
        else:
            place = out / ("held-out" if count < PUBLIC + HELD_OUT else "scans") / folder
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(x[index].reshape(28, 28)).save(place / f"{index:05}.png")


if __name__ == "__main__":
    main(Path(sys.argv[1]).expanduser(), *map(Path, sys.argv[2:]))
