"""The versions of what server and sites run."""

from __future__ import annotations

from contextlib import suppress
from importlib import metadata


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
