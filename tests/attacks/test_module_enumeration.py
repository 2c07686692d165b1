"""Every module type of torch with every option of its constructor: refused, or a
record's row is its own, to the bit.

A type goes through the product of the values below, one list for each option; where
that exceeds `MOST`, through all combinations in which at most two options are away from
their first values, which contain every pair of values. What is admitted is then called
as `privacy/per_record.py` calls it, among records that are NaN, infinite or huge.
"""

import copy
import importlib
import itertools
import math
import pkgutil
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import EllipsisType
from typing import Any

import numpy as np
import pytest
import torch
import torch.ao.nn
import torch.nn.functional as F
from torch import Tensor, nn

from fedaux.data.records import Records
from fedaux.models import Prototype, flatten_state
from fedaux.models.optimizer import Optimizer
from fedaux.privacy import module_validation
from fedaux.privacy.accounting import Mechanism
from fedaux.privacy.dp_sgd import train_private
from fedaux.privacy.module_validation import (
    FREE_OPTIONS,
    UnsupportedModuleError,
    constructor_options,
    per_record_safe,
    validate_module,
)
from fedaux.privacy.per_record import (
    ImpureModuleError,
    outputs,
    single_thread,
    validate_placement,
)
from fedaux.privacy.units import Units

pytestmark = pytest.mark.filterwarnings(
    "ignore::UserWarning", "ignore::FutureWarning", "ignore::DeprecationWarning"
)

Kind = type[nn.Module]
Values = dict[str, tuple[Any, ...]]
# names are options; … stands for sides, as many as the type's name says
Shape = tuple[int | str | EllipsisType, ...]
MOST, SIDE = 300, 5
# an option that these types fill in themselves
GIVEN = {"mode": (nn.RNN, nn.LSTM, nn.GRU)}
BEYOND = {nn.RNN: {"nonlinearity"}}  # options that no signature names


class Tally:
    """An activation that remembers how often any of them was called."""

    calls = 0

    def __call__(self, x: Tensor) -> Tensor:
        Tally.calls += 1
        return x + Tally.calls


@dataclass(frozen=True)
class Case:
    """Types with values of their options; the first is torch's default where another
    one is refused.
    """

    kinds: tuple[Kind, ...]
    shapes: tuple[Shape, ...]  # of the arguments for one record
    values: Values

    def records(self, kind: Kind, options: dict[str, Any]) -> list[list[Tensor]]:
        """The record that is watched, and others."""
        shapes = [tuple(self._sizes(shape, kind, options)) for shape in self.shapes]
        draw = torch.Generator().manual_seed(1)
        if kind in (nn.Embedding, nn.EmbeddingBag):
            own, other = (
                torch.randint(TOKENS, shapes[0], generator=draw) for _ in range(2)
            )
            return [[own], [other], [torch.zeros_like(own)], [(own + 1) % TOKENS]]
        drawn = [
            [torch.randn(shape, generator=draw) for shape in shapes] for _ in range(2)
        ]
        return [
            *drawn,
            *(
                [torch.full(shape, odd) for shape in shapes]
                for odd in (math.nan, math.inf, 3e38)
            ),
        ]

    @staticmethod
    def _sizes(shape: Shape, kind: Kind, options: dict[str, Any]) -> Iterator[int]:
        yield 1
        for part in shape:
            if part is ...:
                yield from [SIDE] * int(kind.__name__[-2])
            else:
                yield (
                    part
                    if isinstance(part, int)
                    else options[part] or options["embed_dim"]
                )


def case(names: str, *shapes: Shape, **values: tuple[Any, ...]) -> Case:
    return Case(
        tuple(
            getattr(nn, name, None) or getattr(nn.modules.linear, name)
            for name in names.split()
        ),
        shapes,
        values,
    )


def layer(**options: Any) -> nn.Module:
    return nn.TransformerEncoderLayer(4, 2, dim_feedforward=8, **options)


