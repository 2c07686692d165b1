"""Three hospitals and a server on this machine, over TLS: split, deploy, start, run,
show, stop.

python run.py --data pneumoniamnist.npz --classes normal,pneumonia     # or without
data: digits stand in
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
from split import HOSPITALS, class_names, open_set, split

from fedaux import Config, Model, open_source

HERE = Path(__file__).parent
ENVIRONMENT = {
    **os.environ,
    "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    "PYTHONUNBUFFERED": "1",
}
ENVIRONMENT["FEDAUX_ALLOW_ROOT"] = "yes"  # the one app that runs here is this one


def main() -> None:
    options = parse()
    folder = options.folder.absolute()
    # so that everything is stopped
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    corpus = open_set(options.data)
    classes = (
        tuple(options.classes.split(",")) if options.classes else class_names(corpus)
    )
    deploy(folder, [f"data.classes={json.dumps(classes)}", *options.set])
    split(corpus, folder, classes)
    for name in HOSPITALS:
        # 1: no server yet
        run("fedaux", "deploy", "check", folder / "sites" / name, quiet=True, allow=1)
    started = time.monotonic()
    with ExitStack() as stack:
        stack.enter_context(playing(folder / "server" / "superlink.sh"))
        wait_for_port(
            read_port(folder / "server" / "server.env"),
            folder / "server" / "superlink.log",
        )
        stack.enter_context(playing(folder / "server" / "superexec.sh"))
        run(folder / "server" / "register.sh", quiet=True)
        for name in HOSPITALS:
            stack.enter_context(playing(folder / "sites" / name / "supernode.sh"))
        run(folder / "server" / "run.sh")
    show(folder / "server", time.monotonic() - started)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Three hospitals and a server on this machine, over TLS."
    )
    parser.add_argument(
        "--data",
        type=Path,
        help="a MedMNIST .npz; without it, scikit-learn's digits stand in",
    )
    parser.add_argument(
        "--classes",
        default="",
        help="their names, with commas between: normal,pneumonia",
    )
    parser.add_argument(
        "--folder",
        type=Path,
        default=Path("hospitals-run"),
        help="a new folder for everything",
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="override hospitals.toml",
    )
    return parser.parse_args()


def deploy(folder: Path, overrides: list[str]) -> None:
    """`fedaux deploy init` at a port that is free, then what a person would do: say
    where records are.
    """
    if folder.exists():
        sys.exit(
            f"{folder} exists; its hospitals have spent their budget. Take a new one: "
            "--folder NAME"
        )
    folder.mkdir(parents=True)
    settings = folder / "settings.json"
    settings.write_text(
        json.dumps(Config.load(HERE / "hospitals.toml", overrides).to_dict())
    )
    sites = [word for name in HOSPITALS for word in ("--site", name)]
    run(
        "fedaux",
        "deploy",
        "init",
        folder,
        *sites,
        "--port",
        str(free_port()),
        "--config",
        settings,
        quiet=True,
    )
    write_paths(folder / "server" / "fedaux.toml", "test", "public")
    for name in HOSPITALS:
        write_paths(folder / "sites" / name / "site.toml", "records")


def write_paths(settings: Path, *paths: str) -> None:
    """Fill the empty paths in a file of settings, from the top; they are relative to
    its folder.
    """
    text = settings.read_text("utf-8")
    for path in paths:
        text = text.replace('path = ""', f'path = "{path}"', 1)
    settings.write_text(text, "utf-8")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def read_port(env: Path) -> int:
    return int(
        next(
            line for line in env.read_text().splitlines() if line.startswith("PORT=")
        ).removeprefix("PORT=")
    )


def wait_for_port(port: int, log: Path, seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.3)
    sys.exit(f"the server did not come up: see {log}")


@contextmanager
def playing(script: Path) -> Iterator[None]:
    """A script that runs until the block ends, whatever ends it. Its log is
    beside it.
    """
    with script.with_suffix(".log").open("w") as log:
        started = subprocess.Popen(
            [script], stdout=log, stderr=log, env=ENVIRONMENT, start_new_session=True
        )
    try:
        yield
    finally:
        started.terminate()
        try:
            started.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(started.pid, signal.SIGKILL)


def run(*command: object, quiet: bool = False, allow: int = 0) -> None:
    """One command to its end; of a quiet one only the errors are seen."""
    words = [str(word) for word in command]
    done = subprocess.run(
        words, env=ENVIRONMENT, capture_output=quiet, text=True, check=False
    )
    if done.returncode not in (0, allow):
        sys.exit(f"{words[0]} failed:\n{(done.stdout or '') + (done.stderr or '')}")


def show(server: Path, seconds: float) -> None:
    """The exported model on the server's test data, class by class, and what the run
    has revealed.
    """
    if not (server / "run" / "report.html").is_file():
        sys.exit(
            f"the run did not end well: see its log above, {server}/*.log and "
            "../sites/*/*.log"
        )
    model, test = (
        Model.from_pretrained(server / "run"),
        open_source("npy", server / "test"),
    )
    card, right = (
        model.card,
        model.predict(test.train.gather()).argmax(axis=1) == test.train.labels,
    )
    found = {
        name: right[test.train.labels == label].mean()
        for label, name in enumerate(model.classes)
    }
    print(
        f"\n{card['method']}, {card['rounds']} rounds, {seconds:.0f} s with servers. "
        f"Test accuracy {100 * right.mean():.1f} %"
    )
    print(
        f"balanced {100 * np.mean(list(found.values())):.1f} % "
        f"({', '.join(f'{n} {100 * a:.1f} %' for n, a in found.items())})"
    )
    print(
        f"Privacy: {card['privacy']['statement']}\nModel and report: {server / 'run'}"
    )


if __name__ == "__main__":
    main()
