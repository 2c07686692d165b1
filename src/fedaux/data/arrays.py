"""NumPy sources: folders of memory-mapped `.npy` files, and their conversion from other
formats.

    x.npy  y.npy  x_test.npy  y_test.npy  classes.txt        (all but the first
           optional)

`classes.txt` has the names of labels 0, 1, …, one per line. Without it the numbers are
the names. Formats that cannot be memory-mapped are converted to such a folder once, in
the cache (`core.io.cache_folder`).

An array has one type, and a single value decides on it: NumPy writes [1, 2, nan] as
floats, [1, 2, "?"] as texts and [1, 2, None] as objects. Whatever it is, labels and
persons of a site are read value by value, each as if it were alone. Pickles are read
without the code that they may carry.
"""

from __future__ import annotations

import hashlib
import pickle
import re
import shutil
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.lib import format as npy_format
from numpy.typing import NDArray

from fedaux.config.parsing import ConfigError
from fedaux.core.io import cache_folder
from fedaux.core.progress import track
from fedaux.data.labels import DeclaredClasses, factorize, name_or_nobody, read_classes
from fedaux.data.records import Corpus, Records, RecordsError

# consecutive rows (B, ...) and their labels (B,)
Block = tuple[NDArray[Any], NDArray[np.int64] | None]

# 1.0 in an array of texts: a number that came among them
WHOLE = re.compile(r"\A(-?[0-9]+)\.0+\Z")
CONVERTER_VERSION = 1  # of the converters' output; part of the cache key
# in a folder of decoded data: where the data came from
SOURCE = "source.txt"
ALIASES = {  # names of the arrays in files of Keras and MedMNIST
    "x": ("x", "x_train", "train_images"),
    "y": ("y", "y_train", "train_labels"),
    "x_test": ("x_test", "test_images"),
    "y_test": ("y_test", "test_labels"),
}


def require_file(file: Path, what: str) -> Path:
    """The file itself. An error that says what it is part of if it does not exist."""
    if not file.exists():
        raise FileNotFoundError(
            f"Cannot read the data: {file} is missing. It is part of {what}. Put that "
            "in place and check `path`."
        )
    return file


def npy(path: Path, person: str = "", declared: Sequence[str] = ()) -> Corpus:
    """A folder as above, or its file of `x`. `person` names another array in it, with
    the person of each row.

    With `declared` classes a label is read separately, whatever the type of y: a number
    from 0 on, also as a text, or the name of a class; any other is `UNDECLARED`. What
    rows are is the type of x: images (uint8), numbers or texts.
    """
    if path.suffix == ".npy":
        folder = path.parent
        x_file = path
    else:
        folder = path
        x_file = path / "x.npy"
    require_file(x_file, "your own arrays (np.save)")
    class_file = folder / "classes.txt"
    names = read_classes(class_file) if class_file.exists() else ()
    classes = _declared_numbers(declared, names) if declared else None

    train = _records(x_file, folder / "y.npy", classes)
    if person:
        persons = persons_from_array(folder / f"{person}.npy", len(train))
        train = replace(train, person=persons)
    test_file = folder / "x_test.npy"
    if classes is not None or not test_file.exists():  # sites have no test set
        return Corpus(train, None, tuple(declared) or names)
    return Corpus(train, _records(test_file, folder / "y_test.npy"), names)


def _records(
    x_file: Path, y_file: Path, classes: DeclaredClasses | None = None
) -> Records:
    """Rows and their labels. With declared `classes`, those of a site: no row is
    rejected for its content, or read in the light of others.
    """
    x = _mapped(x_file)
    if x.dtype == np.uint8 and x.ndim == 3:
        x = x[..., None]  # greyscale images without a channel axis
    if classes is not None:
        x = _own_rows(x, x_file)
    if not y_file.exists():
        return Records(x)
    if classes is None:
        return Records(x, _whole_numbers(y_file, len(x), x_file.name))
    values = load_values(y_file)
    if len(values) != len(x):
        raise ValueError(
            f"Cannot read labels: {y_file} must hold one label for each of the "
            f"{len(x)} rows of {x_file.name}, not {len(values)}. Correct the file."
        )
    labels = [classes.array_label(value) for value in values]
    return Records(x, np.array(labels, dtype=np.int64))


