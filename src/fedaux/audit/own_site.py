"""Attacks on a site's own settings, with synthetic neighbours: its networks, its source, its map, its account."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from fedaux.audit.accounts import composed_epsilon, replies_to
from fedaux.audit.attack_result import AttackResult, AttackSkipped, AuditConfig
from fedaux.audit.site import NAME, Server, Site, compare_releases
from fedaux.audit.synthetic import Template, neighbours
from fedaux.config.schema import Config
from fedaux.core.messages import PrepareOrder
from fedaux.data.classes import declared_classes
from fedaux.data.federated import read_private
from fedaux.data.records import Records, is_text
from fedaux.models import build
from fedaux.privacy.module_validation import UnsupportedModuleError, validate_module
from fedaux.privacy.per_record import ImpureModuleError
from fedaux.scoring.features import private_outputs


@dataclass(frozen=True)
class OwnSite:
    """`config` is the owner's, but for the path of its data."""

    config: Config
    template: Template

    @classmethod
    def of(cls, config: Config) -> OwnSite:
        """Looks at the site's own data for the shape and type of a record, if they are there."""
        own = replace(config.data, path=config.data.path.replace("{client}", config.federation.sites[0]))
        classes = declared_classes(own)
        template = Template(replace(own, classes=classes), classes)
        if config.data.source in ("npy", "npz", "huggingface"):
            try:
                records = read_private(own, classes)
            except (OSError, ValueError) as error:
                raise AttackSkipped(f"its data cannot be read, so the shape of a record is unknown: {error}") from error
            shape = () if is_text(records.x) else tuple(records.x.shape[1:])
            template = replace(template, shape=shape, dtype=str(records.x.dtype) if shape else "float32")
        return cls(config, template)

    @property
    def audit(self) -> AuditConfig:
        privacy = self.config.privacy
        return AuditConfig(privacy.epsilon, privacy.delta)

    def pairs(self, folder: Path) -> Iterator[tuple[str, list[Site]]]:
        """(what is odd, two sites under the owner's settings, one of them with the odd record)."""
        for odd, paths in neighbours(self.template, folder):
            yield odd, [self.at(path, Path(path).parent / "site") for path in paths]

    def at(self, path: str, folder: Path) -> Site:
        data = replace(self.template.data, path=path)
        federation = replace(self.config.federation, sites=(NAME,))
        return Site(folder, replace(self.config, data=data, federation=federation))

    def records(self, site: Site) -> Records:
        return read_private(site.config.data, self.template.classes)

    def orders(self, site: Site, count: int) -> list[PrepareOrder]:
        """Any site of `pairs` can answer them: φ is the sign of one feature of a network with random weights."""
        server = Server.against(site, self.records(site).shape, len(self.template.classes))
        columns = np.eye(server.width)
        return [server.prepare(server.map(column=columns[number % server.width])) for number in range(count)]


def own_networks(own: OwnSite, folder: Path) -> AttackResult:
    """Every network of the settings: by its modules and their options, and by what it does to records."""
    _, (site, _) = next(own.pairs(folder))
    records = own.records(site)
    for spec in own.config.prototypes:
        model = build(spec, records.shape, len(own.template.classes), 0)
        try:
            private_outputs(model.features, records)
            if own.config.privacy.private_training and not own.config.head_only:
                validate_module(model, training=True)
        except (UnsupportedModuleError, ImpureModuleError) as error:
            return AttackResult.exact(True, f"{spec.label}: {error}")
    names = ", ".join(spec.label for spec in own.config.prototypes)
    return AttackResult.exact(False, f"{names}: allowed modules, and {len(records)} records left no trace")


def own_source(own: OwnSite, folder: Path) -> AttackResult:
    """One record exchanged for each odd one, from the file to the release."""
    pairs = list(own.pairs(folder))
    (order,) = own.orders(pairs[0][1][0], 1)
    found = [compare_releases(sites, order, own.audit, odd) for odd, sites in pairs]
    worst = max(found, key=lambda one: one.bound - one.claimed)
    return replace(worst, detail=f"{len(found)} odd records; at worst {worst.detail}")


def own_map(own: OwnSite, folder: Path) -> AttackResult:
    """A public map of other types than the site expects, NaN and infinities among them."""
    _, sites = next(own.pairs(folder))
    (order,) = own.orders(sites[0], 1)
    found = []
    for dtype, fill in (("int64", np.iinfo(np.int64).min), ("float64", 1e300), ("float32", np.nan), (">f4", 1.0)):
        basis = np.full(order.public["basis"].shape, fill, dtype)
        odd = replace(order, public={**order.public, "basis": basis})
        found.append(compare_releases(sites, odd, own.audit, f"{dtype} of {fill:g}"))
    return max(found, key=lambda one: one.bound - one.claimed)


def own_account(own: OwnSite, folder: Path) -> AttackResult:
    """Many questions, and each of them twice: the ε of all answers together, against the owner's total."""
    _, (site, _) = next(own.pairs(folder))
    orders = own.orders(site, 4)
    replies = list(replies_to(site, [*orders, *orders]))
    privacy = own.config.privacy
    bound = composed_epsilon(replies, own.audit, privacy.adjacency)
    return AttackResult(privacy.epsilon_budget, bound, f"{len(orders)} questions, each asked twice")


OWN_ATTACKS = {  # what is attacked, and how
    "own-networks": ("the networks of the settings", own_networks),
    "own-source": ("an odd record in the source's format, on others", own_source),
    "own-map": ("a public map of other types", own_map),
    "own-account": ("the owner's total, by asking again", own_account),
}
