"""Federated learning with public auxiliary data: FedAUX and its rivals on Flower, with
a true privacy statement.

Everything a command does is a function here. `__all__` is the public interface
(docs/stability.md); modules may move.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedaux.audit.run import audit_site as audit_site
    from fedaux.config.methods import METHODS as METHODS
    from fedaux.config.methods import Method as Method
    from fedaux.config.parsing import ConfigError as ConfigError
    from fedaux.config.schema import Config as Config
    from fedaux.core.errors import FedauxError as FedauxError
    from fedaux.core.memory import reuse_memory as reuse_memory
    from fedaux.core.progress import ProgressEvent as ProgressEvent
    from fedaux.core.progress import RoundFinished as RoundFinished
    from fedaux.core.results import RoundResult as RoundResult
    from fedaux.data.adapters import from_huggingface as from_huggingface
    from fedaux.data.adapters import from_torch as from_torch
    from fedaux.data.federated import open_data as open_data
    from fedaux.data.records import Corpus as Corpus
    from fedaux.data.records import Records as Records
    from fedaux.data.sources import open_source as open_source
    from fedaux.export.export import export_model as export_model
    from fedaux.export.model import Model as Model
    from fedaux.methods.hooks import ClientUpdate as ClientUpdate
    from fedaux.methods.hooks import Hooks as Hooks
    from fedaux.models import Extractor as Extractor
    from fedaux.models import register as register
    from fedaux.privacy.mechanism import GRID as GRID
    from fedaux.privacy.mechanism import UNIT_SENSITIVITY as UNIT_SENSITIVITY
    from fedaux.privacy.mechanism import Summary as Summary
    from fedaux.privacy.mechanism import quantize as quantize
    from fedaux.privacy.mechanism import unit_rows as unit_rows
    from fedaux.privacy.module_validation import per_record_safe as per_record_safe
    from fedaux.report.comparison_page import write_report as write_report
    from fedaux.runs.callbacks import Callback as Callback
    from fedaux.runs.callbacks import make_callbacks as make_callbacks
    from fedaux.runs.result import Result as Result
    from fedaux.runs.runner import planner as planner
    from fedaux.runs.runner import pretrain as pretrain
    from fedaux.runs.runner import resume as resume
    from fedaux.runs.runner import run as run
    from fedaux.scoring.base import Fitted as Fitted
    from fedaux.scoring.base import Scorer as Scorer
    from fedaux.scoring.base import check_shapes as check_shapes
    from fedaux.sweeps.compare import compare as compare
    from fedaux.sweeps.engine import run_sweep as run_sweep
    from fedaux.sweeps.grid import Sweep as Sweep
    from fedaux.sweeps.results import SweepResult as SweepResult
    from fedaux.sweeps.results import write_results as write_results
    from fedaux.sweeps.tuning import tune as tune

__version__ = "0.1.0"

_HOMES = {
    "Callback": "runs.callbacks",
    "ClientUpdate": "methods.hooks",
    "Config": "config.schema",
    "ConfigError": "config.parsing",
    "Corpus": "data.records",
    "Extractor": "models",
    "FedauxError": "core.errors",
    "Fitted": "scoring.base",
    "GRID": "privacy.mechanism",
    "Hooks": "methods.hooks",
    "METHODS": "config.methods",
    "Method": "config.methods",
    "Model": "export.model",
    "ProgressEvent": "core.progress",
    "Records": "data.records",
    "Result": "runs.result",
    "RoundFinished": "core.progress",
    "RoundResult": "core.results",
    "Scorer": "scoring.base",
    "Summary": "privacy.mechanism",
    "Sweep": "sweeps.grid",
    "SweepResult": "sweeps.results",
    "UNIT_SENSITIVITY": "privacy.mechanism",
    "audit_site": "audit.run",
    "check_shapes": "scoring.base",
    "compare": "sweeps.compare",
    "export_model": "export.export",
    "from_huggingface": "data.adapters",
    "from_torch": "data.adapters",
    "per_record_safe": "privacy.module_validation",
    "make_callbacks": "runs.callbacks",
    "open_data": "data.federated",
    "open_source": "data.sources",
    "planner": "runs.runner",
    "pretrain": "runs.runner",
    "quantize": "privacy.mechanism",
    "register": "models",
    "resume": "runs.runner",
    "reuse_memory": "core.memory",
    "run": "runs.runner",
    "run_sweep": "sweeps.engine",
    "tune": "sweeps.tuning",
    "unit_rows": "privacy.mechanism",
    "write_report": "report.comparison_page",
    "write_results": "sweeps.results",
}
__all__ = sorted(_HOMES)


def __dir__() -> list[str]:
    """For completion at a prompt, which would not see names before their first use."""
    return sorted({*globals(), *__all__})


def __getattr__(name: str) -> Any:
    """Import a name at its first use: torch and Flower take seconds to import, and
    `fedaux --help` needs neither.
    """
    if name not in _HOMES:
        raise AttributeError(f"module 'fedaux' has no attribute {name!r}")
    return getattr(import_module(f"fedaux.{_HOMES[name]}"), name)
