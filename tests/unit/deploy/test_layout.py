"""A deployment is written once, whole, private where it must be, and in words that Flower itself understands."""

import os
import re
import shutil
import stat
import subprocess
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from cryptography import x509
from typer.testing import CliRunner

from fedaux.cli import app
from fedaux.config.parsing import ConfigError
from fedaux.config.prototype import PrototypeSpec
from fedaux.config.schema import AuxConfig, Config, DataConfig, LocalConfig, PrivacyConfig
from fedaux.config.toml import to_commented_toml, toml_value
from fedaux.deploy.certificates import KeyExistsError, generate_key_pair
from fedaux.deploy.layout import Address, DeployError, init
from fedaux.deploy.scripts import systemd_units
from fedaux.deploy.settings import (
    SERVER_NOTES,
    SITE_NOTES,
    demo_config,
    server_config,
    site_config,
)
from fedaux.deploy.supernode import rejection_reason
from helpers.deployments import AWKWARD, deploy

ODD = Config(
    method="fedavg",
    rounds=7,
    head_only=True,
    seed=3,
    prototypes=(PrototypeSpec("resnet8", (("width", 16),)), PrototypeSpec("my.module:net", (("a b", 'quo"te\\ü😀'),))),
    data=DataConfig("csv", "~/records", (("classes", ("a", "b")), ("text", "body"))),
    local=LocalConfig(lr=1e-5, batch_size=8),
    privacy=PrivacyConfig(epsilon=0.25, epsilon_total=2.0, private_training=True, unsafe_seed=5),
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return deploy(tmp_path / AWKWARD)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_secrets_are_for_their_owner_alone(folder: Path) -> None:
    secret = ["ca/ca.key", "server/server.key", "server/superexec.secret", "sites/berlin/key", "sites/paris/key"]
    assert [mode(folder / name) for name in secret] == [0o600] * len(secret)
    assert [mode(folder / name) for name in ("ca", "server", "sites/berlin")] == [0o700] * 3
    keys = [path for path in folder.rglob("*") if path.is_file() and b"PRIVATE KEY" in path.read_bytes()]
    assert sorted(str(path.relative_to(folder)) for path in keys) == sorted(
        name for name in secret if "secret" not in name
    )


def test_sites_have_keys_of_their_own_and_the_server_their_public_halves(folder: Path) -> None:
    keys = {name: (folder / "sites" / name / "key.pub").read_bytes() for name in ("berlin", "paris")}
    assert len(set(keys.values())) == 2
    assert {path.stem: path.read_bytes() for path in (folder / "server" / "keys").iterdir()} == keys
    for name in keys:
        assert (folder / "sites" / name / "ca.crt").read_bytes() == (folder / "ca" / "ca.crt").read_bytes()


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
def test_the_server_is_open_to_others_only_if_it_must_be(host: str, public: str, local: str, bind: str) -> None:
    address = Address(host, 8443)
    assert (address.public, address.local, address.bind) == (public, local, bind)


@pytest.mark.parametrize("host", ["", "a b", "$(id)", "host;ls", "-x"])
def test_a_host_is_a_name_or_an_address(host: str) -> None:
    with pytest.raises(DeployError, match="--host"):
        Address(host, 8443)


def test_the_certificate_is_for_the_host_and_for_the_server_itself(tmp_path: Path) -> None:
    folder = deploy(tmp_path / "d", host="fl.example.org")
    read = x509.load_pem_x509_certificate((folder / "server" / "server.pem").read_bytes())
    names = read.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["fl.example.org", "localhost"]
    assert [str(found) for found in names.get_values_for_type(x509.IPAddress)] == ["127.0.0.1"]


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl")
def test_openssl_agrees_that_the_authority_signs_the_server(folder: Path) -> None:
    ca, pem = folder / "ca" / "ca.crt", folder / "server" / "server.pem"
    words = ["openssl", "verify", "-x509_strict", "-purpose", "sslserver", "-CAfile", str(ca), str(pem)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


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
    assert (server.method, server.rounds, server.seed) == (base.method, base.rounds, base.seed)
    assert (site.prototypes, site.local, site.head_only, site.rounds) == (
        base.prototypes,
        base.local,
        base.head_only,
        base.rounds,
    )
    assert site.privacy == replace(base.privacy, unsafe_seed=-1)


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


@pytest.mark.parametrize(("notes", "made"), [(SERVER_NOTES, server_config(Config(), ["a"])), (SITE_NOTES, Config())])
def test_every_note_is_about_a_setting(notes: dict[str, str], made: Config) -> None:
    written = tomllib.loads(to_commented_toml(made, "head", notes))
    for key in notes:
        section, _, leaf = key.rpartition(".")
        assert leaf in (written[section] if section else written), key


def test_comments_stand_above_what_they_are_about() -> None:
    text = to_commented_toml(Config(rounds=3), "one\ntwo", {"rounds": "how many"})
    assert text.startswith("# one\n# two\n")
    assert "# how many\nrounds = 3\n" in text
    assert "method" not in text  # neither noted nor changed


@pytest.mark.parametrize(
    "value", ['a"b\\c\n\t\x7fü😀', 1, 1e-5, True, [1, 2], ["a"], {"a b": {"c": [False]}, "d-e_1": 2.5}, "", []]
)
def test_values_survive_toml(value: object) -> None:
    assert tomllib.loads(f"x = {toml_value(value)}")["x"] == value


def test_a_folder_is_not_written_twice(folder: Path) -> None:
    before = (folder / "sites" / "berlin" / "key").read_bytes()
    with pytest.raises(DeployError, match=r"already holds a deployment \(ca, server, sites\)"):
        deploy(folder)
    assert (folder / "sites" / "berlin" / "key").read_bytes() == before


def test_other_files_in_the_folder_do_no_harm(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    deploy(tmp_path)
    assert (tmp_path / "notes.txt").read_text() == "mine"


@pytest.mark.parametrize(
    ("sites", "error"),
    [((), DeployError), (("a", "a"), ConfigError), (("../up",), ConfigError), (("a b",), ConfigError)],
)
def test_names_of_sites_are_checked_before_anything_is_written(
    tmp_path: Path, sites: tuple[str, ...], error: type[Exception]
) -> None:
    with pytest.raises(error, match=r"site"):
        init(tmp_path / "d", sites, Address("127.0.0.1", 8443), Config())
    assert not (tmp_path / "d").exists()


def test_paths_that_flower_cannot_be_told_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DeployError, match="quotes"):
        deploy(tmp_path / 'a"b')


def test_nodes_on_one_machine_have_ports_of_their_own(tmp_path: Path) -> None:
    init(tmp_path, ["a", "b", "c"], Address("127.0.0.1", 9102), Config())
    ports = [re.findall(r"^PORT=(\d+)$", (tmp_path / "sites" / name / "site.env").read_text(), re.M) for name in "abc"]
    assert ports == [["9101"], ["9103"], ["9104"]]


# The app


def test_flower_accepts_the_app_and_so_does_a_site(folder: Path) -> None:
    from flwr.cli.build import build_fab_from_disk
    from flwr.cli.config_utils import load_and_validate

    config, warnings = load_and_validate(folder / "server" / "app" / "pyproject.toml", check_module=True)
    assert warnings == []
    told = config["tool"]["flwr"]["app"]["config"]
    assert Path(told["config"]) == folder / "server" / "fedaux.toml"
    assert Path(told["out"]) == folder / "server" / "run"
    assert rejection_reason(build_fab_from_disk(folder / "server" / "app")) == ""


def test_flower_reads_the_connection(folder: Path) -> None:
    from flwr.cli.flower_config import parse_superlink_connection

    table = tomllib.loads((folder / "server" / "flwr-home" / "config.toml").read_text())["superlink"]["fedaux"]
    read = parse_superlink_connection(table, "fedaux")
    assert (read.address, read.root_certificates) == ("127.0.0.1:8443", str(folder / "server" / "ca.crt"))
    assert not read.insecure


# The scripts, with stand-ins for the programs that they start

RECORD = """#!/bin/bash
{ printf '%s\\0' "$(basename "$0")" "$@"; printf '\\n'; } >>"$CALLS"
quiet="$FLWR_TELEMETRY_ENABLED|$FLWR_DISABLE_UPDATE_CHECK|$FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION"
echo "$FLWR_HOME|$quiet|$PWD" >>"$CALLS.env"
"""


@pytest.fixture
def stage(tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Programs that only write down how they were called, and a deployment that was moved since it was written."""
    programs = tmp_path / "programs"
    programs.mkdir()
    for name in ("python", "flwr", "flower-superexec", "sleep"):
        (programs / name).write_text(RECORD)
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setenv("CALLS", str(tmp_path / "calls"))
    return folder.rename(tmp_path / f"moved {AWKWARD}")


def calls(tmp_path: Path) -> list[list[str]]:
    return [line.split("\0")[:-1] for line in (tmp_path / "calls").read_text().split("\n")[:-1]]


def play(script: Path, *words: str) -> None:
    subprocess.run([str(script), *words], check=True, cwd="/", timeout=20)


def test_the_superlink_is_started_in_words_that_flower_knows(stage: Path, tmp_path: Path) -> None:
    from flwr.superlink.cli.flower_superlink import _parse_args_run_superlink

    play(stage / "server" / "superlink.sh")
    ((_, *words),) = calls(tmp_path)
    assert words[:2] == ["-m", "fedaux.deploy.superlink"]
    told = _parse_args_run_superlink().parse_args(words[2:])
    assert (told.host, told.port, told.isolation, told.enable_supernode_auth) == ("127.0.0.1", 8443, "process", True)
    assert not told.insecure
    assert told.database == str(stage / "server" / "superlink.db")
    for name in (told.ssl_ca_certfile, told.ssl_certfile, told.ssl_keyfile, told.superexec_auth_secret_file):
        assert (stage / "server" / name).is_file()


def test_the_superexec_is_started_in_words_that_flower_knows(stage: Path, tmp_path: Path) -> None:
    from flwr.supercore.cli.flower_superexec import _parse_args

    play(stage / "server" / "superexec.sh")
    ((program, *words),) = calls(tmp_path)
    told = _parse_args().parse_args(words)
    assert program == "flower-superexec"
    assert (told.runtime_api_address, told.insecure) == ("127.0.0.1:8443", False)
    for name in (told.root_certificates, told.superexec_auth_secret_file):
        assert (stage / "server" / name).is_file()


def test_all_scripts_keep_flower_to_itself_and_to_its_folder(stage: Path, tmp_path: Path) -> None:
    for name in ("superlink", "superexec", "register", "run"):
        play(stage / "server" / f"{name}.sh")
    expected = f"{stage}/server/flwr-home|0|1|1|{stage}/server"
    assert set((tmp_path / "calls.env").read_text().splitlines()) == {expected}


def test_every_key_that_the_server_has_is_registered(stage: Path, tmp_path: Path) -> None:
    play(stage / "server" / "register.sh")
    register = ["flwr", "supernode", "register"]
    assert calls(tmp_path) == [
        [*register, "keys/berlin.pub", "fedaux", "--name", "berlin"],
        [*register, "keys/paris.pub", "fedaux", "--name", "paris"],
        ["flwr", "supernode", "list", "fedaux"],
    ]


def test_a_run_is_told_where_the_folder_is_now(stage: Path, tmp_path: Path) -> None:
    from flwr.common.config import parse_config_args

    play(stage / "server" / "run.sh", "--run-config", 'set="rounds=1"')
    ((*words, config, flag, extra),) = calls(tmp_path)
    assert words == ["flwr", "run", "app", "fedaux", "--stream", "--run-config"]
    assert flag == "--run-config"
    assert parse_config_args([config, extra]) == {
        "config": str(stage / "server" / "fedaux.toml"),
        "out": str(stage / "server" / "run"),
        "set": "rounds=1",
    }
    connection = tomllib.loads((stage / "server" / "flwr-home" / "config.toml").read_text())["superlink"]["fedaux"]
    assert connection == {"address": "127.0.0.1:8443", "root-certificates": str(stage / "server" / "ca.crt")}


def test_a_node_is_started_again_until_it_is_stopped(stage: Path, tmp_path: Path) -> None:
    from flwr.common.config import parse_config_args
    from flwr.supernode.cli.flower_supernode import _parse_args_run_supernode

    programs, site = tmp_path / "programs", stage / "sites" / "paris"
    node = f'{RECORD}[ "$(grep -ac supernode "$CALLS")" -lt 3 ] && exit 1\nexec /bin/sleep 60\n'
    (programs / "python").write_text(node)
    started = subprocess.Popen([str(site / "supernode.sh")], stderr=subprocess.PIPE, text=True)
    try:
        for _ in range(200):
            if (tmp_path / "calls").exists() and len(calls(tmp_path)) == 5:
                break
            subprocess.run(["/bin/sleep", "0.05"], check=True)
        started.terminate()
        assert started.wait(10) == 0
    finally:
        started.kill()
    made = calls(tmp_path)
    assert [words[0] for words in made] == ["python", "sleep", "python", "sleep", "python"]
    assert made[1] == ["sleep", "15"]
    assert made[0][1:3] == ["-m", "fedaux.deploy.supernode"]
    told = _parse_args_run_supernode().parse_args(made[0][3:])
    assert (told.superlink, told.port, told.insecure) == ("127.0.0.1:8443", 9102, False)
    assert (site / told.root_certificates).is_file()
    assert (site / told.auth_supernode_private_key).is_file()
    assert parse_config_args([told.node_config]) == {
        "clients": "paris",
        "config": str(site / "site.toml"),
        "vault": str(site / "vault"),
    }


def test_without_the_environment_a_script_says_so(folder: Path) -> None:
    environment = {"PATH": "/usr/bin:/bin"}
    words = [str(folder / "server" / "run.sh")]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "activate the environment" in done.stderr


# Supervisors, README, commands


def test_systemd_is_told_paths_as_they_are() -> None:
    made = systemd_units(Path(f"/srv/{AWKWARD}"), Path("/opt/v e/bin"))
    assert set(made) == {"fedaux-superlink.service", "fedaux-superexec.service", "fedaux-site@.service"}
    site = made["fedaux-site@.service"].splitlines()
    assert '''ExecStart=/bin/bash "/srv/50%% of $$HOME & Anna's/sites/%i/supernode.sh"''' in site
    assert 'Environment="PATH=/opt/v e/bin:/usr/local/bin:/usr/bin:/bin"' in site
    assert "Restart=always" in site


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


def test_what_the_readme_names_is_there(folder: Path) -> None:
    text = (folder / "README.md").read_text()
    named = re.findall(r"\./((?:server|sites)/\S+?\.sh)", text)
    assert {"server/superlink.sh", "server/superexec.sh", "server/register.sh", "server/run.sh"} <= set(named)
    assert {"sites/berlin/supernode.sh", "sites/paris/supernode.sh"} <= set(named)
    assert all((folder / name).is_file() for name in [*named, *re.findall(r"systemd/\S+\.service", text)])


def test_a_key_is_one_that_flower_takes_and_is_not_replaced(tmp_path: Path) -> None:
    from cryptography.hazmat.primitives.serialization import load_ssh_private_key
    from flwr.cli.supernode.register import try_load_public_key
    from flwr.supercore.primitives.asymmetric import public_key_to_bytes

    public = generate_key_pair(tmp_path / "new")
    private = load_ssh_private_key((tmp_path / "new" / "key").read_bytes(), None)
    assert try_load_public_key(public) == public_key_to_bytes(private.public_key())
    assert private.curve.name == "secp384r1"
    with pytest.raises(KeyExistsError, match="delete it first"):
        generate_key_pair(tmp_path / "new")


def test_the_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("my.toml").write_text("rounds = 4\n[data]\nclients = 3\n")
    words = "deploy init here --site rome --site oslo --host fl.example.org --port 7000 --config my.toml"
    done = CliRunner().invoke(app, words.split(), catch_exceptions=False)
    assert done.exit_code == 0
    assert "here/README.md" in done.output
    assert Config.load("here/server/fedaux.toml").rounds == 4
    assert "SERVER=fl.example.org:7000\n" in Path("here/sites/oslo/site.env").read_text()
    done = CliRunner().invoke(app, ["deploy", "key", "site"], catch_exceptions=False)
    assert done.exit_code == 0
    assert Path("site/key.pub").is_file()
    assert "site/key.pub" in done.output
