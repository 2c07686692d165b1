"""`fedaux deploy check`: finds what would go wrong at a site before it takes part, with a remedy for each problem."""

from __future__ import annotations

import shutil
import stat
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

from fedaux.config.schema import Config
from fedaux.core.errors import Exit, FedauxError
from fedaux.deploy.certificates import load_key, public_key_bytes
from fedaux.deploy.check_result import CheckResult
from fedaux.deploy.record_checks import check_records
from fedaux.deploy.server_checks import check_clock, check_registration, check_server
from fedaux.privacy.accounting import BudgetError, round_up
from fedaux.privacy.budget import BudgetStore, account_folder

MAX_FEATURE_BYTES = 2048 * 4  # of one record
MARGIN_BYTES = 2**28  # for logs and models


class SiteError(FedauxError, ValueError):
    """A folder that does not hold a site."""

    code = Exit.FOLDER


def check_site(folder: Path) -> Iterator[CheckResult]:
    """All checks, in the order in which one would fix problems."""
    folder = folder.expanduser().absolute()
    env = read_env(folder / "site.env")
    ca, address, name = folder / "ca.crt", env["SERVER"], env["NAME"]
    yield check_versions()
    yield (authority := check_certificate(ca))
    yield check_key_pair(folder)
    yield check_key_mode(folder / "key")
    unverified = CheckResult("server", None, "not called without a ca.crt")
    yield (server := check_server(address, ca) if authority.ok else unverified)
    if server.ok:
        yield check_clock(address, ca)
        yield check_registration(address, ca, folder / "key")
    else:
        yield CheckResult("clock", None, "cannot be compared without the server")
        yield CheckResult("registered", None, "is found out when the node starts")
    config = load_settings(folder)
    if isinstance(config, CheckResult):
        yield config
        return
    yield check_settings(config, name)
    yield check_privacy(config)
    count, result = check_records(config, folder, name)
    yield result
    yield check_disk(folder, count)
    yield check_budget(config, account_folder(config, folder / "vault", name))


