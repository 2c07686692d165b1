"""A site's records in every format that a source reads, and odd ones that one of them
may be exchanged for.

A format writes whatever records it is given as people would: arrays take the type that
NumPy gives them, images lie where their names say, and a table has a line for each
record.
"""

from __future__ import annotations

import datetime
import gzip
import io
import json
import os
import struct
import sys
import types
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from fedaux.audit.odd_records import unchecked_texts
from fedaux.config.sections import DataConfig
from fedaux.data.adapters import from_torch
from fedaux.data.tables import from_frame

CLASSES = ("flu", "cold", "none")
NAN, INF = float("nan"), float("inf")
HUGE_TEXT = "x" * 200_000


@dataclass(frozen=True)
class Written:
    """Where records were written, and the row at which each is found again; None for
    one that is not looked at.
    """

    path: str
    rows: Sequence[int | None]


@dataclass(frozen=True)
class Format:
    """`usual` records and `odd` ones, how to write a list of them, and the settings
    under which they are read.

    `named` makes of a record one that comes first, in the middle or last, where that is
    a matter of its name.
    """

    source: str
    usual: Sequence[Any]
    odd: Mapping[str, Any]
    write: Callable[[Path, Sequence[Any]], Written]
    options: Mapping[str, Any] = field(default_factory=dict)
    person: str = ""
    classes: tuple[str, ...] = CLASSES
    named: Callable[[Any, str], Any] = lambda record, place: record

    def settings(self, path: str) -> DataConfig:
        options = tuple(self.options.items())
        return DataConfig(
            self.source, path, options, self.classes, self.person, partition="own"
        )


# Lines


def frames(folder: Path, records: Sequence[Any]) -> Written:
    """A source of one's own that makes records of a DataFrame."""

    def load(path: Path, declared: Sequence[str], person: str) -> Any:
        import pandas as pd

        names = ("label", "temperature", "pressure", "ward", "smoker", "person")
        columns = zip(*records, strict=True)
        frame = pd.DataFrame(
            {
                name: pd.Series(list(values))
                for name, values in zip(names, columns, strict=True)
            }
        )
        schema = Path(__file__).with_name("odd_table.toml")
        return from_frame(frame, schema, person=person, declared=declared)

    module = types.ModuleType("odd_frame_source")
    module.load = load  # type: ignore[attr-defined]
    sys.modules[module.__name__] = module
    return Written(str(folder), range(len(records)))


def lines(name: str, header: bytes = b"") -> Callable[[Path, Sequence[bytes]], Written]:
    def write(folder: Path, records: Sequence[bytes]) -> Written:
        content = b"".join(
            line + b"\n" for line in ([header, *records] if header else records)
        )
        (folder / name).write_bytes(
            gzip.compress(content) if name.endswith(".gz") else content
        )
        return Written(str(folder / name), range(len(records)))

    return write


CSV = [
    b"flu,a fever,ann",
    b'cold,"sneezes, often",bob',
    b"none,fine,ann",
    b'flu,"a ""strong"" one",eve',
    b"cold,,bob",
]
ODD_CSV = {
    "a quote that never closes": b'flu,"never,ann',
    "a label that never closes": b'"flu',
    "quotes everywhere": b'"""",",""a",""""""',
    "text behind a quote": b'"flu"x,"y"z,ann',
    "an empty line": b"",
    "only spaces": b"   ",
    "only commas": b",,,,,,",
    "too few fields": b"flu",
    "too many fields": b"flu,a,ann,b,c,d,e",
    "no utf-8": b"fl\xffu,\xc3\x28 \xe2\x82,\xff",
    "half a character": b"flu,words,\xe2\x82",
    "a nul": b"fl\0u,\0,a\0nn",
    "a carriage return": b"flu,one\rtwo,ann",
    "carriage returns alone": b"\r\r",
    "an unquoted return in quotes": b'flu,"one\rtwo",ann',
    "another line break": "flu,one\u2028two\x0b\x0c\x85,ann".encode(),
    "a byte order mark": b"\xef\xbb\xbfflu,words,ann",
    "utf-16": "flu,words,ann".encode("utf-16"),
    "an overlong line": b"flu," + HUGE_TEXT.encode() + b",ann",
    "an overlong label": HUGE_TEXT.encode() + b",words,ann",
    "the header again": b"label,text,person",
    "an undeclared label": b"aids,words,ann",
    "a label in spaces": b" flu ,words, ann ",
    "a number for a label": b"1,words,1.0",
    "a new person": b"flu,words,zoe",
}

