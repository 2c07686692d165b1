"""From keywords to a configuration: what goes in becomes names, and what is wrong is
said before anything runs.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

import fedaux
from fedaux import Config, ConfigError, Corpus, FedauxError, Method, Records
from fedaux.config.sections import DataConfig
from fedaux.core import here
from fedaux.data.federated import open_data
from fedaux.runs.arguments import make_config

RNG = np.random.default_rng(0)
X = RNG.integers(0, 256, (60, 8, 8, 1), dtype=np.uint8)
Y = np.arange(60) % 3


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.ReLU())
        self.fc = nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.fc(self.body(x))
        return out


class Softmax(Net):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x).softmax(1)


def test_rows_of_numbers_are_scaled() -> None:
    """Nothing would scale the columns for `mlp`, nor pre-train it; images and texts keep
    it (`test_columns_of_any_scale_are_scaled_like_public_ones`).
    """
    numbers = RNG.normal(size=(60, 4))

    def network(method: str, x: Any = numbers, **keywords: Any) -> str:
        return make_config(method, data=(x, Y), **keywords).prototypes[0].name

    assert network("private-head") == "linear"
    assert network("ridge") == "linear"
    assert network("fedaux", head_only=True) == "linear"
    assert network("fedaux") == "tabular"
    assert network("fedaux", X) == "mlp"
    assert network("fedaux", model="mlp") == "mlp"
    assert network("private-head", X) == "mlp"
    assert network("private-head", model="mlp") == "mlp"
    assert network("private-head", prototypes=["cnn"]) == "cnn"
    assert network("private-head", [f"text {number}" for number in range(60)]) == "mlp"


def test_keywords_are_settings() -> None:
    config = make_config(
        "FedAUX",
        clients=20,
        alpha=0.1,
        epsilon=1,
        rounds=np.int64(5),
        local={"lr": 0.1},
        model="cnn",
    )
    expected = {
        "method": "fedaux",
        "rounds": 5,
        "prototypes": ["cnn"],
        "data": {"clients": 20, "alpha": 0.1},
        "privacy": {"epsilon": 1.0},
        "local": {"lr": 0.1},
    }
    assert config == Config.from_dict(expected)
    assert (
        make_config(config, rounds=7, local={"epochs": 2}).local
        == Config(local={"lr": 0.1, "epochs": 2}).local
    )
    assert make_config(data=DataConfig(clients=4)).data.clients == 4


DATASETS: dict[str, Any] = {
    "pair": (X, Y),
    "lists": (X.tolist(), Y.tolist()),
    "tensors": (torch.from_numpy(X).permute(0, 3, 1, 2) / 255.0, torch.from_numpy(Y)),
    "corpus": Corpus(Records(X, Y)),
    "records": Records(X, Y),
    "torch": TensorDataset(
        torch.from_numpy(X).permute(0, 3, 1, 2) / 255.0, torch.from_numpy(Y)
    ),
    "names": (X, np.array(["a", "b", "c"])[Y]),
}


@pytest.mark.parametrize("kind", DATASETS)
def test_data_of_every_kind_are_the_same_records(kind: str) -> None:
    config = make_config(
        "fedavg",
        data=DATASETS[kind],
        test=(X[:6], DATASETS["names" if kind == "names" else "pair"][1][:6]),
    )
    data = open_data(config)
    assert data.private.shape == (1, 8, 8)
    assert np.array_equal(data.test.gather(), X[:6])
    assert len(data.classes) == 3
    assert make_config("fedavg", data=DATASETS[kind]) == make_config(
        "fedavg", data=DATASETS[kind]
    )


def test_a_hugging_face_dataset() -> None:
    datasets = pytest.importorskip("datasets")
    rows = datasets.Dataset.from_dict(
        {"x": RNG.normal(size=(30, 4)).tolist(), "label": [0, 1, 2] * 10}
    )
    assert open_data(make_config("fedavg", data=rows)).private.shape == (4,)


def test_a_list_has_the_data_of_each_client() -> None:
    parts = [(X[:30], Y[:30]), (X[30:50], Y[30:50]), (X[50:], Y[50:])]
    config = make_config("fedavg", data=parts, public=X[:20] // 2)
    data = open_data(config)
    assert (config.data.partition, len(data.parts)) == ("given", 3)
    for client, (x, _) in enumerate(parts):
        own = {row.tobytes() for row in x}
        assert all(row.tobytes() in own for row in data.client(client).gather())


def test_texts_and_files(tmp_path: Path) -> None:
    np.savez(tmp_path / "d.npz", x=X, y=Y)
    assert make_config(data=tmp_path / "d.npz").data.source == "npz"
    assert make_config(
        data="digits", public=["one text", "another"]
    ).aux.source.startswith(here.PREFIX)
    (tmp_path / "scans" / "ill").mkdir(parents=True)
    assert dict(make_config(data=tmp_path / "scans", size=48).data.options) == {
        "size": 48
    }


def test_a_class_has_a_name_that_can_be_imported_or_one_of_this_session() -> None:
    assert (
        make_config(model=nn.Identity).prototypes[0].name
        == "torch.nn.modules.linear:Identity"
    )

    def local_class(width: int) -> Any:
        return lambda: nn.Linear(4, width)

    one, other = (
        make_config(model=local_class(width)).prototypes[0].name for width in (3, 4)
    )
    assert one.startswith(here.PREFIX)
    assert one != other
    assert make_config(model=local_class(3)).prototypes[0].name == one


def test_settings_with_names_are_written_and_others_named(tmp_path: Path) -> None:
    config = make_config(
        "scaffold+p", rounds=3, model=["cnn", {"name": "cnn", "width": 8}], alpha=0.5
    )
    assert Config.load(config.save(tmp_path / "run.toml")) == config
    with pytest.raises(
        ConfigError,
        match=r"prototypes, data\.source, aux\.source cannot be written, being objects",
    ):
        make_config(data=(X, Y), public=X, model=lambda: Net()).save(
            tmp_path / "own.toml"
        )


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "misspelt keyword": (
        {"round": 3},
        "the keyword 'round': it is unknown (did you mean 'rounds'?)",
    ),
    "unknown keyword": (
        {"zzz": 3},
        "the keyword 'zzz': it is unknown. Choose from data, public",
    ),
    "ambiguous keyword": (
        {"lr": 0.1},
        "it is not one setting and may be pretrain.lr, local.lr, distill.lr",
    ),
    "fractional rounds": ({"rounds": 1.5}, "rounds must be a whole number, not 1.5."),
    "no rounds": ({"rounds": 0}, "rounds must be at least 1, not 0."),
    "text for a number": ({"rounds": "3"}, "rounds must be a whole number, not '3'."),
    "true for a number": ({"rounds": True}, "rounds must be a whole number, not True."),
    "negative epsilon": ({"epsilon": -1}, "privacy.epsilon must be above 0, not -1.0"),
    "nan": ({"alpha": float("nan")}, "data.alpha must be above 0, not nan"),
    "no clients": ({"clients": 0}, "data.clients must be at least 1, not 0."),
    "fraction above one": (
        {"fraction": 2},
        "fraction must be above 0 and at most 1, not 2.0.",
    ),
    "section as text": ({"local": "adam"}, "local must be a table"),
    "key of a section": (
        {"local": {"optimiser": "sgd"}},
        "(did you mean 'local.optimizer'?)",
    ),
    "value of a section": (
        {"local": {"epochs": 0}},
        "local.epochs must be at least 1, not 0.",
    ),
    "choice": (
        {"local": {"optimizer": "sdg"}},
        "the local.optimizer 'sdg': it is unknown (did you mean 'sgd'?)",
    ),
    "device": ({"device": "tpu"}, "device must be auto, cpu, cuda"),
    "method": (
        {"method": "fedauxx"},
        "the method 'fedauxx': it is unknown (did you mean 'fedaux'?)",
    ),
    "method of another type": (
        {"method": 3},
        "it must be a name such as 'fedaux', a fedaux.Method",
    ),
    "options of a method": (
        {"method": "fedavg", "method_options": {"beta": 0.5}},
        "FedAvg has no options",
    ),
    "option of a method": (
        {"method": "fedavgm", "method_options": {"betta": 0.5}},
        "method_options.beta",
    ),
    "optimiser of a method": (
        {"method": "scaffold", "local": {"optimizer": "adam"}},
        "SCAFFOLD is not meant for adam",
    ),
    "pair without labels": ({"data": X}, "it has no labels. Give a pair (x, y)"),
    "three parts": ({"data": (X, Y, Y)}, "data: a tuple is a pair (x, y), not 3 parts"),
    "short labels": ({"data": (X, Y[:9])}, "data: x has 60 rows and y has 9 labels"),
    "one-hot labels": (
        {"data": (X, np.eye(3)[Y])},
        "such as y.argmax(axis=1) of one-hot labels",
    ),
    "missing label": ({"data": (X, [None, *Y[1:]])}, "data: y has no label in row 0"),
    "nan label": (
        {"data": (X, np.where(Y == 1, np.nan, Y))},
        "data: y has no label in row 1",
    ),
    "negative label": ({"data": (X, Y - 1)}, "data: y must be whole numbers from 0 on"),
    "fractional label": (
        {"data": (X, Y + 0.5)},
        "data: y must be whole numbers from 0 on",
    ),
    "nan in x": (
        {"data": (np.full((4, 2), np.nan), [0, 1, 0, 1])},
        "data: x: it has NaN or infinity in row 0",
    ),
    "no rows": ({"data": (X[:0], Y[:0])}, "data: x: it has no rows"),
    "objects": (
        {"data": ([object()] * 3, [0, 1, 2])},
        "data: x: it must be only numbers or only texts",
    ),
    "a number": ({"data": 3}, "data: it must be an array with one row for each record"),
    "no file": ({"data": "no/such/folder"}, "there is no no/such/folder"),
    "numbers in a list": ({"data": [1.0, 2.0]}, "a list has one entry for each client"),
    "empty list": ({"data": []}, "an empty list has data of no client"),
    "other shapes": (
        {"data": [(X, Y), (X[:, :4], Y)]},
        "data: client 1 has rows of (1, 4, 8), client 0 of (1, 8, 8)",
    ),
    "clients and list": (
        {"data": [(X, Y)] * 2, "clients": 5},
        "clients = 5: data is a list for 2 clients.",
    ),
    "test of another class": (
        {"data": (X, ["a"] * 60), "test": (X, ["b"] * 60)},
        "test: the class b is in no",
    ),
    "test alone": ({"test": (X, Y)}, "it belongs to data that are given with it"),
    "a network": (
        {"model": Net()},
        "it is a network, Net(…), and every client starts from its own. Give its class, model=Net",
    ),
    "model of another type": (
        {"model": 7},
        "it must be a name, a class of nn.Module or a function",
    ),
    "model name": (
        {"model": {"nam": "cnn"}},
        "each prototype is a name or a table with a name",
    ),
    "no model": ({"model": []}, "prototypes must name at least one network."),
    "twice the same": (
        {"model": ["cnn", "cnn"]},
        "prototypes must differ from one another.",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_use_is_named_before_anything_runs(case: str) -> None:
    arguments, message = WRONG[case]
    arguments = dict(arguments)
    method = arguments.pop("method", "fedaux")
    with pytest.raises(FedauxError) as raised:
        fedaux.run(method, **arguments)
    assert message in str(raised.value)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"data": {"clients": "3"}}, "data.clients must be a whole number, not '3'."),
        ({"rounds": 1.5}, "rounds must be a whole number, not 1.5."),
        (
            {"method_options": [("beta", 1)]},
            "method_options must be a table of options, not",
        ),
        ({"prototypes": 3}, "each prototype is a name or a table with a name"),
    ],
)
def test_a_config_is_checked_when_it_is_made(
    settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError) as raised:
        Config(**settings)
    assert message in str(raised.value)
    assert (
        Config(
            data={"clients": 3},
            prototypes=("cnn",),
            method="fedavgm",
            method_options={"beta": 0.5},
        ).data.clients
        == 3
    )


def test_a_network_that_hides_its_last_layer_is_refused() -> None:
    from fedaux.config.prototype import PrototypeSpec
    from fedaux.models import build

    assert build(PrototypeSpec(here.name_of(lambda: Net())), (1, 8, 8), 3, 0).width == 8
    with pytest.raises(
        FedauxError,
        match="Softmax: it does not return the output of its last linear layer, fc",
    ):
        build(PrototypeSpec(here.name_of(lambda: Softmax())), (1, 8, 8), 3, 0)
    with pytest.raises(FedauxError, match="Cannot find the features of ReLU"):
        build(PrototypeSpec(here.name_of(lambda: nn.ReLU())), (1, 8, 8), 3, 0)


def test_comparisons_are_checked_too(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="compare takes a list of methods"):
        fedaux.compare("fedaux")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="it needs at least one method"):
        fedaux.compare([])
    with pytest.raises(
        ConfigError, match=r"jobs = 2: it needs parts that other processes can import"
    ):
        fedaux.compare(["fedavg", Method("Mine")], tmp_path, data=(X, Y), jobs=2)


def test_float_images_of_0_to_255_are_images() -> None:
    """Pre-training refused them after all else."""
    config = make_config("fedaux", data=(X.astype(np.float32), Y))
    assert open_data(config).private.x.dtype == np.uint8


def test_long_texts_are_no_paths() -> None:
    """`public=["long text"]` was an OSError, "File name too long"."""
    texts = ["a long letter " * 400, "another one " * 400]
    config = make_config("fedaux", data=(texts, [0, 1]), public=texts)
    found = here.find(config.aux.source)
    assert found is not None
    assert list(found().train.x) == texts
    with pytest.raises(FedauxError, match="neither a path nor a source"):
        make_config("fedaux", data=(texts, [0, 1]), public=texts[0])
