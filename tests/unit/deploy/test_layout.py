"""A deployment is written once, whole, private where it must be, and in words that
Flower itself understands.
"""

import re
import stat
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from fedaux.config.distillation import TeachersConfig
from fedaux.config.parsing import ConfigError
from fedaux.config.prototype import PrototypeSpec
from fedaux.config.schema import Config
from fedaux.config.sections import AuxConfig, DataConfig, PrivacyConfig
from fedaux.config.toml import to_commented_toml
from fedaux.deploy.env import DeployError, read_env
from fedaux.deploy.layout import (
    Address,
    comments,
    demo_config,
    server_config,
    site_config,
    site_notes,
    systemd_units,
    write_layout,
)
from fedaux.deploy.supernode import rejection_reason
from helpers.deployments import AWKWARD, ODD, deploy


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_secrets_are_for_their_owner_alone(folder: Path) -> None:
    secret = [
        "ca/ca.key",
        "server/server.key",
        "server/superexec.secret",
        "sites/berlin/key",
        "sites/paris/key",
    ]
    assert [mode(folder / name) for name in secret] == [0o600] * len(secret)
    assert [mode(folder / name) for name in ("ca", "server", "sites/berlin")] == [
        0o700
    ] * 3
    keys = [
        path
        for path in folder.rglob("*")
        if path.is_file() and b"PRIVATE KEY" in path.read_bytes()
    ]
    assert sorted(str(path.relative_to(folder)) for path in keys) == sorted(
        name for name in secret if "secret" not in name
    )


def test_every_party_of_a_table_has_its_schema_beside_its_settings(
    tmp_path: Path,
) -> None:
    """Scripts start in other folders than the one in which the deployment was made."""
    schema = tmp_path / "described.toml"
    schema.write_text('label = "y"\nclasses = ["a", "b"]\n[columns]\nage = {}\n')
    options = {"schema": str(schema), "files": ("a.csv", "b.csv")}
    base = Config(
        method="private-head",
        prototypes=(PrototypeSpec("linear"),),
        data=DataConfig("table", str(tmp_path / "test.csv"), options, ("a", "b")),
        aux=AuxConfig("schema", str(schema), {"rows": 10}),
    )
    folder = tmp_path / "deployment"
    write_layout(folder, ["berlin", "paris"], Address("127.0.0.1", 8443), base)
    parties = {
        "server": "server/fedaux.toml",
        "berlin": "sites/berlin/site.toml",
        "paris": "sites/paris/site.toml",
    }
    for settings in parties.values():
        file = folder / settings
        copy = file.parent / "schema.toml"
        assert copy.read_text() == schema.read_text()
        assert dict(Config.load(file).data.options) == {"schema": str(copy)}
    assert Config.load(folder / parties["server"]).aux.path == str(
        folder / "server" / "schema.toml"
    )
    other = tmp_path / "other.toml"
    other.write_text("another")
    wrong = replace(base, aux=replace(base.aux, path=str(other)))
    with pytest.raises(DeployError, match="name different ones"):
        write_layout(tmp_path / "second", ["a"], Address("127.0.0.1", 8443), wrong)


def test_sites_have_keys_of_their_own_and_the_server_their_public_halves(
    folder: Path,
) -> None:
    keys = {
        name: (folder / "sites" / name / "key.pub").read_bytes()
        for name in ("berlin", "paris")
    }
    assert len(set(keys.values())) == 2
    assert {
        path.stem: path.read_bytes() for path in (folder / "server" / "keys").iterdir()
    } == keys
    for name in keys:
        assert (folder / "sites" / name / "ca.crt").read_bytes() == (
            folder / "ca" / "ca.crt"
        ).read_bytes()


