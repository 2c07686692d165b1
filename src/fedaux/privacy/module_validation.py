"""Validation of networks for private records: every module is of a supported type, or declared by its author.

A record passes the network alone, so no layer can mix it with another within one call. What is left are layers with
state or randomness: statistics over a batch, masks that depend on how many records came before, hooks. Testing a layer
cannot show what it does, since the weights are the server's and can hide it; so validation goes by exact type.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar
from weakref import WeakSet

from torch import nn

from fedaux.core.errors import Exit, FedauxError

T = TypeVar("T", bound=type[nn.Module])

_TORCH = (
    "linear.Identity linear.Linear linear.Bilinear flatten.Flatten flatten.Unflatten channelshuffle.ChannelShuffle "
    "linear.NonDynamicallyQuantizableLinear "
    "container.Sequential container.ModuleList container.ModuleDict sparse.Embedding sparse.EmbeddingBag "
    "conv.Conv1d conv.Conv2d conv.Conv3d conv.ConvTranspose1d conv.ConvTranspose2d conv.ConvTranspose3d "
    "activation.ReLU activation.ReLU6 activation.LeakyReLU activation.PReLU activation.ELU activation.CELU "
    "activation.SELU activation.SiLU activation.GELU activation.GLU activation.Mish activation.Tanh "
    "activation.Sigmoid activation.LogSigmoid activation.Hardswish activation.Hardsigmoid activation.Hardtanh "
    "activation.Softplus activation.Softsign activation.Softmax activation.LogSoftmax activation.MultiheadAttention "
    "pooling.MaxPool1d pooling.MaxPool2d pooling.MaxPool3d pooling.AvgPool1d pooling.AvgPool2d pooling.AvgPool3d "
    "pooling.AdaptiveAvgPool1d pooling.AdaptiveAvgPool2d pooling.AdaptiveAvgPool3d pooling.AdaptiveMaxPool1d "
    "pooling.AdaptiveMaxPool2d pooling.AdaptiveMaxPool3d pooling.LPPool1d pooling.LPPool2d "
    "padding.ZeroPad1d padding.ZeroPad2d padding.ReflectionPad2d padding.ReplicationPad2d padding.ConstantPad2d "
    "upsampling.Upsample pixelshuffle.PixelShuffle pixelshuffle.PixelUnshuffle "
    "normalization.GroupNorm normalization.LayerNorm normalization.RMSNorm normalization.LocalResponseNorm "
    "batchnorm.BatchNorm1d batchnorm.BatchNorm2d batchnorm.BatchNorm3d "
    "dropout.Dropout dropout.Dropout1d dropout.Dropout2d dropout.Dropout3d dropout.AlphaDropout "
    "rnn.RNN rnn.LSTM rnn.GRU transformer.TransformerEncoder transformer.TransformerEncoderLayer"
)
_FEDAUX = (
    "registry.Prototype layers.Extractor head_features.HeadFeatures mobilenet.InvertedResidual "
    "resnet.BasicBlock shufflenet.Unit text.TextExtractor vision.VisionExtractor"
)
_TIMM = (
    "adaptive_avgmax_pool.SelectAdaptivePool2d attention.Attention mlp.Mlp norm.LayerNorm norm.LayerNorm2d "
    "patch_embed.PatchEmbed norm_act.BatchNormAct2d activations.GELU classifier.NormMlpClassifierHead "
    "layer_scale.LayerScale drop.DropPath"
)
_TORCHVISION = "misc.Conv2dNormActivation misc.SqueezeExcitation misc.Permute misc.MLP stochastic_depth.StochasticDepth"
SUPPORTED = frozenset(
    [
        *(f"torch.nn.modules.{name}" for name in _TORCH.split()),
        *(f"fedaux.models.{name}" for name in _FEDAUX.split()),
        *(f"timm.layers.{name}" for name in _TIMM.split()),
        *(f"torchvision.ops.{name}" for name in _TORCHVISION.split()),
    ]
)
SUPPORTED_PREFIXES = (
    *(f"transformers.models.{name}." for name in ("bert", "roberta", "distilbert", "mpnet")),
    *(f"transformers.models.{name}." for name in ("vit", "dinov2", "deit", "resnet", "convnext")),
    "transformers.activations.",
    *(f"timm.models.{name}." for name in ("resnet", "vision_transformer", "convnext", "mobilenetv3", "efficientnet")),
    "timm.models._efficientnet_blocks.",
    *(f"torchvision.models.{name}." for name in ("resnet", "mobilenetv2", "mobilenetv3", "efficientnet", "convnext")),
    "torchvision.models.vision_transformer.",
)
_declared: WeakSet[type] = WeakSet()


class UnsupportedModuleError(FedauxError, ValueError):
    """A network in which a record's output may depend on other records."""

    code = Exit.PRIVACY


def keeps_records_apart(cls: T) -> T:
    """Declare a module of your own to be safe for private records: `@keeps_records_apart` above the class.

    You state that its output for a record depends on that record and the weights alone: it remembers nothing from one
    call to the next, draws nothing at random, and normalises over nothing but the record. The modules inside it are
    validated by themselves. The statement is about this very class, not about classes derived from it.
    """
    _declared.add(cls)
    return cls


def has_declared_module(module: nn.Module) -> bool:
    """Whether any submodule is supported by its author's declaration only."""
    return any(type(submodule) in _declared for submodule in module.modules())


def validate_module(module: nn.Module, *, training: bool = False) -> None:
    """Raise an error that lists every unsupported submodule; `training` checks the network as gradients see it."""
    problems = [
        f"{path or 'the network'}: {type(submodule).__name__} {problem}"
        for path, submodule in module.named_modules()
        for problem in _problems(submodule, training)
    ]
    if problems:
        raise UnsupportedModuleError(
            "under a privacy promise a record's output must depend on that record alone: " + "; ".join(problems)
        )


def _problems(module: nn.Module, training: bool) -> Iterator[str]:
    kind = type(module)
    name = f"{kind.__module__}.{kind.__qualname__}"
    if not (name in SUPPORTED or name.startswith(SUPPORTED_PREFIXES) or kind in _declared):
        yield (
            f"({name}) is not known to keep records apart: if it does, say so with @fedaux.keeps_records_apart above "
            "the class, or build it from layers of torch.nn"
        )
    if "forward" in vars(module):
        yield "has a forward that replaces its class's own: make it a class of its own"
    if module._forward_hooks or module._forward_pre_hooks:
        yield "has forward hooks, which may remember records: remove them"
    if isinstance(module, nn.modules.batchnorm._BatchNorm):
        if training:
            yield (
                "normalises over the batch in training: set norm = 'group' in its prototype, or head_only = true "
                "to train heads only"
            )
        elif getattr(module, "running_mean", None) is None or getattr(module, "running_var", None) is None:
            yield (
                "has no running statistics and normalises over the batch: give it track_running_stats=True, or take "
                "GroupNorm or LayerNorm"
            )
    if training and _has_dropout(module):
        yield "draws its masks at random, one record after the other: set its dropout to 0, or head_only = true"


def _has_dropout(module: nn.Module) -> bool:
    """Whether it is a dropout layer, or has a dropout inside."""
    is_dropout = type(module).__module__ == "torch.nn.modules.dropout"
    names = ("p",) if is_dropout or type(module).__name__ == "StochasticDepth" else ("dropout", "drop_prob")
    found = [getattr(module, name, 0.0) for name in names]
    return any(isinstance(one, float | int) and one > 0 for one in found)
