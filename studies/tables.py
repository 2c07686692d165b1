"""The private head on tables, from a registry's CSV by `fedaux init table`: heart disease
at four hospitals, incomes at twenty sites, card fraud at four banks.

    python -m studies.tables            # runs, and goes on where it was stopped
    python -m studies.tables --table    # the tables alone

Each run takes what a user has: the files are written as CSV, `init` proposes schema and
settings, and only ε, `federation.secure` and the test file are set. On heart by hospital,
"signed sum" arms have the scorer that `init` proposes, those "on tabular" another
network, and the others sums of each class in 8 directions. Fed-Heart is split as FLamby
splits it, and what its authors published is read from their files. Beside stand
scikit-learn's logistic regression and gradient boosting on the same columns, pooled and
of each site alone, all without protection. "Balanced" is the mean accuracy of the two
classes, which was not kept in older rows.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer

import fedaux
from fedaux.config.starters import write_starter
from fedaux.data.table_choices import propose
from fedaux.data.table_schema import TableSchema
from fedaux.data.tables import from_frame
from studies.sources import ROOT

REPOSITORY = Path(__file__).resolve().parents[1]
RESULTS = REPOSITORY / "studies" / "results" / "tables.json"
SEEDS = (0, 1, 2, 3, 4)
EPSILONS = (0.1, 0.3, 1.0, 3.0)
NOISES = {"secure": True, "local": False}
# beside what `init` proposes: the class embedding, which it proposed earlier for few
# records of two classes, and the scorer that chooses a signed sum, on columns and on
# features that public rows have trained
COLUMNS = 'prototypes=["linear"]'  # where `init` proposes a map from public rows, too
PLAIN = (COLUMNS, "privacy.scorer=class-embedding", "privacy.embedding_dim=8")
SIGNED = (COLUMNS, "privacy.scorer=class-moments", "privacy.embedding_dim=0")
VARIANTS: dict[str, tuple[str, ...]] = {
    "": (),
    "signed sum, ": SIGNED,
    "signed sum on tabular, ": (*SIGNED[1:], 'prototypes=["tabular"]'),
}
VARIED = ("heart by hospital",)
# random features of the columns by secure sums: all of them, or of few records a signed
# sum
COSINE_EPSILONS = (1.0, 0.3)
_COSINE = 'prototypes=["cosine"]'
COSINE: dict[str, tuple[str, ...]] = {
    "heart by hospital": (_COSINE, *SIGNED[1:]),
    "Adult, 20 sites": (_COSINE, "privacy.embedding_dim=300"),
    "fraud at four banks, no public rows": (_COSINE, "privacy.embedding_dim=300"),
}
# how much classes of unequal size count, at ε = 1 by secure sums
CLASS_WEIGHTS = {"as they are": "[]", "balanced": '"balanced"'}
WEIGHTED = ("Adult, 20 sites", "fraud at four banks, no public rows")
FLAMBY_SEEDS = (42, 43, 44, 45, 46)


HEART_RANGES = {
    "age": (20.0, 90.0),
    "resting_bp": (80.0, 200.0),
    "cholesterol": (0.0, 500.0),
    "max_heart_rate": (60.0, 220.0),
    "st_depression": (-2.0, 5.0),
}
FRAUD_RANGES = {f"V{number}": (-5.0, 5.0) for number in range(1, 29)} | {
    "scaled_amount": (-1.0, 10.0),
    "scaled_time": (-1.0, 1.0),
}


@dataclass(frozen=True, eq=False)
class Registry:
    """The files of one split."""

    private: pd.DataFrame
    test: pd.DataFrame
    label: str
    site: str = ""  # the column, or a random split over `clients`
    public: pd.DataFrame | None = None
    clients: int = 20
    # without public rows: what is commonly known of each column, so that the schema says
    # nothing about the private ones
    ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict)


def heart(seed: int, with_public: bool = True) -> Registry:
    """920 patients of four hospitals: half private, a quarter public, a quarter test."""
    table = pd.read_csv(ROOT / "heart_disease.csv.gz", dtype=str, keep_default_na=False)
    order = np.random.default_rng(seed).permutation(len(table))
    private, public, test = np.split(order, [460, 690])
    shared = table.iloc[public].drop(columns=["hospital", "diagnosis"])
    return Registry(
        table.iloc[private],
        table.iloc[test],
        "diagnosis",
        "hospital",
        shared if with_public else None,
        ranges=HEART_RANGES,
    )


def fed_heart(seed: int) -> Registry:
    """FLamby's: 13 columns without the last three, complete rows only, 66 % of each
    hospital for training. The split is always the same; seeds draw the noise.
    """
    table = pd.read_csv(ROOT / "heart_disease.csv.gz", dtype=str, keep_default_na=False)
    table = table.drop(columns=["st_slope", "vessels", "thal"])
    table = table[(table != "").all(axis=1)]
    training, testing = [], []
    for _, rows in table.groupby("hospital"):
        diagnoses = rows["diagnosis"]
        enough = diagnoses.value_counts().min() > 2
        train, test = train_test_split(
            rows,
            test_size=0.34,
            random_state=43,
            stratify=diagnoses if enough else None,
        )
        training.append(train)
        testing.append(test)
    return Registry(
        pd.concat(training),
        pd.concat(testing),
        "diagnosis",
        "hospital",
        ranges=HEART_RANGES,
    )


def adult(seed: int) -> Registry:
    """48,842 persons of a census: a tenth of the training records is public."""
    files = {
        part: pd.read_csv(
            ROOT / f"adult_{part}.csv.gz", dtype=str, keep_default_na=False
        )
        for part in ("train", "test")
    }
    table = files["train"]
    order = np.random.default_rng(seed).permutation(len(table))
    public, private = np.split(order, [3256])
    shared = table.iloc[public].drop(columns=["income"])
    return Registry(table.iloc[private], files["test"], "income", public=shared)


def fraud(seed: int) -> Registry:
    """Card fraud at four banks with 2, 5, 37 and 488 cases, as it comes."""
    parts: dict[str, list[pd.DataFrame]] = {"train": [], "test": []}
    for bank in range(1, 5):
        for part, found in parts.items():
            path = ROOT / "fraud" / f"bank{bank}_{part}.csv.gz"
            rows = pd.read_csv(path, dtype=str, keep_default_na=False)
            found.append(rows.assign(bank=f"bank{bank}"))
    return Registry(
        pd.concat(parts["train"]),
        pd.concat(parts["test"]),
        "Class",
        "bank",
        ranges=FRAUD_RANGES,
    )


CASES: dict[str, Callable[[int], Registry]] = {
    "Fed-Heart, no public rows": fed_heart,
    "heart by hospital": heart,
    "heart by hospital, no public rows": lambda seed: heart(seed, with_public=False),
    "Adult, 20 sites": adult,
    "fraud at four banks, no public rows": fraud,
}


@dataclass(frozen=True)
class Scores:
    """Accuracy and AUC on all test records, and their means over sites."""

    accuracy: float
    auc: float
    site_accuracy: float
    seconds: float
    balanced_accuracy: float = 0.0  # the mean of both classes

    @classmethod
    def of(
        cls,
        probabilities: NDArray[np.floating],
        answers: NDArray[np.int64],
        sites: NDArray[np.str_],
        seconds: float,
    ) -> Scores:
        right = (probabilities >= 0.5) == (answers == 1)
        by_site = [right[sites == site].mean() for site in np.unique(sites)]
        by_class = [right[answers == answer].mean() for answer in (0, 1)]
        return cls(
            round(float(right.mean()), 4),
            round(float(roc_auc_score(answers, probabilities)), 4),
            round(float(np.mean(by_site)), 4),
            round(seconds, 1),
            round(float(np.mean(by_class)), 4),
        )


def confirmed(
    schema: TableSchema, ranges: Mapping[str, tuple[float, float]]
) -> TableSchema:
    """The schema as a person leaves it who has no public rows: ranges of common
    knowledge in place of what `init` found in the private ones.
    """
    columns = {
        name: replace(column, range=ranges[name], quantiles=(), bins=())
        if column.kind == "number"
        else column
        for name, column in schema.columns.items()
    }
    return replace(
        schema, columns=columns, header=replace(schema.header, confirmed=True)
    )


def answers_of(registry: Registry, schema: TableSchema) -> NDArray[np.int64]:
    positive = schema.header.classes[1]
    return (registry.test[registry.label].to_numpy(str) == positive).astype(np.int64)


def sites_of(rows: pd.DataFrame, registry: Registry) -> NDArray[np.str_]:
    if not registry.site:
        return np.full(len(rows), "")
    return rows[registry.site].to_numpy(str)


@dataclass(frozen=True, eq=False)
class Folder:
    """A folder in which `fedaux init table` has been called."""

    path: Path
    registry: Registry

    @classmethod
    def write(cls, path: Path, registry: Registry) -> Folder:
        files = {"registry": registry.private, "test": registry.test}
        public: Path | None = None
        if registry.public is not None:
            files["public"] = registry.public
            public = path / "public.csv"
        for name, rows in files.items():
            rows.to_csv(path / f"{name}.csv", index=False)
        proposal = propose(
            path / "registry.csv",
            registry.label,
            registry.site,
            public,
            registry.clients,
        )
        values = {choice.key: choice.value for choice in proposal.choices}
        schema = proposal.schema
        if public is None:
            schema = confirmed(schema, registry.ranges)
        contents = {"schema.toml": schema.to_toml(proposal.comments)}
        write_starter("table", path, values, contents)
        return cls(path, registry)

    @property
    def schema(self) -> TableSchema:
        return TableSchema.load(self.path / "schema.toml")

    def run(
        self, epsilon: float, secure: bool, seed: int, settings: Sequence[str] = ()
    ) -> Scores:
        """`fedaux run table.toml` at this ε with further settings, tested on
        test.csv.
        """
        schema = str(self.path / "schema.toml")
        test = str(self.path / "test.csv")
        config = fedaux.Config.load(
            self.path / "table.toml",
            [
                f"privacy.epsilon={epsilon}",
                f"federation.secure={str(secure).lower()}",
                f"seed={seed}",
                f"data.options={{schema = '{schema}', test = '{test}'}}",
                *settings,
            ],
        )
        started = time.perf_counter()
        with tempfile.TemporaryDirectory() as out:
            result = fedaux.run(config, Path(out) / "run")
            model = result.model
        seconds = time.perf_counter() - started
        rows = self.registry.test.drop(columns=[self.registry.label])
        probabilities = model.predict(rows)[:, 1]
        sites = sites_of(self.registry.test, self.registry)
        return Scores.of(
            probabilities, answers_of(self.registry, self.schema), sites, seconds
        )

    def unprotected(
        self, models: Mapping[str, Callable[[], Any]], alone: bool = True
    ) -> dict[str, Scores]:
        """scikit-learn's models on the same columns: pooled, and of each site alone."""
        registry = self.registry
        schema = self.schema
        x = from_frame(registry.private, schema).train.gather()
        y = registry.private[registry.label].to_numpy(str) == schema.header.classes[1]
        test = from_frame(registry.test, schema).train.gather()
        answers = answers_of(registry, schema)
        test_sites = sites_of(registry.test, registry)
        found: dict[str, Scores] = {}
        for name, make in models.items():
            started = time.perf_counter()
            probabilities = make().fit(x, y).predict_proba(test)[:, 1]
            seconds = time.perf_counter() - started
            found[f"pooled {name}"] = Scores.of(
                probabilities, answers, test_sites, seconds
            )
        if not registry.site or not alone:
            return found
        sites = sites_of(registry.private, registry)
        for site in np.unique(sites):
            here = sites == site
            if len(np.unique(y[here])) < 2:
                continue
            model = logistic().fit(x[here], y[here])
            probabilities = model.predict_proba(test)[:, 1]
            found[f"{site} alone"] = Scores.of(probabilities, answers, test_sites, 0.0)
        return found


