"""Attacks on a site's own settings: its networks, its source, its map, its account.

With synthetic neighbours, of which one has an odd record. Records are made up, but
written as the site's settings say: its columns, its sizes, its classes. Nothing of the
site's own data is read but the shape and type of its records.
"""

from __future__ import annotations

import csv
import importlib
import io
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from fedaux.audit import layer
from fedaux.audit.accounts import composed_epsilon, replies_to
from fedaux.audit.attack import Attack, AttackResult, AttackSkipped, AuditConfig
from fedaux.audit.records import text_prototype
from fedaux.audit.site import (
    IDENTITY,
    NAME,
    AuditedSite,
    HostileServer,
    compare_releases,
)
from fedaux.config.schema import Config
from fedaux.config.sends import NOISY_SUMS, needed_by
from fedaux.data.federated import read_private
from fedaux.data.labels import declared_classes
from fedaux.data.records import Records, is_text
from fedaux.messages import PrepareOrder
from fedaux.models import build
from fedaux.privacy.module_validation import UnsupportedModuleError, validate_module
from fedaux.privacy.per_record import ImpureModuleError
from fedaux.scoring.features import private_outputs

COUNT = 24
WORDS = [
    "a",
    "fever",
    "that",
    "went",
    "away",
    "after",
    "some",
    "days",
    "and",
    "came",
    "back",
]
ODD_TEXT: dict[str, dict[str, Any]] = {
    "a missing label": {"label": None},
    "an undeclared label": {"label": "no such class"},
    "a nested value": {"text": {"a": [1]}, "label": ["x"]},
    "no text": {"text": None},
    "a long text": {"text": "word " * 20_000},
}
ODD_LINES = {
    "bytes that are no text": b"\xff\xfe\x00\xc3\x28",
    "a quote that never closes": b'"never closed',
}
# (folder, content); None: a proper image
ODD_IMAGES: dict[str, tuple[str, bytes | None]] = {
    "an empty file": ("", b""),
    "no image": ("", b"no image"),
    "a folder of no class": ("no such class", None),
    "a folder called train": ("train", None),
    "a folder called test": ("test", None),
    "no folder": (".", None),
}
# (all of x, the label); None: as it was
ODD_ARRAYS: dict[str, tuple[float | None, Any]] = {
    "not a number": (float("nan"), None),
    "infinite": (float("inf"), None),
    "a negative label": (None, -7),
    "a label that is too large": (None, 10**6),
    "a label that is not a number": (None, float("nan")),
    "a label in words": (None, "no such class"),
}
CLASSES = ("flu", "train", "none")  # one of them is called as splits are
OPTIONS: dict[str, dict[str, Any]] = {
    "images": {"size": 8},
    "huggingface": {"shape": 8},
}
TEXTS = ("csv", "jsonl", "parquet")


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
        own = replace(
            config.data,
            path=config.data.path.replace("{client}", config.federation.sites[0]),
        )
        classes = declared_classes(own)
        if own.source not in ("npy", "npz", "huggingface"):
            return cls(config, classes)
        try:
            records = read_private(own, classes)
        except (OSError, ValueError) as error:
            raise AttackSkipped(
                f"its data cannot be read, so the shape of a record is unknown: {error}"
            ) from error
        if is_text(records.x):
            return cls(config, classes, ())
        return cls(config, classes, tuple(records.x.shape[1:]), str(records.x.dtype))

    @property
    def audit(self) -> AuditConfig:
        privacy = self.config.privacy
        return AuditConfig(privacy.epsilon, privacy.delta)

    @property
    def person(self) -> str:
        return self.config.data.person

    @property
    def options(self) -> dict[str, Any]:
        return dict(self.config.data.options)

    def labels(self) -> list[str]:
        return [self.classes[index % len(self.classes)] for index in range(COUNT)]

    def pairs(self, folder: Path) -> Iterator[tuple[str, list[AuditedSite]]]:
        """(what is odd, two sites under these settings); in the second, the first
        record was exchanged for it.
        """
        source = self.config.data.source
        if source not in FORMATS:
            raise AttackSkipped(
                f"source {source!r} is your own: no records can be made up in its "
                "format"
            )
        odd, write = FORMATS[source]
        for number, name in enumerate(odd):
            sites = []
            for which in ("", name):
                place = folder / f"{number}-{'odd' if which else 'usual'}" / "data"
                place.mkdir(parents=True)
                data = replace(
                    self.config.data,
                    path=write(self, place, which),
                    classes=self.classes,
                )
                federation = replace(self.config.federation, sites=(NAME,))
                sites.append(
                    AuditedSite(
                        place.parent,
                        replace(self.config, data=data, federation=federation),
                    )
                )
            yield name, sites

    def records(self, site: AuditedSite) -> Records:
        return read_private(site.config.data, self.classes)

    @property
    def sends(self) -> tuple[str, ...]:
        """What may leave; where the settings do not say so, what the method needs."""
        return self.config.federation.sends or needed_by(self.config)

    def usual_site(self, folder: Path, name: str) -> AuditedSite:
        """Return a site of this name under these settings, with synthetic records and
        nothing odd.
        """
        source = self.config.data.source
        if source not in FORMATS:
            raise AttackSkipped(
                f"source {source!r} is your own: no records can be made up in its "
                "format"
            )
        data_folder = folder / "data"
        data_folder.mkdir(parents=True)
        _, write = FORMATS[source]
        data = replace(
            self.config.data, path=write(self, data_folder, ""), classes=self.classes
        )
        federation = replace(self.config.federation, sites=(name,))
        site = AuditedSite(
            folder, replace(self.config, data=data, federation=federation), (name,)
        )
        site.vault.mkdir(parents=True)
        return site

    def releasing(self) -> OwnSite:
        """Return the same site outside of secure sums, for what attacks its releases:
        they are made by the same code.

        A site that releases nothing has nothing to attack.
        """
        if NOISY_SUMS not in self.sends:
            raise AttackSkipped(
                "this site releases nothing under noise; it sends "
                f"{', '.join(self.sends)}"
            )
        own = replace(
            self.config.federation, secure=False, approval="none", sends=self.sends
        )
        return replace(self, config=replace(self.config, federation=own))

    def orders(self, site: AuditedSite, count: int) -> list[PrepareOrder]:
        """Any site of `pairs` can answer them: φ is the sign of one feature of a
        network with random weights.
        """
        server = HostileServer.against(
            site, self.records(site).shape, len(self.classes)
        )
        columns = np.eye(server.width)
        return [
            server.prepare(server.map(column=columns[number % server.width]))
            for number in range(count)
        ]


