"""A new app is the example that end_to_end/servers/test_example_app.py runs with
Flower, under another name.
"""

import io
import tomllib
import zipfile
from pathlib import Path

import pytest
from flwr.cli.build import build_fab_from_files

from fedaux.config.schema import Config
from fedaux.flower.new_app import NewAppError, write_app

EXAMPLE = Path(__file__).parents[3] / "examples" / "flower-app"


def test_an_app_of_this_name_is_the_example(tmp_path: Path) -> None:
    write_app(tmp_path / "my-app")
    names = sorted(path.name for path in EXAMPLE.iterdir() if path.is_file())
    assert sorted(path.name for path in (tmp_path / "my-app").iterdir()) == names
    for name in names:
        assert (tmp_path / "my-app" / name).read_text() == (
            EXAMPLE / name
        ).read_text(), name


def test_everything_bears_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = write_app(tmp_path / "Eye Clinic 2")
    project = tomllib.loads((tmp_path / "Eye Clinic 2" / "pyproject.toml").read_text())[
        "project"
    ]
    assert project["name"] == "eye-clinic-2"
    assert paths[-1].name == "eye_clinic_2.py"
    monkeypatch.syspath_prepend(tmp_path / "Eye Clinic 2")
    config = Config.load(tmp_path / "Eye Clinic 2" / "fedaux.toml")
    assert config.data.source == "eye_clinic_2:data"
    assert not any(
        word in path.read_text() for path in paths for word in ("NAME", "MODULE")
    )


def test_flower_builds_a_bundle_of_format_1(tmp_path: Path) -> None:
    write_app(tmp_path / "app")
    paths = {file.name: file for file in (tmp_path / "app").iterdir()}
    bundle, metadata = build_fab_from_files(paths)
    assert metadata.fab_format_version == 1
    with zipfile.ZipFile(io.BytesIO(bundle)) as files:
        assert {"app.py", "LICENSE", "fedaux.toml"} <= set(files.namelist())


def test_what_is_there_stays(tmp_path: Path) -> None:
    (tmp_path / "app").mkdir()
    write_app(tmp_path / "app")  # an empty folder is as good as a new one
    with pytest.raises(NewAppError, match="already there"):
        write_app(tmp_path / "app")
    with pytest.raises(NewAppError, match="Begin it with a letter"):
        write_app(tmp_path / "2023")
