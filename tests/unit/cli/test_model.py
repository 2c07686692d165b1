"""`fedaux export` and `predict`: files in, the likeliest classes out, one paragraph
where a file cannot be right.
"""

import csv
import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from fedaux.data.federated import open_data
from fedaux.export.export import export_model
from fedaux.export.model import Model
from fedaux.server.result import FinishedRun
from fedaux.server.run_state import RunState
from fedaux.server.run_writer import RunWriter
from helpers.commands import fedaux, paragraph
from helpers.runs import finished_run
from helpers.tiny import CNN, MLP, TINY_CONFIG


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("predict")
    return export_model(
        finished_run(folder / "run", replace(TINY_CONFIG, prototypes=(CNN,))).folder,
        folder / "model",
    )[0]


@pytest.fixture(scope="module")
def images() -> np.ndarray:
    return open_data(TINY_CONFIG).test.gather(slice(0, 30))


def test_folders_and_files(
    model: Path,
    images: np.ndarray,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Damaged images of a folder are left out; one that is named alone must be read."""
    folder = tmp_path / "scans"
    (folder / "deeper").mkdir(parents=True)
    for index, image in enumerate(images):
        Image.fromarray(image[..., 0]).save(
            folder / ("deeper" if index > 9 else ".") / f"{index:03}.PNG"
        )
    (folder / "notes.txt").write_text("not an image")
    (folder / "030.png").write_bytes(b"no image")
    Image.fromarray(np.kron(images[0, ..., 0], np.ones((2, 2), np.uint8))).save(
        tmp_path / "large.png"
    )
    words = (
        folder,
        folder / "003.PNG",
        tmp_path / "large.png",
        "--resize",
        "--out",
        tmp_path / "all.json",
    )
    assert fedaux(monkeypatch, "predict", model, *words) == 0
    assert "1 of the files could not be read and were left out" in paragraph(
        capsys.readouterr().out
    )
    table = json.loads((tmp_path / "all.json").read_text())
    assert table["skipped"] == [str(folder / "030.png")]
    names = [one["input"] for one in table["predictions"]]
    assert names == [
        *sorted(names[:30]),
        str(folder / "003.PNG"),
        str(tmp_path / "large.png"),
    ]
    wanted = Model.from_pretrained(model).predict(images).argmax(axis=1)
    found = [int(one["top"][0]["class"]) for one in table["predictions"]]
    assert found == [*wanted, wanted[3], wanted[0]]
    for words in ((folder, "--strict"), (folder / "030.png",)):
        assert fedaux(monkeypatch, "predict", model, *words) == 4
        assert "030.png as an image: " in paragraph(capsys.readouterr().err)


def test_table_and_csv(
    model: Path,
    images: np.ndarray,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    np.save("[bold]x.npy", images)  # a name is shown as it is
    probabilities = Model.from_pretrained(model).predict(images)
    best = np.sort(probabilities, axis=1)[:, ::-1]
    assert (
        fedaux(
            monkeypatch, "predict", model, "[bold]x.npy", "--top", 2, "--out", "p.csv"
        )
        == 0
    )
    said = capsys.readouterr().out
    assert "30 records, the first 20" in said
    assert "[bold]x.npy[19]" in said
    assert "[bold]x.npy[20]" not in said
    second = int(np.argsort(-probabilities[0])[1])
    cells = [
        cell.strip()
        for cell in next(
            line for line in said.splitlines() if "x.npy[0]" in line
        ).split("│")
    ]
    assert cells[1:5] == [
        "[bold]x.npy[0]",
        str(probabilities[0].argmax()),
        f"{best[0, 0]:.3f}",
        f"{second} {best[0, 1]:.3f}",
    ]
    assert "All predictions are in p.csv." in said
    with Path("p.csv").open(newline="") as file:
        rows = list(csv.reader(file))
    assert rows[0] == ["input", "class_1", "probability_1", "class_2", "probability_2"]
    assert len(rows) == 31
    assert [float(row[2]) for row in rows[1:]] == pytest.approx(best[:, 0], rel=1e-5)
    assert [int(row[1]) for row in rows[1:]] == probabilities.argmax(axis=1).tolist()
    assert [float(row[4]) for row in rows[1:]] == pytest.approx(best[:, 1], rel=1e-5)
    assert (
        fedaux(monkeypatch, "predict", model, "[bold]x.npy", "--top", 99, "--json") == 0
    )
    top = json.loads(capsys.readouterr().out)["predictions"][0]["top"]
    # there are no more
    assert sorted(one["class"] for one in top) == [str(digit) for digit in range(10)]


def test_what_cannot_be_classified(
    model: Path,
    images: np.ndarray,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    np.save("good.npy", images)
    np.save("wrong.npy", np.zeros((3, 9, 9, 1), np.uint8))
    np.savez("two.npz", a=images, b=images)
    np.save("pickled.npy", np.array([{}], dtype=object), allow_pickle=True)
    for name in ("damaged.npy", "damaged.npz", "damaged.png"):
        Path(name).write_bytes(b"damaged")
    Image.fromarray(np.zeros((16, 20), np.uint8)).save("large.png")
    Path("empty").mkdir()
    Path("a.csv").write_text("text\nhello\n")
    expected = {
        "none.npy": "there is no file or folder none.npy. Give image files, folders of them, .npy or .npz",
        "wrong.npy": "this model takes uint8 images of shape (N, 8, 8, 1), not of shape (3, 9, 9, 1)",
        "two.npz": "two.npz: it has arrays a, b. Call the one to be classified x",
        "pickled.npy": "Cannot read pickled.npy: ",
        "damaged.npy": "Cannot read damaged.npy: ",
        "damaged.npz": "Cannot read damaged.npz: ",
        "damaged.png": "Cannot read damaged.png as an image",
        "large.png": "large.png: it has 20×16 pixels, and this model takes 8×8. Use --resize to make it fit",
        "empty": "Cannot read empty: there is not one image in it",
        "a.csv": "a.csv: this model takes uint8 images",
    }
    for name, message in expected.items():
        assert (
            fedaux(monkeypatch, "predict", model, "good.npy", name, "--out", "p.csv")
            == 4
        ), name
        out, err = capsys.readouterr()
        assert message in paragraph(err)
        assert len(err.strip().splitlines()) == 1
        assert "Traceback" not in out + err
        assert not Path("p.csv").exists()
    for words, code in (
        (["good.npy"], 2),
        ([model], 2),
        ([model, "good.npy", "--top", 0], 2),
        (["empty", "x"], 5),
    ):
        assert fedaux(monkeypatch, "predict", *words) == code
    assert "empty holds no model (card.json is missing)" in paragraph(
        capsys.readouterr().err
    )


def test_the_command_says_where_and_what(
    result: FinishedRun,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert fedaux(monkeypatch, "export", result.folder) == 0
    said = paragraph(capsys.readouterr().out)
    for spec, name in ((MLP, "mlp-0"), (CNN, "cnn-1")):
        accuracy = result.state.history[-1].accuracy[spec.label]
        assert (
            f"{result.folder / 'model' / name}: accuracy {100 * accuracy:.1f} % on 359 test "
            "records" in said
        )
    assert f"Privacy. {result.statement}" in said
    assert fedaux(monkeypatch, "export", result.folder, "--json") == 0
    found = json.loads(capsys.readouterr().out)["models"]
    assert [Path(one["folder"]).name for one in found] == ["mlp-0", "cnn-1"]
    assert found[0]["files"] == ["README.md", "card.json", "model.safetensors"]
    assert 0.0999 < found[0]["privacy"]["epsilon"] <= 0.1
    assert fedaux(monkeypatch, "export", "--help") == 0
    assert re.search(
        r"\$ fedaux export runs/\S+ --out digits --onnx",
        paragraph(capsys.readouterr().out),
    )


def test_no_run_an_unfinished_one_and_a_damaged_one(
    result: FinishedRun,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "state.safetensors").write_bytes(b"damaged")
    state = RunState.load(result.folder)
    RunWriter(tmp_path / "unfinished").save(
        replace(state, config=replace(state.config, rounds=7))
    )
    expected = {
        "nowhere": "holds no run (state.safetensors is missing)",
        "damaged": "is damaged",
        "unfinished": "has finished 2 of 7 rounds. Continue with `fedaux resume",
    }
    for name, message in expected.items():
        assert fedaux(monkeypatch, "export", tmp_path / name) == 5
        out, err = capsys.readouterr()
        assert message in paragraph(err)
        assert "Traceback" not in out + err
        assert not (tmp_path / name / "model").exists()
    assert fedaux(monkeypatch, "export") == 2


def test_evaluate_says_what_a_model_is_worth(
    model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    test = open_data(TINY_CONFIG).test
    np.savez(tmp_path / "labelled.npz", x=test.gather(), y=test.labels)
    assert (
        fedaux(
            monkeypatch,
            "evaluate",
            model,
            tmp_path / "labelled.npz",
            "--page",
            tmp_path / "page.html",
        )
        == 0
    )
    text = capsys.readouterr().out
    assert "Warning: the model" in text  # it has learned nothing
    assert all(
        word in text
        for word in ("balanced", "macro-F1", "AUC", "recall, %", "95 % interval")
    )
    assert (tmp_path / "page.html").is_file()
    assert (
        fedaux(monkeypatch, "evaluate", model, tmp_path / "labelled.npz", "--json") == 0
    )
    found = json.loads(capsys.readouterr().out)
    card = json.loads((model / "card.json").read_text())["metrics"]
    assert (found["records"], found["accuracy"]) == (359, card["accuracy"])
    assert found["balanced_accuracy"] == card["balanced_accuracy"]
    assert found["classes"]["3"] == card["recall"]["3"]
