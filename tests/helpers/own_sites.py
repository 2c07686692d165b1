"""Three real sites in this process: own records, vaults, rosters and keys, and owners
who are asked.

Orders travel as messages. Each site has a folder of its own below `folder`, as on a
disk of its own.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from fedaux import Config
from fedaux.client.approvals import ApprovalLog, LogEntry
from fedaux.config.sections import AuxConfig, DataConfig
from fedaux.core.progress import OnProgress, no_progress, report_to
from fedaux.data.federated import open_data
from fedaux.data.records import Records
from fedaux.flower.client_app import app
from fedaux.flower.federation import GridFederation
from fedaux.flower.in_process import InProcessGrid
from fedaux.messages import Federation
from fedaux.privacy.account_file import Entry, read_account
from fedaux.privacy.mechanism import Bounds
from fedaux.privacy.roster import make_signing_key, write_roster
from fedaux.scoring.base import bound_function
from fedaux.server.loop import run as run_rounds
from fedaux.server.run_state import RunState
from fedaux.server.run_writer import RunWriter
from fedaux.server.server import make_server
from helpers.audited_sites import with_own_sends

NAMES = ("north", "south", "west")
CLASSES = tuple(map(str, range(10)))


def write_images(folder: Path, records: Records) -> None:
    folder.mkdir(parents=True)
    np.save(folder / "x.npy", records.gather())
    np.save(folder / "y.npy", records.labels)


@dataclass
class OwnSites:
    """The sites, and their server's settings; `own` are a site's settings where they
    differ from these.
    """

    folder: Path
    config: Config
    own: dict[str, Config] = field(default_factory=dict)

    @classmethod
    def of(cls, folder: Path, config: Config, **of_sites: object) -> OwnSites:
        """Write the records of digits, split as `config` says, and the rosters of all
        sites.

        `of_sites` are settings of `federation` that sites have and their server does
        not.
        """
        split = open_data(
            replace(config, data=replace(config.data, clients=len(NAMES)))
        )
        for number, name in enumerate(NAMES):
            records = split.client(number)
            write_images(folder / name / "records", records)
        write_images(folder / "test", split.test)
        (folder / "public").mkdir()
        np.save(folder / "public" / "x.npy", split.aux.gather())
        federation = replace(config.federation, sites=NAMES)
        data = DataConfig("npy", str(folder / "test"), classes=CLASSES, partition="own")
        aux = AuxConfig("npy", str(folder / "public"))
        made = cls(folder, replace(config, data=data, aux=aux, federation=federation))
        for name in NAMES:
            here = replace(data, path=str(folder / name / "records"))
            asked = replace(federation, **of_sites)  # type: ignore[arg-type]
            made.own[name] = with_own_sends(
                replace(made.config, data=here, federation=asked)
            )
        roster = {name: make_signing_key(made.vault(name)) for name in NAMES}
        for home in (folder, *map(made.vault, NAMES)):
            write_roster(home / "roster.json", roster)
        return made

    def vault(self, name: str) -> Path:
        return self.folder / name / "vault"

    def log(self, name: str) -> ApprovalLog:
        return ApprovalLog(self.vault(name))

    def approve(self, name: str) -> list[LogEntry]:
        """Approve everything that waits for a site's owner, and return what that
        was.
        """
        pending = self.log(name).pending()
        for proposal in pending:
            self.log(name).decide(proposal.id[:12], "approved", "owner")
        return pending

    def entries(self, name: str) -> list[Entry]:
        """What a site has entered in its account, at some cost."""
        _, entries = read_account(self.vault(name))
        return [entry for entry in entries if entry.mechanism.steps > 0]

    def federation(self, bounds: Bounds | None) -> GridFederation:
        """Connect to the sites: each node has settings of its own."""
        grid = InProcessGrid(app, len(NAMES), {})
        nodes = dict(zip(NAMES, grid.get_node_ids(), strict=True))
        for name, node in nodes.items():
            settings = {
                "config": json.dumps(self.own[name].to_dict()),
                "vault": str(self.vault(name)),
                "clients": name,
            }
            grid.context(node).node_config.update(settings)
        return GridFederation(grid, nodes, bounds=bounds)

    def run(
        self,
        wrap: Callable[[Federation], Federation] = lambda federation: federation,
        on_progress: OnProgress = no_progress,
    ) -> RunState:
        """Run to the end, or go on with what is in the folder; `wrap` stands between
        the server and the sites.
        """
        folder = self.folder / "run"
        folder.mkdir(exist_ok=True)
        saved = (
            RunState.load(folder) if (folder / "state.safetensors").exists() else None
        )
        with report_to(on_progress):
            server = make_server(self.config, self.folder / "cache", saved)
            server = server.in_folder(folder)
            federation = wrap(self.federation(bound_function(server.scorer)))
            return run_rounds(server, federation, saved, RunWriter(folder, saved).save)
