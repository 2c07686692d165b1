"""Federated learning with public auxiliary data: FedAUX and its rivals on Flower, with a true privacy statement."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedaux.config import Config as Config
    from fedaux.data.records import Corpus as Corpus
    from fedaux.data.records import Records as Records
    from fedaux.experiment import Result as Result
    from fedaux.experiment import resume as resume
    from fedaux.experiment import run as run
    from fedaux.methods import METHODS as METHODS
    from fedaux.parsing import ConfigError as ConfigError
    from fedaux.prototypes import register as register

__version__ = "0.1.0"

_HOMES = {
    "Config": "config",
    "ConfigError": "parsing",
    "Corpus": "data.records",
    "METHODS": "methods",
    "Records": "data.records",
    "Result": "experiment",
    "register": "prototypes",
    "resume": "experiment",
    "run": "experiment",
}
__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    """Names are fetched when first used: torch and Flower take seconds to import, `fedaux --help` should not."""
    if name not in _HOMES:
        raise AttributeError(f"module 'fedaux' has no attribute {name!r}")
    return getattr(import_module(f"fedaux.{_HOMES[name]}"), name)
