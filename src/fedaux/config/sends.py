"""What may leave a site, in the words of `site.toml`: `sends = ["noisy sums",
"models"]`.

A site's owner lists it, and everything else is refused (`client.gate`). Only simulated
clients, whose settings are those of the run itself, go by what the run's method sends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedaux.config.methods import allowed_sums

if TYPE_CHECKING:
    from fedaux.config.schema import Config

NOISY_SUMS = "noisy sums"
MODELS = "models"
NOISY_MODELS = "noisy models"
NOISY_COUNTS = "noisy counts"
SUMS = {  # by what an order for sums asks for
    "class-sums": "sums",
    "moments": "second moments",
}
MEANINGS = {
    NOISY_SUMS: "releases under ε: certainty scores, or what a private head is made of",
    NOISY_COUNTS: "looks under ε: how many records have which class or which values, or "
    "are classified as what by a model",
    NOISY_MODELS: "models from private training, under ε",
    MODELS: "trained models, their losses and training times, without noise",
    "sums": "sums of features of each class, without noise",
    "second moments": "sums of features and of their products, without noise",
}


def needed_by(config: Config) -> tuple[str, ...]:
    """Return what a site with these settings sends when it takes part in a run with
    them.
    """
    words: list[str] = []
    head = config.analytic_head
    if config.releases:
        words.append(NOISY_SUMS)
    if head is not None and head.sums:
        words.append(SUMS[head.sends])
    if config.trains:
        words.append(NOISY_MODELS if config.privacy.private_training else MODELS)
    if config.privacy.look_epsilon > 0:
        words.append(NOISY_COUNTS)
    return tuple(words)


def word_for_sums(sends: str, allowed: tuple[str, ...]) -> str:
    """Return the word under which an order's sums may leave. A site that sends more
    also sends what that includes.
    """
    for kind, word in SUMS.items():
        if word in allowed and sends in allowed_sums(kind):
            return word
    return SUMS.get(sends, "sums")
