"""`fedaux export | predict`: a finished run as a model, and what that model says of new records."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from fedaux.cli.common import Json, console_for, examples, print_json

if TYPE_CHECKING:
    from fedaux.export.model import Model

SHOWN = 20  # predictions that the terminal shows

app = typer.Typer()


@app.command(
    epilog=examples(
        "fedaux export runs/digits-fedaux-seed0            # writes runs/digits-fedaux-seed0/model/cnn-0",
        "fedaux export runs/digits-fedaux-seed0 --out digits --onnx   # with a graph for ONNX Runtime",
    )
)
def export(
    run: Annotated[Path, typer.Argument(help="The folder of a finished run.")],
    out: Annotated[Path | None, typer.Option(help="Folder for the models, one each; default RUN/model.")] = None,
    onnx: Annotated[bool, typer.Option("--onnx", help="Also write model.onnx, checked with ONNX Runtime.")] = False,
    as_json: Json = False,
) -> None:
    """Write the trained networks of a run with a model card: weights, classes, accuracy, privacy, how to use them."""
    from fedaux.report.busy import busy

    with busy(console_for(as_json), "exporting, with a graph for ONNX Runtime" if onnx else "exporting"):
        from fedaux.export.export import export_model as export_run
        from fedaux.export.model import read_card

        folders = export_run(run, out, onnx)
    cards = [read_card(folder) for folder in folders]
    if as_json:
        print_json({"models": [_summary(folder, card) for folder, card in zip(folders, cards, strict=True)]})
        return
    console = console_for(as_json)
    for folder, card in zip(folders, cards, strict=True):
        accuracy, count = card["metrics"]["accuracy"], card["metrics"]["test_records"]
        text = f"{folder}: accuracy {accuracy:.3f} on {count} test records"
        console.print(text, markup=False, soft_wrap=True)
    console.print(f"[bold]Privacy.[/bold] {cards[0]['privacy']['statement']}", soft_wrap=True)
    console.print("README.md is the model card; choose a licence in it before you publish.")


@app.command(
    epilog=examples(
        "fedaux predict digits/cnn-0 scan.png photos/ --resize        # image files and folders",
        "fedaux predict digits/cnn-0 x.npy --out predictions.csv      # an array, all rows",
        "fedaux predict topics/encoder-0 letters.csv --column body    # texts",
    )
)
def predict(
    model: Annotated[Path, typer.Argument(help="The folder of an exported model.")],
    inputs: Annotated[list[Path], typer.Argument(metavar="INPUT...", help="Images, folders, .npy, .npz, .csv, .txt …")],
    top: Annotated[int, typer.Option(min=1, help="How many classes to name for each record.")] = 3,
    out: Annotated[Path | None, typer.Option(help="Write all predictions to this .csv.")] = None,
    resize: Annotated[bool, typer.Option("--resize", help="Crop and shrink images of another size.")] = False,
    column: Annotated[str, typer.Option(help="The column of a table with the text; default as in training.")] = "",
    as_json: Json = False,
) -> None:
    """Classify new records with an exported model."""
    from fedaux.export.input_files import InputReader
    from fedaux.export.model import Model
    from fedaux.report.terminal import results_table

    loaded = Model.from_pretrained(model)
    reader = InputReader(loaded.record_spec, resize, column or _column(loaded))
    found = [one for names, x in reader.blocks(inputs) for one in _named(loaded, names, x, top)]
    if out is not None:
        _write(found, out)
    if as_json:
        print_json({"model": str(model), "classes": list(loaded.classes), "predictions": found})
        return
    console = console_for(as_json)
    title = f"{len(found)} records" + (f", the first {SHOWN}" if len(found) > SHOWN else "")
    console.print(
        results_table(title, ("input", "class", "probability", "or else"), [_row(one) for one in found[:SHOWN]])
    )
    if out is not None:
        console.print(f"All predictions are in {escape(str(out))}.", soft_wrap=True)
    elif len(found) > SHOWN:
        console.print("--out predictions.csv writes all of them.")


def _summary(folder: Path, card: dict[str, Any]) -> dict[str, Any]:
    keys = ("prototype", "metrics", "privacy")
    files = sorted(str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file())
    return {"folder": str(folder), **{key: card[key] for key in keys}, "files": files}


def _column(model: Model) -> Any:
    """What the text's column was called in training: one name or several."""
    return dict(model.card["config"]["data"]["options"]).get("text", "text")


def _named(model: Model, names: list[str], x: Any, top: int) -> list[dict[str, Any]]:
    """For each record its name and the most probable classes."""
    import numpy as np

    probabilities = model.predict(x)
    order = np.argsort(-probabilities, axis=1, kind="stable")[:, :top]
    return [
        {
            "input": name,
            "top": [{"class": model.classes[index], "probability": float(row[index])} for index in best],
        }
        for name, row, best in zip(names, probabilities, order, strict=True)
    ]


def _row(one: dict[str, Any]) -> tuple[str, str, str, str]:
    """A prediction for the eye."""
    best, *others = one["top"]
    rest = ", ".join(f"{other['class']} {other['probability']:.3f}" for other in others)
    return escape(one["input"]), escape(best["class"]), f"{best['probability']:.3f}", escape(rest)


def _write(found: list[dict[str, Any]], out: Path) -> None:
    """One line a record: its name, then class and probability of each rank."""
    from fedaux.core.io import write_atomically
    from fedaux.report.tables import to_csv

    ranks = range(1, 1 + max((len(one["top"]) for one in found), default=0))
    lines = [["input", *(word for rank in ranks for word in (f"class_{rank}", f"probability_{rank}"))]]
    for one in found:
        cells = (cell for each in one["top"] for cell in (each["class"], f"{each['probability']:.6g}"))
        lines.append([one["input"], *cells])
    write_atomically(out, to_csv(lines).encode())
