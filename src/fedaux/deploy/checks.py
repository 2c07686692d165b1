"""`fedaux deploy check`: finds what would go wrong at a site before it takes part, with
a remedy for each problem.

Checks read the site's own disk and call its server. What they find is sent nowhere.
"""

from __future__ import annotations

import shutil
import ssl
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from importlib import metadata
from pathlib import Path

import httpx
import numpy as np

from fedaux.client.gate import admit_run
from fedaux.client.proposals import cost_in_words
from fedaux.client.site import Site
from fedaux.config.parsing import ConfigError
from fedaux.config.schema import Config
from fedaux.config.sections import PrivacyConfig
from fedaux.config.sends import needed_by
from fedaux.core.errors import FedauxError
from fedaux.core.io import DECODED, caching_in
from fedaux.core.versions import package_versions, versions_text
from fedaux.data.federated import class_names, open_auxiliary, read_private
from fedaux.data.records import UNDECLARED, Records
from fedaux.data.table_schema import TableSchema
from fedaux.data.tables import open_schema, schema_of, schema_path
from fedaux.deploy.certificates import load_key, public_key_bytes
from fedaux.deploy.env import read_env
from fedaux.deploy.link import ask_health
from fedaux.deploy.rosters import own_problem
from fedaux.privacy.account import BudgetStore, account_folder
from fedaux.privacy.accounting import BudgetError, round_up
from fedaux.privacy.roster import ROSTER_FILE, read_roster, roster_fingerprint
from fedaux.report.terminal import plural
from fedaux.server.networks import Networks
from fedaux.server.preparation import check_networks

# seconds; Flower refuses 5 ahead and 305 behind; a Date header has whole seconds
MAX_AHEAD = 6.0
MAX_BEHIND = 60.0
MAX_FEATURE_BYTES = 2048 * 4  # of one record
MARGIN_BYTES = 2**28  # for logs and models


@dataclass(frozen=True)
class CheckResult:
    """One line of `fedaux deploy check`. `ok` is None if the answer is not known."""

    name: str
    ok: bool | None
    detail: str
    remedy: str = ""

    @classmethod
    def of(cls, name: str, ok: bool, detail: str, remedy: str) -> CheckResult:
        """Make a result, with the remedy only if it is needed."""
        return cls(name, ok, detail, "" if ok else remedy)


NOT_ASKED = CheckResult("registered", None, "is found out when the node starts")


def check_site(folder: Path) -> Iterator[CheckResult]:
    """Run all checks, in the order in which problems are best fixed."""
    folder = folder.expanduser().absolute()
    env = read_env(folder / "site.env")
    ca = folder / "ca.crt"
    address = env["SERVER"]
    name = env["NAME"]
    vault = folder / "vault"
    yield check_versions()
    authority = check_certificate(ca)
    yield authority
    yield check_key_pair(folder)
    yield check_key_mode(folder / "key")
    server = CheckResult("server", None, "not called without a ca.crt")
    if authority.ok:
        server = check_server(address, ca)
    yield server
    if server.ok:
        yield check_clock(address, ca)
        yield check_registration(address, ca, folder / "key")
    else:
        yield CheckResult("clock", None, "cannot be compared without the server")
        yield NOT_ASKED
    if (vault / ROSTER_FILE).exists():
        yield check_roster(folder)
    config = load_settings(folder)
    if isinstance(config, CheckResult):
        yield config
        return
    yield check_settings(config, name)
    yield check_sends(config, folder)
    yield check_privacy(config)
    if schema_path(config.data):
        yield check_schema(config, folder)
    records, result = check_records(config, folder, name)
    yield result
    count = 0
    if records is not None:
        count = len(records)
        yield check_delta(config.privacy, count)
        yield check_own_networks(config, records, name)
    yield check_disk(vault if vault.exists() else folder, count)
    yield check_budget(config, account_folder(config, vault, name))


# The server