# numbers with a decimal comma, categories and flags, as `odd_table.toml` describes them
ROWS = [
    b"flu;41,5;120;a;no;ann",
    b'cold;37;80;"b";yes;bob',
    b"none;36,6;?;a;;ann",
    b'flu;"39,1";200;c;no;eve',
    b"cold;;NA;;YES;bob",
]
ODD_TABLE = {
    name: line.replace(b",", b";")
    for name, line in ODD_CSV.items()
    if name not in ("the header again", "utf-16")
} | {
    "the header again": b"label;temperature;pressure;ward;smoker;person",
    "utf-16": "flu;41,5;120;a;no;ann".encode("utf-16"),
    "a number of a million digits": b"flu;" + b"9" * 1_000_000 + b";1;a;no;ann",
    "a million digits behind the comma": b"flu;0," + b"9" * 1_000_000 + b";1;a;no;ann",
    "a huge exponent": b"flu;1e999999999;-1e999999999;a;no;ann",
    "not a number": b"flu;nan;NaN;a;no;ann",
    "infinite": b"flu;inf;-Infinity;a;no;ann",
    "a decimal point": b"flu;41.5;1.000,5;a;no;ann",
    "digits of another script": "flu;\u0663\u0667;\uff11\uff12;a;no;ann".encode(),
    "underscores": b"flu;3_7;1_0;a;no;ann",
    "a date": b"flu;2020-01-31;31.01.2020;a;no;ann",
    "outside of all ranges": b"flu;-400;9999;a;no;ann",
    "an unknown category": b"flu;37;80;z;maybe;ann",
    "a category as a number": b"flu;37;80;3,0;1;ann",
    "quotes around quotes": b'flu;"""37""";80;"""a""";no;ann',
    "the file's first line in quotes": b'"label;temperature;pressure;ward;smoker"',
    "a thousand columns": b"flu;37;80;a;no;ann" + b";x" * 1000,
    "thousands": b"flu;1.234,5;1 234,5;a;no;ann",
    "thousands by apostrophes": b"flu;1'234,5;\xc2\xa01234;a;no;ann",
    "latin-1": "flü;37;80;Ä;nö;Jörg".encode("latin-1"),
    "other spellings of no number": b"flu;+Infinity;-nan;a;no;ann",
    "a number in hexadecimal": b"flu;0x25;nan(12);a;no;ann",
    "a number with its unit": b"flu;37 C;80 %;a;no;ann",
    "a minus of print": "flu;\u221237;80;a;no;ann".encode(),
    "a negative zero": b"flu;-0;-0,0;a;no;ann",
    "a formula": b"flu;=1+1;=A1;a;no;ann",
    "a line break in quotes": b'flu;"37\x0b";"80\r";"a";no;ann',
    "other missing values": b"flu;#N/A;null;None;n/a;ann",
}

# (label, temperature, pressure, ward, smoker, person) of a DataFrame, whose columns
# have the types that pandas gives them
CELLS = [
    ("flu", 41.5, 120, "a", "no", 1),
    ("cold", 37.0, 80, "b", "yes", 2),
    ("none", 36.6, 0, "3", "no", 1),
    ("flu", 39.1, 200, "c", "no", 3),
    ("cold", 38.0, 90, "b", "YES", 2),
]
ODD_FRAME = {
    "gaps": (None,) * 6,
    "nan": (NAN,) * 6,
    "infinite": ("flu", INF, -INF, INF, INF, 1),
    "words": ("flu", "words", "words", "words", "words", "words"),
    "numbers as words": ("flu", "37,5", "80", "a", "no", "1"),
    "whole numbers": (0, 1, 2, 3, 1, 1),
    "fractions": (0.5, 0.5, 0.5, 0.5, 0.5, 0.5),
    "a number beyond print": ("flu", 10**5000, 10**400, 10**5000, "no", 10**5000),
    "true and false": (True, False, True, True, False, True),
    "dates": ("flu", *[datetime.datetime(2020, 1, 31)] * 4, datetime.date(2020, 1, 31)),
    "decimals": ("flu", Decimal("37.5"), Decimal("NaN"), Decimal(3), Decimal(0), 1),
    "complex": ("flu", 1j, 2 + 0j, 3j, 1j, 2j),
    "bytes": (b"flu", b"37", b"\xff", b"a", b"no", b"1"),
    "lists": (["flu"], [37.0], [], [["a"]], {"no": 1}, {1}),
    "an object": (object(), object(), object(), object(), object(), object()),
}

