"""Every value of every table is checked when it is made, and the message names the key
and what is allowed.
"""

import pytest

from fedaux.config.parsing import ConfigError
from fedaux.config.schema import Config
from fedaux.config.sections import LocalConfig, PretrainConfig, PrivacyConfig
from helpers.settings import nested

CHECKS = [
    ("federation.max_epochs=0", "federation.max_epochs must be at least 1, not 0"),
    ("data.partition=dirichlett", "did you mean 'dirichlet'?"),
    ("data.clients=0", "data.clients must be at least 1, not 0"),
    ("data.alpha=0", "data.alpha must be above 0, not 0.0"),
    ("data.test_fraction=0", "data.test_fraction must be above 0 and below 1, not 0.0"),
    ("data.test_fraction=1", "data.test_fraction must be above 0 and below 1, not 1.0"),
    ("aux.fraction=0", "aux.fraction must be above 0 and below 1"),
    ("aux.fraction=1", "aux.fraction must be above 0 and below 1"),
    ("aux.negatives=0", "aux.negatives must be above 0 and below 1"),
    ("aux.negatives=1", "aux.negatives must be above 0 and below 1"),
    ("aux.limit=-1", "aux.limit must be at least 0, not -1."),
    ("pretrain.epochs=-2", "pretrain.epochs must be at least -1, not -2"),
    ("pretrain.batch_size=1", "pretrain.batch_size must be at least 2, not 1"),
    (
        "pretrain.min_crop_area=0",
        "pretrain.min_crop_area must be above 0 and at most 1",
    ),
    (
        "pretrain.min_crop_area=1.5",
        "pretrain.min_crop_area must be above 0 and at most 1",
    ),
    ("pretrain.lr=0", "pretrain.lr"),
    ("pretrain.temperature=0", "pretrain.temperature must be above 0"),
    ("local.epochs=0", "local.epochs"),
    ("local.max_grad_norm=-2", "local.max_grad_norm must be"),
    ("local.max_grad_norm=-0.5", "local.max_grad_norm must be at least 0, or -1"),
    ("local.freeze_batch_norm=1", "must be true, false or 'auto', not 1"),
    ("local.freeze_batch_norm=yes", "must be true, false or 'auto', not 'yes'"),
    ("local.batch_size=0", "local.batch_size must be at least 1"),
    ("local.lr=-1", "local.lr must be at least 0"),
    ("local.mu=-1", "local.mu must be at least 0"),
    (
        "privacy.scorer=mean",
        (
            "the privacy.scorer 'mean': it is unknown. Choose from class-embedding, "
            "class-moments, logistic"
        ),
    ),
    ("privacy.adjacency=add", "Choose from replace-one, add-remove"),
    ("privacy.calibration=mine", "Choose from opendp, analytic"),
    ("privacy.epsilon=0", "privacy.epsilon must be above 0, not 0.0"),
    ("privacy.epsilon=inf", "privacy.epsilon must be above 0, not inf"),
    ("privacy.adjacency=add-remove", "'add-remove' needs privacy.declared_records"),
    ("pretrain.lr=inf", "pretrain.lr"),
    ("local.lr=inf", "local.lr must be at least 0"),
    ("privacy.delta=0", "privacy.delta must be above 0 and below 1, not 0.0"),
    ("privacy.delta=1", "privacy.delta must be above 0 and below 1, not 1.0"),
    ("privacy.embedding_dim=-1", "privacy.embedding_dim must be at least 0"),
    ("privacy.ridge=0", "privacy.ridge must be at least 1e-6"),
    (
        "privacy.scorer=clas-embedding",
        "Choose from class-embedding, class-moments, logistic",
    ),
    ("data.partition=random", "Choose from dirichlet, shards, iid"),
]


@pytest.mark.parametrize(
    ("override", "fragment"), CHECKS, ids=[override for override, _ in CHECKS]
)
def test_every_check_says_what_is_wrong(override: str, fragment: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Config.from_dict({}, [override])
    assert fragment in str(caught.value)


def test_add_remove_needs_a_size_that_neighbours_share() -> None:
    with pytest.raises(
        ConfigError, match=r"'add-remove' needs privacy\.declared_records"
    ):
        PrivacyConfig(adjacency="add-remove", declared_records=0)
    assert (
        PrivacyConfig(adjacency="add-remove", declared_records=1).declared_records == 1
    )
    assert PrivacyConfig(adjacency="replace-one").declared_records == 0


@pytest.mark.parametrize(
    "key",
    [
        "data.shards",
        "pretrain.projection_dim",
        "pretrain.weight_decay",
        "privacy.declared_records",
    ],
)
def test_sizes_without_meaning_are_refused(key: str) -> None:
    with pytest.raises(ConfigError, match=key):
        Config.from_dict(nested(key, -1))


RATES = [
    ("constant", 4, [0.1, 0.1, 0.1, 0.1]),
    ("warm-up", 7, [0.02, 0.04, 0.06, 0.08, 0.1, 0.1, 0.1]),
    ("cosine", 3, [0.1, 0.055, 0.01]),
    ("cosine", 1, [0.1]),
    ("step", 8, [0.1] * 4 + [0.1 * 0.1**0.5] * 2 + [0.01] * 2),
    ("step", 1, [0.1]),
]


@pytest.mark.parametrize(("schedule", "rounds", "rates"), RATES)
def test_the_learning_rate_follows_its_schedule(
    schedule: str, rounds: int, rates: list[float]
) -> None:
    local = LocalConfig(lr=0.1, schedule=schedule, final_lr_fraction=0.1)
    assert [
        local.lr_at(round_, rounds) for round_ in range(1, rounds + 1)
    ] == pytest.approx(rates)


@pytest.mark.parametrize(
    ("records", "epochs"), [(0, 100), (230, 100), (719, 49), (2_000, 18), (10**6, 10)]
)
def test_pre_training_makes_about_70_000_views(records: int, epochs: int) -> None:
    assert PretrainConfig().for_records(records).epochs == epochs


def test_chosen_epochs_of_pre_training_stay_as_they_are() -> None:
    for epochs in (0, 3, 200):
        settings = PretrainConfig(epochs=epochs)
        assert settings.for_records(719) is settings
        assert settings.trains == (epochs > 0)
    assert PretrainConfig().trains
