"""Every study of the paper, as `python -m studies NAME` runs it without any download; and
the data of the longer ones.
"""

import json
from pathlib import Path

import pytest
from studies.paper import STUDIES

from fedaux.data.federated import open_data
from helpers.commands import studies
from helpers.shared_data import needs

FILES = {"leakage": "leakage.md", "cost": "costs.md", "toys": "toys.md"}


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")  # studies share extractors


@pytest.mark.parametrize("name", STUDIES)
def test_a_study_runs(
    name: str,
    cache: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("FEDAUX_CACHE", str(cache))
    assert studies(monkeypatch, name, "--out", tmp_path / name, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["folder"] == str(tmp_path / name)
    if not STUDIES[name].alone:
        assert len(found["arms"]) == len(STUDIES[name].sweep("smoke").arms)
        assert (tmp_path / name / "report.html").is_file()
    if name in FILES:
        assert (
            (tmp_path / name / FILES[name])
            .read_text()
            .startswith("|" if name != "toys" else "Iris")
        )
    if name == "leakage":
        assert len(list((tmp_path / name).glob("leakage-*.png"))) == len(found["arms"])


@needs(
    "cifar10_train.webp.npz",
    "tinyimagenet32_24k.webp.npz",
    "fashion_mnist_train.npz",
    "mnist_train.npz",
)
@pytest.mark.parametrize(
    "name", [name for name, study in STUDIES.items() if not study.alone]
)
def test_data_of_a_study_that_takes_minutes_can_be_read(name: str) -> None:
    configs = {
        (arm.config.data, arm.config.aux): arm.config
        for arm in STUDIES[name].sweep("cpu").arms
    }
    assert configs
    for config in configs.values():
        found = open_data(config)
        assert len(found.parts) == config.data.clients
        assert len(found.aux) > 0
