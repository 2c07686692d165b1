"""Private records are refused as public ones: by their path, and by what is in them."""

from pathlib import Path

import numpy as np
import pytest

from fedaux.config.schema import Config
from fedaux.config.sections import AuxConfig, DataConfig
from fedaux.data import overlap
from fedaux.data.federated import open_data, open_public
from fedaux.data.overlap import OverlapError, refuse_overlap, refuse_same_source, shared_records
from fedaux.data.records import Records
from helpers.pictures import pictures, save_png


def images(count: int, seed: int = 0) -> Records:
    return Records(np.random.default_rng(seed).integers(0, 256, (count, 6, 6, 1), dtype=np.uint8))


def test_equal_records_are_counted_wherever_they_stand() -> None:
    private = images(300)
    public = Records(np.concatenate([images(100, 1).x, private.x[50:80]]))
    found = shared_records(private, public)
    assert (found.count, found.compared) == (30, 130)
    assert not found.by_chance
    assert shared_records(private, images(100, 1)).count == 0
    texts = np.array(["one", "two", " "], dtype=object)
    assert shared_records(Records(texts), Records(np.array(["two", " ", "x"], dtype=object))).count == 1  # blank: none


def test_large_sets_are_sampled_and_still_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overlap, "SAMPLE", 200)
    found = shared_records(images(2000), images(2000))
    assert found.compared == 200
    assert not found.by_chance
    assert shared_records(images(2000), images(2000, 1)).by_chance


def test_an_array_is_hashed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    private, public = images(50), images(40, 1)
    first = shared_records(private, public)
    monkeypatch.setattr(overlap, "_digest", lambda row: pytest.fail("hashed again"))
    assert shared_records(Records(private.x), Records(public.x)) == first


def test_blank_images_and_rows_that_repeat_prove_nothing() -> None:
    blank = Records(np.full((50, 6, 6, 1), 255, np.uint8))
    assert shared_records(blank, blank).count == 0
    rng = np.random.default_rng(0)
    rows = [Records(rng.integers(0, 2, (300, 3)).astype(np.float32)) for _ in range(2)]
    assert shared_records(*rows).by_chance  # eight possible rows


def test_a_few_equal_records_are_a_notice() -> None:
    private = images(1000)
    public = Records(np.concatenate([images(500, 1).x, private.x[:2]]))
    assert "2 of 502 records compared are both private and auxiliary" in refuse_overlap(private, public)
    assert refuse_overlap(private, images(500, 1)) == ""
    with pytest.raises(OverlapError, match="30 are both in the private data and in the auxiliary"):
        refuse_overlap(private, Records(np.concatenate([images(500, 1).x, private.x[:30]])))


def test_the_same_path_is_refused_unread() -> None:
    with pytest.raises(OverlapError, match=r"aux.path and data.path are the same, scans/: .* delete aux.source"):
        refuse_same_source(DataConfig("images", "scans"), AuxConfig("images", "scans/"))
    refuse_same_source(DataConfig("images", "scans"), AuxConfig("images", "public"))
    parts = DataConfig("stl10", "here", (("part", "train"),)), AuxConfig("stl10", "here", (("part", "unlabeled"),))
    refuse_same_source(*parts)  # two parts of one published dataset
    refuse_same_source(DataConfig(), AuxConfig())


def test_a_simulation_and_a_server_refuse_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDAUX_CACHE", str(tmp_path / "cache"))
    x = pictures(40, 6)
    for i, image in enumerate(x):
        save_png(tmp_path / "scans" / f"{i % 2}" / f"{i}.png", image)
        save_png(tmp_path / "copied" / f"{i}.png", image)
        save_png(tmp_path / "other" / f"{i}.png", 255 - image)

    def config(aux: str) -> Config:
        data = {"source": "images", "path": str(tmp_path / "scans"), "clients": 2, "alpha": 100}
        return Config.from_dict({"data": data, "aux": {"source": "images", "path": str(tmp_path / aux)}})

    with pytest.raises(OverlapError, match="are the same"):
        open_data(config("scans"))
    with pytest.raises(OverlapError, match="40 are both"):
        open_data(config("copied"))
    with pytest.raises(OverlapError, match="20 are both"):
        open_data(config("scans/1"))
    assert len(open_data(config("other")).aux) == 40
    table = config("scans").to_dict()
    table["data"] |= {"partition": "own", "classes": ["0", "1"]}
    with pytest.raises(OverlapError, match="are the same"):
        open_public(Config.from_dict({**table, "federation": {"sites": ["a"]}}))
