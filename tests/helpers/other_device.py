"""A GPU that every machine has: tensors on it meet no others, and numpy cannot see
them.

Within `other_device`, the device `meta` is taken for it. An operation on tensors of
both devices (scalars aside) raises as it would on a GPU, and so does `.numpy()` without
`.cpu()`. The arithmetic is the processor's: results are equal.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map

from fedaux.client.loading import cached_head, cached_model
from fedaux.models import compute

OTHER = torch.device("meta")
LEAVES = {
    Tensor.cpu,
    Tensor.item,
    Tensor.tolist,
    Tensor.__float__,
    Tensor.__int__,
    Tensor.__bool__,
}
# from one device to the other
COPIES = {Tensor.copy_, Tensor.to, torch._has_compatible_shallow_copy_type}


class OtherTensor(Tensor):
    """A tensor on the other device."""

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if func == Tensor.device.__get__:  # type: ignore[attr-defined]
            return OTHER
        if func is Tensor.numpy:
            raise TypeError("numpy cannot see the other device: use .cpu() first")
        here = [
            leaf
            for leaf in tree_leaves((args, kwargs))
            if isinstance(leaf, Tensor)
            and not isinstance(leaf, OtherTensor)
            and leaf.ndim > 0
        ]
        if here and func not in COPIES:
            raise RuntimeError(f"{func.__name__}: tensors are on two devices")
        with torch._C.DisableTorchFunctionSubclass():
            result = func(*args, **(kwargs or {}))
        stays = func in LEAVES or (
            func is Tensor.copy_ and not isinstance(args[0], OtherTensor)
        )
        stays |= func is Tensor.to and "cpu" in map(str, args[1:])
        return tree_map(_here if stays else _there, result)


class Dispatch(TorchFunctionMode):
    """Whatever is asked to be on the other device becomes an `OtherTensor`."""

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        leaves = tree_leaves((args, kwargs))
        asked = any(isinstance(leaf, torch.device) and leaf == OTHER for leaf in leaves)
        if not asked or func is torch._C._nn._parse_to:
            return func(*args, **(kwargs or {}))
        args, kwargs = tree_map(
            lambda leaf: (
                torch.device("cpu") if isinstance(leaf, torch.device) else leaf
            ),
            (args, kwargs or {}),
        )
        return tree_map(_there, func(*args, **kwargs))


def _there(value: Any) -> Any:
    moves = isinstance(value, Tensor) and not isinstance(value, OtherTensor)
    return value.as_subclass(OtherTensor) if moves else value


def _here(value: Any) -> Any:
    return value.as_subclass(Tensor) if isinstance(value, OtherTensor) else value


@contextmanager
def other_device(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """`device = "auto"` is the other device within the block."""
    found = compute.find_device
    overwrite = torch.__future__.get_overwrite_module_params_on_conversion()
    torch.__future__.set_overwrite_module_params_on_conversion(True)
    _forget_resident_models()
    try:
        with monkeypatch.context() as patch, Dispatch():
            patch.setattr(
                compute,
                "find_device",
                lambda name: OTHER if name == "auto" else found(name),
            )
            yield
    finally:
        _forget_resident_models()
        torch.__future__.set_overwrite_module_params_on_conversion(overwrite)


def _forget_resident_models() -> None:
    cached_model.cache_clear()
    cached_head.cache_clear()