@pytest.mark.parametrize(
    ("host", "public", "local", "bind"),
    [
        ("127.0.0.1", "127.0.0.1:8443", "127.0.0.1:8443", "127.0.0.1"),
        ("localhost", "localhost:8443", "127.0.0.1:8443", "127.0.0.1"),
        ("fl.example.org", "fl.example.org:8443", "127.0.0.1:8443", "0.0.0.0"),
        ("192.0.2.7", "192.0.2.7:8443", "127.0.0.1:8443", "0.0.0.0"),
        ("::1", "[::1]:8443", "[::1]:8443", "::1"),
        ("2001:db8::7", "[2001:db8::7]:8443", "[::1]:8443", "::"),
    ],
)
def test_the_server_is_open_to_others_only_if_it_must_be(
    host: str, public: str, local: str, bind: str
) -> None:
    address = Address(host, 8443)
    assert (address.public, address.local, address.bind) == (public, local, bind)


@pytest.mark.parametrize("host", ["", "a b", "$(id)", "host;ls", "-x"])
def test_a_host_is_a_name_or_an_address(host: str) -> None:
    with pytest.raises(DeployError, match="--host"):
        Address(host, 8443)


def test_a_folder_is_not_written_twice(folder: Path) -> None:
    before = (folder / "sites" / "berlin" / "key").read_bytes()
    with pytest.raises(
        DeployError, match=r"already holds a deployment \(ca, server, sites\)"
    ):
        deploy(folder)
    assert (folder / "sites" / "berlin" / "key").read_bytes() == before


def test_other_files_in_the_folder_do_no_harm(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    deploy(tmp_path)
    assert (tmp_path / "notes.txt").read_text() == "mine"


@pytest.mark.parametrize(
    ("sites", "error"),
    [
        ((), DeployError),
        (("a", "a"), ConfigError),
        (("../up",), ConfigError),
        (("a b",), ConfigError),
    ],
)
def test_names_of_sites_are_checked_before_anything_is_written(
    tmp_path: Path, sites: tuple[str, ...], error: type[Exception]
) -> None:
    with pytest.raises(error, match=r"site"):
        write_layout(tmp_path / "d", sites, Address("127.0.0.1", 8443), Config())
    assert not (tmp_path / "d").exists()


def test_paths_that_flower_cannot_be_told_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DeployError, match="quotes"):
        deploy(tmp_path / 'a"b')


def test_flower_accepts_the_app_and_so_does_a_site(folder: Path) -> None:
    from flwr.cli.build import build_fab_from_disk
    from flwr.cli.config_utils import load_and_validate

    config, warnings = load_and_validate(
        folder / "server" / "app" / "pyproject.toml", check_module=True
    )
    assert warnings == []
    told = config["tool"]["flwr"]["app"]["config"]
    assert Path(told["config"]) == folder / "server" / "fedaux.toml"
    assert Path(told["out"]) == folder / "server" / "run"
    assert rejection_reason(build_fab_from_disk(folder / "server" / "app")) == ""


def test_systemd_is_told_paths_as_they_are() -> None:
    made = systemd_units(Path(f"/srv/{AWKWARD}"), Path("/opt/$v e/bin"), "anna")
    assert set(made) == {
        f"fedaux-{name}.service"
        for name in ("superlink", "superexec", "metrics", "site@")
    }
    site = made["fedaux-site@.service"].splitlines()
    assert (
        '''ExecStart=/bin/bash "/srv/50%% of $$HOME & Anna's/sites/%i/supernode.sh"'''
        in site
    )
    # $ is no variable there
    assert '''ReadWritePaths="/srv/50%% of $HOME & Anna's/sites/%i"''' in site
    assert 'Environment="PATH=/opt/$v e/bin:/usr/local/bin:/usr/bin:/bin"' in site
    assert "Restart=always" in site


def test_no_service_is_root_and_each_has_what_it_needs() -> None:
    for user, expected in (("anna", "anna"), ("root", "fedaux")):
        made = systemd_units(Path("/srv/h"), Path("/usr/bin"), user)
        assert all(f"\nUser={expected}\n" in text for text in made.values())
    # no GPU there
    private = {name for name, text in made.items() if "PrivateDevices=yes" in text}
    local = {
        name
        for name, text in made.items()
        if "IPAddressDeny=any\nIPAddressAllow=localhost" in text
    }
    assert private == {"fedaux-superlink.service", "fedaux-metrics.service"}
    assert local == {"fedaux-metrics.service"}


