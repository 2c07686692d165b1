"""Arrays on disk: mapped, never loaded; converted once; each value read by itself, and
no code of a pickle run.
"""

from __future__ import annotations

import datetime
import io
import os
import pickle
from collections import OrderedDict, deque
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedaux.config.parsing import ConfigError
from fedaux.data import arrays
from fedaux.data.arrays import Unknown, decoded, load_pickle
from fedaux.data.federated import read_private
from fedaux.data.records import RecordsError
from fedaux.data.sources import open_source
from helpers.own_records import CLASSES, records, site, write_arrays

RNG = np.random.default_rng(0)
X = RNG.integers(0, 256, (12, 5, 5, 3), dtype=np.uint8)
Y = RNG.integers(0, 4, 12)


def test_npy_is_mapped_not_loaded(tmp_path):
    np.save(tmp_path / "x.npy", X)
    np.save(tmp_path / "y.npy", Y.astype(np.uint8)[:, None])
    for path in (tmp_path, tmp_path / "x.npy"):
        corpus = open_source("npy", path)
        assert isinstance(corpus.train.x, np.memmap)
        assert np.array_equal(corpus.train.x, X)
        assert np.array_equal(corpus.train.labels, Y)
        assert corpus.train.labels.dtype == np.int64
        assert corpus.test is None
        # numbers: who reads them knows how many there may be
        assert corpus.classes == ()


def test_npy_without_labels_and_grey_without_channel(tmp_path):
    np.save(tmp_path / "faces.npy", X[..., 0])
    corpus = open_source("npy", tmp_path / "faces.npy")
    assert corpus.train.y is None
    assert corpus.train.shape == (1, 5, 5)
    assert corpus.classes == ()
    assert np.array_equal(corpus.train.gather(), X[..., :1])


@pytest.mark.parametrize(
    "labels", [np.arange(11), np.arange(12) - 1, np.arange(12) / 2]
)
def test_labels_that_do_not_fit_are_refused(tmp_path, labels):
    np.save(tmp_path / "x.npy", X)
    np.save(tmp_path / "y.npy", labels)
    with pytest.raises(
        ValueError, match=r"one integer from 0 on for each of the 12 rows of x\.npy"
    ):
        open_source("npy", tmp_path)


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
@pytest.mark.parametrize(
    "names", [("x", "y", "x_test", "y_test"), ("x_train", "y_train", "x_test", "y_test"),
              ("train_images", "train_labels", "test_images", "test_labels")]
)  # fmt: skip
def test_one_npz_with_train_and_test(tmp_path, save, names):
    save(
        tmp_path / "d.npz",
        **dict(zip(names, (X[:8], Y[:8], X[8:], Y[8:]), strict=True)),
    )
    corpus = open_source("npz", tmp_path / "d.npz")
    check_halves(corpus)


def test_two_npz_in_a_folder_or_named(tmp_path):
    np.savez(tmp_path / "train.npz", x=X[:8], y=Y[:8])
    np.savez_compressed(tmp_path / "test.npz", x=X[8:], y=Y[8:])
    check_halves(open_source("npz", tmp_path))
    check_halves(
        open_source("npz", tmp_path / "train.npz", test=str(tmp_path / "test.npz"))
    )
    assert open_source("npz", tmp_path / "train.npz").test is None
    with pytest.raises(FileNotFoundError, match=r"gone\.npz is missing"):
        open_source("npz", tmp_path / "train.npz", test=str(tmp_path / "gone.npz"))


def check_halves(corpus):
    assert isinstance(corpus.train.x, np.memmap)
    assert isinstance(corpus.test.x, np.memmap)
    assert np.array_equal(corpus.train.gather(), X[:8])
    assert np.array_equal(corpus.train.labels, Y[:8])
    assert np.array_equal(corpus.test.gather(), X[8:])
    assert np.array_equal(corpus.test.labels, Y[8:])


def test_npz_without_x_names_what_it_has(tmp_path):
    np.savez(tmp_path / "d.npz", pictures=X)
    with pytest.raises(ValueError, match="has no array x but pictures"):
        open_source("npz", tmp_path / "d.npz")


def test_npz_of_objects_is_not_unpickled(tmp_path):
    np.savez(tmp_path / "d.npz", x=np.array([{}, {}], dtype=object))
    with pytest.raises(ValueError, match=r"(?i)object"):
        open_source("npz", tmp_path / "d.npz")


