"""Curves of many arms: all of them are shown, each in a colour of its own."""

from pathlib import Path

import numpy as np
import pytest

from fedaux.config.methods import METHODS, PAPER
from fedaux.report.accuracy_section import MANY, accuracy_section
from fedaux.report.arms import ArmResult
from fedaux.report.line_chart import MAX_CURVES
from fedaux.report.svg import WIDE


def arms(labels: list[str], seeds: int = 3, rounds: int = 3) -> list[ArmResult]:
    rng = np.random.default_rng(0)
    return [ArmResult(label, {}, {}, tuple(range(seeds)), (), rng.random((seeds, rounds))) for label in labels]


def section(labels: list[str], seeds: int = 3, rounds: int = 3):  # type: ignore[no-untyped-def]
    return accuracy_section(arms(labels, seeds, rounds), {}, Path())


def test_nine_methods_have_five_panels_and_two_none() -> None:
    nine = section([METHODS[name].label for name in PAPER])
    assert [name for name, _ in nine.figures[0].panels] == ["FedAVG", "FedPROX", "FedDF", "FedBE", "FedAUX"]
    assert 'class="band"' in nine.figures[0].panels[0][1](width=WIDE).body
    assert 'class="band"' not in nine.figures[0].draw(width=WIDE).body
    two = section(["FedAVG", "FedAUX"])
    assert not two.figures[0].panels
    assert 'class="band"' in two.figures[0].draw(width=WIDE).body


@pytest.mark.parametrize("count", [MANY, MAX_CURVES, MAX_CURVES + 1, 30])
def test_no_arm_is_left_out(count: int) -> None:
    labels = [f"arm {i}" for i in range(count)]
    found = section(labels)
    assert [name for name, _ in found.figures[0].panels] == labels
    tones = [found.figures[1].draw(width=WIDE).body.count(f'class="t{i}') for i in range(6)]
    assert sum(tones) == count
    drawn = found.figures[0].draw(width=WIDE).body.count('class="series')
    assert drawn == min(count, MAX_CURVES)
    assert ("best of" in found.figures[0].caption) == (count > MAX_CURVES)


def test_the_table_says_how_many_rounds_a_mean_has() -> None:
    assert section(["a", "b"], rounds=3).table.head[3] == "mean of last 3"
    assert section(["a", "b"], rounds=8).table.head[3] == "mean of last 5"
