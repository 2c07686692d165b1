"""The privacy statement is true, and says what it leaves out."""

import numpy as np

from fedaux.exchange import Release
from fedaux.privacy.ledger import statement


def release(epsilon: float = 0.5, delta: float = 1e-5, adjacency: str = "replace-one", unsafe: bool = False) -> Release:
    return Release(
        "a", "s", 7, epsilon, delta, adjacency, "opendp", 1.0, 1.0, 1.0, unsafe, {"values": np.zeros(2, np.int64)}
    )


def test_what_is_covered_and_what_is_not() -> None:
    said = statement([release(), release()])
    assert "(0.5, 1e-05)-differentially private for one record of a client exchanged for any other" in said
    assert "2 clients, one release each" in said
    assert "noise from the operating system, certificate opendp." in said
    covered, _, rest = said.partition("Not covered:")
    assert "certainty scores" in covered
    assert "local models, their losses and the sizes of the clients' data are sent without" in rest
    assert "scores released by other runs on the same data add to these" in rest


def test_the_adjacency_is_spelt_out() -> None:
    added = "one record of a client added or removed, at a declared size"
    assert f"private for {added}:" in statement([release(adjacency="add-remove")])
    both = statement([release(), release(adjacency="add-remove")])
    assert f"private for {added} or one record of a client exchanged for any other:" in both


def test_the_weakest_release_speaks_for_all() -> None:
    assert "(2.0, 1e-05)" in statement([release(0.5), release(2.0), release(1.0)])
    assert "(0.5, 0.001)" in statement([release(0.5, 1e-3), release(0.5, 1e-5)])


def test_one_seeded_release_spoils_the_statement() -> None:
    said = statement([release(), release(unsafe=True)])
    assert said.startswith("NOT PRIVATE: the noise was drawn from a known seed (privacy.unsafe_seed)")
    assert "differentially private" not in said


def test_nothing_released_promises_nothing() -> None:
    said = statement([])
    assert said.startswith("No certainty scores were released. Not covered: local models")
    assert said.endswith("are sent without differential privacy.")
