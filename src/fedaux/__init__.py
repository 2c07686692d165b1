"""Federated learning with public auxiliary data: FedAUX and its rivals on Flower, with
a true privacy statement.

Everything a command does is a function here. `__all__` is the public interface
(docs/stability.md); modules may move.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedaux.audit.result import AttackResult as AttackResult
    from fedaux.audit.run import audit_site as audit_site
    from fedaux.config.distillation import DistillConfig as DistillConfig
    from fedaux.config.distillation import TeachersConfig as TeachersConfig
    from fedaux.config.methods import METHODS as METHODS
    from fedaux.config.methods import Method as Method
    from fedaux.config.parsing import ConfigError as ConfigError
    from fedaux.config.prototype import PrototypeSpec as PrototypeSpec
    from fedaux.config.schema import Config as Config
    from fedaux.config.sections import AuxConfig as AuxConfig
    from fedaux.config.sections import DataConfig as DataConfig
    from fedaux.config.sections import FederationConfig as FederationConfig
    from fedaux.config.sections import LocalConfig as LocalConfig
    from fedaux.config.sections import PretrainConfig as PretrainConfig
    from fedaux.config.sections import PrivacyConfig as PrivacyConfig
    from fedaux.core.accounts import Account as Account
    from fedaux.core.errors import Exit as Exit
    from fedaux.core.errors import FedauxError as FedauxError
    from fedaux.core.memory import reuse_memory as reuse_memory
    from fedaux.core.metrics import Evaluation as Evaluation
    from fedaux.core.progress import Notice as Notice
    from fedaux.core.progress import OrdersSent as OrdersSent
    from fedaux.core.progress import OwnersAwaited as OwnersAwaited
    from fedaux.core.progress import ProgressEvent as ProgressEvent
    from fedaux.core.progress import ReplyReceived as ReplyReceived
    from fedaux.core.progress import RoundFinished as RoundFinished
    from fedaux.core.progress import RunStarted as RunStarted
    from fedaux.core.progress import SitesLooked as SitesLooked
    from fedaux.core.progress import SweepProgress as SweepProgress
    from fedaux.core.progress import WorkProgress as WorkProgress
    from fedaux.core.results import ClientMetrics as ClientMetrics
    from fedaux.core.results import RoundResult as RoundResult
    from fedaux.data.adapters import from_huggingface as from_huggingface
    from fedaux.data.adapters import from_torch as from_torch
    from fedaux.data.federated import open_data as open_data
    from fedaux.data.records import Corpus as Corpus
    from fedaux.data.records import Records as Records
    from fedaux.data.sources import open_source as open_source
    from fedaux.data.tables import from_frame as from_frame
    from fedaux.export.classifier import Classifier as Classifier
    from fedaux.export.column_effects import ColumnEffect as ColumnEffect
    from fedaux.export.evaluation import evaluate_model as evaluate_model
    from fedaux.export.export import export_model as export_model
    from fedaux.export.model import Model as Model
    from fedaux.messages.replies import Release as Release
    from fedaux.methods.hooks import ClientUpdate as ClientUpdate
    from fedaux.methods.hooks import Hooks as Hooks
    from fedaux.methods.hooks import LocalWork as LocalWork
    from fedaux.models import Extractor as Extractor
    from fedaux.models import register as register
    from fedaux.models.registry import Prototype as Prototype
    from fedaux.privacy.accounting import Mechanism as Mechanism
    from fedaux.privacy.accounting import total_epsilon as total_epsilon
    from fedaux.privacy.ledger import Ledger as Ledger
    from fedaux.privacy.mechanism import GRID as GRID
    from fedaux.privacy.mechanism import UNIT_SENSITIVITY as UNIT_SENSITIVITY
    from fedaux.privacy.mechanism import Summary as Summary
    from fedaux.privacy.mechanism import quantize as quantize
    from fedaux.privacy.mechanism import unit_rows as unit_rows
    from fedaux.privacy.module_validation import per_record_safe as per_record_safe
    from fedaux.privacy.site_account import SiteAccount as SiteAccount
    from fedaux.report.arms import ArmResult as ArmResult
    from fedaux.report.comparison_page import write_report as write_report
    from fedaux.runs.callbacks import Callback as Callback
    from fedaux.runs.callbacks import make_callbacks as make_callbacks
    from fedaux.runs.planner import Planner as Planner
    from fedaux.runs.result import PrivacyStatement as PrivacyStatement
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
    from fedaux.sweeps.method_settings import MethodSettings as MethodSettings
    from fedaux.sweeps.results import SweepResult as SweepResult
    from fedaux.sweeps.results import write_results as write_results
    from fedaux.sweeps.tuning import tune as tune

__version__ = "0.1.0"

_HOMES = {
    "Account": "core.accounts",
    "ArmResult": "report.arms",
    "AttackResult": "audit.result",
    "AuxConfig": "config.sections",
    "Callback": "runs.callbacks",
    "Classifier": "export.classifier",
    "ClientMetrics": "core.results",
    "ClientUpdate": "methods.hooks",
    "ColumnEffect": "export.column_effects",
    "Config": "config.schema",
    "ConfigError": "config.parsing",
    "Corpus": "data.records",
    "DataConfig": "config.sections",
    "DistillConfig": "config.distillation",
    "Evaluation": "core.metrics",
    "Exit": "core.errors",
    "Extractor": "models",
    "FedauxError": "core.errors",
    "FederationConfig": "config.sections",
    "Fitted": "scoring.base",
    "GRID": "privacy.mechanism",
    "Hooks": "methods.hooks",
    "Ledger": "privacy.ledger",
    "LocalConfig": "config.sections",
    "LocalWork": "methods.hooks",
    "METHODS": "config.methods",
    "Mechanism": "privacy.accounting",
    "Method": "config.methods",
    "MethodSettings": "sweeps.method_settings",
    "Model": "export.model",
    "Notice": "core.progress",
    "OrdersSent": "core.progress",
    "OwnersAwaited": "core.progress",
    "Planner": "runs.planner",
    "PretrainConfig": "config.sections",
    "PrivacyConfig": "config.sections",
    "PrivacyStatement": "runs.result",
    "ProgressEvent": "core.progress",
    "Prototype": "models.registry",
    "PrototypeSpec": "config.prototype",
    "Records": "data.records",
    "Release": "messages.replies",
    "ReplyReceived": "core.progress",
    "Result": "runs.result",
    "RoundFinished": "core.progress",
    "RoundResult": "core.results",
    "RunStarted": "core.progress",
    "Scorer": "scoring.base",
    "SiteAccount": "privacy.site_account",
    "Summary": "privacy.mechanism",
    "Sweep": "sweeps.grid",
    "SitesLooked": "core.progress",
    "SweepProgress": "core.progress",
    "SweepResult": "sweeps.results",
    "TeachersConfig": "config.distillation",
    "UNIT_SENSITIVITY": "privacy.mechanism",
    "WorkProgress": "core.progress",
    "audit_site": "audit.run",
    "check_shapes": "scoring.base",
    "compare": "sweeps.compare",
    "evaluate_model": "export.evaluation",
    "export_model": "export.export",
    "from_frame": "data.tables",
    "from_huggingface": "data.adapters",
    "from_torch": "data.adapters",
    "make_callbacks": "runs.callbacks",
    "open_data": "data.federated",
    "open_source": "data.sources",
    "per_record_safe": "privacy.module_validation",
    "planner": "runs.runner",
    "pretrain": "runs.runner",
    "quantize": "privacy.mechanism",
    "register": "models",
    "resume": "runs.runner",
    "reuse_memory": "core.memory",
    "run": "runs.runner",
    "run_sweep": "sweeps.engine",
    "total_epsilon": "privacy.accounting",
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