JSONL = [
    b'{"label": "flu", "text": "a fever", "person": "ann"}',
    b'{"label": "cold", "text": "sneezes\\noften", "person": 7}',
    b'{"label": "none", "text": "fine", "person": "ann"}',
    b'{"label": "flu", "text": "", "person": 7.0}',
    b'{"label": "cold", "text": "x"}',
]
ODD_JSONL = {
    "an empty line": b"",
    "half an object": b'{"label": "flu"',
    "a list": b'["flu", "words"]',
    "a number": b"3",
    "a text": b'"flu"',
    "null": b"null",
    "an empty object": b"{}",
    "nulls": b'{"label": null, "text": null, "person": null}',
    "not a number": b'{"label": NaN, "text": Infinity, "person": NaN}',
    "true and false": b'{"label": true, "text": false, "person": true}',
    "nested values": b'{"label": ["flu"], "text": {"a": [1]}, "person": {"ann": 1}}',
    "a number of 5000 digits": b'{"label": ' + b"9" * 5000 + b"}",
    "a number of 4300 digits": b'{"label": '
    + b"9" * 4300
    + b', "person": '
    + b"8" * 4300
    + b"}",
    "half a surrogate": b'{"label": "flu", "text": "\\ud83d", "person": "\\udc00"}',
    "no utf-8": b'{"label": "flu", "text": "\xff\xfe"}',
    "a nul": b'{"label": "fl\\u0000u", "text": "\0"}',
    "a byte order mark": b'\xef\xbb\xbf{"label": "flu"}',
    "a carriage return": b'{"label":\r"flu", "text":\r"words"}',
    "a key twice": b'{"label": "flu", "label": "cold"}',
    "an overlong line": b'{"label": "flu", "text": "' + HUGE_TEXT.encode() + b'"}',
    "an undeclared label": b'{"label": "aids", "text": "words", "person": "ann"}',
    **{
        f"nested {depth} times": b'{"label": "flu", "text": '
        + b"[" * depth
        + b"]" * depth
        + b', "person": 1}'
        for depth in (100, 300, 480, 900, 940, 970, 990, 100_000)
    },
}


def pandas_csv(folder: Path, records: Sequence[tuple[Any, str]]) -> Written:
    """A column of whole numbers with a gap in it is written as one of floats."""
    gap = any(label is None for label, _ in records)
    shown = [
        "" if label is None else str(float(label) if gap else label)
        for label, _ in records
    ]
    rows = [
        f"{label},{text}".encode()
        for label, (_, text) in zip(shown, records, strict=True)
    ]
    return lines("a.csv", b"label,text")(folder, rows)


# Parquet


def parquet(folder: Path, records: Sequence[Mapping[str, Any]]) -> Written:
    """Bytes become texts unchecked, and days count from 1970."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    def texts(name: str) -> Any:
        return unchecked_texts([record.get(name) for record in records])

    days = pa.array([record.get("when", 0) for record in records], pa.int32()).cast(
        pa.date32()
    )
    table = pa.table(
        {name: texts(name) for name in ("label", "text", "note", "person")}
        | {"when": days, "other": days}
    )
    pq.write_table(table, folder / "a.parquet", row_group_size=2)
    return Written(str(folder / "a.parquet"), range(len(records)))


def typed_parquet(folder: Path, records: Sequence[tuple[Any, Any]]) -> Written:
    """Labels and persons in columns of the type that all their values have."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    def column(values: Sequence[Any]) -> Any:
        if any(isinstance(value, str) for value in values):
            return pa.array([None if value is None else str(value) for value in values])
        return pa.array(
            values,
            pa.float64() if any(isinstance(value, float) for value in values) else None,
        )

    label, person = (column([record[index] for record in records]) for index in (0, 1))
    texts = pa.array([f"words of {record}" for record in records])
    table = pa.table({"label": label, "person": person, "text": texts})
    pq.write_table(table, folder / "a.parquet")
    return Written(str(folder / "a.parquet"), range(len(records)))


def arrow_columns(kinds: Mapping[str, str]) -> Callable[[Path, Sequence[Any]], Written]:
    """Tuples as a .parquet whose columns have these types."""

    def column(values: Sequence[Any], kind: str) -> Any:
        import pyarrow as pa

        if kind == "unchecked text":
            return unchecked_texts(values)
        if kind == "dictionary":
            return unchecked_texts(values).dictionary_encode()
        if kind == "days":
            return pa.array(values, pa.int32()).cast(pa.date32())
        if kind == "texts":
            return pa.array(values, pa.list_(pa.string()))
        if kind == "decimal":
            return pa.array(values, pa.decimal256(50, 3))
        return pa.array(values, kind)

    def write(folder: Path, records: Sequence[Any]) -> Written:
        import pyarrow as pa
        import pyarrow.parquet as pq

        values = zip(*records, strict=True)
        columns = {
            name: column(list(own), kind)
            for (name, kind), own in zip(kinds.items(), values, strict=True)
        }
        pq.write_table(pa.table(columns), folder / "a.parquet", row_group_size=2)
        return Written(str(folder / "a.parquet"), range(len(records)))

    return write


