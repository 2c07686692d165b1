"""The settings of a new deployment are what was asked for, with notes on settings that exist."""

import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from fedaux.config.distillation import TeachersConfig
from fedaux.config.schema import Config
from fedaux.config.sections import AuxConfig, DataConfig, PrivacyConfig
from fedaux.config.toml import to_commented_toml
from fedaux.deploy.settings import (
    SERVER_NOTES,
    SITE_NOTES,
    SUMS_NOTES,
    TEACHING_NOTES,
    demo_config,
    server_config,
    site_config,
    site_notes,
)
from helpers.deployments import ODD, deploy


@pytest.mark.parametrize("base", [demo_config(), ODD, Config()])
def test_settings_are_what_was_asked_for(tmp_path: Path, base: Config) -> None:
    folder = deploy(tmp_path / "d", base=base)
    server, site = (
        Config.load(folder / "server" / "fedaux.toml"),
        Config.load(folder / "sites" / "paris" / "site.toml"),
    )
    assert server == server_config(base, ["berlin", "paris"])
    assert site == site_config(base, "paris")
    assert server.data.partition == site.data.partition == "own"
    assert (server.federation.sites, site.federation.sites) == (("berlin", "paris"), ("paris",))
    assert server.federation.registered_only
    assert (server.method, server.rounds, server.seed) == (base.method, base.rounds, base.seed)
    assert (site.prototypes, site.local, site.head_only, site.rounds) == (
        base.prototypes,
        base.local,
        base.head_only,
        base.rounds,
    )
    assert site.privacy == replace(base.privacy, unsafe_seed=-1)


def test_a_site_names_the_code_of_a_method_that_it_is_to_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a_sites_method.py").write_text("from fedaux.config.methods import Method\nmine = Method('Mine')\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert site_config(Config(method="a_sites_method:mine"), "a").method == "a_sites_method:mine"
    built_in = Config(method="fedavgm", method_options=(("beta", 0.5),))
    assert site_config(built_in, "a").method == Config().method  # a built-in one needs no leave
    server = server_config(built_in, ["a"])
    assert (server.method, server.method_options) == ("fedavgm", (("beta", 0.5),))


def test_a_site_names_the_method_that_sends_its_sums() -> None:
    """Nothing protects them: the server alone cannot have them."""
    base, options = replace(ODD, privacy=PrivacyConfig()), (("penalty", 0.5),)
    ridge = site_config(replace(base, method="ridge+p", method_options=options), "a")
    assert (ridge.method, ridge.method_options) == ("ridge+p", options)
    assert site_config(replace(base, head_init="ridge"), "a").head_init == "ridge"
    assert set(SUMS_NOTES) < set(site_notes(replace(base, head_init="ridge")))
    assert set(SUMS_NOTES).isdisjoint(site_notes(base))
    assert site_config(replace(base, head_init="closed-form"), "a").head_init == "random"  # releases need no leave


def test_a_known_seed_is_never_deployed() -> None:
    assert server_config(ODD, ["a"]).privacy.unsafe_seed == site_config(ODD, "a").privacy.unsafe_seed == -1


def test_paths_of_the_config_are_found_from_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    base = Config(data=DataConfig("npy", "mine"), aux=AuxConfig("npy", "public"))
    assert server_config(base, ["a"]).data.path == site_config(base, "a").data.path == str(tmp_path / "mine")
    assert server_config(base, ["a"]).aux.path == str(tmp_path / "public")


def test_a_server_without_public_data_gets_a_stand_in() -> None:
    made = server_config(ODD, ["a"])
    assert (made.aux.source, made.aux.path, made.aux.options) == (made.data.source, made.data.path, made.data.options)


def test_sites_that_teach_get_the_servers_public_data_and_seed() -> None:
    base = replace(ODD, seed=7, teachers=TeachersConfig(run_on="clients", examples=50))
    site, server = site_config(base, "a"), server_config(base, ["a"])
    assert (site.aux, site.seed, site.teachers) == (server.aux, server.seed, server.teachers)
    assert set(TEACHING_NOTES) < set(site_notes(base))
    plain = site_config(ODD, "a")
    assert (plain.aux, plain.seed, plain.teachers) == (AuxConfig(), 0, TeachersConfig())
    assert site_notes(ODD) == SITE_NOTES


@pytest.mark.parametrize(
    ("notes", "made"),
    [(SERVER_NOTES, server_config(Config(), ["a"])), (SITE_NOTES, Config()), (TEACHING_NOTES, Config())],
)
def test_every_note_is_about_a_setting(notes: dict[str, str], made: Config) -> None:
    written = tomllib.loads(to_commented_toml(made, "head", notes))
    for key in notes:
        section, _, leaf = key.rpartition(".")
        assert leaf in (written[section] if section else written), key


def test_all_settings_declare_the_same_classes_and_persons(tmp_path: Path) -> None:
    base = Config(data=DataConfig("csv", "", classes=("well", "ill"), person="patient"))
    folder = deploy(tmp_path / "d", base=base)
    server, site = (
        Config.load(folder / "server" / "fedaux.toml"),
        Config.load(folder / "sites" / "paris" / "site.toml"),
    )
    assert server.data == site.data == replace(base.data, partition="own")
    assert (server.data, site.data) == (server_config(base, ["a"]).data, site_config(base, "a").data)
    for name in ("server/fedaux.toml", "sites/paris/site.toml"):
        assert 'classes = ["well", "ill"]\nperson = "patient"\n' in (folder / name).read_text()
    assert demo_config().data.classes == tuple("0123456789")
