"""Regional servers over scripted clients, and a merging one: the same run as one server
with all clients.
"""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedaux import Config
from fedaux.messages import PrepareOrder, TrainOrder
from fedaux.server import regions as regions_module
from fedaux.server.loop import run
from fedaux.server.regions import (
    REGIONS_FOLDER,
    Region,
    RegionError,
    Regions,
    RegionSpec,
)
from fedaux.server.run_state import RunState
from fedaux.server.run_writer import RunWriter
from helpers.scripted import (
    CLIENTS,
    CONFIG,
    MLP,
    WIDE,
    Answer,
    Scripted,
    fails,
    make_server,
)


def regional(
    folder: Path, config: Config, count: int, script: dict[str, Answer]
) -> list[tuple[Region, Scripted]]:
    made = []
    for number in range(1, count + 1):
        federation = Scripted(script)
        made.append(
            (
                Region(
                    make_server(config), federation, folder, RegionSpec(number, count)
                ),
                federation,
            )
        )
    return made


def merged(
    folder: Path,
    config: Config = CONFIG,
    count: int = 2,
    script: dict[str, Answer] | None = None,
) -> tuple[RunState, list[tuple[Region, Scripted]]]:
    """While the merging server waits, every region looks once for something to do."""
    made = regional(folder, config, count, script or {})
    regions = Regions(
        folder, count, wait=lambda: [region.step() for region, _ in made] and None
    )
    state = run(make_server(config), regions, None, RunWriter(folder).save)
    regions.end()
    return state, made


def assert_same(one: RunState, other: RunState) -> None:
    """All but how long it took: weights to the bit."""
    assert one.weights.keys() == other.weights.keys()
    for label, arrays in one.weights.items():
        for name, array in arrays.items():
            assert np.array_equal(array, other.weights[label][name])
    assert (one.accounts, one.prepared, one.awaiting_reply) == (
        other.accounts,
        other.prepared,
        other.awaiting_reply,
    )
    assert sorted(one.releases) == sorted(other.releases)
    for mine, theirs in zip(one.history, other.history, strict=True):
        ordered = sorted(theirs.failures, key=lambda failure: failure.client)
        failures = sorted(mine.failures, key=lambda failure: failure.client)
        assert replace(mine, seconds={}, failures=failures) == replace(
            theirs, seconds={}, failures=ordered
        )


VARIANTS = {
    "fedaux": CONFIG,
    "two prototypes": replace(CONFIG, prototypes=(MLP, WIDE)),
    "fedbe": replace(CONFIG, method="fedbe"),
    # with a state of its own at the server
    "fedavgm": replace(CONFIG, method="fedavgm"),
    "some of them": replace(CONFIG, rounds=5, fraction=0.5),
}


@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("variant", VARIANTS)
def test_regions_end_in_the_bits_of_one_server(
    variant: str, count: int, tmp_path: Path
) -> None:
    config = VARIANTS[variant]
    alone = run(make_server(config), Scripted(), None, lambda state: None)
    state, made = merged(tmp_path, config, count)
    assert_same(state, alone)
    parts = [
        RegionSpec(number, count).clients(CLIENTS) for number in range(1, count + 1)
    ]
    # each asked its own clients, and no others
    for part, (_, federation) in zip(parts, made, strict=True):
        assert {order.client for order in federation.asked} <= set(part)


def test_failures_are_those_of_one_server(tmp_path: Path) -> None:
    script = {"b": fails(TrainOrder, 1), "d": fails(PrepareOrder)}
    alone = run(make_server(CONFIG), Scripted(script), None, lambda state: None)
    state, _ = merged(tmp_path, script=script)
    assert_same(state, alone)
    assert {failure.client for failure in state.history[0].failures} == {"b", "d"}


