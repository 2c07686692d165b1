"""The scripts of a deployment, with stand-ins for the programs that they start; openssl
on its certificates.
"""

import os
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

from fedaux.deploy.certificates import node_fingerprint, site_fingerprint
from helpers.deployments import AWKWARD, deploy


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return deploy(tmp_path / AWKWARD)


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl")
def test_openssl_agrees_that_the_authority_signs_the_server(folder: Path) -> None:
    ca, pem = folder / "ca" / "ca.crt", folder / "server" / "server.pem"
    words = [
        "openssl",
        "verify",
        "-x509_strict",
        "-purpose",
        "sslserver",
        "-CAfile",
        str(ca),
        str(pem),
    ]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="needs ssh-keygen")
def test_a_fingerprint_is_that_of_ssh_keygen(folder: Path) -> None:
    key = folder / "server" / "keys" / "berlin.pub"
    told = subprocess.run(
        ["ssh-keygen", "-lf", str(key)], capture_output=True, text=True, check=True
    ).stdout
    assert told.split()[1] == node_fingerprint(key.read_bytes())
    # which has the key of sums as well
    assert node_fingerprint(key.read_bytes()) != site_fingerprint(key.read_bytes())


RECORD = """#!/bin/bash
{ printf '%s\\0' "$(basename "$0")" "$@"; printf '\\n'; } >>"$CALLS"
quiet="$FLWR_TELEMETRY_ENABLED|$FLWR_DISABLE_UPDATE_CHECK|$FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION"
echo "$FLWR_HOME|$quiet|$PWD" >>"$CALLS.env"
"""


