"""Folders of images, of which one changes its own record alone; small files in the
format of published data sets.
"""

from __future__ import annotations

import io
import os
import struct
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fedaux.config.parsing import ConfigError
from fedaux.config.schema import Config
from fedaux.core.errors import Exit
from fedaux.data.federated import open_data, read_private
from fedaux.data.sources import open_source
from helpers.own_records import CLASSES, groups, records, shades, site, write_images
from helpers.pictures import RNG, check, dump_python2, pictures, planes, save_png

SIZE = {"size": 4}


def test_folder_of_classes_with_train_and_test(tmp_path):
    x = pictures(5, 6)
    for file, image in zip(
        (
            "train/dog/2.png",
            "train/cat/9.png",
            "train/cat/1.PNG",
            "test/dog/1.png",
            "test/cat/1.png",
        ),
        x,
        strict=True,
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
    check(
        open_source("images", tmp_path / "pics").train,
        np.repeat(x[..., None], 3, axis=-1),
        None,
    )


def test_images_of_different_size_need_one(tmp_path):
    save_png(tmp_path / "pics" / "a.png", np.full((8, 16, 3), 7, dtype=np.uint8))
    wide = np.zeros((8, 16, 3), dtype=np.uint8)
    wide[:, 4:12] = 200  # what the central square keeps
    save_png(tmp_path / "pics" / "b.png", wide)
    save_png(tmp_path / "pics" / "c.png", pictures(1, 4)[0])
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="holds no image"):
        open_source("images", tmp_path / "empty")
    with pytest.raises(ValueError, match=r"row 2 has shape .*size=32"):
        open_source("images", tmp_path / "pics")
    corpus = open_source("images", tmp_path / "pics", size=4)
    assert corpus.train.x.shape == (3, 4, 4, 3)
    assert (corpus.train.gather()[1] == 200).all()


def test_images_by_a_pattern_of_their_paths(tmp_path: Path) -> None:
    files = [
        "flu/p1_a.png",
        "flu/p2_a.png",
        "cold/p1_b.png",
        "none/stray.png",
        "cold/p_b.png",
    ]
    write_images(tmp_path / "train", files)
    for pattern, persons in {
        r"/p([0-9]+)_": ["1", "2", "1", "", ""],
        "p[0-9]": ["p1", "p2", "p1", "", ""],
        # a group that took no part in the match
        "^(?:flu/(p.)|cold)": ["p1", "p2", "", "", ""],
        "^[a-z]+": ["flu", "flu", "cold", "none", "cold"],
    }.items():
        found = records(
            site("images", tmp_path, person=pattern, options={**SIZE, "split": "train"})
        )
        assert found.persons.tolist() == groups(
            [persons[shade] for shade in shades(found)]
        )
        simulated = open_source("images", tmp_path, person=pattern).train
        assert simulated.persons.tolist() == groups(
            [persons[shade] for shade in shades(simulated)]
        )
    with pytest.raises(
        ConfigError, match=r"data\.person = '\(': it is not a regular expression"
    ):
        records(site("images", tmp_path, person="(", options=SIZE))


def test_neighbouring_folders_of_images_differ_in_one_record(
    tmp_path: Path, cache: Path
) -> None:
    files = ["cold/a.png", "flu/b.png", "flu/deep/c.png", "flu/d.png"]
    expected = {0: 1, 1: 0, 2: 0, 3: 0}
    for other, label in (
        ("none/d.png", 2),
        ("aids/d.png", -1),
        ("d.png", -1),
        ("flu.png", -1),
        ("flu/d.png", 0),
    ):
        folder = write_images(tmp_path / other.replace("/", "-"), [*files[:3], other])
        found = records(site("images", folder, options=SIZE))
        assert dict(
            zip(shades(found), found.labels.tolist(), strict=True)
        ) == expected | {3: label}


