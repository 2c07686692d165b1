"""The schema of a table: what each column is, in a TOML file that a person reads.

    label = "diagnosis"
    classes = ["healthy", "ill"]

    [columns]
    age = {kind = "number", range = [20, 90], missing = true}
    chest_pain = {kind = "category", values = ["none", "typical", "other kind"]}
    smoker = {kind = "flag", values = ["no", "yes"]}

    [dropped]
    patient = "an identifier"

A record is encoded by the schema alone, never in the light of other records
(`data.table_encoding`). So the schema must be public, and the same at all sites: ranges
and values come from public records, or from a person who knows the column.
"""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, Self

from fedaux.config.parsing import ConfigError, Settings, from_table, require
from fedaux.config.toml import toml_value
from fedaux.core.errors import FedauxError
from fedaux.data.records import RecordsError

# that stand for a missing value: those of pandas, UCI's "?" and a dash
MISSING_VALUES = (
    "",
    "?",
    "-",
    "NA",
    "N/A",
    "n/a",
    "na",
    "NaN",
    "nan",
    "NULL",
    "null",
    "None",
    "<NA>",
    "NaT",
)
# of one byte a character, or UTF-8: a line feed is one byte in all of them
Encoding = Literal["utf-8", "cp1252", "latin-1"]


@dataclass(frozen=True)
class Column(Settings):
    """What a column holds, and so how its values become numbers."""

    kind: Literal["number", "category", "flag"] = "number"
    # number: least and largest value; values outside are clipped
    range: tuple[float, ...] = ()
    # number: values at equal shares of public records, which become equally spaced
    quantiles: tuple[float, ...] = ()
    # number: bounds of intervals, each of which also becomes a column of its own
    bins: tuple[float, ...] = ()
    # category: those that are told apart; flag: no, then yes
    values: tuple[str, ...] = ()
    missing: bool = False  # whether a value may be missing, which then is told
    unit: str = ""  # number: for readers of `export.column_effects`

    @property
    def problem(self) -> str:
        """What is wrong with these settings, or ""."""
        if self.kind == "number":
            return self._number_problem()
        if self.range or self.quantiles or self.bins:
            return f"a {self.kind} has no range, quantiles or bins, but values"
        if len(set(self.values)) < len(self.values):
            return "values must differ from one another"
        if self.kind == "flag" and len(self.values) != 2:
            return 'a flag has two values, no and yes: values = ["0", "1"]'
        if not self.values:
            return 'a category names its values: values = ["a", "b"]'
        return ""

    def _number_problem(self) -> str:
        if self.values:
            return 'a number has no values but a range, or is of kind = "category"'
        if len(self.range) != 2 or not self.range[0] < self.range[1]:
            return "a number needs its least and its largest value: range = [0, 100]"
        low, high = self.range
        for name in ("quantiles", "bins"):
            points = getattr(self, name)
            if any(first > second for first, second in pairwise(points)):
                return f"{name} must increase"
            if any(not low <= point <= high for point in points):
                return f"{name} must lie in the range"
        if len(self.quantiles) == 1:
            return "quantiles are at least two"
        return ""

    def to_table(self) -> dict[str, Any]:
        """The settings that differ from their defaults, and the kind."""
        table: dict[str, Any] = {"kind": self.kind}
        for name in ("range", "quantiles", "bins", "values"):
            value = getattr(self, name)
            if value:
                table[name] = [_short(item) for item in value]
        if self.missing:
            table["missing"] = True
        if self.unit:
            table["unit"] = self.unit
        return table


