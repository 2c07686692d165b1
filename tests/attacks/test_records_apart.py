"""One record moves others' rows: what got through when records passed in batches,
against what they pass through now.

Each attack is first shown to work on batches, so that it is known not to be blind.
"""

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fedaux.client.features import private_outputs
from fedaux.client.summaries import summarise
from fedaux.config.prototype import PrototypeSpec
from fedaux.data.records import Records
from fedaux.data.user_rows import UserRecords
from fedaux.flower.user_model import UserExtractor
from fedaux.models import linear_head
from fedaux.models.inference import predict
from fedaux.privacy.dp_sgd import clipped_unit_gradient, sum_clipped_gradients
from fedaux.privacy.mechanism import GRID
from fedaux.privacy.module_validation import UnsupportedModuleError, per_record_safe
from fedaux.scoring.embedding import ClassEmbeddingScorer
from helpers.networks import IMAGES, TABLES, TEXTS, image_network, text_network
from helpers.odd_rows import PICTURES, ROWS, TEXT_ROWS, keeps_its_bits


def moved(one: np.ndarray, other: np.ndarray) -> float:
    return float(np.linalg.norm((one - other).astype(np.float64)))


def test_the_length_of_a_text_moves_no_other_text() -> None:
    """A hostile server makes the embedding of the padding NaN: whoever shares a padding
    with a longer text is gone.
    """
    module = text_network("bert")
    with torch.no_grad():
        module.encoder.embeddings.word_embeddings.weight[
            module.tokenizer.pad_token_id
        ] = torch.nan
    words = ["the", "team", "was", "new", "and", "the", "old", "league", "of", "oil"]
    texts = [" ".join(words[:count]) for count in range(1, 9) for _ in range(64)]
    short, long = (
        Records(np.array([special, *texts[1:]], dtype=object))
        for special in ("the", " ".join(words))
    )
    assert np.isfinite(predict(module, short)).all()
    assert np.isnan(predict(module, long)).sum() > 250  # the attack works on batches
    one, two = private_outputs(module, short), private_outputs(module, long)
    assert np.isfinite(one).all()
    assert one[1:].tobytes() == two[1:].tobytes()


