"""What a secure sum costs: processor seconds and bytes at a site and at the server, by
number of sites and of numbers.

    python -m studies.secure_sum_costs

All sites draw keys and share their secrets; one masks its vector, and the server
unmasks a sum in which one site is lost. Vectors of the other sites are random: a masked
vector is as good as random, and takes as long to add.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from fedaux.messages import SumTerms
from fedaux.privacy.roster import simulated_key
from fedaux.privacy.secure_sum import (
    agreed_threshold,
    new_site,
    sum_settings,
    unmasked_sum,
)
from fedaux.privacy.secure_sum.keys import SIGNATURE

SITES = (3, 10, 100, 300)
LENGTHS = (100_000, 5_000_000)
RESULTS = Path(__file__).parent / "results" / "secure-sum-costs.json"


@contextmanager
def timed(seconds: dict[str, float], step: str, parts: int = 1) -> Iterator[None]:
    """Note the processor seconds of a step, divided among those who take part in it."""
    started = time.process_time()
    yield
    seconds[step] = (time.process_time() - started) / parts


def measure(sites: int, length: int) -> dict[str, Any]:
    """Play one sum, and return its costs."""
    names = [f"site-{number:03}" for number in range(sites)]
    threshold = agreed_threshold(sites, 0.8)
    settings = sum_settings(
        SumTerms("run", "costs", 0, names, threshold, 1, 0.0, length), None
    )
    states = {name: new_site(settings, name) for name in names}
    me = names[0]
    survivors = names[:-1] if threshold < sites else names
    seconds = {}

    with timed(seconds, "keys", sites):
        keys = {
            name: state.begin(simulated_key(name)) for name, state in states.items()
        }

    sealed: dict[str, dict[str, bytes]] = {}
    with timed(seconds, "shares", sites):
        for name in names:
            states[name], sealed[name] = states[name].share(keys.values())

    vector = np.arange(length, dtype=np.int64)
    with timed(seconds, "masked vector"):
        states[me] = states[me].accept({name: sealed[name][me] for name in names[1:]})
        masked = states[me].mask(vector)
    for name in names[1:]:  # without masking, which takes as long as that of the first
        states[name] = states[name].accept(
            {other: sealed[other][name] for other in names if other != name}
        )

    signatures = {}
    with timed(seconds, "survivors", len(survivors)):
        for name in survivors:
            states[name], signatures[name] = states[name].agree(
                survivors, simulated_key(name)
            )

    with timed(seconds, "unmasking", threshold):
        replies = [states[name].unmask(signatures)[1] for name in survivors[:threshold]]

    server: dict[str, float] = {}
    with timed(server, "secure"):
        unmasked_sum(settings, keys, dict.fromkeys(survivors, masked), names, replies)
    with timed(server, "plain"):
        total = np.zeros(length, np.int64)
        for _ in survivors:
            total += vector

    shares = sum(map(len, sealed[me].values()))
    unmasking = sum(len(share) for share in replies[0].to_bytes().values())
    key_bytes = len(keys[me].to_bytes())
    sent = key_bytes + shares + masked.nbytes + SIGNATURE + unmasking
    received = key_bytes * sites + shares + SIGNATURE * len(survivors)
    return {
        "sites": sites,
        "numbers": length,
        "lost": sites - len(survivors),
        "site_seconds": sum(seconds.values()),
        "site_steps": seconds,
        "server_seconds": server["secure"],
        "plain_server_seconds": server["plain"],
        "site_sends": sent,
        "site_receives": received,
        "plain_sends": masked.nbytes,
    }


def growth(rows: list[dict[str, Any]], key: str, length: int) -> float:
    """The exponent of a power law in the number of sites, fitted to those from 10
    on.
    """
    some = [row for row in rows if row["numbers"] == length and row["sites"] >= 10]
    return float(
        np.polyfit(
            np.log([row["sites"] for row in some]),
            np.log([row[key] for row in some]),
            1,
        )[0]
    )


def main() -> None:
    rows = []
    for length in LENGTHS:
        for sites in SITES:
            rows.append(measure(sites, length))
            row = rows[-1]
            print(
                f"| {sites} | {length:,} | {row['site_seconds']:.2f} | "
                f"{row['server_seconds']:.2f} | {row['site_sends'] / 1e6:.2f} | "
                f"{row['site_sends'] / row['plain_sends']:.3f} |",
                flush=True,
            )
    fitted = {
        str(length): {
            key: growth(rows, key, length) for key in ("site_seconds", "server_seconds")
        }
        for length in LENGTHS
    }
    print(fitted)
    RESULTS.write_text(json.dumps({"rows": rows, "growth": fitted}, indent=1) + "\n")


if __name__ == "__main__":
    main()
