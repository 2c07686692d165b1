"""What was released, at what cost, and in words what that does not cover."""

from __future__ import annotations

from collections.abc import Sequence

from fedaux.exchange import Release

_NEIGHBOURS = {
    "replace-one": "one record of a client exchanged for any other",
    "add-remove": "one record of a client added or removed, at a size that is public",
}


def statement(releases: Sequence[Release]) -> str:
    """The privacy statement of a run: true as it stands, and explicit about what it leaves out."""
    if not releases:
        return "No certainty scores were released. Local models are sent without differential privacy."
    if any(one.unsafe for one in releases):
        return "NOT PRIVATE: the noise was drawn from a known seed (privacy.unsafe_seed), so anybody can remove it."
    worst = max(releases, key=lambda one: (one.epsilon, one.delta))
    return (
        f"The certainty scores of every client are ({worst.epsilon:g}, {worst.delta:g})-differentially private for "
        f"{_NEIGHBOURS[worst.adjacency]} ({len(releases)} clients, one release each, noise from the operating system, "
        f"certificate: {worst.certificate}). Not covered: local models are sent without differential privacy, and so "
        "are the sizes of the clients' data; this statement is about the certainty scores only."
    )
