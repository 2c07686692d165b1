"""Checks of a site's own records. The results are shown to their owner, and sent nowhere."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from fedaux.config.parsing import ConfigError
from fedaux.config.schema import Config, PrivacyConfig
from fedaux.data.federated import class_names, read_private
from fedaux.data.records import UNDECLARED, Records
from fedaux.deploy.check_result import CheckResult


def check_records(config: Config, folder: Path, name: str) -> tuple[int, CheckResult]:
    """(number of records, whether they can be read, have declared labels, and belong to several persons)."""
    path = str(folder / Path(config.data.path.replace("{client}", name)).expanduser()) if config.data.path else ""
    own = replace(config, data=replace(config.data, path=path))
    try:
        classes = class_names(own, name)
        records = read_private(own.data, classes)
        labels = set(records.labels.tolist()) - {UNDECLARED}
        if not len(records):
            raise ValueError("there are none")
    except ConfigError as error:
        return 0, CheckResult("data", False, str(error), "correct [data] in site.toml")
    except Exception as error:  # a source may be anybody's own code
        detail = f"the records cannot be used: {str(error) or type(error).__name__}"
        return 0, CheckResult("data", False, detail, "see [data] in site.toml; paths are relative to its folder")
    count = len(records)
    if not labels:
        detail = f"not one of {count:,} records has a label that is declared; declared are {', '.join(classes)}"
        return count, CheckResult("data", False, detail, "compare the labels of the records with data.classes")
    undeclared = int((records.labels == UNDECLARED).sum())
    parts = [f"{count:,} records of {len(labels)} of {len(classes)} classes"]
    if undeclared:
        parts.append(f"{undeclared:,} have a label that is missing or not declared: they count, but teach nothing")
    if config.privacy.unit == "record":
        return count, CheckResult("data", True, "; ".join(parts))
    persons, detail = _count_persons(records, config.privacy)
    remedy = "" if persons > 1 or count == 1 else "see data.person in site.toml: it must find different persons"
    return count, CheckResult("data", not remedy, "; ".join([*parts, detail]), remedy)


def _count_persons(records: Records, privacy: PrivacyConfig) -> tuple[int, str]:
    """(number of persons, a text with it and the number of unused records)."""
    each = np.unique(records.persons, return_counts=True)[1]
    unused = int(np.maximum(each - privacy.max_records_per_person, 0).sum())
    beyond = f"records beyond privacy.max_records_per_person = {privacy.max_records_per_person} and left out"
    return len(each), f"{len(each):,} person{'s' * (len(each) != 1)}; {beyond}: {unused:,}"
