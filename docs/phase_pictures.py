"""Draws three pictures for a narrow screen, from top to bottom: images/phases.svg (who
does what), images/release.svg (what a release is) and images/round.svg (what crosses).
`python docs/phase_pictures.py` writes them again.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from drawing import (
    INNER,
    ON_SERVER,
    ON_SITE,
    PROTECTED,
    SERVER,
    SITE,
    WIDTH,
    arrow,
    box,
    picture,
    words,
    write_pictures,
)

WIDE = 320  # a box: the server's at the left, the client's at the right
LEFT = {SERVER: 10, SITE: WIDTH - WIDE - 10}
MESSAGE = "#5b6472"
LINE = 22
FIRST, SECOND = "#f2b84b", "#7fd1c7"  # two classes
NOISE_COLOUR = "#d9d9e3"


class Step(NamedTuple):
    """What one of them does, in a box on its side."""

    side: str
    title: str
    lines: Sequence[str]
    fill: str = ""


class Message(NamedTuple):
    """What crosses, and the side that it goes to."""

    to: str
    text: str
    fill: str = MESSAGE


class Part(NamedTuple):
    """A heading over the whole width."""

    text: str


def drawn_step(step: Step, top: float) -> tuple[list[str], float]:
    inner = {SERVER: ON_SERVER, SITE: ON_SITE}[step.side]
    left = LEFT[step.side]
    height = 36 + LINE * len(step.lines) + 6
    shapes = [
        box(left, top, WIDE, height, step.fill or inner),
        words(left + 14, top + 26, step.title, "h"),
    ]
    for number, line in enumerate(step.lines):
        shapes.append(words(left + 14, top + 52 + LINE * number, line))
    return shapes, top + height + 8


def drawn_message(message: Message, top: float) -> tuple[list[str], float]:
    """A pill over an arrow that points down, near the side that gets the message."""
    shapes = [
        arrow(f"M{WIDTH / 2:g} {top - 6:g} V{top + 54:g}"),
        box(40, top + 6, WIDTH - 80, 30, message.fill),
        words(WIDTH / 2, top + 26, message.text, "m"),
    ]
    return shapes, top + 60


def drawn_part(part: Part, top: float) -> tuple[list[str], float]:
    return [
        box(10, top + 6, WIDTH - 20, 30, MESSAGE),
        words(WIDTH / 2, top + 27, part.text, "h m"),
    ], top + 46


def stacked(title: str, described: str, items: Sequence[Step | Message | Part]) -> str:
    """Boxes and messages below one another, in the order of time."""
    half = (WIDTH - 28) / 2
    shapes = [
        box(10, 10, half, 36, SERVER),
        words(24, 34, "Server", "h"),
        box(18 + half, 10, half, 36, SITE),
        words(32 + half, 34, "Each client", "h"),
    ]
    top = 50.0
    for item in items:
        if isinstance(item, Step):
            more, top = drawn_step(item, top)
        elif isinstance(item, Message):
            more, top = drawn_message(item, top)
        else:
            more, top = drawn_part(item, top)
        shapes += more
    return picture(title, described, (WIDTH, top + 4), shapes, "phase_pictures.py")


PHASES = (
    Part("Preparation: once"),
    Step(SERVER, "P1 pre-train", ("extractor h0 on all public data",)),
    Message(SITE, "extractor, map of D⁻"),
    Step(SITE, "P2 summarise", ("h0’s features of its records",)),
    Step(SITE, "P3 sanitise", ("add noise once, keep what it sent",)),
    Message(SERVER, "release: noisy sums", PROTECTED),
    Part("Training: every round"),
    Step(SITE, "T1 train", ("locally, from the server’s weights",)),
    Message(SERVER, "model, losses"),
    Step(
        SERVER,
        "T2 combine",
        ("average the models, and weight", "their votes per example"),
    ),
    Step(SERVER, "T3 distil", ("a student learns from the votes",)),
    Message(SITE, "new weights, for the next T1"),
)


def phases() -> str:
    described = (
        "Preparation, once: the server pre-trains an extractor (P1) and sends it. Each "
        "client summarises its records (P2) and releases the summary with noise (P3). "
        "Training, every round: clients train from the server's weights (T1), the "
        "server combines their models, weighted by the releases (T2), distils a "
        "student (T3) and sends its weights for the next round."
    )
    return stacked("Phases of FedAUX between server and clients", described, PHASES)


ROUND = (
    Part("Once per client"),
    Step(
        SERVER,
        "P1 pre-train",
        (
            "h0 ← self-supervision on D_aux",
            "split D_aux into D⁻ and D_distill",
            "(μ, B) ← centre, PCA of h0(D⁻)",
        ),
    ),
    Message(SITE, "PrepareOrder: h0, map (μ, B)"),
    Step(
        SITE,
        "P2 summarise",
        ("φ(x) of each record, alone", "Σ φ and counts per class, integers"),
    ),
    Step(
        SITE,
        "P3 sanitise",
        (
            "enter it in the account",
            "add discrete noise",
            "store: a second question gets",
            "the same bytes",
        ),
        PROTECTED,
    ),
    Message(SERVER, "Release: C·(k + 1) integers, ε", PROTECTED),
    Step(
        SERVER,
        "Teacher weights",
        (
            "pool each class over all releases",
            "s_i(x) = D_i(x) / D⁻(x)",
            "on D_distill: no further ε",
        ),
    ),
    Part("Every round"),
    Step(SERVER, "Select clients", ("from the round’s random stream",)),
    Message(SITE, "TrainOrder: θ, epochs, seed"),
    Step(
        SITE,
        "T1 train",
        (
            "θ_i ← E epochs on D_i from θ",
            "private: account, then DP-SGD",
            "with each gradient alone",
        ),
    ),
    Message(SERVER, "Update: θ_i, n_i, ε"),
    Step(
        SERVER,
        "T2 combine",
        (
            "validate, limit the update’s norm",
            "f_i ← logits of θ_i on D_distill",
            "total ← total + (n·θ, n), (s·f, s)",
            "drop the reply",
        ),
    ),
    Step(
        SERVER,
        "T3 distil, for each prototype",
        (
            "θ ← server step of Σ n·θ / Σ n",
            "ỹ(x) ← softmax(Σ s·f / Σ s)",
            "θ ← Adam on KL(ỹ ‖ softmax f)",
            "θ starts the next round",
        ),
    ),
    Step(
        SITE,
        "What ε covers",
        (
            "the Release, labels included",
            "the model, if trained privately",
            "not n_i, and not a model that",
            "was trained without noise",
        ),
        PROTECTED,
    ),
)


def round_() -> str:
    described = (
        "Server on the left, one client on the right, time runs downwards. Once: P1, "
        "the server pre-trains h0 and derives a public map from D-minus. A "
        "PrepareOrder has both. P2, the client computes features of each record alone "
        "and sums them per class in integers. P3, it enters the release in its "
        "account, adds discrete Gaussian noise and stores it. A Release has the noisy "
        "integers and the account's total. Every round: a TrainOrder has the weights. "
        "T1, the client trains on its records. An Update has the model, the number of "
        "records and the account's total. T2, the server adds the model to the sum of "
        "its prototype, and the teacher's weighted logits on D-distill to the "
        "ensemble, then drops the reply. T3, it averages and distils one student per "
        "prototype, whose weights start the next round."
    )
    return stacked("A round: who computes what, and what crosses", described, ROUND)


# What a release is: nine records of two classes become ten noisy numbers.

RECORDS = (
    (0, 0, 38, -21),
    (24, -8, 41, -9),
    (48, 3, 28, -31),
    (72, -6, 38, -17),
    (8, 26, 33, -26),
    (60, 24, 40, -13),
    (86, 30, 24, -34),
)
OTHERS = ((96, 1, -36, 21), (34, 30, -41, 9))
SUMS = (40, 22, 30, -12, 44, -16, 10, -9, 14, 12)
NOISE = (6, -9, 5, 11, -7, -8, 7, 4, -10, 5)
WEIGHTS = (84, 70, 7, 77, 14, 5, 59, 9, 4, 40, 66)


def bars(values: Sequence[float], base: float, colours: Sequence[str]) -> Iterator[str]:
    """Numbers as bars above and below a line, at the right of the picture."""
    for place, (value, colour) in enumerate(zip(values, colours, strict=True)):
        top = base - max(value, 0)
        yield (
            f'<rect x="{176 + 20 * place}" y="{top:g}" width="15" '
            f'height="{max(abs(value), 1):g}" fill="{colour}"/>'
        )


def records_and_directions() -> Iterator[str]:
    for kind, colour in ((RECORDS, FIRST), (OTHERS, SECOND)):
        for across, down, *_ in kind:
            yield f'<circle cx="{42 + across}" cy="{112 + down}" r="8" fill="{colour}"/>'
        for *_, right, up in kind:
            yield (
                f'<path d="M300 130 l{right} {up}" stroke="{colour}" stroke-width="3"/>'
            )


def release() -> str:
    classes = [FIRST] * 5 + [SECOND] * 5
    released = [first + second for first, second in zip(SUMS, NOISE, strict=True)]
    shapes = [
        box(10, 10, WIDTH - 20, 474, SITE),
        words(26, 40, "At the client", "h"),
        words(26, 74, "records, two classes"),
        words(212, 74, "a direction of each,"),
        words(212, 94, "length 1"),
        *records_and_directions(),
    ]
    rows = (
        ("sums per class", SUMS, classes),
        ("+ noise", NOISE, [NOISE_COLOUR] * len(NOISE)),
        ("= the release", released, classes),
    )
    for number, (name, values, colours) in enumerate(rows):
        base = 232 + 82 * number
        shapes.append(box(20, base - 50, WIDTH - 40, 78, INNER))
        shapes.append(words(32, base - 10, name))
        shapes += bars(values, base, colours)
    shapes += [
        words(26, 448, "One record, whatever it is, moves all"),
        words(26, 470, "sums together by at most 2."),
        arrow("M200 484 V540"),
        box(150, 494, 100, 30, PROTECTED),
        words(200, 515, "once", "m"),
        box(10, 544, WIDTH - 20, 282, SERVER),
        words(26, 574, "At the server", "h"),
        words(26, 604, "All releases together show how a class"),
        words(26, 626, "looks and who has it: a weight for this"),
        words(26, 648, "client on every public example."),
    ]
    for place, weight in enumerate(WEIGHTS):
        left = 28 + 32 * place
        bright = 0.95 if weight >= 40 else 0.4
        shapes.append(
            f'<rect x="{left}" y="{750 - weight}" width="22" height="{weight}" rx="2" '
            f'fill="{FIRST}"/>'
        )
        shapes.append(
            f'<rect x="{left}" y="756" width="22" height="22" rx="3" fill="#fff" '
            f'opacity="{bright}"/>'
        )
    shapes.append(words(26, 810, "Bright: like its records, so it teaches."))
    described = (
        "At the client each private record becomes a direction of length one. "
        "Directions are summed and counted for each class, noise is added, and the "
        "result is released once. At the server the releases of all clients give each "
        "client a weight on every public example: large if the example looks like the "
        "client's records."
    )
    size = (WIDTH, 836)
    return picture("What a release is", described, size, shapes, "phase_pictures.py")


PICTURES = {"phases": phases, "release": release, "round": round_}

if __name__ == "__main__":
    write_pictures(PICTURES)