def _read_type(stream: BinaryIO) -> np.dtype[Any]:
    """The type of the values in a .npy file. The stream then stands at the values."""
    read_header = npy_format.read_array_header_2_0
    if npy_format.read_magic(stream) == (1, 0):
        read_header = npy_format.read_array_header_1_0
    _, _, dtype = read_header(stream)
    return dtype


def _mapped(file: Path) -> NDArray[Any]:
    """The array of a file, without loading it. Arrays of Python objects are refused."""
    with file.open("rb") as stream:
        dtype = _read_type(stream)
    if dtype.hasobject:
        raise RecordsError(
            f"Cannot read {file}: it is an array of Python objects, such as rows of "
            "different lengths. Save numbers, np.save(file, x.astype(np.float32)), or "
            "texts as np.array(texts, dtype=str)."
        )
    array: NDArray[Any] = np.load(file, mmap_mode="r")
    return array


def _own_rows(x: NDArray[Any], file: Path) -> NDArray[Any]:
    """The rows of a site: what they are is the type of the array."""
    if x.dtype.kind == "U" and x.ndim == 1:
        return np.array(decoded(x), dtype=object)
    if x.dtype.kind not in "biuf":
        raise RecordsError(
            f"Cannot read {file}: it has rows of {x.dtype}. Save numbers, uint8 images "
            "or a list of texts."
        )
    return x


def _whole_numbers(file: Path, count: int, rows: str) -> NDArray[np.int64]:
    """Labels from 0 on, `count` of them, as the file `rows` has rows."""
    y = _mapped(file).reshape(-1)
    if len(y) != count:
        problem = f"it has {len(y)} labels"
    elif not np.issubdtype(y.dtype, np.integer):
        problem = f"its values are {y.dtype}. Save y.astype(np.int64)"
    elif y.min(initial=0) < 0:
        problem = f"row {int(np.argmin(y))} has {int(y.min())}"
    else:
        return y.astype(np.int64)
    raise ValueError(
        f"Cannot read labels or people: {file} must hold one integer from 0 on for "
        f"each of the {count} rows of {rows}: {problem}. Correct the file."
    )


def _declared_numbers(declared: Sequence[str], names: Sequence[str]) -> DeclaredClasses:
    for number, name in enumerate(("False", "True")):
        if name in declared and declared.index(name) != number:
            raise ConfigError(
                f"Cannot read labels: in arrays {name} is the label {number}, and "
                'data.classes has it elsewhere. Declare classes = ["False", "True"] in '
                "this order, or give them other names."
            )
    return DeclaredClasses.of(declared, names)


def npz(
    path: Path, test: str | None = None, person: str = "", declared: Sequence[str] = ()
) -> Corpus:
    """One `.npz` with x, y, x_test, y_test (only x is required), or two with x and y
    each: a second file `test`, or a folder with train.npz and test.npz. Further options
    as for `npy`. With `declared` classes only x and y are read.
    """
    paths = [path]
    if path.is_dir():
        paths = [path / "train.npz", *path.glob("test.npz")]
    elif test:
        paths.append(Path(test))
    if declared:  # sites have no test set
        del paths[1:]
    files = [require_file(file, "your own arrays (np.savez)") for file in paths]
    tested = "{}" if len(files) == 2 else "{}_test"

    def write(folder: Path) -> None:
        for name in ("x", "y"):
            _extract(files[0], name, folder / f"{name}.npy")
            if not declared:
                inside = tested.format(name)
                _extract(files[-1], inside, folder / f"{name}_test.npy")
        if person:
            _extract(files[0], person, folder / "person.npy")

    folder = convert_once("npz", files, (person, bool(declared)), write)
    return npy(folder, "person" if person else "", declared)


def persons_from_array(file: Path, rows: int) -> NDArray[np.int64]:
    """Ids from an array with one name or number for each row, the same whatever type
    the array has.
    """
    if not file.exists():
        raise FileNotFoundError(
            f"Cannot read people: {file} is missing, but data.person = {file.stem!r} "
            "names it. Write one person for each row of x into it."
        )
    persons = load_values(file)
    if len(persons) != rows:
        raise ValueError(
            f"Cannot read people: {file} must hold one person for each of the {rows} "
            f"rows of x, not {len(persons)}. Correct the file."
        )
    return factorize(WHOLE.sub(r"\1", name_or_nobody(value)) for value in persons)


