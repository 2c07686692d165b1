"""An exported model on labelled records: folders of classes, of sites, arrays and
tables.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fedaux.core.metrics import Evaluation
from fedaux.data.federated import open_data
from fedaux.data.records import RecordsError
from fedaux.export.evaluation import evaluate_model, was_trained_on
from fedaux.export.export import export_model
from fedaux.export.input_files import InputReader, UnreadableError
from fedaux.export.model import Model
from helpers.runs import finished_run
from helpers.tiny import CNN, TINY_CONFIG


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    folder = tmp_path_factory.mktemp("evaluated")
    run = finished_run(folder / "run", replace(TINY_CONFIG, prototypes=(CNN,)))
    return Model.from_pretrained(export_model(run.folder, folder / "model")[0])


def write(folder: Path, sites: tuple[str, ...] = ("",)) -> Evaluation:
    """Sixty test images as files, dealt to sites; what a model must be measured on."""
    test = open_data(TINY_CONFIG).test
    for i, (x, y) in enumerate(
        zip(test.gather(slice(0, 60)), test.labels[:60], strict=True)
    ):
        place = folder / sites[i % len(sites)] / str(y)
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(x[..., 0]).save(place / f"{i:03}.png")
    return test


def test_figures_are_those_of_the_answers(model: Model, tmp_path: Path) -> None:
    test, seen = write(tmp_path / "scans"), list[tuple[int, int]]()
    found = evaluate_model(
        model, tmp_path / "scans", on_records=lambda *done: seen.append(done)
    )
    wanted = Evaluation.of(model.predict(test.gather(slice(0, 60))), test.labels[:60])
    assert np.array_equal(found.total.table, wanted.table)
    assert found.total.auc == pytest.approx(wanted.auc)
    assert found.sites == {}
    assert seen[-1] == (60, 60)
    assert len(found.wrong) == 60 - np.trace(wanted.table)
    name, true, answer = found.wrong[0]
    assert Path(name).parent.name == true != answer
    np.savez(tmp_path / "arrays.npz", x=test.gather(slice(0, 60)), y=test.labels[:60])
    assert np.array_equal(
        evaluate_model(model, tmp_path / "arrays.npz").total.table, wanted.table
    )


def test_sites_are_measured_one_by_one(model: Model, tmp_path: Path) -> None:
    write(tmp_path / "scans", ("north", "south"))
    found = evaluate_model(model, tmp_path / "scans")
    assert list(found.sites) == ["north", "south"]
    assert np.array_equal(
        found.total.table, sum(one.table for one in found.sites.values())
    )
    assert int(found.sites["north"].table.sum()) == 30
    table = found.to_dict(model.classes)
    assert set(table["sites"]) == {"north", "south"}
    assert {
        "accuracy",
        "balanced_accuracy",
        "majority",
        "classes",
        "warning",
        "confusion",
    } <= set(table)


def test_damaged_images_are_left_out_or_stop(model: Model, tmp_path: Path) -> None:
    write(tmp_path / "scans")
    broken = next((tmp_path / "scans").rglob("007.png"))
    broken.write_bytes(b"no image")
    found = evaluate_model(model, tmp_path / "scans")
    assert (int(found.total.table.sum()), found.skipped) == (59, (broken,))
    with pytest.raises(UnreadableError, match=r"007.png as an image: "):
        evaluate_model(
            model,
            tmp_path / "scans",
            reader=InputReader(model.record_spec, strict=True),
        )


def test_folders_that_are_no_class_are_named(model: Model, tmp_path: Path) -> None:
    write(tmp_path / "scans")
    (tmp_path / "scans" / "3").rename(tmp_path / "scans" / "three")
    with pytest.raises(
        RecordsError, match="has folders three, which are no class of this model"
    ):
        evaluate_model(model, tmp_path / "scans")
    with pytest.raises(RecordsError, match="Give a folder of images"):
        evaluate_model(model, tmp_path / "scans.txt")


def test_records_of_training_are_known_by_their_folder(
    model: Model, tmp_path: Path
) -> None:
    """The folders of training gave 93.6 % without a warning."""

    def trained(place: Path, **data: object) -> bool:
        settings = {**model.card["config"]["data"], "path": "", **data}
        card = {**model.card, "config": {**model.card["config"], "data": settings}}
        return was_trained_on(replace(model, card=card), place)

    scans = tmp_path / "scans"
    assert trained(scans, path=str(scans))
    assert trained(scans / "berlin", path=str(scans))
    assert trained(tmp_path, path=str(scans))
    assert not trained(tmp_path / "others", path=str(scans))
    assert not trained(scans / "test", path=str(scans))
    assert not trained(scans, path=str(scans), partition="own")  # the server's test
    assert not trained(scans)