def test_hidden_and_empty_folders_are_no_classes(tmp_path: Path) -> None:
    """As Jupyter and file managers leave them behind."""
    x = pictures(5, 6)
    files = (
        "cat/a.png",
        "dog/b.png",
        ".ipynb_checkpoints/a-checkpoint.png",
        "__MACOSX/._a.png",
        "cat/._a.png",
    )
    for file, image in zip(files, x, strict=True):
        save_png(tmp_path / file, image)
    (tmp_path / "empty" / "deep").mkdir(parents=True)
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "readme.txt").write_text("no image")
    corpus = open_source("images", tmp_path)
    assert corpus.classes == ("cat", "dog")
    check(corpus.train, x[:2], [0, 1])


def test_a_test_class_that_training_lacks_is_refused(tmp_path: Path) -> None:
    for file, image in zip(
        ("train/cat/1.png", "train/dog/1.png", "test/bird/1.png"),
        pictures(3, 6),
        strict=True,
    ):
        save_png(tmp_path / file, image)
    with pytest.raises(
        ValueError, match="test has the class bird, of which there is no training image"
    ):
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
    with pytest.raises(
        ValueError, match=r"04.png cannot be read as an image .* Take it out"
    ):
        open_source("images", folder, strict=True)


def test_a_folder_of_damaged_images_is_refused(tmp_path: Path) -> None:
    folder = damaged_folder(tmp_path / "scans")
    for i in range(6, 26):
        (folder / "train" / f"{i % 2}" / f"{i:02}.png").write_bytes(b"no image")
    with pytest.raises(ValueError, match=r"22 of 60 files cannot be read as images"):
        open_source("images", folder)


def test_at_a_site_a_damaged_image_stays_a_record_without_a_class(
    tmp_path: Path, cache: Path
) -> None:
    """How many records there are must not depend on what is in them."""
    folder = write_images(tmp_path / "own", ["cold/a.png", "flu/b.png", "flu/c.png"])
    (folder / "flu" / "b.png").write_bytes(b"no image")
    found = records(site("images", folder, options={"size": 4, "mode": "L"}))
    assert found.labels.tolist() == [1, -1, 0]
    assert shades(found) == [0, 0, 2]
    # from the cache
    assert shades(
        records(site("images", folder, options={"size": 4, "mode": "L"}))
    ) == [0, 0, 2]


@pytest.mark.parametrize(
    "options", [{}, {"size": 0}, {"size": "4"}, {"size": 4, "mode": "F"}]
)
def test_a_sites_images_need_a_size_whatever_they_are(
    tmp_path: Path, options: dict[str, object]
) -> None:
    for number, files in enumerate((["cold/a.png"], ["cold/a.png", "flu/b.png"])):
        folder = write_images(tmp_path / str(number), files)
        with pytest.raises(
            ConfigError,
            match=r"options = \{size = 32\}|mode = 'F': it must be one of L, RGB, RGBA",
        ) as told:
            records(site("images", folder, options=options))
        assert told.value.code == Exit.SETTINGS


def test_all_files_of_a_site_may_be_damaged(tmp_path: Path) -> None:
    folder = write_images(tmp_path / "own", [f"flu/{i}.png" for i in range(9)])
    for file in sorted((folder / "flu").iterdir())[1:]:
        file.write_bytes(b"no image")
    data = site("images", folder, options=SIZE).data
    for strict in (False, True):
        assert (
            read_private(replace(data, strict=strict), CLASSES).labels.tolist()
            == [0] + [-1] * 8
        )


# Parts of a data set


def layout(folder: Path, *files: str) -> Path:
    for file, image in zip(files, pictures(len(files), 4), strict=True):
        save_png(folder / file, image)
    return folder


