"""Writes texts.csv and public.csv: messages to a shop, made from templates. They are
invented, and easy.

python make_texts.py
"""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np

WORDS = {
    "thing": [
        "lamp",
        "kettle",
        "printer",
        "jacket",
        "desk",
        "camera",
        "helmet",
        "radio",
        "clock",
        "tent",
        "vase",
    ],
    "when": [
        "yesterday",
        "last week",
        "on Monday",
        "in March",
        "this morning",
        "in autumn",
        "a month ago",
    ],
    "sum": [
        "20 euros",
        "49.90",
        "a hundred pounds",
        "15 dollars",
        "8.50",
        "60 francs",
        "5 %",
    ],
    "who": [
        "the courier",
        "the driver",
        "my neighbour",
        "the post office",
        "your depot",
    ],
}
TOPICS = {
    "billing": [
        "I was charged {sum} too much for the {thing}",
        "The invoice for the {thing} that I bought {when} is wrong",
        "Please refund {sum} to my credit card",
        "My bank says that you took {sum} {when}, what for?",
        "The discount code was not taken off the bill for the {thing}",
        "Can I pay for the {thing} in instalments?",
        "Where is the receipt for my payment of {sum}?",
    ],
    "delivery": [
        "The {thing} that I ordered {when} has not arrived",
        "The parcel was left with {who} and I cannot find it",
        "Tracking says that {who} delivered it {when}, but nothing came",
        "Please send the {thing} to another address",
        "The box was open and the {thing} was missing when {who} came",
        "Could {who} bring the {thing} in the evening instead?",
        "How long does shipping of a {thing} take?",
    ],
    "repair": [
        "The {thing} stopped working {when}",
        "The {thing} makes a strange noise when I switch it on",
        "A button of my {thing} broke off {when}",
        "The screen of the {thing} stays black after the update",
        "Is a broken {thing} covered by the warranty?",
        "I dropped the {thing} {when}, do you have spare parts?",
        "The battery of the {thing} does not charge any more",
    ],
}
OTHER = [
    "Thank you for the friendly help {when}",
    "When does your shop open on Sundays?",
    "Do you have this {thing} in blue?",
    "I would like to change my password",
    "Which {thing} would you recommend as a present?",
]


def messages(templates: list[str], rng: np.random.Generator, count: int) -> list[str]:
    """So many different messages, or as many as the templates have."""
    made: dict[str, None] = {}
    for _ in range(50 * count):
        chosen = {key: str(rng.choice(words)) for key, words in WORDS.items()}
        made[str(rng.choice(templates)).format(**chosen)] = None
        if len(made) == count:
            break
    return list(made)


def write(folder: Path, seed: int = 0) -> None:
    """Private messages with their topic; public ones without, some of them about
    something else.
    """
    rng = np.random.default_rng(seed)
    made = {topic: messages(templates, rng, 210) for topic, templates in TOPICS.items()}
    private = [(topic, text) for topic, texts in made.items() for text in texts[:150]]
    public = [text for texts in made.values() for text in texts[150:]] + messages(
        OTHER, rng, 40
    )
    for name, header, rows in (
        (
            "texts.csv",
            ("label", "text"),
            [private[i] for i in rng.permutation(len(private))],
        ),
        ("public.csv", ("text",), [(public[i],) for i in rng.permutation(len(public))]),
    ):
        with (folder / name).open("w", encoding="utf-8", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows([header, *rows])


if __name__ == "__main__":
    write(Path(__file__).parent)