def disagreeing(width: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    """(h, b): `count` rows h have one sign when multiplied with b, one row less has the
    other: another kernel.
    """
    rng = np.random.default_rng(1)
    for _ in range(3000):
        half, other = np.abs(rng.normal(size=width // 2)), rng.normal(size=width // 2)
        order = rng.permutation(width)
        h, b = (
            np.concatenate(two)[order].astype(np.float32)
            for two in ((half, half), (other, -other))
        )
        basis = np.zeros((width, 4))
        basis[:, 0] = b
        rows = np.tile(h, (count, 1)).astype(np.float64)
        few, many = (rows[:-1] @ basis)[:, 0], (rows @ basis)[:, 0]
        if few.min() == few.max() and many.min() == many.max() and few[0] * many[0] < 0:
            return h, b
    pytest.skip("the matrix kernels of this machine agree")


def test_one_more_record_moves_a_summary_by_its_own_integers() -> None:
    """Features that all records share, orthogonal to a basis but for the last bit,
    which φ then makes as long as 1.
    """
    count = 1954
    h, b = disagreeing(128, count)
    scorer = ClassEmbeddingScorer(2, 4)
    public = {
        "mean": np.zeros(128, np.float32),
        "basis": np.zeros((128, 4), np.float32),
    }
    public["basis"][:, 0] = b
    rows = np.tile(h, (count, 1))
    few, many = scorer.embed(public, rows[:-1]), scorer.embed(public, rows)
    assert few[0, 0] == -many[0, 0] != 0  # the attack works on matrix products
    made = [
        summarise(
            scorer,
            public,
            part,
            np.zeros(len(part), np.int64),
            "add-remove",
            2000,
            np.ones(len(part)),
        )
        for part in (rows[:-1], rows, rows[-1:])
    ]
    assert np.array_equal(made[1].values - made[0].values, made[2].values)
    assert moved(made[0].values, made[1].values) <= made[0].sensitivity


def test_one_more_record_moves_a_sum_of_gradients_by_its_own_integers() -> None:
    """Weights of huge scale make the softmax jump by the sign of a logit that is 0 but
    for the last bit.
    """
    width, model, rng = 512, linear_head(512, 10), np.random.default_rng(0)
    for _ in range(3000):
        h, w = np.abs(rng.normal(size=width // 2)), rng.normal(size=width // 2)
        order = rng.permutation(width)
        h, w = (
            np.concatenate(two)[order].astype(np.float32) for two in ((h, h), (w, -w))
        )
        with torch.no_grad():
            model.head.weight.zero_()
            model.head.bias.zero_()
            model.head.weight[0] = torch.from_numpy(w * np.float32(1e15))
        x = torch.from_numpy(np.tile(h, (16, 1)))
        if (model(x)[0, 0] * model(x[:15])[0, 0]).item() < 0:
            break
    else:
        pytest.skip("the matrix kernels of this machine agree")

    def batched(rows: Tensor) -> np.ndarray:
        """∇ of the bias, clipped, as a batch would have it."""
        slopes = F.softmax(model(rows), dim=1) - torch.eye(10)[5]
        return (slopes / slopes.norm(dim=1, keepdim=True)).sum(dim=0).detach().numpy()

    assert moved(batched(x), batched(x[:15])) > 5  # the attack works on batches
    labels = np.full(16, 5)
    fifteen, sixteen = (
        sum_clipped_gradients(
            [model],
            Records(x.numpy()[:n], labels[:n]),
            list(np.arange(n).reshape(-1, 1)),
            1.0,
        )
        for n in (15, 16)
    )
    own = clipped_unit_gradient(model, Records(x.numpy()), labels, np.array([15]), 1.0)
    assert np.array_equal(sixteen - fifteen, own)
    assert moved(fifteen, sixteen) <= GRID


@per_record_safe
class Net(nn.Module):
    """Its author vouches for the network, in good faith; BatchNorm over the batch is
    inside all the same.
    """

    def __init__(self) -> None:
        super().__init__()
        norm = nn.BatchNorm1d(4, track_running_stats=False)
        self.features = nn.Sequential(nn.Linear(64, 4), nn.ReLU(), norm)
        self.head = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.features(x))


def test_weights_that_sleep_on_other_rows_do_not_hide_batch_norm() -> None:
    """Dead on N(0, 1), alive on the client's rows: trying the network out would not
    find what its types tell.
    """
    net, rng = Net(), np.random.default_rng(0)
    with torch.no_grad():
        for parameter in net.features[0].parameters():
            parameter.zero_()
        net.features[0].weight[0] = 1.0
        net.features[0].bias[0] = -45.0
        net.features[2].bias[0] = 0.02
    rows = rng.uniform(0.9, 1.1, size=(512, 64)).astype(np.float32)
    other = rows.copy()
    other[0] = 1000.0
    seen = [
        predict(UserExtractor(net, "features"), UserRecords.of(part))
        for part in (rows, other)
    ]
    # the attack works on batches
    assert (np.sign(seen[0][1:, 0]) != np.sign(seen[1][1:, 0])).sum() > 200
    strange = UserRecords.of(rng.normal(size=(4, 64)))
    tried = predict(UserExtractor(net, "features"), strange)
    # and hides
    assert np.array_equal(
        tried[:2], predict(UserExtractor(net, "features"), strange.take(np.arange(2)))
    )
    with pytest.raises(
        UnsupportedModuleError,
        match=r"model\.features\.2: BatchNorm1d has no running statistics",
    ):
        private_outputs(UserExtractor(net, "features"), UserRecords.of(rows))


LONG = (
    "mobilenetv2(norm=batch, width=0.1)",
    "shufflenet(norm=group, width=32)",
    "mobilenetv2-imagenet(size=32)",
)


@pytest.mark.usefixtures("workers_everywhere")
@pytest.mark.parametrize(
    "spec",
    [
        pytest.param(spec, marks=[pytest.mark.slow] if spec.label in LONG else [])
        for spec in [*IMAGES, *TABLES]
    ],
    ids=[spec.label for spec in [*IMAGES, *TABLES]],
)
def test_a_record_keeps_its_bits_in_every_network(spec: PrototypeSpec) -> None:
    module = image_network(spec)
    torch.set_num_threads(1)
    keeps_its_bits(module, ROWS)()
    torch.set_num_threads(1)
    keeps_its_bits(module, PICTURES)()


@pytest.mark.usefixtures("workers_everywhere")
@pytest.mark.parametrize("kind", TEXTS)
def test_a_text_keeps_its_bits_in_every_network(kind: str) -> None:
    torch.set_num_threads(1)
    keeps_its_bits(text_network(kind), TEXT_ROWS)()