def _short(value: Any) -> Any:
    """A whole number without its point."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


@dataclass(frozen=True)
class FileMarks(Settings):
    """How a .csv is written."""

    delimiter: str = ","
    decimal: Literal[".", ","] = "."
    encoding: Encoding = "utf-8"

    def check(self) -> None:
        require(
            len(self.delimiter) == 1 and self.delimiter not in '"\n\r',
            "Cannot read the schema: delimiter must be one character, such as a comma, "
            f"not {self.delimiter!r}. Correct it.",
        )
        require(
            self.delimiter != self.decimal,
            "Cannot read the schema: delimiter and decimal must differ from each "
            "other. Correct one of them.",
        )


@dataclass(frozen=True)
class TableHeader(Settings):
    """What a schema says about the file as a whole: the keys above its columns."""

    label: str = ""  # the column of the class
    classes: tuple[str, ...] = ()
    site: str = ""  # the column that says whose a record is, for simulations
    delimiter: str = ","
    decimal: Literal[".", ","] = "."
    encoding: Encoding = "utf-8"
    missing: tuple[str, ...] = MISSING_VALUES
    # whether ranges and values are public; a site reads no records by others
    confirmed: bool = False

    def check(self) -> None:
        FileMarks(self.delimiter, self.decimal, self.encoding)


class SchemaError(FedauxError, ValueError):
    """A schema that cannot be used. The message names the file and the column."""

    code = ConfigError.code


@dataclass(frozen=True)
class TableSchema:
    """The columns of a table by name, in the order in which they are encoded."""

    header: TableHeader
    columns: Mapping[str, Column]
    dropped: Mapping[str, str]  # columns that are left out, and why
    # by file name: those that are written in another way than the header says
    written: Mapping[str, FileMarks] = field(default_factory=dict)

    @classmethod
    def from_dict(cls, table: Mapping[str, Any]) -> Self:
        """Check the tables of a schema file. An error names what is wrong."""
        parts = dict(table)
        columns = parts.pop("columns", {})
        dropped = parts.pop("dropped", {})
        written = parts.pop("written", {})
        require(
            isinstance(written, Mapping)
            and all(isinstance(marks, Mapping) for marks in written.values()),
            "Cannot read the schema: [written] has a line for each file. Write it as "
            'in "a.csv" = {delimiter = ";", decimal = ","}.',
        )
        header = from_table(TableHeader, parts)
        require(
            isinstance(columns, Mapping) and bool(columns),
            "Cannot read the schema: a schema needs [columns], with at least one "
            "column. Add it.",
        )
        made: dict[str, Column] = {}
        for name, settings in columns.items():
            require(
                isinstance(settings, Mapping),
                f"Cannot read columns.{name}: it must be a table. Write it as in "
                '{kind = "category", …}.',
            )
            made[name] = from_table(Column, settings, f"columns.{name}.")
            problem = made[name].problem
            require(
                not problem,
                f"Cannot use columns.{name}: {problem}. Correct the schema.",
            )
        special = {header.label: "the label", header.site: "the site"}
        for name in made.keys() & special.keys() - {""}:
            raise ConfigError(
                f"Cannot use columns.{name}: this column is {special[name]}. Take it "
                "out of [columns]."
            )
        marks = {
            name: from_table(FileMarks, settings, f"written.{name}.")
            for name, settings in written.items()
        }
        return cls(header, made, dict(dropped), marks)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a schema file."""
        file = Path(path).expanduser()
        if not file.is_file():
            raise SchemaError(
                f"Cannot read the schema {file}: there is no such file. Run `fedaux "
                "init table --data YOUR.csv --label COLUMN` to write one."
            )
        try:
            return cls.from_dict(tomllib.loads(file.read_text("utf-8")))
        except (ConfigError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            reason = str(error).rstrip(".")
            raise SchemaError(
                f"Cannot read the schema {file}: {reason}. Correct the file."
            ) from error

    def to_dict(self) -> dict[str, Any]:
        """The tables of the file, without what is left at its default."""
        default = TableHeader()
        table: dict[str, Any] = {}
        for name, value in vars(self.header).items():
            if value != getattr(default, name):
                table[name] = list(value) if isinstance(value, tuple) else value
        columns = {name: column.to_table() for name, column in self.columns.items()}
        table |= {"columns": columns, "dropped": dict(self.dropped)}
        if self.written:
            table["written"] = {
                name: dict(vars(marks)) for name, marks in self.written.items()
            }
        return table

    def for_file(self, file: Path) -> TableSchema:
        """The schema with the marks of this file, if `written` names it."""
        marks = self.written.get(file.name)
        if marks is None:
            return self
        return replace(self, header=replace(self.header, **vars(marks)))

    def to_toml(self, comments: Sequence[str] = ()) -> str:
        """The file: a line for each column, below these comments."""
        table = self.to_dict()
        columns = table.pop("columns")
        dropped = table.pop("dropped")
        written = table.pop("written", {})
        lines = [f"# {comment}".rstrip() for comment in comments]
        lines += ["", *_toml_lines(table), "", "[columns]", *_toml_lines(columns)]
        if dropped:
            lines += ["", "[dropped]  # and why", *_toml_lines(dropped)]
        if written:
            lines += ["", "[written]  # in another way", *_toml_lines(written)]
        return "\n".join(lines).lstrip("\n") + "\n"

    @property
    def hash(self) -> str:
        """16 hex digits that are the same where records are encoded alike, with the
        same classes.
        """
        content = {
            "classes": self.header.classes,
            "columns": [
                (name, column.to_table() | {"unit": ""})
                for name, column in self.columns.items()
            ],
        }
        return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]

    def differences(self, reference: TableSchema) -> list[str]:
        """What is different in this schema, column by column, so that records become
        other numbers than by `reference`; [] where the hashes are the same.
        """
        found: list[str] = []
        if self.header.classes != reference.header.classes:
            found.append(
                f"classes are {', '.join(self.header.classes)}, not "
                f"{', '.join(reference.header.classes)}"
            )
        for name, expected in reference.columns.items():
            column = self.columns.get(name)
            if column is None:
                found.append(f"there is no column {name}")
            elif column.kind != expected.kind:
                found.append(f"{name} is a {column.kind}, not a {expected.kind}")
            else:
                settings = [
                    setting
                    for setting in ("range", "quantiles", "bins", "values", "missing")
                    if getattr(column, setting) != getattr(expected, setting)
                ]
                if settings:
                    found.append(f"{name} differs in {' and '.join(settings)}")
        extra = [name for name in self.columns if name not in reference.columns]
        found += [f"column {name} is added" for name in extra]
        if not found and list(self.columns) != list(reference.columns):
            found.append("the columns are in another order")
        return found

    def require_confirmed(self, file: Path) -> None:
        """Raise an error if ranges and values may come from private records, before a
        site reads its own by them.
        """
        if self.header.confirmed:
            return
        raise RecordsError(
            f"Cannot read {file} as a site's records: its schema was proposed from "
            "private records, and ranges and values are public. Replace them by what "
            "anyone may know about each column, then write confirmed = true."
        )


def _toml_lines(table: Mapping[str, Any]) -> list[str]:
    return [toml_value({name: value})[1:-1] for name, value in table.items()]
