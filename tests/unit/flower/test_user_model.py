"""A user's own network and rows, by any name for its features."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import ArrayRecord, ConfigRecord
from torch import Tensor, nn

from fedaux.core.errors import SettingsError
from fedaux.data.records import UNDECLARED
from fedaux.data.user_rows import UserRecords
from fedaux.flower import FedAUX, input_of
from fedaux.flower.user_model import UserExtractor
from fedaux.privacy.module_validation import per_record_safe
from fedaux.privacy.units import Units
from helpers.drop_in_app import CLIENTS, make_app, make_grid, net, public


@per_record_safe
class Named(nn.Module):
    """Features by name, BatchNorm with its counters, and a dropout that must stay
    silent.
    """

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.5)
        )
        self.head = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x))

    def embed(self, x: Tensor) -> Tensor:
        return self.body(x)


@pytest.mark.parametrize(
    "features",
    ["body", "embed", input_of("head"), lambda model, x: model.body(x)],
    ids=range(4),
)
def test_features_by_any_name_are_the_same(features: Any, tmp_path: Path) -> None:
    torch.manual_seed(5)
    model = Named()
    strategy = FedAUX(
        model=model,
        features=features,
        public=public().numpy().astype(np.float64),
        classes=3,
        keep=None,
    )
    usual = FedAUX(model=model, features="body", public=public(), classes=3, keep=None)
    assert np.array_equal(
        strategy._embedding.embedded["model"], usual._embedding.embedded["model"]
    )
    app = make_app(model=Named, features=features)
    arrays = ArrayRecord(model.state_dict())
    # what is returned can be sent again: counters are integers still
    for round_ in (1, 2):
        grid = make_grid(tmp_path, app)
        messages = strategy.configure_train(round_, arrays, ConfigRecord(), grid)
        arrays, _ = strategy.aggregate_train(round_, grid.send_and_receive(messages))  # type: ignore[assignment]
    count = arrays["body.1.num_batches_tracked"].numpy()
    assert (count, count.dtype) == (14, np.int64)
    assert len(strategy.releases) == CLIENTS


def test_rows_of_an_existing_app_come_with_names_of_persons() -> None:
    given = UserRecords.of(np.zeros((4, 2)), np.zeros(4), list("baca"))
    assert sorted(rows.tolist() for rows in Units.of(given, "person", 10).rows) == [
        [0],
        [1, 3],
        [2],
    ]
    with pytest.raises(
        SettingsError, match=r"4 rows came with persons of shape \(3,\)"
    ):
        UserRecords.of(np.zeros((4, 2)), np.zeros(4), [1, 2, 3])


def test_rows_are_given_to_the_model_as_they_are() -> None:
    whole = UserRecords.of(torch.arange(6).reshape(3, 2), [0, 1, 0])
    assert whole.batch().dtype == torch.int64  # neither scaled nor cast
    # models are float32
    assert UserRecords.of(np.zeros((2, 3))).batch().dtype == torch.float32
    assert whole.labels.tolist() == [0, 1, 0]
    assert whole.batch(np.array([2, 0])).tolist() == [[4, 5], [0, 1]]


@pytest.mark.parametrize(("rows", "labels"), [(0, 0), (2, 3), (2, 0)])
def test_rows_without_a_label_each_are_refused(rows: int, labels: int) -> None:
    with pytest.raises(SettingsError, match=f"{rows} rows came with labels of shape"):
        UserRecords.of(np.zeros((rows, 2)), np.zeros(labels))


def test_looking_before_a_layer_leaves_no_hook_behind() -> None:
    model, x = net(), torch.randn(4, 6)
    features = UserExtractor(model, input_of("2"))(x)
    assert torch.equal(features, model[1](model[0](x)))
    assert not model[2]._forward_pre_hooks


def test_features_of_any_shape_are_flattened() -> None:
    assert UserExtractor(nn.Identity(), lambda model, x: x)(
        torch.zeros(2, 3, 4)
    ).shape == (2, 12)


def test_a_label_or_a_person_that_is_missing_changes_no_other() -> None:
    """None, NaN and words make an array of objects, floats or texts; each value is read
    by itself.
    """
    x = np.zeros((4, 2), np.float32)
    for odd in (None, np.nan, 1.5, -3, 2**60 + 0.0, "?", [1]):
        labels, persons = np.empty(4, object), np.empty(4, object)
        labels[:], persons[:] = [odd, 0, 1, 2], [odd, 7, 8, 7]
        records = UserRecords.of(x, labels, persons)
        assert records.labels.tolist() == [UNDECLARED, 0, 1, 2]
        assert records.persons[1] == records.persons[3] != records.persons[2]
    assert UserRecords.of(x, [np.nan, 0.0, 1.0, 2.0]).labels.tolist() == [
        UNDECLARED,
        0,
        1,
        2,
    ]
    assert UserRecords.of(x, [True, False, True, True]).labels.tolist() == [1, 0, 1, 1]