def check_server(address: str, ca: Path) -> CheckResult:
    """Whether the server answers, with a certificate signed by the authority."""
    try:
        ask_health(address, ca)
    except (httpx.HTTPError, OSError) as error:
        cause: BaseException = error
        while cause.__context__ is not None:  # as the system or OpenSSL said it
            cause = cause.__context__
        if isinstance(cause, ssl.SSLCertVerificationError):
            detail = (
                f"what answers at {address} does not prove to be the server: "
                f"{cause.verify_message}"
            )
            remedy = (
                "send nothing, and ask the server whether its certificate changed, and for "
                "the ca.crt that signs it"
            )
            return CheckResult("server", False, detail, remedy)
        reason = str(cause) or type(cause).__name__
        if isinstance(cause, ssl.SSLError):
            reason = "it does not speak TLS"
        remedy = (
            "is it started, is SERVER in site.env right, and does a firewall let you "
            "out to this port?"
        )
        return CheckResult(
            "server", False, f"{address} cannot be reached: {reason}", remedy
        )
    return CheckResult(
        "server", True, f"{address} answers, and its certificate is signed by ca.crt"
    )


def check_clock(address: str, ca: Path) -> CheckResult:
    """Whether the clocks agree: the server refuses calls with a timestamp in the future
    or too far in the past.
    """
    try:
        date = ask_health(address, ca).get("Date", "")
        offset = time.time() - parsedate_to_datetime(date).timestamp()
    except (httpx.HTTPError, OSError, ValueError) as error:
        return CheckResult("clock", None, f"the server did not send its time: {error}")
    remedy = "set this machine's clock, best by NTP: timedatectl set-ntp true"
    return CheckResult.of(
        "clock",
        -MAX_BEHIND <= offset <= MAX_AHEAD,
        f"{offset:+.0f} s from the server's",
        remedy,
    )


def check_registration(address: str, ca: Path, key: Path) -> CheckResult:
    """Whether the server knows the key, by a call that it must refuse in either case,
    so that no node appears.

    Flower looks up the key first and validates the heartbeat interval next, and a
    negative one is never valid.
    """
    from flwr.proto.fleet_pb2 import ActivateNodeRequest
    from flwr.supercore.error import ApiErrorCode, FlowerError
    from flwr.supercore.primitives.asymmetric import public_key_to_bytes
    from flwr.supernode.fleet_http_client import FleetHttpClient
    from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor

    try:
        private = load_key(key)
        signer = NodeAuthHttpInterceptor(private, private.public_key())
        request = ActivateNodeRequest(
            public_key=public_key_to_bytes(private.public_key()), heartbeat_interval=-1
        )
        with FleetHttpClient.from_server_address(
            address, False, ca.read_bytes(), interceptors=[signer]
        ) as client:
            client.ActivateNode(request)
    except httpx.HTTPStatusError as error:
        answer = FlowerError.from_json(error.response.text)
        if (
            answer is not None
            and answer.code == ApiErrorCode.FLEET_INVALID_HEARTBEAT_INTERVAL
        ):
            return CheckResult("registered", True, "the server knows this key")
        if (
            answer is not None
            and answer.code == ApiErrorCode.FLEET_NODE_ACTIVATION_FAILED
        ):
            remedy = (
                "send key.pub to the server, which lets it in with `fedaux deploy "
                "rotate-key . NAME --key key.pub`"
            )
            return CheckResult(
                "registered", False, "the server does not know this key", remedy
            )
    except (httpx.HTTPError, OSError, ValueError):
        pass
    return NOT_ASKED


# The site's own disk


def check_versions() -> CheckResult:
    """The installed versions, and whether they are compatible."""
    from packaging.requirements import Requirement
    from packaging.specifiers import SpecifierSet

    allowed: dict[str, SpecifierSet] = {}
    for line in metadata.requires("fedaux") or []:
        need = Requirement(line)
        if need.marker is None or need.marker.evaluate({"extra": "deploy"}):
            allowed[need.name] = allowed.get(need.name, SpecifierSet()) & need.specifier
    wrong = [
        f"'{name}{allowed[name]}'"
        for name, version in package_versions().items()
        if name in allowed and not allowed[name].contains(version, prereleases=True)
    ]
    return CheckResult.of(
        "versions", not wrong, versions_text(), f"pip install {' '.join(wrong)}"
    )