@pytest.fixture
def stage(tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Programs that only write down how they were called, and a deployment that was
    moved since it was written.
    """
    programs = tmp_path / "programs"
    programs.mkdir()
    for name in ("python", "flwr", "flower-superexec", "sleep"):
        (programs / name).write_text(RECORD)
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setenv("CALLS", str(tmp_path / "calls"))
    monkeypatch.setenv("FEDAUX_ALLOW_ROOT", "yes")
    return folder.rename(tmp_path / f"moved {AWKWARD}")


def calls(tmp_path: Path) -> list[list[str]]:
    return [
        line.split("\0")[:-1]
        for line in (tmp_path / "calls").read_text().split("\n")[:-1]
    ]


def play(script: Path, *words: str) -> None:
    subprocess.run([str(script), *words], check=True, cwd="/", timeout=20)


def keeping(script: Path, tmp_path: Path, starts: int = 3) -> list[list[str]]:
    """What a script calls whose program fails at once: that and a pause, again and
    again until it is stopped.
    """
    record = (tmp_path / "programs" / "flwr").read_text()
    for name in ("python", "flower-superexec"):
        last = f'[ "$(grep -acv "^sleep" "$CALLS")" -lt {starts} ] && exit 1\nexec /bin/sleep 60\n'
        (tmp_path / "programs" / name).write_text(record + last)
    started = subprocess.Popen(
        [str(script)], stderr=subprocess.PIPE, text=True, cwd="/"
    )
    try:
        for _ in range(400):
            if (tmp_path / "calls").exists() and len(calls(tmp_path)) == 2 * starts - 1:
                break
            subprocess.run(["/bin/sleep", "0.05"], check=True)
        started.terminate()
        assert started.wait(10) == 0
    finally:
        started.kill()
    made = calls(tmp_path)
    # it waits twice as long each time
    first = int(made[1][1])
    pauses = [["sleep", str(first * 2**number)] for number in range(starts - 1)]
    assert made[1::2] == pauses
    assert made[::2] == [made[0]] * starts
    return made[:2]


def test_the_superlink_is_started_in_words_that_flower_knows(
    stage: Path, tmp_path: Path
) -> None:
    from flwr.superlink.cli.flower_superlink import _parse_args_run_superlink

    ((_, *words), pause) = keeping(stage / "server" / "superlink.sh", tmp_path)
    assert pause == ["sleep", "5"]
    assert words[:2] == ["-m", "fedaux.deploy.superlink"]
    told = _parse_args_run_superlink().parse_args(words[2:])
    assert (told.host, told.port, told.isolation, told.enable_supernode_auth) == (
        "127.0.0.1",
        8443,
        "process",
        True,
    )
    assert not told.insecure
    assert told.database == str(stage / "server" / "superlink.db")
    for name in (
        told.ssl_ca_certfile,
        told.ssl_certfile,
        told.ssl_keyfile,
        told.superexec_auth_secret_file,
    ):
        assert (stage / "server" / name).is_file()


def test_the_superexec_is_started_in_words_that_flower_knows(
    stage: Path, tmp_path: Path
) -> None:
    from flwr.supercore.cli.flower_superexec import _parse_args

    ((program, *words), pause) = keeping(stage / "server" / "superexec.sh", tmp_path)
    assert pause == ["sleep", "5"]
    assert [program, *words[:2]] == ["python", "-m", "fedaux.deploy.superexec"]
    told = _parse_args().parse_args(words[2:])
    assert (told.runtime_api_address, told.insecure) == ("127.0.0.1:8443", False)
    for name in (told.root_certificates, told.superexec_auth_secret_file):
        assert (stage / "server" / name).is_file()


def test_keys_are_registered_and_all_scripts_keep_flower_to_its_folder(
    stage: Path, tmp_path: Path
) -> None:
    play(stage / "server" / "register.sh")
    assert calls(tmp_path) == [
        ["python", "-m", "fedaux", "deploy", "register", str(stage / "server")]
    ]
    play(stage / "server" / "run.sh")
    for name in ("superlink", "superexec"):
        (tmp_path / "calls").unlink()
        keeping(stage / "server" / f"{name}.sh", tmp_path)
    expected = f"{stage}/server/flwr-home|0|1|1|{stage}/server"
    assert set((tmp_path / "calls.env").read_text().splitlines()) == {expected}


@pytest.mark.skipif(os.getuid() != 0, reason="needs root")
def test_an_app_is_not_run_as_root(
    stage: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FEDAUX_ALLOW_ROOT")
    words = [str(stage / "server" / "superexec.sh")]
    done = subprocess.run(
        words, capture_output=True, text=True, check=False, cwd="/", timeout=60
    )
    assert done.returncode == 1
    assert "would run as root" in done.stderr


def test_a_run_is_told_where_the_folder_is_now(stage: Path, tmp_path: Path) -> None:
    from flwr.cli.flower_config import parse_superlink_connection
    from flwr.common.config import parse_config_args

    play(stage / "server" / "run.sh", "--run-config", 'set="rounds=1"')
    ((*words, config, flag, extra),) = calls(tmp_path)
    assert words == ["python", "-m", "fedaux.deploy.run_control", "--run-config"]
    assert flag == "--run-config"
    assert parse_config_args([config, extra]) == {
        "config": str(stage / "server" / "fedaux.toml"),
        "out": str(stage / "server" / "run"),
        "set": "rounds=1",
    }
    (tmp_path / "calls").unlink()
    play(stage / "server" / "look.sh", "--run-config", 'set="privacy.look_epsilon=1"')
    ((_, _, _, _, *settings),) = calls(tmp_path)
    given = [config for config in settings if config != "--run-config"]
    assert parse_config_args(given) == {
        "config": str(stage / "server" / "fedaux.toml"),
        "out": str(stage / "server" / "look"),
        "look": True,
        "set": "privacy.look_epsilon=1",
    }
    connection = tomllib.loads(
        (stage / "server" / "flwr-home" / "config.toml").read_text()
    )["superlink"]["fedaux"]
    read = parse_superlink_connection(connection, "fedaux")
    assert (read.address, read.root_certificates) == (
        "127.0.0.1:8443",
        str(stage / "server" / "ca.crt"),
    )
    assert not read.insecure


PARTS = (
    "server/superlink.sh",
    "server/superexec.sh",
    "server/register.sh",
    "server/run.sh",
    "sites/berlin/supernode.sh",
    "sites/paris/supernode.sh",
)


def try_all(folder: Path, **parts: str) -> subprocess.CompletedProcess[str]:
    """Play try-all.sh, whose parts wait until they are stopped; those of `parts` by
    their file's stem do something else.
    """
    for part in PARTS:
        usual = "exit 0" if "register" in part else "exec sleep 300"
        words = parts.get(Path(part).stem, usual)
        (folder / part).write_text(f"#!/bin/bash\n{words}\n")
    return subprocess.run(
        [str(folder / "try-all.sh")],
        capture_output=True,
        text=True,
        check=False,
        cwd="/",
        timeout=30,
    )


def test_a_part_that_ends_is_named_with_its_last_lines(folder: Path) -> None:
    """A run that nobody worked on was waited for in silence."""
    done = try_all(folder, superexec="echo 'not as root'; exit 3")
    assert done.returncode == 1
    assert "superexec has ended with exit status 3" in done.stderr
    assert "  not as root\n" in done.stderr
    assert "paris" not in done.stderr


def test_a_part_that_cannot_stay_up_is_named(folder: Path) -> None:
    """The scripts start again what has ended, for ever."""
    ends = "for i in 1 2 3 4 5; do echo 'it starts again in 5 seconds'; done"
    done = try_all(folder, supernode=f"echo refused; {ends}; exec sleep 300")
    assert done.returncode == 1
    assert "berlin has ended 5 times" in done.stderr
    assert "  refused\n" in done.stderr


@pytest.mark.parametrize("code", [0, 7])
def test_all_ends_as_the_run_ends(folder: Path, code: int) -> None:
    done = try_all(folder, run=f"echo 'accuracy .9'; exit {code}")
    assert (done.returncode, done.stderr) == (code, "")
    assert done.stdout.endswith("accuracy .9\n")


FLOWER = """#!/bin/bash
case "$1" in
  run) echo '{"success": true, "run-id": "7"}' ;;
  log) echo "round 1/1" ;;
  list) if [[ "$*" == *--run-id* ]]
    then echo '{"success": true, "runs": [{"run-id": "7", "status": "finished:'$END'", "status-details": ""}]}'
    else echo '{"success": true, "runs": []}'; fi ;;
