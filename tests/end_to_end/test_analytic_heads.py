"""Computed heads over the federation's real messages: the head of the pooled records,
whoever holds which of them.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedaux import Config, run
from fedaux.client.features import private_outputs
from fedaux.client.sums import sum_features
from fedaux.config.prototype import PrototypeSpec
from fedaux.config.sections import DataConfig, PretrainConfig, PrivacyConfig
from fedaux.core.failures import Failure, Refusal
from fedaux.data.federated import open_data
from fedaux.data.records import Records
from fedaux.export.export import export_model
from fedaux.export.model import Model
from fedaux.messages import Sums
from fedaux.methods.analytic_heads import Ridge
from fedaux.models import HeadFeatures
from fedaux.runs.runner import in_process
from fedaux.server.preparation import initial_state
from fedaux.server.server import make_server

SPEC = PrototypeSpec.of("mlp", features=16, hidden=32)
CONFIG = Config(
    method="ridge+p",
    rounds=1,
    head_only=True,
    prototypes=(SPEC,),
    data=DataConfig(clients=7, alpha=0.01),
    pretrain=PretrainConfig(epochs=1, batch_size=128, min_crop_area=0.5, flip=False),
    privacy=PrivacyConfig(epsilon=1.0),
)
MOMENTS = PrivacyConfig(
    scorer="class-moments", embedding_dim=0, expected_records=700, epsilon=100.0
)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


def curve(config: Config, folder: Path, cache: Path) -> list[float]:
    return run(config, folder, cache=cache).curve


def test_any_split_gives_the_head_of_the_pooled_records(
    cache: Path, tmp_path: Path
) -> None:
    split = {
        "extreme": CONFIG.data,
        "even": replace(CONFIG.data, clients=3, partition="iid"),
    }
    states = {
        name: run(replace(CONFIG, data=data), tmp_path / name, cache=cache).state
        for name, data in split.items()
    }
    heads = {
        name: state.weights[SPEC.label]["parameters"] for name, state in states.items()
    }
    state = states["extreme"]
    server = make_server(CONFIG, cache=cache)
    server.restore(state)
    mapped, private = HeadFeatures(16), open_data(CONFIG).private
    mapped.standardise(state.standardisation[SPEC.label])
    features = Records(
        private_outputs(server.public.h0[SPEC.label]._load(), private), private.labels
    )
    central = Ridge().head(
        sum_features(mapped, features, 10, "moments"), lambda: np.eye(16)
    )
    pooled = np.append(central.weight.ravel(), central.bias)
    for head in heads.values():
        assert np.abs(head - pooled).max() < 1e-6 * np.abs(pooled).max()


def test_clients_join_as_they_are_chosen_and_the_rest_changes_nothing(
    cache: Path, tmp_path: Path
) -> None:
    whole = run(CONFIG, tmp_path / "whole", cache=cache)
    joined = run(
        replace(CONFIG, fraction=0.3, rounds=9), tmp_path / "joined", cache=cache
    )
    assert len(joined.state.sums_received) == 7
    assert joined.accuracy == whole.accuracy > joined.curve[0]
    bytes_ = 8 * (10 * 16 + 10 + 16 * 17 // 2)
    assert sum(result.bytes_received for result in joined.state.history) == 7 * bytes_


@pytest.mark.parametrize(
    ("changes", "least"),
    [
        ({"method": "ridge+p", "random_features": 200}, 0.7),
        ({"method": "ridge+p", "head_only": False}, 0.6),
        ({"method": "discriminant+p"}, 0.6),
        ({"method": "class-means+p"}, 0.4),
        (
            {
                "method": "class-means+p",
                "method_options": (("covariance", "identity"),),
            },
            0.4,
        ),
        ({"method": "private-head"}, 0.2),
        ({"method": "private-head", "privacy": MOMENTS}, 0.6),
        ({"method": "fedaux", "head_init": "private-head", "privacy": MOMENTS}, 0.4),
        ({"method": "fedavg+p", "head_init": "ridge"}, 0.6),
        ({"method": "fedavg+p", "head_init": "ridge", "head_only": False}, 0.4),
        ({"method": "fedavg+p", "head_init": "ridge", "random_features": 200}, 0.7),
        ({"method": "fedaux", "head_init": "class-means"}, 0.4),
        ({"method": "feddf+p", "head_init": "private-head", "head_only": False}, 0.15),
    ],
    ids=lambda value: (
        " ".join(map(str, value.values())) if isinstance(value, dict) else ""
    ),
)
def test_one_round_of_every_kind(
    changes: dict[str, object], least: float, cache: Path, tmp_path: Path
) -> None:
    """With one class at a client, where one round of averaging knows next to
    nothing.
    """
    result = run(
        replace(CONFIG, prepare="all", **changes), tmp_path / "run", cache=cache
    )  # type: ignore[arg-type]
    assert not result.state.history[0].failures
    assert result.accuracy > least
    model, test = (
        Model.from_pretrained(export_model(result.folder)[0]),
        open_data(CONFIG).test,
    )
    exported = float(
        (model.predict(test.gather()).argmax(axis=1) == test.labels).mean()
    )
    assert exported == pytest.approx(result.accuracy, abs=1.5 / len(test))


def test_the_statement_says_what_is_protected(cache: Path, tmp_path: Path) -> None:
    ridge = run(CONFIG, tmp_path / "ridge", cache=cache)
    assert (
        "sums of clients' features are sent without differential privacy"
        in ridge.statement
    )
    assert "local models" not in ridge.statement
    assert not ridge.ledger.to_dict()["weights_covered"]
    started = run(
        replace(CONFIG, method="fedavg+p", head_init="ridge"),
        tmp_path / "started",
        cache=cache,
    )
    assert "local models" in started.statement
    assert "sums of clients' features" in started.statement
    released = run(
        replace(CONFIG, method="private-head"), tmp_path / "released", cache=cache
    )
    assert "(1, 1e-05)-differentially private" in released.statement
    assert "without differential privacy" not in released.statement
    assert released.ledger.to_dict()["weights_covered"]


@pytest.mark.parametrize(
    ("own", "refuses"),
    [
        ({}, False),
        ({"method": "discriminant+p"}, False),
        ({"method": "fedavg+p", "head_init": "ridge"}, False),
        ({"method": "class-means+p"}, True),  # which sends less
        ({"method": "fedaux"}, True),
        ({"method": "private-head"}, True),
    ],
)
def test_a_client_sends_sums_only_if_its_own_settings_do(
    own: dict[str, str], refuses: bool, cache: Path, tmp_path: Path
) -> None:
    server = make_server(CONFIG, cache=cache)
    state = initial_state(server)
    server.restore(state)
    site = in_process(replace(CONFIG, **own), tmp_path)  # type: ignore[arg-type]
    (reply,) = site.ask([server.orders.sums(state, "client-001", "moments")])
    assert isinstance(reply, Failure if refuses else Sums)
    if isinstance(reply, Failure):
        assert reply.reason == Refusal.ORDER.description


MODULE = """
from dataclasses import dataclass
from fedaux.methods.analytic_heads import AnalyticHead, nearest_mean_head
from fedaux.config.methods import Method

@dataclass(frozen=True)
class Mine(AnalyticHead):
    def head(self, sums, covariance):
        return nearest_mean_head(sums)

mine = Method("Mine", pretrained=True, sends="class-sums", hooks=Mine)
"""


def test_a_head_of_your_own(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a_head.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    options = (("covariance", "identity"),)
    built_in = replace(CONFIG, method="class-means+p", method_options=options)
    assert curve(
        replace(CONFIG, method="a_head:mine"), tmp_path / "mine", cache
    ) == curve(built_in, tmp_path / "built-in", cache)
    started = replace(CONFIG, method="fedavg+p", head_init="a_head:mine")
    assert run(started, tmp_path / "started", cache=cache).state.sums_received
