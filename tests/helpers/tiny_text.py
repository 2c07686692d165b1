"""A tiny language, a tiny published encoder for it, and texts on three topics: seconds
instead of minutes.
"""

from pathlib import Path

import numpy as np

TOPICS = {
    "sport": ["team", "match", "goal", "league", "coach", "player", "season", "cup"],
    "money": ["bank", "market", "shares", "profit", "trade", "price", "oil", "stock"],
    "space": ["orbit", "rocket", "planet", "moon", "launch", "probe", "comet", "star"],
}
COMMON = [
    "the",
    "a",
    "of",
    "and",
    "in",
    "on",
    "was",
    "is",
    "after",
    "before",
    "new",
    "old",
]


def write_texts(path: Path, count: int, seed: int, label: bool = True) -> Path:
    """A .csv of texts whose words are mostly of one topic."""
    rng = np.random.default_rng(seed)
    lines = ["label,text"]
    for _ in range(count):
        topic = str(rng.choice(list(TOPICS)))
        words = [
            str(rng.choice(TOPICS[topic] if rng.random() < 0.6 else COMMON))
            for _ in range(rng.integers(4, 12))
        ]
        lines.append(f"{topic if label else ''},{' '.join(words)}")
    path.write_text("\n".join(lines) + "\n")
    return path


def publish_encoder(folder: Path, width: int = 16) -> Path:
    """A folder in Hugging Face's format with random weights."""
    import torch
    from transformers import BertConfig, BertModel, BertTokenizerFast

    words = [
        "[PAD]",
        "[UNK]",
        "[CLS]",
        "[SEP]",
        "[MASK]",
        *COMMON,
        *(word for words in TOPICS.values() for word in words),
    ]
    folder.mkdir(parents=True)
    (folder / "vocab.txt").write_text("\n".join(words) + "\n")
    BertTokenizerFast(vocab=str(folder / "vocab.txt")).save_pretrained(folder)
    torch.manual_seed(7)
    config = BertConfig(
        vocab_size=len(words),
        hidden_size=width,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        initializer_range=0.1,
    )
    BertModel(config).save_pretrained(folder)
    return folder
