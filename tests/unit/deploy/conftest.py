"""A new deployment, in a folder with an awkward name."""

from pathlib import Path

import pytest

from helpers.deployments import AWKWARD, deploy


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return deploy(tmp_path / AWKWARD)


@pytest.fixture
def site(folder: Path) -> Path:
    return folder / "sites" / "berlin"
