"""Draws four pictures: images/forgetting.svg (what averaging does to models of
different classes), images/public-data.svg (what public data are for), images/sight.svg
(who sees what) and images/topology.svg (the parts of a deployment). `python
docs/pictures.py` writes them again.
"""

from collections.abc import Iterator
from itertools import groupby

import numpy as np
import torch
from drawing import (
    GREY,
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
from numpy.typing import NDArray
from torch import nn
from torch.nn.functional import cross_entropy

# Why averaging forgets: two sites, two classes each, all of it computed below.

CENTRES = np.array([(-1.1, 1.0), (1.1, 1.0), (-1.1, -1.0), (1.1, -1.0)])
CLASS_COLOURS = ("#e0a030", "#4fa9a0", "#c06a8a", "#6f8fd0")
SITES = ((0, 1), (2, 3))
START = 2  # of the networks: the middle of 0, 1 and 2, which reach 60, 73 and 69 %
SPREAD, RECORDS, SPAN, CELLS = 0.33, 60, 2.0, 40
PANEL = 182
HEADLINE = 32
SHOWN = 12  # records of each class that are drawn


def draws(seed: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """As many records of every class, around its centre."""
    random = np.random.default_rng(seed)
    labels = np.repeat(np.arange(len(CENTRES)), RECORDS)
    noise = random.normal(scale=SPREAD, size=(len(labels), 2))
    return (CENTRES[labels] + noise).astype(np.float32), labels


def fresh() -> nn.Sequential:
    """A small network, the same each time."""
    torch.manual_seed(START)
    return nn.Sequential(
        nn.Linear(2, 32),
        nn.ReLU(),
        nn.Linear(32, 32),
        nn.ReLU(),
        nn.Linear(32, len(CENTRES)),
    )


def trained(x: NDArray[np.float32], y: NDArray[np.int64]) -> nn.Sequential:
    """A small network from the common start, trained on these records only."""
    network = fresh()
    optimiser = torch.optim.Adam(network.parameters(), lr=0.01)
    for _ in range(400):
        optimiser.zero_grad()
        cross_entropy(network(torch.from_numpy(x)), torch.from_numpy(y)).backward()
        optimiser.step()
    return network


def average(networks: list[nn.Sequential]) -> nn.Sequential:
    merged = fresh()
    states = [network.state_dict() for network in networks]
    merged.load_state_dict(
        {key: sum(state[key] for state in states) / len(states) for key in states[0]}
    )
    return merged


def logits(network: nn.Sequential, x: NDArray[np.float32]) -> NDArray[np.float32]:
    with torch.no_grad():
        return network(torch.from_numpy(x)).numpy()


def density(
    records: NDArray[np.float32], x: NDArray[np.float32]
) -> NDArray[np.float32]:
    """A kernel density of a site's records: how much a point looks like its data."""
    distances = ((x[:, None] - records[None]) ** 2).sum(-1)
    return np.exp(-distances / (2 * SPREAD**2)).mean(1)


def weighted(
    networks: list[nn.Sequential],
    records: list[NDArray[np.float32]],
    x: NDArray[np.float32],
) -> NDArray[np.float32]:
    """Each model counts where the point looks like its site's records."""
    weights = np.stack([density(own, x) for own in records])
    weights /= weights.sum(0) + 1e-30
    votes = np.stack([logits(network, x) for network in networks])
    return (weights[..., None] * votes).sum(0)


def regions(classes: NDArray[np.int64], left: float, top: float) -> Iterator[str]:
    """The predicted class of every cell, cells of one class and row in one shape."""
    size = PANEL / CELLS
    for row in range(CELLS):
        column = 0
        for kind, cells in groupby(classes[row]):
            count = len(list(cells))
            yield (
                f'<rect x="{left + column * size:g}" y="{top + row * size:g}" '
                f'width="{count * size + 0.9:g}" height="{size + 0.9:g}" '
                f'fill="{CLASS_COLOURS[kind]}"/>'
            )
            column += count


def forgetting() -> str:
    x, y = draws(seed=0)
    x_test, y_test = draws(seed=1)
    parts = [np.isin(y, classes) for classes in SITES]
    records = [x[part] for part in parts]
    networks = [trained(x[part], y[part]) for part in parts]
    merged = average(networks)
    ticks = (np.arange(CELLS) + 0.5) / CELLS * 2 * SPAN - SPAN
    columns, rows = np.meshgrid(ticks, -ticks)
    grid = np.stack([columns.ravel(), rows.ravel()], 1).astype(np.float32)
    every = np.arange(len(y))
    panels = [
        ("Site A", lambda at: logits(networks[0], at), every[parts[0]]),
        ("Site B", lambda at: logits(networks[1], at), every[parts[1]]),
        ("Average", lambda at: logits(merged, at), every),
        ("Weighted", lambda at: weighted(networks, records, at), every),
    ]
    shapes: list[str] = []
    for number, (name, predict, shown) in enumerate(panels):
        left = 10 + (number % 2) * (PANEL + 16)
        top = 10 + (number // 2) * (PANEL + HEADLINE + 18)
        right = (predict(x_test).argmax(1) == y_test).mean()
        fill = PROTECTED if number == 3 else SERVER if number == 2 else SITE
        shapes.append(box(left, top, PANEL, HEADLINE + 12, fill))
        shapes.append(words(left + 10, top + 22, name))
        shapes.append(
            f'<text x="{left + PANEL - 10:g}" y="{top + 22:g}" '
            f'text-anchor="end" class="h">{100 * right:.0f} %</text>'
        )
        predicted = predict(grid).argmax(1).reshape(CELLS, CELLS)
        shapes.extend(regions(predicted, left, top + HEADLINE))
        for kind in range(len(CENTRES)):
            for place in [i for i in shown if y[i] == kind][:SHOWN]:
                across = left + (x[place, 0] + SPAN) / (2 * SPAN) * PANEL
                down = top + HEADLINE + (SPAN - x[place, 1]) / (2 * SPAN) * PANEL
                shapes.append(
                    f'<circle cx="{across:.1f}" cy="{down:.1f}" r="3.8" '
                    f'fill="{CLASS_COLOURS[kind]}" stroke="#fff" stroke-width="1.6"/>'
                )
    described = (
        "Four classes of points, two at each site. The model of each site gives every "
        "point one of its two classes. The average of the two models is wrong in large "
        "areas. If each model counts where the points look like its site's data, all "
        "four classes have their area."
    )
    height = 10 + 2 * (PANEL + HEADLINE + 18)
    return picture("Why averaging forgets", described, (WIDTH, height), shapes)


# Three uses of public data.

USES = (
    (
        "1  Learn to see",
        ("All of it. The server trains a feature", "extractor, and needs no label."),
        PROTECTED,
    ),
    (
        "2  Compare",
        ("One fifth. Each client releases, with", "noise, how its records differ."),
        SITE,
    ),
    (
        "3  Teach",
        (
            "Four fifths. The clients’ models label",
            "it, and one student learns from that.",
        ),
        PROTECTED,
    ),
)


def public_data() -> str:
    shapes = [box(10, 10, WIDTH - 20, 70, SERVER), words(24, 38, "Public data", "h")]
    shapes.append(words(24, 64, "many records, no labels"))
    shapes.extend(
        f'<rect x="{224 + 7.7 * place:g}" y="30" width="5.5" height="30" rx="2" '
        f'fill="#fff" opacity="{0.35 + 0.03 * place:.2f}"/>'
        for place in range(20)
    )
    for number, (name, lines, fill) in enumerate(USES):
        top = 96 + number * 108
        shapes.append(arrow(f"M26 82 V{top + 48:g} H46"))
        shapes.append(box(52, top, WIDTH - 62, 96, fill))
        shapes.append(words(66, top + 30, name, "h"))
        for row, line in enumerate(lines):
            shapes.append(words(66, top + 56 + 24 * row, line))
    described = (
        "Public unlabelled data are used three times: all of them train a feature "
        "extractor at the server, one fifth is what clients compare their records "
        "with, under differential privacy, and four fifths are labelled by the "
        "clients' models together, so that one student learns from the labels."
    )
    return picture("Three uses of public data", described, (WIDTH, 418), shapes)


# Who sees what: the same three sites under three settings.

NUMBERS = np.array([(5, 9, 3, 7, 2), (8, 2, 6, 3, 9), (3, 6, 9, 2, 5)], float)
NOISE = np.array([(3, -4, 4, -3, 4), (-4, 4, -2, 4, -5), (4, -3, -4, 5, 3)], float)
HIDDEN = np.array([(7, 1, 8, 9, 4), (2, 9, 1, 6, 3), (9, 4, 2, 8, 7)], float)
SETTINGS = (
    (
        "Without noise",
        "The server sees the numbers of each site.",
        "Default of local models: not protected.",
    ),
    (
        "Local noise",
        "The server sees noisy numbers of each site.",
        "Default of scores: (ε, δ)-private.",
    ),
    (
        "Secure sum with noise",
        "The server sees one noisy sum, and no site.",
        "The sum is (ε, δ)-private, with less noise.",
    ),
)
BLOCK = 278


def bars(
    values: NDArray[np.float64], left: float, base: float, colour: str
) -> Iterator[str]:
    for place, value in enumerate(values):
        tall = 3.4 * max(value, 0.6)
        yield (
            f'<rect x="{left + 15 * place:g}" y="{base - tall:g}" width="11" '
            f'height="{tall:g}" rx="2" fill="{colour}"/>'
        )


def seen_by_the_server(setting: int) -> list[NDArray[np.float64]]:
    if setting == 0:
        return list(NUMBERS)
    if setting == 1:
        return list(NUMBERS + NOISE)
    return [(NUMBERS.sum(0) + NOISE.mean(0)) / 2.4]


def sight() -> str:
    plain, noisy, masked = "#f2b84b", "#7fd1c7", "#c9c3d6"
    shapes: list[str] = []
    for number, (name, sees, protection) in enumerate(SETTINGS):
        top = 10 + number * (BLOCK + 14)
        fill = (SITE, SERVER, PROTECTED)[number]
        shapes.append(box(10, top, WIDTH - 20, BLOCK, fill))
        shapes.append(words(24, top + 28, name, "h"))
        for site, values in enumerate(NUMBERS):
            left = 22 + site * 120
            shapes.append(box(left, top + 42, 112, 72, INNER))
            shapes.append(words(left + 8, top + 62, f"site {'ABC'[site]}"))
            sent = (values, values + NOISE[site], HIDDEN[site])[number]
            colour = (plain, noisy, masked)[number]
            shapes.extend(bars(sent, left + 20, top + 108, colour))
            target = left + 56 if number < 2 else 198 + (site - 1) * 34
            shapes.append(
                arrow(f"M{left + 56:g} {top + 116:g} L{target:g} {top + 142:g}")
            )
        shapes.append(box(22, top + 146, WIDTH - 44, 64, INNER))
        shapes.append(words(30, top + 184, "server"))
        seen = seen_by_the_server(number)
        for place, values in enumerate(seen):
            left = 92 + place * 98 if len(seen) > 1 else 190
            shapes.extend(
                bars(values, left, top + 202, plain if number == 0 else noisy)
            )
        shapes.append(words(24, top + 236, sees))
        shapes.append(words(24, top + 262, protection))
    described = (
        "Three sites send numbers to a server. Without noise, the server sees the "
        "numbers of each site. With local noise, it sees noisy numbers of each site. In "
        "a secure sum, masks hide what each site sends, and the server sees only the "
        "noisy sum of all sites."
    )
    height = 10 + len(SETTINGS) * (BLOCK + 14)
    return picture("Who sees what", described, (WIDTH, height), shapes)


# The parts of a deployment, as `fedaux deploy init` writes them.

SITE_NAMES = ("berlin", "paris", "rome")


def topology() -> str:
    shapes = [box(10, 10, WIDTH - 20, 208, SERVER), words(24, 40, "Server", "h")]
    shapes += [
        box(22, 54, 174, 58, ON_SERVER),
        words(32, 78, "superexec.sh, run.sh", "s"),
    ]
    shapes.append(words(32, 100, "the server’s app"))
    shapes += [box(204, 54, 174, 58, ON_SERVER), words(214, 78, "public records")]
    shapes.append(words(214, 100, "and test records"))
    shapes += [box(22, 124, WIDTH - 44, 82, ON_SERVER), words(32, 148, "superlink.sh")]
    shapes.append(words(32, 170, "the only open port: TLS, and keys"))
    shapes.append(words(32, 192, "of known sites"))
    for number, name in enumerate(SITE_NAMES):
        left = 10 + number * 130
        shapes.append(box(left, 308, 120, 234, SITE))
        shapes.append(words(left + 12, 338, name.capitalize(), "h"))
        shapes += [box(left + 5, 352, 110, 38, ON_SITE)]
        shapes.append(words(left + 11, 376, "supernode.sh", "s"))
        shapes += [box(left + 5, 398, 110, 60, ON_SITE)]
        shapes.append(words(left + 11, 422, "records,", "s"))
        shapes.append(words(left + 11, 446, "never sent", "s"))
        shapes += [box(left + 5, 466, 110, 60, ON_SITE)]
        shapes.append(words(left + 11, 490, "vault with", "s"))
        shapes.append(words(left + 11, 514, "the account", "s"))
        shapes.append(arrow(f"M{left + 60:g} 306 V224"))
    shapes += [box(30, 244, WIDTH - 60, 40, GREY)]
    shapes.append(words(200, 269, "each site calls in, over TLS, with its key", "m"))
    described = (
        "One server and three sites. At the server, superlink.sh listens at the only "
        "open port and admits sites with known keys, superexec.sh and run.sh run the "
        "server's app, and public and test records are there. Each site runs "
        "supernode.sh, which calls the server over TLS. Its records are never sent, and "
        "its vault has the account of what was spent."
    )
    return picture("The parts of a deployment", described, (WIDTH, 552), shapes)


PICTURES = {
    "forgetting": forgetting,
    "public-data": public_data,
    "sight": sight,
    "topology": topology,
}

if __name__ == "__main__":
    write_pictures(PICTURES)
