"""What the folder of a sweep holds is read, and written as files that agree; tasks end
with errors of their own.
"""

import csv
import json
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from fedaux.config.parsing import ConfigError
from fedaux.config.schema import Config
from fedaux.config.sections import AuxConfig, FederationConfig
from fedaux.core.errors import Exit
from fedaux.core.progress import (
    Notice,
    ProgressEvent,
    SweepProgress,
    report,
    report_to,
)
from fedaux.core.results import SiteTest
from fedaux.server.run_writer import RunWriter
from fedaux.sweeps.engine import finished, read_sweep, run_sweep
from fedaux.sweeps.grid import Sweep
from fedaux.sweeps.method_settings import MethodSettings
from fedaux.sweeps.results import FailedRun, SweepError, SweepResult, write_results
from fedaux.sweeps.workers import PoolTask, TaskError, run_tasks
from helpers.runs import finished_run
from helpers.tiny import MLP, TINY_CONFIG

TWO = Sweep.of(TINY_CONFIG, {"method": ["fedavg", "fedaux"]}, seeds=2)


def test_runs_without_test_data_at_the_server_are_not_compared(tmp_path: Path) -> None:
    data = replace(
        TINY_CONFIG.data, source="npy", partition="own", site_test_fraction=0.2
    )
    config = replace(
        TINY_CONFIG,
        data=data,
        aux=AuxConfig("npy", "public"),
        privacy=replace(TINY_CONFIG.privacy, look_epsilon=1.0),
        federation=FederationConfig(sites=("a",)),
    )
    sweep = Sweep.of(config, {"method": ["fedavg"]}, seeds=1)
    with pytest.raises(ConfigError, match="Cannot compare FedAvg, seed 0"):
        run_sweep(sweep, tmp_path)
    assert list(tmp_path.rglob("*")) == []


def test_arms_without_a_finished_run_are_left_out(tmp_path: Path) -> None:
    assert read_sweep(TWO, tmp_path).arms == ()
    first, *_, last = TWO.runs(tmp_path)
    result = finished_run(first.folder, first.config)
    # one of two rounds
    RunWriter(last.folder).save(
        replace(finished_run(last.folder, last.config).state, round=1)
    )
    (arm,) = read_sweep(TWO, tmp_path).arms
    assert (arm.label, arm.seeds, arm.folders) == ("FedAvg", (0,), (first.folder,))
    assert arm.curves.tolist() == [result.curve]


def test_a_run_whose_sites_have_yet_to_test_the_model_is_not_finished(
    tmp_path: Path,
) -> None:
    config = replace(
        TINY_CONFIG,
        data=replace(TINY_CONFIG.data, site_test_fraction=0.2),
        privacy=replace(TINY_CONFIG.privacy, look_epsilon=1.0),
    )
    (run,) = Sweep.of(config, {"method": ["fedavg"]}, seeds=1).runs(tmp_path)
    state = finished_run(run.folder, run.config).state
    assert finished(run) is None
    tested = SiteTest(state.round, 3, (), 1.0, None, None, {}, {}, ())
    RunWriter(run.folder).save(replace(state, site_test=tested))
    assert finished(run) is not None


def test_what_is_finished_is_not_run_again_and_only_methods_that_release_have_a_statement(
    tmp_path: Path,
) -> None:
    results = [finished_run(run.folder, run.config) for run in TWO.runs(tmp_path)]
    events: list[ProgressEvent] = []
    found = run_sweep(TWO, tmp_path, on_progress=events.append)
    assert events == [SweepProgress(4, 4)]
    assert [arm.seeds for arm in found.arms] == [(0, 1), (0, 1)]
    assert found.failures == ()
    assert [(arm.label, arm.privacy) for arm in found.arms] == [
        ("FedAvg", ""),
        ("FedAUX", results[2].statement),
    ]
    assert found.accuracy["FedAUX"] == pytest.approx(
        (results[2].accuracy + results[3].accuracy) / 2
    )


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> SweepResult:
    folder = tmp_path_factory.mktemp("sweep")
    sweep = Sweep.of(
        TINY_CONFIG,
        {"method": ["fedavg", "feddf"], "data.alpha": [0.1, 10.0]},
        seeds=2,
        title="Tiny",
    )
    for run in sweep.runs(folder):
        finished_run(run.folder, run.config)
    return read_sweep(sweep, folder)


def failed(result: SweepResult, count: int) -> SweepResult:
    runs = result.sweep.runs(result.folder)[:count]
    errors = [
        TaskError(Exit.DATA if i == 0 else Exit.BUG, f"reason {i}.")
        for i in range(count)
    ]
    return replace(result, failures=tuple(map(FailedRun, runs, errors)))