def check_certificate(path: Path, now: datetime | None = None) -> CheckResult:
    """Whether the certificate of the server's authority can be read and is still
    valid.
    """
    from cryptography import x509

    remedy = (
        "ask the server for its ca.crt, on a way on which you can be sure that it is "
        "the server's"
    )
    try:
        end = x509.load_pem_x509_certificate(path.read_bytes()).not_valid_after_utc
    except OSError as error:
        return CheckResult(
            "certificate", False, f"{path} cannot be read: {error.strerror}", remedy
        )
    except ValueError:
        return CheckResult("certificate", False, f"{path} is not a certificate", remedy)
    if (now or datetime.now(UTC)) >= end:
        return CheckResult("certificate", False, f"expired on {end:%d %B %Y}", remedy)
    return CheckResult("certificate", True, f"valid until {end:%d %B %Y}")


def check_key_pair(folder: Path) -> CheckResult:
    """Whether there is a key of a type that Flower supports, and key.pub is its public
    half.
    """
    remedy = (
        f"move key and key.pub away, call `fedaux deploy key {folder.name}` and send "
        "the new key.pub to the server"
    )
    try:
        expected = public_key_bytes(load_key(folder / "key"))
        public = (folder / "key.pub").read_bytes()
    except OSError as error:
        return CheckResult(
            "key", False, f"{error.filename} cannot be read: {error.strerror}", remedy
        )
    except ValueError as error:
        return CheckResult(
            "key",
            False,
            f"{folder / 'key'} is not a key that Flower takes: {error}",
            remedy,
        )
    if expected.split()[:2] != public.split()[:2]:  # a comment may follow
        return CheckResult("key", False, "key.pub is not key's", remedy)
    return CheckResult("key", True, "key and key.pub belong together")


def check_key_mode(path: Path) -> CheckResult:
    """Whether only its owner can read the key."""
    name = "key's secrecy"
    remedy = f"chmod 600 '{path}', or a new key if anyone read it"
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
    except OSError as error:
        return CheckResult(
            name, False, f"{path} cannot be read: {error.strerror}", "see key, above"
        )
    if mode & 0o077:
        return CheckResult(name, False, f"others can read it (mode {mode:o})", remedy)
    return CheckResult(name, True, "only its owner can read it")


def check_roster(folder: Path) -> CheckResult:
    """Whether the roster of secure sums has this site's own key, and is the server's,
    where that can be read.
    """
    remedy = (
        "ask the server for its roster.json, and install it with `fedaux deploy roster "
        "FILE --site FOLDER`"
    )
    try:
        roster = read_roster(folder / "vault" / ROSTER_FILE)
        problem = own_problem(folder, roster)
        server = folder.parents[1] / "server" / ROSTER_FILE
        if not problem and server.is_file() and read_roster(server) != roster:
            problem = f"it differs from {server}"
    except FedauxError as error:
        problem = str(error)
    if problem:
        return CheckResult.of("roster", False, problem, remedy)
    detail = (
        f"{plural(len(roster), 'site')}, fingerprint {roster_fingerprint(roster)}: "
        "the same at every site"
    )
    return CheckResult.of("roster", True, detail, remedy)


def load_settings(folder: Path) -> Config | CheckResult:
    try:
        return Config.load(folder / "site.toml")
    except FedauxError as error:
        return CheckResult("settings", False, str(error), "correct site.toml")


def check_settings(config: Config, name: str) -> CheckResult:
    """Whether site.toml and site.env name the same site, and site.toml reads its own
    records.
    """
    if config.data.partition != "own":
        detail = "data.partition would simulate clients instead of reading records"
        return CheckResult(
            "settings", False, detail, "write partition = 'own' in [data]"
        )
    if name not in config.federation.sites:
        detail = (
            f"site.env says that this is {name}, site.toml says "
            f"{', '.join(config.federation.sites)}"
        )
        return CheckResult(
            "settings", False, detail, f'write sites = ["{name}"] in [federation]'
        )
    return CheckResult("settings", True, f"site.toml of {name}")


def check_privacy(config: Config) -> CheckResult:
    """The budget that the settings promise."""
    if config.privacy.unsafe_seed >= 0:
        remedy = "delete privacy.unsafe_seed from site.toml"
        return CheckResult(
            "privacy",
            False,
            "the noise comes from a known seed: anyone can remove it",
            remedy,
        )
    needed = needed_by(config)
    leaves = cost_in_words(needed, config)
    budget = round_up(config.privacy.epsilon_budget)
    detail = (
        f"what leaves: {leaves}. All noise together costs at most ε = {budget}, ever"
    )
    unused = [word for word in config.federation.sends if word not in needed]
    if unused:
        detail += (
            f". site.toml allows {cost_in_words(unused, config)} as well, which "
            f"{config.method} does not send"
        )
    return CheckResult("privacy", True, detail)


