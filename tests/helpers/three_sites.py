"""A federation of three small sites that are ready to be started, killed and started
again.
"""

import json
from pathlib import Path

from fedaux import Config
from fedaux.config.distillation import DistillConfig
from fedaux.config.prototype import PrototypeSpec
from fedaux.config.sections import (
    DataConfig,
    FederationConfig,
    PretrainConfig,
    PrivacyConfig,
)
from fedaux.privacy.account_file import read_account
from fedaux.server.run_state import RunState
from helpers.audited_sites import with_own_sends
from helpers.harness import Servers
from helpers.slow_training import FOLDER

CONFIG = Config(
    rounds=2,
    prototypes=(PrototypeSpec.of("mlp", hidden=32, features=16),),
    data=DataConfig(clients=3, alpha=0.1),
    pretrain=PretrainConfig(epochs=1, batch_size=128, flip=False),
    distill=DistillConfig(epochs=1, lr=1e-3),
    privacy=PrivacyConfig(epsilon=1.0, embedding_dim=8),
    federation=FederationConfig(connect_timeout=600, timeout=180, reconnect_timeout=60),
)
SITES = ["client-000", "client-001", "client-002"]


class Federation:
    """Three sites of one SuperLink, each with a vault of its own."""

    def __init__(self, folder: Path, servers: Servers, config: Config) -> None:
        self.folder, self.servers, self.config = folder, servers, config
        self.file, self.site_file = folder / "config.json", folder / "site.json"
        self.file.write_text(json.dumps(config.to_dict()))
        self.site_file.write_text(json.dumps(with_own_sends(config).to_dict()))
        # by process, where it is slow
        self.out, self.training = folder / "run", folder / "training"
        self.training.mkdir(exist_ok=True)
        servers.environment[FOLDER] = str(self.training)

    def site(self, name: str, **changes: str) -> None:
        vault = str(self.folder / "vaults")
        self.servers.node(
            name,
            {"config": str(self.site_file), "vault": vault, "clients": name, **changes},
        )

    def up(self) -> None:
        self.servers.superlink()
        for name in SITES:
            if not self.servers.plain:
                self.servers.register(name)
            self.site(name)

    def begin(
        self, name: str = "run", client: str = "fedaux.flower.client_app:app"
    ) -> None:
        self.servers.run(self.file, self.out, name, client=client)

    def spent(self, name: str) -> list[str]:
        """What the site's account has: one entry for each release that was ever
        begun.
        """
        return [
            entry.request
            for entry in read_account(self.folder / "vaults" / name)[1]
            if entry.mechanism.steps
        ]


CLIENT_APP = "fedaux.flower.client_app:app"


def run_to_the_end(
    folder: Path,
    config: Config,
    plain: bool = False,
    simulation: bool = False,
    client: str = CLIENT_APP,
) -> tuple[RunState, str]:
    """(state, log) of a run of three SuperNodes, or of Flower's simulation, which ended
    in `folder / "run"`.
    """
    with Servers(folder / "servers", plain=plain or simulation) as servers:
        made = Federation(folder, servers, config)
        if simulation:
            servers.superlink("--simulation")
            nodes = (
                "real",
                "--federation-config",
                "num-supernodes=3 client-resources-num-cpus=1",
            )
            servers.run(made.file, made.out, connection=nodes)
        else:
            made.up()
            made.begin(client=client)
        log = servers.finish()
    return RunState.load(made.out), log
