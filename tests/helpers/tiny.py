"""A run of about a second on the bundled digits: as a table, as a TOML file and as a
config.
"""

from typing import Any

from fedaux.config.prototype import PrototypeSpec
from fedaux.config.schema import Config
from fedaux.config.toml import to_commented_toml

# with buffers and counters
MLP = PrototypeSpec.of("mlp", features=8, hidden=8, norm="batch")
CNN = PrototypeSpec.of("cnn", features=8, width=4)
TINY: dict[str, Any] = {
    "rounds": 2,
    "head_init": "random",
    "local": {"epochs": 1},
    "distill": {"epochs": 1},
    "prototypes": [{"name": MLP.name, **dict(MLP.options)}],
    "data": {"clients": 3, "alpha": 1.0},
    "aux": {"limit": 100},
    "pretrain": {"epochs": 0},
}
TINY_CONFIG = Config.from_dict(TINY)
TINY_TOML = to_commented_toml(TINY_CONFIG, "", {})
