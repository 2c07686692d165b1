"""A model on its own: the same answers wherever its folder is, and a clear word where
it cannot be read or asked.
"""

import hashlib
import json
import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from fedaux.config.prototype import PrototypeSpec
from fedaux.core.errors import Exit
from fedaux.data.federated import open_data
from fedaux.data.records import RecordsError
from fedaux.export.export import export_model
from fedaux.export.model import Model, ModelError
from helpers.runs import finished_run
from helpers.tiny import TINY_CONFIG


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    return finished_run(tmp_path_factory.mktemp("model")).folder


@pytest.fixture
def folder(original: Path, tmp_path: Path) -> Path:
    """A model that a test may damage."""
    return export_model(original, tmp_path)[0]


def edit(folder: Path, change: Callable[[dict], object]) -> None:
    card = json.loads((folder / "card.json").read_text())
    change(card)
    (folder / "card.json").write_text(json.dumps(card))


def test_it_is_found_from_above_and_in_its_run(folder: Path, original: Path) -> None:
    export_model(original)
    records = open_data(TINY_CONFIG).test.gather(slice(0, 20))
    answers = [
        Model.from_pretrained(where).predict(records)
        for where in (folder, folder.parent, original)
    ]
    assert np.array_equal(answers[0], answers[1])
    assert np.array_equal(answers[0], answers[2])
    shutil.copytree(folder, folder.parent / "another")
    with pytest.raises(
        ModelError, match=r"holds several models. Choose one of .*another, .*mlp-0"
    ):
        Model.from_pretrained(folder.parent)


def test_probabilities(folder: Path) -> None:
    model = Model.from_pretrained(str(folder))
    records = open_data(TINY_CONFIG).test.gather(slice(0, 600))
    found = model.predict(records)
    assert found.shape == (len(records), len(model.classes)) == (359, 10)
    assert found.dtype == np.float32
    assert found.sum(axis=1) == pytest.approx(1, abs=1e-5)
    # rows do not mix
    assert model.predict(records[100:101]) == pytest.approx(found[100:101], abs=1e-6)
    assert model.predict(records[:0]).shape == (0, 10)
    assert not model.network.training


def test_saved_again_it_is_the_same(folder: Path, tmp_path: Path) -> None:
    model = Model.from_pretrained(folder)
    again = Model.from_pretrained(model.save_pretrained(tmp_path / "again" / "mlp-0"))
    assert again.card == model.card
    assert (tmp_path / "again/mlp-0/model.safetensors").read_bytes() == (
        folder / "model.safetensors"
    ).read_bytes()


def test_a_model_refuses_other_records(folder: Path) -> None:
    with pytest.raises(
        RecordsError,
        match=r"takes uint8 images of shape \(N, 8, 8, 1\), not of shape \(2, 9, 8, 1\)",
    ):
        Model.from_pretrained(folder).predict(np.zeros((2, 9, 8, 1), np.uint8))


def other_weights(folder: Path) -> None:
    """Whole and readable, but not those of this card."""
    tensors = load_file(folder / "model.safetensors")
    save_file(
        {name: tensor + 1 for name, tensor in tensors.items()},
        folder / "model.safetensors",
    )


def cut(folder: Path) -> None:
    data = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(data[:-4])


