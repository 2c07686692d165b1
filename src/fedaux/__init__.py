"""Federated learning with public auxiliary data: FedAUX and its rivals on Flower, with a true privacy statement.

Everything a command does is a function here. These names are stable; modules below may move.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedaux.audit.run import audit_client as audit_client
    from fedaux.config import Config as Config
    from fedaux.data.records import Corpus as Corpus
    from fedaux.data.records import Records as Records
    from fedaux.errors import FedauxError as FedauxError
    from fedaux.experiment import Result as Result
    from fedaux.experiment import planner as planner
    from fedaux.experiment import pretrain as pretrain
    from fedaux.experiment import resume as resume
    from fedaux.experiment import run as run
    from fedaux.methods import METHODS as METHODS
    from fedaux.models.export import export as export
    from fedaux.models.model import Model as Model
    from fedaux.parsing import ConfigError as ConfigError
    from fedaux.privacy.apart import keeps_records_apart as keeps_records_apart
    from fedaux.prototypes import register as register
    from fedaux.report.write import write_report as write_report
    from fedaux.sweeps.comparison import compare as compare
    from fedaux.sweeps.engine import run_sweep as run_sweep
    from fedaux.sweeps.grid import Sweep as Sweep
    from fedaux.tracking import Tracker as Tracker
    from fedaux.tracking import make_trackers as make_trackers

__version__ = "0.1.0"

_HOMES = {
    "Config": "config",
    "ConfigError": "parsing",
    "Corpus": "data.records",
    "FedauxError": "errors",
    "METHODS": "methods",
    "Model": "models.model",
    "Records": "data.records",
    "Result": "experiment",
    "Sweep": "sweeps.grid",
    "Tracker": "tracking",
    "audit_client": "audit.run",
    "compare": "sweeps.comparison",
    "export": "models.export",
    "keeps_records_apart": "privacy.apart",
    "make_trackers": "tracking",
    "planner": "experiment",
    "pretrain": "experiment",
    "register": "prototypes",
    "resume": "experiment",
    "run": "experiment",
    "run_sweep": "sweeps.engine",
    "write_report": "report.write",
}
__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    """Names are fetched when first used: torch and Flower take seconds to import, `fedaux --help` should not."""
    if name not in _HOMES:
        raise AttributeError(f"module 'fedaux' has no attribute {name!r}")
    return getattr(import_module(f"fedaux.{_HOMES[name]}"), name)
