"""The figures of a table are the figures of the curves."""

import numpy as np

from fedaux.report.tables import HEADER, comparison, markdown


def test_last_round_mean_of_five_and_best() -> None:
    curve = np.array([[0.9, 0.1, 0.2, 0.3, 0.4, 0.5]])
    assert comparison({"FedAVG": curve}) == [("FedAVG", "50.0", "30.0", "90.0")]


def test_spread_over_seeds() -> None:
    curves = np.array([[0.5, 0.6], [0.7, 0.8]])
    assert comparison({"a": curves, "b": curves[:1]}) == [
        ("a", "70.0 ± 14.1", "65.0 ± 14.1", "70.0 ± 14.1"),
        ("b", "60.0", "55.0", "60.0"),
    ]


def test_a_single_round() -> None:
    assert comparison({"a": np.array([[0.25]])}) == [("a", "25.0", "25.0", "25.0")]


def test_markdown() -> None:
    lines = markdown([("FedAUX", "1.0", "2.0", "3.0")]).splitlines()
    assert lines == [f"| {' | '.join(HEADER)} |", "| --- | --- | --- | --- |", "| FedAUX | 1.0 | 2.0 | 3.0 |"]