def logistic() -> LogisticRegression:
    return LogisticRegression(max_iter=2000)


def boosting() -> HistGradientBoostingClassifier:
    return HistGradientBoostingClassifier(random_state=0)


class LeastSquares(LinearRegression):  # type: ignore[misc]
    """The loss of a private head without its noise and bounds: (prediction − label)²."""

    def predict_proba(self, x: NDArray[np.floating]) -> NDArray[np.floating]:
        positive = self.predict(x)
        return np.stack([1 - positive, positive], axis=1)


def of_length_one(model: Any) -> Any:
    """A model on records that are scaled to one length, as a private head bounds them."""
    return make_pipeline(Normalizer(), model)


MODELS: dict[str, Callable[[], Any]] = {
    "logistic regression": logistic,
    "gradient boosting": boosting,
}
# what of a private head costs how much, where it is behind: its loss, or its bound
COMPARED = ("fraud at four banks, no public rows",)
PARTS: dict[str, Callable[[], Any]] = {
    "logistic regression, records of length 1": lambda: of_length_one(logistic()),
    "least squares": LeastSquares,
    "least squares, records of length 1": lambda: of_length_one(LeastSquares()),
}


def run_all(results: Path, cases: list[str]) -> None:
    scores = read(results)
    for case in cases:
        for seed in SEEDS:
            for arm, made in arms_of(case, seed, scores):
                scores[f"{case}|{arm}|{seed}"] = vars(made)
                print(case, arm, seed, made, flush=True)
                results.write_text(json.dumps(scores, indent=1) + "\n")


