"""Validation of networks for private records: a module is safe by its type and its
options, or by its author's word.

A record passes the network alone, so no layer can mix it with another within one call.
What is left are layers with state or randomness: statistics over a batch, weights that
a call rewrites, masks that depend on how many records came before, hooks. Testing a
layer cannot show what it does, since the weights are the server's and can hide it. So:

- a layer of `torch.nn` goes by its exact type and by the options of its constructor. Those named in the table may have
  any value. Every other one has its default, also one that a later release of torch
  adds.
- types of `fedaux`, timm, torchvision and transformers go by their names, and a user's own by `per_record_safe`.
  Their options are not looked at: that they keep no state and draw nothing at random is
  asserted at run time, around every pass over private records (`per_record.verified`).
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator
from functools import cache
from numbers import Real
from operator import attrgetter
from typing import Any, TypeVar
from weakref import WeakSet

import torch.nn.functional as F
from torch import nn
from torch.nn.modules import module as torch_module
from torch.nn.utils.parametrize import is_parametrized

from fedaux.core.errors import Exit, FedauxError

T = TypeVar("T", bound=type[nn.Module])

# types of torch.nn, and those of their options that may have any value; dropout is
# validated separately
_TORCH = {
    "Identity Sequential Tanh Sigmoid LogSigmoid Softsign": "",
    "ModuleList ModuleDict": "modules",
    "Linear modules.linear.NonDynamicallyQuantizableLinear": "in_features out_features bias",
    "Bilinear": "in1_features in2_features out_features bias",
    "Flatten Unflatten": "start_dim end_dim dim unflattened_size",
    "ChannelShuffle PixelShuffle PixelUnshuffle": "groups upscale_factor downscale_factor",
    "Embedding": "num_embeddings embedding_dim padding_idx _weight _freeze",
    "EmbeddingBag": "num_embeddings embedding_dim padding_idx _weight mode",
    "Conv1d Conv2d Conv3d ConvTranspose1d ConvTranspose2d ConvTranspose3d": (
        "in_channels out_channels kernel_size stride padding output_padding dilation "
        "groups bias padding_mode"
    ),
    "ReLU ReLU6 SELU SiLU Mish Hardswish Hardsigmoid": "inplace",
    "LeakyReLU ELU CELU": "negative_slope alpha inplace",
    "Hardtanh": "min_val max_val min_value max_value inplace",
    "PReLU": "num_parameters init",
    "GELU Softplus": "approximate beta threshold",
    "GLU Softmax LogSoftmax": "dim",
    "MaxPool1d MaxPool2d MaxPool3d": "kernel_size stride padding dilation return_indices ceil_mode",
    "AvgPool1d AvgPool2d AvgPool3d": "kernel_size stride padding ceil_mode count_include_pad divisor_override",
    "AdaptiveAvgPool1d AdaptiveAvgPool2d AdaptiveAvgPool3d": "output_size",
    "AdaptiveMaxPool1d AdaptiveMaxPool2d AdaptiveMaxPool3d": "output_size return_indices",
    "LPPool1d LPPool2d": "norm_type kernel_size stride ceil_mode",
    "ZeroPad1d ZeroPad2d ReflectionPad2d ReplicationPad2d ConstantPad2d": "padding value",
    "Upsample": "size scale_factor mode align_corners recompute_scale_factor",
    "GroupNorm": "num_groups num_channels eps affine bias",
    "LayerNorm RMSNorm": "normalized_shape eps elementwise_affine bias",
    "LocalResponseNorm": "size alpha beta k",
    "BatchNorm1d BatchNorm2d BatchNorm3d": "num_features eps momentum affine bias track_running_stats",
    "Dropout Dropout1d Dropout2d Dropout3d AlphaDropout": "p inplace",
    "RNN LSTM GRU": "mode input_size hidden_size num_layers bias batch_first dropout bidirectional proj_size",
    "MultiheadAttention": "embed_dim num_heads dropout bias add_bias_kv add_zero_attn kdim vdim batch_first",
    "TransformerEncoderLayer": "d_model nhead dim_feedforward dropout layer_norm_eps batch_first norm_first bias",
    "TransformerEncoder": "encoder_layer num_layers norm enable_nested_tensor mask_check",
}
FREE_OPTIONS: dict[type[nn.Module], frozenset[str]] = {
    # where weights are is validated as well
    attrgetter(name)(nn): frozenset([*options.split(), "device", "dtype"])
    for names, options in _TORCH.items()
    for name in names.split()
}
# of an option that is code, which could do anything
_KNOWN_VALUES = {"activation": (F.relu, F.gelu)}
_FEDAUX = (
    "registry.Prototype registry.HeadFeatures networks.Extractor networks.Columns "
    "networks.TableMap networks.CosineMap networks.RandomCosines "
    "networks.BasicBlock "
    "networks.InvertedResidual networks.Unit encoders.TextExtractor "
    "encoders.VisionExtractor published.Residual"
)
_TIMM = (
    "adaptive_avgmax_pool.SelectAdaptivePool2d attention.Attention mlp.Mlp "
    "norm.LayerNorm norm.LayerNorm2d patch_embed.PatchEmbed norm_act.BatchNormAct2d "
    "activations.GELU classifier.NormMlpClassifierHead layer_scale.LayerScale "
    "drop.DropPath"
)
_TORCHVISION = "misc.Conv2dNormActivation misc.SqueezeExcitation misc.Permute misc.MLP stochastic_depth.StochasticDepth"
SUPPORTED = frozenset(
    [
        *(f"fedaux.models.{name}" for name in _FEDAUX.split()),
        *(f"timm.layers.{name}" for name in _TIMM.split()),
        *(f"torchvision.ops.{name}" for name in _TORCHVISION.split()),
    ]
)
SUPPORTED_PREFIXES = (
    *(
        f"transformers.models.{name}."
        for name in ("bert", "roberta", "distilbert", "mpnet")
    ),
    *(
        f"transformers.models.{name}."
        for name in ("vit", "dinov2", "deit", "resnet", "convnext")
    ),
    "transformers.activations.",
    *(
        f"timm.models.{name}."
        for name in (
            "resnet",
            "vision_transformer",
            "convnext",
            "mobilenetv3",
            "efficientnet",
        )
    ),
    "timm.models._efficientnet_blocks.",
    *(
        f"torchvision.models.{name}."
        for name in ("resnet", "mobilenetv2", "mobilenetv3", "efficientnet", "convnext")
    ),
    "torchvision.models.vision_transformer.",
)
_ATTRIBUTES = vars(nn.Module()).keys()  # of every module
_HOOKS = (
    "_forward_hooks",
    "_forward_pre_hooks",
    "_backward_hooks",
    "_backward_pre_hooks",
)
_TENSOR_HOOKS = ("_backward_hooks", "_post_accumulate_grad_hooks")
_declared: WeakSet[type] = WeakSet()


class UnsupportedModuleError(FedauxError, ValueError):
    """In this network, a record's output may depend on other records."""

    code = Exit.PRIVACY