COLUMN_TYPES = {
    "label": "unchecked text",
    "temperature": "double",
    "pressure": "int64",
    "ward": "dictionary",
    "smoker": "bool",
    "person": "int64",
    "note": "unchecked text",
}
TABLE_PARQUET = [
    (b"flu", 41.5, 120, b"a", False, 1, b""),
    (b"cold", 37.0, 80, b"b", True, 2, b""),
    (b"none", 36.6, 0, b"3", None, 1, b""),
    (b"flu", 39.1, 200, b"c", False, 3, b""),
    (b"cold", None, None, None, True, 2, b""),
]
ODD_TABLE_PARQUET = {
    "nulls": (None,) * 7,
    "nan": (b"flu", NAN, 120, b"a", False, 1, b""),
    "infinite": (b"flu", -INF, 120, b"a", False, 1, b""),
    "huge numbers": (b"flu", 1e308, 2**63 - 1, b"a", False, -(2**63), b""),
    "no utf-8 in the label": (b"fl\xffu", 37.0, 80, b"a", True, 1, b""),
    "no utf-8 in the dictionary": (b"flu", 37.0, 80, b"\xff\xfe", True, 1, b""),
    "no utf-8 where nobody looks": (b"flu", 37.0, 80, b"a", True, 1, b"\xff"),
    "an undeclared label": (b"aids", 37.0, 80, b"z", True, 9, b""),
    "a long text": (HUGE_TEXT.encode(), 37.0, 80, HUGE_TEXT.encode(), True, 1, b""),
    "a line break": (b"flu\n", 37.0, 80, b'"a\n', True, 1, b""),
}
PART_TYPES = {
    "label": "dictionary",
    "temperature": "decimal",
    "pressure": "unchecked text",
    "ward": "days",
    "smoker": "texts",
    "person": "float",
}
PARTS = [
    (b"flu", Decimal("41.5"), b"120", 18292, ["true"], 1.5),
    (b"cold", Decimal(37), b"80,5", 0, [], None),
    (b"none", Decimal("36.625"), b"", 1, None, 1.5),
    (b"flu", None, b"NA", None, ["a", "b"], 3.0),
]
ODD_PARTS = {
    "nulls": (None,) * 6,
    "an impossible date": (b"flu", Decimal(37), b"80", 2**30, ["a"], 1.5),
    "a date before the first": (b"flu", Decimal(37), b"80", -(2**31), [], 1.5),
    "a huge decimal": (b"flu", Decimal("9" * 47), b"9" * 100_000, 1, [], INF),
    "a long list": (b"flu", Decimal(37), b"80", 1, ["x"] * 9_999, NAN),
    "no utf-8": (b"\xff", Decimal(37), b"\xc3\x28", 1, ["a"], 1.5),
    "a null in a list": (b"cold", Decimal(0), b"\0", 1, [None], -0.0),
}

COUNTED = [(index % 3, f"t{index}") for index in range(5)]
TYPED = [(0, 7), (1, 8), (2, 7), (0, 8)]
ODD_TYPED = {
    "nothing": (None, None),
    "nan": (NAN, NAN),
    "words": ("?", "ann"),
    "a fraction": (1.5, 1.5),
}
PARQUET = [
    {"label": b"flu", "text": b"a fever", "note": b"", "person": b"ann", "when": 1},
    {
        "label": b"cold",
        "text": b"sneezes\noften",
        "note": b"",
        "person": b"bob",
        "when": 2,
    },
    {"label": b"none", "text": b"fine", "note": b"", "person": b"ann", "when": 3},
    {"label": b"flu", "text": b"", "note": b"", "person": b"bob", "when": None},
]
ODD_PARQUET = {
    "nothing": {},
    "no utf-8 in the text": PARQUET[0] | {"text": b"\xff\xfe"},
    "no utf-8 in the label": PARQUET[0] | {"label": b"fl\xffu"},
    "no utf-8 in the person": PARQUET[0] | {"person": b"\xc3\x28"},
    "no utf-8 where nobody looks": PARQUET[0] | {"note": b"\xff"},
    "an impossible date": PARQUET[0] | {"when": 2**30},
    "a date before the first": PARQUET[0] | {"when": -(2**31)},
    "an undeclared label": PARQUET[0] | {"label": b"aids"},
    "a nul": PARQUET[0] | {"label": b"fl\0u", "text": b"\0"},
    "a long text": PARQUET[0] | {"text": HUGE_TEXT.encode()},
}


# Arrays


def array(values: Sequence[Any]) -> np.ndarray:
    try:
        return np.array(values)
    except ValueError:  # nested
        made = np.empty(len(values), object)
        made[:] = values
        return made


def arrays(
    kind: str, rows: Callable[[Sequence[Any]], np.ndarray]
) -> Callable[[Path, Sequence[Any]], Written]:
    def write(folder: Path, records: Sequence[Any]) -> Written:
        x, y, persons = (list(part) for part in zip(*records, strict=True))
        made = {"x": rows(x), "y": array(y), "person": array(persons)}
        if kind == "npz":
            np.savez(folder / "a.npz", **made)
            return Written(str(folder / "a.npz"), range(len(records)))
        for name, values in made.items():
            np.save(folder / f"{name}.npy", values)
        return Written(str(folder), range(len(records)))

    return write


def wide_texts(texts: Sequence[Any]) -> np.ndarray:
    """Texts, or the numbers of their characters."""
    x = np.array([text if isinstance(text, str) else "?" * len(text) for text in texts])
    for row, text in zip(x.view(np.uint32).reshape(len(texts), -1), texts, strict=True):
        row[: len(text)] = [
            ord(letter) if isinstance(letter, str) else letter for letter in text
        ]
    return x


