"""The class of a record at a site: from its own label and the declared names, never from other records."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any, Self

import numpy as np

from fedaux.data.records import UNDECLARED

DECIMAL = re.compile(r"([0-9]+)(?:\.0*)?")  # 1, and what becomes of it in a column of floats


@dataclass(frozen=True)
class DeclaredClasses:
    """The classes of a federation by name, and by the numbers that a source may use for them."""

    position: Mapping[str, int]
    numbered: Sequence[int]  # the class of label 0, 1, …

    @classmethod
    def of(cls, declared: Sequence[str], names: Sequence[str] = ()) -> Self:
        """`names` are those of the source's labels 0, 1, …; without them the numbers are places among `declared`."""
        position = {name: place for place, name in enumerate(declared)}
        return cls(position, [position.get(name, UNDECLARED) for name in names or declared])

    def by_name(self, name: str) -> int:
        """Where 1 is declared, 1.0 means it, too: so tables are written whose column has a gap."""
        if name in self.position:
            return self.position[name]
        whole = DECIMAL.fullmatch(name)
        return self.position.get(whole[1], UNDECLARED) if whole else UNDECLARED

    def by_number(self, number: Any) -> int:
        valid = 0 <= number < len(self.numbered) and number == int(number)
        return self.numbered[int(number)] if valid else UNDECLARED

    def label(self, value: Any) -> int:
        """A text by its name, a number by its place. True and False are names, and anything else is no label."""
        if isinstance(value, (str, bool, np.bool_)):
            return self.by_name(str(value))
        return self.by_number(value) if isinstance(value, (int, float, Real)) else UNDECLARED

    def array_label(self, value: Any) -> int:
        """The same whatever type an array has: a number is a number also as a text, and True is 1.

        Any other text is a name.
        """
        if isinstance(value, complex):
            value = value.real if value.imag == 0 else None
        if isinstance(value, str):
            value = {"False": 0, "True": 1}.get(value, float(value) if DECIMAL.fullmatch(value) else value)
        return self.label(int(value) if isinstance(value, (bool, np.bool_)) else value)
