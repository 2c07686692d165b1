"""Before the first round: what a method needs, and no more."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedaux.config.parsing import ConfigError
from fedaux.config.prototype import PrototypeSpec
from fedaux.config.sections import PretrainConfig
from fedaux.core.progress import ProgressEvent, WorkProgress
from fedaux.models import flatten_state, load_state
from fedaux.privacy.module_validation import UnsupportedModuleError
from fedaux.server.start import initial_state, pretrain_extractor
from helpers.scripted import CONFIG, MLP, make_server


@pytest.mark.parametrize(
    ("method", "head_only", "extractors", "public"),
    [("fedavg", False, 0, 0), ("feddf", True, 1, 0), ("fedaux", False, 1, 1), ("fedaux", True, 1, 1)],
)
def test_the_state_holds_what_the_method_needs(method: str, head_only: bool, extractors: int, public: int) -> None:
    state = initial_state(make_server(replace(CONFIG, method=method, head_only=head_only)))
    assert (len(state.weights), len(state.extractors), len(state.public)) == (1, extractors, public)
    assert (state.round, state.history, state.releases) == (0, (), {})


def test_the_public_map_is_what_the_scorer_derives_from_the_negatives() -> None:
    server = make_server()
    state = initial_state(server)
    expected = server.scorer.publish(server.public.negatives(MLP.label).gather())
    assert all(np.array_equal(array, state.public[MLP.label][name]) for name, array in expected.items())


def test_a_network_that_cannot_train_privately_is_refused_before_anybody_is_asked() -> None:
    privacy = replace(CONFIG.privacy, epsilon_total=2.0, private_training=True)
    with pytest.raises(UnsupportedModuleError):
        initial_state(make_server(replace(CONFIG, privacy=privacy)))


def test_only_methods_that_start_pretrained_pretrain(tmp_path: Path) -> None:
    """Images, as SimCLR wants them, come in `tests/unit/pretraining`; here it matters who asks for it."""
    config = replace(CONFIG, method="fedavg", pretrain=PretrainConfig(epochs=1))
    events: list[ProgressEvent] = []
    server = replace(make_server(config, tmp_path), on_progress=events.append)
    initial_state(server)
    assert events == []
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ValueError, match="image"):
        initial_state(make_server(replace(config, method="fedavg+p"), tmp_path))


def test_published_weights_are_restored_instead_of_trained() -> None:
    server = make_server()
    extractor = server.learners.extractors[MLP.label]
    published = {name: array + array.dtype.type(1) for name, array in flatten_state(extractor).items()}
    events: list[ProgressEvent] = []

    extractor.published_weights = "somewhere"
    extractor.restore = lambda: load_state(extractor, published)
    path = pretrain_extractor(replace(server, on_progress=events.append), MLP)
    assert path == Path("somewhere")
    assert np.array_equal(flatten_state(extractor)["parameters"], published["parameters"])
    assert events == [WorkProgress(f"pre-training {MLP.label}", 1, 1, "published weights", "pretrain")]


OWN = """
import torch
from torch import nn
from fedaux.models import Extractor
def network(shape):
    own = Extractor(nn.Flatten(), nn.Linear(4, 3), width=3)
    own[1].weight.data = torch.arange(12.0).reshape(3, 4)
    return own
"""


def test_plain_methods_refuse_to_start_from_a_users_own_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That would be FedAVG+P under the name of FedAVG."""
    (tmp_path / "my_start.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    config = replace(CONFIG, prototypes=(PrototypeSpec("my_start:network"),), pretrain=PretrainConfig(epochs=0))
    with pytest.raises(ConfigError, match=r"brings weights of its own, 1.weight .* Set method = 'fedavg\+p'"):
        initial_state(make_server(replace(config, method="fedavg")))
    state = initial_state(make_server(replace(config, method="fedavg+p")))
    assert np.isin(np.arange(12.0), state.weights["my_start:network"]["parameters"]).all()
