"""Which networks keep records apart: the built-in ones do; what is not known is refused by its path, with the fix."""

import pytest
import torch
from torch import nn

import fedaux
from fedaux.config.prototype import PrototypeSpec
from fedaux.core.errors import Exit
from fedaux.models import build, linear_head
from fedaux.privacy.module_validation import (
    UnsupportedModuleError,
    has_declared_module,
    keeps_records_apart,
    validate_module,
)
from helpers.networks import IMAGES, TEXTS, image_network, text_network


@pytest.mark.parametrize("spec", IMAGES, ids=lambda spec: spec.label)
def test_every_built_in_network_is_known(spec: PrototypeSpec) -> None:
    validate_module(image_network(spec))
    frozen_only = "batch" in dict(spec.options).values()
    if frozen_only:
        with pytest.raises(UnsupportedModuleError, match="normalises over the batch in training"):
            validate_module(image_network(spec), training=True)
    else:
        validate_module(build(spec, (3, 8, 8), 3, 0), training=True)


@pytest.mark.parametrize("kind", TEXTS)
def test_every_kind_of_text_network_is_known(kind: str) -> None:
    validate_module(text_network(kind))


def test_a_head_is_known_in_training() -> None:
    validate_module(linear_head(4, 3), training=True)


def test_all_problems_are_named_at_once_with_path_and_fix() -> None:
    class Own(nn.Module):
        pass

    net = nn.Sequential(nn.Linear(4, 4), nn.Sequential(Own(), nn.BatchNorm1d(4, track_running_stats=False)))
    with pytest.raises(UnsupportedModuleError) as caught:
        validate_module(net)
    said = str(caught.value)
    assert "1.0: Own (" in said
    assert "@fedaux.keeps_records_apart" in said
    assert "1.1: BatchNorm1d has no running statistics and normalises over the batch: give it track_running" in said
    assert caught.value.code == Exit.PRIVACY
    assert isinstance(caught.value, ValueError)
    assert isinstance(caught.value, fedaux.FedauxError)


def test_batch_norm_is_allowed_with_frozen_statistics_only() -> None:
    frozen = nn.Sequential(nn.BatchNorm2d(4))
    validate_module(frozen)
    with pytest.raises(UnsupportedModuleError, match="0: BatchNorm2d normalises over the batch in training: set norm"):
        validate_module(frozen, training=True)
    frozen[0].running_var = None
    with pytest.raises(UnsupportedModuleError, match="no running statistics"):
        validate_module(frozen)


@pytest.mark.parametrize("layer", [nn.Dropout(0.1), nn.LSTM(3, 3, 2, dropout=0.1), nn.MultiheadAttention(4, 2, 0.1)])
def test_masks_are_refused_in_training_only(layer: nn.Module) -> None:
    validate_module(layer)
    with pytest.raises(UnsupportedModuleError, match="draws its masks at random"):
        validate_module(layer, training=True)


def test_dropout_of_nothing_is_no_mask() -> None:
    validate_module(nn.Sequential(nn.Dropout(0.0), nn.GRU(3, 3)), training=True)


def test_an_unknown_class_is_refused_until_somebody_vouches_for_it() -> None:
    class Own(nn.Module):
        pass

    class Derived(Own):
        pass

    with pytest.raises(UnsupportedModuleError, match="the network: Own"):
        validate_module(Own())
    assert not has_declared_module(nn.Sequential(Own()))
    assert keeps_records_apart(Own) is Own
    validate_module(Own())
    assert has_declared_module(nn.Sequential(Own()))
    with pytest.raises(UnsupportedModuleError, match="the network: Derived"):
        validate_module(Derived())


def test_a_word_for_a_module_is_no_word_for_those_inside() -> None:
    @fedaux.keeps_records_apart
    class Own(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.BatchNorm1d(3, track_running_stats=False)

    with pytest.raises(UnsupportedModuleError, match="norm: BatchNorm1d"):
        validate_module(Own())


def test_a_class_derived_from_a_known_one_is_unknown() -> None:
    class Linear(nn.Linear):
        pass

    with pytest.raises(UnsupportedModuleError, match="the network: Linear"):
        validate_module(Linear(2, 2))


def test_what_was_changed_after_it_was_built_is_refused() -> None:
    hooked, early, replaced = nn.Linear(2, 2), nn.Linear(2, 2), nn.Linear(2, 2)
    hooked.register_forward_hook(lambda module, inputs, output: output)
    early.register_forward_pre_hook(lambda module, inputs: inputs)
    for one in (hooked, early):
        with pytest.raises(UnsupportedModuleError, match="hooks, which may remember records"):
            validate_module(nn.Sequential(one))
    replaced.forward = lambda x: x  # type: ignore[method-assign]
    with pytest.raises(UnsupportedModuleError, match="replaces its class's own"):
        validate_module(replaced)
    with pytest.raises(UnsupportedModuleError, match="ParametrizedLinear"):
        validate_module(nn.utils.parametrizations.weight_norm(nn.Linear(2, 2)))
    with pytest.raises(UnsupportedModuleError, match="is not known"):
        validate_module(torch.jit.trace(nn.Linear(2, 2), torch.ones(1, 2)))
