"""Small data that need no download, for studies at the scale `smoke`: photographs,
noise, sentences.
"""

from __future__ import annotations

import numpy as np

from fedaux.data.records import Corpus, Records

TOPICS = {
    "sport": "team match goal league coach player season cup",
    "trade": "bank market shares profit price oil stock euro",
    "space": "orbit rocket planet moon launch probe comet star",
}
COMMON = "the a of and in on was is after before new old"


def photos(count: int = 300) -> Corpus:
    """8×8 patches of scikit-learn's two photographs, in grey."""
    from sklearn.datasets import load_sample_images

    rng = np.random.default_rng(0)
    patches = []
    for image in load_sample_images().images:
        # a patch shows 32 × 32 of the photograph's pixels
        grey = image.mean(axis=2)[::4, ::4].astype(np.uint8)
        for _ in range(count // 2):
            row, column = rng.integers(0, np.array(grey.shape) - 8)
            patches.append(grey[row : row + 8, column : column + 8, None])
    return Corpus(Records(np.stack(patches)))


def noise(count: int = 300) -> Corpus:
    """8×8 images in which every pixel is random."""
    pixels = np.random.default_rng(0).integers(0, 256, (count, 8, 8, 1), np.uint8)
    return Corpus(Records(pixels))


def sentences(count: int = 300, seed: int = 0) -> Corpus:
    """Made-up sentences on three topics, most words of each from its topic."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, len(TOPICS), count)
    topics = [words.split() for words in TOPICS.values()]
    common = COMMON.split()
    texts = []
    for label in labels:
        words = []
        for _ in range(8):
            vocabulary = topics[label] if rng.random() < 0.6 else common
            words.append(rng.choice(vocabulary))
        texts.append(" ".join(words))
    records = Records(np.array(texts), labels.astype(np.int64))
    return Corpus(records, classes=tuple(TOPICS))
