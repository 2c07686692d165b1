"""Tables: rows of numbers run with every kind of method and no further setting."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch import Tensor, nn

import fedaux
from fedaux.core.errors import FedauxError
from fedaux.data.table_schema import TableSchema
from fedaux.export.evaluation import evaluate_model
from helpers.commands import fedaux as command
from helpers.commands import paragraph

RNG = np.random.default_rng(0)
COLUMNS = 12
X = RNG.normal(size=(600, COLUMNS))  # float64, as tables are
Y = (X[:, 0] + X[:, 1] + 0.3 * RNG.normal(size=600) > 0).astype(int)
PUBLIC = RNG.normal(size=(300, COLUMNS))


class LogisticRegression(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(COLUMNS, 2)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.fc(x)
        return logits


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FEDAUX_CACHE", str(tmp_path / "cache"))


def run(method: str, **settings: Any) -> fedaux.Result:
    return fedaux.run(
        method,
        data=(X, Y),
        public=PUBLIC,
        clients=3,
        alpha=1.0,
        rounds=1,
        epsilon=5.0,
        **settings,
    )


def one_layer() -> nn.Module:
    return nn.Linear(COLUMNS, 2)


@pytest.mark.parametrize("model", [None, "mlp", LogisticRegression, one_layer])
@pytest.mark.parametrize(
    "method", ["fedaux", "private-head", "ridge+p", "scaffold+p", "fedavg", "feddf+p"]
)
def test_a_table_without_a_setting(method: str, model: Any) -> None:
    result = run(method, model=model)
    assert result.accuracy > 0.4
    if method != "private-head":
        assert result.config.pretrain == fedaux.Config().pretrain


def test_one_layer_of_another_size_is_refused_before_anything_runs() -> None:
    """It was a size mismatch, or a quorum that was missed."""
    with pytest.raises(FedauxError, match=r"Linear\(12, 3\): a record has 12 numbers"):
        run("fedavg", model=lambda: nn.Linear(COLUMNS, 3))


@pytest.mark.parametrize("method", ["fedaux", "fedavg", "scaffold+p"])
def test_columns_of_any_scale_are_scaled_like_public_ones(method: str) -> None:
    """Breast cancer's columns reach from .001 to 4,000. In per cent, three seeds, ε = 1,
    α = .1, five clients, ten rounds:

                            FedAUX  FedAvg  SCAFFOLD+P
        breast   mlp          72.7    73.0        74.8
        cancer   mlp, scaled  94.2    92.3        96.5
                 tabular      94.4    93.2        96.3
                 linear       93.5    94.6        96.5
        heart    mlp          61.2    71.2        67.5
                 mlp, scaled  72.5    79.4        78.4
                 tabular      75.9    79.6        80.6
                 linear       81.3    75.4        81.6
        wine     mlp          59.3    54.8        43.0
                 mlp, scaled  89.6    93.3        94.8
                 tabular      93.3    93.3        94.1
                 linear       89.6    40.0        91.9
        digits   mlp          87.1    82.4        95.8
                 tabular      93.0    87.9        96.5
                 linear       88.3    86.0        95.7

    FedAvg scaled no columns of linear and tabular, and had 61.1 and 72.3 on the first.
    """
    scales = 10.0 ** np.arange(-6, 6)
    result = fedaux.run(
        method,
        data=(X * scales + 100 * scales, Y),
        public=PUBLIC * scales + 100 * scales,
        clients=3,
        alpha=1.0,
        rounds=6,
        epsilon=5.0,
    )
    assert result.accuracy > 0.8


def test_data_frames_become_a_model_that_takes_data_frames(tmp_path: Path) -> None:
    """`from_frame` ran, but the result did not know the columns."""
    pandas = pytest.importorskip("pandas")
    write_registry(tmp_path)
    frame = pandas.read_csv(tmp_path / "registry.csv", sep=";", decimal=",")
    result = fedaux.run(
        "private-head", data=frame, label="diagnosis", site="hospital", epsilon=1.0
    )
    assert result.accuracy > 0.75
    assert result.config.federation.sites == ("Oslo", "Rome")
    assert result.columns[0].column in ("age", "ward")
    assert result.classes_.tolist() == ["healthy", "ill"]
    new = pandas.DataFrame(
        {"age": [85, 21], "pressure": [140.5, None], "ward": ["C", "?"], "smoker": "no"}
    )
    assert result.predict(new).tolist() == ["ill", "healthy"]
    assert result.predict_proba(new).shape == (2, 2)
    rows = new.to_dict("records")
    arrays = {name: new[name].to_numpy() for name in new}
    for same in (rows, arrays, new.to_records(index=False)):
        assert np.array_equal(result.predict_proba(same), result.predict_proba(new))
    saved = result.save(tmp_path / "model")
    (tmp_path / "new.csv").write_text("age,pressure,ward,smoker\n85,140.5,C,no\n")
    loaded = fedaux.Model.from_pretrained(saved)
    assert loaded.schema == result.model.schema
    assert loaded.classifier.predict(new).tolist() == ["ill", "healthy"]


@pytest.mark.parametrize("public", [False, True])
def test_a_schema_far_from_the_records_is_told(
    public: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Its rows were called public data, of which others should be used."""
    columns = [f"c{number}" for number in range(8)]
    described = {name: {"kind": "number", "range": [0, 100]} for name in columns}
    header = {"label": "ill", "classes": ["0", "1"]}
    schema = TableSchema.from_dict({**header, "columns": described})
    table: dict[str, Any] = {name: RNG.uniform(85, 95, 120) for name in columns}
    rows = {name: RNG.uniform(0, 100, 120) for name in columns}
    fedaux.run(
        "private-head",
        data=table | {"ill": RNG.integers(0, 2, 120)},
        schema=schema,
        public=rows if public else None,
        clients=2,
        alpha=100.0,
    )
    assert ("drawn from the schema are unlike" in caplog.text) == (not public)
    assert ("Use public data of the same kind" in caplog.text) == public


