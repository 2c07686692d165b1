"""Which networks keep records apart: the built-in ones do; what is not known is refused
by its path, with the fix.
"""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.modules import module as torch_module

import fedaux
from fedaux.config.prototype import PrototypeSpec
from fedaux.core.errors import Exit
from fedaux.models import build, linear_head
from fedaux.privacy.module_validation import (
    FREE_OPTIONS,
    UnsupportedModuleError,
    constructor_options,
    declared_modules,
    has_declared_module,
    per_record_safe,
    validate_module,
)
from helpers.networks import IMAGES, TABLES, TEXTS, image_network, text_network


def refuses(problem: str, module: nn.Module, training: bool = False) -> None:
    """The module is refused for this, a regular expression."""
    with pytest.raises(UnsupportedModuleError, match=problem):
        validate_module(module, training=training)


@pytest.mark.parametrize("spec", [*IMAGES, *TABLES], ids=lambda spec: spec.label)
def test_every_built_in_network_is_known(spec: PrototypeSpec) -> None:
    validate_module(image_network(spec))
    if any(
        isinstance(module, nn.modules.batchnorm._BatchNorm)
        for module in image_network(spec).modules()
    ):
        refuses(
            "normalises over the batch in training", image_network(spec), training=True
        )
    else:
        validate_module(build(spec, (3, 8, 8), 3, 0), training=True)


def test_every_kind_of_text_network_is_known_and_a_head_in_training() -> None:
    for kind in TEXTS:
        validate_module(text_network(kind))
    validate_module(linear_head(4, 3), training=True)


def test_all_problems_are_named_at_once_with_path_and_fix() -> None:
    class Own(nn.Module):
        pass

    net = nn.Sequential(
        nn.Linear(4, 4),
        nn.Sequential(Own(), nn.BatchNorm1d(4, track_running_stats=False)),
    )
    with pytest.raises(UnsupportedModuleError) as caught:
        validate_module(net)
    said = str(caught.value)
    assert "1.0: Own (" in said
    assert "@fedaux.per_record_safe" in said
    assert (
        "1.1: BatchNorm1d has no running statistics and normalises over the batch: "
        "give it track_running" in said
    )
    assert caught.value.code == Exit.PRIVACY
    assert isinstance(caught.value, ValueError)
    assert isinstance(caught.value, fedaux.FedauxError)


def test_batch_norm_is_allowed_with_frozen_statistics_only() -> None:
    frozen = nn.Sequential(nn.BatchNorm2d(4))
    validate_module(frozen)
    refuses(
        "0: BatchNorm2d normalises over the batch in training: set norm",
        frozen,
        training=True,
    )
    frozen[0].running_var = None
    refuses("no running statistics", frozen)


@pytest.mark.parametrize(
    "layer",
    [nn.Dropout(0.1), nn.LSTM(3, 3, 2, dropout=0.1), nn.MultiheadAttention(4, 2, 0.1)],
)
def test_masks_are_refused_in_training_only(layer: nn.Module) -> None:
    validate_module(layer)
    refuses("draws its masks at random", layer, training=True)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("dropout_prob", 0.5),
        ("attention_dropout", 1),
        ("attn_drop", (0.0, 0.1)),
        ("drop", float("nan")),
    ],
)
def test_a_dropout_of_any_name_is_refused_in_training(name: str, value: Any) -> None:
    @per_record_safe
    class Own(nn.Module):
        pass

    own = Own()
    setattr(own, name, value)
    validate_module(own)
    refuses(
        rf"the network: Own draws its masks at random.*\({name}\): set its",
        own,
        training=True,
    )
    setattr(own, name, 0.0)
    validate_module(own, training=True)
    setattr(Own, name, value)  # of the class, where the instance has none
    delattr(own, name)
    refuses("draws its masks at random", own, training=True)


def test_functional_dropout_of_a_library_is_refused_in_training() -> None:
    """`dropout_prob` of a ViT's attention: no module draws there."""
    transformers = pytest.importorskip("transformers")
    sizes = {
        "hidden_size": 8,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 8,
    }
    for dropout in (0.0, 0.5):
        config = transformers.ViTConfig(
            image_size=8, patch_size=4, attention_probs_dropout_prob=dropout, **sizes
        )
        model = transformers.ViTModel(config, add_pooling_layer=False)
        validate_module(model)
        if dropout:
            refuses("draws its masks at random", model, training=True)
        else:
            validate_module(model, training=True)


def test_dropout_of_nothing_is_no_mask() -> None:
    @per_record_safe
    class Own(nn.Module):
        drop_last, dropped, dropout = True, "nothing", None

    validate_module(nn.Sequential(nn.Dropout(0.0), nn.GRU(3, 3), Own()), training=True)


def test_an_option_that_is_not_free_has_its_default() -> None:
    """Every value of every option: tests/attacks/test_module_enumeration.py."""
    changed = nn.Embedding(3, 2)
    validate_module(changed)
    changed.max_norm = 1.0
    for layer in (
        changed,
        nn.Embedding(3, 2, max_norm=1.0),
        nn.EmbeddingBag(3, 2, max_norm=1.0),
    ):
        refuses(
            r"has max_norm = 1\.0, which is not known .*: set max_norm = None",
            nn.Sequential(layer),
        )
    refuses(
        r"has sparse = True, .*: set sparse = False", nn.Embedding(3, 2, sparse=True)
    )


def test_an_activation_is_one_of_those_that_are_known() -> None:
    for known in ("relu", "gelu", F.relu, F.gelu):
        validate_module(nn.TransformerEncoderLayer(4, 2, activation=known))
    for unknown in (torch.tanh, lambda x: x, nn.ReLU()):
        refuses(
            r"has activation = .*: set activation = relu or gelu",
            nn.TransformerEncoderLayer(4, 2, activation=unknown),
        )