def test_converted_once_and_again_when_the_file_changes(tmp_path, cache, monkeypatch):
    calls = []
    extract = arrays._extract
    monkeypatch.setattr(
        arrays, "_extract", lambda *args: (calls.append(args), extract(*args))
    )
    file = tmp_path / "d.npz"
    np.savez(file, x=X)
    open_source("npz", file)
    first = len(calls)
    open_source("npz", file)
    assert first == len(calls) > 0
    np.savez(file, x=X[::-1])
    os.utime(file, ns=(1, 1))
    assert np.array_equal(open_source("npz", file).train.gather(), X[::-1])
    assert len(list(cache.iterdir())) == 2


def test_an_interrupted_conversion_leaves_nothing_behind(tmp_path, cache):
    def fail(folder):
        (folder / "x.npy").write_bytes(b"half")
        raise KeyboardInterrupt

    def write(folder):
        (folder / "x.npy").write_bytes(b"whole")

    with pytest.raises(KeyboardInterrupt):
        arrays.convert_once("kind", [], (), fail)
    assert list(cache.iterdir()) == []
    assert (
        arrays.convert_once("kind", [], (), write) / "x.npy"
    ).read_bytes() == b"whole"


def test_the_slower_of_two_conversions_gives_way(cache):
    def other(folder):
        (folder / "x.npy").write_bytes(b"other")

    def slow(folder):
        (folder / "x.npy").write_bytes(b"slow")
        arrays.convert_once("kind", [], (), other)

    assert (
        arrays.convert_once("kind", [], (), slow) / "x.npy"
    ).read_bytes() == b"other"
    assert len(list(cache.iterdir())) == 1


def test_options_and_kind_are_part_of_the_key():
    folders = {
        arrays.convert_once(kind, [], options, lambda folder: None)
        for kind in "ab"
        for options in (1, 2)
    }
    assert len(folders) == 4


def test_blocks_of_any_number_make_one_file(tmp_path):
    pieces = [
        (X[:0], Y[:0]),
        (X[:1], Y[:1]),
        (X[1:9].transpose(0, 2, 1, 3), Y[1:9]),
        (X[9:], Y[9:]),
    ]
    arrays.write_blocks(tmp_path, "_test", iter(pieces))
    whole = np.load(tmp_path / "x_test.npy", mmap_mode="r")
    assert np.array_equal(whole[1:9], X[1:9].transpose(0, 2, 1, 3))
    assert np.array_equal(whole[9:], X[9:])
    assert len(whole) == 12
    assert np.array_equal(np.load(tmp_path / "y_test.npy"), Y)


def test_blocks_are_read_one_at_a_time(tmp_path):
    """The file has grown by every earlier block before the next one is asked for."""
    sizes = []

    def blocks():
        for _ in range(3):
            sizes.append((tmp_path / "x.npy").stat().st_size)
            yield np.zeros((100, 64, 64, 3), dtype=np.uint8), None

    arrays.write_blocks(tmp_path, "", blocks())
    assert np.diff(sizes).min() > 1_000_000


def test_rows_of_two_shapes_and_no_rows_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"row 12 has shape \(4, 5, 3\)"):
        arrays.write_blocks(tmp_path, "", [(X, None), (X[:, 1:], None)])
    with pytest.raises(ValueError, match="not one record"):
        arrays.write_blocks(tmp_path, "", [])


@pytest.mark.parametrize("kind", ["npy", "npz"])
@pytest.mark.parametrize(
    ("persons", "numbers"),
    [
        ([7, -1, 7, 0], [0, 1, 0, 2]),
        (["ann", "bob", "ann", ""], [0, 1, 0, 2]),
        ([7.0, np.nan, 7.0, np.nan], [0, 1, 0, 1]),
    ],
)
def test_persons_are_an_array_of_their_own(
    tmp_path: Path, kind: str, persons: list[object], numbers: list[int]
) -> None:
    path = write_arrays(kind, tmp_path, [0, 1, 2, 0], persons)
    found = records(site(kind, path, person="patient"))
    assert found.persons.tolist() == numbers
    assert found.take(np.array([3, 0, 2])).persons.tolist() == [
        numbers[3],
        numbers[0],
        numbers[2],
    ]
    assert records(site(kind, path)).person is None


