"""An owner's settings as attacks see them: the shape and type of a record, and sites of
synthetic records under these settings.

Nothing of the site's own data is read but the shape and type of its records.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from fedaux.audit.odd_records import FORMATS, Format, Layout
from fedaux.audit.result import AttackSkipped
from fedaux.audit.site import SITE_NAME, AuditedSite, HostileServer
from fedaux.config.schema import Config
from fedaux.config.sends import NOISY_SUMS, needed_by
from fedaux.data.federated import read_private
from fedaux.data.labels import declared_classes
from fedaux.data.parquet import is_parquet
from fedaux.data.records import Records, is_text
from fedaux.messages import PrepareOrder

# whose records have the shape that they have, whatever the settings say
SHAPED_SOURCES = ("npy", "npz", "huggingface")


@dataclass(frozen=True)
class OwnSite:
    """An owner's settings, their classes, and the shape and type of a record."""

    config: Config
    classes: tuple[str, ...]
    shape: tuple[int, ...] = (8,)
    dtype: str = "float32"

    @classmethod
    def of(cls, config: Config) -> OwnSite:
        """Looks at the site's own data for the shape and type of a record, if they are
        there.
        """
        path = config.data.path.replace("{client}", config.federation.sites[0])
        data = replace(config.data, path=path)
        classes = declared_classes(data)
        if data.source not in SHAPED_SOURCES:
            return cls(config, classes)
        try:
            records = read_private(data, classes)
        except (OSError, ValueError) as error:
            raise AttackSkipped(
                f"its data cannot be read, so the shape of a record is unknown: {error}"
            ) from error
        if is_text(records.x):
            return cls(config, classes, ())
        return cls(config, classes, tuple(records.x.shape[1:]), str(records.x.dtype))

    @property
    def sends(self) -> tuple[str, ...]:
        """What may leave; where the settings do not say so, what the method needs."""
        return self.config.federation.sends or needed_by(self.config)

    def with_federation(self, **changes: Any) -> OwnSite:
        """Return the same site with other settings in [federation]."""
        federation = replace(self.config.federation, **changes)
        return replace(self, config=replace(self.config, federation=federation))

    def releasing(self) -> OwnSite:
        """Return the same site outside of secure sums, for what attacks its releases:
        they are made by the same code.

        A site that releases nothing has nothing to attack.
        """
        if NOISY_SUMS not in self.sends:
            raise AttackSkipped(
                "this site releases nothing with noise, but it sends "
                f"{', '.join(self.sends)}"
            )
        return self.with_federation(secure=False, approval="none", sends=self.sends)

    @property
    def format(self) -> Format:
        source = self.config.data.source
        if source == "table" and is_parquet(Path(self.config.data.path)):
            source = "table in parquet"
        if source not in FORMATS:
            raise AttackSkipped(
                f"source {source!r} is your own: no records can be made up in its "
                "format"
            )
        return FORMATS[source]

    @property
    def layout(self) -> Layout:
        data = self.config.data
        return Layout(
            self.classes, data.person, dict(data.options), self.shape, self.dtype
        )

    def synthetic_site(
        self, folder: Path, name: str = SITE_NAME, odd: str = ""
    ) -> AuditedSite:
        """Return a site of this name under these settings, with synthetic records in
        `folder`. The first of them is this odd one, if one is named.
        """
        data_folder = folder / "data"
        data_folder.mkdir(parents=True)
        path = self.format.write(self.layout, data_folder, odd)
        data = replace(self.config.data, path=path, classes=self.classes)
        named = self.with_federation(sites=(name,))
        return AuditedSite(folder, replace(named.config, data=data), (name,))

    def pairs(self, folder: Path) -> Iterator[tuple[str, list[AuditedSite]]]:
        """(what is odd, two sites under these settings), in the second, the first
        record was exchanged for it.
        """
        for number, odd in enumerate(self.format.odd):
            usual = self.synthetic_site(folder / f"{number}-usual")
            neighbour = self.synthetic_site(folder / f"{number}-odd", odd=odd)
            yield odd, [usual, neighbour]

    def records(self, site: AuditedSite) -> Records:
        return read_private(site.config.data, self.classes)

    def server_against(self, site: AuditedSite) -> HostileServer:
        """Return a hostile server with a network for the records of this site."""
        shape = self.records(site).shape
        return HostileServer.against(site, shape, len(self.classes))

    def orders(self, site: AuditedSite, count: int) -> list[PrepareOrder]:
        """Any site of `pairs` can answer them: φ is the sign of one feature of a
        network with random weights.
        """
        server = self.server_against(site)
        columns = np.eye(server.width)
        return [
            server.prepare(server.map(column=columns[number % server.width]))
            for number in range(count)
        ]