def test_a_region_waits_for_a_request_answers_once_and_ends_with_the_run(
    tmp_path: Path,
) -> None:
    ((region, federation),) = regional(tmp_path, CONFIG, 1, {})
    assert region.step() is False  # nothing is asked yet
    _, made = merged(tmp_path)
    asked = [len(federation.asked) for _, federation in made]
    assert all(region.step() for region, _ in made)  # the end, however often it looks
    assert [len(federation.asked) for _, federation in made] == asked
    assert federation.asked == []
    left = [path.name for path in (tmp_path / REGIONS_FOLDER).iterdir()]
    assert len(left) == 1  # the end: nothing piles up
    ((longer, _),) = regional(tmp_path, replace(CONFIG, rounds=3), 1, {})
    assert longer.step() is False  # for a run that is longer, that was not the end


class StoppedError(Exception):
    pass


def stop_at(
    request: int, folder: Path, then: Callable[[], object]
) -> Callable[[], None]:
    def wait() -> None:
        if (folder / REGIONS_FOLDER / f"{request:06d}.json").exists():
            raise StoppedError
        then()

    return wait


def test_servers_that_are_stopped_go_on_to_the_same_bits(tmp_path: Path) -> None:
    """The merging one while it waits for round 2, and one region for good: another
    process takes its place.
    """
    alone = run(make_server(CONFIG), Scripted(), None, lambda state: None)
    made = regional(tmp_path, CONFIG, 2, {})
    wait = stop_at(3, tmp_path, lambda: [region.step() for region, _ in made])
    with pytest.raises(StoppedError):
        run(
            make_server(CONFIG),
            Regions(tmp_path, 2, wait),
            None,
            RunWriter(tmp_path).save,
        )
    made[0][0].step()  # answers the request that nobody waits for any more
    made[1] = regional(tmp_path, CONFIG, 2, {})[1]
    saved = RunState.load(tmp_path)
    assert saved.round == 1
    regions = Regions(
        tmp_path, 2, lambda: [region.step() for region, _ in made] and None
    )
    assert_same(
        run(make_server(CONFIG), regions, saved, RunWriter(tmp_path, saved).save), alone
    )


def test_a_request_that_gives_way_to_a_newer_one_is_not_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A merging server that starts again takes the old one away, perhaps between the
    region's two looks.
    """
    _, made = merged(tmp_path)
    monkeypatch.setattr(regions_module, "_newest", lambda folder: 1)
    assert made[0][0].step() is False


@pytest.mark.parametrize("answered", [0, 1])
def test_a_server_whose_place_was_taken_asks_nobody_and_answers_nothing(
    tmp_path: Path, answered: int
) -> None:
    looks = 0

    def check() -> None:
        nonlocal looks
        looks += 1
        if looks > answered:
            raise StoppedError

    federation = Scripted({})
    region = Region(make_server(CONFIG), federation, tmp_path, RegionSpec(1, 1), check)
    with pytest.raises(StoppedError):
        run(
            make_server(CONFIG),
            Regions(tmp_path, 1, lambda: region.step() and None),
            None,
            RunWriter(tmp_path).save,
        )
    assert bool(federation.asked) == bool(answered)  # lost while it asked
    assert not RegionSpec(1, 1).answer(tmp_path, 1).is_file()


def test_a_damaged_request_is_an_error(tmp_path: Path) -> None:
    merged(tmp_path)
    (tmp_path / REGIONS_FOLDER / "000099.json").write_text("{")
    ((region, _),) = regional(tmp_path, CONFIG, 1, {})
    with pytest.raises(json.JSONDecodeError):
        region.step()


@pytest.mark.parametrize(("size", "count"), [(10, 3), (2, 5), (7, 1)])
def test_every_client_is_in_one_region(size: int, count: int) -> None:
    names = [str(number) for number in range(size)]
    parts = [RegionSpec(number, count).clients(names) for number in range(1, count + 1)]
    assert [name for part in parts for name in part] == names
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


@pytest.mark.parametrize("text", ["", "2", "0/2", "3/2", "1/2/3", "north"])
def test_what_is_no_region_is_refused(text: str) -> None:
    with pytest.raises(RegionError, match="1/2"):
        RegionSpec.parse(text)
    assert RegionSpec.parse("2/3") == RegionSpec(2, 3)
