"""A node that the server fails ends, so that its script, unit or container starts it
again: it never hangs.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from flwr.proto.fleet_pb2 import (
    ActivateNodeResponse,
    PullMessagesResponse,
    RegisterNodeFleetResponse,
)
from flwr.proto.heartbeat_pb2 import SendNodeHeartbeatResponse
from flwr.supercore.protobuf.constants import PROTOBUF_MEDIA_TYPE

from helpers.harness import free_port

ANSWERS = {
    "register-node": RegisterNodeFleetResponse(node_id=7),
    "activate-node": ActivateNodeResponse(node_id=7),
    "send-node-heartbeat": SendNodeHeartbeatResponse(success=True),
    "pull-messages": PullMessagesResponse(),
}


class FailingLink(BaseHTTPRequestHandler):
    """Answers as a SuperLink without orders does, but for one step, at which it has an
    internal error.
    """

    fails_at = ""

    def do_POST(self) -> None:
        step = self.path.rpartition("/")[2]
        self.rfile.read(int(self.headers["Content-Length"]))
        body = (
            b""
            if step == self.fails_at or step not in ANSWERS
            else ANSWERS[step].SerializeToString()
        )
        self.send_response_only(500 if step == self.fails_at else 200)
        self.send_header("Content-Type", PROTOBUF_MEDIA_TYPE)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        pass


@contextmanager
def link(fails_at: str) -> Iterator[str]:
    server = ThreadingHTTPServer(
        ("127.0.0.1", 0), type("Failing", (FailingLink,), {"fails_at": fails_at})
    )
    thread = Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield f"127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.mark.parametrize(
    "step", ["activate-node", "pull-messages", "send-node-heartbeat"]
)
def test_a_node_ends_when_the_server_has_an_internal_error(
    step: str, tmp_path: Path
) -> None:
    words = ["--insecure", "--host", "127.0.0.1", "--port", str(free_port())]
    with link(step) as address, (tmp_path / "log").open("w") as log:
        node = subprocess.Popen(
            [sys.executable, "-m", "fedaux.deploy.supernode", *words, "--superlink", address],
            stdout=log, stderr=log, env={**os.environ, "TMPDIR": str(tmp_path), "FLWR_HOME": str(tmp_path)},
        )  # fmt: skip
        try:
            assert node.wait(60) != 0, (tmp_path / "log").read_text()
        finally:
            node.kill()