def test_frozen_features_of_a_table_are_its_columns() -> None:
    ridge = run("ridge+p")
    assert [spec.name for spec in ridge.config.prototypes] == ["linear"]
    assert ridge.accuracy > 0.9
    assert ridge.accuracy > run("ridge+p", model="mlp").accuracy


@pytest.mark.parametrize("model", ["linear", "tabular", "cosine"])
def test_few_records_of_two_classes_are_one_signed_secure_sum(model: str) -> None:
    result = run("private-head", model=model, secure=True, pretrain={"epochs": 5})
    assert result.accuracy > 0.8
    split = result.state.public[model]["split"]
    assert len(split) == 2


def test_a_frozen_random_network_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    events: list[Any] = []
    run("ridge+p", model="mlp", on_progress=events.append)
    said = [event.text for event in events if hasattr(event, "text")]
    note = [text for text in said if "not pre-trained" in text]
    assert len(note) == 1
    assert "prototypes = ['linear'] uses the columns as they are" in note[0]
    events.clear()
    run("ridge+p", on_progress=events.append)
    assert not any("not pre-trained" in str(event) for event in events)


def write_registry(folder: Path) -> None:
    """Two hospitals, of which one writes numbers with gaps; and public records."""
    lines = ["hospital;patient;age;pressure;ward;smoker;diagnosis"]
    public = ["age;pressure;ward;smoker"]
    for number in range(900):
        age = int(RNG.integers(20, 90))
        pressure = f"{RNG.normal(100 + age / 2, 8):.1f}".replace(".", ",")
        ill = age + RNG.normal(0, 8) > 55
        ward = "ABC"[int(ill) + int(RNG.integers(2))]
        smoker = "yes" if RNG.uniform() < 0.3 else "no"
        if number % 7 == 0:
            pressure = "NA"
        values = f"{age};{pressure};{ward};{smoker}"
        if number < 300:
            public.append(values)
        else:
            hospital = "Oslo" if number % 3 else "Rome"
            diagnosis = "ill" if ill else "healthy"
            lines.append(f"{hospital};p{number};{values};{diagnosis}")
    (folder / "registry.csv").write_text("\n".join(lines))
    (folder / "public.csv").write_text("\n".join(public))


