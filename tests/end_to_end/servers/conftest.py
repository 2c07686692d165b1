"""What the tests with real servers share."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from helpers.harness import Servers
from helpers.three_sites import CONFIG, Federation


@pytest.fixture
def federation(tmp_path: Path) -> Iterator[Callable[..., Federation]]:
    """Makes a federation of three sites; all its processes end with the test."""
    made: list[Servers] = []

    def make(
        slow: bool = False,
        plain: bool = True,
        isolation: str = "subprocess",
        rounds: int = 2,
        **policy: float,
    ) -> Federation:
        """`slow`: a training that takes more than ten seconds, time enough to be killed
        in.
        """
        config = replace(
            CONFIG, rounds=rounds, federation=replace(CONFIG.federation, **policy)
        )
        if slow:
            config = replace(config, method="helpers.slow_training:method")
        made.append(Servers(tmp_path / "servers", plain=plain, isolation=isolation))
        return Federation(tmp_path, made[-1], config)

    yield make
    for servers in made:
        servers.__exit__(None, None, None)
