"""What a table of 100 columns takes, 80 numbers, 15 categories and 5 flags: for
`fedaux init table`, which proposes its schema and settings, and for a site that reads
it by that schema and makes a whole release. Without a number of records, a million.

    python -m benchmarks.tables 100000
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from fedaux.client.handlers import answer
from fedaux.client.site import Site
from fedaux.config.schema import Config
from fedaux.config.sends import needed_by
from fedaux.config.starters import write_starter
from fedaux.core.arrays import Arrays
from fedaux.data.federated import open_private
from fedaux.data.table_choices import propose
from fedaux.data.tables import schema_rows
from fedaux.messages import PrepareOrder, Release
from fedaux.models import build, flatten_state
from fedaux.models.inference import predict
from fedaux.models.networks import Columns
from fedaux.scoring.embedding import ClassEmbeddingScorer
from fedaux.scoring.features import extractor_hash
from fedaux.scoring.registry import make_scorer

NUMBERS, CATEGORIES, FLAGS = 80, 15, 5
COLOURS = ("red", "green", "blue", "grey")
DIFFERENT = 10_000  # lines; they are repeated
CLASSES = ("a", "b")


def write_records(path: Path, count: int) -> None:
    rng = np.random.default_rng(0)
    names = [f"x{place}" for place in range(NUMBERS)]
    names += [f"c{place}" for place in range(CATEGORIES)]
    names += [f"f{place}" for place in range(FLAGS)]
    lines = []
    for number in range(min(count, DIFFERENT)):
        values = [f"{value:.4f}" for value in rng.normal(size=NUMBERS)]
        values += rng.choice(COLOURS, CATEGORIES).tolist()
        values += rng.choice(["no", "yes"], FLAGS).tolist()
        lines.append(",".join([*values, CLASSES[number % 2]]) + "\n")
    block = "".join(lines)
    with path.open("w") as file:
        file.write(",".join([*names, "y"]) + "\n")
        for _ in range(count // len(lines)):
            file.write(block)


@contextmanager
def measured(what: str) -> Iterator[None]:
    """Print the time, and the most memory that this process has had: all of it, and
    without pages of files, which the system takes back when it needs memory.
    """
    anonymous: list[int] = [0]
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(0.1):
            lines = Path("/proc/self/status").read_text().splitlines()
            (line,) = (line for line in lines if line.startswith("RssAnon:"))
            anonymous.append(int(line.split()[1]))

    watching = threading.Thread(target=watch, daemon=True)
    watching.start()
    wall = time.perf_counter()
    processor = time.process_time()
    yield
    wall = time.perf_counter() - wall
    processor = time.process_time() - processor
    ended.set()
    watching.join()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(
        f"{what}: {wall:.0f} s, {processor:.0f} s of a processor, {peak:.2f} GiB, "
        f"{max(anonymous) / 2**20:.2f} GiB without pages of files",
        flush=True,
    )


def init(folder: Path) -> None:
    """`fedaux init table --data a.csv --label y`, and a person who confirms."""
    with measured("init"):
        proposal = propose(folder / "a.csv", "y", clients=1)
    values = {choice.key: choice.value for choice in proposal.choices}
    header = replace(proposal.schema.header, confirmed=True)
    schema = replace(proposal.schema, header=header)
    write_starter("table", folder, values, {"schema.toml": schema.to_toml()})


def site_config(folder: Path) -> Config:
    schema = str(folder / "schema.toml")
    own = [
        'data.partition="own"',
        'federation.sites=["site"]',
        f'data.options={{schema="{schema}"}}',
        f'aux.path="{schema}"',
    ]
    return Config.load(folder / "table.toml", own)


def order_of(config: Config) -> PrepareOrder:
    """The order of a server without public records."""
    public = schema_rows(Path(config.aux.path)).train
    spec = config.prototypes[0]
    extractor = build(spec, public.shape, 2, 0).features
    assert isinstance(extractor, Columns)
    extractor.fit(public.gather())
    scorer = make_scorer(config.privacy, 2)
    assert isinstance(scorer, ClassEmbeddingScorer)
    published: Arrays = scorer.publish(predict(extractor, public))
    weights = flatten_state(extractor)
    return PrepareOrder(
        client="site",
        prototype=spec.to_json(),
        scorer=scorer.name,
        classes=2,
        size=scorer.size(published),
        h0=extractor_hash(weights, spec.to_json()),
        known_entries=0,
        extractor=weights,
        public=published,
    )


def release(folder: Path) -> None:
    """Read and encode, then answer the order."""
    torch.set_num_threads(1)
    config = site_config(folder)
    federation = replace(config.federation, sends=needed_by(config))
    config = replace(config, federation=federation)
    order = order_of(config)
    with measured("reading"):
        records, _ = open_private(config, "site")
    print(f"{len(records):,} records of {records.shape[0]} numbers", flush=True)
    site = Site(config, folder / "vault", ("site",))
    with measured(f"a release of {order.size:,} numbers"):
        made = answer(order, site)
    assert isinstance(made, Release)
    files = (folder / "vault").rglob("features-*.npy")
    stored = sum(file.stat().st_size for file in files) / 2**30
    print(f"features in the vault: {stored:.2f} GiB")


PARTS = {"init": init, "release": release}


def main() -> None:
    if sys.argv[1:2] and sys.argv[1] in PARTS:
        PARTS[sys.argv[1]](Path(sys.argv[2]))
        return
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 10**6
    with tempfile.TemporaryDirectory() as name:
        write_records(Path(name) / "a.csv", count)
        # each in a process of its own
        for part in PARTS:
            command = [sys.executable, "-m", "benchmarks.tables", part, name]
            subprocess.run(command, check=True)


if __name__ == "__main__":
    main()
