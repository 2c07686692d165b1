"""Every site gets its own records, the server its own test data, and all of them the
same classes.
"""

from pathlib import Path

import pytest

from fedaux.config.schema import Config
from fedaux.deploy.env import DeployError
from fedaux.deploy.site_data import parse_paths, with_own_data
from helpers.commands import fedaux
from helpers.pictures import pictures, save_png

CONFIG = """
method = "fedaux"
[data]
source = "images"
path = "sites"
options = {size = 8}
[aux]
source = "images"
path = "public"
options = {size = 8}
"""
FOLDERS = (
    CONFIG.replace("[aux]", 'partition = "folders"\n[aux]')
    + '[federation]\nsites = ["oslo", "rome"]\n'
)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for i, image in enumerate(pictures(8, 8)):
        label = "ill" if i % 2 else "well"
        for where in (
            f"sites/oslo/{label}",
            f"sites/rome/{label}",
            f"test/{label}",
            "public",
        ):
            save_png(tmp_path / where / f"{i}.png", image)
    (tmp_path / "my.toml").write_text(CONFIG)
    (tmp_path / "folders.toml").write_text(FOLDERS)
    return tmp_path


def refused(
    place: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: str,
) -> str:
    assert fedaux(monkeypatch, *f"deploy init d {words}".split()) != 0
    assert not (place / "d").exists()
    return " ".join(capsys.readouterr().err.split())


def test_each_site_reads_its_own_folder_and_all_declare_the_classes(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = "deploy init d --config my.toml --data oslo=sites/oslo --data rome=sites/rome --test test"
    assert fedaux(monkeypatch, *words.split()) == 0
    settings = {
        name: Config.load(place / "d" / "sites" / name / "site.toml").data
        for name in ("oslo", "rome")
    }
    server = Config.load(place / "d" / "server" / "fedaux.toml")
    assert {name: one.path for name, one in settings.items()} == {
        "oslo": str(place / "sites" / "oslo"),
        "rome": str(place / "sites" / "rome"),
    }
    assert server.data.path == str(place / "test")
    assert {one.classes for one in (server.data, *settings.values())} == {
        ("ill", "well")
    }
    assert server.federation.sites == ("oslo", "rome")
    assert (place / "d" / "try-all.sh").stat().st_mode & 0o111
    assert (
        "start sites/rome/supernode.sh rome" in (place / "d" / "try-all.sh").read_text()
    )


def test_a_simulation_by_folders_says_where_records_are(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (
        fedaux(
            monkeypatch,
            *["deploy", "init", "d", "--config", "folders.toml", "--test", "test"],
        )
        == 0
    )
    assert Config.load(place / "d" / "sites" / "rome" / "site.toml").data.path == str(
        place / "sites" / "rome"
    )
    assert not any(
        "sites" in one
        for one in [Config.load(place / "d" / "server" / "fedaux.toml").data.path]
    )


def test_no_two_parties_read_the_same_records(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    base = "--config my.toml --site oslo --site rome"
    said = refused(place, monkeypatch, capsys, base)
    assert "add --data oslo=PATH --data rome=PATH" in said
    same = "--data oslo=sites/oslo --data rome=./sites/oslo --test test"
    assert "are the same records" in refused(
        place, monkeypatch, capsys, f"{base} {same}"
    )
    inside = "--data oslo=sites --data rome=sites/rome --test test"
    assert "or contain them" in refused(place, monkeypatch, capsys, f"{base} {inside}")
    own = "--data oslo=sites/oslo --data rome=sites/rome"
    assert "--test PATH" in refused(place, monkeypatch, capsys, f"{base} {own}")
    assert "server's test data" in refused(
        place, monkeypatch, capsys, f"{base} {own} --test sites/rome"
    )
    assert "not among the sites" in refused(
        place, monkeypatch, capsys, f"{base} {own} --data paris=x --test test"
    )


def test_private_records_do_not_stand_in_for_public_ones() -> None:
    table = {"data": {"source": "images", "path": "scans"}}
    with pytest.raises(
        DeployError, match=r"public data of their own: name it in \[aux\]"
    ):
        with_own_data(Config.from_dict(table), ["a"], {"a": "x"}, "test")


def test_paths_on_other_machines_need_declared_classes() -> None:
    table = {
        "data": {"source": "images", "path": "scans"},
        "aux": {"source": "images", "path": "public"},
    }
    with pytest.raises(DeployError, match=r"classes = \[\"first\", \"second\"\]"):
        with_own_data(
            Config.from_dict(table), ["a"], {"a": "/nowhere/a"}, "/nowhere/test"
        )
    table["data"]["classes"] = ["ill", "well"]  # type: ignore[assignment]
    server, sites = with_own_data(
        Config.from_dict(table), ["a"], {"a": "/nowhere/a"}, "/nowhere/test"
    )
    assert (server.data.path, sites["a"].data.path) == ("/nowhere/test", "/nowhere/a")
    # digits stand in
    assert with_own_data(Config(), ["a"], {}) == (Config(), {"a": Config()})


@pytest.mark.parametrize("word", ["berlin", "berlin=", "=x"])
def test_a_path_belongs_to_a_name(word: str) -> None:
    with pytest.raises(DeployError, match="--data"):
        parse_paths([word], ["berlin"])