def test_persons_that_do_not_fit(tmp_path: Path) -> None:
    write_arrays("npy", tmp_path, [0, 1], [1, 2, 3])
    with pytest.raises(
        ValueError, match="one person for each of the 2 rows of x, not 3"
    ):
        records(site("npy", tmp_path, person="patient"))
    with pytest.raises(
        FileNotFoundError,
        match=r"nurse\.npy is missing, but data\.person = 'nurse' names it",
    ):
        records(site("npy", tmp_path, person="nurse"))
    with pytest.raises(
        ValueError,
        match=r"has no array nurse but x, y, patient. Set data\.person to one of them",
    ):
        records(
            site("npz", write_arrays("npz", tmp_path, [0, 1], [1, 2]), person="nurse")
        )


def test_names_beside_arrays_are_matched_by_name(tmp_path: Path) -> None:
    write_arrays("npy", tmp_path, [0, 1, 2, 3])
    (tmp_path / "classes.txt").write_text("cold\naids\nflu\n")
    assert records(site("npy", tmp_path)).labels.tolist() == [1, -1, 0, -1]


@pytest.mark.parametrize("kind", ["npy", "npz"])
@pytest.mark.parametrize(
    ("labels", "found"),
    [
        (np.array([0, 1, 200], np.uint8), [0, 1, -1]),
        ([0, 3, -7, 99], [0, -1, -1, -1]),
        ([1, np.nan, 1.5, 2], [1, -1, -1, 2]),
        ([False, True, True], [0, 1, 1]),
        (["0", "1.0", "flu", "aids", "True"], [0, 1, 0, -1, 1]),
        ([b"cold", b"2", b"\xff"], [1, 2, -1]),
        ([0, 1, None, "none", 10**30], [0, 1, -1, 2, -1]),
        ([0, 1j, 2 + 0j], [0, -1, 2]),
    ],
)
def test_labels_of_any_type_are_read_one_by_one(
    tmp_path: Path, kind: str, labels: Any, found: list[int]
) -> None:
    assert (
        records(site(kind, write_arrays(kind, tmp_path, labels))).labels.tolist()
        == found
    )


@pytest.mark.parametrize("kind", ["npy", "npz"])
@pytest.mark.parametrize("odd", [9, 9.5, np.nan, "x", None, b"x"])
def test_a_person_is_the_same_in_an_array_of_any_type(
    tmp_path: Path, kind: str, odd: object
) -> None:
    path = write_arrays(kind, tmp_path, [0, 1, 2, 0], [7, 7.0, 8, odd])
    assert records(site(kind, path, person="patient")).persons.tolist() == [0, 0, 1, 2]


def test_true_and_false_are_numbers_and_must_be_declared_as_such(
    tmp_path: Path,
) -> None:
    write_arrays("npy", tmp_path, ["True", "False"])
    assert records(site("npy", tmp_path, ("False", "True"))).labels.tolist() == [1, 0]
    with pytest.raises(
        ConfigError,
        match=r"in arrays False is the label 0, and data\.classes has it elsewhere",
    ):
        records(site("npy", tmp_path, ("True", "False")))


def test_rows_of_a_site_are_numbers_images_or_texts(tmp_path: Path) -> None:
    write_arrays("npy", tmp_path, [0, 1])
    np.save(tmp_path / "x.npy", np.array(["a", "half \ud83d"]))
    assert records(site("npy", tmp_path)).x.tolist() == ["a", "half \ufffd"]
    for rows in (
        np.array([b"a", b"b"]),
        np.array([["a"], ["b"]]),
        np.zeros(2, "M8[s]"),
        np.zeros((2, 2), complex),
    ):
        np.save(tmp_path / "x.npy", rows)
        with pytest.raises(
            RecordsError, match="Save numbers, uint8 images or a list of texts"
        ):
            read_private(site("npy", tmp_path).data, CLASSES)


@pytest.mark.parametrize("labels", [[0, 1], [0, 1, 2, 0]])
def test_a_site_has_a_label_for_each_row(tmp_path: Path, labels: list[int]) -> None:
    write_arrays("npy", tmp_path, labels)
    np.save(tmp_path / "x.npy", np.zeros((3, 2)))
    with pytest.raises(
        ValueError,
        match=rf"one label for each of the 3 rows of x\.npy, not {len(labels)}",
    ):
        records(site("npy", tmp_path))


def test_a_site_looks_at_no_test_arrays(tmp_path: Path) -> None:
    np.savez(
        tmp_path / "a.npz",
        x=np.zeros((2, 3)),
        y=[0, 1],
        x_test=np.zeros((5, 3)),
        y_test=[-1],
    )
    assert records(site("npz", tmp_path / "a.npz")).labels.tolist() == [0, 1]
    np.savez(tmp_path / "train.npz", x=np.zeros((2, 3)), y=[0, 1])
    (tmp_path / "test.npz").write_bytes(b"damaged")
    assert records(site("npz", tmp_path)).labels.tolist() == [0, 1]