# (site, empty folder, name of an odd record or "") → data.path
Write = Callable[[OwnSite, Path, str], str]


def _rows(own: OwnSite, odd: str) -> list[dict[str, Any]]:
    """Text, label and person of each record."""
    rows: list[dict[str, Any]] = [
        {
            "text": " ".join(WORDS[: 1 + index % len(WORDS)]),
            "label": label,
            "person": f"p{index // 2}",
        }
        for index, label in enumerate(own.labels())
    ]
    rows[0] |= ODD_TEXT.get(odd, {})
    return rows


def _table(own: OwnSite, odd: str) -> list[dict[str, Any]]:
    """The same under the columns that the settings name."""
    texts, label = own.options.get("text", "text"), own.options.get("label", "label")
    columns, person = [texts] if isinstance(texts, str) else list(texts), own.person
    return [
        {
            **dict.fromkeys(columns, row["text"]),
            label: row["label"],
            **({person: row["person"]} if person else {}),
        }
        for row in _rows(own, odd)
    ]


def _write_csv(own: OwnSite, folder: Path, odd: str) -> str:
    rows, names = _table(own, odd), list(own.options.get("columns", ()))
    stream = io.StringIO()
    writer = csv.DictWriter(
        stream, names or list(rows[0]), restval="", lineterminator="\n"
    )
    if not names:
        writer.writeheader()
    writer.writerows(rows)
    lines = stream.getvalue().encode("utf-8", "surrogatepass").split(b"\n")
    return _write_lines(folder / "table.csv", lines, odd, first=0 if names else 1)


def _write_jsonl(own: OwnSite, folder: Path, odd: str) -> str:
    lines = [json.dumps(row).encode() for row in _table(own, odd)]
    return _write_lines(folder / "table.jsonl", [*lines, b""], odd, first=0)


def _write_lines(path: Path, lines: Sequence[bytes], odd: str, first: int) -> str:
    content = list(lines)
    content[first] = ODD_LINES.get(odd, content[first])
    path.write_bytes(b"\n".join(content))
    return str(path)


