"""Folders of runs: which one a run gets, whether it is in there already, and how it
continues after Ctrl-C.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from pathlib import Path

from fedaux.config.schema import Config
from fedaux.server.run_state import STATE_FILE, RunState, StateError


def stored_state(config: Config, folder: Path) -> RunState | None:
    """Return the state of the run in the folder, which may have fewer rounds than
    `config`, or None if there is none.
    """
    if not (folder / STATE_FILE).is_file():
        if folder.exists() and not folder.is_dir():
            raise StateError(
                f"Cannot run in {folder}: it is a file. Give --out another folder."
            )
        return None
    state = RunState.load(folder)
    differing = differing_settings(state, config)
    if differing:
        raise StateError(
            f"Cannot run: {folder} holds another run, because it differs in "
            f"{', '.join(differing)}. Choose a new folder."
        )
    return replace(state, config=config)


def differing_settings(state: RunState, config: Config) -> list[str]:
    """List the settings in which the runs differ. More rounds, another device or other
    patience are allowed.
    """
    old = state.config.to_dict()
    new = config.to_dict()
    differing = [
        key
        for key in new
        if new[key] != old[key] and key not in ("federation", "device")
    ]
    if differing == ["rounds"] and config.rounds >= state.round:
        return []
    return differing


def numbered_folder(folder: Path, config: Config) -> Path:
    """The folder, or the first of folder-2, folder-3, … that is free or holds this very
    run.
    """
    for number in count(1):
        path = folder if number == 1 else folder.with_name(f"{folder.name}-{number}")
        if not (path / STATE_FILE).is_file():
            return path
        try:
            if not differing_settings(RunState.load(path), config):
                return path
        except StateError:
            continue  # damaged, or of another version: it is left alone
    raise AssertionError("there is always another number")


def how_to_continue(folder: Path) -> str:
    """Return what to tell the user about an interrupted run."""
    try:
        state = RunState.load(folder)
    except (StateError, OSError):
        return (
            "Stopped before the first round. The same command starts again, with what "
            "is in the cache: decoded images, and every epoch of pre-training that was "
            "finished."
        )
    if state.round >= state.config.rounds:
        return (
            f"Stopped. All rounds are finished. `fedaux report {folder}` writes the "
            "report."
        )
    after = "with round 1, which is prepared"
    if state.round:
        after = f"after round {state.round} of {state.config.rounds}"
    return f"Stopped. The same command, or `fedaux resume {folder}`, continues {after}."
