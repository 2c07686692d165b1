"""One run in one folder, with the clients in this process."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from fedaux.config.presets import DEMO
from fedaux.config.schema import Config
from fedaux.core.io import cache_folder
from fedaux.core.messages import Federation
from fedaux.core.progress import Notice, OnProgress, RoundFinished, RunStarted, each_of, listening, no_progress
from fedaux.data.federated import client_names, open_data
from fedaux.data.records import is_text
from fedaux.flower.client_app import app
from fedaux.flower.federation import GridFederation
from fedaux.flower.in_process import InProcessGrid
from fedaux.flower.node_settings import SIMULATED
from fedaux.flower.stacked_clients import StackedFederation, stacks
from fedaux.models import flatten_state
from fedaux.pretraining.metrics import linear_probe
from fedaux.privacy.clipping import Bounds
from fedaux.runs.callbacks import Callback, JsonLines, calling
from fedaux.runs.folders import stored_state
from fedaux.runs.reporting import ReportingFederation, reporting
from fedaux.scoring.base import bound_function
from fedaux.scoring.feature_cache import FeatureCache
from fedaux.scoring.frozen_extractor import H0
from fedaux.scoring.planner import Planner
from fedaux.server.collapse import collapse_warning
from fedaux.server.loop import run as run_rounds
from fedaux.server.regions import Part, RegionError, Regions
from fedaux.server.result import Result
from fedaux.server.run_lock import RunLock
from fedaux.server.run_state import RunState
from fedaux.server.run_writer import RunWriter
from fedaux.server.server import Server, make_server
from fedaux.server.start import initial_state, pretrain_extractor


def run(
    config: Config,
    folder: str | Path,
    *,
    on_progress: OnProgress = no_progress,
    cache: Path | None = None,
    callbacks: Sequence[Callback] = (),
    until: int | None = None,
) -> Result:
    """Run `config` in `folder`, or continue the run that is already there if it is the same one.

    Clients are simulated in this process. The folder gets everything the run makes, after preparation and after every
    round; a run with more `rounds` than the one in the folder runs for longer.

    Args:
        config: What to run.
        folder: Where; made if it is not there. One that holds another run raises `StateError`.
        on_progress: Called with an event of `fedaux.core.progress` as work proceeds.
        cache: Where extractors and features are kept; by default `$FEDAUX_CACHE`, else `~/.cache/fedaux`.
        callbacks: Called after every round (`Callback`, `make_callbacks`). JSON lines are always in the folder.
        until: Stop after this round as if interrupted; the same call with a later one goes on.

    Returns:
        The finished run, with its accuracy, curve and privacy statement.
    """
    folder = Path(folder)
    with listening(on_progress), RunLock(folder) as lock:
        state = stored_state(config, folder)
        server = make_server(config, on_progress, cache, state)
        federation = in_process(config, folder, server.cache, bound_function(server.scorer))
        return run_in_folder(folder, server, federation, state, callbacks, until, lock)


def run_over_regions(
    config: Config,
    folder: str | Path,
    regions: int,
    *,
    on_progress: OnProgress = no_progress,
    cache: Path | None = None,
    callbacks: Sequence[Callback] = (),
) -> Result:
    """As `run`, with the clients of so many regional servers (`runs/region_app.py`), which see `folder`.

    It waits for all of them, and ends in the bits of one server that asks all clients itself. What it is doing, and
    what each region has last answered, is in status.json of the folder.
    """
    if config.teachers.standing or config.analytic_head is not None:
        raise RegionError(
            "regional servers hand on releases and sums of models only: leave --regions out, or teachers.standing, "
            "head_init and methods that compute a head"
        )
    folder = Path(folder)
    names = [part.name for part in Part.all(regions)]
    with RunLock(folder) as lock:
        state = stored_state(config, folder)
        with reporting(folder, config, names) as report, listening(each_of(report, on_progress)):
            on_progress = each_of(report, on_progress)
            server = make_server(config, on_progress, cache, state)
            federation = Regions(folder, regions, on_progress=on_progress)
            where = f"which are started with out = {folder.absolute()}"
            on_progress(Notice(f"waiting for {regions} regional servers, {where}"))
            result = run_in_folder(folder, server, federation, state, callbacks, lock=lock)
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
    """The rounds over any federation, saved in `folder` after preparation and after every round.

    A round is saved before anybody hears of it, and only by who holds the lock.
    """
    server = server.in_folder(folder)
    state = replace(state, dealt=server.site_labels) if state else None
    config, writer, saved, finished = server.config, RunWriter(folder, state), state, state.round if state else 0
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
        on_progress(RunStarted(server.method.label, describe(config), state.history if state else (), config.rounds))
        return Result(run_rounds(server, federation, state, save, until), folder)


def describe(config: Config) -> str:
    """Data, clients, networks and seed in a line."""
    alpha = f", α = {config.data.alpha:g}" if config.data.partition == "dirichlet" else ""
    clients = len(config.federation.sites) or config.data.clients
    networks = ", ".join(spec.label for spec in config.prototypes)
    return f"{config.data.source}: {clients} clients{alpha}, {networks}, seed {config.seed}"


def pretrain(config: Config, *, on_progress: OnProgress = no_progress, cache: Path | None = None) -> dict[str, Path]:
    """P1 alone: train the extractor of every prototype, or find it; a later `run` takes it up from the same cache.

    Stopped, it continues after the last finished epoch. `on_progress` and `cache` are as in `run`.

    Returns:
        For each prototype's label the safetensors file of its extractor; a JSON card lies beside it.
    """
    with listening(on_progress):
        server = make_server(config, on_progress, cache)
        return {spec.label: pretrain_extractor(server, spec) for spec in config.prototypes}


def probe(config: Config, *, on_progress: OnProgress = no_progress, cache: Path | None = None) -> dict[str, float]:
    """Accuracy of a linear classifier on the features of each extractor, on a random one's, and on the raw records.

    It is fitted to all private records and their labels, which nobody has in a real federation: for studies, and after
    the fact. Nothing is chosen by it.
    """
    data, server = open_data(config), make_server(config, on_progress, cache)
    found = {}
    for spec in config.prototypes:
        model = server.learners.networks[spec.label]
        for kind in ("random", "pre-trained"):
            if kind == "pre-trained":
                pretrain_extractor(server, spec)
            report = partial(server.report_features, spec.label)
            features = FeatureCache(cache or cache_folder(), private=True, on_progress=report)
            h0 = H0(spec, model.features, flatten_state(model.features), features)
            found[f"{spec.label}, {kind}"] = linear_probe(h0.features(data.private), h0.features(data.test))
    if not is_text(data.test.x):
        found["the records themselves"] = linear_probe(data.private, data.test)
    return found


def planner(path: Path | None, clients: int, delta: float, adjacency: str, cache: Path | None = None) -> Planner:
    """Plans on the public features of a config, or without one on those of the demo's digits."""
    config = (
        Config.load(path, ["method=fedaux", "method_options={}"])
        if path
        else replace(DEMO, pretrain=replace(DEMO.pretrain, epochs=0))
    )
    privacy = replace(config.privacy, delta=delta, adjacency=adjacency, declared_records=1)
    if "embedding" not in privacy.scorer:
        raise ValueError(f"a plan needs the scorer class-embedding or mean-embedding, not {privacy.scorer}")
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
    """Go on where a stopped run left off, to the same bits as if it had not stopped; a finished one is simply read.

    The configuration is the one stored in the folder. `on_progress` and `cache` are as in `run`.
    """
    return run(RunState.load(Path(folder)).config, folder, on_progress=on_progress, cache=cache, callbacks=callbacks)


def in_process(config: Config, folder: Path, cache: Path | None = None, bounds: Bounds | None = None) -> GridFederation:
    """The clients of this machine. Each keeps its releases below `folder`, as a site would on its own disk.

    With a `cache`, features of their data are kept there instead, for the next run of the same split.
    """
    settings = {"config": json.dumps(config.to_dict()), "vault": str(folder / "clients"), **SIMULATED}
    if cache is not None:
        settings["features"] = str(cache)
    names, policy = client_names(config), config.federation
    grid = InProcessGrid(app, len(names), settings)
    nodes = dict(zip(names, grid.get_node_ids(), strict=True))
    kind = StackedFederation if stacks(config) else GridFederation
    return kind(grid, nodes, policy.timeout, policy.max_records, bounds=bounds, retries=policy.retries)
