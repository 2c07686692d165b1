"""One run in one folder, with the clients in this process."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console

from fedaux.client.features import PrivateFeatureCache
from fedaux.client.stacked_heads import can_batch_heads
from fedaux.config.methods import Method
from fedaux.config.presets import DEMO
from fedaux.config.schema import Config
from fedaux.core import here
from fedaux.core.io import cache_folder
from fedaux.core.progress import (
    Notice,
    OnProgress,
    RoundFinished,
    RunStarted,
    each_of,
    no_progress,
    report_to,
)
from fedaux.data.federated import client_names, open_data
from fedaux.data.records import is_text
from fedaux.flower.client_app import app
from fedaux.flower.federation import GridFederation
from fedaux.flower.in_process import InProcessGrid
from fedaux.flower.node_settings import SIMULATED
from fedaux.flower.stacked_heads import StackedFederation
from fedaux.messages import Federation
from fedaux.models import flatten_state
from fedaux.models.pretraining.trainer import linear_probe
from fedaux.privacy.mechanism import Bounds
from fedaux.privacy.module_validation import declare_modules
from fedaux.report.live import Live
from fedaux.runs.arguments import make_config
from fedaux.runs.callbacks import Callback, JsonLines, calling
from fedaux.runs.folders import numbered_folder, stored_state
from fedaux.runs.planner import Planner
from fedaux.runs.reporting import ReportingFederation, reporting
from fedaux.runs.result import Result
from fedaux.runs.run_lock import RunLock
from fedaux.scoring.base import bound_function
from fedaux.scoring.features import H0
from fedaux.server.loop import run as run_rounds
from fedaux.server.preparation import initial_state, pretrain_extractor
from fedaux.server.regions import RegionError, Regions, RegionSpec
from fedaux.server.result import collapse_warning
from fedaux.server.run_state import RunState, RunWriter
from fedaux.server.server import Server, make_server


def run(
    method: str | Method | Config = "fedaux",
    folder: str | Path | None = None,
    *,
    data: Any = None,
    public: Any = None,
    test: Any = None,
    model: Any = None,
    size: int | None = None,
    on_progress: OnProgress | None = None,
    cache: Path | None = None,
    callbacks: Sequence[Callback] = (),
    until: int | None = None,
    **settings: Any,
) -> Result:
    """Train one model with simulated clients in this process, or continue the run that
    is in the folder already.

        result = fedaux.run("fedaux", data=(x, y), public=x_public, model=Net, clients=20, alpha=0.1, epsilon=1.0)

    Args:
        method: A name of `fedaux.METHODS`, a `Method`, or a whole `Config`, of which
            the other arguments change parts.
        folder: The folder of the run, written after every round; one that holds another
            run raises `StateError`. None: the first of runs/NAME, runs/NAME-2, … that
            is free or holds this very run.
        data: Labelled private data, split between the clients; a list has one entry for
            each client. An entry is a pair (x, y), a `Corpus`, a dataset of PyTorch or
            Hugging Face, a folder or file, the name of a source, or a table of settings
            `[data]`.
        public: Public unlabelled data, as `data`, without labels. None: held out of the
            private data.
        test: Labelled test data. None: a fifth of the private data is held out.
        model: The name of a network, a class of `nn.Module`, a function that makes one,
            or a list of several.
        size: The size of images in pixels, for images that come from a folder or a
            dataset.
        on_progress: Called with an event of `fedaux.core.progress` as work proceeds;
            None: a panel in a terminal or a notebook, else nothing.
        cache: The folder for extractors and features; by default `$FEDAUX_CACHE`, else
            `~/.cache/fedaux`.
        callbacks: Called after every round (`Callback`, `make_callbacks`). JSON lines
            are always written.
        until: Stop after this round as if interrupted; the same call with a later round
            continues.
        settings: Any key of a configuration: `rounds=5`, `local={"lr": 0.1}`; a key
            that only one section has may be given without the section: `clients=20`,
            `alpha=0.1`, `epsilon=1.0`.

    Returns:
        The finished run, with its accuracy, history, model and privacy statement.
    """
    config = make_config(
        method, data=data, public=public, test=test, model=model, size=size, **settings
    )
    name = re.sub(r"[^A-Za-z0-9_+]", "-", config.method.removeprefix(here.PREFIX))
    folder = (
        numbered_folder(Path("runs") / name, config) if folder is None else Path(folder)
    )
    with (
        progress_panel(on_progress) as on_progress,
        report_to(on_progress),
        RunLock(folder) as lock,
    ):
        state = stored_state(config, folder)
        server = make_server(config, on_progress, cache, state)
        for spec in config.prototypes:
            # a caller who passes a class vouches for it, in this process
            if spec.name in here.vouched:
                declare_modules(server.networks.whole[spec.label])
        federation = in_process(
            config, folder, server.cache, bound_function(server.scorer)
        )
        return run_in_folder(folder, server, federation, state, callbacks, until, lock)


@contextmanager
def progress_panel(on_progress: OnProgress | None) -> Iterator[OnProgress]:
    """Yield `on_progress`, or if it is None a panel in a terminal or notebook."""
    if on_progress is not None or not (
        sys.stderr.isatty() or "ipykernel" in sys.modules
    ):
        yield on_progress or no_progress
        return
    console = Console(stderr=True)
    with Live(console) as panel:
        yield panel.on_progress


def without_auto_head(config: Config) -> Config:
    """Return the settings of a run over regions, in which no head is computed unless
    somebody asks for it.
    """
    return replace(config, head_init="random") if config.head_init == "auto" else config


def run_over_regions(
    config: Config,
    folder: str | Path,
    regions: int,
    *,
    on_progress: OnProgress = no_progress,
    cache: Path | None = None,
    callbacks: Sequence[Callback] = (),
) -> Result:
    """Run as `run` does, with the clients of several regional servers
    (`runs/region_app.py`), which share `folder`.

    It waits for all regions, and its result is bit-identical to that of one server that
    asks all clients itself. status.json in the folder shows its progress and the last
    answer of each region.
    """
    config = without_auto_head(config)
    if config.teachers.standing or config.analytic_head is not None:
        raise RegionError(
            "regional servers hand on releases and sums of models only: leave "
            "--regions out, or teachers.standing, head_init and methods that compute a "
            "head"
        )
    folder = Path(folder)
    names = [part.name for part in RegionSpec.all(regions)]
    with RunLock(folder) as lock:
        state = stored_state(config, folder)
        with (
            reporting(folder, config, names) as report,
            report_to(each_of(report, on_progress)),
        ):
            on_progress = each_of(report, on_progress)
            server = make_server(config, on_progress, cache, state)
            federation = Regions(folder, regions, on_progress=on_progress)
            where = f"which are started with out = {folder.absolute()}"
            on_progress(Notice(f"waiting for {regions} regional servers, {where}"))
            result = run_in_folder(
                folder, server, federation, state, callbacks, lock=lock
            )
            federation.end()
            return result


def run_in_folder(
    folder: Path,
    server: Server,
    federation: Federation,
    state: RunState | None,
    callbacks: Sequence[Callback] = (),
    until: int | None = None,
    lock: RunLock | None = None,
) -> Result:
    """Run the rounds over any federation, and save the state in `folder` after
    preparation and after every round.

    A round is saved before it is reported, and only by the process that holds the lock.
    """
    server = server.in_folder(folder)
    state = replace(state, assignment=server.site_labels) if state else None
    config, writer, saved, finished = (
        server.config,
        RunWriter(folder, state),
        state,
        state.round if state else 0,
    )
    if not isinstance(federation, Regions):  # which reports for each region
        federation = ReportingFederation(federation, server.on_progress)
    if server.standing:  # a run that was killed may have left some that do not count
        server.standing.keep(state.last_round if state else {})

    def save(state: RunState) -> None:
        nonlocal saved, finished
        if lock:
            lock.check()
        writer.save(state)
        saved = state
        if server.orders.known_accounts:
            server.orders.known_accounts.update(state.accounts)
        if server.standing:
            server.standing.keep(state.last_round)
        if state.round == finished:  # prepared, or releases are in
            return
        finished = state.round
        summary, warning = state.ledger.summary(), collapse_warning(state)
        on_progress(RoundFinished(state.history[-1], config.rounds, summary, warning))

    with calling([JsonLines(), *callbacks], config, folder, lambda: saved) as call:
        on_progress = each_of(call, server.on_progress)
        on_progress(
            RunStarted(
                server.method.label,
                describe(config),
                state.history if state else (),
                config.rounds,
            )
        )
        return Result(run_rounds(server, federation, state, save, until), folder)


def describe(config: Config) -> str:
    """Describe data, clients, networks and seed in one line."""
    alpha = (
        f", α = {config.data.alpha:g}" if config.data.partition == "dirichlet" else ""
    )
    clients = len(config.federation.sites) or config.data.clients
    networks = ", ".join(spec.label for spec in config.prototypes)
    return f"{config.data.source}: {clients} clients{alpha}, {networks}, seed {config.seed}"


def pretrain(
    config: Config, *, on_progress: OnProgress = no_progress, cache: Path | None = None
) -> dict[str, Path]:
    """Train the extractor of every prototype (P1), or find it in the cache, where a
    later `run` finds it too.

    If it is interrupted, the next call continues after the last finished epoch.

    Args:
        config: The settings, of which the prototypes, `aux` and `pretrain` matter.
        on_progress: Called with events of `fedaux.core.progress`, as in `run`.
        cache: The folder for extractors, as in `run`.

    Returns:
        For each prototype's label the safetensors file of its extractor, which has a
        JSON card beside it.
    """
    with report_to(on_progress):
        server = make_server(config, on_progress, cache)
        return {
            spec.label: pretrain_extractor(server, spec) for spec in config.prototypes
        }


def probe(
    config: Config, *, on_progress: OnProgress = no_progress, cache: Path | None = None
) -> dict[str, float]:
    """Measure a linear classifier on the features of each extractor, of a random one,
    and on the raw records.

    It is fitted to all private records and their labels, which no party of a real
    federation has: it serves studies, after the fact, and nothing is chosen by it.
    """
    data, server = open_data(config), make_server(config, on_progress, cache)
    found = {}
    for spec in config.prototypes:
        model = server.networks.whole[spec.label]
        for kind in ("random", "pre-trained"):
            if kind == "pre-trained":
                pretrain_extractor(server, spec)
            report = partial(server.report_features, spec.label)
            features = PrivateFeatureCache(cache or cache_folder(), on_progress=report)
            h0 = H0(spec, model.features, flatten_state(model.features), features)
            found[f"{spec.label}, {kind}"] = linear_probe(
                h0.features(data.private), h0.features(data.test)
            )
    if not is_text(data.test.x):
        found["the records themselves"] = linear_probe(data.private, data.test)
    return found


def planner(
    path: Path | None,
    clients: int,
    delta: float,
    adjacency: str,
    cache: Path | None = None,
) -> Planner:
    """Make a planner, which estimates from public features how much of the teacher
    weighting survives the noise.

    Args:
        path: The config whose public features to use; None: those of the demo's digits.
        clients: The number of clients.
        delta: The δ of a release.
        adjacency: What makes data sets neighbours: replace-one or add-remove.
        cache: The folder for extractors and features, as in `run`.

    Returns:
        The planner; its methods relate ε, records per client and the benefit that is
        kept.
    """
    config = (
        Config.load(path, ["method=fedaux", "method_options={}"])
        if path
        else replace(DEMO, pretrain=replace(DEMO.pretrain, epochs=0))
    )
    changes: dict[str, Any] = {
        "delta": delta,
        "adjacency": adjacency,
        "declared_records": 1,
    }
    privacy = replace(config.privacy, **changes)
    if privacy.scorer != "class-embedding":
        raise ValueError(
            f"a plan needs the scorer class-embedding, not {privacy.scorer}"
        )
    server = make_server(config, cache=cache)
    server.restore(initial_state(server))
    negatives = server.public.negatives(config.prototypes[0].label).gather()
    return Planner.of(server.scorer, negatives, clients, server.classes, privacy)


def resume(
    folder: str | Path,
    *,
    on_progress: OnProgress = no_progress,
    cache: Path | None = None,
    callbacks: Sequence[Callback] = (),
) -> Result:
    """Continue an interrupted run; the result is bit-identical to that of an
    uninterrupted one.

    The settings are those stored in the folder. A finished run is only read.

    Args:
        folder: The folder of the run.
        on_progress: Called with events of `fedaux.core.progress`, as in `run`.
        cache: The folder for extractors and features, as in `run`.
        callbacks: Called after every round, as in `run`.

    Returns:
        The finished run.
    """
    return run(
        RunState.load(Path(folder)).config,
        folder,
        on_progress=on_progress,
        cache=cache,
        callbacks=callbacks,
    )


def in_process(
    config: Config,
    folder: Path,
    cache: Path | None = None,
    bounds: Bounds | None = None,
) -> GridFederation:
    """Return the federation of clients simulated in this process.

    Each client keeps its releases below `folder`, as a site would on its own disk. With
    a `cache`, features of their data are kept there, for the next run of the same
    split.
    """
    settings = {
        "config": json.dumps(config.to_dict()),
        "vault": str(folder / "clients"),
        **SIMULATED,
    }
    if cache is not None:
        settings["features"] = str(cache)
    names, policy = client_names(config), config.federation
    grid = InProcessGrid(app, len(names), settings)
    nodes = dict(zip(names, grid.get_node_ids(), strict=True))
    kind = StackedFederation if can_batch_heads(config) else GridFederation
    return kind(
        grid,
        nodes,
        policy.timeout,
        policy.max_records,
        bounds=bounds,
        retries=policy.retries,
    )