TOKENS = 9
OFF, ON = (False, True), (True, False)
WHERE: Values = {"device": (None, "meta"), "dtype": (None, torch.float64)}
WEIGHTS: Values = {"bias": ON, **WHERE}
POOL: Values = {"kernel_size": (2, 3), "stride": (None, 1), "ceil_mode": OFF}
CONV: Values = {
    "in_channels": (4, 2),
    "out_channels": (2, 4),
    "kernel_size": (3, 1),
    "stride": (1, 2),
    **WEIGHTS,
}
CONV |= {
    "dilation": (1, 2),
    "groups": (1, 2),
    "padding_mode": ("zeros", "reflect", "replicate", "circular"),
}
ROWS: Values = {
    "num_embeddings": (TOKENS, 11),
    "embedding_dim": (4, 3),
    "padding_idx": (None, 0),
    **WHERE,
}
ROWS |= {
    "_weight": (None, torch.linspace(-3, 3, TOKENS * 4).view(TOKENS, 4)),
    "max_norm": (None, 1.0),
}
ROWS |= {"norm_type": (2.0, 1.0), "scale_grad_by_freq": OFF, "sparse": OFF}
NORM: Values = {"eps": (1e-5, 0.1), **WEIGHTS}
RNN: Values = {
    "input_size": (3, 4),
    "hidden_size": (4, 2),
    "num_layers": (1, 2),
    "batch_first": OFF,
    **WEIGHTS,
}
RNN |= {"dropout": (0.0, 0.5), "bidirectional": OFF, "proj_size": (0, 1)}
HEADS: Values = {
    "embed_dim": (4, 8),
    "num_heads": (2, 1),
    "dropout": (0.0, 0.5),
    "batch_first": OFF,
    **WEIGHTS,
}
HEADS |= {
    "add_bias_kv": OFF,
    "add_zero_attn": OFF,
    "kdim": (None, 3),
    "vdim": (None, 3),
}
LAYER: Values = {
    "d_model": (4, 8),
    "nhead": (2, 1),
    "dim_feedforward": (8, 16),
    "dropout": (0.0, 0.1),
    **WEIGHTS,
}
LAYER |= {
    "activation": (F.relu, F.gelu, "relu", "gelu", torch.tanh, Tally()),
    "layer_norm_eps": (1e-5, 0.1),
}
LAYER |= {"batch_first": OFF, "norm_first": OFF}
LAYERS = (
    layer(dropout=0.0),
    layer(batch_first=True),
    layer(dropout=0.0, activation=Tally()),
)
UPSAMPLE: Values = {
    "size": (None, 6),
    "scale_factor": (2.0, None),
    "align_corners": (None, True),
}
UPSAMPLE |= {
    "mode": ("nearest", "nearest-exact", "bilinear", "bicubic", "area"),
    "recompute_scale_factor": (None, True),
}
CASES = [
    case("Identity Sequential Tanh Sigmoid LogSigmoid Softsign", (3, 4)),
    case("ModuleList", (3,), modules=(None, [nn.ReLU()])),
    case("ModuleDict", (3,), modules=(None, {"one": nn.ReLU()})),
    case(
        "Linear NonDynamicallyQuantizableLinear",
        ("in_features",),
        in_features=(3, 5),
        out_features=(2, 4),
        **WEIGHTS,
    ),
    case(
        *("Bilinear", ("in1_features",), ("in2_features",)),
        **{
            "in1_features": (3, 5),
            "in2_features": (2, 4),
            "out_features": (2, 4),
            **WEIGHTS,
        },
    ),
    case("Flatten", (3, 4), start_dim=(1, 0), end_dim=(-1, 1)),
    case("Unflatten", (4, 4), dim=(1, 2), unflattened_size=((2, 2), (1, 4))),
    case("ChannelShuffle", (4, 4, 4), groups=(2, 1)),
    case("PixelShuffle", (4, 4, 4), upscale_factor=(2, 1)),
    case("PixelUnshuffle", (4, 4, 4), downscale_factor=(2, 1)),
    case("Embedding", (6,), _freeze=OFF, **ROWS),
    case(
        "EmbeddingBag",
        (6,),
        mode=("mean", "sum", "max"),
        include_last_offset=OFF,
        **ROWS,
    ),
    case("Conv1d Conv2d Conv3d", ("in_channels", ...), padding=(0, 1, "same"), **CONV),
    case(
        *("ConvTranspose1d ConvTranspose2d ConvTranspose3d", ("in_channels", ...)),
        **{"padding": (0, 1), "output_padding": (0, 1), **CONV},
    ),
    case("ReLU ReLU6 SELU SiLU Mish Hardswish Hardsigmoid", (3, 4), inplace=OFF),
    case("LeakyReLU", (3, 4), negative_slope=(0.01, -2.0), inplace=OFF),
    case("ELU CELU", (3, 4), alpha=(1.0, 0.3), inplace=OFF),
    case("PReLU", (3, 4), num_parameters=(1, 3), init=(0.25, 2.0), **WHERE),
    case("GELU", (3, 4), approximate=("none", "tanh")),
    case("GLU", (4, 4), dim=(-1, 1)),
    case("Softmax LogSoftmax", (3, 4), dim=(None, 0, 1)),
    case("Softplus", (3, 4), beta=(1.0, 3.0), threshold=(20.0, 0.1)),
    case(
        *("Hardtanh", (3, 4)),
        **{
            "min_val": (-1.0, -2.0),
            "max_val": (1.0, 0.5),
            "min_value": (None, -3.0),
            "max_value": (None, 3.0),
        },
        inplace=OFF,
    ),
    case(
        "MaxPool1d MaxPool2d MaxPool3d",
        (2, ...),
        padding=(0, 1),
        dilation=(1, 2),
        return_indices=OFF,
        **POOL,
    ),
    case("AvgPool1d", (2, ...), padding=(0, 1), count_include_pad=ON, **POOL),
    case(
        "AvgPool2d AvgPool3d",
        (2, ...),
        padding=(0, 1),
        count_include_pad=ON,
        divisor_override=(None, 3),
        **POOL,
    ),
    case("LPPool1d LPPool2d", (2, ...), norm_type=(2.0, 1.0, 3), **POOL),
    case(
        "AdaptiveAvgPool1d AdaptiveAvgPool2d AdaptiveAvgPool3d",
        (2, ...),
        output_size=(1, 4),
    ),
    case(
        "AdaptiveMaxPool1d AdaptiveMaxPool2d AdaptiveMaxPool3d",
        (2, ...),
        output_size=(1, 4),
        return_indices=OFF,
    ),
    case(
        "ZeroPad1d ZeroPad2d ReflectionPad2d ReplicationPad2d", (2, ...), padding=(1, 2)
    ),
    case("ConstantPad2d", (2, ...), padding=(1, 2), value=(0.0, -1.5)),
    case("Upsample", (2, 4, 4), **UPSAMPLE),
    case(
        "GroupNorm",
        ("num_channels", 4),
        num_groups=(1, 2),
        num_channels=(4, 6),
        affine=ON,
        **NORM,
    ),
    case(
        "LayerNorm", (3, 4), normalized_shape=(4, (3, 4)), elementwise_affine=ON, **NORM
    ),
    case(
        "RMSNorm",
        (3, 4),
        normalized_shape=(4, (3, 4)),
        eps=(None, 0.1),
        elementwise_affine=ON,
        **WHERE,
    ),
    case(
        "LocalResponseNorm",
        (4, 4),
        size=(2, 3),
        alpha=(1e-4, 0.1),
        beta=(0.75, 0.5),
        k=(1.0, 2.0),
    ),
    case(
        *("BatchNorm1d BatchNorm2d BatchNorm3d", ("num_features", ...)),
        **{
            "num_features": (3, 4),
            "momentum": (0.1, None),
            "affine": ON,
            "track_running_stats": ON,
            **NORM,
        },
    ),
    case("Dropout AlphaDropout", (3, 4), p=(0.0, 0.5, 1.0, math.nan), inplace=OFF),
    case(
        "Dropout1d Dropout2d Dropout3d",
        (3, ...),
        p=(0.0, 0.5, 1.0, math.nan),
        inplace=OFF,
    ),
    case("RNN", (5, "input_size"), nonlinearity=("tanh", "relu"), **RNN),
    case("LSTM GRU", (5, "input_size"), **RNN),
    case("MultiheadAttention", (5, "embed_dim"), (5, "kdim"), (5, "vdim"), **HEADS),
    case("TransformerEncoderLayer", (5, "d_model"), **LAYER),
    case(
        *("TransformerEncoder", (5, 4)),
        **{
            "encoder_layer": LAYERS,
            "num_layers": (1, 2),
            "norm": (None, nn.LayerNorm(4)),
        },
        **{"enable_nested_tensor": ON, "mask_check": ON},
    ),
]
NORMED = {"max_norm", "norm_type", "scale_grad_by_freq", "sparse"}
# which other values than the first are refused for features; where weights are is
# another matter
REFUSED_OPTIONS = {
    nn.Embedding: NORMED,
    nn.EmbeddingBag: NORMED | {"include_last_offset"},
    nn.TransformerEncoderLayer: {"activation"},
    nn.TransformerEncoder: {"encoder_layer"},  # it contains the other
    **{
        kind: {"track_running_stats"}
        for kind in (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
    },
}


def options_of(kind: Kind) -> set[str]:
    named = {
        option.name
        for option in constructor_options(kind)
        if kind not in GIVEN.get(option.name, ())
    }
    return named | BEYOND.get(kind, set())


def away_from_first(values: Values, count: int) -> Iterator[dict[str, Any]]:
    """The combinations in which so many options do not have their first values."""
    first = {name: found[0] for name, found in values.items()}
    for names in itertools.combinations(values, count):
        for found in itertools.product(*(values[name][1:] for name in names)):
            yield {**first, **dict(zip(names, found, strict=True))}


def combinations(kind: Kind, one: Case) -> Iterator[dict[str, Any]]:
    values = {
        name: found for name, found in one.values.items() if name in options_of(kind)
    }
    most = len(values) if math.prod(map(len, values.values())) <= MOST else 2
    for count in range(most + 1):
        yield from away_from_first(values, count)


def bits(found: Any) -> bytes:
    if isinstance(found, Tensor):
        return found.detach().numpy().tobytes()
    return b"".join(map(bits, found))


def answer(module: nn.Module, record: list[Tensor], training: bool) -> bytes:
    """What the module says of one record, in fresh memory; in training also the
    gradients of its weights.
    """
    arguments = [torch.empty_like(part).copy_(part) for part in record]
    if not training:
        with torch.inference_mode():
            return bits(module(*arguments))
    said = output = module(*arguments)
    while not isinstance(output, Tensor):
        output = output[0]
    weights = [
        parameter
        for parameter in module.parameters()
        if parameter.requires_grad and output.requires_grad
    ]
    return bits(
        [
            said,
            *(
                torch.autograd.grad(
                    output.square().sum(), weights, materialize_grads=True
                )
                if weights
                else ()
            ),
        ]
    )


def state(module: nn.Module) -> list[tuple[str, int, bytes]]:
    tensors = [*module.named_parameters(), *module.named_buffers()]
    return [(name, tensor._version, bits(tensor)) for name, tensor in tensors]


def verdict(
    module: nn.Module, records: Callable[[], list[list[Tensor]]], training: bool
) -> str:
    """Refused, as `per_record.outputs` and `dp_sgd.train_private` do; else whether a
    record's row is its own.
    """
    module.train(training)
    try:
        validate_module(module, training=training)
        validate_placement(module)
    except UnsupportedModuleError:
        return "refused"
    own, *others = records()
    before, drawn = state(module), torch.get_rng_state()
    try:
        alone = answer(module, own, training)
    except (RuntimeError, ValueError, NotImplementedError):
        return "cannot be called"
    for other in others:
        answer(module, other, training)
        if answer(module, own, training) != alone:
            return "another row among others"
    if state(module) != before:
        return "changed weights"
    return "pure" if torch.equal(drawn, torch.get_rng_state()) else "drawn at random"


def judge(kind: Kind, one: Case, options: dict[str, Any], training: bool) -> str:
    torch.manual_seed(0)
    try:
        module = kind(**copy.deepcopy(options))
    except (ValueError, AssertionError, TypeError):
        return "rejected by torch"
    with single_thread():
        return verdict(module, lambda: one.records(kind, options), training)


def torch_types() -> set[Kind]:
    """All module types of torch.nn, and of torch.ao.nn, where the quantised ones
    are.
    """
    for package in (torch.nn, torch.ao.nn):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)

    def derived(kind: Kind) -> Iterator[Kind]:
        for one in kind.__subclasses__():
            yield one
            yield from derived(one)

    public = {
        one
        for one in map(nn.__dict__.get, dir(nn))
        if isinstance(one, type) and issubclass(one, nn.Module)
    }
    return public | {
        kind
        for kind in derived(nn.Module)
        if kind.__module__.startswith(("torch.nn.", "torch.ao.nn."))
    }


