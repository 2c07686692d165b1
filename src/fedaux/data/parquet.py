"""Parquet files, of which each value is converted separately."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fedaux.core.errors import MissingPackageError, install_command
from fedaux.data.records import RecordsError


def is_parquet(file: Path) -> bool:
    """Whether a file is in Parquet, by its name."""
    return file.suffix.lower() == ".parquet"


def open_parquet(file: Path, extra: str) -> Any:
    """The `ParquetFile`; `extra` is what installs pyarrow."""
    try:
        from pyarrow import ArrowException
        from pyarrow.parquet import ParquetFile
    except ImportError as error:
        raise MissingPackageError(
            f"Cannot read {file}: pyarrow is not installed. Run "
            f"{install_command(extra)}."
        ) from error
    try:
        return ParquetFile(file)
    except (ArrowException, OSError) as error:
        raise RecordsError(
            f"Cannot read {file}: it is not a Parquet file, or damaged ({error}). Write "
            "it again, or give a file of another format another name."
        ) from error


def python_value(scalar: Any) -> Any:
    """Convert one value separately: invalid text is replaced, and a value that Python
    cannot represent is missing.
    """
    try:
        value = scalar.as_py()
    except UnicodeDecodeError:
        text = getattr(scalar, "value", scalar)  # that of a dictionary
        if not hasattr(text, "as_buffer"):
            return None
        value = text.as_buffer().to_pybytes()
    except Exception:
        return None
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return value
