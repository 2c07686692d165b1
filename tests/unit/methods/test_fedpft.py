"""Mixtures of features: what is fitted, what is added, and the head that is trained on
what is drawn.
"""

import numpy as np
import pytest
import torch

from fedaux.config.methods import allowed_sums
from fedaux.config.parsing import ConfigError
from fedaux.config.schema import Config
from fedaux.data.records import Records
from fedaux.methods.fedpft import FLOOR, FedPFT, Mixtures
from fedaux.models import HeadFeatures

RNG = np.random.default_rng(0)
CENTRES = np.array([[4.0, 0, 0], [-4.0, 0, 0], [0, 4.0, 0], [0, -4.0, 0]])
# two clusters of each class; of class 1 there are no records
LABELS = np.repeat([0, 0, 2, 2], 50)
X = (
    CENTRES[np.repeat(np.arange(4), 50)] + RNG.standard_normal((200, 3)) * [0.5, 0.5, 2]
).astype(np.float32)


def test_one_gaussian_is_mean_and_variance_of_its_class() -> None:
    found = Mixtures.of(X, LABELS, classes=3, components=1)
    assert found.counts.tolist() == [[100, 0, 0], [0, 0, 100]]
    for row, label in enumerate((0, 2)):
        assert np.allclose(found.means[row], X[label == LABELS].mean(axis=0), atol=1e-5)
        assert np.allclose(
            found.variances[row], X[label == LABELS].var(axis=0), atol=1e-4
        )


def test_two_find_the_clusters_and_there_are_never_more_than_records() -> None:
    found = Mixtures.of(X, LABELS, classes=3, components=2)
    assert np.allclose(sorted(found.means[:2, 0]), [-4, 4], atol=0.3)
    assert np.allclose(found.variances, [[0.25, 0.25, 4]] * 4, rtol=0.6)
    assert np.allclose(found.counts.sum(axis=0), [100, 0, 100], atol=1e-3)
    few = Mixtures.of(X[:2], LABELS[:2], classes=3, components=5)
    assert len(few.means) == 2
    single = Mixtures.of(X[:1], LABELS[:1], classes=3, components=5)
    assert np.allclose(single.variances, FLOOR)


def test_clients_are_kept_side_by_side() -> None:
    one, other = (
        Mixtures.of(X[label == LABELS], LABELS[label == LABELS], 3, 1)
        for label in (0, 2)
    )
    both, pool = one + other, Mixtures.of(X, LABELS, 3, 1)
    for name, values in both.to_arrays().items():
        assert np.array_equal(values, pool.to_arrays()[name])
    assert np.array_equal(FedPFT().read(both.to_arrays()).means, both.means)


def test_a_client_sends_the_mixtures_of_its_head_features() -> None:
    features = HeadFeatures(3)
    features.standardise({"mean": X.mean(axis=0), "deviation": X.std(axis=0)})
    sent = FedPFT(components=2).summarise(features, Records(X, LABELS), 3, "mixtures")
    psi = features(torch.from_numpy(X)).numpy()
    assert np.allclose(sent.means, Mixtures.of(psi, LABELS, 3, 2).means)


def test_the_head_knows_what_mixtures_say_and_names_no_class_without_records() -> None:
    mixtures = Mixtures.of(X, LABELS, classes=3, components=2)
    # classes differ in which coordinate is large: linear in |x|
    squares = (X[:, :2] ** 2).argmax(axis=1) * 2
    assert (squares == LABELS).mean() > 0.99
    features = np.abs(X)
    found = FedPFT(samples=400, lr=0.05).head(
        Mixtures.of(features, LABELS, 3, 2), lambda: np.eye(3)
    )
    logits = features @ found.weight.T + found.bias
    assert (logits.argmax(axis=1) == LABELS).mean() > 0.95
    again = FedPFT(samples=400, lr=0.05).head(
        Mixtures.of(features, LABELS, 3, 2), lambda: np.eye(3)
    )
    assert again.weight.tobytes() == found.weight.tobytes()
    assert mixtures.value() is mixtures


def test_who_agreed_to_one_kind_of_statistics_agreed_to_what_it_includes_alone() -> (
    None
):
    assert allowed_sums("moments") == ("class-sums", "moments")
    assert allowed_sums("mixtures") == ("mixtures",)
    assert allowed_sums("releases") == allowed_sums("models") == ()


@pytest.mark.parametrize(
    "options",
    [{"components": 0}, {"components": 51}, {"samples": 0}, {"epochs": 0}, {"lr": 0.0}],
)
def test_options_out_of_range(options: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=next(iter(options))):
        FedPFT(**options)  # type: ignore[arg-type]


def test_mixtures_are_refused_where_only_sums_may_be_seen() -> None:
    with pytest.raises(ConfigError, match="take gaussian-head for fedpft"):
        Config.from_dict({"method": "fedpft+p", "federation": {"secure": True}})
    assert Config.from_dict(
        {"method": "gaussian-head+p", "federation": {"secure": True}}
    ).federation.secure