def _write_parquet(own: OwnSite, folder: Path, odd: str) -> str:
    import pyarrow as pa
    from pyarrow import parquet

    rows = _table(own, odd)
    texts = {name: [_bytes(row.get(name)) for row in rows] for name in rows[0]}
    if odd in ODD_LINES:
        texts = {name: [ODD_LINES[odd], *values[1:]] for name, values in texts.items()}
    arrays = {}
    for name, values in texts.items():
        raw = pa.array(values, pa.binary())
        # unchecked
        arrays[name] = pa.Array.from_buffers(pa.string(), len(raw), raw.buffers())
    parquet.write_table(pa.table(arrays), folder / "table.parquet")
    return str(folder / "table.parquet")


def _bytes(value: Any) -> bytes | None:
    return None if value is None else str(value).encode("utf-8", "surrogatepass")


def _write_images(own: OwnSite, folder: Path, odd: str) -> str:
    """Image i has a shade of its own; its name has a person in it, should the settings
    look for one.
    """
    root = folder / "images"
    for index, label in enumerate(own.labels()):
        place, content = ODD_IMAGES[odd] if odd and index == 0 else ("", None)
        file = (
            root
            / own.options.get("split", "")
            / (place or label)
            / f"patient{index // 2}_{index:03d}.png"
        )
        file.parent.mkdir(parents=True, exist_ok=True)
        if content is None:
            pixels = np.random.default_rng(index).integers(
                0, 256, (12, 12, 3), dtype=np.uint8
            )
            Image.fromarray(pixels).save(file)
        else:
            file.write_bytes(content)
    return str(root)


