"""One run in one folder, with the clients in this process."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console

from fedaux.client.features import PrivateFeatureCache
from fedaux.client.stacked_heads import can_batch_heads
from fedaux.config.methods import Method
from fedaux.config.presets import DEMO
from fedaux.config.prototype import PrototypeSpec
from fedaux.config.schema import Config
from fedaux.core import here
from fedaux.core.io import cache_folder
from fedaux.core.progress import (
    Notice,
    OnProgress,
    no_progress,
    report,
    report_to,
)
from fedaux.data.federated import FederatedData, client_names, open_data
from fedaux.data.records import is_text
from fedaux.data.table_schema import TableSchema
from fedaux.flower.client_app import app
from fedaux.flower.federation import GridFederation
from fedaux.flower.in_process import InProcessGrid
from fedaux.flower.node_settings import SIMULATED
from fedaux.flower.stacked_heads import StackedFederation
from fedaux.models import flatten_state
from fedaux.models.pretraining.trainer import linear_probe
from fedaux.privacy.mechanism import Bounds
from fedaux.privacy.module_validation import declare_modules
from fedaux.report.live import Live
from fedaux.runs.arguments import make_config
from fedaux.runs.callbacks import Callback
from fedaux.runs.folders import numbered_folder, stored_state
from fedaux.runs.planner import Planner
from fedaux.runs.reporting import ReportingFederation, reporting
from fedaux.runs.result import Result
from fedaux.runs.run_lock import RunLock
from fedaux.runs.session import run_in_folder
from fedaux.scoring.base import bound_function
from fedaux.scoring.features import H0
from fedaux.server.preparation import initial_state, pretrain_extractor
from fedaux.server.regions import RegionError, Regions, RegionSpec
from fedaux.server.run_state import RunState
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
    label: str = "",
    site: str = "",
    schema: str | Path | TableSchema | None = None,
    on_progress: OnProgress | None = None,
    cache: Path | None = None,
    callbacks: Sequence[Callback] = (),
    until: int | None = None,
    **settings: Any,
) -> Result:
    """Train one model with simulated clients in this process, or continue the run that
    is in the folder already.

        result = fedaux.run(
            "fedaux",
            data=(x, y),
            public=x_public,
            model=Net,
            clients=20,
            alpha=0.1,
            epsilon=1.0,
        )

    Args:
        method: A name of `fedaux.METHODS`, a `Method`, or a whole `Config`, of which
            the other arguments change parts.
        folder: The folder of the run, written after every round. One with another
            run raises `StateError`. None: the first of runs/NAME, runs/NAME-2, … that
            is free or holds this very run.
        data: Labelled private data, split between the clients. A list has one entry for
            each client. An entry is a pair (x, y), a `Corpus`, a dataset of PyTorch or
            Hugging Face, a folder or file, the name of a source, or a table of settings
            `[data]`. With `label`, it is a table: a DataFrame, a .csv or .parquet, a
            structured array or a dictionary of arrays.
        public: Public unlabelled data, as `data`, without labels. None: held out of the
            private data, or for a table drawn from its schema.
        test: Labelled test data. None: a fifth of the private data is held out.
        model: The name of a network, a class of `nn.Module`, a function that makes one,
            or a list of several. None: `mlp`, for rows of numbers `tabular`, and where
            features stay frozen (private-head, ridge, head_only) `linear`, the columns
            themselves. A private head of few records of a table in two classes has
            `tabular` as well, if there are public records.
        size: The size of images in pixels, for images that come from a folder or a
            dataset.
        label: Of a table, the column of the class.
        site: Of a table, the column that says whose a record is. Each site is then a
            client.
        schema: Of a table, what its columns are: a schema.toml or a `TableSchema`.
            None: proposed as `fedaux init table` does, from the public records if there
            are any. The model has it, `result.model.schema`.
        on_progress: Called with an event of `fedaux.core.progress` as work proceeds, or
            None: a panel in a terminal or a notebook, else lines on standard error.
        cache: The folder for extractors and features. By default `$FEDAUX_CACHE`, else
            `~/.cache/fedaux`.
        callbacks: Called after every round (`Callback`, `make_callbacks`). JSON lines
            are always written.
        until: Stop after this round as if interrupted. The same call with a later round
            continues.
        settings: Any key of a configuration: `rounds=5`, `local={"lr": 0.1}`. A key
            that only one section has may be given without the section: `clients=20`,
            `alpha=0.1`, `epsilon=1.0`.

    Returns:
        The finished run, with its accuracy, history, model and privacy statement.
    """
    config = make_config(
        method,
        data=data,
        public=public,
        test=test,
        model=model,
        size=size,
        label=label,
        site=site,
        schema=schema,
        **settings,
    )
    if folder is None:
        name = config.method.removeprefix(here.PREFIX)
        folder = Path("runs") / re.sub(r"[^A-Za-z0-9_+]", "-", name)
        folder = numbered_folder(folder, config)
    folder = Path(folder)
    with (
        progress_panel(on_progress),
        RunLock(folder) as lock,
    ):
        state = stored_state(config, folder)
        server = make_server(config, cache, state)
        vouch_for_classes(server)
        bounds = bound_function(server.scorer)
        clients = in_process(config, folder, server.cache, bounds)
        federation = ReportingFederation(clients)
        return run_in_folder(folder, server, federation, state, callbacks, until, lock)


def vouch_for_classes(server: Server) -> None:
    """Trust networks that a caller in this process has passed as classes."""
    for spec in server.config.prototypes:
        if spec.name in here.vouched:
            declare_modules(server.networks.whole[spec.label])


@contextmanager
def progress_panel(on_progress: OnProgress | None) -> Iterator[None]:
    """Send progress of the work inside to `on_progress`, or if it is None to standard
    error: a panel in a terminal or notebook, else lines.
    """
    if on_progress is not None:
        with report_to(on_progress):
            yield
    else:
        with Live(Console(stderr=True)):
            yield


def without_auto_head(config: Config) -> Config:
    """Return the settings of a run over regions, in which no head is computed unless
    someone asks for it.
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
    needs_more = (
        config.teachers.standing
        or config.analytic_head is not None
        or config.tests_at_sites
    )
    if needs_more:
        raise RegionError(
            "Cannot run over regions: regional servers hand on releases and sums of "
            "models only. Leave --regions out, or teachers.standing, head_init, "
            "data.site_test_fraction and methods that compute a head."
        )
    folder = Path(folder)
    names = [region.name for region in RegionSpec.all(regions)]
    with (
        RunLock(folder) as lock,
        reporting(folder, config, on_progress, names),
    ):
        state = stored_state(config, folder)
        server = make_server(config, cache, state)
        federation = Regions(folder, regions)
        where = f"which are started with out = {folder.absolute()}"
        report(Notice(f"waiting for {regions} regional servers, {where}"))
        result = run_in_folder(folder, server, federation, state, callbacks, lock=lock)
        federation.end()
        return result


