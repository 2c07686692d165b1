"""The result of a sweep: one statement, failures that name their remedy, and files that agree with it."""

import csv
import json
from dataclasses import replace
from pathlib import Path

import pytest

from fedaux.config.schema import Config
from fedaux.core.errors import Exit
from fedaux.sweeps.chosen import Chosen
from fedaux.sweeps.engine import read_sweep
from fedaux.sweeps.grid import Sweep
from fedaux.sweeps.result import FailedRun, SweepError, SweepResult, write_results
from fedaux.sweeps.workers import TaskError
from helpers.runs import finished_run
from helpers.tiny import MLP, TINY_CONFIG


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> SweepResult:
    folder = tmp_path_factory.mktemp("sweep")
    sweep = Sweep.of(TINY_CONFIG, {"method": ["fedavg", "feddf"], "data.alpha": [0.1, 10.0]}, seeds=2, title="Tiny")
    for run in sweep.runs(folder):
        finished_run(run.folder, run.config)
    return read_sweep(sweep, folder)


def failed(result: SweepResult, count: int) -> SweepResult:
    runs = result.sweep.runs(result.folder)[:count]
    errors = [TaskError(Exit.DATA if i == 0 else Exit.BUG, f"reason {i}.") for i in range(count)]
    return replace(result, failures=tuple(map(FailedRun, runs, errors)))


def test_the_caption_has_what_all_arms_have_in_common(result: SweepResult) -> None:
    start = f"Tiny. Test accuracy in %: digits, 3 clients, {MLP.label}, 2 rounds, 2 seeds. ± is the sample"
    assert result.caption.startswith(start)
    assert "α" not in result.caption
    assert result.caption.endswith(" Settings: as in the config.")


def test_words_and_files_say_which_settings_the_methods_had(result: SweepResult, tmp_path: Path) -> None:
    validated = Config.from_dict(TINY_CONFIG.to_dict(), ["data.validation_fraction=0.5"])
    chosen = Chosen("tuned by hand", {"fedavg": {"local.lr": 0.001}})
    sweep = Sweep.of(validated, {"method": ["fedavg", "feddf"]}, 1, chosen)
    for run in sweep.runs(tmp_path):
        finished_run(run.folder, run.config)
    written = write_results(read_sweep(sweep, tmp_path))
    assert written.caption.startswith("Validation accuracy in %")
    for name in ("table.md", "table.tex", "report.html", "sweep.json"):
        assert "tuned by hand" in (tmp_path / name).read_text(), name
    for name in ("table.md", "table.tex"):
        assert "0.001" in (tmp_path / name).read_text(), name
    assert "tested on validation records" in (tmp_path / "report.html").read_text()
    assert json.loads((tmp_path / "sweep.json").read_text())["chosen"] == {"FedAVG": "local.lr = 0.001"}
    assert "chosen" in json.loads((write_results(result).folder / "sweep.json").read_text())


def test_arms_with_the_same_statement_have_it_once(result: SweepResult) -> None:
    assert result.privacy == ""
    alike = replace(result, arms=tuple(replace(arm, privacy="ε = 1") for arm in result.arms))
    assert alike.privacy == "ε = 1"
    first, *others = alike.arms
    differing = replace(alike, arms=(replace(first, privacy="ε = 2"), *others))
    one, other = differing.privacy.split("\n\n")
    assert one == "FedAVG, α = 0.1: ε = 2"
    assert other == "FedAVG, α = 10; FedDF, α = 0.1; FedDF, α = 10: ε = 1"


def test_failures_end_with_the_code_of_the_first_and_the_way_on(result: SweepResult) -> None:
    result.raise_failures()  # there are none
    with pytest.raises(SweepError, match=r"2 of 8 runs failed\. FedAVG, α = 0\.1, seed 0: reason 0\. ") as caught:
        failed(result, 2).raise_failures()
    assert caught.value.code is Exit.DATA
    assert "the same command continues with what is missing" in str(caught.value)
    with pytest.raises(SweepError, match=r"5 of 8 runs failed \(the first 3 of 5\)") as caught:
        failed(result, 5).raise_failures()
    assert "reason 3" not in str(caught.value)


def test_where_every_run_failed_nothing_is_written(result: SweepResult, tmp_path: Path) -> None:
    with pytest.raises(SweepError, match="1 of 8 runs failed"):
        write_results(replace(failed(result, 1), arms=(), folder=tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_all_files_have_the_same_figures(result: SweepResult) -> None:
    written = write_results(failed(result, 1))
    folder = written.folder
    assert written.report == folder / "report.html"
    saved = json.loads((folder / "sweep.json").read_text())
    assert [arm["label"] for arm in saved["arms"]] == list(result.accuracy)
    assert saved["failures"] == [{"label": "FedAVG, α = 0.1, seed 0", "code": 4, "error": "reason 0."}]
    rows = list(csv.DictReader((folder / "runs.csv").read_text().splitlines()))
    assert len(rows) == 4 * 2 * 2  # arms, seeds, rounds
    text = (folder / "table.md").read_text()
    assert text.startswith(result.caption)
    assert "| method | α = 0.1 | α = 10 |" in text
    for accuracy in result.accuracy.values():
        assert f"{100 * accuracy:.1f} ±" in text
        assert f"{100 * accuracy:.1f}" in (folder / "table.tex").read_text()
