"""Sizes that a federation may grow to."""

import time
from dataclasses import replace
from pathlib import Path

import numpy as np

from fedaux.config.schema import Config
from fedaux.server.run_state import RunState
from fedaux.server.run_writer import RunWriter
from helpers.samples import release


def test_many_clients_are_no_matter(tmp_path: Path) -> None:
    values = np.arange(32)
    releases = {
        name: replace(release(name), arrays={"values": values + i})
        for i, name in enumerate(f"client-{i:03d}" for i in range(50_000))
    }
    started = time.perf_counter()
    RunWriter(tmp_path).save(
        RunState(Config(), 0, {"mlp": {"x": np.ones(1)}}, releases=releases)
    )
    loaded = RunState.load(tmp_path).releases
    assert time.perf_counter() - started < 20  # a second or two on an idle machine
    assert list(loaded) == list(releases)
    assert all(
        np.array_equal(loaded[name].arrays["values"], values + i)
        for i, name in enumerate(releases)
    )
