"""Folders of image files: labels and persons come from the paths, one image changes its own record alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fedaux.config.parsing import ConfigError
from fedaux.data.sources import open_source
from helpers.own_records import groups, records, shades, site, write_images
from helpers.pictures import check, pictures, save_png


def test_folder_of_classes_with_train_and_test(tmp_path):
    x = pictures(5, 6)
    for file, image in zip(
        ("train/dog/2.png", "train/cat/9.png", "train/cat/1.PNG", "test/dog/1.png", "test/cat/1.png"), x, strict=True
    ):
        save_png(tmp_path / file, image)
    (tmp_path / "train" / "cat" / "notes.txt").write_text("not an image")
    corpus = open_source("images", tmp_path)
    check(corpus.train, x[[2, 1, 0]], [0, 0, 1])
    check(corpus.test, x[[4, 3]], [0, 1])
    assert corpus.classes == ("cat", "dog")


def test_flat_folder_is_unlabelled_and_may_be_grey(tmp_path):
    x = pictures(3, 6)[..., 0]
    for i, image in enumerate(x):
        save_png(tmp_path / "pics" / f"{i}.png", image)
    check(open_source("images", tmp_path / "pics", mode="L").train, x[..., None], None)
    check(open_source("images", tmp_path / "pics").train, np.repeat(x[..., None], 3, axis=-1), None)


def test_images_of_different_size_need_one(tmp_path):
    save_png(tmp_path / "pics" / "a.png", np.full((8, 16, 3), 7, dtype=np.uint8))
    wide = np.zeros((8, 16, 3), dtype=np.uint8)
    wide[:, 4:12] = 200  # what the central square keeps
    save_png(tmp_path / "pics" / "b.png", wide)
    save_png(tmp_path / "pics" / "c.png", pictures(1, 4)[0])
    with pytest.raises(ValueError, match=r"row 2 has shape .*size=32"):
        open_source("images", tmp_path / "pics")
    corpus = open_source("images", tmp_path / "pics", size=4)
    assert corpus.train.x.shape == (3, 4, 4, 3)
    assert (corpus.train.gather()[1] == 200).all()


def test_a_folder_without_images_says_so(tmp_path):
    (tmp_path / "pics").mkdir()
    with pytest.raises(ValueError, match="holds no image"):
        open_source("images", tmp_path / "pics")


def test_images_by_a_pattern_of_their_paths(tmp_path: Path) -> None:
    files = ["flu/p1_a.png", "flu/p2_a.png", "cold/p1_b.png", "none/stray.png", "cold/p_b.png"]
    write_images(tmp_path / "train", files)
    for pattern, persons in {
        r"/p([0-9]+)_": ["1", "2", "1", "", ""],
        "p[0-9]": ["p1", "p2", "p1", "", ""],
        "^(?:flu/(p.)|cold)": ["p1", "p2", "", "", ""],  # a group that took no part in the match
        "^[a-z]+": ["flu", "flu", "cold", "none", "cold"],
    }.items():
        found = records(site("images", tmp_path, person=pattern))
        assert found.persons.tolist() == groups([persons[shade] for shade in shades(found)])
        simulated = open_source("images", tmp_path, person=pattern).train
        assert simulated.persons.tolist() == groups([persons[shade] for shade in shades(simulated)])
    with pytest.raises(ConfigError, match=r"data\.person = '\(' is no regular expression"):
        records(site("images", tmp_path, person="("))


def test_a_new_person_among_images_leaves_the_others(tmp_path: Path) -> None:
    found = []
    for name in ("p1_z", "p2_z", "p9_z", "nobody"):
        folder = write_images(tmp_path / name, ["flu/p1_a.png", "flu/p2_a.png", "cold/p1_b.png", f"flu/{name}.png"])
        own = records(site("images", folder, person="p[0-9]"))
        by_shade = dict(zip(shades(own), own.persons.tolist(), strict=True))
        found.append((by_shade[0] == by_shade[2], by_shade[0] == by_shade[1], by_shade[1] == by_shade[2]))
    assert found == [(True, False, False)] * 4


def test_neighbouring_folders_of_images_differ_in_one_record(tmp_path: Path, cache: Path) -> None:
    files = ["cold/a.png", "flu/b.png", "flu/deep/c.png", "flu/d.png"]
    expected = {0: 1, 1: 0, 2: 0, 3: 0}
    for other, label in (("none/d.png", 2), ("aids/d.png", -1), ("d.png", -1), ("flu/d.png", 0)):
        folder = write_images(tmp_path / other.replace("/", "-"), [*files[:3], other])
        found = records(site("images", folder))
        assert dict(zip(shades(found), found.labels.tolist(), strict=True)) == expected | {3: label}


def test_the_old_option_for_images_refuses_no_record_at_a_site(tmp_path: Path, cache: Path) -> None:
    write_images(tmp_path, ["cold/a.png", "aids/b.png"])
    assert sorted(records(site("images", tmp_path, options={"classes": ["cold"]})).labels) == [-1, 1]
    with pytest.raises(ValueError, match="not all among the classes"):
        open_source("images", tmp_path, classes=["cold"])


def test_hidden_and_empty_folders_are_no_classes(tmp_path: Path) -> None:
    """As Jupyter and file managers leave them behind."""
    x = pictures(5, 6)
    files = ("cat/a.png", "dog/b.png", ".ipynb_checkpoints/a-checkpoint.png", "__MACOSX/._a.png", "cat/._a.png")
    for file, image in zip(files, x, strict=True):
        save_png(tmp_path / file, image)
    (tmp_path / "empty" / "deep").mkdir(parents=True)
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "readme.txt").write_text("no image")
    corpus = open_source("images", tmp_path)
    assert corpus.classes == ("cat", "dog")
    check(corpus.train, x[:2], [0, 1])


def test_a_test_class_that_training_lacks_is_refused(tmp_path: Path) -> None:
    for file, image in zip(("train/cat/1.png", "train/dog/1.png", "test/bird/1.png"), pictures(3, 6), strict=True):
        save_png(tmp_path / file, image)
    with pytest.raises(ValueError, match="test has the class bird, of which there is no training image"):
        open_source("images", tmp_path)
    (tmp_path / "test" / "bird" / "1.png").rename(tmp_path / "test" / "bird" / "1.txt")
    save_png(tmp_path / "test" / "dog" / "1.png", pictures(1, 6)[0])
    assert open_source("images", tmp_path).classes == ("cat", "dog")


THIRTY = pictures(30, 6)


def damaged_folder(folder: Path) -> Path:
    for i, image in enumerate(THIRTY):
        save_png(folder / "train" / f"{i % 2}" / f"{i:02}.png", image)
        save_png(folder / "test" / f"{i % 2}" / f"{i:02}.png", image)
    (folder / "train" / "0" / "04.png").write_bytes(b"no image")
    (folder / "test" / "1" / "05.png").write_bytes(b"")
    return folder


def test_a_damaged_image_is_left_out_and_named(tmp_path: Path) -> None:
    folder, x = damaged_folder(tmp_path / "scans"), THIRTY
    for _ in range(2):  # the second time from the cache
        corpus = open_source("images", folder, person=r"/(\d\d)")
        evens, odds = [i for i in range(0, 30, 2) if i != 4], list(range(1, 30, 2))
        check(corpus.train, x[[*evens, *odds]], [0] * 14 + [1] * 15)
        assert corpus.test is not None
        assert len(corpus.test) == 29
        assert len(set(corpus.train.persons.tolist())) == 29
        assert "2 images could not be read and are left out" in corpus.notes[0]
        assert "train/0/04.png" in corpus.notes[0]
    with pytest.raises(ValueError, match=r"04.png cannot be read as an image .* take it out"):
        open_source("images", folder, strict=True)


def test_a_folder_of_damaged_images_is_refused(tmp_path: Path) -> None:
    folder = damaged_folder(tmp_path / "scans")
    for i in range(6, 26):
        (folder / "train" / f"{i % 2}" / f"{i:02}.png").write_bytes(b"no image")
    with pytest.raises(ValueError, match=r"22 of 60 files cannot be read as images"):
        open_source("images", folder)


def test_at_a_site_a_damaged_image_stays_a_record_without_a_class(tmp_path: Path, cache: Path) -> None:
    """How many records there are must not depend on what is in them."""
    folder = write_images(tmp_path / "own", ["cold/a.png", "flu/b.png", "flu/c.png"])
    (folder / "flu" / "b.png").write_bytes(b"no image")
    found = records(site("images", folder, options={"size": 4, "mode": "L"}))
    assert found.labels.tolist() == [1, -1, 0]
    assert shades(found) == [0, 0, 2]
    with pytest.raises(ValueError, match=r"b.png cannot be read .*set size in data.options"):
        records(site("images", folder))