def test_every_listed_type_and_every_option_has_values() -> None:
    listed = [kind for one in CASES for kind in one.kinds]
    assert len(listed) == len(set(listed)) == 79
    assert set(listed) == set(FREE_OPTIONS)
    missing = {
        kind: found
        for one in CASES
        for kind in one.kinds
        if (found := options_of(kind) - set(one.values))
    }
    assert not missing
    assert all(len(values) >= 2 for one in CASES for values in one.values.values())


def test_every_other_type_of_torch_is_refused() -> None:
    with warnings.catch_warnings(action="ignore"):
        others, counts = torch_types() - set(FREE_OPTIONS), Counter[str]()
    for kind in others:
        try:
            module = kind.__new__(kind)
            nn.Module.__init__(module)
        except (TypeError, AttributeError):  # an abstract class
            counts["no instance"] += 1
            continue
        for training in (False, True):
            with pytest.raises(
                UnsupportedModuleError, match="is not known to keep records apart"
            ):
                validate_module(module, training=training)
        counts["refused"] += 1
    print(f"\nother types of torch: {dict(counts)}")
    assert counts["refused"] >= 230
    assert counts["no instance"] <= 5


@pytest.mark.parametrize("training", [False, True], ids=["features", "training"])
def test_every_combination_of_options_is_refused_or_pure(training: bool) -> None:
    counts = Counter[str]()
    for one in CASES:
        for kind in one.kinds:
            for options in combinations(kind, one):
                found = judge(kind, one, options, training)
                assert found in (
                    "pure",
                    "refused",
                    "rejected by torch",
                    "cannot be called",
                ), (kind, options, found)
                counts[found] += 1
    print(
        f"\n{'training' if training else 'features'}: {counts.total()} combinations, "
        f"{dict(counts)}"
    )
    assert counts.total() >= 2900
    assert counts["pure"] >= 1200
    assert counts["refused"] >= 1100


