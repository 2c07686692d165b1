"""`flower-supernode` that asks for work at once when it has none: Flower's own waits three seconds each time."""

import time
from types import SimpleNamespace

from flwr.supernode import start_client_internal as internal
from flwr.supernode.cli.flower_supernode import flower_supernode

if __name__ == "__main__":
    internal.time = SimpleNamespace(sleep=lambda seconds: time.sleep(0.1))  # type: ignore[assignment]
    flower_supernode()