DAMAGE: dict[str, tuple[Callable[[Path], object], str]] = {
    "no card": (
        lambda f: (f / "card.json").unlink(),
        "holds no model (card.json is missing). Run `fedaux export RUN`",
    ),
    "no folder": (shutil.rmtree, "holds no model"),
    "no JSON": (lambda f: (f / "card.json").write_text("{"), "card.json is damaged"),
    "no table": (lambda f: (f / "card.json").write_text("[]"), "(format None, not 1)"),
    "no weights": (
        lambda f: (f / "model.safetensors").unlink(),
        "model.safetensors is missing",
    ),
    "cut": (cut, "model.safetensors is not the file that the card was written for"),
    "other weights": (
        other_weights,
        "model.safetensors is not the file that the card was written for",
    ),
    "format": (
        lambda f: edit(f, lambda card: card.update(format=9)),
        "another version of fedaux (format 9, not 1)",
    ),
    "no classes": (lambda f: edit(f, lambda card: card.pop("classes")), "no 'classes'"),
    "more classes": (
        lambda f: edit(f, lambda card: card["classes"].append("x")),
        "size mismatch for head.weight",
    ),
    "prototype": (
        lambda f: edit(f, lambda card: card["prototype"].update(name="mpl")),
        "the prototype 'mpl': it is unknown (did you mean 'mlp'?)",
    ),
    "option": (
        lambda f: edit(f, lambda card: card["prototype"]["options"].update(depth=3)),
        "the option of prototype 'mlp' 'depth': it is unknown",
    ),
    "options": (
        lambda f: edit(f, lambda card: card["prototype"]["options"].update(hidden=[8])),
        "options of prototype 'mlp' must be numbers or words",
    ),
    "own network": (
        lambda f: edit(
            f,
            lambda card: card["prototype"].update(
                name="no_such_module:network", options={}
            ),
        ),
        (
            "Cannot find prototype 'no_such_module:network': there is no module "
            "'no_such_module'. Put its folder on PYTHONPATH"
        ),
    ),
    "kind": (
        lambda f: edit(f, lambda card: card["record"].update(kind="sound")),
        "no records of kind 'sound'",
    ),
    "shape": (
        lambda f: edit(f, lambda card: card["record"].update(shape=["a", 8, 1])),
        "shape ('a', 8, 1)",
    ),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_what_cannot_be_read(folder: Path, damage: str) -> None:
    do, message = DAMAGE[damage]
    do(folder)
    with pytest.raises(ModelError) as caught:
        Model.from_pretrained(folder)
    assert message in str(caught.value)
    assert str(folder) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.value.code == Exit.FOLDER


def test_weights_that_are_no_safetensors(folder: Path) -> None:
    """Also where the card was made for them."""
    (folder / "model.safetensors").write_bytes(b"damaged")
    edit(
        folder,
        lambda card: card["weights"].update(
            sha256=hashlib.sha256(b"damaged").hexdigest()
        ),
    )
    with pytest.raises(ModelError, match=r"Cannot load the model in .*: .*[Hh]eader"):
        Model.from_pretrained(folder)


def test_a_run_that_was_not_exported(tmp_path: Path) -> None:
    made = finished_run(tmp_path)
    with pytest.raises(
        ModelError,
        match=r"is a run that was not exported yet\. Run `fedaux export",
    ):
        Model.from_pretrained(made.folder)


def test_a_network_of_the_user_s_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own_network_of_test.py").write_text(
        "from torch import nn\nfrom fedaux.models import Extractor\n\n"
        "def tied(shape, width=8):\n"
        "    layer = nn.Linear(width, width)\n"
        "    return Extractor(nn.Flatten(), nn.Linear(64, width), layer, nn.ReLU(), "
        "layer, width=width)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    spec = PrototypeSpec.of("own_network_of_test:tied", width=6)
    made = finished_run(
        tmp_path / "run", replace(TINY_CONFIG, prototypes=(spec,), rounds=1)
    )
    (folder,) = export_model(made.folder)
    assert folder.name == "tied-0"
    model, test = Model.from_pretrained(folder), open_data(TINY_CONFIG).test
    found = model.predict(test.gather()).argmax(axis=1)
    assert float((found == test.labels).mean()) == made.accuracy
    monkeypatch.undo()
    sys.modules.pop("own_network_of_test")
    with pytest.raises(
        ModelError,
        match=r"no module 'own_network_of_test'\. Put its folder on PYTHONPATH",
    ):
        Model.from_pretrained(folder)


def test_rows_of_numbers(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((300, 5)), rng.integers(0, 3, 300)
    x[np.arange(300), y] += 3
    for name, array in (("x", x), ("y", y)):
        np.save(tmp_path / f"{name}.npy", array)
    (tmp_path / "classes.txt").write_text("north\nsouth\nwest")
    data = replace(TINY_CONFIG.data, source="npy", path=str(tmp_path))
    made = finished_run(tmp_path / "run", replace(TINY_CONFIG, rounds=1, data=data))
    model = Model.from_pretrained(export_model(made.folder)[0])
    assert model.card["record"] == {"kind": "numbers", "shape": [5], "dtype": "float32"}
    assert model.classes == ("north", "south", "west")
    assert model.predict(x.tolist()).shape == (300, 3)
    assert (
        "tabular-classification"
        in (made.folder / "model" / "mlp-0" / "README.md").read_text()
    )