def pretrain(
    config: Config, *, on_progress: OnProgress = no_progress, cache: Path | None = None
) -> dict[str, Path]:
    """Train the extractor of every prototype (P1), or find it in the cache, in which
    a later `run` finds it too.

    If it is interrupted, the next call continues after the last finished epoch.

    Args:
        config: The settings, of which the prototypes, `aux` and `pretrain` matter.
        on_progress: Called with events of `fedaux.core.progress`, as in `run`.
        cache: The folder for extractors, as in `run`.

    Returns:
        For each prototype's label the safetensors file of its extractor, which has a
        JSON card next to it. On rows of numbers only `tabular` is pre-trained.
    """
    with report_to(on_progress):
        server = make_server(config, cache)
        paths: dict[str, Path] = {}
        for spec in config.prototypes:
            path = pretrain_extractor(server, spec)
            if path is not None:
                paths[spec.label] = path
        return paths


def probe(
    config: Config, *, on_progress: OnProgress = no_progress, cache: Path | None = None
) -> dict[str, float]:
    """Measure a linear classifier on the features of each extractor, of a random one,
    and on the raw records.

    It is fitted to all private records and their labels, which no party of a real
    federation has: it serves studies, after the fact, and nothing is chosen by it.
    """
    with report_to(on_progress):
        data = open_data(config)
        server = make_server(config, cache)
        accuracies: dict[str, float] = {}
        for spec in config.prototypes:
            accuracies[f"{spec.label}, random"] = probe_features(server, spec, data)
            pretrain_extractor(server, spec)
            accuracies[f"{spec.label}, pre-trained"] = probe_features(
                server, spec, data
            )
        if not is_text(data.test.x):
            accuracies["the records themselves"] = linear_probe(data.private, data.test)
        return accuracies


def probe_features(server: Server, spec: PrototypeSpec, data: FederatedData) -> float:
    """Return the accuracy of a linear classifier on the features of an extractor, as it
    is now.
    """
    extractor = server.networks.whole[spec.label].features
    cache = PrivateFeatureCache(server.cache or cache_folder(), spec.label)
    h0 = H0(spec, extractor, flatten_state(extractor), cache)
    return linear_probe(h0.features(data.private), h0.features(data.test))


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
        path: The config whose public features to use. None means the demo's digits.
        clients: The number of clients.
        delta: The δ of a release.
        adjacency: What makes data sets neighbours: replace-one or add-remove.
        cache: The folder for extractors and features, as in `run`.

    Returns:
        The planner. Its methods relate ε, records per client and the benefit that is
        kept.
    """
    if path is None:
        config = replace(DEMO, pretrain=replace(DEMO.pretrain, epochs=0))
    else:
        config = Config.load(path, ["method=fedaux", "method_options={}"])
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
    return Planner.of(
        server.scorer,
        negatives,
        clients,
        server.classes,
        privacy,
        config.federation,
    )


def resume(
    folder: str | Path,
    *,
    on_progress: OnProgress = no_progress,
    cache: Path | None = None,
    callbacks: Sequence[Callback] = (),
) -> Result:
    """Continue an interrupted run. The result is bit-identical to the result of an
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
    names = client_names(config)
    policy = config.federation
    grid = InProcessGrid(app, len(names), settings)
    nodes = dict(zip(names, grid.get_node_ids(), strict=True))
    federation = StackedFederation if can_batch_heads(config) else GridFederation
    return federation(
        grid,
        nodes,
        policy.timeout,
        policy.max_records,
        bounds=bounds,
        retries=policy.retries,
    )