@pytest.mark.parametrize("words", [("--public", "public.csv"), ()])
def test_from_a_registry_to_a_private_model(
    words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_registry(tmp_path)
    named = ("--data", "registry.csv", "--site", "hospital", "--label", "diagnosis")
    assert command(monkeypatch, "init", "table", *named, *words) == 0
    assert command(monkeypatch, "run", "table.toml", "--out", "run") == 0
    config = fedaux.Config.load("table.toml")
    assert config.federation.sites == ("Oslo", "Rome")
    again = fedaux.run(config, "run")
    assert again.accuracy > 0.75
    assert "(1, 1e-05)" in str(again.privacy)
    assert command(monkeypatch, "export", "run", "--out", "model") == 0
    (tmp_path / "new.csv").write_text(
        "patient;smoker;ward;pressure;age;note\n"
        "eve;no;C;140,5;85;x\nbob;maybe;?;NA;21;y\n\n"
    )
    named = ("--id", "patient", "--out", "predictions.csv")
    assert command(monkeypatch, "predict", "model", "new.csv", *named) == 0
    with (tmp_path / "predictions.csv").open() as file:
        predictions = {row["input"]: row["class_1"] for row in csv.DictReader(file)}
    assert predictions == {"eve": "ill", "bob": "healthy"}
    keep = (*named[:2], "--keep", "--top", "1", "--out", "kept.csv")
    assert command(monkeypatch, "predict", "model", "new.csv", *keep) == 0
    kept = (tmp_path / "kept.csv").read_text().splitlines()
    columns = "patient,smoker,ward,pressure,age,note"
    assert kept[0] == f"input,{columns},class_1,probability_1"
    fields, _, probability = kept[1].rpartition(",")
    assert fields == 'eve,eve,no,C,"140,5",85,x,ill'
    assert 0.5 <= float(probability) <= 1  # 1 where noise makes the map very sure
    assert command(monkeypatch, "predict", "model", "new.csv", "--keep") != 0

    page = (tmp_path / "run" / "report.html").read_text()
    (card,) = (tmp_path / "model").glob("*/README.md")
    linear = config.prototypes[0].name == "linear"
    # few records of two classes get a map from public rows, if there are any
    assert linear == (not words)
    assert bool(again.columns) == linear
    assert ('id="columns"' in page) == linear
    # without public rows, the schema may show values of private records
    assert "covers them, at the same ε" not in page
    assert ("they carry no guarantee" in page) == linear
    assert ("## Columns" in card.read_text()) == linear
    if linear:
        assert again.columns[0].column in ("age", "ward")
        assert again.columns[0].towards == "ill"

    (tmp_path / "schema.toml").unlink()  # the model has it
    model = fedaux.Model.from_pretrained("model")
    evaluation = evaluate_model(model, "registry.csv")
    assert evaluation.total.accuracy > 0.75
    assert sorted(evaluation.sites) == ["Oslo", "Rome"]
    counts = [int(site.table.sum()) for site in evaluation.sites.values()]
    assert counts == [400, 200]
    assert evaluation.sites["Rome"].auc is not None
    assert model.card["metrics"]["auc"] > 0.8
    assert model.card["metrics"]["calibration_error"] < 0.5
    pandas = pytest.importorskip("pandas")
    frame = pandas.read_csv("new.csv", sep=";", decimal=",")
    probabilities = model.predict(frame)
    assert probabilities.argmax(axis=1).tolist() == [1, 0]
    assert model.classifier.predict(frame).tolist() == ["ill", "healthy"]


def test_a_model_of_a_table_names_what_it_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_registry(tmp_path)
    named = ("--data", "registry.csv", "--label", "diagnosis", "--public", "public.csv")
    assert command(monkeypatch, "init", "table", *named) == 0
    assert command(monkeypatch, "run", "table.toml", "--out", "run") == 0
    assert command(monkeypatch, "export", "run", "--out", "model") == 0
    capsys.readouterr()
    assert command(monkeypatch, "predict", "model", "table.toml") != 0
    assert "Give .csv or .parquet with the columns age, pressure" in paragraph(
        capsys.readouterr().err
    )
    (tmp_path / "new.csv").write_text("age;pressure\n50;100\n")
    assert command(monkeypatch, "predict", "model", "new.csv") != 0
    assert "there is no column ward, smoker" in paragraph(capsys.readouterr().err)
    assert (
        command(monkeypatch, "predict", "model", "public.csv", "--id", "patient") != 0
    )
    assert "there is no column patient" in paragraph(capsys.readouterr().err)