def per_record_safe(cls: T) -> T:
    """Declare your module to be safe for private records: `@per_record_safe`
    above the class.

    You declare that its output for a record depends only on that record and the
    weights: it keeps no state between calls, draws nothing at random, and normalises
    over nothing but the record. The modules inside it are validated separately. The
    declaration is for this very class, not for its subclasses. A pass over private
    records that contradicts it raises an error, but not every false declaration is
    noticed.

    Args:
        cls: The class, a subclass of `nn.Module`.

    Returns:
        The same class.
    """
    _declared.add(cls)
    return cls


def declare_modules(network: nn.Module) -> None:
    """Trust the caller that the network's own classes treat every record separately."""
    for module in network.modules():
        kind = type(module)
        known = (
            kind in FREE_OPTIONS
            or f"{kind.__module__}.{kind.__qualname__}" in SUPPORTED
        )
        if not known and not kind.__module__.startswith(
            ("torch.", "timm.", "torchvision.", "transformers.")
        ):
            _declared.add(kind)


def declared_modules(module: nn.Module) -> list[nn.Module]:
    """The submodules that are supported by their authors' declarations only."""
    return [submodule for submodule in module.modules() if type(submodule) in _declared]


def has_declared_module(module: nn.Module) -> bool:
    """Whether any submodule is supported by its author's declaration only."""
    return bool(declared_modules(module))


def validate_module(module: nn.Module, *, training: bool = False) -> None:
    """Raise an error that lists every unsupported submodule. `training` checks the
    network as gradients see it.
    """
    problems = [
        f"{path or 'the network'}: {type(submodule).__name__} {problem}"
        for path, submodule in module.named_modules()
        for problem in _problems(submodule, training)
    ]
    if any(getattr(torch_module, f"_global{hooks}") for hooks in _HOOKS):
        problems.append(
            "torch has global module hooks, which may remember records: remove them"
        )
    if not (problems or training):
        problems = [
            f"{place} stays in training mode after eval(): leave eval() and train() as "
            "they are in torch.nn.Module"
            for place in _still_training(module)
        ]
    if problems:
        raise UnsupportedModuleError(
            "Cannot use the network on private records: under a privacy promise a "
            "record's output must depend on that record alone. Change it: "
            f"{', '.join(problems)}."
        )