def test_containers_see_their_own_folder_only(folder: Path) -> None:
    services = yaml.safe_load((folder / "compose.yaml").read_text())["services"]
    assert {name: service["volumes"] for name, service in services.items()} == {
        "superlink": ["./server:/server"],
        "superexec": ["./server:/server"],
        "site-berlin": ["./sites/berlin:/site"],
        "site-paris": ["./sites/paris:/site"],
    }
    for service in services.values():
        mounted, script = service["volumes"][0].split(":"), service["command"][1]
        assert (folder / mounted[0] / Path(script).relative_to(mounted[1])).is_file()
        assert service["network_mode"] == "host"
        assert not service["user"].startswith("0:")  # root's deployment neither


def test_what_the_readme_names_is_there(folder: Path) -> None:
    text = (folder / "README.md").read_text()
    named = re.findall(r"\./((?:server|sites)/\S+?\.sh)", text)
    assert {
        "server/superlink.sh",
        "server/superexec.sh",
        "server/register.sh",
        "server/run.sh",
    } <= set(named)
    assert {"sites/berlin/supernode.sh", "sites/paris/supernode.sh"} <= set(named)
    assert all(
        (folder / name).is_file()
        for name in [*named, *re.findall(r"systemd/\S+\.service", text)]
    )


def test_quotes_spaces_and_comments_are_not_part_of_a_value(tmp_path: Path) -> None:
    path = tmp_path / "site.env"
    path.write_text(
        "# SERVER=old:1\nNAME=berlin\nSERVER = 'fl.example.org:8443' "
        '\nPORT="9101"\n\n'
    )
    assert read_env(path) == {
        "NAME": "berlin",
        "SERVER": "fl.example.org:8443",
        "PORT": "9101",
        "": "",
    }


def test_what_is_needed_is_asked_for_by_name(tmp_path: Path) -> None:
    (tmp_path / "server.env").write_text("BIND=0.0.0.0\nLOCAL=\n")
    with pytest.raises(DeployError, match="does not say LOCAL, PORT"):
        read_env(tmp_path / "server.env", ("LOCAL", "PORT"))
    assert read_env(tmp_path / "server.env", ()) == {"BIND": "0.0.0.0", "LOCAL": ""}


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
    assert (server.federation.sites, site.federation.sites) == (
        ("berlin", "paris"),
        ("paris",),
    )
    assert server.federation.registered_only
    assert (server.method, server.rounds, server.seed) == (
        base.method,
        base.rounds,
        base.seed,
    )
    assert (site.prototypes, site.local, site.head_only, site.rounds) == (
        base.prototypes,
        base.local,
        base.head_only,
        base.rounds,
    )
    # a known seed is never deployed
    assert server.privacy == site.privacy == replace(base.privacy, unsafe_seed=-1)


def test_a_site_names_the_code_of_a_method_that_it_is_to_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a_sites_method.py").write_text(
        "from fedaux.config.methods import Method\nmine = Method('Mine')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert (
        site_config(Config(method="a_sites_method:mine"), "a").method
        == "a_sites_method:mine"
    )
    built_in = Config(method="fedavgm", method_options=(("beta", 0.5),))
    # a site trains with no other
    for made in (server_config(built_in, ["a"]), site_config(built_in, "a")):
        assert (made.method, made.method_options) == ("fedavgm", (("beta", 0.5),))


