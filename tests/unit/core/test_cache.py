"""What the cache holds is listed and can be deleted; what is not ours stays."""

import os
import time
from pathlib import Path

from fedaux.core.cache import SOURCE, clean_cache, list_cache
from fedaux.data import arrays
from fedaux.pretraining import store
from fedaux.scoring import features

KINDS = (*features.CACHED, *store.CACHED, *arrays.CACHED)  # as the command has them


def filled(folder: Path) -> Path:
    decoded = folder / "images-0123456789abcdef0123"
    decoded.mkdir(parents=True)
    (decoded / "x.npy").write_bytes(b"x" * 1000)
    (decoded / SOURCE).write_text("/data/scans")
    (folder / ".images-abcdefgh").mkdir()
    for name, size in (
        ("features-alone-1-abc.npy", 500),
        (".features-alone-1-def.npy.x1y2z3a4", 450),  # of a run that was killed
        (".extractor-def.checkpoint.x1y2z3a4", 30),
        ("features-abc.npy", 400),
        ("extractor-abc.safetensors", 300),
        ("extractor-abc.json", 20),
        ("extractor-def.checkpoint", 200),
        ("precision.json", 10),
        ("holiday.jpg", 9),
    ):
        (folder / name).write_bytes(b"x" * size)
    return folder


def test_entries_are_known_by_their_names_largest_first(tmp_path: Path) -> None:
    found = {entry.path.name: entry for entry in list_cache(filled(tmp_path), KINDS)}
    assert next(iter(found)) == "images-0123456789abcdef0123"
    assert set(found) == {path.name for path in tmp_path.iterdir()} - {
        "precision.json",
        "holiday.jpg",
    }
    decoded = found["images-0123456789abcdef0123"]
    assert (decoded.kind, decoded.source, decoded.bytes) == (
        "decoded images",
        "/data/scans",
        1011,
    )
    private = {name for name, entry in found.items() if entry.private}
    half = ".features-alone-1-def.npy.x1y2z3a4"
    assert private == {
        "images-0123456789abcdef0123",
        ".images-abcdefgh",
        "features-alone-1-abc.npy",
        half,
    }
    assert found[half].kind == "half-written features of private records"
    assert found["extractor-abc.json"].kind == "card of an extractor"
    assert list_cache(tmp_path / "nowhere", KINDS) == []


def test_deleted_is_what_was_chosen(tmp_path: Path) -> None:
    old = time.time() - 40 * 86_400
    os.utime(filled(tmp_path) / "features-abc.npy", (old, old))
    chosen = [entry for entry in list_cache(tmp_path, KINDS) if entry.days > 30]
    assert clean_cache(chosen) == 400
    assert not (tmp_path / "features-abc.npy").exists()
    clean_cache(list_cache(tmp_path, KINDS))
    assert {path.name for path in tmp_path.iterdir()} == {
        "precision.json",
        "holiday.jpg",
    }
