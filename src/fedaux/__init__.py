"""Federated learning with public auxiliary data: FedAUX and its rivals on Flower, with a true privacy statement.

Everything a command does is a function here. These names are stable; modules below may move.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedaux.algorithms.results import Result as Result
    from fedaux.config.methods import METHODS as METHODS
    from fedaux.config.parsing import ConfigError as ConfigError
    from fedaux.config.schema import Config as Config
    from fedaux.core.errors import FedauxError as FedauxError
    from fedaux.data.records import Corpus as Corpus
    from fedaux.data.records import Records as Records
    from fedaux.deploy.audit.run import audit_client as audit_client
    from fedaux.experiments.runner import planner as planner
    from fedaux.experiments.runner import pretrain as pretrain
    from fedaux.experiments.runner import resume as resume
    from fedaux.experiments.runner import run as run
    from fedaux.experiments.sweeps.comparison import compare as compare
    from fedaux.experiments.sweeps.engine import run_sweep as run_sweep
    from fedaux.experiments.sweeps.grid import Sweep as Sweep
    from fedaux.experiments.tracking import Tracker as Tracker
    from fedaux.experiments.tracking import make_trackers as make_trackers
    from fedaux.export.export import export_model as export_model
    from fedaux.export.model import Model as Model
    from fedaux.models import register as register
    from fedaux.privacy.module_validation import keeps_records_apart as keeps_records_apart
    from fedaux.report.write import write_report as write_report

__version__ = "0.1.0"

_HOMES = {
    "Config": "config.schema",
    "ConfigError": "config.parsing",
    "Corpus": "data.records",
    "FedauxError": "core.errors",
    "METHODS": "config.methods",
    "Model": "export.model",
    "Records": "data.records",
    "Result": "algorithms.results",
    "Sweep": "experiments.sweeps.grid",
    "Tracker": "experiments.tracking",
    "audit_client": "deploy.audit.run",
    "compare": "experiments.sweeps.comparison",
    "export_model": "export.export",
    "keeps_records_apart": "privacy.module_validation",
    "make_trackers": "experiments.tracking",
    "planner": "experiments.runner",
    "pretrain": "experiments.runner",
    "register": "models",
    "resume": "experiments.runner",
    "run": "experiments.runner",
    "run_sweep": "experiments.sweeps.engine",
    "write_report": "report.write",
}
__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    """Names are fetched when first used: torch and Flower take seconds to import, `fedaux --help` should not."""
    if name not in _HOMES:
        raise AttributeError(f"module 'fedaux' has no attribute {name!r}")
    return getattr(import_module(f"fedaux.{_HOMES[name]}"), name)
