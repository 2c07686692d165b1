"""A look on real servers: three tasks, each with a SuperLink and three SuperNodes over
TLS on this machine, and one site without a record of some class.

    python -m studies.looks_on_servers FOLDER           # goes on where it was stopped
    python -m studies.looks_on_servers FOLDER heart     # one task
    python -m studies.looks_on_servers --table          # the tables only

`fedaux deploy init` writes a federation into a folder of each task, `try-all.sh` plays
it, and the record is read from what the parts have written. The exact figures are
computed here from the site's own records, its vault and the final model: no server could
do that. The server has no test data. The look at heart had eight bins of scores instead
of twelve.
"""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import expit

from fedaux import Config, Model
from fedaux.client.held_out import split_of
from fedaux.client.looks import outputs_of_model
from fedaux.client.own_figures import OwnFigures
from fedaux.client.site import Site
from fedaux.core.binary_metrics import ScoreCounts
from fedaux.core.metrics import METRIC_NAMES
from fedaux.core.noisy_metrics import metrics
from fedaux.data.federated import open_private
from fedaux.data.records import Records
from fedaux.messages.tallies import OF_SCORES
from fedaux.privacy.account_file import read_account
from fedaux.privacy.site_account import SiteAccount
from fedaux.server.run_state import RunState
from fedaux.server.site_figures import describe_cost_of_look, figures_of_test
from fedaux.server.site_test import SCORE_EDGES
from studies.sources import ROOT

RESULTS = Path(__file__).parent / "results"
PORT = 8461
HELD_OUT = 0.3
TOPICS = ("sci.electronics", "sci.med", "sci.space")
PUBLIC_TEXTS = 500

SETTINGS = """method = "private-head"
prototypes = [{prototype}]
[data]
source = "{source}"
{data}
site_test_fraction = {held_out}
partition = "own"
[aux]
source = "{source}"
path = "{public}"
{aux}
[pretrain]
epochs = {epochs}
flip = false
[privacy]
epsilon = 1.0
look_epsilon = 1.0
delta = 1e-5
{privacy}
[federation]
secure = {secure}
sites = {sites}
"""


@dataclass(frozen=True)
class Task:
    """Files of a task, and what differs in its settings.

    Attributes:
        title: Its name in the table.
        write: Writes the files into a folder and returns the values of `SETTINGS`.
        sites: Their names; the last one lacks a class.
        secure: Whether the sites answer in secure sums.
    """

    title: str
    write: Callable[[Path, tuple[str, ...]], dict[str, str]]
    sites: tuple[str, ...]
    secure: bool


def write_heart(folder: Path, sites: tuple[str, ...]) -> dict[str, str]:
    """Three hospitals. The third gives its 8 healthy patients away, and the fourth is the
    public data.
    """
    table = pd.read_csv(ROOT / "heart_disease.csv.gz", dtype=str, keep_default_na=False)
    hospital = table["hospital"]
    lacking = (hospital == sites[-1]) & (table["diagnosis"] == "healthy")
    private = hospital.isin(sites) & ~lacking
    columns = table.drop(columns=["hospital"])
    for name in sites:
        columns[private & (hospital == name)].to_csv(
            folder / f"{name}.csv", index=False
        )
    rest = columns[~private].drop(columns=["diagnosis"])
    rest.to_csv(folder / "public.csv", index=False)
    table[private].to_csv(folder / "registry.csv", index=False)
    words = ["--data", "registry.csv", "--label", "diagnosis", "--public", "public.csv"]
    fedaux("init", "table", *words, folder=folder)
    return {
        "prototype": '"linear"',
        "source": "table",
        "public": "public.csv",
        "data": 'options = {schema = "schema.toml"}\nclasses = ["disease", "healthy"]',
        "aux": 'options = {schema = "schema.toml", labels = false}',
        "epochs": "0",
        "privacy": 'scorer = "class-moments"\nembedding_dim = 0\n'
        f"expected_records = {round((1 - HELD_OUT) * int(private.sum()))}",
    }