def arms_of(
    case: str, seed: int, known: Mapping[str, Any]
) -> Iterator[tuple[str, Scores]]:
    with tempfile.TemporaryDirectory() as path:
        folder = Folder.write(Path(path), CASES[case](seed))
        if f"{case}|pooled logistic regression|{seed}" not in known:
            yield from folder.unprotected(MODELS).items()
        if case in COMPARED and f"{case}|pooled least squares|{seed}" not in known:
            yield from folder.unprotected(PARTS, alone=False).items()
        for name, settings in VARIANTS.items():
            if not name and case in VARIED:
                settings = PLAIN
            if name and case not in VARIED:
                continue
            for noise, secure in NOISES.items():
                for epsilon in EPSILONS:
                    arm = f"{name}{noise}, ε = {epsilon:g}"
                    if f"{case}|{arm}|{seed}" not in known:
                        yield arm, folder.run(epsilon, secure, seed, settings)
        for epsilon in COSINE_EPSILONS:
            arm = f"cosine, secure, ε = {epsilon:g}"
            if case in COSINE and f"{case}|{arm}|{seed}" not in known:
                yield arm, folder.run(epsilon, True, seed, COSINE[case])
        for name, weights in CLASS_WEIGHTS.items():
            arm = f"classes {name}, secure, ε = 1"
            if case in WEIGHTED and f"{case}|{arm}|{seed}" not in known:
                weighted = (f"class_weights={weights}",)
                yield arm, folder.run(1.0, True, seed, weighted)