def _still_training(module: nn.Module) -> list[str]:
    """Find the submodules that `eval()` leaves in training mode. All modes are restored
    afterwards.
    """
    modes = [(submodule, submodule.training) for submodule in module.modules()]
    module.eval()
    found = [
        f"{path or 'the network'}: {type(submodule).__name__}"
        for path, submodule in module.named_modules()
        if submodule.training
    ]
    for submodule, mode in modes:
        submodule.training = mode
    return found


def _problems(module: nn.Module, training: bool) -> Iterator[str]:
    yield from _type_problems(module)
    yield from _change_problems(module)
    if isinstance(module, nn.modules.batchnorm._BatchNorm):
        if training:
            yield (
                "normalises over the batch in training: set norm = 'group' in its "
                "prototype, or head_only = true to train heads only"
            )
        elif (
            getattr(module, "running_mean", None) is None
            or getattr(module, "running_var", None) is None
        ):
            yield (
                "has no running statistics and normalises over the batch: give it "
                "track_running_stats=True, or take GroupNorm or LayerNorm"
            )
    if training:
        for name in _dropouts(module):
            yield (
                f"draws its masks at random, one record after the other ({name}): set "
                "its dropout to 0, or head_only = true"
            )


def _type_problems(module: nn.Module) -> Iterator[str]:
    """Yield what is wrong with a module's class, and with the options that it was built
    with.
    """
    kind = type(module)
    name = f"{kind.__module__}.{kind.__qualname__}"
    if is_parametrized(module):
        yield "has parametrisations: take them off with torch.nn.utils.parametrize.remove_parametrizations"
    elif kind in FREE_OPTIONS:
        for option in constructor_options(kind):  # type: ignore[arg-type]  # to mypy, a class cannot be hashed
            yield from _option_problems(module, option)
    elif not (
        name in SUPPORTED or name.startswith(SUPPORTED_PREFIXES) or kind in _declared
    ):
        yield (
            f"({name}) is not known to keep records apart: if it does, say so with "
            "@fedaux.per_record_safe above the class, or build it from layers of "
            "torch.nn"
        )


@cache
def constructor_options(kind: type[nn.Module]) -> tuple[inspect.Parameter, ...]:
    """Return the parameters of a constructor, for *args or **kwargs, also those of its
    base classes.
    """
    found: dict[str, inspect.Parameter] = {}
    for base in kind.__mro__:
        parameters = inspect.signature(base).parameters.values()
        named = [
            one
            for one in parameters
            if one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)
        ]
        found = {one.name: one for one in named} | found
        if len(named) == len(parameters):
            break
    return tuple(found.values())


def _option_problems(module: nn.Module, option: inspect.Parameter) -> Iterator[str]:
    if option.name in FREE_OPTIONS[type(module)]:
        return
    if option.default is option.empty or not hasattr(module, option.name):
        yield f"has an option {option.name}, of which nothing is known: take a release of torch without it"
        return
    allowed = _KNOWN_VALUES.get(option.name, (option.default,))
    value = getattr(module, option.name)
    if not any(
        value is one or (type(value) is type(one) and value == one) for one in allowed
    ):
        names = " or ".join(str(getattr(one, "__name__", one)) for one in allowed)
        yield f"has {option.name} = {value}, which is not known to keep records apart: set {option.name} = {names}"


def _change_problems(module: nn.Module) -> Iterator[str]:
    """Yield what was changed in a module after it was built."""
    kind = type(module)
    for name, value in vars(module).items():
        if name in _ATTRIBUTES:
            continue
        if callable(getattr(kind, name, None)):
            yield f"has a {name} that replaces the one of its class: make it another class"
        if any(isinstance(one, nn.Module) for one in _members(value)):
            yield f"has a module in {name} where torch does not find it: assign it directly, or as an nn.ModuleList"
    if getattr(module, "_compiled_call_impl", None) is not None:
        yield "is compiled, for the records that it has seen: leave compile() out"
    if any(getattr(module, hooks) for hooks in _HOOKS):
        yield "has hooks, which may remember records: remove them"
    for name, tensor in [*module._parameters.items(), *module._buffers.items()]:
        if any(getattr(tensor, hooks, None) for hooks in _TENSOR_HOOKS):
            yield f"has hooks on {name}, which may remember records: remove them"


def _dropouts(module: nn.Module) -> list[str]:
    """Return the names of the attributes that hold a dropout probability above 0."""
    kind = type(module)
    is_dropout = "drop" in kind.__name__.lower() or kind.__name__ == "StochasticDepth"
    return [
        name
        for name, value in (vars(kind) | vars(module)).items()
        if ("drop" in name.lower() or (is_dropout and name == "p"))
        and any(
            isinstance(one, Real) and not isinstance(one, bool) and one != 0
            for one in _members(value)
        )
    ]


def _members(value: Any) -> Iterable[Any]:
    """Return the members of a list, tuple or dict; any other value is its own only
    member.
    """
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list | tuple) else (value,)
