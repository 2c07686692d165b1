"""`run.sh`: starts a run, or attaches to the current one, shows its log, and exits with
the run's outcome.

Flower's own `flwr run --stream` exits with 0 whatever the outcome, and gives up when
the SuperLink restarts, although the run continues.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from fedaux.core.errors import Exit
from fedaux.deploy.link import LinkError

CONNECTION = "fedaux"  # in flwr-home/config.toml
LIVES = ("pending", "starting", "running")
PAUSE = 3.0  # seconds between two attempts to reach the server
SILENCE_LIMIT = 600.0  # seconds of silence after which the server is given up
RESTARTS = 3  # of a server's app that was killed
# what Flower says of an app that was killed; one that failed has said why itself
KILLED = "No heartbeat"
FLOWERS_PREFIX = "ServerApp failed with exception: "  # of an app's own last words
Say = Callable[[str], None]


def call(*words: str) -> str:
    """Return what a command of Flower prints. With --format json that is JSON, errors
    included.
    """
    return subprocess.run(
        ["flwr", *words], stdout=subprocess.PIPE, text=True, check=False
    ).stdout


def follow(*words: str) -> Iterator[str]:
    """Yield the lines that a command of Flower prints, until it ends."""
    with subprocess.Popen(
        ["flwr", *words], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        try:
            yield from process.stdout
        finally:
            process.terminate()  # else leaving would wait for the end of the run


@dataclass
class RunControl:
    """Starts and follows runs. `call` and `follow` are Flower's command line."""

    call: Callable[..., str] = call
    follow: Callable[..., Iterator[str]] = follow
    say: Say = field(default=lambda text: print(text, file=sys.stderr, flush=True))
    show: Say = field(default=lambda line: print(line, end="", flush=True))
    sleep: Callable[[float], None] = time.sleep

    def main(self, words: Sequence[str]) -> int:
        """Start or attach to a run and follow it; return the exit code, 0 only if the
        run is complete.
        """
        run = self.living()
        if run:
            self.say(
                f"run {run} continues, and this is its log. (`flwr stop {run} "
                f"{CONNECTION}` would end it.)"
            )
        else:
            run = self.start(words)
        try:
            status, details = self.attend(run)
            for _ in range(RESTARTS):
                if status != "finished:failed" or KILLED not in details:
                    break
                lost = run
                run = self.start(words)
                self.say(
                    f"the server's app is gone, killed or with its machine: run {run} "
                    f"continues run {lost}"
                )
                status, details = self.attend(run)
        except KeyboardInterrupt:
            self.say(
                f"run {run} continues while the server is up, and run.sh shows its log "
                f"again. `flwr stop {run} {CONNECTION}` ends it."
            )
            return Exit.STOPPED
        if status == "finished:completed":
            return 0
        reason = ""
        if details:
            reason = f": {details.removeprefix(FLOWERS_PREFIX).rstrip('.')}"
        self.say(
            f"run {run} ended as {status}{reason}. run.sh continues after its last "
            "whole round."
        )
        if status == "finished:stopped":
            return Exit.STOPPED
        return Exit.NEGATIVE

    def living(self) -> str:
        """Return the id of the current run, or ""."""
        runs = self._json("list", CONNECTION)
        if runs is None:
            raise LinkError(
                "Cannot start a run: the server does not answer. Start superlink.sh "
                "and superexec.sh first."
            )
        for run in runs["runs"]:
            if run["status"] in LIVES:
                return str(run["run-id"])
        return ""

    def start(self, words: Sequence[str]) -> str:
        started = self._json("run", "app", CONNECTION, *words)
        if started is None or not started.get("run-id"):
            raise LinkError(
                "Cannot start a run: the server did not take the run. Look at the log "
                "of superlink.sh."
            )
        return str(started["run-id"])

    def attend(self, run: str) -> tuple[str, str]:
        """Follow a run to its end: (status, details). It waits while the server
        restarts, as the run may continue.
        """
        shown = 0  # lines
        silent = 0.0  # seconds
        while silent < SILENCE_LIMIT:
            lines = self.follow("log", run, CONNECTION, "--stream")
            for number, line in enumerate(lines):
                if number >= shown:  # Flower tells it from the beginning
                    shown = number + 1
                    self.show(line)
            answer = self._json("list", CONNECTION, "--run-id", run)
            if answer is not None and answer["runs"]:
                row = answer["runs"][0]
                if row["status"] not in LIVES:
                    return row["status"], row["status-details"]
            if answer is None and not silent:
                self.say("the server does not answer, waiting for it")
            if answer is None:
                silent += PAUSE
            else:
                silent = 0.0
            self.sleep(PAUSE)
        raise LinkError(
            f"Cannot follow run {run}: the server has not answered for "
            f"{SILENCE_LIMIT:g} s. Start run.sh again when it is back, and it shows "
            "this run."
        )

    def _json(self, *words: str) -> dict[str, Any] | None:
        """Return the JSON that a command prints, or None if there is no answer."""
        printed = self.call(*words, "--format", "json")
        try:
            answer: dict[str, Any] = json.loads(printed[printed.index("{") :])
        except ValueError:
            return None
        if not answer.get("success"):
            return None
        return answer


def main() -> None:
    # as Ctrl-C, which a script's background processes do not get
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        code = RunControl().main(sys.argv[1:])
    except LinkError as error:
        print(error, file=sys.stderr)
        code = error.code
    sys.exit(code)


if __name__ == "__main__":
    main()