def _arrays(own: OwnSite, odd: str) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(COUNT, *own.shape)).astype(own.dtype)
    if own.dtype == "uint8":
        x = rng.integers(0, 256, x.shape, dtype=np.uint8)
    y: list[Any] = [index % len(own.classes) for index in range(COUNT)]
    fill, label = ODD_ARRAYS.get(odd, (None, None))
    if fill is not None and x.dtype.kind == "f":
        x[0] = fill
    y[0] = y[0] if label is None else label
    persons = {own.person: np.arange(COUNT) // 2} if own.person else {}
    return {"x": x, "y": np.array(y), **persons}


def _write_npy(own: OwnSite, folder: Path, odd: str) -> str:
    for name, array in _arrays(own, odd).items():
        np.save(folder / f"{name}.npy", array)
    return str(folder)


def _write_npz(own: OwnSite, folder: Path, odd: str) -> str:
    np.savez(folder / "records.npz", **_arrays(own, odd))
    return str(folder / "records.npz")


def _write_huggingface(own: OwnSite, folder: Path, odd: str) -> str:
    """Texts, or numbers of the site's shape, under the columns that the settings name;
    labels in words.
    """
    try:
        datasets = importlib.import_module("datasets")
    except ImportError as error:
        raise AttackSkipped(
            "datasets is not installed: pip install 'fedaux[datasets]'"
        ) from error
    options, rows = own.options, _rows(own, odd)
    numbers = np.random.default_rng(0).normal(size=(COUNT, *own.shape)).tolist()
    x: list[Any] = [None if row["text"] is None else str(row["text"]) for row in rows]
    if own.shape:
        x = [None if text is None else numbers[index] for index, text in enumerate(x)]
    columns = {
        options.get("record") or ("x" if own.shape else "text"): x,
        options.get("label") or "label": [
            None if row["label"] is None else str(row["label"]) for row in rows
        ],
    }
    if own.person:
        columns[own.person] = [row["person"] for row in rows]
    datasets.disable_progress_bars()
    datasets.Dataset.from_dict(columns).save_to_disk(str(folder / "saved"))
    return str(folder / "saved")


FORMATS: Mapping[str, tuple[Sequence[str], Write]] = {
    "csv": ([*ODD_TEXT, *ODD_LINES], _write_csv),
    "jsonl": ([*ODD_TEXT, *ODD_LINES], _write_jsonl),
    "parquet": ([*ODD_TEXT, *ODD_LINES], _write_parquet),
    "images": (list(ODD_IMAGES), _write_images),
    "npy": (list(ODD_ARRAYS), _write_npy),
    "npz": (list(ODD_ARRAYS), _write_npz),
    "huggingface": (list(ODD_TEXT), _write_huggingface),
}


def own_networks(own: OwnSite, folder: Path) -> AttackResult:
    """Every network of the settings: by its modules and their options, and by what it
    does to records.
    """
    _, (site, _) = next(own.pairs(folder))
    records = own.records(site)
    for spec in own.config.prototypes:
        model = build(spec, records.shape, len(own.classes), 0)
        try:
            private_outputs(model.features, records)
            if own.config.privacy.private_training and not own.config.head_only:
                validate_module(model, training=True)
        except (UnsupportedModuleError, ImpureModuleError) as error:
            return AttackResult.exact(True, f"{spec.label}: {error}")
    names = ", ".join(spec.label for spec in own.config.prototypes)
    return AttackResult.exact(
        False, f"{names}: allowed modules, and {len(records)} records left no trace"
    )


def own_source(own: OwnSite, folder: Path) -> AttackResult:
    """One record exchanged for each odd one, from the file to the release."""
    own = own.releasing()
    pairs = list(own.pairs(folder))
    (order,) = own.orders(pairs[0][1][0], 1)
    found = [compare_releases(sites, order, own.audit, odd) for odd, sites in pairs]
    worst = max(found, key=lambda one: one.bound - one.claimed)
    return replace(worst, detail=f"{len(found)} odd records; at worst {worst.detail}")


def own_map(own: OwnSite, folder: Path) -> AttackResult:
    """A public map of other types than the site expects, NaN and infinities among
    them.
    """
    own = own.releasing()
    _, sites = next(own.pairs(folder))
    (order,) = own.orders(sites[0], 1)
    found = []
    for dtype, fill in (
        ("int64", np.iinfo(np.int64).min),
        ("float64", 1e300),
        ("float32", np.nan),
        (">f4", 1.0),
    ):
        basis = np.full(order.public["basis"].shape, fill, dtype)
        odd = replace(order, public={**order.public, "basis": basis})
        found.append(compare_releases(sites, odd, own.audit, f"{dtype} of {fill:g}"))
    return max(found, key=lambda one: one.bound - one.claimed)


def own_account(own: OwnSite, folder: Path) -> AttackResult:
    """Many questions, and each of them twice: the ε of all answers together, against
    the owner's total.
    """
    own = own.releasing()
    _, (site, _) = next(own.pairs(folder))
    orders = own.orders(site, 4)
    replies = list(replies_to(site, [*orders, *orders]))
    privacy = own.config.privacy
    bound = composed_epsilon(replies, own.audit, privacy.adjacency)
    return AttackResult(
        privacy.epsilon_budget, bound, f"{len(orders)} questions, each asked twice"
    )


def odd_records(source: str) -> Attack:
    """A site with this source, and each odd record that its format can hold."""

    def attack(folder: Path, audit: AuditConfig) -> AttackResult:
        spec = text_prototype(folder / "words") if source in TEXTS else IDENTITY
        config = Config.from_dict(
            {
                "prototypes": [{"name": spec.name, **dict(spec.options)}],
                "data": {
                    "source": source,
                    "partition": "own",
                    "classes": CLASSES,
                    "options": OPTIONS.get(source, {}),
                },
                "federation": {"sites": ["site"], "sends": [NOISY_SUMS]},
                "privacy": {"epsilon": audit.epsilon, "delta": audit.delta},
            }
        )
        # without `train` among the classes, a reader that guesses would take a folder
        # of that name for a split
        declared = [OwnSite(config, names) for names in (CLASSES, CLASSES[::2])]
        found = [own_source(one, folder / f"{len(one.classes)}") for one in declared]
        return max(found, key=lambda one: one.bound)

    return attack


OWN_ATTACKS = {  # what is attacked, and how
    "own-gate": ("every kind of order, against what may leave", layer.own_gate),
    "own-sums": ("unequal orders and copied keys in a secure sum", layer.own_sums),
    "own-approvals": (
        "orders beyond the plan that an owner approved",
        layer.own_approvals,
    ),
    "own-networks": ("the networks of the settings", own_networks),
    "own-source": ("an odd record in the source's format, on others", own_source),
    "own-map": ("a public map of other types", own_map),
    "own-account": ("the owner's total, by asking again", own_account),
}
