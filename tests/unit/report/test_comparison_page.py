"""Runs side by side: those that differ in their seed alone are one arm, and a page
shows all arms.
"""

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedaux.report.arms import ArmResult, find_runs, group
from fedaux.report.charts import MAX_CURVES, LineChart
from fedaux.report.comparison_page import (
    suggest_once,
    tones,
    write_comparison,
    write_report,
)
from fedaux.server.result import FinishedRun
from fedaux.server.run_state import RunState, StateError
from fedaux.server.run_writer import RunWriter
from helpers.pages import Page
from helpers.runs import finished_run
from helpers.tiny import TINY_CONFIG


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("several")
    for method in ("fedavg", "fedaux"):
        for seed in range(3):
            finished_run(
                folder / "runs" / f"{method}-{seed}",
                replace(TINY_CONFIG, method=method, seed=seed),
            )
    return folder


def test_runs_that_differ_in_their_seed_are_one_arm(several: Path) -> None:
    # named twice, it counts once
    arms = group(find_runs([several, several / "runs" / "fedaux-0"]))
    assert [(arm.label, arm.curves.shape) for arm in arms] == [
        ("FedAUX", (3, 2)),
        ("FedAvg", (3, 2)),
    ]
    assert (
        arms[1].curves[1].tolist()
        == FinishedRun(RunState.load(several / "runs" / "fedavg-1"), several).curve
    )
    table = json.loads(json.dumps(arms[0].to_dict(several)))
    assert (table["settings"], table["seeds"]) == ({"method": "fedaux"}, [0, 1, 2])
    assert table["folders"][1] == "runs/fedaux-1"  # the whole can move
    assert table["curves"] == arms[0].curves.tolist()


@pytest.mark.parametrize(
    ("key", "values"),
    [("data.alpha", (0.1, 1.0)), ("rounds", (1, 3))],
    ids=["data.alpha", "rounds"],
)
def test_arms_are_named_by_what_makes_them_differ(
    tmp_path: Path, key: str, values: tuple[float, ...]
) -> None:
    """Runs of different lengths were once cut to the shortest without a word."""
    for value in values:
        data = replace(TINY_CONFIG.data, alpha=value)
        change = {"rounds": value} if key == "rounds" else {"data": data}
        finished_run(
            tmp_path / str(value), replace(TINY_CONFIG, method="fedavg", **change)
        )
    found = group(find_runs([tmp_path]))
    assert [arm.label for arm in found] == [
        f"FedAvg, {key} = {value}" for value in values
    ]
    assert [arm.curves.shape[1] for arm in found] == (
        [1, 3] if key == "rounds" else [2, 2]
    )


def test_methods_with_settings_of_their_own_are_named_by_the_method(
    tmp_path: Path,
) -> None:
    for method, lr in (("fedavg", 0.1), ("feddf", 0.01)):
        local = replace(TINY_CONFIG.local, lr=lr)
        finished_run(
            tmp_path / method, replace(TINY_CONFIG, method=method, local=local)
        )
    arms = group(find_runs([tmp_path]))
    assert [arm.label for arm in arms] == ["FedAvg", "FedDF"]
    assert arms[1].settings == {"method": "feddf", "local.lr": 0.01}
    assert "local.lr = 0.01" in write_report(tmp_path).read_text()


def test_an_arm_that_is_not_finished_is_cut_and_says_so(tmp_path: Path) -> None:
    for seed in (0, 1):
        finished_run(
            tmp_path / str(seed),
            replace(TINY_CONFIG, method="fedavg", rounds=3, seed=seed),
        )
    state = RunState.load(tmp_path / "1")
    RunWriter(tmp_path / "1").save(
        replace(state, round=1, history=(replace(state.history[-1], round=1),))
    )
    (arm,) = group(find_runs([tmp_path]))
    assert arm.curves.shape == (2, 1)
    assert arm.note == "1 of 2 runs not finished, cut to 1 round: seed 1 (1)"
    text = write_report(tmp_path).read_text()
    assert "FedAvg: 1 of 2 runs not finished" in text
    # networks that have learned nothing
    assert "FedAvg: 2 of 2 runs: the model does not beat" in text
    # one round has no curve
    assert sorted(path.name for path in tmp_path.glob("[bc][au]*.svg")) == ["bars.svg"]