FLOATS = [np.linspace(i, 1 / (i + 3), 4).astype(np.float32) for i in range(5)]
NUMBERS = list(zip(FLOATS, (0, 1, 2, 0, 1), (7, 8, 7.0, 8, 9), strict=True))
PIXELS = [
    (np.arange(16, dtype=np.uint8).reshape(4, 4) * (i + 1), y, p)
    for i, (_, y, p) in enumerate(NUMBERS)
]
WORDS = [
    (text, y, p)
    for text, (_, y, p) in zip(("a", "ab", "", "Größe", "x\0y"), NUMBERS, strict=True)
]
ODD_VALUES = {
    "none": None,
    "nan": NAN,
    "infinite": INF,
    "negative": -7,
    "too large": 99,
    "beyond 64 bits": 10**30,
    "64 bits without a sign": np.uint64(2**63 + 1),
    "a fraction": 1.5,
    "a float": 1.0,
    "true": True,
    "complex": 1 + 2j,
    "a class": "flu",
    "no class": "aids",
    "empty": "",
    "a number as text": "1",
    "a float as text": "1.0",
    "a long text": "x" * 1000,
    "half a surrogate": "\ud83d",
    "bytes": b"cold",
    "no utf-8": b"\xff",
    "nested": [1, 2],
    "a table": {"flu": 1},
    "a date": datetime.date(2020, 1, 1),
    "a decimal": Decimal(1),
    "a path": Path("flu"),
}
ODD_ROWS = {
    "nan": np.full(4, np.nan, np.float32),
    "of doubles": np.array([1e300, -1e-300, 0.1, -INF]),
    "of whole numbers": np.array([1, 2, 3, 2**62]),
    "of truths": np.array([True, False, True, True]),
}
ODD_NUMBERS = (
    {f"label {name}": (FLOATS[0], value, 7) for name, value in ODD_VALUES.items()}
    | {f"person {name}": (FLOATS[0], 0, value) for name, value in ODD_VALUES.items()}
    | {f"row {name}": (row, 0, 7) for name, row in ODD_ROWS.items()}
)
ODD_WORDS = {
    "long": (HUGE_TEXT[:5000], 0, 7),
    "half a surrogate": ("\ud83d", 0, 7),
    "no characters": ([0x110000, 0xFFFFFFFF, 65], 0, 7),
    "nuls": ("\0\0", 0, 7),
}
ODD_PIXELS = {
    "white": (np.full((4, 4), 255, np.uint8), 0, 7),
    "without a label": (PIXELS[0][0], None, None),
}


# Images


def png(
    shade: int,
    shape: tuple[int, ...] = (6, 6, 3),
    kind: str = "PNG",
    mode: str = "",
    **options: Any,
) -> bytes:
    stream = io.BytesIO()
    picture = Image.fromarray(
        (np.arange(np.prod(shape)).reshape(shape) * (shade + 1) % 251).astype(np.uint8)
    )
    (picture.convert(mode) if mode else picture).save(stream, kind, **options)
    return stream.getvalue()


def bomb(side: int) -> bytes:
    """The beginning of a PNG of that many pixels, squared."""
    header = b"IHDR" + struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    chunks = [
        struct.pack(">I", len(part) - 4) + part + struct.pack(">I", zlib.crc32(part))
        for part in (header, b"IDAT")
    ]
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


def sparse(file: Path) -> None:
    with file.open("wb") as stream:
        stream.truncate(2**33)


def images(folder: Path, records: Sequence[tuple[str | bytes, Any]]) -> Written:
    """(path, content): bytes, or what puts something else there."""
    root, found = folder / "images", []
    for name, content in records:
        file = root / os.fsdecode(name)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content) if isinstance(content, bytes) else content(file)
        hidden = any(
            part.startswith((".", "__")) for part in file.relative_to(root).parts
        )
        found.append(None if hidden or not file.suffix else file)
    order = sorted(file for file in found if file is not None)
    return Written(
        str(root), [None if file is None else order.index(file) for file in found]
    )


def at(record: tuple[str | bytes, Any], place: str) -> tuple[str | bytes, Any]:
    """The same image under a name that is first, in the middle or last in its
    folder.
    """
    head, tail = os.path.split(os.fsencode(record[0]))
    hidden = tail.startswith((b".", b"__"))
    prefix = {"first": b"0", "middle": b"k", "last": b"z"}[place]
    return head + b"/" * bool(head) + (tail if hidden else prefix + tail), record[1]