def read_env(path: Path) -> dict[str, str]:
    """NAME, SERVER and PORT."""
    if not path.is_file():
        raise SiteError(f"{path.parent} is not a site: it has no {path.name}; `fedaux deploy init` writes one")
    lines = [line.partition("=") for line in path.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    env = {key.strip(): value.strip().strip("\"'") for key, _, value in lines}
    missing = [key for key in ("NAME", "SERVER", "PORT") if not env.get(key)]
    if missing:
        raise SiteError(f"{path} does not say {', '.join(missing)}: write lines such as SERVER=example.org:8443")
    if not env["SERVER"].rpartition(":")[2].isdigit():
        raise SiteError(f"{path}: SERVER={env['SERVER']} names no port; write SERVER=example.org:8443")
    return env


def check_versions() -> CheckResult:
    """The installed versions, and whether they are compatible."""
    from packaging.requirements import Requirement

    requirements = {need.name: need for need in map(Requirement, metadata.requires("fedaux") or [])}
    installed, wrong = [f"fedaux {metadata.version('fedaux')}"], []
    for name in ("flwr", "torch"):
        version = metadata.version(name)
        installed.append(f"{name} {version}")
        if name in requirements and not requirements[name].specifier.contains(version, prereleases=True):
            wrong.append(f"'{name}{requirements[name].specifier}'")
    return CheckResult("versions", not wrong, ", ".join(installed), f"pip install {' '.join(wrong)}" if wrong else "")


def check_certificate(path: Path, now: datetime | None = None) -> CheckResult:
    """Whether the certificate of the server's authority can be read and is still valid."""
    from cryptography import x509

    remedy = "ask the server for its ca.crt, on a way on which you can be sure that it is the server's"
    try:
        end = x509.load_pem_x509_certificate(path.read_bytes()).not_valid_after_utc
    except OSError as error:
        return CheckResult("certificate", False, f"{path} cannot be read: {error.strerror}", remedy)
    except ValueError:
        return CheckResult("certificate", False, f"{path} is not a certificate", remedy)
    ok = (now or datetime.now(UTC)) < end
    return CheckResult(
        "certificate", ok, f"{'valid until' if ok else 'expired on'} {end:%d %B %Y}", "" if ok else remedy
    )


def check_key_pair(folder: Path) -> CheckResult:
    """Whether there is a key of a type that Flower supports, and key.pub is its public half."""
    remedy = f"move key and key.pub away, call `fedaux deploy key {folder.name}` and send the new key.pub to the server"
    try:
        own, public = public_key_bytes(load_key(folder / "key")), (folder / "key.pub").read_bytes()
    except OSError as error:
        return CheckResult("key", False, f"{error.filename} cannot be read: {error.strerror}", remedy)
    except ValueError as error:
        return CheckResult("key", False, f"{folder / 'key'} is not a key that Flower takes: {error}", remedy)
    ok = own.split()[:2] == public.split()[:2]  # a comment may follow
    return CheckResult(
        "key", ok, "key and key.pub belong together" if ok else "key.pub is not key's", "" if ok else remedy
    )


def check_key_mode(path: Path) -> CheckResult:
    """Whether only its owner can read the key."""
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
    except OSError as error:
        return CheckResult("key's secrecy", False, f"{path} cannot be read: {error.strerror}", "see key, above")
    ok = mode & 0o077 == 0
    detail = "only its owner can read it" if ok else f"others can read it (mode {mode:o})"
    return CheckResult(
        "key's secrecy", ok, detail, "" if ok else f"chmod 600 '{path}', or a new key if anybody read it"
    )


def load_settings(folder: Path) -> Config | CheckResult:
    try:
        return Config.load(folder / "site.toml")
    except FedauxError as error:
        return CheckResult("settings", False, str(error), "correct site.toml")


def check_settings(config: Config, name: str) -> CheckResult:
    """Whether site.toml and site.env name the same site, and site.toml reads its own records."""
    if config.data.partition != "own":
        remedy = "write partition = 'own' in [data]"
        return CheckResult(
            "settings", False, "data.partition would simulate clients instead of reading records", remedy
        )
    if name not in config.federation.sites:
        detail = f"site.env says that this is {name}, site.toml says {', '.join(config.federation.sites)}"
        return CheckResult("settings", False, detail, f'write sites = ["{name}"] in [federation]')
    return CheckResult("settings", True, f"site.toml of {name}")


def check_privacy(config: Config) -> CheckResult:
    """The budget that the settings promise."""
    own = config.privacy
    if own.unsafe_seed >= 0:
        remedy = "delete privacy.unsafe_seed from site.toml"
        return CheckResult("privacy", False, "the noise comes from a known seed: anybody can remove it", remedy)
    trained = "scores and models" if own.private_training else "trained models leave WITHOUT noise; scores"
    return CheckResult("privacy", True, f"{trained} cost at most ε = {own.epsilon_budget:g} at δ = {own.delta:g}, ever")


def check_disk(folder: Path, records: int) -> CheckResult:
    """Whether there is space for the features of all records, which are cached for each extractor."""
    free, need = shutil.disk_usage(folder).free, records * MAX_FEATURE_BYTES + MARGIN_BYTES
    detail = f"{free / 2**30:.1f} GiB free, the features of all records and models may need {need / 2**30:.1f}"
    return CheckResult("disk", free >= need, detail, "" if free >= need else f"make room where {folder} is")


def check_budget(config: Config, vault: Path) -> CheckResult:
    """What was spent, and whether the budget allows another release."""
    name, privacy = "account", config.privacy
    try:
        spent = BudgetStore(vault, privacy).account()
    except BudgetError as error:
        return CheckResult(name, False, str(error), "until then the site refuses everything")
    left = spent.epsilon + privacy.epsilon <= privacy.epsilon_budget or spent.entries == 0
    detail = f"ε = {round_up(spent.epsilon)} of {privacy.epsilon_budget:g} spent in {spent.entries} entries"
    remedy = (
        "a run that asks for the same release again gets the stored one, and planned training goes on; any other "
        "release is refused, unless privacy.epsilon_total in site.toml is raised"
    )
    return CheckResult(name, True if left else None, detail, "" if left else remedy)
