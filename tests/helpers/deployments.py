"""What the tests of deployments share: one that is written in a folder with an awkward
name, its scripts as they are played, and a server to call.
"""

import http.server
import json
import os
import shutil
import signal
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from fedaux.config.prototype import PrototypeSpec
from fedaux.config.schema import Config
from fedaux.config.sections import DataConfig, LocalConfig, PrivacyConfig
from fedaux.deploy.certificates import generate_key_pair
from fedaux.deploy.checks import CheckResult
from fedaux.deploy.layout import Address, demo_config, write_layout
from fedaux.deploy.link import ControlLink, LinkError, Node
from helpers.harness import Patience, free_port

AWKWARD = "50% of $HOME & Anna's"


SITES = ("berlin", "paris")


def deploy(
    folder: Path,
    sites: Sequence[str] = SITES,
    host: str = "127.0.0.1",
    base: Config | None = None,
    port: int = 8443,
) -> Path:
    write_layout(folder, sites, Address(host, port), base or demo_config())
    return folder


def until(ready: Callable[[], bool], seconds: float = 300.0) -> None:
    patience = Patience(seconds)
    while not ready():
        assert not patience.over(), "it took too long"
        time.sleep(0.5)


@contextmanager
def playing(
    script: Path, *words: str, on: Sequence[str] = ()
) -> Iterator[subprocess.Popen[bytes]]:
    """The script until it is stopped as its README says; its log lies beside it. `on`:
    the machine, as a command.
    """
    with script.with_suffix(".log").open("w") as log:
        process = subprocess.Popen(
            [*on, str(script), *words], stdout=log, stderr=log, start_new_session=True
        )
        try:
            yield process
            process.send_signal(signal.SIGTERM)
            process.wait(300)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)


def processes(folder: Path, word: str) -> dict[int, str]:
    """The command lines with this word, as every user of the machine can read them, of
    programs in this folder.
    """
    found = {}
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            line = (path / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            if word in line and (path / "cwd").readlink() == folder:
                found[int(path.name)] = line
    return found


def status(folder: Path, on: Sequence[str] = ()) -> tuple[int, dict[str, Any]]:
    """(exit code, what it prints) of `fedaux deploy status --json`, called in the
    server's folder.
    """
    words = [*on, sys.executable, "-m", "fedaux", "deploy", "status", "--json"]
    done = subprocess.run(
        words,
        cwd=folder / "server",
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return done.returncode, json.loads(done.stdout)


class LiveDeployment(ExitStack):
    """A deployment whose scripts run as its README says, until this context ends.

    Args:
        folder: A new folder.
        sites: Their names.
        host: Where sites find the server.
        inside: The command that runs another on the machine of a site, or of the
            "server"; else all are on this one.
    """

    def __init__(
        self,
        folder: Path,
        sites: Sequence[str] = SITES,
        host: str = "127.0.0.1",
        inside: Callable[[str], Sequence[str]] = lambda name: (),
    ) -> None:
        super().__init__()
        self.folder, self.sites, self.inside, self.server = (
            folder,
            sites,
            inside,
            folder / "server",
        )
        deploy(folder, sites, host, port=free_port())
        os.environ["FEDAUX_ALLOW_ROOT"] = "yes"  # these tests may be root's
        for name in sites:
            site = self.site(name)
            if not (site / "key").exists():  # of another machine: it makes its own
                shutil.copy(
                    generate_key_pair(site), self.server / "keys" / f"{name}.pub"
                )
                settings = (site / "site.toml").read_text()
                assert 'approval = "ask"\n' in settings
                (site / "site.toml").write_text(
                    settings.replace("standing = []", 'standing = ["*"]')
                )

    def site(self, name: str) -> Path:
        return self.folder / "sites" / name

    def start(self, *scripts: str) -> None:
        """Scripts of the server; returns when the SuperLink answers."""
        for script in scripts:
            self.enter_context(playing(self.server / script, on=self.inside("server")))
        until(lambda: self.connections() is not None)

    def connections(self) -> dict[str, str] | None:
        """The status of each site's connection; None while the SuperLink does not
        answer.
        """
        if self.inside("server"):  # another machine, which this process cannot call
            found = self.status()[1]
            return (
                {site["name"]: site["connection"] for site in found["sites"]}
                if found["link"]
                else None
            )
        try:
            ControlLink(self.server).check()
            return {name: node.status for name, node in self.nodes().items()}
        except LinkError:
            return None

    def register(self) -> None:
        subprocess.run(
            [*self.inside("server"), str(self.server / "register.sh")],
            check=True,
            timeout=300,
        )

    def start_sites(self, *names: str) -> None:
        """Returns when these are online; all, if none is named."""
        wanted = names or self.sites
        for name in wanted:
            self.enter_context(
                playing(self.site(name) / "supernode.sh", on=self.inside(name))
            )

        def online() -> bool:
            found = self.connections() or {}
            return [found.get(name) for name in wanted] == ["online"] * len(wanted)

        until(online)

    def run(self, rounds: int, more: str = "") -> subprocess.Popen[bytes]:
        """A quick run; `more` has further settings."""
        settings = f'set="rounds={rounds}; pretrain.epochs=1; distill.epochs=1; {more}"'
        script = playing(
            self.server / "run.sh", "--run-config", settings, on=self.inside("server")
        )
        return self.enter_context(script)

    def status(self) -> tuple[int, dict[str, Any]]:
        """(exit code, what it prints) of `fedaux deploy status --json`, called in the
        server's folder.
        """
        return status(self.folder, on=self.inside("server"))

    def nodes(self) -> dict[str, Node]:
        """What the SuperLink has registered, by name."""
        return {node.name: node for node in ControlLink(self.server).nodes()}


class Answer(http.server.BaseHTTPRequestHandler):
    date = ""

    def do_GET(self) -> None:
        self.send_response_only(200)
        self.send_header("Date", self.date or self.date_time_string())
        self.end_headers()

    def log_message(self, *args: object) -> None:
        pass


@contextmanager
def answering(server: Path | None, date: str = "") -> Iterator[str]:
    """A server with the certificate in this folder, or without TLS; its address."""
    handler = type("Dated", (Answer,), {"date": date})
    made = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    if server is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(server / "server.pem", server / "server.key")
        made.socket = context.wrap_socket(made.socket, server_side=True)
    # looks often if it shall stop
    thread = threading.Thread(target=made.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield f"127.0.0.1:{made.server_address[1]}"
    finally:
        made.shutdown()
        made.server_close()
        thread.join()


ODD = Config(
    method="fedavg",
    rounds=7,
    head_only=True,
    seed=3,
    prototypes=(
        PrototypeSpec("resnet8", (("width", 16),)),
        PrototypeSpec("my.module:net", (("a b", 'quo"te\\ü😀'),)),
    ),
    data=DataConfig("csv", "~/records", (("classes", ("a", "b")), ("text", "body"))),
    local=LocalConfig(lr=1e-5, batch_size=8),
    privacy=PrivacyConfig(
        epsilon=0.25, epsilon_total=2.0, private_training=True, unsafe_seed=5
    ),
)


def problem(found: CheckResult, detail: str, remedy: str) -> None:
    assert found.ok is False
    assert detail in found.detail
    assert remedy in found.remedy


def fine(found: CheckResult, detail: str = "") -> None:
    assert (found.ok, found.remedy) == (True, "")
    assert detail in found.detail


def unused_address() -> str:
    return f"127.0.0.1:{free_port()}"
