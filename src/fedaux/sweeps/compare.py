"""`fedaux.compare`: several methods from the same data, split and first weights."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedaux.config.methods import PAPER_METHODS, Method, find_method
from fedaux.config.parsing import ConfigError
from fedaux.config.schema import Config
from fedaux.core import here
from fedaux.core.progress import OnProgress
from fedaux.runs.arguments import make_config, method_name_of
from fedaux.runs.runner import progress_panel
from fedaux.sweeps.engine import run_sweep
from fedaux.sweeps.grid import Sweep
from fedaux.sweeps.method_settings import AS_CONFIGURED, MethodSettings
from fedaux.sweeps.results import SweepResult, write_results


def compare(
    what: Config | Sequence[str | Method] = PAPER_METHODS,
    folder: str | Path | None = None,
    seeds: int = 3,
    methods: Sequence[str | Method] = PAPER_METHODS,
    *,
    data: Any = None,
    public: Any = None,
    test: Any = None,
    model: Any = None,
    size: int | None = None,
    title: str = "",
    jobs: int = 1,
    threads: int = 1,
    on_progress: OnProgress | None = None,
    cache: Path | None = None,
    chosen: MethodSettings = AS_CONFIGURED,
    **settings: Any,
) -> SweepResult:
    """Run several methods from the same data, split and first weights, and write tables
    and a report.

        methods = ["fedavg+p", "scaffold+p", "fedaux"]
        table = fedaux.compare(methods, data=(x, y), public=x_public, model=Net)

    Args:
        what: The methods: names of `fedaux.METHODS`, or `Method` objects. Or a
            `Config`, whose own method is ignored. The methods to compare are then
            `methods`.
        folder: The folder for the runs, the tables and the report. Runs that are
            already finished there are only read. None: a folder in runs/ that belongs
            to these settings.
        seeds: The number of seeds, from the config's seed on.
        methods: The methods to compare with a `Config`. By default the nine of the
            paper.
        data: Private data, as in `fedaux.run`, so are public, test, model, size, cache
            and settings.
        title: The title of the report and of the tables.
        jobs: The number of parallel runs, each in a separate process. More than 1 need `if
            __name__ == "__main__":`.
        threads: The number of PyTorch threads of each run.
        on_progress: As in `run`.
        chosen: Settings of each method: `MethodSettings.read("runs/my-tune")` or
            `MethodSettings.preset("paper")`.

    Returns:
        The accuracies of all methods, and where the runs and the report are.
    """
    if isinstance(what, str):
        raise ConfigError(
            f"Cannot compare {what!r}: compare takes a list of methods. Call "
            f"compare([{what!r}, 'fedavg+p'], …), or run({what!r}) for one run."
        )
    chosen_methods = methods if isinstance(what, Config) else what
    names = [method_name_of(method) for method in chosen_methods]
    if not names:
        raise ConfigError("Cannot compare: it needs at least one method. Name one.")
    start = what if isinstance(what, Config) else _base_method(names)
    config = make_config(
        start, data=data, public=public, test=test, model=model, size=size, **settings
    )
    if jobs > 1:
        _require_importable(config, names, jobs)
    sweep = Sweep.of(config, {"method": names}, seeds, chosen, title=title)
    if folder is None:
        folder = Path("runs") / f"compare-{config.hash[:8]}"
    with progress_panel(on_progress):
        result = run_sweep(sweep, Path(folder), jobs=jobs, threads=threads, cache=cache)
        return write_results(result)


def _base_method(names: Sequence[str]) -> str:
    """Return a method without defaults of its own, since all arms share the base."""
    for name in names:
        if not find_method(name).defaults:
            return name
    return Config.method


def _require_importable(config: Config, names: Sequence[str], jobs: int) -> None:
    """Raise an error if there are objects of this session, which no other process
    has.
    """
    of_session = list(config.session_keys)
    if not of_session and any(name.startswith(here.PREFIX) for name in names):
        of_session = ["the methods"]
    if of_session:
        raise ConfigError(
            f"Cannot use jobs = {jobs}: it needs parts that other processes can "
            f"import, and {', '.join(of_session)} are objects of this session. Leave "
            "jobs out, or put them into a module and name them module:name."
        )
