"""The method table, row by row."""

import pytest

from fedaux.config.methods import METHODS

TABLE = {  # label, pretrained, proximal, teachers, weights
    "fedavg": ("FedAVG", False, False, "none", "uniform"),
    "fedprox": ("FedPROX", False, True, "none", "uniform"),
    "feddf": ("FedDF", False, False, "clients", "uniform"),
    "fedbe": ("FedBE", False, False, "bayesian", "uniform"),
    "fedavg+p": ("FedAVG+P", True, False, "none", "uniform"),
    "fedprox+p": ("FedPROX+P", True, True, "none", "uniform"),
    "feddf+p": ("FedDF+P", True, False, "clients", "uniform"),
    "fedbe+p": ("FedBE+P", True, False, "bayesian", "uniform"),
    "fedaux": ("FedAUX", True, False, "clients", "certainty"),
}


def test_there_are_nine() -> None:
    assert list(METHODS) == list(TABLE)


@pytest.mark.parametrize("key", TABLE)
def test_row(key: str) -> None:
    row = METHODS[key]
    assert (row.label, row.pretrained, row.proximal, row.teachers, row.weights) == TABLE[key]
    assert row.distils is (row.teachers in ("clients", "bayesian"))
    assert row.scores is (key == "fedaux")


def test_pretraining_is_a_field_and_no_letter_of_the_name() -> None:
    assert "P" in METHODS["fedprox"].label
    assert not METHODS["fedprox"].pretrained
    assert "+P" not in METHODS["fedaux"].label
    assert METHODS["fedaux"].pretrained
