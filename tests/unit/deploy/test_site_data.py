"""Every site gets its own records, the server its own test data, and all of them the
same classes.
"""

from pathlib import Path

import pytest

from fedaux.config.schema import Config
from fedaux.data.federated import open_public
from fedaux.deploy.checks import check_sends
from fedaux.deploy.env import DeployError
from fedaux.deploy.layout import server_config
from fedaux.deploy.preflight import check_site_settings
from fedaux.deploy.site_data import parse_paths, with_own_data
from helpers.commands import fedaux
from helpers.deployments import fine
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
    assert "Add --data oslo=PATH --data rome=PATH" in said
    same = "--data oslo=sites/oslo --data rome=./sites/oslo --test test"
    assert "are the same records" in refused(
        place, monkeypatch, capsys, f"{base} {same}"
    )
    inside = "--data oslo=sites --data rome=sites/rome --test test"
    assert "or contain them" in refused(place, monkeypatch, capsys, f"{base} {inside}")
    own = "--data oslo=sites/oslo --data rome=sites/rome"
    assert "server's test data" in refused(
        place, monkeypatch, capsys, f"{base} {own} --test sites/rome"
    )
    assert "not among the sites" in refused(
        place, monkeypatch, capsys, f"{base} {own} --data paris=x --test test"
    )


def test_without_test_data_at_the_server_the_sites_test(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = (
        "deploy init d --config my.toml --data oslo=sites/oslo --data rome=sites/rome"
    )
    assert fedaux(monkeypatch, *words.split()) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert (
        "Each site holds out 20 % of its records, and tests the final model on them at "
        "ε = 1."
    ) in printed
    server = Config.load(place / "d" / "server" / "fedaux.toml")
    assert server.data.path == ""
    names = ("oslo", "rome")
    folders = {name: place / "d" / "sites" / name for name in names}
    sites = {name: Config.load(folders[name] / "site.toml") for name in names}
    for config in (server, *sites.values()):
        assert config.data.site_test_fraction == 0.2
        assert config.privacy.look_epsilon == 1.0
        assert config.data.classes == ("ill", "well")
    for name, config in sites.items():
        assert config.federation.sends == ("noisy sums", "models", "noisy counts")
        fine(check_sends(config, folders[name]), "noisy counts may leave")
    fine(check_site_settings(server, place / "d" / "server"), "would be admitted")
    public = open_public(server)
    assert (len(public.aux), len(public.test)) == (8, 0)
    readme = (place / "d" / "README.md").read_text()
    assert "The sites test the final model at ε = 1" in readme
    assert "Each site holds out 20 % of its records" in readme


def test_settings_that_say_how_sites_test_stay_as_they_are() -> None:
    table = {
        "data": {"source": "npy", "classes": ["a", "b"], "site_test_fraction": 0.3},
        "aux": {"source": "npy", "path": "public"},
        "privacy": {"look_epsilon": 0.5},
    }
    for test in ("", "test"):
        server, sites = with_own_data(Config.from_dict(table), ["a"], {"a": "x"}, test)
        for config in (server, sites["a"], server_config(server, ["a"])):
            assert config.data.site_test_fraction == 0.3
            assert config.privacy.look_epsilon == 0.5


@pytest.mark.parametrize(
    ("privacy", "message"),
    [
        (
            {"epsilon": 1.0, "epsilon_total": 1.5},
            "privacy.epsilon_total = 1.5, and releases cost 1 and the test 1",
        ),
        (
            {"epsilon": 1.0, "epsilon_total": 9.0, "private_training": True},
            "private training spends all",
        ),
    ],
)
def test_a_test_that_no_site_could_pay_for_is_refused(
    privacy: dict[str, float], message: str
) -> None:
    table = {
        "data": {"source": "npy", "classes": ["a", "b"]},
        "aux": {"source": "npy", "path": "public"},
        "privacy": privacy,
    }
    config = Config.from_dict(table)
    with pytest.raises(DeployError, match=message):
        with_own_data(config, ["a"], {"a": "x"})
    server, _ = with_own_data(config, ["a"], {"a": "x"}, "test")
    assert not server.tests_at_sites


def test_private_records_do_not_stand_in_for_public_ones() -> None:
    table = {"data": {"source": "images", "path": "scans"}}
    with pytest.raises(
        DeployError, match=r"public data of their own. Name it in \[aux\]"
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
