"""`fedaux export | predict | evaluate`: a finished run as a model, and what that model
says of new records.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from fedaux.cli.common import Json, console_for, examples, print_json

if TYPE_CHECKING:
    from fedaux.export.model import Model

TRAINED_ON = (
    "the model was trained on records of this folder: on new ones it is less accurate, "
    "so evaluate it on records that it has never seen"
)
PREDICTIONS_SHOWN = 20  # predictions that the terminal shows
RECALLS = ("class", "records", "recall, %", "95 % interval")
Resize = Annotated[
    bool, typer.Option("--resize", help="Crop and shrink images of another size.")
]
Column = Annotated[
    str,
    typer.Option(help="The column of a table with the text. Default: as in training."),
]
Strict = Annotated[
    bool,
    typer.Option("--strict", help="Stop at an image of a folder that cannot be read."),
]

app = typer.Typer()


@app.command(
    epilog=examples(
        (
            "fedaux export runs/digits-fedaux-seed0            # writes "
            "runs/digits-fedaux-seed0/model/cnn-0"
        ),
        (
            "fedaux export runs/digits-fedaux-seed0 --out digits --onnx   # with a "
            "graph for ONNX Runtime"
        ),
    )
)
def export(
    run: Annotated[Path, typer.Argument(help="The folder of a finished run.")],
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for the models, one each. Default: RUN/model."),
    ] = None,
    onnx: Annotated[
        bool,
        typer.Option(
            "--onnx", help="Also write model.onnx, checked with ONNX Runtime."
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Write the trained networks of a run with a model card: weights, classes,
    accuracy, privacy, how to use them.
    """
    from fedaux.report.busy import busy

    work = "exporting, with a graph for ONNX Runtime" if onnx else "exporting"
    with busy(console_for(as_json), work):
        from fedaux.core.metrics import format_percent
        from fedaux.export.export import export_model as export_run
        from fedaux.export.model import read_card

        folders = export_run(run, out, onnx)
    cards = {folder: read_card(folder) for folder in folders}
    if as_json:
        models = [_summary(folder, card) for folder, card in cards.items()]
        print_json({"models": models})
        return
    console = console_for(as_json)
    for folder, card in cards.items():
        metrics = card["metrics"]
        line = f"{folder}: not tested at the server"
        if "accuracy" in metrics:
            accuracy = format_percent(metrics["accuracy"])
            count = metrics["test_records"]
            line = f"{folder}: accuracy {accuracy} on {count} test records"
        console.print(line, markup=False, soft_wrap=True)
        if metrics["warning"]:
            _print_warning(console, metrics["warning"])
    statement = cards[folders[0]]["privacy"]["statement"]
    console.print(f"[bold]Privacy.[/bold] {statement}", soft_wrap=True)
    console.print(
        "README.md is the model card. Choose a licence in it before you publish."
    )


@app.command(
    epilog=examples(
        (
            "fedaux predict digits/cnn-0 scan.png photos/ --resize        # image "
            "files and folders"
        ),
        (
            "fedaux predict digits/cnn-0 photos --out predictions.csv     # all of a "
            "folder, or .json"
        ),
        (
            "fedaux predict digits/cnn-0 x.npy --out predictions.csv      # an array, "
            "all rows"
        ),
        "fedaux predict topics/encoder-0 letters.csv --column body    # texts",
        (
            "fedaux predict heart/linear-0 new.csv --id patient           # a table "
            "with the columns of training"
        ),
        "fedaux predict heart/linear-0 new.csv --keep --out all.csv   # and its columns",
    )
)
def predict(
    model: Annotated[Path, typer.Argument(help="The folder of an exported model.")],
    inputs: Annotated[
        list[Path],
        typer.Argument(
            metavar="INPUT...", help="Images, folders, .npy, .npz, .csv, .txt …"
        ),
    ],
    top: Annotated[
        int, typer.Option(min=1, help="How many classes to name for each record.")
    ] = 3,
    out: Annotated[
        Path | None, typer.Option(help="Write all predictions to this .csv or .json.")
    ] = None,
    resize: Resize = False,
    column: Column = "",
    id_column: Annotated[
        str,
        typer.Option(
            "--id", help="The column of a table of numbers that names its records."
        ),
    ] = "",
    keep: Annotated[
        bool,
        typer.Option(
            "--keep",
            help="Write the table's columns beside its predictions. Needs --out.",
        ),
    ] = False,
    strict: Strict = False,
    as_json: Json = False,
) -> None:
    """Classify new records with an exported model."""
    from fedaux.export.input_files import InputReader
    from fedaux.export.model import Model
    from fedaux.report.terminal import results_table

    loaded = Model.from_pretrained(model)
    reader = InputReader(
        loaded.record_spec,
        resize,
        column or _column(loaded),
        strict,
        loaded.schema,
        id_column,
    )
    kept = _own_columns(loaded, inputs, out) if keep else {}
    predictions: list[dict[str, Any]] = []
    with _bar("classified", reader.total(inputs)) as advance:
        for names, x in reader.blocks(inputs):
            predictions += _named(loaded, names, x, top)
            advance(len(predictions))
    for name, values in kept.items():
        for prediction, value in zip(predictions, values, strict=True):
            prediction.setdefault("record", {})[name] = value
    table = {
        "model": str(model),
        "classes": list(loaded.classes),
        "predictions": predictions,
        "skipped": [str(file) for file in reader.skipped],
    }
    if out is not None:
        _write(table, out)
    if as_json:
        print_json(table)
        return
    console = console_for(as_json)
    _print_skipped(console, reader.skipped)
    title = f"{len(predictions)} records"
    if len(predictions) > PREDICTIONS_SHOWN:
        title += f", the first {PREDICTIONS_SHOWN}"
    rows = [_row(prediction) for prediction in predictions[:PREDICTIONS_SHOWN]]
    header = ("input", "class", "probability", "or else")
    console.print(results_table(title, header, rows))
    if out is not None:
        console.print(f"All predictions are in {escape(str(out))}.", soft_wrap=True)
    elif len(predictions) > PREDICTIONS_SHOWN:
        console.print("--out predictions.csv writes all of them.")


