"""Attacks by one odd record in the files of a site, on what the others contribute: each format by itself."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from fedaux.audit.attack_result import Attack, AttackResult, AuditConfig
from fedaux.audit.own_site import OwnSite, own_source
from fedaux.audit.records import IDENTITY
from fedaux.audit.synthetic import Template
from fedaux.audit.texts import text_prototype
from fedaux.config.schema import Config

CLASSES = ("flu", "train", "none")  # one of them is called as splits are
OPTIONS: dict[str, dict[str, Any]] = {"images": {"size": 8}, "huggingface": {"shape": 8}}
TEXTS = ("csv", "jsonl", "parquet")


def odd_records(source: str) -> Attack:
    """A site with this source, and each odd record that its format can hold."""

    def attack(folder: Path, audit: AuditConfig) -> AttackResult:
        spec = text_prototype(folder / "words") if source in TEXTS else IDENTITY
        config = Config.from_dict(
            {
                "prototypes": [{"name": spec.name, **dict(spec.options)}],
                "data": {"source": source, "partition": "own", "classes": CLASSES, "options": OPTIONS.get(source, {})},
                "federation": {"sites": ["site"]},
                "privacy": {"epsilon": audit.epsilon, "delta": audit.delta},
            }
        )
        # without `train` among the classes a folder of that name would be a split to whoever guesses
        declared = [Template(replace(config.data, classes=names), names) for names in (CLASSES, CLASSES[::2])]
        found = [own_source(OwnSite(config, one), folder / f"{len(one.classes)}") for one in declared]
        return max(found, key=lambda one: one.bound)

    return attack