def _extract(file: Path, name: str, target: Path) -> None:
    """Copy one array out of an `.npz`, whose members are `.npy` files, without loading
    it.
    """
    if not zipfile.is_zipfile(file):
        raise ValueError(
            f"Cannot read the data: {file} is no .npz archive, or a damaged one. Write "
            "it with np.savez(file, x=x, y=y)."
        )
    with zipfile.ZipFile(file) as archive:
        members = {Path(member).stem: member for member in archive.namelist()}
        present = [key for key in ALIASES.get(name, (name,)) if key in members]
        if present:
            member = members[present[0]]
            with archive.open(member) as source, target.open("wb") as sink:
                shutil.copyfileobj(source, sink)
        elif name == "x":
            raise ValueError(
                f"Cannot read the data: {file} has no array x but "
                f"{', '.join(members)}. Write it with np.savez(file, x=x, y=y)."
            )
        elif name not in ALIASES:
            raise ValueError(
                f"Cannot read people: {file} has no array {name} but "
                f"{', '.join(members)}. Set data.person to one of them."
            )


def convert_once(
    kind: str, files: Sequence[Path], options: object, write: Callable[[Path], None]
) -> Path:
    """The cache folder of these files, filled by `write` the first time and renamed
    into place when complete.
    """
    stamps = [_stamp(file) for file in files]
    content = repr((CONVERTER_VERSION, kind, options, stamps))
    key = hashlib.sha256(content.encode()).hexdigest()
    root = cache_folder()
    folder = root / f"{kind}-{key[:20]}"
    if folder.exists():
        return folder
    root.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".{kind}-", dir=root))
    try:
        write(temporary)
        origin = "".join(str(file.parent) for file in files[:1])
        (temporary / SOURCE).write_text(origin, "utf-8", "replace")
        temporary.replace(folder)
    except OSError:
        if not folder.exists():  # otherwise another process has written the same
            raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return folder


def _stamp(file: Path) -> tuple[str, tuple[int, ...]]:
    """Return a stamp that changes with a file's content, even at equal size and time. A
    broken link has its own.
    """
    for look in (file.stat, file.lstat):
        try:
            stat = look()
        except OSError:
            continue
        stamp = (stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns)
        return str(file.absolute()), stamp
    return str(file.absolute()), ()


def convert(
    kind: str,
    read: Callable[[Path], Iterable[Block]],
    train: Sequence[Path],
    test: Sequence[Path] = (),
    classes: Sequence[str] = (),
    options: object = (),
    skipped: list[Path] | None = None,
) -> Corpus:
    """Convert train and test files block by block, or reuse an earlier conversion.

    The cache key is made of the files and `options`, which must hold everything else
    that `read` depends on. Files that `read` adds to `skipped` are remembered.
    """
    files = [*train, *test]

    def write(folder: Path) -> None:
        blocks = map(read, track(train, "reading files"))
        write_blocks(folder, "", chain.from_iterable(blocks))
        if test:
            blocks = map(read, track(test, "reading test files"))
            write_blocks(folder, "_test", chain.from_iterable(blocks))
        if classes:
            (folder / "classes.txt").write_text("\n".join(classes), "utf-8")
        if skipped:
            lost = set(skipped)
            places = (str(place) for place, file in enumerate(files) if file in lost)
            (folder / "skipped.txt").write_text("\n".join(places), "utf-8")

    folder = convert_once(kind, files, (options, len(train), tuple(classes)), write)
    remembered = folder / "skipped.txt"
    if skipped is not None and remembered.is_file():
        places = remembered.read_text("utf-8").split()
        skipped[:] = [files[int(place)] for place in places]
    return npy(folder)