def test_a_site_names_the_method_that_sends_its_sums() -> None:
    """Nothing protects them: the server alone cannot have them."""
    base, options = replace(ODD, privacy=PrivacyConfig()), (("penalty", 0.5),)
    ridge = site_config(replace(base, method="ridge+p", method_options=options), "a")
    assert (ridge.method, ridge.method_options) == ("ridge+p", options)
    assert site_config(replace(base, head_init="ridge"), "a").head_init == "ridge"
    noted = site_notes(replace(base, head_init="ridge"))
    assert comments("sums").items() < noted.items()
    plain = site_notes(base)
    assert "head_init" not in plain
    assert plain["method"] == comments("site")["method"]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({}, ("noisy sums", "models")),
        ({"method": "fedavg"}, ("models",)),
        ({"method": "ridge+p"}, ("second moments",)),
        ({"method": "discriminant"}, ("second moments",)),
        ({"method": "class-means"}, ("sums",)),
        ({"method": "private-head"}, ("noisy sums",)),
        ({"head_init": "ridge"}, ("noisy sums", "second moments", "models")),
        ({"head_init": "private-head"}, ("noisy sums", "models")),
        (
            {"privacy": PrivacyConfig(epsilon_total=2.0, private_training=True)},
            ("noisy sums", "noisy models"),
        ),
    ],
)
def test_a_site_lists_what_its_method_sends_and_nothing_else(
    settings: dict[str, Any], words: tuple[str, ...], tmp_path: Path
) -> None:
    folder = deploy(
        tmp_path / "d",
        base=replace(
            ODD, **{"method": "fedaux", "privacy": PrivacyConfig(), **settings}
        ),
    )
    site = Config.load(folder / "sites" / "paris" / "site.toml")
    assert site.federation.sends == words
    assert (
        "# what may leave this site, and nothing else does"
        in (folder / "sites/paris/site.toml").read_text()
    )


def test_paths_of_the_config_are_found_from_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    base = Config(data=DataConfig("npy", "mine"), aux=AuxConfig("npy", "public"))
    assert (
        server_config(base, ["a"]).data.path
        == site_config(base, "a").data.path
        == str(tmp_path / "mine")
    )
    assert server_config(base, ["a"]).aux.path == str(tmp_path / "public")


def test_a_server_without_public_data_gets_a_stand_in() -> None:
    made = server_config(ODD, ["a"])
    assert (made.aux.source, made.aux.path, made.aux.options) == (
        made.data.source,
        made.data.path,
        made.data.options,
    )


def test_sites_that_teach_get_the_servers_public_data_and_seed() -> None:
    base = replace(ODD, seed=7, teachers=TeachersConfig(run_on="clients", examples=50))
    site, server = site_config(base, "a"), server_config(base, ["a"])
    assert (site.aux, site.seed, site.teachers) == (
        server.aux,
        server.seed,
        server.teachers,
    )
    assert set(comments("teaching")) < set(site_notes(base))
    plain = site_config(ODD, "a")
    assert (plain.aux, plain.seed, plain.teachers) == (AuxConfig(), 0, TeachersConfig())
    assert site_notes(ODD) == comments("site")


@pytest.mark.parametrize("section", ["server", "site", "teaching", "sums"])
def test_every_comment_is_about_a_setting(section: str) -> None:
    notes = comments(section)
    assert ("head" in notes) == (section in ("server", "site"))
    written = tomllib.loads(
        to_commented_toml(server_config(Config(), ["a"]), "head", notes)
    )
    for key in notes.keys() - {"head"}:
        name, _, leaf = key.rpartition(".")
        assert leaf in (written[name] if name else written), key


def test_all_settings_declare_the_same_classes_and_persons(tmp_path: Path) -> None:
    base = Config(data=DataConfig("csv", "", classes=("well", "ill"), person="patient"))
    folder = deploy(tmp_path / "d", base=base)
    server, site = (
        Config.load(folder / "server" / "fedaux.toml"),
        Config.load(folder / "sites" / "paris" / "site.toml"),
    )
    assert server.data == site.data == replace(base.data, partition="own")
    assert (server.data, site.data) == (
        server_config(base, ["a"]).data,
        site_config(base, "a").data,
    )
    for name in ("server/fedaux.toml", "sites/paris/site.toml"):
        assert (
            'classes = ["well", "ill"]\nperson = "patient"\n'
            in (folder / name).read_text()
        )
    assert demo_config().data.classes == tuple("0123456789")