def write_rays(folder: Path, sites: tuple[str, ...]) -> dict[str, str]:
    """PneumoniaMNIST: the third site has pneumonia only; half of the official
    validation part is public.
    """
    parts = []
    for part in ("train", "val", "test"):
        with np.load(ROOT / f"pneumoniamnist_{part}.npz") as arrays:
            x, y = (arrays[name] for name in arrays.files[:2])
        parts.append((x, y.ravel().astype(np.int64)))
    public = parts[1][0]
    save(folder / "public", public)
    x = np.concatenate([parts[0][0], parts[2][0]])
    y = np.concatenate([parts[0][1], parts[2][1]])
    order = np.random.default_rng(0).permutation(len(y))
    x, y = x[order], y[order]
    ill = np.flatnonzero(y == 1)
    well = np.flatnonzero(y == 0)
    shares = [
        np.concatenate([ill[0::3], well[0::2]]),
        np.concatenate([ill[1::3], well[1::2]]),
        ill[2::3],
    ]
    for name, rows in zip(sites, shares, strict=True):
        save(folder / name, x[rows], y[rows])
    return {
        "prototype": '{name = "cnn", width = 16}',
        "source": "npy",
        "public": "public",
        "data": 'classes = ["normal", "pneumonia"]',
        "aux": "",
        "epochs": "20",
        "privacy": f"expected_records = {round((1 - HELD_OUT) * len(y))}",
    }


def write_texts(folder: Path, sites: tuple[str, ...]) -> dict[str, str]:
    """Posts of three newsgroups; the third site has none of the first. Posts of other
    groups are public.
    """
    path = ROOT / "newsgroups20_train.csv.gz"
    with gzip.open(path, "rt", encoding="utf-8", newline="") as handle:
        table = pd.read_csv(handle, keep_default_na=False)
    table = table.sample(frac=1, random_state=0)
    others = table[~table["label"].isin(TOPICS)].head(PUBLIC_TEXTS)
    others[["text"]].to_csv(folder / "public.csv", index=False)
    posts = table[table["label"].isin(TOPICS)]
    lacked = posts[posts["label"] == TOPICS[0]]
    shared = posts[posts["label"] != TOPICS[0]]
    shares = [
        pd.concat([lacked.iloc[0::2], shared.iloc[0::3]]),
        pd.concat([lacked.iloc[1::2], shared.iloc[1::3]]),
        shared.iloc[2::3],
    ]
    for name, share in zip(sites, shares, strict=True):
        share.to_csv(folder / f"{name}.csv", index=False)
    return {
        "prototype": '{name = "encoder", folder = "minilm"}',
        "source": "csv",
        "public": "public.csv",
        "data": f"classes = {json.dumps(TOPICS)}",
        "aux": 'options = {label = ""}',
        "epochs": "0",
        "privacy": f"expected_records = {round((1 - HELD_OUT) * len(posts))}",
    }


TASKS = {
    "heart": Task(
        "heart", write_heart, ("cleveland", "hungarian", "switzerland"), True
    ),
    "rays": Task("chest X-rays", write_rays, ("berlin", "paris", "rome"), True),
    "texts": Task("newsgroups", write_texts, ("berlin", "paris", "rome"), False),
}


def save(folder: Path, x: NDArray[Any], y: NDArray[Any] | None = None) -> None:
    folder.mkdir()
    np.save(folder / "x.npy", x)
    if y is not None:
        np.save(folder / "y.npy", y)


def fedaux(*words: str | Path, folder: Path) -> None:
    command = [sys.executable, "-m", "fedaux", *map(str, words)]
    subprocess.run(command, cwd=folder, check=True)


def set_up(name: str, folder: Path) -> None:
    """Write the files of a task and its federation."""
    task = TASKS[name]
    folder.mkdir(parents=True)
    values = task.write(folder, task.sites) | {
        "held_out": str(HELD_OUT),
        "secure": "true" if task.secure else "false",
        "sites": json.dumps(task.sites),
    }
    (folder / "settings.toml").write_text(SETTINGS.format(**values), "utf-8")
    words = []
    for site in task.sites:
        files = folder / site
        path = files if files.exists() else files.with_suffix(".csv")
        words += ["--data", f"{site}={path}"]
    port = PORT + list(TASKS).index(name)
    words += ["--config", "settings.toml", "--port", str(port)]
    fedaux("deploy", "init", "dep", *words, folder=folder)


def play(folder: Path) -> None:
    """Run the federation; a run that was stopped goes on."""
    environment = {**os.environ, "FEDAUX_ALLOW_ROOT": "yes"}
    environment.pop("FEDAUX_CACHE", None)
    with (folder / "try.log").open("a", encoding="utf-8") as log:
        subprocess.run(
            ["bash", "dep/try-all.sh"],
            cwd=folder,
            env=environment,
            stdout=log,
            stderr=subprocess.STDOUT,
            check=True,
        )


def held_out_of(folder: Path, name: str) -> tuple[Records, Records]:
    """Return the records of a site to train on and those that it holds out, as its own
    node splits them.
    """
    home = folder / "dep" / "sites" / name
    config = Config.load(home / "site.toml")
    site = Site(config, home / "vault", (name,))
    everything, _ = open_private(config, name)
    return split_of(site, name, everything)


