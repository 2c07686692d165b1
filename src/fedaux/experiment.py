"""A whole run on this machine: data from the config, clients in process, everything it makes in one folder."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path

from fedaux.config import Config
from fedaux.data.federated import FederatedData, open_data
from fedaux.files import cache_folder, write_atomically
from fedaux.privacy.ledger import statement
from fedaux.rounds import run as run_rounds
from fedaux.runtime.client import app
from fedaux.runtime.federation import GridFederation
from fedaux.runtime.inprocess import InProcessGrid
from fedaux.server import Server, Tell
from fedaux.state import FILE, Record, RunState


@dataclass(frozen=True, eq=False)
class Result:
    """A finished run: its last state, and the figures people ask for."""

    state: RunState
    folder: Path

    @property
    def curve(self) -> list[float]:
        """Test accuracy after each round, the mean over prototypes."""
        return [mean_accuracy(record) for record in self.state.history]

    @property
    def accuracy(self) -> float:
        """After the last round: not the best round, which only the test labels could have chosen."""
        return self.curve[-1]

    @property
    def privacy(self) -> str:
        return statement(list(self.state.releases.values()))


def mean_accuracy(record: Record) -> float:
    return float(sum(record["accuracy"].values()) / len(record["accuracy"]))


def run(config: Config, folder: str | Path, *, tell: Tell | None = None, cache: Path | None = None) -> Result:
    """Run `config` in `folder`, or go on with the run that is already there if it is the same one."""
    folder = Path(folder)
    state = RunState.load(folder) if (folder / FILE).is_file() else None
    if state is not None:
        state = _continued(state, config, folder)
    elif folder.exists() and not folder.is_dir():
        raise NotADirectoryError(f"{folder} is a file; --out needs a folder of its own")
    data = open_data(config)
    server = _server(config, data, tell, cache)

    def save(state: RunState) -> None:
        state.save(folder)
        write_atomically(folder / "history.json", json.dumps(state.history, indent=1).encode())
        done = len(state.history)
        note = f"accuracy {mean_accuracy(state.history[-1]):.3f}" if done else "prepared"
        server.tell(server.method.label, done, config.rounds, note)

    return Result(run_rounds(server, in_process(config, data, folder), state, save), folder)


def _server(config: Config, data: FederatedData, tell: Tell | None, cache: Path | None) -> Server:
    server = Server(config, data.aux, data.test, len(data.classes), data.clients, cache or cache_folder())
    if tell is not None:
        server.tell = tell
    return server


def _continued(state: RunState, config: Config, folder: Path) -> RunState:
    """The stored run under this config: the same one, or the same with more rounds."""
    old, new = state.config.to_dict(), config.to_dict()
    differing = [key for key in new if new[key] != old[key]]
    if differing and (differing != ["rounds"] or config.rounds < state.round):
        raise FileExistsError(f"{folder} holds another run: it differs in {', '.join(differing)}. Choose a new folder.")
    return replace(state, config=config)


def prepare(config: Config, *, tell: Tell | None = None, cache: Path | None = None) -> dict[str, Path]:
    """P1 alone: train the extractor of every prototype, or find it; a later `run` takes it up from the same cache."""
    data = open_data(config)
    server = _server(config, data, tell, cache)
    return {spec.label: server.pretrain(spec) for spec in config.prototypes}


def resume(folder: str | Path, *, tell: Tell | None = None, cache: Path | None = None) -> Result:
    """Go on where a stopped run left off; a finished one is simply read."""
    return run(RunState.load(Path(folder)).config, folder, tell=tell, cache=cache)


def in_process(config: Config, data: FederatedData, folder: Path) -> GridFederation:
    """The clients of this machine. Each keeps its releases below `folder`, as a site would on its own disk."""
    settings = {"config": json.dumps(config.to_dict()), "vault": str(folder / "clients")}
    grid = InProcessGrid(app, len(data.parts), settings)
    return GridFederation(grid, dict(zip(data.clients, grid.get_node_ids(), strict=True)))