def write_blocks(folder: Path, suffix: str, blocks: Iterable[Block]) -> None:
    """Write all blocks to `x{suffix}.npy` and, if they have labels, `y{suffix}.npy`.

    The header is rewritten at the end with the number of rows; NumPy pads it for that
    (`np.lib.format.GROWTH_AXIS_MAX_DIGITS`).
    """
    labels: list[NDArray[np.int64]] = []
    shape: tuple[int, ...] | None = None
    count = 0
    with (folder / f"x{suffix}.npy").open("wb") as file:
        for x, y in blocks:
            if shape is None:
                shape = x.shape[1:]
                header = {
                    "descr": np.lib.format.dtype_to_descr(x.dtype),
                    "fortran_order": False,
                }
                np.lib.format.write_array_header_1_0(
                    file, header | {"shape": (0, *shape)}
                )
            if x.shape[1:] != shape:
                raise ValueError(
                    f"Cannot read the data: row {count} has shape {x.shape[1:]}, those "
                    f"before it {shape}. Make all alike: size=32."
                )
            file.write(x.tobytes())
            count += len(x)
            if y is not None:
                labels.append(y)
        if not count or shape is None:
            raise ValueError(
                "Cannot read the data: there is not one record to read. Check `path` "
                "and the chosen classes."
            )
        file.seek(0)
        np.lib.format.write_array_header_1_0(file, header | {"shape": (count, *shape)})
    if labels:
        np.save(folder / f"y{suffix}.npy", np.concatenate(labels).astype(np.int64))


def load_values(file: Path) -> list[Any]:
    """The values as Python's own; objects other than numbers and texts are not made
    (`Unknown`).
    """
    with file.open("rb") as stream:
        dtype = _read_type(stream)
        if dtype.hasobject:
            objects = np.asarray(_ObjectUnpickler(stream).load(), dtype=object)
            return list(objects.reshape(-1))
    array = np.load(file).reshape(-1)
    if array.dtype.kind in "SU":
        return decoded(array)
    return list(array.tolist())


def decoded(array: NDArray[Any]) -> list[str]:
    """Texts of an array, in which bytes and numbers that are no characters are replaced
    one by one.
    """
    encoding = "utf-8"
    if array.dtype.kind == "U":
        encoding = "utf-32-be" if array.dtype.str[0] == ">" else "utf-32-le"
    width = array.dtype.itemsize
    data = array.tobytes()
    starts = (place * width for place in range(len(array)))
    rows = (data[start : start + width] for start in starts)
    return [row.decode(encoding, "replace").rstrip("\0") for row in rows]


# everything a dictionary of arrays, numbers and strings needs, pickled by any NumPy
ARRAY_GLOBALS = {
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
    ("numpy._core.multiarray", "_reconstruct"),
    ("numpy._core.numeric", "_frombuffer"),
    ("_codecs", "encode"),
}
# a number of NumPy's, in an array of objects
SCALAR = ("numpy._core.multiarray", "scalar")


class _ArrayUnpickler(pickle.Unpickler):
    """Unpickles arrays only: an unrestricted pickle could execute any code."""

    allowed = frozenset(ARRAY_GLOBALS)

    def find_class(self, module: str, name: str) -> Any:
        module = module.replace("numpy.core", "numpy._core")
        if (module, name) in self.allowed:
            return super().find_class(module, name)
        return self.other(module, name)

    def other(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(
            f"refused {module}.{name}: this is not the published file. Download it "
            "again."
        )


class _ObjectUnpickler(_ArrayUnpickler):
    """One strange object in an array leaves the others as they are."""

    allowed = frozenset({*ARRAY_GLOBALS, SCALAR})

    def other(self, module: str, name: str) -> Any:
        return Unknown


class Unknown:
    """Stands in for an object of any other class, which is not created. It is empty,
    and so matches no name.
    """

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def _ignore(self, *_: Any) -> None:
        pass

    __setstate__ = __setitem__ = append = extend = add = _ignore

    def __str__(self) -> str:
        return ""


def load_pickle(file: Path) -> dict[str, Any]:
    """A dictionary of arrays and lists, pickled by Python 2 or 3."""
    with file.open("rb") as stream:
        content = _ArrayUnpickler(stream, encoding="latin1").load()
    return {
        key.decode() if isinstance(key, bytes) else key: value
        for key, value in content.items()
    }