def check_delta(privacy: PrivacyConfig, records: int) -> CheckResult:
    """Whether δ is well below one over the number of records: at that δ, one record may
    simply be published.
    """
    share = privacy.delta * records
    detail = f"δ = {privacy.delta:g} is {share:.2g} of 1 / number of records"
    remedy = (
        f"write delta = {0.1 / records:.0e} or less in [privacy], before anything is "
        "released"
    )
    if share <= 0.1:
        return CheckResult("delta", True, detail)
    return CheckResult("delta", None, detail, remedy)


def check_sends(config: Config, folder: Path) -> CheckResult:
    """Whether what may leave is what the method needs, here and, where its settings can
    be read, at the server.
    """
    allowed = config.federation.sends
    needed = needed_by(config)
    words = ", ".join(f'"{word}"' for word in needed)
    line = f"write sends = [{words}] in [federation]"
    if not allowed:
        return CheckResult(
            "sends",
            False,
            "site.toml does not list what may leave, so every order is refused",
            line,
        )
    missing = [word for word in needed if word not in allowed]
    if missing:
        detail = (
            f"{config.method} sends {', '.join(missing)}, and site.toml allows "
            f"{', '.join(allowed)} only"
        )
        return CheckResult(
            "sends", False, detail, f"{line}, or take part in another method"
        )
    problem = compare_with_server(config, folder.parents[1] / "server" / "fedaux.toml")
    if problem:
        return CheckResult(
            "sends",
            False,
            problem,
            "agree with the server on one method and its settings, and write them in "
            "site.toml",
        )
    return CheckResult(
        "sends", True, f"{', '.join(allowed)} may leave, and nothing else"
    )


def compare_with_server(config: Config, path: Path) -> str:
    """Return how a site's settings differ from what the server's run needs, or "" if they
    do not, or are not here.
    """
    if not path.is_file():
        return ""
    try:
        server = Config.load(path)
    except FedauxError as error:
        return f"{path} cannot be read: {error}"
    if server.method != config.method:
        return (
            f"the server's method is {server.method}, this site's is {config.method}: "
            "its orders would be refused"
        )
    missing = [
        word for word in needed_by(server) if word not in config.federation.sends
    ]
    if missing:
        return (
            f"the server's run needs {', '.join(missing)}, which may not leave this "
            "site"
        )
    try:
        admit_run(server, Site(config, Path(), config.federation.sites))
    except FedauxError as error:
        return f"orders of the server's run would be refused. {error}"
    return ""


def check_schema(config: Config, folder: Path) -> CheckResult:
    """Whether the schema of the table can be read and is the server's, where its
    settings can be read.
    """
    try:
        own = open_schema(schema_path(config.data))
        own.require_confirmed(Path(config.data.path))
        problem = ""
        server = folder.parents[1] / "server" / "fedaux.toml"
        if server.is_file():
            problem = schema_problem(own, Config.load(server))
    except FedauxError as error:
        problem = str(error)
    if problem:
        remedy = "all parties need the same schema.toml: agree on one"
        return CheckResult("schema", False, problem, remedy)
    columns = plural(len(own.columns), "column")
    detail = f"{columns}, hash {own.hash}: the same at every site"
    return CheckResult("schema", True, detail)


def schema_problem(own: TableSchema, server: Config) -> str:
    """How a site's schema differs from the server's, column by column, or "" if it does
    not.
    """
    expected = schema_of(server.data)
    if expected is None or own.hash == expected.hash:
        return ""
    differences = "; ".join(own.differences(expected))
    return f"it differs from the server's: {differences}"


