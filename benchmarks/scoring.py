"""What scoring costs: a client's whole release, and the server's weights for many clients on many public examples.

python benchmarks/scoring.py [--clients 1000] [--points 100000]
"""

from __future__ import annotations

import argparse
import resource
import time

import numpy as np

from fedaux.config.sections import PrivacyConfig, TeachersConfig
from fedaux.privacy.release import release
from fedaux.scoring.base import Reference
from fedaux.scoring.registry import make_scorer
from fedaux.scoring.teacher_weights import PublicEmbedding

RECORDS, WIDTH, NEGATIVES, CLASSES = 2500, 512, 4800, 10


def megabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--clients", type=int, default=1000)
    parser.add_argument("--points", type=int, default=100_000)
    asked = parser.parse_args()
    rng = np.random.default_rng(0)
    negatives = np.maximum(rng.normal(size=(NEGATIVES, WIDTH)) @ rng.normal(size=(WIDTH, WIDTH)), 0).astype(np.float32)
    own = negatives[rng.integers(NEGATIVES, size=RECORDS)] * rng.uniform(0.5, 1.5, size=(RECORDS, 1)).astype(np.float32)
    labels = rng.integers(CLASSES, size=RECORDS)
    for name in ("class-embedding", "mean-embedding", "logistic"):
        privacy = PrivacyConfig(scorer=name)
        scorer = make_scorer(privacy, CLASSES)
        public = scorer.publish(negatives)
        release(scorer.summarise(public, own, labels, "replace-one", RECORDS, np.ones(RECORDS)), "warm", privacy)
        times = []
        for _ in range(5):
            started = time.perf_counter()
            made = release(
                scorer.summarise(public, own, labels, "replace-one", RECORDS, np.ones(RECORDS)), "a", privacy
            )
            times.append(time.perf_counter() - started)
        print(
            f"client, {name}: {min(times):.3f} s, median {np.median(times):.3f}, {RECORDS} records of {WIDTH} features"
        )
        if name == "logistic":
            continue
        reference = Reference(scorer.embed(public, negatives).astype(np.float64))
        points = rng.choice(negatives, asked.points).astype(np.float32)
        embedded = {"p": scorer.embed(public, points).astype(np.float32)}
        del points
        names = [f"client-{i}" for i in range(asked.clients)]
        embedding = PublicEmbedding(
            scorer, TeachersConfig(), {"p": public}, {"p": reference}, embedded, lambda client: "p"
        )
        releases = [type(made)(**{**vars(made), "client": client}) for client in names]
        before, started = megabytes(), time.perf_counter()
        weights = embedding.teacher_weights({one.client: one for one in releases}, names)
        for client in names:
            weights.of(client)
        took = time.perf_counter() - started
        print(
            f"server: {asked.clients:,} clients on {asked.points:,} points in {took:.0f} s, "
            f"{1e3 * took / asked.clients:.0f} ms a client; peak memory grew by {megabytes() - before:.0f} MB"
        )


if __name__ == "__main__":
    main()