def read(results: Path) -> dict[str, dict[str, float]]:
    if not results.exists():
        return {}
    scores: dict[str, dict[str, float]] = json.loads(results.read_text())
    return scores


def published_heart() -> dict[str, tuple[float, float]]:
    """(mean accuracy of the four hospitals, deviation over seeds) of FLamby's authors,
    by method.
    """
    rows = [
        pd.read_csv(ROOT / "flamby" / f"published_heart_seed{seed}.csv")
        for seed in FLAMBY_SEEDS
    ]
    table = pd.concat(rows)
    clients = table["Test"].str.startswith("client_test_")
    by_seed = table[clients].groupby(["Method", "seed"])["Metric"].mean()
    return {
        str(method): (float(values.mean()), float(values.std(ddof=1)))
        for method, values in by_seed.groupby(level=0)
    }


def text(rows: list[dict[str, float]], metric: str) -> str:
    values = 100 * np.array([row[metric] for row in rows])
    spread = values.std(ddof=1) if len(values) > 1 else 0.0
    return f"{values.mean():.1f} ± {spread:.1f}"


def table_of(case: str, scores: Mapping[str, dict[str, float]]) -> str:
    arms: dict[str, list[dict[str, float]]] = {}
    for key, found in scores.items():
        of_case, arm, _ = key.split("|")
        if of_case == case:
            arms.setdefault(arm, []).append(found)
    lines = [
        f"## {case}",
        "",
        "| model | draws | accuracy | AUC | mean of the sites | balanced | seconds |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for arm, rows in arms.items():
        seconds = max(row["seconds"] for row in rows)
        cells = [arm, str(len(rows))]
        cells += [text(rows, name) for name in ("accuracy", "auc", "site_accuracy")]
        weighed = [row for row in rows if row.get("balanced_accuracy")]
        cells.append(text(weighed, "balanced_accuracy") if weighed else "")
        lines.append(f"| {' | '.join(cells)} | {seconds:.1f} |")
    return "\n".join(lines)


def write_tables(results: Path) -> None:
    scores = read(results)
    parts = ["# Tables", str(__doc__)]
    parts += [table_of(case, scores) for case in CASES]
    lines = [
        "## Fed-Heart as FLamby's authors published it",
        "",
        "| method | mean of the four hospitals |",
        "| --- | --- |",
    ]
    for method, (mean, spread) in published_heart().items():
        lines.append(f"| {method} | {100 * mean:.1f} ± {100 * spread:.1f} |")
    parts.append("\n".join(lines))
    results.with_suffix(".md").write_text("\n\n".join(parts) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--cases", nargs="*", default=list(CASES))
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", module="sklearn")
    arguments = parser.parse_args()
    if not arguments.table:
        run_all(arguments.results, arguments.cases)
    write_tables(arguments.results)


if __name__ == "__main__":
    main()