def test_an_option_of_a_later_torch_is_refused_unless_it_has_its_default(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Later(nn.Linear):
        def __init__(self, *sizes: int, remember: bool = False, **options: Any) -> None:
            super().__init__(*sizes, **options)
            self.remember = remember

    class Silent(nn.Linear):
        def __init__(
            self, in_features: int, out_features: int, remember: bool = False
        ) -> None:
            super().__init__(in_features, out_features)

    class Required(nn.Linear):
        def __init__(self, in_features: int, out_features: int, remember: bool) -> None:
            super().__init__(in_features, out_features)
            self.remember = remember

    for kind in (Later, Silent, Required):
        monkeypatch.setitem(FREE_OPTIONS, kind, FREE_OPTIONS[nn.Linear])
    assert {one.name for one in constructor_options(Later)} == FREE_OPTIONS[
        nn.Linear
    ] | {"remember"}
    validate_module(Later(2, 2, bias=False))
    refuses("Later has remember = True, which is not known", Later(2, 2, remember=True))
    for layer in (Silent(2, 2), Required(2, 2, remember=False)):
        refuses("has an option remember, of which nothing is known: take", layer)


def test_what_stays_in_training_mode_is_refused_for_features() -> None:
    @per_record_safe
    class Stubborn(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.drop = nn.Dropout(0.5)

        def train(self, mode: bool = True) -> "Stubborn":
            super().train(mode)
            self.drop.training = True
            return self

    net = nn.Sequential(nn.Linear(2, 2), Stubborn())
    for mode in (False, True):
        net.train(mode)
        refuses(
            r"alone\. Change it: 1\.drop: Dropout stays in training mode after eval\(\): ",
            net,
        )
        # it is left as it was
        assert (net.training, net[1].drop.training) == (mode, True)
    refuses("draws its masks at random", net, training=True)


def test_an_unknown_class_is_refused_until_somebody_vouches_for_it() -> None:
    class Own(nn.Module):
        pass

    class Derived(Own):
        pass

    class Linear(nn.Linear):
        pass

    refuses("the network: Linear", Linear(2, 2))
    refuses("the network: Own", Own())
    assert not has_declared_module(nn.Sequential(Own()))
    assert per_record_safe(Own) is Own
    validate_module(Own())
    assert has_declared_module(nn.Sequential(Own()))
    own = Own()
    assert declared_modules(nn.Sequential(nn.ReLU(), own)) == [own]
    refuses("the network: Derived", Derived())


def test_a_word_for_a_module_is_no_word_for_those_inside() -> None:
    @fedaux.per_record_safe
    class Own(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.BatchNorm1d(3, track_running_stats=False)

    refuses("norm: BatchNorm1d", Own())


HOOKS: list[Callable[[nn.Module], Any]] = [
    lambda one: one.register_forward_hook(lambda module, inputs, output: output),
    lambda one: one.register_forward_pre_hook(lambda module, inputs: inputs),
    lambda one: one.register_full_backward_hook(lambda module, inputs, outputs: inputs),
    lambda one: one.register_full_backward_pre_hook(lambda module, outputs: outputs),
    lambda one: next(one.parameters()).register_hook(lambda slope: slope),
    lambda one: next(one.parameters()).register_post_accumulate_grad_hook(
        lambda parameter: None
    ),
    lambda one: torch_module.register_module_forward_hook(
        lambda module, inputs, output: output
    ),
    lambda one: torch_module.register_module_forward_pre_hook(
        lambda module, inputs: inputs
    ),
    lambda one: torch_module.register_module_full_backward_hook(
        lambda module, inputs, outputs: inputs
    ),
    lambda one: torch_module.register_module_full_backward_pre_hook(
        lambda module, outputs: outputs
    ),
]


@pytest.mark.parametrize("register", HOOKS, ids=range(len(HOOKS)))
@pytest.mark.parametrize("training", [False, True])
def test_hooks_are_refused(
    register: Callable[[nn.Module], Any], training: bool
) -> None:
    module = nn.Sequential(nn.Linear(2, 2))
    hook = register(module[0])
    try:
        refuses(
            r"hooks.*, which may remember records: remove them",
            module,
            training=training,
        )
    finally:
        hook.remove()
    validate_module(module, training=training)


def test_what_was_changed_after_it_was_built_is_refused() -> None:
    for name in ("forward", "_conv_forward", "extra_repr"):
        layer = nn.Conv2d(1, 1, 1)
        setattr(layer, name, lambda *arguments: None)
        refuses(f"has a {name} that replaces the one of its class", layer)
    compiled = nn.Linear(2, 2)
    compiled._compiled_call_impl = lambda x: x  # what compile() leaves
    refuses(r"is compiled, .*: leave compile\(\) out", compiled)
    refuses(
        "ParametrizedLinear has parametrisations: take them off with torch",
        nn.utils.parametrizations.weight_norm(nn.Linear(2, 2)),
    )
    refuses("is not known", torch.jit.trace(nn.Linear(2, 2), torch.ones(1, 2)))


def test_modules_that_cannot_be_looked_at_are_refused() -> None:
    @per_record_safe
    class Own(nn.Module):
        pass

    hiding = Own()
    for hidden in (
        [nn.BatchNorm1d(2)],
        {"norm": nn.BatchNorm1d(2)},
        (nn.Linear(2, 2), nn.ReLU()),
    ):
        hiding.layers = hidden
        refuses(r"has a module in layers where .*: assign it .* nn\.ModuleList", hiding)
    refuses("LazyLinear", nn.LazyLinear(2))