NAMES = (
    "cold/p1_a.png",
    "flu/deep/p2_b.png",
    "flu/p1_c.png",
    "none/p2_d.png",
    "train/p3_e.png",
)
FILES = [(name, png(shade)) for shade, name in enumerate(NAMES)]
ODD_FILES = {
    **{
        f"in {name}": (f"{name}/p1_x.png", png(9))
        for name in ("train", "test", "val", "validation", "aids", ".hidden", "__x")
    },
    "in a folder of the class train": ("train/train/p1_x.png", png(9)),
    "in no folder": ("p1_x.png", png(9)),
    "hidden": ("flu/.p1_x.png", png(9)),
    "called train": ("flu/train.png", png(9)),
    "called as another": ("cold/p1_c.png", png(9)),
    "in capitals": ("flu/p1_X.PNG", png(9)),
    "a name that is no utf-8": (b"fl\xff/p1_\xfe.png", png(9)),
    "a long name": (f"flu/{'p1_' * 80}.png", png(9)),
    "of nobody": ("flu/x.png", png(9)),
    "empty": ("flu/p1_x.png", b""),
    "no image": ("flu/p1_x.png", b"no image"),
    "cut off": ("flu/p1_x.png", png(9)[:60]),
    "a bomb": ("flu/p1_x.png", bomb(2**15)),
    "a large bomb": ("flu/p1_x.png", bomb(2**31 - 1)),
    "eight gigabytes of nothing": ("flu/p1_x.png", sparse),
    "unreadable": (
        "flu/p1_x.png",
        lambda file: (file.write_bytes(png(9)), file.chmod(0)),
    ),
    "a folder": ("flu/p1_x.png", lambda file: file.mkdir()),
    "a folder with an image": (
        "flu/p1_x.png",
        lambda file: (file.mkdir(), (file / "y.png").write_bytes(png(9))),
    ),
    "a link to nothing": ("flu/p1_x.png", lambda file: file.symlink_to("nowhere")),
    "a link to itself": ("flu/p1_x.png", lambda file: file.symlink_to(file.name)),
    "a link with a long name": (
        "flu/p1_x.png",
        lambda file: file.symlink_to("x" * 300),
    ),
    "a link to all records": ("flu/p1_x.png", lambda file: file.symlink_to("..")),
    "a link to a device": ("flu/p1_x.png", lambda file: file.symlink_to("/dev/zero")),
    "a pipe": ("flu/p1_x.png", os.mkfifo),
    "one pixel": ("flu/p1_x.png", png(9, (1, 1))),
    "wide": ("flu/p1_x.png", png(9, (2, 900, 3))),
    "transparent": ("flu/p1_x.png", png(9, (6, 6, 4))),
    "of 16 bits": ("flu/p1_x.png", png(9, (6, 6), mode="I;16")),
    "with a palette": ("flu/p1_x.gif", png(9, kind="GIF", mode="P")),
    "for print": ("flu/p1_x.jpg", png(9, kind="JPEG", mode="CMYK")),
    "of floats": ("flu/p1_x.tif", png(9, (6, 6), kind="TIFF", mode="F")),
    "webp": ("flu/p1_x.webp", png(9, kind="WEBP")),
    "postscript": ("flu/p1_x.png", png(9, kind="EPS")),
    "text with the suffix of none": ("flu/p1_x", b"no record"),
}


# Hugging Face


def saved(
    features: Callable[[Any], Any] | None = None,
) -> Callable[[Path, Sequence[Any]], Written]:
    """(x, label, person), in a table with the types that all values have, or those that
    are given.
    """

    def write(folder: Path, records: Sequence[Any]) -> Written:
        import datasets
        import pyarrow as pa

        datasets.disable_progress_bars()
        columns: dict[str, Any] = {
            name: list(part)
            for name, part in zip(
                ("x", "label", "person"), zip(*records, strict=True), strict=True
            )
        }
        if any(isinstance(value, float) for value in columns["label"]):
            columns["label"] = [
                None if label is None else float(label) for label in columns["label"]
            ]
        if all(value is None or isinstance(value, bytes) for value in columns["x"]):
            columns["x"] = unchecked_texts(columns["x"])
            made = datasets.Dataset(pa.table(columns))
        else:
            made = datasets.Dataset.from_dict(
                columns, features=features(datasets) if features else None
            )
        made.save_to_disk(str(folder / "saved"))
        # the library would read what a path names when it saves an image
        if isinstance(made.features["x"], dict):
            facts = folder / "saved" / "dataset_info.json"
            table = json.loads(facts.read_text())
            table["features"]["x"] = {"_type": "Image"}
            facts.write_text(json.dumps(table))
        return Written(str(folder / "saved"), range(len(records)))

    return write


def image_schema(datasets: Any) -> Any:
    """Images are put in as what they are kept as, of which anything may be missing."""
    x = {"bytes": datasets.Value("binary"), "path": datasets.Value("string")}
    label = datasets.ClassLabel(names=["none", "aids", "flu", "cold"])
    return datasets.Features(
        {"x": x, "label": label, "person": datasets.Value("string")}
    )


def matrix_schema(datasets: Any) -> Any:
    label, person = datasets.Value("string"), datasets.Value("int64")
    return datasets.Features(
        {
            "x": datasets.List(datasets.Value("float64"), length=4),
            "label": label,
            "person": person,
        }
    )


