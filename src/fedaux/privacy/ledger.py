"""What was released, at what cost, and in words what that does not cover."""

from __future__ import annotations

from collections.abc import Sequence

from fedaux.exchange import Release

_NEIGHBOURS = {
    "replace-one": "one record of a client exchanged for any other",
    "add-remove": "one record of a client added or removed, at a declared size",
}
_OPEN = "local models, their losses and the sizes of the clients' data are sent without differential privacy"


def statement(releases: Sequence[Release]) -> str:
    """The privacy statement of a run: true as it stands, and explicit about what it leaves out."""
    if not releases:
        return f"No certainty scores were released. Not covered: {_OPEN}."
    if any(one.unsafe for one in releases):
        return "NOT PRIVATE: the noise was drawn from a known seed (privacy.unsafe_seed), so anybody can remove it."
    worst = max(one.epsilon for one in releases), max(one.delta for one in releases)
    neighbours = " or ".join(_NEIGHBOURS[kind] for kind in sorted({one.adjacency for one in releases}))
    certificates = ", ".join(sorted({one.certificate for one in releases}))
    return (
        f"The certainty scores of this run are ({worst[0]}, {worst[1]})-differentially private for {neighbours}: "
        f"{len(releases)} clients, one release each, noise from the operating system, certificate {certificates}. "
        f"Not covered: {_OPEN}; and scores released by other runs on the same data add to these."
    )
