"""Carry an extractor from one machine's cache to another's, rounded to half precision:
2.5 MB instead of two hours.

    python -m studies.artifact store studies/cifar10.toml       # cache → studies/artifacts/
    python -m studies.artifact restore studies/cifar10.toml     # studies/artifacts/ → cache

`fedaux prepare studies/cifar10.toml` trains it from the images instead.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file, save

from fedaux.config.schema import Config
from fedaux.core.io import cache_folder, write_atomically
from fedaux.data.federated import open_data
from fedaux.data.fingerprints import fingerprint_records
from fedaux.models.pretraining.store import artifact_path

FOLDER = Path(__file__).parent / "artifacts"


def carry(source: Path, target: Path, floats: type[np.floating], note: str) -> None:
    arrays = load_file(source)
    rounded = {
        name: array.astype(floats) if array.dtype.kind == "f" else array
        for name, array in arrays.items()
    }
    card = {
        **json.loads(source.with_suffix(".json").read_text(encoding="utf-8")),
        "note": note,
    }
    write_atomically(target.with_suffix(".json"), json.dumps(card, indent=1).encode())
    write_atomically(target, save(rounded))
    print(f"{source} → {target}")


def main(way: str, config: str) -> None:
    settings = Config.load(config)
    data = fingerprint_records(open_data(settings).aux)
    for spec in settings.prototypes:
        cached = artifact_path(spec, data, settings.pretrain, cache_folder())
        stored = FOLDER / cached.name
        if way == "store":
            carry(cached, stored, np.float16, "rounded to half precision")
        elif not cached.is_file():
            carry(
                stored,
                cached,
                np.float32,
                "trained elsewhere, and rounded to half precision on the way",
            )


if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[1] not in ("store", "restore"):
        sys.exit(__doc__)
    main(*sys.argv[1:])
