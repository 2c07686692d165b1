"""The figures of a table are the figures of the curves, in every format."""

import csv
import io
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedaux.report.arm_tables import pivot, runs_csv, summary, summary_csv, tasks
from fedaux.report.arms import ArmResult
from fedaux.report.tables import Table, escape, latex, markdown


def arm(
    method: str, alpha: float, curves: list[list[float]], privacy: str = ""
) -> ArmResult:
    words = {"data.alpha": f"α = {alpha:g}", "method": method}
    seeds = tuple(range(len(curves)))
    folders = tuple(Path(f"runs/{method}-seed{seed}") for seed in seeds)
    settings = {"data.alpha": alpha, "method": method.lower()}
    return ArmResult(
        ", ".join(words.values()),
        settings,
        words,
        seeds,
        folders,
        np.array(curves),
        privacy,
    )


ARMS = [
    arm("FedAvg", 0.01, [[0.1, 0.2], [0.3, 0.4]]),
    arm("FedAvg", 1, [[0.5, 0.9]]),
    arm("FedAUX", 0.01, [[0.6, 0.7], [0.8, 0.8]], 'noise, "exact"'),
]


def test_first_and_last_round_mean_of_five_and_best() -> None:
    curve = np.array([[0.9, 0.1, 0.2, 0.3, 0.4, 0.5]])
    table = summary({"FedAvg": curve})
    assert table.rows == [("FedAvg", "90.0", "50.0", "30.0", "90.0")]
    assert table.header[3] == "mean of last 5"
    curves = np.array([[0.5, 0.6], [0.7, 0.8]])
    short = summary({"a": curves, "b": curves[:1]})
    assert short.rows == [
        # of a sample
        ("a", "60.0 ± 14.1", "70.0 ± 14.1", "65.0 ± 14.1", "70.0 ± 14.1"),
        ("b", "50.0", "60.0", "55.0", "60.0"),
    ]
    assert short.header[3] == "mean of last 2"


def test_round_0_is_the_start_where_it_was_measured() -> None:
    curves = {"a": np.array([[0.6], [0.8]]), "b": np.array([[0.5]])}
    table = summary(curves, starts={"a": (0.3, 0.5), "b": ()})
    assert table.header[:3] == ("method", "round 0", "round 1")
    assert [row[:3] for row in table.rows] == [
        ("a", "40.0 ± 14.1", "70.0 ± 14.1"),
        ("b", "–", "50.0"),
    ]
    assert [row[:2] for row in table.best] == [[False, True], [False, False]]
    assert summary(curves, starts={"a": (), "b": ()}).header[1] == "round 1"


def test_html_of_pages_and_notebooks_has_the_best_in_bold() -> None:
    """Each is put into a page as it stands, so whatever others wrote is escaped."""
    table = Table(("<i>", "last"), [("<b>", "1.0"), ("b", "0.5")], [[True], [False]])
    found = table.__html__()
    assert "<th>&lt;i&gt;</th><th>last</th>" in found
    assert '<tr><td>&lt;b&gt;</td><td class="best">1.0</td></tr>' in found
    assert "<tr><td>b</td><td>0.5</td></tr>" in found


def test_markdown() -> None:
    lines = markdown([("FedAUX", "1.0")], ("method", "last")).splitlines()
    assert lines == ["| method | last |", "| --- | --- |", "| FedAUX | 1.0 |"]
    assert markdown([("a|b", "1")], ("x", "y")).splitlines()[-1] == r"| a\|b | 1 |"


def test_a_pivot_has_methods_as_rows_and_gaps_where_nothing_was_measured() -> None:
    table = pivot(ARMS)
    assert table is not None
    assert table.header == ("method", "α = 0.01", "α = 1")
    assert table.rows == [
        ("FedAvg", "30.0 ± 14.1", "90.0"),
        ("FedAUX", "75.0 ± 7.1", "–"),
    ]
    assert table.best == [[False, True], [True, False]]
    assert pivot([]) is None
    equal = pivot([arm("a", 1, [[0.5]]), arm("b", 1, [[0.5]])])
    assert equal is not None
    assert equal.best == [[True], [True]]
    one = arm("a", 1, [[0.5]])
    assert (
        pivot(
            [
                ArmResult(
                    "a", {"rounds": 1}, {"rounds": "1"}, (0,), one.folders, one.curves
                )
            ]
        )
        is None
    )


def test_the_csv_of_arms_parses_back_to_the_figures() -> None:
    rows = list(csv.DictReader(io.StringIO(summary_csv(ARMS))))
    assert [
        (row["label"], row["data.alpha"], row["method"], row["n"]) for row in rows
    ] == [
        ("α = 0.01, FedAvg", "0.01", "fedavg", "2"),
        ("α = 1, FedAvg", "1", "fedavg", "1"),
        ("α = 0.01, FedAUX", "0.01", "fedaux", "2"),
    ]
    assert float(rows[0]["last_mean"]) == np.mean([0.2, 0.4])
    assert float(rows[0]["last_std"]) == np.std([0.2, 0.4], ddof=1)
    assert float(rows[0]["best_mean"]) == np.mean([0.2, 0.4])
    assert float(rows[0]["last5_mean"]) == pytest.approx(0.25)
    assert rows[1]["last_std"] == ""
    assert rows[2]["privacy"] == 'noise, "exact"'


