"""The versions of what server and sites run."""

from __future__ import annotations

from contextlib import suppress
from importlib import metadata

TESTED_FLOWER = ("1.41", "1.42")  # the minor versions that all tests have passed with


def untested_flower() -> str:
    """Say which versions of Flower fedaux was tested with, or "" if the installed one is
    among them.
    """
    installed = package_versions().get("flwr", "none")
    if installed.startswith(tuple(f"{version}." for version in TESTED_FLOWER)):
        return ""
    tested = " and ".join(TESTED_FLOWER)
    return f"fedaux was tested with Flower {tested}, and {installed} is installed"


def package_versions() -> dict[str, str]:
    """Return the versions of fedaux, Flower and PyTorch, as far as they are
    installed.
    """
    versions = {}
    for name in ("fedaux", "flwr", "torch"):
        with suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(name)
    return versions


def versions_text() -> str:
    return ", ".join(
        f"{name} {version}" for name, version in package_versions().items()
    )