def exact_figures(folder: Path, sites: tuple[str, ...]) -> dict[str, Any]:
    """Return the figures of the final model on all held-out records, without noise."""
    (path,) = (folder / "dep" / "server" / "run" / "model").iterdir()
    network = Model.from_pretrained(path).network
    labels = []
    outputs = []
    for name in sites:
        _, held_out = held_out_of(folder, name)
        labels.append(held_out.labels)
        outputs.append(outputs_of_model(network, held_out))
    y = np.concatenate(labels)
    logits = np.concatenate(outputs).astype(np.float64)
    right = logits.argmax(axis=1) == y
    recalls = [right[y == label].mean() for label in np.unique(y)]
    figures = {
        "accuracy": float(right.mean()),
        "balanced_accuracy": float(np.mean(recalls)),
    }
    figures_in_bins: dict[str, float] = {}
    if logits.shape[1] == 2:
        scores = expit(logits[:, 1] - logits[:, 0])
        counts = ScoreCounts.of(scores, y == 1)
        for metric in ("auc", "average_precision", "calibration_error"):
            figures[metric] = getattr(counts, metric)
        figures_in_bins = in_bins(logits[:, 1] - logits[:, 0], y)
    return {"records": len(y), "figures": figures, "in_bins": figures_in_bins}


def in_bins(scores: NDArray[np.float64], y: NDArray[np.int64]) -> dict[str, float]:
    """Return the figures that the bins of a look would give without noise."""
    place = y * (len(SCORE_EDGES) + 1) + np.searchsorted(
        SCORE_EDGES, scores, side="right"
    )
    counts = np.bincount(place, minlength=2 * (len(SCORE_EDGES) + 1)).astype(np.float64)
    return {
        name: float(metric(counts))
        for name, (tally, metric) in metrics(SCORE_EDGES).items()
        if tally == OF_SCORES
    }


