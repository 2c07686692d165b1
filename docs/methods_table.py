"""The table of methods on the page `methods.md`: `python docs/methods_table.py` writes
it again.
"""

from __future__ import annotations

import re
from pathlib import Path

from fedaux.config.method_facts import MethodFacts, all_facts

PAGE = Path(__file__).with_name("methods.md")
_HEADER = (
    "`method`",
    "name",
    "a client sends",
    "noise protects",
    "needs",
    "use it for",
)


def table() -> str:
    """Every method of `fedaux methods` as a row of Markdown."""
    rows = [_HEADER, ("---",) * len(_HEADER), *map(_row, all_facts())]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def with_table(page: str) -> str:
    """The page with its table made again."""
    return re.sub(
        r"^\| `method`.*?\n(?!\|)",
        lambda _: table(),
        page,
        flags=re.DOTALL | re.MULTILINE,
    )


def _row(facts: MethodFacts) -> tuple[str, ...]:
    return (
        f"`{facts.name}`",
        facts.label,
        facts.leaves,
        facts.protected,
        facts.needs,
        facts.when,
    )


if __name__ == "__main__":
    PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