def encoded(content: bytes | None, path: str | None = None) -> dict[str, Any]:
    return {"bytes": content, "path": path}


LISTS = [(row.tolist(), label, f"p{person}") for row, label, person in NUMBERS]
ODD_LISTS = {
    "no row": (None, 0, "p7"),
    "an empty row": ([], 0, "p7"),
    "a longer row": ([1.0] * 9, 0, "p7"),
    "a gap in a row": ([1.0, None, 2.0, 3.0], 0, "p7"),
    "nan": ([NAN] * 4, 0, "p7"),
    "huge": ([1e300] * 4, 0, "p7"),
    "no label": (LISTS[0][0], None, "p7"),
    "label nan": (LISTS[0][0], NAN, "p7"),
    "label a fraction": (LISTS[0][0], 1.5, "p7"),
    "label negative": (LISTS[0][0], -1, "p7"),
    "label too large": (LISTS[0][0], 2**62, "p7"),
    "nobody": (LISTS[0][0], 0, None),
    "nothing": (None, None, None),
}
FIXED = [(row.tolist(), CLASSES[label], person) for row, label, person in NUMBERS]
ODD_FIXED = {
    "nothing": (None, None, None),
    "no class": (FIXED[0][0], "aids", 1),
    "nan": ([NAN] * 4, "flu", None),
}
TEXTS = [
    (text, label, f"p{label}")
    for text, label in ((b"a fever", 0), (b"", 1), (b"fine", 2), (b"x\ny", 0))
]
ODD_TEXTS = {
    "nothing": (None, None, None),
    "no utf-8": (b"\xff", 0, "p1"),
    "long": (HUGE_TEXT.encode(), 0, "p1"),
}
SCANS = [(encoded(png(shade)), shade % 4, f"p{shade % 2}") for shade in range(5)]
ODD_SCANS = {
    "nothing": (None, None, None),
    "neither bytes nor path": (encoded(None), 2, "p1"),
    "empty": (encoded(b""), 2, "p1"),
    "no image": (encoded(b"no image"), 2, "p1"),
    "cut off": (encoded(png(9)[:60]), 2, "p1"),
    "a bomb": (encoded(bomb(2**15)), 2, "p1"),
    "a path to nothing": (encoded(None, "/nowhere/x.png"), 2, "p1"),
    "a path to another machine": (
        encoded(None, "https://example.invalid/x.png"),
        2,
        "p1",
    ),
    "a path to a device": (encoded(None, "/dev/zero"), 2, "p1"),
    "of 16 bits": (encoded(png(9, (6, 6), mode="I;16")), 2, "p1"),
    "wide": (encoded(png(9, (2, 900, 3))), 2, "p1"),
    "no label": (encoded(png(9)), None, "p1"),
}


# PyTorch


class Items:
    """A dataset of items, of which an exception is raised when it is asked for."""

    def __init__(self, items: Sequence[Any]) -> None:
        self.items = items

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> Any:
        item = self.items[index]
        if isinstance(item, Exception):
            raise item
        return item


def torch_items(**options: Any) -> Callable[[Path, Sequence[Any]], Written]:
    """A source of one's own that hands the declared classes on."""

    def write(folder: Path, records: Sequence[Any]) -> Written:
        def load(path: Path, declared: Sequence[str]) -> Any:
            return from_torch(Items(records), declared=declared, **options)

        module = types.ModuleType("odd_torch_source")
        module.load = load  # type: ignore[attr-defined]
        sys.modules[module.__name__] = module
        return Written(str(folder), range(len(records)))

    return write


PAIRS = [(torch.from_numpy(row), label) for row, label, _ in NUMBERS]
ODD_LABELS = {f"label {name}": value for name, value in ODD_VALUES.items()} | {
    "label a tensor": torch.tensor(1),
    "label a tensor of floats": torch.tensor(1.0),
    "label of two": torch.tensor([0, 1]),
    "label a number of NumPy's": np.int32(2),
    "label an object": object(),
}
ODD_ITEMS = {
    "an error": RuntimeError("cannot be decoded"),
    "the end": StopIteration(),
    "no such index": IndexError(),
    "none": None,
    "no pair": (),
    "x alone": PAIRS[0][0],
    "a text": ("words", 0),
    "a word": "words",
}
ODD_TENSORS = ODD_ITEMS | {name: (PAIRS[0][0], label) for name, label in ODD_LABELS.items()} | {
    "of doubles": (torch.full((4,), 1e300, dtype=torch.float64), 0),
    "of whole numbers": (torch.arange(4), 0),
    "of halves": (torch.zeros(4, dtype=torch.bfloat16), 0),
    "of another shape": (torch.zeros(2, 2), 0),
    "complex": (torch.zeros(4, dtype=torch.complex64), 0),
    "a ragged list": ([[1.0], [1.0, 2.0]], 0),
    "on no device": (torch.zeros(4, device="meta"), 0),
}  # fmt: skip
PICTURES = [(Image.open(io.BytesIO(png(shade))), shade % 3) for shade in range(4)] + [
    (torch.full((3, 6, 6), 0.5), 0)
]
ODD_PICTURES = ODD_ITEMS | {
    "an array": (np.full((9, 5, 3), 200, np.uint8), 0),
    "grey": (np.full((9, 5), 200, np.uint8), 0),
    "channels first": (np.full((3, 9, 5), 200, np.uint8), 0),
    "a tensor beyond 0 to 1": (torch.linspace(-3, 3, 108).reshape(3, 6, 6), 0),
    "nan": (torch.full((3, 6, 6), torch.nan), 0),
    "numbers beyond 255": (np.full((6, 6), 999), 0),
    "empty": (np.zeros((0, 0, 3), np.uint8), 0),
    "cut off": (Image.open(io.BytesIO(png(9, (60, 60, 3))[:200])), 0),
    "of floats": (Image.fromarray(np.full((6, 6), 1e9, np.float32)), 0),
    "five dimensions": (np.zeros((1, 1, 1, 6, 6), np.uint8), 0),
}
PHRASES = [("a fever", 0), ("", "cold"), ("fine", 2), ("x", None)]
ODD_PHRASES = ODD_ITEMS | {
    "bytes": (b"\xff", 0),
    "half a surrogate": ("\ud83d", 0),
    "a number beyond print": (10**5000, 0),
    "long": (HUGE_TEXT, "flu"),
}


