"""`fedaux deploy preflight`: what would go wrong at the server, found before anything
is sent or spent.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from fedaux.config.schema import Config
from fedaux.core.errors import FedauxError
from fedaux.data.federated import client_names, open_public
from fedaux.data.records import Records
from fedaux.data.tables import open_schema, schema_path
from fedaux.deploy.checks import (
    MARGIN_BYTES,
    CheckResult,
    check_schema,
    check_sends,
    check_settings,
    check_versions,
    load_settings,
)
from fedaux.deploy.link import LinkError
from fedaux.deploy.status import Watched
from fedaux.report.terminal import plural
from fedaux.server.preparation import initial_state
from fedaux.server.server import Server

# of the public and the test data: enough for every step, seconds for any network
TRIED_RECORDS = 64


def preflight(server: Path, link: Watched) -> Iterator[CheckResult]:
    """Run all checks of a server, in the order in which problems are best fixed."""
    yield check_versions()
    try:
        config = Config.load(server / "fedaux.toml")
    except (FedauxError, OSError) as error:
        yield CheckResult("settings", False, str(error), "correct fedaux.toml")
        return
    rounds = plural(config.rounds, "round")
    sites = plural(len(config.federation.sites), "site")
    detail = f"{config.method}, {rounds}, {sites}"
    yield CheckResult("settings", True, detail)
    yield check_steps(config)
    free = shutil.disk_usage(server).free
    detail = f"{free / 2**30:.1f} GiB free"
    yield CheckResult.of(
        "disk", free >= 4 * MARGIN_BYTES, detail, f"make room where {server} is"
    )
    yield check_sites(config, link)
    yield check_site_settings(config, server)
    if schema_path(config.data):
        yield check_schemas(config, server)


def check_steps(config: Config) -> CheckResult:
    """Whether the server's own steps before the first round work, on a few records and
    for one epoch.
    """
    short = replace(config.pretrain, epochs=int(config.pretrain.trains))
    trial = replace(config, pretrain=short)
    try:
        data = open_public(trial)
        aux = _some(data.aux)
        test = _some(data.test)
        classes = len(data.classes)
        with tempfile.TemporaryDirectory() as cache:
            names = client_names(trial)
            server = Server.of(trial, aux, test, classes, names, Path(cache))
            initial_state(server)
    except Exception as error:  # a source and a network may be user code
        detail = (
            "its steps before the first round fail: "
            f"{str(error) or type(error).__name__}"
        )
        return CheckResult(
            "server's steps",
            False,
            detail,
            "see [data], [aux] and prototypes in fedaux.toml",
        )
    tested = f"{len(test)} test records"
    if not len(test):
        tested = "no test records: the final model is tested at the sites"
    detail = f"done on {len(aux)} public and {tested}"
    return CheckResult("server's steps", True, detail)


def check_sites(config: Config, link: Watched) -> CheckResult:
    """Whether the SuperLink answers and all sites are connected."""
    try:
        link.check()
        online = {
            name.strip()
            for node in link.nodes()
            if node.status == "online"
            for name in node.name.split(",")
        }
    except LinkError as error:
        return CheckResult("sites", False, str(error), "start superlink.sh")
    missing = [name for name in config.federation.sites if name not in online]
    detail = f"all {len(config.federation.sites)} are connected"
    if missing:
        detail = f"not connected: {', '.join(missing)}"
    return CheckResult.of(
        "sites",
        not missing,
        detail,
        "each of them calls `fedaux deploy check` and supernode.sh",
    )


def check_site_settings(config: Config, server: Path) -> CheckResult:
    """Whether the sites admit what the run will order, where their settings are on this
    machine.
    """
    name = "sites' settings"
    problems: list[str] = []
    elsewhere: list[str] = []
    for site in config.federation.sites:
        folder = server.parent / "sites" / site
        if not (folder / "site.toml").is_file():
            elsewhere.append(site)
            continue
        problem = settings_problem(folder, site)
        if problem:
            problems.append(f"{site}: {problem}")
    if problems:
        return CheckResult(
            name, False, "; ".join(problems), "correct site.toml, or fedaux.toml"
        )
    if elsewhere:
        detail = f"those of {', '.join(elsewhere)} are not on this machine"
        remedy = (
            f"tell them that method is {config.method!r}: a site whose site.toml says "
            "otherwise refuses the plan, and nothing is spent"
        )
        return CheckResult(name, None, detail, remedy)
    return CheckResult(name, True, "every order would be admitted")


def check_schemas(config: Config, server: Path) -> CheckResult:
    """Whether all sites encode the columns of their tables alike."""
    differing: list[str] = []
    elsewhere: list[str] = []
    try:
        expected = open_schema(schema_path(config.data))
    except FedauxError as error:
        return CheckResult("schema", False, str(error), "correct schema.toml")
    for site in config.federation.sites:
        own = load_settings(server.parent / "sites" / site)
        if isinstance(own, CheckResult):
            elsewhere.append(site)
            continue
        found = check_schema(own, server.parent / "sites" / site)
        if found.ok is False:
            differing.append(f"{site}: {found.detail}")
    if differing:
        remedy = "all parties need the same schema.toml: agree on one"
        return CheckResult("schema", False, "; ".join(differing), remedy)
    detail = f"{plural(len(expected.columns), 'column')}, hash {expected.hash}"
    if not elsewhere:
        return CheckResult("schema", True, f"{detail}, at all sites")
    remedy = (
        f"`fedaux deploy check` at {', '.join(elsewhere)} names the hash of theirs: a "
        "site with another one refuses the plan, and nothing is spent"
    )
    return CheckResult("schema", None, detail, remedy)


def settings_problem(folder: Path, name: str) -> str:
    """Why a site in this folder would refuse the run, or "" if it would not."""
    config = load_settings(folder)
    if isinstance(config, CheckResult):
        return config.detail
    for found in (check_settings(config, name), check_sends(config, folder)):
        if found.ok is False:
            return found.detail
    return ""


def _some(records: Records) -> Records:
    count = min(TRIED_RECORDS, len(records))
    spread = np.linspace(0, len(records) - 1, count)
    return records.take(np.unique(spread.astype(np.int64)))