@pytest.mark.parametrize("name", ["train", "test", "val"])
def test_at_a_site_no_folder_is_taken_for_a_part(tmp_path: Path, name: str) -> None:
    folder = layout(tmp_path / "own", "cold/a.png", "flu/b.png", f"{name}/c.png")
    assert records(site("images", folder, options=SIZE)).labels.tolist() == [1, 0, -1]
    assert records(
        site("images", folder, ("flu", "cold", name), options=SIZE)
    ).labels.tolist() == [1, 0, 2]
    alone = layout(tmp_path / "alone", f"{name}/cold/a.png", f"{name}/flu/b.png")
    assert records(site("images", alone, options=SIZE)).labels.tolist() == [-1, -1]
    assert records(
        site("images", alone, options={**SIZE, "split": name})
    ).labels.tolist() == [1, 0]
    with pytest.raises(
        ConfigError,
        match=r"there is no folder .*nowhere. Correct split and test in data\.options",
    ):
        records(site("images", alone, options={**SIZE, "split": "nowhere"}))


def test_a_simulation_finds_parts_where_they_can_be_no_classes(tmp_path: Path) -> None:
    both = layout(
        tmp_path / "both",
        "train/cat/a.png",
        "train/dog/b.png",
        "test/cat/c.png",
        "val/dog/d.png",
    )
    (both / "notes").mkdir()
    found = open_source("images", both)
    assert (
        found.classes,
        len(found.train),
        found.test and len(found.test),
        found.notes,
    ) == (("cat", "dog"), 2, 1, ())
    trains = layout(tmp_path / "trains", "train/a.png", "car/b.png")
    found = open_source("images", trains)
    assert (found.classes, found.test) == (("car", "train"), None)
    assert "train was taken for a class" in found.notes[0]
    assert "options = {split = 'train'}" in found.notes[0]


def test_parts_are_named_by_settings(tmp_path: Path) -> None:
    folder = layout(
        tmp_path / "own", "a/cat/1.png", "a/dog/2.png", "b/dog/3.png", "extra/4.png"
    )
    found = open_source("images", folder, split="a", test="b")
    assert found.classes == ("cat", "dog")
    assert found.test is not None
    assert found.test.labels.tolist() == [1]
    assert open_source("images", folder, split="a").test is None


def hospitals(folder: Path) -> Path:
    names = [
        f"{site}/{name}/{i}.png"
        for site, count in (("berlin", 5), ("paris", 10))
        for i in range(count)
        for name in ("normal", "ill")
    ]
    return layout(folder, *names)


def test_folders_that_may_be_sites_are_never_taken_for_classes(tmp_path: Path) -> None:
    folder = hospitals(tmp_path / "sites")
    with pytest.raises(
        ConfigError,
        match=r'whether berlin, paris are sites or classes\. .* ill, normal.*"folders".*"berlin"',
    ):
        open_source("images", folder)
    assert open_source("images", folder, folders="classes").classes == (
        "berlin",
        "paris",
    )
    uneven = layout(
        tmp_path / "uneven",
        "berlin/normal/1.png",
        "paris/ill/2.png",
        "rome/ill/3.png",
        "rome/normal/4.png",
    )
    with pytest.raises(ConfigError, match="sites or classes"):
        open_source("images", uneven)


def test_folders_within_classes_are_no_sites(tmp_path: Path) -> None:
    patients = layout(
        tmp_path / "patients", "ill/ann/1.png", "ill/bob/2.png", "normal/cleo/3.png"
    )
    assert open_source("images", patients).classes == ("ill", "normal")
    published = layout(tmp_path / "published", "cat/images/1.png", "dog/images/2.png")
    assert open_source("images", published).classes == ("cat", "dog")
    mixed = layout(
        tmp_path / "mixed", "cat/1.png", "dog/a/2.png", "horse/a/3.png", "horse/b/4.png"
    )
    assert open_source("images", mixed).classes == ("cat", "dog", "horse")


