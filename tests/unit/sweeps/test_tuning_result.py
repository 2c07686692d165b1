"""The files of a tuning: winners, every trial, and a table that says what it took."""

import csv
import json
from pathlib import Path

from fedaux.sweeps.arms import describe
from fedaux.sweeps.tuning_grid import at_edge
from fedaux.sweeps.tuning_plan import Tuning
from fedaux.sweeps.tuning_result import rows, write_tuning
from helpers.tiny import TINY_CONFIG


def tuned() -> Tuning:
    tuning = Tuning.of(TINY_CONFIG, ["fedavg", "scaffold"], budget=4)
    for trials in tuning.trials.values():
        for i, trial in enumerate(trials):
            trial.scores[1] = 0.1 * (i + 1)
            if i >= 2:
                trial.scores[2] = 0.2 * (i + 1)
    return tuning


def test_the_table_has_the_winner_the_configs_own_setting_and_what_it_took() -> None:
    tuning = tuned()
    fedavg, scaffold = rows(tuning)
    assert fedavg[:5] == ("FedAVG", "80.0", "10.0 (round 1)", "4", "6")
    winner = tuning.trials["fedavg"][3].settings
    assert fedavg[5].startswith(describe(winner))
    edges = at_edge(tuning.grids["fedavg"], winner)
    assert fedavg[5].count("is at the edge of its list: widen it") == len(edges)
    assert scaffold[2] == "–"  # it allows no Adam


def test_a_winner_at_the_edge_of_its_list_says_so(tmp_path: Path) -> None:
    tuning = Tuning.of(TINY_CONFIG, ["fedavg"], budget=20, grid={"": {"local.epochs": (1, 5)}})
    for trial in tuning.trials["fedavg"]:
        most = trial.settings.get("local.epochs") == 5 and trial.settings["local.lr"] == 0.1
        trial.scores[2] = 0.9 if most else 0.1
    assert rows(tuning)[0][5].endswith("; local.epochs is at the edge of its list: widen it")
    assert "widen it" in (write_tuning(tuning, tmp_path).winner("fedavg") and (tmp_path / "table.md").read_text())
    assert json.loads((tmp_path / "tuned.json").read_text())["methods"]["fedavg"]["at_edge"] == ["local.epochs"]


def test_winners_and_trials_are_written(tmp_path: Path) -> None:
    tuning = write_tuning(tuned(), tmp_path)
    saved = json.loads((tmp_path / "tuned.json").read_text())
    assert saved["config"] == TINY_CONFIG.to_dict()
    assert (saved["budget"], saved["seeds"], saved["test_seed"], saved["rungs"]) == (4, [1000], 0, [[4, 1], [2, 2]])
    assert saved["methods"]["fedavg"]["settings"] == tuning.winner("fedavg").settings != {}
    everything = json.loads((tmp_path / "tune.json").read_text())
    assert [len(trials) for trials in everything["trials"].values()] == [4, 4]
    assert [value["local.lr"] for value in everything["grids"]["scaffold"]["local"]] == [
        0.003,
        0.01,
        0.03,
        0.1,
        0.3,
        1.0,
        3.0,
    ]
    lines = list(csv.DictReader((tmp_path / "trials.csv").read_text().splitlines()))
    assert [line["round_2"] for line in lines if line["method"] == "fedavg"][:2] == ["", ""]
    text = (tmp_path / "table.md").read_text()
    assert "4 until round 1, 2 until round 2" in text
    assert "never" not in text
    assert "| FedAVG | 80.0 | 10.0 (round 1) | 4 | 6 |" in text
