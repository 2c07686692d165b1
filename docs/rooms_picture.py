"""Draws images/rooms.svg from the imports of the package: a room stands above all rooms
that it imports from.
"""

import ast
from functools import cache
from pathlib import Path

from drawing import GREY, IMAGES, PROTECTED, SERVER, arrow, box, picture, words

DOCS = Path(__file__).resolve().parent
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
    "flower": "imports flwr",
    "deploy": "imports flwr",
    "config": "no torch",
    "core": "no torch",
    "cli": "no torch",
}
WIDTH, HEIGHT, GAP, FLOOR = 980, 46, 14, 68


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
    """Imports that do not follow from others: the arrows."""
    return sorted(
        other
        for other in imported(room)
        if not any(other in below(via) for via in imported(room))
    )


def boxes() -> dict[str, tuple[float, float, float]]:
    """(left, top, width) of every room; rooms of one floor stand side by side."""
    floors: dict[int, list[str]] = {}
    for room in PURPOSES:
        floors.setdefault(floor(room), []).append(room)
    places = {}
    for number, rooms in floors.items():
        width = (
            (WIDTH - 20 - GAP * (len(rooms) - 1)) / len(rooms)
            if len(rooms) > 1
            else 560
        )
        left = 10 if len(rooms) > 1 else (WIDTH - width) / 2
        for position, room in enumerate(rooms):
            places[room] = left + position * (width + GAP), 10 + number * FLOOR, width
    return places


def drawn_room(room: str, left: float, top: float, width: float) -> list[str]:
    fill = GREY
    if room in ("flower", "deploy"):
        fill = SERVER
    if room == "privacy":
        fill = PROTECTED
    shapes = [
        box(left, top, width, HEIGHT, fill),
        words(left + 14, top + 20, room, "h"),
        words(left + 14, top + 38, PURPOSES[room], "s"),
    ]
    if room in MARKS:
        shapes.append(words(left + width - 12, top + 18, MARKS[room], "e"))
    return shapes


def drawn_arrow(
    upper: tuple[float, float, float], lower: tuple[float, float, float]
) -> str:
    """Straight down where the boxes face each other; past floors between them, down the
    margin and in at the side.
    """
    start = upper[1] + HEIGHT
    if lower[1] - upper[1] > FLOOR:
        left = upper[0] + upper[2] / 2 < WIDTH / 2
        margin, side = (
            (110.0, lower[0] - 2) if left else (WIDTH - 110.0, lower[0] + lower[2] + 2)
        )
        path = f"M{margin:g} {start:g} V{lower[1] + HEIGHT / 2:g} H{side:g}"
    else:
        facing = max(upper[0], lower[0]) + min(upper[0] + upper[2], lower[0] + lower[2])
        path = f"M{facing / 2:g} {start:g} V{lower[1] - 2:g}"
    return arrow(path)


def draw() -> str:
    places = boxes()
    order = sorted(PURPOSES, key=lambda room: (floor(room), places[room][0]))
    arrows = [(room, other) for room in order for other in direct(room)]
    described = "Each imports only from rooms below it: " + "; ".join(
        f"{room}: {', '.join(direct(room)) or 'nothing'}" for room in order
    )
    height = 10 + (max(map(floor, PURPOSES)) + 1) * FLOOR - (FLOOR - HEIGHT) + 10
    shapes = [drawn_arrow(places[room], places[other]) for room, other in arrows]
    for room in order:
        shapes += drawn_room(room, *places[room])
    size = (WIDTH, height)
    return picture("The rooms of fedaux", described, size, shapes, "rooms_picture.py")


if __name__ == "__main__":
    (IMAGES / "rooms.svg").write_text(draw(), encoding="utf-8")