def test_each_folder_of_a_site_is_a_client(tmp_path: Path) -> None:
    folder, public = (
        hospitals(tmp_path / "sites"),
        layout(tmp_path / "public", "a/x/1.png", "b/x/2.png", "b/y/3.png"),
    )
    table = {
        "data": {"source": "images", "path": str(folder), "partition": "folders"},
        "aux": {"source": "images", "path": str(public)},
        "federation": {"sites": ["paris", "berlin"]},
    }
    data = open_data(Config.from_dict(table))
    assert data.classes == ("ill", "normal")
    assert data.clients == ("paris", "berlin")
    assert len(data.test) + sum(map(len, data.parts)) == 30
    assert len(data.parts[0]) > len(data.parts[1])
    assert data.counts()[1].sum() <= 10
    with pytest.raises(
        ConfigError, match=r'sites = \["berlin", "paris"\] into \[federation\]'
    ):
        open_data(
            Config.from_dict({**table, "federation": {"sites": ["berlin", "rome"]}})
        )
    with pytest.raises(ConfigError, match=r"needs federation\.sites"):
        Config.from_dict({**table, "federation": {}})
    with pytest.raises(
        ConfigError, match=r"is for data\.source = 'images', not 'digits'"
    ):
        open_data(
            Config.from_dict(
                {
                    "data": {"partition": "folders"},
                    "federation": {"sites": ["berlin", "rome"]},
                }
            )
        )


def test_the_test_part_of_sites_has_sites_or_classes(tmp_path: Path) -> None:
    parts = [
        "train/berlin/ill/1.png",
        "train/rome/ill/2.png",
        "train/rome/normal/3.png",
    ]
    for name, tests in (
        ("a", ["test/rome/ill/4.png", "test/rome/normal/5.png"]),
        ("b", ["test/normal/4.png"]),
    ):
        found = open_source(
            "images", layout(tmp_path / name, *parts, *tests), sites=("rome", "berlin")
        )
        assert found.site is not None
        assert found.site.tolist() == [0, 0, 1]
        assert found.train.labels.tolist() == [0, 1, 0]
        assert found.test is not None
        assert found.test.labels.tolist() == ([0, 1] if name == "a" else [1])


# What a file may be