TABLE = ("label", "text", "person")
DIGITS = ("0", "1", "2")
FORMATS = {
    "csv": Format(
        "csv", CSV, ODD_CSV, lines("a.csv", b"label,text,person"), person="person"
    ),
    "csv without a header": Format(
        "csv", CSV, ODD_CSV, lines("a.csv.gz"), {"columns": TABLE}, "person"
    ),
    "csv by pandas": Format(
        "csv", COUNTED, {"a gap": (None, "t")}, pandas_csv, classes=DIGITS
    ),
    "table": Format(
        "table",
        ROWS,
        ODD_TABLE,
        lines("a.csv", b"\xef\xbb\xbflabel;temperature;pressure;ward;smoker;person"),
        {"schema": str(Path(__file__).with_name("odd_table.toml"))},
        "person",
    ),
    "table in parquet": Format(
        "table",
        TABLE_PARQUET,
        ODD_TABLE_PARQUET,
        arrow_columns(COLUMN_TYPES),
        {"schema": str(Path(__file__).with_name("odd_parquet.toml"))},
        "person",
    ),
    "table of decimals, dates and lists": Format(
        "table",
        PARTS,
        ODD_PARTS,
        arrow_columns(PART_TYPES),
        {"schema": str(Path(__file__).with_name("odd_parquet.toml"))},
        "person",
    ),
    "table of a DataFrame": Format(
        "odd_frame_source:load", CELLS, ODD_FRAME, frames, person="person"
    ),
    "jsonl": Format("jsonl", JSONL, ODD_JSONL, lines("a.jsonl"), person="person"),
    "parquet": Format(
        "parquet", PARQUET, ODD_PARQUET, parquet, {"text": ("text", "when")}, "person"
    ),
    "parquet by type": Format(
        "parquet", TYPED, ODD_TYPED, typed_parquet, person="person", classes=DIGITS
    ),
    "npy": Format(
        "npy", NUMBERS, ODD_NUMBERS, arrays("npy", np.stack), person="person"
    ),
    "npy of images": Format(
        "npy", PIXELS, ODD_PIXELS, arrays("npy", np.stack), person="person"
    ),
    "npy of texts": Format(
        "npy", WORDS, ODD_WORDS, arrays("npy", wide_texts), person="person"
    ),
    "npz": Format(
        "npz", NUMBERS, ODD_NUMBERS, arrays("npz", np.stack), person="person"
    ),
    "images": Format(
        "images",
        FILES,
        ODD_FILES,
        images,
        {"size": 5},
        "p[0-9]",
        (*CLASSES, "train"),
        at,
    ),
    "huggingface": Format(
        "huggingface", LISTS, ODD_LISTS, saved(), {"shape": 4}, "person"
    ),
    "huggingface by schema": Format(
        "huggingface", FIXED, ODD_FIXED, saved(matrix_schema), person="person"
    ),
    "huggingface of texts": Format(
        "huggingface", TEXTS, ODD_TEXTS, saved(), {"record": "x"}, "person"
    ),
    "huggingface of images": Format(
        "huggingface", SCANS, ODD_SCANS, saved(image_schema), {"size": 5}, "person"
    ),
    "torch": Format(
        "odd_torch_source:load", PAIRS, ODD_TENSORS, torch_items(shape=(4,))
    ),
    "torch of images": Format(
        "odd_torch_source:load", PICTURES, ODD_PICTURES, torch_items(size=5)
    ),
    "torch of texts": Format(
        "odd_torch_source:load", PHRASES, ODD_PHRASES, torch_items(text=True)
    ),
}