@app.command(
    epilog=examples(
        (
            "fedaux evaluate digits/cnn-0 held-out                  # a folder of "
            "images for each class"
        ),
        (
            "fedaux evaluate digits/cnn-0 held-out --page page.html # with the "
            "confusion as a picture"
        ),
        (
            "fedaux evaluate digits/cnn-0 hospitals                 # "
            "hospitals/NAME/CLASS/*.png: each separately as well"
        ),
        "fedaux evaluate topics/encoder-0 letters.csv --label topic",
    )
)
def evaluate(
    model: Annotated[Path, typer.Argument(help="The folder of an exported model.")],
    data: Annotated[
        Path,
        typer.Argument(
            metavar="DATA",
            help="Labelled images, one folder per class, or .npz, .csv …",
        ),
    ],
    page: Annotated[
        Path | None,
        typer.Option(help="Write an HTML page with the confusion as a picture."),
    ] = None,
    resize: Resize = False,
    column: Column = "",
    label: Annotated[
        str, typer.Option(help="The column of a table with the class.")
    ] = "label",
    strict: Strict = False,
    as_json: Json = False,
) -> None:
    """Measure an exported model on labelled records: each result with its baseline,
    also per class and per site.
    """
    from fedaux.export.evaluation import evaluate_model, was_trained_on
    from fedaux.export.input_files import InputReader
    from fedaux.export.model import Model
    from fedaux.report.model_pages import (
        FIGURES,
        SITE_COLUMNS,
        figure_rows,
        recall_rows,
        site_rows,
        write_evaluation_page,
    )
    from fedaux.report.terminal import results_table

    loaded = Model.from_pretrained(model)
    reader = InputReader(
        loaded.record_spec, resize, column or _column(loaded), strict, loaded.schema
    )
    with _bar("evaluated", None) as advance:
        evaluation = evaluate_model(
            loaded, data, reader=reader, label=label, on_records=advance
        )
    trained_on = was_trained_on(loaded, data)
    if page is not None:
        title = f"{model.name} on {data.name}"
        write_evaluation_page(page, title, loaded.classes, evaluation)
    if as_json:
        result: dict[str, Any] = {"model": str(model), "data": str(data)}
        result |= evaluation.to_dict(loaded.classes)
        result["trained_on"] = trained_on
        if page is not None:
            result["page"] = str(page)
        print_json(result)
        return
    console = console_for(as_json)
    _print_skipped(console, evaluation.skipped)
    total = evaluation.total
    if trained_on:
        _print_warning(console, TRAINED_ON)
    if warning := total.collapse(loaded.classes):
        _print_warning(console, warning)
    count = int(total.table.sum())
    title = f"{model.name} on {count:,} records of {data}"
    console.print(results_table(title, FIGURES, figure_rows(total)))
    if evaluation.sites:
        sites = site_rows(evaluation.sites)
        console.print(results_table("Sites, in %", SITE_COLUMNS, sites))
    classes = recall_rows(total, loaded.classes)
    console.print(results_table("Classes", RECALLS, classes))
    if page is not None:
        console.print(f"Page: [bold]{escape(str(page))}[/bold]", soft_wrap=True)


