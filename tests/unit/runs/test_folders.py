"""What a folder holds, which folder a run gets, and what is said after Ctrl-C."""

from dataclasses import replace
from pathlib import Path

import pytest

from fedaux.config.sections import FederationConfig
from fedaux.runs.folders import how_to_continue, numbered_folder, stored_state
from fedaux.server.run_state import STATE_FILE, StateError
from fedaux.server.run_writer import RunWriter
from helpers.runs import finished_run, finished_state
from helpers.tiny import TINY_CONFIG


def test_a_folder_without_a_run_has_no_state(tmp_path: Path) -> None:
    assert stored_state(TINY_CONFIG, tmp_path / "new") is None
    assert stored_state(TINY_CONFIG, tmp_path) is None
    (tmp_path / "file").write_text("")
    with pytest.raises(StateError, match=r"is a file\. Give --out another folder"):
        stored_state(TINY_CONFIG, tmp_path / "file")


def test_the_same_run_goes_on_also_with_more_rounds_or_more_patience(
    tmp_path: Path,
) -> None:
    finished_run(tmp_path)
    for config in (
        TINY_CONFIG,
        replace(TINY_CONFIG, rounds=5),
        replace(TINY_CONFIG, federation=FederationConfig(timeout=7)),
        replace(TINY_CONFIG, device="cpu"),
    ):
        state = stored_state(config, tmp_path)
        assert state is not None
        assert (state.round, state.config) == (2, config)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"seed": 1}, "it differs in seed. Choose a new folder"),
        ({"rounds": 1}, "it differs in rounds"),
        ({"rounds": 4, "method": "feddf"}, "it differs in method, rounds"),
    ],
)
def test_another_run_in_the_folder_is_refused(
    tmp_path: Path, change: dict[str, object], words: str
) -> None:
    finished_run(tmp_path)
    with pytest.raises(StateError, match=words):
        stored_state(replace(TINY_CONFIG, **change), tmp_path)  # type: ignore[arg-type]


def test_a_run_gets_the_first_folder_that_is_free_or_its_own(tmp_path: Path) -> None:
    usual, other, third = (
        tmp_path / "run",
        replace(TINY_CONFIG, seed=1),
        replace(TINY_CONFIG, seed=2),
    )
    assert numbered_folder(usual, TINY_CONFIG) == usual
    finished_run(usual)
    assert numbered_folder(usual, TINY_CONFIG) == usual
    assert numbered_folder(usual, replace(TINY_CONFIG, rounds=9)) == usual
    assert numbered_folder(usual, other) == tmp_path / "run-2"
    finished_run(tmp_path / "run-2", other)
    assert numbered_folder(usual, other) == tmp_path / "run-2"
    assert numbered_folder(usual, third) == tmp_path / "run-3"
    (usual / STATE_FILE).write_bytes(b"damaged")
    assert numbered_folder(usual, third) == tmp_path / "run-3"


def test_what_is_said_after_an_interrupt_is_true_in_every_phase(tmp_path: Path) -> None:
    assert "before the first round" in how_to_continue(tmp_path)
    assert "resume" not in how_to_continue(tmp_path)  # there is nothing to resume yet
    state = finished_state(replace(TINY_CONFIG, rounds=3))
    for rounds, words in (
        (0, "continues with round 1"),
        (2, "continues after round 2 of 3"),
        (3, "fedaux report"),
    ):
        folder = tmp_path / str(rounds)
        RunWriter(folder).save(
            replace(state, round=rounds, history=state.history[:rounds])
        )
        assert words in how_to_continue(folder)
        assert (f"fedaux resume {folder}" in how_to_continue(folder)) == (rounds < 3)