def events(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def seconds_between(first: Mapping[str, Any], last: Mapping[str, Any]) -> float:
    begin, end = (datetime.fromisoformat(event["time"]) for event in (first, last))
    return (end - begin).total_seconds()


def cost_of_look(folder: Path) -> dict[str, Any]:
    """Return bytes and seconds of the look, by step, from the server's log."""
    logged = events(folder / "dep" / "server" / "log" / "server.jsonl")
    kinds = [(event["event"], event.get("task")) for event in logged]
    start = kinds.index(("orders-sent", "look"))
    steps: list[dict[str, Any]] = []
    for event in logged[start:]:
        if event["event"] == "orders-sent":
            steps.append({"task": event["task"], "sent": event["bytes"], "received": 0})
            begun = event
        elif event["event"] == "reply":
            steps[-1]["received"] += event["bytes"]
            steps[-1]["seconds"] = seconds_between(begun, event)
    sites = folder / "dep" / "sites"
    at_sites = {
        path.name: next(
            event["seconds"]
            for event in events(path / "log" / "site.jsonl")
            if event["event"] == "order-answered" and event["task"] == "look"
        )
        for path in sorted(sites.iterdir())
    }
    lines = [event["message"] for event in logged[start:]]
    return {"steps": steps, "seconds_at_sites": at_sites, "log": lines}


def record(name: str, folder: Path) -> dict[str, Any]:
    """Return what is known after the run, by its parts."""
    task = TASKS[name]
    state = RunState.load(folder / "dep" / "server" / "run")
    test = state.site_test
    assert test is not None
    (network,) = figures_of_test(test)
    sites = {}
    for site in task.sites:
        vault = folder / "dep" / "sites" / site / "vault"
        (own,) = OwnFigures.read_all(vault)
        trained, held_out = held_out_of(folder, site)
        sites[site] = {
            "trained": np.bincount(trained.labels, minlength=test.classes).tolist(),
            "held_out": np.bincount(held_out.labels, minlength=test.classes).tolist(),
            "federation": own.federation,
            "alone": own.alone,
            "commonest": own.commonest,
            "account": [
                entry.kind for entry in read_account(vault)[1] if entry.mechanism.steps
            ],
            "statement": SiteAccount.read(vault, 1e-5).statement(),
        }
    total = test.counts[network.network]
    return {
        "task": name,
        "secure": task.secure,
        "classes": test.classes,
        "exact": exact_figures(folder, task.sites),
        "figures": network.to_dict()["figures"],
        "deviation": total.deviation["answers"],
        "counts": total.values,
        "sites": sites,
        "cost": describe_cost_of_look(test),
        "statement": state.ledger.statement(),
        **cost_of_look(folder),
    }


def percent(share: float) -> str:
    return f"{100 * share:.1f}"


def figure_rows(found: Mapping[str, Any]) -> list[str]:
    rows = []
    for name, exact in found["exact"]["figures"].items():
        cells = ["hidden by noise", ""]
        if name in found["figures"]:
            figure = found["figures"][name]
            low, high = percent(figure["low"]), percent(figure["high"])
            cells = [f"{percent(figure['value'])} ({low} to {high})"]
            cells.append(percent(figure["noise"]))
        title = TASKS[found["task"]].title
        told = METRIC_NAMES.get(name, name)
        in_bins = found["exact"].get("in_bins", {})
        binned = percent(in_bins[name]) if name in in_bins else ""
        rows.append(
            f"| {title} | {found['exact']['records']:,} | {told} | {percent(exact)} | "
            f"{binned} | {' | '.join(cells)} |"
        )
    return rows


def site_rows(found: Mapping[str, Any]) -> list[str]:
    title = TASKS[found["task"]].title
    return [
        f"| {title} | {name} | {' / '.join(f'{n:,}' for n in site['trained'])} | "
        f"{' / '.join(f'{n:,}' for n in site['held_out'])} | "
        f"{percent(site['federation'])} | {percent(site['alone'])} | "
        f"{percent(site['commonest'])} | {', '.join(site['account'])} |"
        for name, site in found["sites"].items()
    ]


def cost_row(found: Mapping[str, Any]) -> str:
    steps = found["steps"]
    sites = len(found["sites"])
    sent = sum(step["sent"] for step in steps) / sites
    received = sum(step["received"] for step in steps) / sites
    seconds = sum(step["seconds"] for step in steps)
    longest = max(found["seconds_at_sites"].values())
    return (
        f"| {TASKS[found['task']].title} | {'yes' if found['secure'] else 'no'} | "
        f"{len(steps)} | {sent:,.0f} | {received:,.0f} | {seconds:.0f} | "
        f"{longest:.1f} |"
    )


def page(results: Mapping[str, Any]) -> str:
    found = [results[name] for name in TASKS if name in results]
    lines = ["# Looks on real servers", "", (__doc__ or "").strip(), ""]
    lines += [
        "Percent, except where another unit is named. Values of the look are those of "
        "all sites together, with their 95 % interval. Noise is the standard deviation "
        "that the noise on the counts gives the figure.",
        "",
        "| task | held out | figure | exact | exact, in twelve bins | look | noise |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for one in found:
        lines += figure_rows(one)
    lines += [
        "",
        "At each site: records of each class that trained and that were held out, and "
        "the accuracies that `fedaux site tests` shows to its owner.",
        "",
        "| task | site | trained | held out | federation | alone | commonest class | "
        "entries of the account |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for one in found:
        lines += site_rows(one)
    lines += [
        "",
        "What a look takes: bytes of arrays, for each site, and seconds on two shared "
        "cores that play the server and all sites. Each order starts a process.",
        "",
        "| task | secure sum | exchanges | bytes to a site | bytes from a site | "
        "seconds | of them at a site, to count |",
        "| --- | --- | --- | --- | --- | --- | --- |",
        *(cost_row(one) for one in found),
    ]
    for one in found:
        first, *_ = one["sites"]
        lines += [
            "",
            f"## {TASKS[one['task']].title}",
            "",
            one["cost"],
            "",
            "The server says:",
            "",
            f"> {one['statement']}",
            "",
            f"The account of {first} says:",
            "",
            f"> {one['sites'][first]['statement']}",
            "",
            "The server's log, from the look on:",
            "",
            "```text",
            *one["log"],
            "```",
        ]
    return "\n".join(lines) + "\n"


def main() -> None:
    words = [word for word in sys.argv[1:] if word != "--table"]
    file = RESULTS / "looks-on-servers.json"
    results = json.loads(file.read_text("utf-8")) if file.exists() else {}
    if words:
        home = Path(words[0]).resolve()
        for name in words[1:] or TASKS:
            folder = home / name
            if not folder.exists():
                set_up(name, folder)
            run = folder / "dep" / "server" / "run"
            if not run.exists() or RunState.load(run).site_test is None:
                play(folder)
            results[name] = record(name, folder)
            text = json.dumps(results, indent=1, ensure_ascii=False)
            file.write_text(text + "\n", "utf-8")
    (RESULTS / "looks-on-servers.md").write_text(page(results), "utf-8")
    print(page(results))


if __name__ == "__main__":
    main()
