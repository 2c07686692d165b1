"""Small files in the format of the real ones: pickles as Python 2 wrote them, .bin, .mat, PNG and JPEG trees."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from PIL import Image
from scipy.io import savemat

from fedaux.data.sources import open_source
from helpers.pictures import RNG, check, dump_python2, pictures, planes


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
            np.hstack([y[rows, None].astype(np.uint8), planes(x[rows])]).tofile(folder / f"{name}.bin")
    kinds = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]
    if version == "py":
        dump_python2({b"label_names": [kind.encode() for kind in kinds], b"num_vis": 3072}, folder / "batches.meta")
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
    names = {"fine": [f"f{i}" for i in range(100)], "coarse": [f"c{i}" for i in range(20)]}
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
        dump_python2({f"{k}_label_names".encode(): [n.encode() for n in v] for k, v in names.items()}, folder / "meta")
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
    x = {"train": pictures(4, 96), "test": pictures(2, 96), "unlabeled": pictures(3, 96)}
    for name, images in x.items():
        images.transpose(0, 3, 2, 1).tofile(folder / f"{name}_X.bin")  # channels, columns, rows
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


def test_svhn(tmp_path):
    x = pictures(7)
    for name, rows, labels in (("train", slice(0, 4), [10, 1, 9, 10]), ("test", slice(4, 7), [2, 10, 3])):
        savemat(tmp_path / f"{name}_32x32.mat", {"X": x[rows].transpose(1, 2, 3, 0), "y": np.array(labels)[:, None]})
    corpus = open_source("svhn", tmp_path)
    check(corpus.train, x[:4], [0, 1, 9, 0])
    check(corpus.test, x[4:], [2, 0, 3])
    assert corpus.classes == tuple("0123456789")


@pytest.fixture
def downsampled(tmp_path):
    x, y = pictures(9, 16), np.array([1, 1000, 3, 3, 2, 1, 1000, 1000, 3])
    files = {"train_data_batch_1": slice(0, 2), "train_data_batch_2": slice(2, 4), "train_data_batch_10": slice(4, 7)}
    for name, rows in (files | {"val_data": slice(7, 9)}).items():
        content = {"data": planes(x[rows]), "labels": y[rows].tolist(), "mean": np.zeros(768)}
        (tmp_path / name).write_bytes(pickle.dumps(content, protocol=4))
    (tmp_path / "map_clsloc.txt").write_text(
        "n02119789 1 kit_fox\nn02100735 2 setter\nn02110185 3 husky\nn15075141 1000 tissue\n"
    )
    return x, y


def test_imagenet32_whole_in_the_order_of_the_batches(downsampled, tmp_path):
    x, y = downsampled
    corpus = open_source("imagenet32", tmp_path)
    check(corpus.train, x[:7], y[:7] - 1)
    check(corpus.test, x[7:], y[7:] - 1)
    assert len(corpus.classes) == 1000
    assert corpus.classes[:4] == ("kit_fox", "setter", "husky", "4")


@pytest.mark.parametrize("choice", [{"classes": (3, 1000)}, {"wnids": ["n02110185", "n15075141"]}])
def test_imagenet32_subset(downsampled, tmp_path, choice):
    x, _ = downsampled
    corpus = open_source("imagenet32", tmp_path, **choice)
    check(corpus.train, x[[1, 2, 3, 6]], [1, 0, 0, 1])
    check(corpus.test, x[[7, 8]], [1, 0])
    assert corpus.classes == ("husky", "tissue")


@pytest.mark.usefixtures("downsampled")
def test_imagenet32_errors(tmp_path):
    with pytest.raises(ValueError, match="no WordNet id n0 here; there are n02119789"):
        open_source("imagenet32", tmp_path, wnids=["n0"])
    (tmp_path / "map_clsloc.txt").unlink()
    with pytest.raises(FileNotFoundError, match=r"map_clsloc\.txt is missing"):
        open_source("imagenet32", tmp_path, wnids=["n02110185"])


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
    check(corpus.train, [tiny[f"n0{k}_{i}"] for k in (1, 2, 3) for i in (0, 1)], [0, 0, 1, 1, 2, 2])
    check(corpus.test, [tiny[f"val_{i}"] for i in range(3)], [2, 1, 0])
    assert corpus.classes == ("goldfish, Carassius", "n02", "newt")


def test_tinyimagenet_subset_and_size(tiny, tmp_path):
    corpus = open_source("tinyimagenet", tmp_path, wnids=["n03", "n01"], size=32)
    mean = (
        np.stack([tiny[name] for name in ("n03_0", "n03_1", "n01_0", "n01_1")]).reshape(4, 32, 2, 32, 2, 3).mean((2, 4))
    )
    assert np.abs(corpus.train.gather() - mean).max() <= 1
    assert corpus.train.labels.tolist() == [0, 0, 1, 1]
    assert corpus.test.labels.tolist() == [0, 1]
    assert corpus.classes == ("newt", "goldfish, Carassius")
    with pytest.raises(ValueError, match="no WordNet id n09"):
        open_source("tinyimagenet", tmp_path, wnids=["n09"])