def test_which_options_are_refused() -> None:
    found: dict[Kind, set[str]] = {}
    for one in CASES:
        for kind, name in itertools.product(
            one.kinds, one.values.keys() - WHERE.keys()
        ):
            values = {
                key: values
                for key, values in one.values.items()
                if key in options_of(kind)
            }
            alone = {
                key: values[key] if key == name else values[key][:1] for key in values
            }
            if any(
                judge(kind, one, options, training=False) == "refused"
                for options in away_from_first(alone, 1)
            ):
                found.setdefault(kind, set()).add(name)
    assert found == REFUSED_OPTIONS


OTHER_ROW = "another row among others"


def finds(what: str, one: Case, training: bool) -> bool:
    (kind,) = one.kinds
    return any(
        judge(kind, one, options, training) == what
        for options in combinations(kind, one)
    )


@pytest.mark.parametrize(
    ("option", "one", "training", "what"),
    [
        ("max_norm", case("Embedding", (6,), **ROWS), False, "changed weights"),
        ("max_norm", case("EmbeddingBag", (6,), **ROWS), True, "changed weights"),
        (
            "activation",
            case("TransformerEncoderLayer", (5, "d_model"), **LAYER),
            False,
            OTHER_ROW,
        ),
        ("", case("RReLU", (3, 4), lower=(0.1,), upper=(0.3,)), True, OTHER_ROW),
        (
            "",
            case("FractionalMaxPool2d", (2, 5, 5), kernel_size=(2,), output_size=(3,)),
            False,
            OTHER_ROW,
        ),
        (
            "",
            case("InstanceNorm1d", (3, 4), num_features=(3,), track_running_stats=OFF),
            True,
            "changed weights",
        ),
    ],
)
def test_an_option_or_a_type_that_should_not_be_on_the_list_is_found(
    option: str, one: Case, training: bool, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (kind,) = one.kinds
    assert not finds(what, one, training)
    added = {option} if option else options_of(kind)
    monkeypatch.setitem(FREE_OPTIONS, kind, FREE_OPTIONS.get(kind, frozenset()) | added)
    assert finds(what, one, training)


def test_dropout_that_is_not_refused_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    one = case("Dropout", (3, 4), p=(0.0, 0.5))
    assert not finds(OTHER_ROW, one, training=True)
    monkeypatch.setattr(module_validation, "_dropouts", lambda module: [])
    assert finds(OTHER_ROW, one, training=True)


@per_record_safe
class Own(nn.Module):
    """A module that its author vouches for; what `leak` does to the row is the author's
    mistake.
    """

    def __init__(self, leak: Callable[["Own", Tensor], Tensor]) -> None:
        super().__init__()
        self.width, self.calls, self._leak = 4, 0, leak
        self.linear = nn.Linear(4, 4)
        self.seen = nn.Buffer(torch.zeros(4))
        self.generator = torch.Generator().manual_seed(0)

    def forward(self, x: Tensor) -> Tensor:
        return self._leak(self, self.linear(x))


def count(own: Own, row: Tensor) -> Tensor:
    own.calls += 1
    return row + own.calls


def add_up(own: Own, row: Tensor) -> Tensor:
    own.seen += row[0].detach()
    return row


def write_behind_torch(own: Own, row: Tensor) -> Tensor:
    own.linear.bias.data[0] += 1.0
    return row


def keep(own: Own, row: Tensor) -> Tensor:
    own.last = row.detach()
    return row


def register(own: Own, row: Tensor) -> Tensor:
    own.register_buffer("last", row.detach())
    return row


LEAKS: dict[Callable[[Own, Tensor], Tensor], str] = {
    count: "Own returned something else for the same record",
    add_up: r"seen of Own \(.*\) was changed",
    write_behind_torch: r"bias of Linear \(.*linear\) was changed",
    keep: r"last of Own \(.*\) was set",
    register: r"last of Own \(.*\) was set",
    lambda own, row: F.dropout(
        row, 0.5, training=True
    ): "Own drew from torch's random numbers",
    # drops nothing
    lambda own, row: F.dropout(
        row, 1e-9, training=True
    ): "Own drew from torch's random numbers",
    lambda own, row: (
        row + torch.randn(4, generator=own.generator)
    ): "Own returned something else for the same record",
    lambda own, row: (
        row + np.random.default_rng().normal()
    ): "Own returned something else for the same record",
}


@pytest.mark.parametrize(("leak", "said"), LEAKS.items(), ids=range(len(LEAKS)))
def test_a_module_that_does_not_keep_its_authors_word_is_caught(
    leak: Callable[[Own, Tensor], Tensor], said: str
) -> None:
    records = Records(
        np.random.default_rng(0).normal(size=(20, 4)).astype(np.float32),
        np.arange(20) % 2,
    )

    def train(model: Prototype) -> None:
        units = Units.of(records, "record", 1)
        train_private(
            model,
            records,
            units,
            Mechanism(1.0),
            size=20,
            clip=1.0,
            optimizer=Optimizer(lr=0.1),
        )

    honest = Prototype(Own(lambda own, row: row), 2)
    assert sum(len(block) for _, block in outputs(honest.features, records)) == 20
    train(honest)
    with pytest.raises(ImpureModuleError, match=said):
        next(outputs(Own(leak), records))
    model = Prototype(Own(leak), 2)
    head = flatten_state(model.head)["parameters"].tobytes()
    with pytest.raises(ImpureModuleError, match=said):
        train(model)
    assert flatten_state(model.head)["parameters"].tobytes() == head
