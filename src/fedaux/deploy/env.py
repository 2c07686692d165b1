"""What every part of a deployment starts from: its `site.env` and `server.env`, and the
error of a folder that is none.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fedaux.core.errors import Exit, FedauxError


class DeployError(FedauxError, ValueError):
    """A deployment cannot be written with these arguments, or a folder does not hold
    one.
    """

    code = Exit.FOLDER


def read_env(path: Path, needed: Sequence[str] = ("NAME", "SERVER")) -> dict[str, str]:
    """Read lines such as SERVER=example.org:8443 from `site.env` or `server.env`, which
    scripts read as well.

    Args:
        path: The file.
        needed: Names without which the file is refused; SERVER must have a port.
    """
    if not path.is_file():
        raise DeployError(
            f"Cannot read the settings of a deployment: {path} is not there. Name a "
            "folder that `fedaux deploy init` has written."
        )
    lines = [
        line.partition("=")
        for line in path.read_text(encoding="utf-8").splitlines()
        if not line.startswith("#")
    ]
    env = {key.strip(): value.strip().strip("\"'") for key, _, value in lines}
    missing = [key for key in needed if not env.get(key)]
    if missing:
        raise DeployError(
            f"Cannot use {path}: it does not say {', '.join(missing)}. Write lines "
            "such as SERVER=example.org:8443."
        )
    if "SERVER" in needed and not env["SERVER"].rpartition(":")[2].isdigit():
        raise DeployError(
            f"Cannot use {path}: SERVER={env['SERVER']} names no port. Write "
            "SERVER=example.org:8443."
        )
    return env