def check_records(
    config: Config, folder: Path, name: str
) -> tuple[Records | None, CheckResult]:
    """(the records, if there are any; whether they can be read, have declared labels, and belong to
    several persons).
    """
    path = config.data.path
    if path:  # relative to the site's folder
        path = str(folder / Path(path.replace("{client}", name)).expanduser())
    config = replace(config, data=replace(config.data, path=path))
    try:
        classes = class_names(config, name)
        with caching_in(folder / "vault" / DECODED):
            records = read_private(config.data, classes)
        labels = set(records.labels.tolist()) - {UNDECLARED}
        if not len(records):
            raise ValueError("there are none")
    except ConfigError as error:
        return None, CheckResult(
            "data", False, str(error), "correct [data] in site.toml"
        )
    except Exception as error:  # a source may be user code
        detail = f"the records cannot be used: {str(error) or type(error).__name__}"
        return None, CheckResult(
            "data",
            False,
            detail,
            "see [data] in site.toml, where paths are relative to its folder",
        )
    count = len(records)
    if not labels:
        detail = (
            f"not one of {count:,} records has a label that is declared. Declared are "
            f"{', '.join(classes)}"
        )
        return records, CheckResult(
            "data", False, detail, "compare the labels of the records with data.classes"
        )
    undeclared = int((records.labels == UNDECLARED).sum())
    detail = f"{count:,} records of {len(labels)} of {len(classes)} classes"
    if undeclared:
        detail += (
            f", but {undeclared:,} have a label that is missing or not declared: they "
            "count, but teach nothing"
        )
    if config.privacy.unit == "record":
        return records, CheckResult("data", True, detail)
    persons, counted = _count_persons(records, config.privacy)
    remedy = "see data.person in site.toml: it must find different people"
    return records, CheckResult.of(
        "data", persons > 1 or count == 1, f"{detail}, {counted}", remedy
    )


def check_own_networks(config: Config, records: Records, name: str) -> CheckResult:
    """Whether orders could be answered with the networks that the settings list, and
    with the public data that this site needs itself.
    """
    labels = ", ".join(spec.label for spec in config.prototypes)
    try:
        classes = class_names(config, name)
        check_networks(config, Networks.build(config, records.shape, len(classes)))
        if config.teachers.run_on == "clients":
            open_auxiliary(config)
    except Exception as error:  # a network and a source may be user code
        detail = f"every order would fail: {str(error) or type(error).__name__}"
        remedy = "correct prototypes, [aux] and [teachers] in site.toml"
        return CheckResult("networks", False, detail, remedy)
    return CheckResult("networks", True, f"{labels} can be used on these records")


def _count_persons(records: Records, privacy: PrivacyConfig) -> tuple[int, str]:
    """(number of persons, a text with it and the number of unused records)."""
    counts = np.unique(records.persons, return_counts=True)[1]
    most = privacy.max_records_per_person
    unused = int(np.maximum(counts - most, 0).sum())
    persons = plural(len(counts), "person")
    beyond = f"records beyond privacy.max_records_per_person = {most} and left out"
    return len(counts), f"{persons}, {beyond}: {unused:,}"


def check_disk(folder: Path, records: int) -> CheckResult:
    """Whether there is space for the features of all records, which are cached in the
    vault for each extractor.
    """
    free = shutil.disk_usage(folder).free
    need = records * MAX_FEATURE_BYTES + MARGIN_BYTES
    detail = (
        f"{free / 2**30:.1f} GiB free, the features of all records and models may need "
        f"{need / 2**30:.1f}"
    )
    return CheckResult.of("disk", free >= need, detail, f"make room where {folder} is")


def check_budget(config: Config, vault: Path) -> CheckResult:
    """What was spent, and whether the budget allows another release."""
    privacy = config.privacy
    try:
        spent = BudgetStore(vault, privacy, config.data.person).account()
    except BudgetError as error:
        return CheckResult(
            "account", False, str(error), "until then the site refuses everything"
        )
    entries = plural(spent.entries, "entry", "entries")
    detail = (
        f"ε = {round_up(spent.epsilon)} of {round_up(privacy.epsilon_budget)} spent in "
        f"{entries}"
    )
    if spent.epsilon + privacy.epsilon <= privacy.epsilon_budget or spent.entries == 0:
        return CheckResult("account", True, detail)
    remedy = (
        "a run that asks for the same release again gets the stored one, and planned "
        "training continues. Any other release is refused, unless privacy.epsilon_total "
        "in site.toml is raised"
    )
    return CheckResult("account", None, detail, remedy)