esac
"""


@pytest.mark.parametrize(("end", "code"), [("completed", 0), ("failed", 1)])
def test_run_ends_as_the_run_ends(
    stage: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str, code: int
) -> None:
    """It ended with 0 whatever became of the run."""
    (tmp_path / "programs" / "flwr").write_text(FLOWER)
    (tmp_path / "programs" / "python").unlink()
    monkeypatch.setenv("END", end)
    done = subprocess.run(
        [str(stage / "server" / "run.sh")],
        capture_output=True,
        text=True,
        check=False,
        cwd="/",
        timeout=60,
    )
    assert (done.returncode, done.stdout) == (code, "round 1/1\n"), done.stderr


def test_a_node_is_started_again_until_it_is_stopped(
    stage: Path, tmp_path: Path
) -> None:
    from flwr.common.config import parse_config_args
    from flwr.supernode.cli.flower_supernode import _parse_args_run_supernode

    site = stage / "sites" / "paris"
    made = keeping(site / "supernode.sh", tmp_path)
    assert made[1] == ["sleep", "15"]
    assert made[0][1:3] == ["-m", "fedaux.deploy.supernode"]
    told = _parse_args_run_supernode().parse_args(made[0][3:])
    assert (told.superlink, told.insecure) == ("127.0.0.1:8443", False)
    assert (site / told.root_certificates).is_file()
    assert (site / told.auth_supernode_private_key).is_file()
    assert parse_config_args([told.node_config]) == {
        "clients": "paris",
        "config": str(site / "site.toml"),
        "vault": str(site / "vault"),
        "server": "127.0.0.1:8443",
    }


def test_without_the_environment_a_script_says_so(folder: Path) -> None:
    environment = {"PATH": "/usr/bin:/bin"}
    words = [str(folder / "server" / "run.sh")]
    done = subprocess.run(
        words, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "activate the environment" in done.stderr
