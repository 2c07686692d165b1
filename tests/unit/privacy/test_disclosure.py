"""Everything that leaves a client is classified."""

import dataclasses
from typing import get_args

from fedaux.core.messages import Failure, Hello, Reply, Subtotal
from fedaux.privacy.disclosure import COVERED, DISCLOSED_FIELDS, PUBLIC, UNPROTECTED, disclosures


def test_everything_that_crosses_is_classified() -> None:
    """A new field of a reply must be said to be public, covered or not covered before it can be added."""
    replies = {Hello, *get_args(Reply)} - {Failure, Subtotal}  # these are made by servers
    assert set(DISCLOSED_FIELDS) == replies
    for kind in replies:
        assert set(DISCLOSED_FIELDS[kind]) == {field.name for field in dataclasses.fields(kind)}, kind.__name__


def test_private_training_covers_the_models_and_silences_what_is_beside_them() -> None:
    plain, private = dict(disclosures(False)), dict(disclosures(True))
    assert plain["local models"] == UNPROTECTED.value
    assert private["local models"] == plain["certainty scores"] == COVERED.value
    silenced = [what for what in plain if what.startswith(("loss", "seconds"))]
    assert len(silenced) == 2
    assert {(plain[what], private[what]) for what in silenced} == {(UNPROTECTED.value, PUBLIC.value)}
    sums = "sums of features per class, or of their products too"
    assert sums not in plain
    assert dict(disclosures(True, sums=True))[sums] == dict(disclosures(False, sums=True))[sums] == UNPROTECTED.value
    assert [what for what, how in disclosures(True) if how == UNPROTECTED.value] == [
        "number of records (persons) of a client; under add-remove the declared one",
        "when a reply arrives",
        "whether the data could be read at all: one of four words instead of a reply",
    ]