def test_words_and_files_say_which_settings_the_methods_had(tmp_path: Path) -> None:
    validated = Config.from_dict(
        TINY_CONFIG.to_dict(), ["data.validation_fraction=0.5"]
    )
    chosen = MethodSettings("tuned by hand", {"fedavg": {"local.lr": 0.001}})
    sweep = Sweep.of(validated, {"method": ["fedavg", "feddf"]}, 1, chosen)
    for run in sweep.runs(tmp_path):
        finished_run(run.folder, run.config)
    assert write_results(read_sweep(sweep, tmp_path)).caption.startswith(
        "Validation accuracy in %"
    )
    for name in ("table.md", "table.tex", "report.html", "sweep.json"):
        assert "tuned by hand" in (tmp_path / name).read_text(), name
    for name in ("table.md", "table.tex"):
        assert "0.001" in (tmp_path / name).read_text(), name
    assert "tested on validation records" in (tmp_path / "report.html").read_text()
    assert json.loads((tmp_path / "sweep.json").read_text())["chosen"] == {
        "FedAvg": "local.lr = 0.001"
    }


def test_arms_with_the_same_statement_have_it_once(result: SweepResult) -> None:
    assert result.privacy == ""
    alike = replace(
        result, arms=tuple(replace(arm, privacy="ε = 1") for arm in result.arms)
    )
    assert alike.privacy == "ε = 1"
    first, *others = alike.arms
    one, other = replace(
        alike, arms=(replace(first, privacy="ε = 2"), *others)
    ).privacy.split("\n\n")
    assert one == "FedAvg, α = 0.1: ε = 2"
    assert other == "FedAvg, α = 10; FedDF, α = 0.1; FedDF, α = 10: ε = 1"


def test_failures_end_with_the_code_of_the_first_and_the_way_on(
    result: SweepResult, tmp_path: Path
) -> None:
    result.raise_failures()  # there are none
    with pytest.raises(
        SweepError, match=r"2 of 8 runs failed\. FedAvg, α = 0\.1, seed 0: reason 0\. "
    ) as caught:
        failed(result, 2).raise_failures()
    assert caught.value.code is Exit.DATA
    assert "Run the same command again: it continues with what is missing" in str(
        caught.value
    )
    with pytest.raises(
        SweepError, match=r"5 of 8 runs failed \(the first 3 of 5\)"
    ) as caught:
        failed(result, 5).raise_failures()
    assert "reason 3" not in str(caught.value)
    # where every run failed nothing is written
    with pytest.raises(SweepError, match="1 of 8 runs failed"):
        write_results(replace(failed(result, 1), arms=(), folder=tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_all_files_have_the_same_figures_below_what_all_arms_have_in_common(
    result: SweepResult,
) -> None:
    written = write_results(failed(result, 1))
    folder = written.folder
    assert written.report == folder / "report.html"
    saved = json.loads((folder / "sweep.json").read_text())
    assert [arm["label"] for arm in saved["arms"]] == list(result.accuracy)
    assert saved["failures"] == [
        {"label": "FedAvg, α = 0.1, seed 0", "code": 4, "error": "reason 0."}
    ]
    rows = list(csv.DictReader((folder / "runs.csv").read_text().splitlines()))
    assert len(rows) == 4 * 2 * 2  # arms, seeds, rounds
    text = (folder / "table.md").read_text()
    start = f"Tiny. Test accuracy in %: digits, 3 clients, {MLP.label}, 2 rounds, 2 seeds. ± is the sample"
    assert text.startswith(start)
    assert "| method | α = 0.1 | α = 10 |" in text
    for accuracy in result.accuracy.values():
        assert f"{100 * accuracy:.1f} ±" in text
        assert f"{100 * accuracy:.1f}" in (folder / "table.tex").read_text()


def say(text: str) -> None:
    report(Notice(text))


def read(path: str) -> None:
    Path(path).read_bytes()


def bug() -> None:
    raise AssertionError


def test_one_job_runs_tasks_in_order_and_a_task_that_fails_does_not_end_the_others(
    tmp_path: Path,
) -> None:
    calls = (
        partial(say, "first"),
        partial(read, str(tmp_path / "gone")),
        bug,
        partial(say, "last"),
    )
    tasks = [
        PoolTask(name, call, label=f"run {name}")
        for name, call in zip("abcd", calls, strict=True)
    ]
    events: list[ProgressEvent] = []
    with report_to(events.append):
        ended = list(run_tasks(tasks, 1, 1))
    assert [task for task, _ in ended] == tasks
    assert events == [
        Notice("first", run="run a"),
        Notice("last", run="run d"),
    ]
    fine, missing, unforeseen, also_fine = (error for _, error in ended)
    assert fine is also_fine is None
    assert missing is not None
    assert (missing.code, "gone" in missing.text) == (Exit.DATA, True)
    assert unforeseen is not None
    # an error without words has its name
    assert (unforeseen.code, unforeseen.text) == (Exit.BUG, "AssertionError")
    assert "in bug" in unforeseen.details
