"""What the README of a deployment names is there."""

import re
from pathlib import Path


def test_what_the_readme_names_is_there(folder: Path) -> None:
    text = (folder / "README.md").read_text()
    named = re.findall(r"\./((?:server|sites)/\S+?\.sh)", text)
    assert {"server/superlink.sh", "server/superexec.sh", "server/register.sh", "server/run.sh"} <= set(named)
    assert {"sites/berlin/supernode.sh", "sites/paris/supernode.sh"} <= set(named)
    assert all((folder / name).is_file() for name in [*named, *re.findall(r"systemd/\S+\.service", text)])
