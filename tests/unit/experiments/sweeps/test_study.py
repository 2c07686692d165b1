"""The studies that come with the package: each can be run as it is, and on other data."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from fedaux.experiments.sweeps.engine import Sweep
from fedaux.experiments.sweeps.study import studies
from helpers.commands import fedaux, paragraph

PAGE = Path(__file__).resolve().parents[4] / "docs" / "studies.md"
NAMES = ["auxiliary", "heterogeneity", "one-shot", "participation", "privacy", "prototypes"]
QUICK = ["--seeds", "1", "--set", "pretrain.epochs=0", "--set", "distill.epochs=1", "--set", "rounds=1"]


def test_all_of_them_are_there() -> None:
    assert list(studies()) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_each_says_what_it_is_needs_no_download_and_fits_in_an_evening(name: str) -> None:
    sweep = Sweep.load(studies()[name].path)
    assert (sweep.title, sweep.about) == (studies()[name].title, studies()[name].about)
    assert 0 < sweep.minutes <= 30
    assert sweep.seeds >= 3
    assert len(sweep.axes) == 2
    assert {arm.config.data.source for arm in sweep.arms} == {"digits"}
    assert {arm.config.privacy.unsafe_seed for arm in sweep.arms} == {-1}
    assert len({arm.config.hash for arm in sweep.arms}) == len(sweep.arms)


def test_the_list_is_quick_and_has_a_line_for_each() -> None:
    code = (
        "import sys\nfrom fedaux.cli import main\nsys.argv = ['fedaux', 'study']\n"
        "try: main()\nfinally: print(sorted({'torch', 'flwr', 'numpy'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    for one in studies().values():
        assert re.search(rf"^{one.name} +{one.minutes:g} min  \w.*\?$", done.stdout, flags=re.MULTILINE), one.name
    assert done.stdout.splitlines()[-1] == "[]"


def test_the_list_for_scripts(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert fedaux(monkeypatch, "study", "--list", "--json") == 0
    assert list(json.loads(capsys.readouterr().out)) == NAMES


def test_a_name_that_is_none(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert fedaux(monkeypatch, "study", "privcy") == 3
    assert "unknown study 'privcy' (did you mean 'privacy'?)" in paragraph(capsys.readouterr().err)


def test_a_study_runs_on_other_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FEDAUX_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "my_own.py").write_text(
        "from fedaux.data.sources import open_source\n\ndef load():\n    return open_source('digits')\n"
    )
    words = ["--set", "data.source=my_own:load", "--set", "sweep.local.epochs=[1]", "--set", "data.clients=3"]
    assert fedaux(monkeypatch, "study", "one-shot", *QUICK, *words, "--json") == 0
    out, err = capsys.readouterr()
    found = json.loads(out)
    assert "One shot. With a single round, how long" in paragraph(err)
    assert [arm["label"] for arm in found["arms"]] == [
        f"{method}, local.epochs = 1" for method in ("FedAVG+P", "FedDF+P", "FedAUX")
    ]
    folder = tmp_path / "runs" / "study-one-shot"
    assert "my_own:load, 3 clients" in (folder / "table.md").read_text()
    for name in ("table.csv", "table.tex", "runs.csv", "sweep.json", "split.svg", "curves-local.epochs-1.svg"):
        assert (folder / name).is_file(), name


def test_the_page_names_them_all() -> None:
    text = PAGE.read_text(encoding="utf-8")
    for name in NAMES:
        assert f"`{name}`" in text
