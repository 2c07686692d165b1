"""What the README shows is what happens."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from fedaux import Config, Model, run
from fedaux.config.distillation import DistillConfig
from fedaux.config.presets import DEMO
from fedaux.config.sections import LocalConfig

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    "shorter",
    [
        {'"epochs": 30': '"epochs": 3', '"rounds": 5': '"rounds": 2'},
        pytest.param({}, marks=pytest.mark.slow),
    ],
    ids=["shorter", "as it stands"],
)
def test_the_python_block_runs(
    shorter: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture,
) -> None:
    torch.set_num_threads(1)
    (block,) = re.findall(
        r"```python\n(.*?)```",
        (ROOT / "README.md").read_text(encoding="utf-8"),
        flags=re.DOTALL,
    )
    assert len(block.strip().splitlines()) <= 10
    for words, fewer in shorter.items():
        assert words in block
        block = block.replace(words, fewer)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FEDAUX_CACHE", str(tmp_path / "cache"))
    exec(compile(block, "README.md", "exec"), {})
    printed = capsys.readouterr().out
    found = re.match(
        r"FedAUX: accuracy (\d+\.\d) % after (\d) rounds, 10 clients", printed
    )
    assert found
    assert found[2] == ("2" if shorter else "5")
    # noise is drawn afresh each time: 69 to 77 % in most draws of the shorter block,
    # once 54 %; chance is 10 %
    assert float(found[1]) > (40 if shorter else 60)
    assert "(1, 1e-05)-differentially private: certainty scores" in printed
    assert Model.from_pretrained("digits-model").classes == tuple("0123456789")


def test_the_example_is_the_demo_with_default_training() -> None:
    demo = replace(
        DEMO,
        head_init="auto",
        prepare="auto",
        local=LocalConfig(),
        distill=DistillConfig(),
    )
    assert Config.load(ROOT / "examples" / "digits.toml") == demo


def test_the_mixed_example_runs(tmp_path: Path) -> None:
    config = Config.load(
        ROOT / "examples" / "mixed.toml",
        ["rounds=1", "pretrain.epochs=1", "distill.epochs=1", "data.clients=3"],
    )
    result = run(config, tmp_path / "run", cache=tmp_path)
    assert len(result.state.history[0].accuracy) == 3


def test_files_named_in_the_docs_exist() -> None:
    pages = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]
    text = "".join(page.read_text(encoding="utf-8") for page in pages)
    rooms = [path.parent.name for path in ROOT.glob("src/fedaux/*/__init__.py")]
    folders, code = (
        "|".join(["tests", "examples", "benchmarks", "studies", "docs", "src"]),
        "|".join(rooms),
    )
    named = set(
        re.findall(rf"`((?:{folders})/[\w/.-]+\.\w+|(?:{code})/[\w/.-]+\.py)[`:]", text)
    )
    assert len(named) > 50
    homes = (ROOT, ROOT / "src" / "fedaux", ROOT / "tests")
    assert [
        name for name in named if not any((home / name).exists() for home in homes)
    ] == []
