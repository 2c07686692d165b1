"""What a client loads for an order: its own records, and an extractor that is to the
bit the one asked for.
"""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

from fedaux.client.loading import (
    load_features,
    load_records,
    load_task,
)
from fedaux.client.loading import ordered_extractor as extractor
from fedaux.client.site import Site
from fedaux.config.prototype import PrototypeSpec
from fedaux.config.schema import Config
from fedaux.config.sections import (
    AuxConfig,
    DataConfig,
    FederationConfig,
    PretrainConfig,
)
from fedaux.core.failures import OrderError
from fedaux.core.io import DECODED
from fedaux.data.arrays import SOURCE
from fedaux.data.federated import open_data
from fedaux.models import flatten_state
from fedaux.server.preparation import initial_state
from fedaux.server.run_state import RunState
from fedaux.server.server import Server, make_server

CONFIG = Config(
    method="fedavg",
    head_only=True,
    prototypes=(PrototypeSpec.of("mlp", features=8, hidden=8),),
    data=DataConfig(clients=3, alpha=1.0),
    aux=AuxConfig(limit=100),
    pretrain=PretrainConfig(epochs=0),
)
SHAPE = (1, 8, 8)


@pytest.fixture
def server(tmp_path: Path) -> Server:
    return make_server(CONFIG, cache=tmp_path / "cache")


@pytest.fixture
def state(server: Server) -> RunState:
    state = initial_state(server)
    server.restore(state)
    return state


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(CONFIG, tmp_path / "clients", ("client-001",))


def test_a_task_is_the_ordered_model_and_the_rows_it_is_for(
    server: Server, state: RunState, site: Site
) -> None:
    order = server.orders.train(state, "client-001")
    model, rows = load_task(order, site)
    assert rows.gather().shape == (len(open_data(CONFIG).client(1)), 8)
    assert np.array_equal(
        flatten_state(model)["parameters"], order.weights["parameters"]
    )
    assert load_task(order, site)[0] is model  # one for all orders


def test_features_are_kept_for_orders_without_an_extractor(
    server: Server, state: RunState, site: Site
) -> None:
    order = server.orders.train(state, "client-001")
    features = load_features(order, site)
    assert np.array_equal(load_features(replace(order, extractor={}), site), features)
    for file in site.feature_folder("client-001").glob("features-*"):
        file.unlink()
    with pytest.raises(OrderError, match="was not sent the extractor"):
        load_features(replace(order, extractor={}), site)
    assert site.feature_folder("client-001") == site.account_folder("client-001")


def test_an_extractor_is_what_its_hash_says(server: Server, state: RunState) -> None:
    order = server.orders.train(state, "client-001")
    found = flatten_state(extractor(order, order.h0, SHAPE))
    assert all(
        np.array_equal(array, order.extractor[name]) for name, array in found.items()
    )
    with pytest.raises(OrderError, match="not the one asked for"):
        extractor(order, order.h0[::-1], SHAPE)


def test_what_a_site_decodes_stays_in_its_vault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder of images at a real site: the decoded copy is as private as the
    files.
    """
    monkeypatch.setenv("FEDAUX_CACHE", str(tmp_path / "shared"))
    for name in ("ill", "well"):
        (tmp_path / "scans" / name).mkdir(parents=True)
        for number in range(2):
            Image.fromarray(np.full((6, 6, 3), number, np.uint8)).save(
                tmp_path / "scans" / name / f"{number}.png"
            )
    data = DataConfig(
        "images",
        str(tmp_path / "scans"),
        (("size", 6),),
        ("ill", "well"),
        partition="own",
    )
    config = Config(data=data, federation=FederationConfig(sites=("berlin",)))
    site = Site(config, tmp_path / "clients", ("berlin",))
    records = load_records(site, SimpleNamespace(client="berlin"))  # type: ignore[arg-type]
    assert len(records) == 4
    assert not (tmp_path / "shared").exists()
    (folder,) = (tmp_path / "clients" / DECODED).iterdir()
    assert folder.name.startswith("images-")
    assert (folder / SOURCE).read_text() == str(tmp_path / "scans" / "ill")
    assert folder.stat().st_mode & 0o077 == 0
    assert folder.parent.stat().st_mode & 0o077 == 0