def test_formats_do_not_depend_on_files_that_were_seen_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that is WebP to one decoder of Pillow's and PhotoCD to another: which is
    asked first, others decide.
    """
    stream = io.BytesIO()
    Image.fromarray(np.full((8, 8, 3), 7, np.uint8)).save(stream, "WEBP", lossless=True)
    webp = stream.getvalue()
    padding = bytes(2048 - len(webp) - 8)
    body = padding + b"PCD_" + bytes(2044) + b"\x55" * (96 * 2048 + 768 * 512 * 3 // 2)
    both = webp[12:] + b"JUNK" + struct.pack("<I", len(body)) + body
    (tmp_path / "own" / "flu").mkdir(parents=True)
    (tmp_path / "own" / "flu" / "a.jpg").write_bytes(
        b"RIFF" + struct.pack("<I", 4 + len(both)) + b"WEBP" + both
    )
    Image.init()
    seen = []
    for number, first in enumerate(("WEBP", "PCD")):
        monkeypatch.setattr(
            Image, "ID", [first, *(name for name in Image.ID if name != first)]
        )
        monkeypatch.setenv("FEDAUX_CACHE", str(tmp_path / f"cache{number}"))
        own = read_private(site("images", tmp_path / "own", options=SIZE).data, CLASSES)
        seen.append(
            (shades(own), shades(open_source("images", tmp_path / "own", size=4).train))
        )
    (one, simulated), (other, otherwise) = seen
    assert one == other == [7]
    assert simulated != otherwise  # the attack works where formats are found


def test_an_image_that_is_exchanged_is_noticed_by_more_than_its_time(
    tmp_path: Path,
) -> None:
    folder = write_images(tmp_path / "own", ["flu/a.png", "flu/b.png"])
    first, second = folder / "flu" / "a.png", folder / "flu" / "b.png"
    os.utime(second, ns=(1, 1))
    assert shades(open_source("images", folder).train) == [0, 1]
    second.write_bytes(first.read_bytes())
    os.utime(second, ns=(1, 1))
    assert shades(open_source("images", folder).train) == [0, 0]


@pytest.mark.parametrize("version", ["py", "bin"])
@pytest.mark.parametrize("inside", [True, False])
def test_cifar10(tmp_path, version, inside):
    folder = tmp_path / f"cifar-10-batches-{version}"
    folder.mkdir()
    x, y = pictures(18), RNG.integers(0, 10, 18)
    names = [f"data_batch_{i}" for i in range(1, 6)] + ["test_batch"]
    for name, rows in zip(names, np.split(np.arange(18), 6), strict=True):
        if version == "py":
            content = {
                b"data": planes(x[rows]),
                b"labels": y[rows].tolist(),
                b"batch_label": b"x",
                b"filenames": [b"a.png"],
            }
            dump_python2(content, folder / name)
        else:
            np.hstack([y[rows, None].astype(np.uint8), planes(x[rows])]).tofile(
                folder / f"{name}.bin"
            )
    kinds = [
        "airplane",
        "automobile",
        "bird",
        "cat",
        "deer",
        "dog",
        "frog",
        "horse",
        "ship",
        "truck",
    ]
    if version == "py":
        dump_python2(
            {b"label_names": [kind.encode() for kind in kinds], b"num_vis": 3072},
            folder / "batches.meta",
        )
    else:
        (folder / "batches.meta.txt").write_text("\n".join(kinds) + "\n\n")
    corpus = open_source("cifar10", folder if inside else tmp_path)
    check(corpus.train, x[:15], y[:15])
    check(corpus.test, x[15:], y[15:])
    assert corpus.classes == tuple(kinds)


@pytest.mark.parametrize("version", ["python", "binary"])
@pytest.mark.parametrize("labels", ["fine", "coarse"])
def test_cifar100(tmp_path, version, labels):
    folder = tmp_path / f"cifar-100-{version}"
    folder.mkdir()
    x, fine, coarse = pictures(9), np.arange(9) + 90, np.arange(9) + 10
    names = {
        "fine": [f"f{i}" for i in range(100)],
        "coarse": [f"c{i}" for i in range(20)],
    }
    for name, rows in (("train", slice(0, 6)), ("test", slice(6, 9))):
        if version == "python":
            content = {
                b"data": planes(x[rows]),
                b"fine_labels": fine[rows].tolist(),
                b"coarse_labels": coarse[rows].tolist(),
            }
            dump_python2(content, folder / name)
        else:
            both = np.stack([coarse[rows], fine[rows]], axis=1).astype(np.uint8)
            np.hstack([both, planes(x[rows])]).tofile(folder / f"{name}.bin")
    if version == "python":
        dump_python2(
            {
                f"{k}_label_names".encode(): [n.encode() for n in v]
                for k, v in names.items()
            },
            folder / "meta",
        )
    else:
        for kind, words in names.items():
            (folder / f"{kind}_label_names.txt").write_text("\n".join(words))
    corpus = open_source("cifar100", tmp_path, labels=labels)
    y = fine if labels == "fine" else coarse
    check(corpus.train, x[:6], y[:6])
    check(corpus.test, x[6:], y[6:])
    assert corpus.classes == tuple(names[labels])
    with pytest.raises(ValueError, match="must be 'fine'"):
        open_source("cifar100", tmp_path, labels="middle")


@pytest.fixture
def stl(tmp_path):
    folder = tmp_path / "stl10_binary"
    folder.mkdir()
    x = {
        "train": pictures(4, 96),
        "test": pictures(2, 96),
        "unlabeled": pictures(3, 96),
    }
    for name, images in x.items():
        # channels, columns, rows
        images.transpose(0, 3, 2, 1).tofile(folder / f"{name}_X.bin")
    np.array([1, 10, 2, 3], dtype=np.uint8).tofile(folder / "train_y.bin")
    np.array([10, 1], dtype=np.uint8).tofile(folder / "test_y.bin")
    (folder / "class_names.txt").write_text("airplane\nbird\n")
    return x


def test_stl10_is_mapped_as_it_lies(stl, tmp_path, cache):
    corpus = open_source("stl10", tmp_path)
    check(corpus.train, stl["train"], [0, 9, 1, 2])
    check(corpus.test, stl["test"], [9, 0])
    assert corpus.classes == ("airplane", "bird")
    aux = open_source("stl10", tmp_path / "stl10_binary", part="unlabeled")
    check(aux.train, stl["unlabeled"], None)
    assert aux.test is None
    assert not cache.exists()


def test_stl10_reduced_is_the_mean_of_each_3x3(stl, tmp_path):
    corpus = open_source("stl10", tmp_path, size=32)
    assert corpus.train.x.shape == (4, 32, 32, 3)
    mean = stl["train"].reshape(4, 32, 3, 32, 3, 3).mean(axis=(2, 4))
    assert np.abs(corpus.train.gather() - mean).max() <= 1
    assert corpus.train.labels.tolist() == [0, 9, 1, 2]
    assert corpus.test.labels.tolist() == [9, 0]
    assert open_source("stl10", tmp_path, part="unlabeled", size=32).train.y is None


@pytest.fixture
def tiny(tmp_path):
    root = tmp_path / "tiny-imagenet-200"
    x = {}
    for wnid in ("n01", "n02", "n03"):
        (root / "train" / wnid / "images").mkdir(parents=True)
        (root / "train" / wnid / f"{wnid}_boxes.txt").write_text("")
        for i in range(2):
            save_jpeg(root / "train" / wnid / "images" / f"{wnid}_{i}.JPEG", x)
    (root / "val" / "images").mkdir(parents=True)
    for i in range(3):
        save_jpeg(root / "val" / "images" / f"val_{i}.JPEG", x)
    (root / "val" / "val_annotations.txt").write_text(
        "".join(f"val_{i}.JPEG\tn0{3 - i}\t0\t0\t9\t9\n" for i in range(3))
    )
    (root / "words.txt").write_text("n01\tgoldfish, Carassius\nn03\tnewt\n")
    return x


def save_jpeg(file, x):
    Image.fromarray(pictures(1, 64)[0]).save(file, format="JPEG")
    x[file.stem] = np.asarray(Image.open(file))


def test_tinyimagenet(tiny, tmp_path):
    corpus = open_source("tinyimagenet", tmp_path)
    check(
        corpus.train,
        [tiny[f"n0{k}_{i}"] for k in (1, 2, 3) for i in (0, 1)],
        [0, 0, 1, 1, 2, 2],
    )
    check(corpus.test, [tiny[f"val_{i}"] for i in range(3)], [2, 1, 0])
    assert corpus.classes == ("goldfish, Carassius", "n02", "newt")


def test_tinyimagenet_subset_and_size(tiny, tmp_path):
    corpus = open_source("tinyimagenet", tmp_path, wnids=["n03", "n01"], size=32)
    mean = (
        np.stack([tiny[name] for name in ("n03_0", "n03_1", "n01_0", "n01_1")])
        .reshape(4, 32, 2, 32, 2, 3)
        .mean((2, 4))
    )
    assert np.abs(corpus.train.gather() - mean).max() <= 1
    assert corpus.train.labels.tolist() == [0, 0, 1, 1]
    assert corpus.test.labels.tolist() == [0, 1]
    assert corpus.classes == ("newt", "goldfish, Carassius")
    with pytest.raises(ValueError, match="no WordNet id n09"):
        open_source("tinyimagenet", tmp_path, wnids=["n09"])