def test_a_comparison_has_everything(several: Path) -> None:
    path = write_report(several, target=0.99, formats=["svg", "pdf"])
    assert path == several / "report.html"
    text = path.read_text()
    found = Page(text)
    wanted = [
        "accuracy",
        "differences",
        "target",
        "split",
        "classes",
        "teachers",
        "privacy",
        "costs",
        "runs",
    ]
    assert found.sections == [*wanted, "settings"]
    assert not found.loads
    assert "6 runs side by side" in text
    assert "<td>scores, not models, ε = 1</td>" in text
    assert "<td>nothing</td>" in text
    assert text.count("runs/fedaux-1") == 1
    assert "Bands are ± one standard deviation" in text
    assert "3 seeds" in text
    assert "at least 99 %" in text
    assert text.count("never") == 2
    for name in ("curves", "split", "classes"):
        assert (several / f"{name}.svg").is_file()
        assert (several / f"{name}.pdf").read_bytes().startswith(b"%PDF")


def test_a_page_of_one_run_or_in_another_place(several: Path, tmp_path: Path) -> None:
    one, other = several / "runs" / "fedavg-0", several / "runs" / "fedaux-0"
    assert write_report(str(one)) == one / "report.html"
    assert "learning" in Page((one / "report.html").read_text()).sections
    assert (
        write_report(one, other, out=tmp_path / "both")
        == tmp_path / "both" / "report.html"
    )
    alone = write_report(one, out=tmp_path / "alone")
    assert "accuracy" in Page(alone.read_text()).sections
    with pytest.raises(StateError, match="holds no run"):
        write_report(tmp_path / "nowhere")


