"""The one number of a study, and winners beyond the lists."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import ttest_rel
from studies import regimes, tuned
from studies.question import Question
from studies.tuned import WIDER, Arm, Design, Study

ASKED = Question("case", "ours", ("good", "bad"), rounds=3, splits=4)
OURS = [0.50, 0.52, 0.51, 0.55]
GOOD = [0.48, 0.47, 0.50, 0.51]
BAD = [0.40, 0.39, 0.30, 0.35]


def curves(means: list[float]) -> dict[str, list[float]]:
    """Curves of four rounds, the first three of which have these means."""
    return {
        str(split): [mean - 0.1, mean, mean + 0.1, 0.0]
        for split, mean in enumerate(means)
    }


def test_the_number_is_paired_two_sided_and_corrected() -> None:
    answer = ASKED.answer(
        {"ours": curves(OURS), "good": curves(GOOD), "bad": curves(BAD)}
    )
    p_good = ttest_rel(OURS, GOOD).pvalue
    p_bad = ttest_rel(OURS, BAD).pvalue
    assert p_bad < p_good  # so it counts twice, and the other once and no less
    p_good_corrected = max(2 * p_bad, p_good)
    mean = 100 * np.mean(np.subtract(OURS, GOOD))
    assert f"ours − good, the best rival: {mean:+.1f} ±" in answer
    assert f"p = {p_good_corrected:.3f} by Holm" in answer
    assert f"| {p_good:.3f} | {p_good_corrected:.3f} | 4 |" in answer
    assert f"| {p_bad:.3f} | {2 * p_bad:.3f} | 4 |" in answer


def test_a_number_that_lacks_a_run_is_not_given() -> None:
    short = {split: curve[:2] for split, curve in curves(BAD).items()}
    answer = ASKED.answer({"ours": curves(OURS), "good": curves(GOOD), "bad": short})
    assert "Not answered yet" in answer
    assert "bad has 0 of 4 splits" in answer
    assert "the best rival" not in answer
    p_good = ttest_rel(OURS, GOOD).pvalue
    assert f"| {p_good:.3f} | – | 4 |" in answer  # no correction without all rivals


def test_rounds_and_splits_beyond_the_question_do_not_count() -> None:
    more = {"ours": curves([*OURS, 0.9]), "good": curves([*GOOD, 0.1])}
    more["bad"] = curves([*BAD, 0.1])
    assert ASKED.answer(more) == ASKED.answer(
        {"ours": curves(OURS), "good": curves(GOOD), "bad": curves(BAD)}
    )


SMALL = """
rounds = 2
prototypes = [{name = "mlp", features = 8, hidden = 8}]
[data]
clients = 2
alpha = 10.0
[aux]
limit = 100
[pretrain]
epochs = 0
"""


@pytest.fixture
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Study:
    """FedAvg, whose list is too small, and FedProx with the same winner."""
    monkeypatch.setattr(tuned, "RESULTS", tmp_path)
    config = tmp_path / "small.toml"
    config.write_text(SMALL)
    design = Design(
        name="small",
        config=str(config),
        base=("local.epochs=1",),
        cases={"digits": ()},
        lists={"local": ({"optimizer": "sgd", "lr": 1e-6},), "local.epochs": (1,)},
        arms={
            "FedAvg": Arm(
                "fedavg",
                {"local.optimizer": "sgd", "local.lr": 1e-6},
                beyond=({"local.lr": 0.1}, {"local.lr": 1e-7}),
            ),
            "FedProx": Arm("fedprox", {"local.mu": 0.1}, like="FedAvg"),
        },
        tuned_rounds=2,
        budget=1,
    )
    results: dict[str, Any] = {"tuned": {}, "cells": {}}
    return Study(design, tmp_path / "work", 1, results)


def test_a_winner_beyond_the_list_has_curves_of_its_own(study: Study) -> None:
    old: dict[str, Any] = {"curve": [0.2, 0.3], "seconds": 1.0, "megabytes": [1.0, 1.0]}
    study.save("cells", "digits|FedAvg|0", **old)
    for name in study.design.arms:
        study.test("digits", name, split=0, rounds=2)
    assert study.winner("digits", "FedAvg")["local.lr"] == 0.1
    assert study.winner("digits", "FedProx")["local.lr"] == 0.1
    assert set(study.results["tuned"]) == {
        "digits|FedAvg",
        "digits|FedAvg|local.lr = 0.1",
        "digits|FedAvg|local.lr = 1e-07",
    }
    cells = study.results["cells"]
    assert set(cells) == {
        "digits|FedAvg|0",
        f"digits|FedAvg{WIDER}|0",
        f"digits|FedProx{WIDER}|0",
    }
    assert cells["digits|FedAvg|0"] == old
    assert len(cells[f"digits|FedAvg{WIDER}|0"]["curve"]) == 2
    # nothing is left to do
    before = dict(study.results["cells"])
    study.test("digits", "FedAvg", split=0, rounds=2)
    assert study.results["cells"] == before
    page = study.design.write_table(study.results)
    assert f"FedAvg{WIDER}" in page
    assert "FedAvg, beyond the list" in page


def test_the_study_of_whole_networks_answers_from_its_own_records() -> None:
    design = regimes.DESIGN
    question = design.question
    assert question is not None
    assert design.first_arms == ["FedAUX", "SCAFFOLD", "FedDF", "FedET"]
    results = design.read_results()
    answer = design.answer(results)
    page = design.results.with_suffix(".md").read_text(encoding="utf-8")
    assert answer in page
    for name in ("FedAUX", "FedDF"):  # at the same cost, with teachers that stay
        assert design.arms[name].settings["teachers.standing"] is True
        assert len(design.arms[name].beyond) == len(design.arms["SCAFFOLD"].beyond)