def test_numbers_beyond_float32_are_infinite(tmp_path: Path) -> None:
    write_arrays("npy", tmp_path, [0, 1])
    np.save(tmp_path / "x.npy", np.array([[1e300, 0.1], [np.nan, -1e300]]))
    rows = records(site("npy", tmp_path)).batch().numpy()
    assert rows[0].tolist() == [np.inf, float(np.float32(0.1))]
    assert np.isnan(rows[1, 0])


@pytest.mark.parametrize("order", "<>")
def test_what_is_no_character_is_replaced(order: str) -> None:
    array = np.array(["abc", "", "x"], dtype=f"{order}U3")
    array.view(f"{order}u4").reshape(3, 3)[2] = [0x110000, 0xD800, 0]
    assert decoded(array) == ["abc", "", "\ufffd\ufffd"]
    assert decoded(np.zeros(2, "U0")) == ["", ""]


class Payload:
    def __reduce__(self) -> Any:
        return os.system, ("touch owned",)


class Loose:
    """With a state, as most objects have it."""

    def __init__(self) -> None:
        self.label = 1


@pytest.mark.parametrize("protocol", [0, 2, 5])
def test_a_malicious_pickle_is_refused_and_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, protocol: int
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad").write_bytes(
        pickle.dumps({b"data": Payload()}, protocol=protocol)
    )
    with pytest.raises(pickle.UnpicklingError, match=r"refused (posix|nt)\.system"):
        load_pickle(tmp_path / "bad")
    assert not (tmp_path / "owned").exists()


@pytest.mark.parametrize("protocol", [2, 4, 5])
def test_harmless_pickles_of_any_protocol_are_read(
    tmp_path: Path, protocol: int
) -> None:
    (tmp_path / "good").write_bytes(
        pickle.dumps({"data": np.arange(6).reshape(2, 3), b"n": [1, b"\xe9"]}, protocol)
    )
    content = load_pickle(tmp_path / "good")
    assert content["data"].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert content["n"] == [1, b"\xe9"]


@pytest.mark.parametrize("protocol", [0, 2, 3, 5])
def test_strange_objects_are_not_made_and_leave_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, protocol: int
) -> None:
    monkeypatch.chdir(tmp_path)
    strange = [
        Payload(),
        Loose(),
        Decimal(1),
        datetime.date(2020, 1, 1),
        {1},
        deque([1]),
        OrderedDict(a=1),
        Path("a"),
    ]
    values = [1, *strange, "flu", None, np.int64(2), np.float32(0.5)]
    array = np.empty(len(values), object)
    array[:] = values
    found = arrays._ObjectUnpickler(io.BytesIO(pickle.dumps(array, protocol))).load()
    assert [found[0], *found[-4:]] == [1, "flu", None, 2, 0.5]
    assert {str(value) for value in found[1:-4] if isinstance(value, Unknown)} == {""}
    # a set is built in, or called
    assert sum(isinstance(value, Unknown) for value in found) >= len(strange) - 1
    assert not (tmp_path / "owned").exists()


@pytest.mark.parametrize(
    ("labels", "problem"),
    [
        (np.array([0.0, 1.0, 2.0]), "its values are float64. Save y.astype"),
        (np.array([0, -1, 2]), "row 1 has -1"),
        (np.array([0, 1]), "it has 2 labels"),
    ],
    ids=["float", "negative", "short"],
)
def test_what_is_wrong_with_labels_is_said(tmp_path, labels, problem):
    """One message for all three, which did not say which."""
    np.save(tmp_path / "x.npy", np.zeros((3, 2), np.float32))
    np.save(tmp_path / "y.npy", labels)
    with pytest.raises(ValueError, match=problem):
        arrays.npy(tmp_path)


def test_an_array_of_objects_says_how_to_save_it(tmp_path):
    """NumPy said "Array can't be memory-mapped: Python objects in dtype."."""
    rows = np.array([np.zeros(2), np.zeros(3)], dtype=object)
    np.save(tmp_path / "x.npy", rows, allow_pickle=True)
    with pytest.raises(RecordsError, match=r"rows of different lengths. Save numbers"):
        arrays.npy(tmp_path)
