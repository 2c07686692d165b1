"""Draws images/rooms.svg from the imports of the package: a room stands above all rooms
that it imports from, and names the next of them.
"""

import ast
from functools import cache
from textwrap import wrap

from drawing import (
    DOCS,
    GREY,
    PROTECTED,
    SERVER,
    WIDTH,
    box,
    picture,
    words,
    write_pictures,
)

PACKAGE = DOCS.parent / "src" / "fedaux"
PURPOSES = {
    "cli": "commands, each a thin skin over a function",
    "deploy": "real sites: keys, scripts, checks",
    "audit": "attacks on a whole client",
    "sweeps": "many runs: grids, tuning, comparisons",
    "runs": "one run in one folder; fedaux.run",
    "report": "pages, figures, live panel",
    "export": "a model on its own, ONNX",
    "flower": "transport and the drop-in strategy",
    "server": "the loop, a round, distillation, orders",
    "client": "all that runs beside private records",
    "methods": "hooks and heads, each as its paper",
    "scoring": "P2: which public data looks like mine",
    "privacy": "P3: records alone, noise, account",
    "models": "networks, inference; P1: pre-training",
    "data": "sources, splits, records, batches",
    "config": "what a run is: checked settings",
    "messages": "orders and replies, declared once",
    "core": "errors, files, random streams, events",
}
MARKS = {
    "flower": "knows flwr",
    "deploy": "knows flwr",
    "config": "no torch",
    "core": "no torch",
    "cli": "no torch",
}
GAP, LINE = 8, 22
LETTERS = 46  # of a line


@cache
def imported(room: str) -> frozenset[str]:
    """The other rooms that the sources of a room import from, anywhere in them."""
    modules = {
        node.module
        for path in sorted((PACKAGE / room).rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and node.module
    }
    return frozenset(
        {module.split(".")[1] for module in modules if module.startswith("fedaux.")}
        - {room}
    )


@cache
def below(room: str) -> frozenset[str]:
    return imported(room).union(*map(below, imported(room)))


@cache
def floor(room: str) -> int:
    """0 at the top: a room stands directly below the lowest room that imports
    from it.
    """
    return 1 + max(
        (floor(other) for other in PURPOSES if room in imported(other)), default=-1
    )


def direct(room: str) -> list[str]:
    """Imports that do not follow from others."""
    return sorted(
        other
        for other in imported(room)
        if not any(other in below(via) for via in imported(room))
    )


def drawn_room(room: str, top: float) -> tuple[list[str], float]:
    """A box for a room, and where the next one begins."""
    fill = GREY
    if room in ("flower", "deploy"):
        fill = SERVER
    if room == "privacy":
        fill = PROTECTED
    lines = [PURPOSES[room]]
    if direct(room):
        lines += wrap(f"↓ {', '.join(direct(room))}", LETTERS)
    height = 30 + LINE * len(lines) + 6
    shapes = [box(10, top, WIDTH - 20, height, fill), words(24, top + 25, room, "h")]
    if room in MARKS:
        shapes.append(words(WIDTH - 22, top + 24, MARKS[room], "e"))
    for number, line in enumerate(lines):
        shapes.append(words(24, top + 47 + LINE * number, line, "s"))
    return shapes, top + height + GAP


def draw() -> str:
    order = sorted(PURPOSES, key=floor)
    described = "Each imports only from rooms below it: " + "; ".join(
        f"{room}: {', '.join(direct(room)) or 'nothing'}" for room in order
    )
    shapes: list[str] = []
    top = 10.0
    for room in order:
        more, top = drawn_room(room, top)
        shapes += more
    size = (WIDTH, top + 2)
    return picture("The rooms of fedaux", described, size, shapes, "rooms_picture.py")


if __name__ == "__main__":
    write_pictures({"rooms": draw})