@contextmanager
def _bar(what: str, total: int | None) -> Iterator[Callable[..., None]]:
    """A bar on standard error while records are read. `advance(done)` or `advance(done,
    total)` moves it.
    """
    from rich.progress import Progress

    console = Console(stderr=True)
    with Progress(
        console=console, transient=True, disable=not console.is_terminal
    ) as bars:
        task = bars.add_task(what, total=total)

        def advance(done: int, of: int | None = None) -> None:
            if of:
                bars.update(task, total=of)
            bars.update(task, completed=done)

        yield advance


def _print_warning(console: Console, warning: str) -> None:
    console.print(
        f"[bold yellow]Warning:[/bold yellow] {escape(warning)}.", soft_wrap=True
    )


def _print_skipped(console: Console, skipped: Sequence[Path]) -> None:
    if not skipped:
        return
    names = ", ".join(map(str, skipped[:3]))
    if len(skipped) > 3:
        names += " …"
    warning = (
        f"{len(skipped)} of the files could not be read and were left out: {names}. "
        "Use --strict to stop there instead."
    )
    console.print(f"[bold yellow]{escape(warning)}[/bold yellow]", soft_wrap=True)


def _summary(folder: Path, card: dict[str, Any]) -> dict[str, Any]:
    files = [file for file in folder.rglob("*") if file.is_file()]
    return {
        "folder": str(folder),
        "prototype": card["prototype"],
        "metrics": card["metrics"],
        "privacy": card["privacy"],
        "files": sorted(str(file.relative_to(folder)) for file in files),
    }


def _column(model: Model) -> Any:
    """What the text's column was called in training: one name or several."""
    options = dict(model.card["config"]["data"]["options"])
    return options.get("text", "text")


def _named(model: Model, names: list[str], x: Any, top: int) -> list[dict[str, Any]]:
    """For each record its name and the most probable classes."""
    import numpy as np

    probabilities = model.predict(x)
    order = np.argsort(-probabilities, axis=1, kind="stable")[:, :top]
    predictions = []
    for name, row, best in zip(names, probabilities, order, strict=True):
        classes = []
        for index in best:
            probability = float(row[index])
            classes.append({"class": model.classes[index], "probability": probability})
        predictions.append({"input": name, "top": classes})
    return predictions


def _own_columns(
    model: Model, inputs: Sequence[Path], out: Path | None
) -> dict[str, list[str]]:
    """All columns of the tables to classify, one after the other."""
    from fedaux.core.errors import ArgumentError
    from fedaux.data.table_files import all_columns

    if model.schema is None:
        raise ArgumentError(
            "Cannot use --keep: only the model of a table has columns. Leave it out."
        )
    if out is None:
        raise ArgumentError(
            "Cannot use --keep: there is no file to write. Add --out FILE."
        )
    columns: dict[str, list[str]] = {}
    for path in inputs:
        found = all_columns(path, model.schema.for_file(path).header)
        if columns and list(found) != list(columns):
            raise ArgumentError(
                f"Cannot use --keep: {path} and {inputs[0]} have different columns. "
                "Run `fedaux predict` for each file."
            )
        for name, values in found.items():
            columns.setdefault(name, []).extend(values)
    return columns


def _row(prediction: dict[str, Any]) -> tuple[str, str, str, str]:
    """A prediction as a row of the table in the terminal."""
    best, *others = prediction["top"]
    rest = [f"{other['class']} {other['probability']:.3f}" for other in others]
    return (
        escape(prediction["input"]),
        escape(best["class"]),
        f"{best['probability']:.3f}",
        escape(", ".join(rest)),
    )


def _write(table: dict[str, Any], out: Path) -> None:
    """JSON, or CSV with one line a record: its name and the columns that are kept, then
    class and probability of each rank.
    """
    from fedaux.core.io import write_atomically
    from fedaux.report.tables import to_csv

    if out.suffix == ".json":
        write_atomically(out, json.dumps(table, indent=1, ensure_ascii=False).encode())
        return
    predictions = table["predictions"]
    ranks = max((len(prediction["top"]) for prediction in predictions), default=0)
    kept = list(predictions[0].get("record", {})) if predictions else []
    header = ["input", *kept]
    for rank in range(1, ranks + 1):
        header += [f"class_{rank}", f"probability_{rank}"]
    lines = [header]
    for prediction in predictions:
        line = [prediction["input"], *prediction.get("record", {}).values()]
        for ranked in prediction["top"]:
            line += [ranked["class"], f"{ranked['probability']:.6g}"]
        lines.append(line)
    write_atomically(out, to_csv(lines).encode())