def test_the_long_csv_has_one_line_for_each_run_and_round() -> None:
    rows = list(csv.DictReader(io.StringIO(runs_csv(ARMS))))
    assert len(rows) == 4 + 2 + 4
    for one in ARMS:
        for seed, curve in zip(one.seeds, one.curves, strict=True):
            mine = [
                row
                for row in rows
                if row["label"] == one.label and int(row["seed"]) == seed
            ]
            assert [int(row["round"]) for row in mine] == [1, 2]
            assert [float(row["accuracy"]) for row in mine] == curve.tolist()


def test_latex_has_the_best_of_each_column_in_bold() -> None:
    found = latex(
        summary({"FedAvg": ARMS[0].curves, "FedAUX": ARMS[2].curves}),
        "In %: α_1 & more",
        "Noise: 100 %",
        "tab:a",
    )
    lines = found.splitlines()
    assert (
        r"FedAvg & $20.0 \pm 14.1$ & $30.0 \pm 14.1$ & $25.0 \pm 14.1$ & $30.0 \pm 14.1$ \\"
        in lines
    )
    bold = (
        r"$\mathbf{70.0 \pm 14.1}$",
        r"$\mathbf{75.0 \pm 7.1}$",
        r"$\mathbf{72.5 \pm 10.6}$",
        r"$\mathbf{75.0 \pm 7.1}$",
    )
    assert rf"FedAUX & {' & '.join(bold)} \\" in lines
    assert r"\caption{In \%: $\alpha$\_1 \& more}" in lines
    assert r"{\footnotesize Noise: 100 \%\par}" in lines
    assert r"\label{tab:a}" in lines


def test_bold_compares_only_what_is_measured_on_the_same_problem() -> None:
    """Another α is another problem: there FedAvg is the best of its own."""
    table = summary({one.label: one.curves for one in ARMS}, "arm", tasks(ARMS))
    assert [row[0] for row in table.best] == [False, True, True]
    turned = [
        ArmResult(
            one.label,
            one.settings,
            {"data.alpha": one.labels["data.alpha"], "privacy.epsilon": f"ε = {i}"},
            one.seeds,
            one.folders,
            one.curves,
        )
        for i, one in enumerate(ARMS)
    ]
    found = pivot(turned)  # α in rows: those of a row compete
    assert found is not None
    assert found.header[0] == "data.alpha"
    assert found.best == [[False, False, True], [False, True, False]]


def test_latex_is_balanced_whatever_the_labels_are() -> None:
    nasty = r"50% of #1_{x}^2 & \cmd ~ $5 | α ± <b>"
    table = Table(
        (nasty, nasty, nasty),
        ((nasty, "50.0 ± 10.0", "–"), (nasty, "50.0", "–")),
        ((True, False), (True, False)),
    )
    found = latex(table, nasty, nasty)
    plain = re.sub(r"\\[\\&%$#_{}]", "", found)  # what is left has a meaning to LaTeX
    assert plain.count("{") == plain.count("}")
    assert plain.count("$") % 2 == 0
    assert not re.search(r"[%#_^~]", plain)
    body = found[found.index(r"\toprule") : found.index(r"\bottomrule")].splitlines()
    rows = [line for line in body if line.endswith(r"\\")]
    assert len(rows) == 3
    assert all(len(re.findall(r"(?<!\\)&", row)) == 2 for row in rows)
    for name in ("table", "tabular"):
        assert found.count(f"\\begin{{{name}}}") == found.count(f"\\end{{{name}}}") == 1
    assert found.count("mathbf") == 2
    assert r"\begin{tabular}{lcc}" in found


def test_escaped_text_says_what_it_said() -> None:
    assert escape("a_b & 5%") == r"a\_b \& 5\%"
    assert escape("\\") == r"\textbackslash{}"
    assert escape("ε = 1, one\n\ntwo") == r"$\varepsilon$ = 1, one\par two"


def test_csv_has_every_metric_and_latex_notes_are_one_line() -> None:
    measured = (
        {"balanced_accuracy": 0.5, "auc": 0.75},
        {"balanced_accuracy": 0.6, "auc": 0.8},
    )
    one = replace(arm("FedAvg", 1, [[0.5, 0.9]]), metrics=(measured,))
    runs, whole = (
        list(csv.DictReader(io.StringIO(text)))
        for text in (runs_csv([one]), summary_csv([one]))
    )
    assert [row["auc"] for row in runs] == ["0.75", "0.8"]
    assert (whole[0]["balanced_accuracy_mean"], whole[0]["auc_mean"]) == ("0.6", "0.8")
    assert (
        runs_csv([arm("FedAvg", 1, [[0.5, 0.9]])]).splitlines()[0].endswith("accuracy")
    )


def test_round_0_is_in_both_csv_files() -> None:
    started = replace(ARMS[0], starts=(0.2, 0.4))
    rows = list(csv.DictReader(io.StringIO(summary_csv([started, ARMS[1]]))))
    assert float(rows[0]["start_mean"]) == pytest.approx(0.3)
    assert rows[1]["start_mean"] == ""
    assert "start_mean" not in summary_csv(ARMS)
    rows = list(csv.DictReader(io.StringIO(runs_csv([started]))))
    assert [row["round"] for row in rows] == ["0", "1", "2"] * 2
    assert [float(row["accuracy"]) for row in rows[:3]] == [0.2, 0.1, 0.2]
