"""`flower-supernode` that asks for work every second, not every three. Ten times a
second was seen to use more CPU.
"""

import time
from types import SimpleNamespace

from flwr.supernode import start_client_internal as internal
from flwr.supernode.cli.flower_supernode import flower_supernode

if __name__ == "__main__":
    internal.time = SimpleNamespace(sleep=lambda seconds: time.sleep(min(seconds, 1.0)))  # type: ignore[assignment]
    flower_supernode()
