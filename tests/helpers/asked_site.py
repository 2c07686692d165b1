"""A site with records of its own that answers every kind of order, and orders that pass
its gate.

Its records are nowhere: whoever reads them fails.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedaux.client.site import Site
from fedaux.config.prototype import PrototypeSpec
from fedaux.config.schema import Config
from helpers.audited_sites import with_own_sends
from helpers.samples import prepare_order, sums_order, train_order

NETWORK = PrototypeSpec.of("mlp", hidden=4, features=4, norm="none")
RELEASE = prepare_order(
    prototype=NETWORK.to_json(), scorer="class-embedding", classes=2
)
SUMS = sums_order(prototype=NETWORK.to_json())
TRAIN = train_order(prototype=NETWORK.to_json(), classes=2, method="fedaux")


def asked_site(
    folder: Path, federation: Mapping[str, Any] | None = None, **changes: Any
) -> Site:
    """A site that scores, sums up features and trains; its vault is in `folder`."""
    facts: dict[str, Any] = {
        "method": "fedaux",
        "head_init": "ridge",
        "prototypes": [{"name": NETWORK.name, **dict(NETWORK.options)}],
        "data": {
            "source": "npy",
            "path": "/nowhere",
            "classes": ["ill", "well"],
            "partition": "own",
        },
        "aux": {"source": "npy", "path": "/nowhere"},
        "teachers": {"run_on": "clients"},
        "privacy": {"epsilon": 1.0},
        "federation": {"sites": ["a"], **(federation or {})},
    }
    config = Config.from_dict({**facts, **changes})
    return Site(with_own_sends(config), folder / "vault", ("a",))