@pytest.mark.parametrize("count", [2, MAX_CURVES, MAX_CURVES + 1])
def test_every_arm_is_on_the_page_and_the_best_is_bold(
    several: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    drawn: list[LineChart] = []
    monkeypatch.setattr(LineChart, "save", lambda self, *rest: drawn.append(self))
    folders = (several / "runs" / "fedavg-0",)
    arms = [
        ArmResult(f"arm {i}", {}, {}, (0,), folders, np.full((1, 8), i / 20))
        for i in range(count)
    ]
    text = write_comparison(tmp_path, "Many", arms).read_text()
    assert len(drawn[0].lines) == min(count, MAX_CURVES)
    assert [line.label for line in drawn[0].lines if line.best] == [f"arm {count - 1}"]
    assert ("best of" in text) == (count > MAX_CURVES)
    assert all(f"<td>arm {i}</td>" in text for i in range(count))
    bold = f'<td class="best">{100 * (count - 1) / 20:.1f} %</td>'
    assert text.count('<td class="best">') == text.count(bold) == 4
    assert "mean of last 5" in text


def test_tiles_name_what_is_protected(several: Path, tmp_path: Path) -> None:
    """The winner was once without a word about its protection."""
    folders = {name: several / "runs" / f"{name}-0" for name in ("fedavg", "fedaux")}
    arms = [
        ArmResult(name, {}, {}, (0,), (folder,), np.full((1, 2), accuracy))
        for (name, folder), accuracy in zip(folders.items(), (0.9, 0.8), strict=True)
    ]
    text = write_comparison(tmp_path, "Two", arms).read_text()
    assert "<span>fedavg, the best after the last round, unprotected</span>" in text
    assert "fedaux, the next. Protected: scores, not models, ε = 1</span>" in text


def test_one_exchange_is_a_level_line_and_not_a_curve(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[LineChart] = []
    monkeypatch.setattr(LineChart, "save", lambda self, *rest: drawn.append(self))
    for method in ("ridge", "fedavg"):
        config = replace(TINY_CONFIG, method=method)
        finished_run(tmp_path / method, config)

    def arm(name: str, method: str, curve: list[float]) -> ArmResult:
        return ArmResult(name, {}, {}, (0,), (tmp_path / method,), np.array([curve]))

    arms = [
        arm("at once", "ridge", [0.7, 0.7]),
        # clients send in both rounds, so the head changes
        arm("as they come", "ridge", [0.6, 0.7]),
        arm("trained", "fedavg", [0.7, 0.7]),
    ]
    page = write_comparison(tmp_path / "all", "All", arms).read_text()
    assert [(line.label, line.level) for line in drawn[0].lines] == [
        ("at once, one exchange", True),
        ("as they come", False),
        ("trained", False),
    ]
    assert "computed from one exchange" in page
    # without any curve, there are bars
    write_comparison(tmp_path / "one", "One", arms[:1])
    assert (tmp_path / "one" / "bars.svg").is_file()
    assert len(drawn) == 1


def test_pretrained_methods_share_a_colour() -> None:
    found = tones(["FedAvg", "FedAvg+P", "FedDF+P", "FedAUX"])
    assert found["FedAvg"] == found["FedAvg+P"] != found["FedDF+P"]
    assert found["FedAUX"] == "hero"


def test_tuned_settings_stand_in_a_table_of_their_own(tmp_path: Path) -> None:
    for method, lr in (("fedavg", 0.1), ("feddf", 0.01)):
        finished_run(
            tmp_path / method,
            replace(
                TINY_CONFIG, method=method, local=replace(TINY_CONFIG.local, lr=lr)
            ),
        )
    page = write_report(tmp_path).read_text()
    assert (
        page.index('id="tuned"')
        < page.index("local.lr = 0.01")
        < page.index('id="costs"')
    )
    assert "--tiles: 4" in page


def test_one_curve_each_is_one_chart(tmp_path: Path) -> None:
    for lr in (0.1, 0.2, 0.3):
        local = replace(TINY_CONFIG.local, lr=lr, epochs=round(10 * lr))
        finished_run(tmp_path / str(lr), replace(TINY_CONFIG, local=local))
    write_report(tmp_path)
    assert [file.name for file in tmp_path.glob("curves*.svg")] == ["curves.svg"]


def test_a_suggestion_is_made_once() -> None:
    both = [
        f"{name}: no better than the commonest class. First try: --set local.epochs=20."
        for name in ("A", "B")
    ]
    assert suggest_once([*both, "C: cut"]) == [
        both[0],
        "B: no better than the commonest class.",
        "C: cut",
    ]


def test_round_0_is_in_curves_and_table(
    several: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[LineChart] = []
    monkeypatch.setattr(LineChart, "save", lambda self, *rest: drawn.append(self))
    folders = tuple(several / "runs" / f"fedavg-{seed}" for seed in range(3))
    curves = np.array([[0.2, 0.4]] * 3)
    trained = ArmResult("trained", {}, {}, (0, 1, 2), folders, curves)
    trained = replace(trained, starts=(0.1, 0.3, 0.5), fall="Round 1 is below it.")
    computed = ArmResult("computed", {}, {}, (0, 1, 2), folders, curves)
    text = write_comparison(tmp_path, "Two", [trained, computed]).read_text()
    assert "<th>round 0</th>" in text
    assert "<td>trained</td><td>30.0 ± 20.0 %</td>" in text
    assert "trained: Round 1 is below it." in text
    first, second = drawn[0].lines
    assert first.values == pytest.approx([0.3, 0.2, 0.4])
    assert (len(second.values), second.offset) == (2, 1)
    assert drawn[0].x_values == ["0", "1", "2"]


def test_all_warnings_are_in_one_box_above_the_first_figure(
    several: Path, tmp_path: Path
) -> None:
    """Three methods with two warnings each once had a box for each of them."""
    folders = tuple(several / "runs" / f"fedavg-{seed}" for seed in range(3))
    curves = np.array([[0.2, 0.4]] * 3)
    arms = [
        ArmResult(
            label, {}, {}, (0, 1, 2), folders, curves, warning="Cut.", fall="Fell."
        )
        for label in ("a", "b", "c")
    ]
    text = write_comparison(tmp_path, "Three", arms).read_text()
    above, figure, _ = text.partition("<figure")
    assert figure
    assert above.count('role="alert"') == 1
    box = above.partition('role="alert"')[2].partition("</div>")[0]
    assert box.count("<li>") == 6
    assert "<li>b: Fell.</li>" in box


def test_the_table_says_what_each_method_protects(several: Path) -> None:
    """A method without protection may win, and the reader must see that beside its
    accuracy.
    """
    text = write_report(several).read_text()
    section = text.partition('id="accuracy"')[2].partition("</section>")[0]
    header = re.findall("<th>(.*?)</th>", section)
    assert header[-1] == "protected"
    protected = {
        row[0]: row[-1]
        for row in (
            re.findall("<td[^>]*>(.*?)</td>", line)
            for line in re.findall("<tr>(.*?)</tr>", section)
        )
        if row
    }
    assert protected == {
        "FedAUX": "scores, not models, ε = 1",
        "FedAvg": "nothing",
    }
