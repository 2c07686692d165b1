"""What `fedaux deploy check` tells a site about its own records. It is said here, to their owner, and sent nowhere."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from fedaux.config.parsing import ConfigError
from fedaux.config.schema import Config, PrivacyConfig
from fedaux.data.federated import class_names, read_private
from fedaux.data.records import UNDECLARED, Records
from fedaux.deploy.finding import CheckResult


def data(config: Config, folder: Path, name: str) -> tuple[int, CheckResult]:
    """(number of records, can they be read, have they declared labels, and whose are they?)"""
    path = str(folder / Path(config.data.path.replace("{client}", name)).expanduser()) if config.data.path else ""
    own = replace(config, data=replace(config.data, path=path))
    try:
        classes = class_names(own, name)
        records = read_private(own.data, classes)
        seen = set(records.labels.tolist()) - {UNDECLARED}
        if not len(records):
            raise ValueError("there is not one")
    except ConfigError as error:
        return 0, CheckResult("data", False, str(error), "mend [data] in site.toml")
    except Exception as error:  # a source may be anybody's own code
        detail = f"the records cannot be used: {str(error) or type(error).__name__}"
        return 0, CheckResult("data", False, detail, "see [data] in site.toml; paths are relative to its folder")
    count = len(records)
    if not seen:
        detail = f"not one of {count:,} records has a label that is declared; declared are {', '.join(classes)}"
        return count, CheckResult("data", False, detail, "compare the labels of the records with data.classes")
    strange = int((records.labels == UNDECLARED).sum())
    parts = [f"{count:,} records of {len(seen)} of {len(classes)} classes"]
    if strange:
        parts.append(f"{strange:,} have a label that is missing or not declared: they count, but teach nothing")
    if config.privacy.unit == "record":
        return count, CheckResult("data", True, "; ".join(parts))
    persons, said = _persons(records, config.privacy)
    remedy = "" if persons > 1 or count == 1 else "see data.person in site.toml: it must find different persons"
    return count, CheckResult("data", not remedy, "; ".join([*parts, said]), remedy)


def _persons(records: Records, privacy: PrivacyConfig) -> tuple[int, str]:
    """(how many there are, that and how many records are left out in words)"""
    each = np.unique(records.persons, return_counts=True)[1]
    left = int(np.maximum(each - privacy.max_records_per_person, 0).sum())
    beyond = f"records beyond privacy.max_records_per_person = {privacy.max_records_per_person} and left out"
    return len(each), f"{len(each):,} person{'s' * (len(each) != 1)}; {beyond}: {left:,}"
