"""The server of one region in a Flower run: it serves a merging one, `fedaux run CONFIG --out FOLDER --regions 2`.

    flwr run . north --run-config 'config="/path/fedaux.toml" out="/path/run" region="1/2"'

`out` is the folder of the merging server's run, which both see.
"""

from __future__ import annotations

from pathlib import Path

from fedaux.algorithms.regions import Part, Region
from fedaux.algorithms.server import make_server
from fedaux.config.schema import Config
from fedaux.experiments.folders import stored_state
from fedaux.flower.server_app import Connect, regional_app
from fedaux.report.progress import print_progress


def main(config: Config, folder: Path, part: Part, connect: Connect) -> None:
    server = make_server(config, print_progress, state=stored_state(config, folder))
    Region(server, connect(server), folder, part).serve()
    print(f"region {part.number} of {part.count}: all rounds are done", flush=True)


app = regional_app(main)
