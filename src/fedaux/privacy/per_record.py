"""Features, projections and gradients of private records: each, bit for bit, a function
of its own record.

A proof of sensitivity cancels the terms of every record but one. They cancel only if
they are the same bits in both data sets, and a hostile map can make a last bit as large
as it likes. In a batch the bits of a row depend on others: texts share a padding, and
kernels order their sums by the batch's shape, by the alignment of its memory and by the
number of threads. So here:

- a network sees one record per call, at its own length, in memory that torch has just allocated (aligned to 64 bytes),
  in one thread. Its modules are all supported (`validate_module`). A call's shape is
  then the record's own.
- the public map is elementwise operations, which IEEE 754 rounds correctly, and a product of integers that is exact in
  any order: its bits depend on its operands and on nothing else.
- several threads take different records, each record in one thread.
- a pass that changes a weight, draws at random or says something else of the same record ends in an error (`verified`).
"""

from __future__ import annotations

import copy
import timeit
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from fedaux.core.arrays import Vector
from fedaux.core.errors import Exit, FedauxError
from fedaux.data.records import Records
from fedaux.models.compute import CPU, Compute, compute_of
from fedaux.models.registry import Prototype
from fedaux.privacy.module_validation import (
    UnsupportedModuleError,
    declared_modules,
    has_declared_module,
    validate_module,
)

Replicas = Sequence[nn.Module]  # they share their weights; one for each worker thread
R = TypeVar("R")
BLOCK = 512  # rows in a block of `outputs`
# a shorter pass is mostly Python, which a second thread does not speed up
MIN_PARALLEL_SECONDS = 0.5e-3
_PROJECT_ROWS = 2**8  # that many rows stay in the processor's cache
# of a row: a smaller one is taken for zero, as its scale would overflow
_LEAST_EXPONENT = -900
# by their bytes
_INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class ImpureModuleError(FedauxError, ValueError):
    """Private records changed the network, or it draws at random: a record's output may
    depend on other records.
    """

    code = Exit.PRIVACY


def outputs(
    module: nn.Module, records: Records
) -> Iterator[tuple[slice, NDArray[np.float32]]]:
    """Yield the module's output in eval mode, a block of rows at a time, each record
    computed alone.
    """
    module.eval()
    validate_module(module)
    validate_placement(module)

    def forward(replica: nn.Module, positions: Sequence[int]) -> NDArray[np.float32]:
        with torch.inference_mode():
            return np.concatenate(
                [
                    _row(replica(batch_of_one(records, position)))
                    for position in positions
                ]
            )

    replicas = replicate(module, lambda replica: forward(replica, [0]), len(records))
    for rows in records.blocks(BLOCK):
        with verified(replicas, partial(forward, positions=[rows.start])):
            parts = parallel_apply(replicas, forward, range(rows.start, rows.stop))
        block = np.empty((rows.stop - rows.start, parts[0].shape[1]), np.float32)
        for first, part in enumerate(parts):
            block[first :: len(parts)] = part
        yield rows, block


def gradient(model: Prototype, records: Records, position: int, label: int) -> Vector:
    """Return the gradient of one record's cross-entropy, (P,); zero if its label is not
    among the classes.
    """
    parameters = list(model.parameters())
    if not 0 <= label < model.head.out_features:
        return np.zeros(sum(parameter.numel() for parameter in parameters))
    loss = F.cross_entropy(
        model(batch_of_one(records, position)), torch.tensor([label])
    )
    gradients = torch.autograd.grad(loss, parameters, materialize_grads=True)
    return np.asarray(
        torch.cat([tensor.flatten() for tensor in gradients]).double().numpy()
    )


def project(
    rows: NDArray[np.floating], mean: NDArray[np.floating], basis: NDArray[np.floating]
) -> Vector:
    """(h − μ) B for every row h, (N, H) → (N, k), as a product of integers. What is not
    finite becomes NaN.

    Both factors are rounded to integers of b bits, h − μ in a unit of its own, with
    H·2^2b ≤ 2^53. Every partial sum is then an integer that a double holds exactly, so
    no order of the sums, no fused multiplication and no block of rows changes a bit. In
    real numbers a matrix product would choose the order of its sums by the shape. 2^-b
    is about 1e-7 of a row's largest term, which is what features in single precision
    are known to. The bound is checked.
    """
    rows, mean, basis = (_as_floats(array) for array in (rows, mean, basis))
    if not (np.isfinite(mean).all() and np.isfinite(basis).all()):
        return np.full((len(rows), basis.shape[1]), np.nan)
    bits = (53 - (len(basis) - 1).bit_length()) // 2
    # a feature counts as much as its largest coefficient
    balance = np.frexp(_largest(basis))[1]
    weights, scale = (
        np.rint(np.ldexp(basis, bits - balance, dtype=np.float64)),
        np.ldexp(1.0, balance.T),
    )
    _check_bits(weights, bits)
    out = np.empty((len(rows), basis.shape[1]))
    for start in range(0, len(rows), _PROJECT_ROWS):
        part = slice(start, start + _PROJECT_ROWS)
        # a row that is not finite affects no other row
        with np.errstate(over="ignore", invalid="ignore"):
            steps = np.subtract(rows[part], mean, dtype=np.float64)
            steps *= scale
            largest = _largest(steps)
            finite = np.isfinite(largest)
            steps[~finite[:, 0]] = 0.0
            unit = (
                np.maximum(np.frexp(np.where(finite, largest, 0.0))[1], _LEAST_EXPONENT)
                - bits
            )
            steps *= np.ldexp(1.0, -unit)
            _check_bits(np.rint(steps, out=steps), bits)
            product = steps @ weights
            out[part] = np.where(finite, np.ldexp(product, unit - bits), np.nan)
    return out


def _as_floats(array: NDArray[np.floating]) -> NDArray[np.floating]:
    """Refuse integers, which would wrap where floats do not. An order's types were
    checked when it arrived.
    """
    if array.dtype not in (np.float32, np.float64):
        raise ValueError(
            f"features and the public map are float32 or float64, not {array.dtype}. "
            "Nothing is released."
        )
    return array


def _check_bits(steps: Vector, bits: int) -> None:
    if not (_largest(steps) <= 2.0**bits).all():
        raise AssertionError(
            "an integer of the public map has too many bits for an exact product. "
            "Nothing is released."
        )


def _largest(rows: NDArray[np.floating]) -> Vector:
    """Return the largest magnitude of each row, (N, 1); NaN if the row has a NaN."""
    high, low = (
        rows.max(axis=1, keepdims=True, initial=0.0),
        rows.min(axis=1, keepdims=True, initial=0.0),
    )
    return np.asarray(np.maximum(high, -low), np.float64)


def validate_placement(module: nn.Module) -> None:
    """Raise an error if any weight is not an ordinary tensor, not on the CPU, or not in
    float32.
    """
    elsewhere = [
        name
        for name, tensor in [*module.named_parameters(), *module.named_buffers()]
        if type(tensor) not in (Tensor, nn.Parameter)
        or tensor.device != CPU
        or tensor.layout != torch.strided
    ]
    elsewhere += [
        name
        for name, parameter in module.named_parameters()
        if parameter.dtype != torch.float32
    ]
    if elsewhere or compute_of(module) != Compute():
        found = f" ({elsewhere[0]} is not)" if elsewhere else ""
        raise UnsupportedModuleError(
            "Cannot use the network on private records: private records pass a network "
            f"on the processor in float32{found}. Place it there with .cpu().float()."
        )


@contextmanager
def verified(
    replicas: Replicas, attempt: Callable[[nn.Module], NDArray[Any]]
) -> Iterator[None]:
    """Check a pass over private records: raise an error if it left a trace, so that
    nothing of it is released.

    Every tensor that a module holds is the same afterwards, bit for bit; torch's
    generator was not drawn from; and `attempt`, the work on one record of the pass,
    returns the same bits before it and after it, then in every replica. State that no
    tensor holds shows in that alone.
    """
    with single_thread():
        drawn, held = torch.get_rng_state(), _held_tensors(replicas)
        copies = {
            id(tensor): (_version(tensor), tensor.detach().clone())
            for tensor in held.values()
        }
        first = attempt(replicas[0])
    yield
    again = parallel_apply(replicas, lambda replica, _: attempt(replica), replicas)
    with single_thread():
        for name, tensor in _held_tensors(replicas).items():
            if tensor is not held.pop(name, None):
                raise _impure(f"{name} was set")
            version, copied = copies[id(tensor)]
            if version != _version(tensor) or not _same_bits(tensor, copied):
                raise _impure(f"{name} was changed")
    if held:
        raise _impure(f"{next(iter(held))} was deleted")
    if not torch.equal(drawn, torch.get_rng_state()):
        raise _impure(
            f"{_suspects(replicas[0])} drew from torch's random numbers, or another "
            "thread of this process did"
        )
    if any(one.tobytes() != first.tobytes() for one in again):
        raise _impure(
            f"{_suspects(replicas[0])} returned something else for the same record"
        )


def _held_tensors(replicas: Replicas) -> dict[str, Tensor]:
    """Parameters, buffers and tensors among the attributes, by the place and type of
    the module that holds them.
    """
    return {
        f"{name} of {type(module).__name__} ({path or 'the network'}{f', replica {number}' if number else ''})": value
        for number, replica in enumerate(replicas)
        for path, module in replica.named_modules()
        for held in (module._parameters, module._buffers, vars(module))
        for name, value in held.items()
        if isinstance(value, Tensor)
    }


def _version(tensor: Tensor) -> int:
    """Return how often torch has written to a tensor, or 0 for one made in inference mode,
    which is not counted.
    """
    return 0 if tensor.is_inference() else tensor._version


def _same_bits(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors have the same bits: NaN equals itself, and 0.0 differs from
    -0.0.
    """
    if one.dtype != other.dtype or one.shape != other.shape:
        return False
    kind = _INTEGERS.get(one.element_size(), torch.int8)
    return torch.equal(
        *(tensor.detach().reshape(-1).view(kind) for tensor in (one, other))
    )


def _suspects(network: nn.Module) -> str:
    """Name the modules that are supported by declaration only. Without any, the
    network.
    """
    return " or ".join(
        sorted(
            {type(module).__name__ for module in declared_modules(network) or [network]}
        )
    )


def _impure(what: str) -> ImpureModuleError:
    return ImpureModuleError(
        "Cannot use the network on private records: while private records passed, "
        f"{what}, and under a privacy promise a network remembers nothing and draws "
        "nothing at random. Nothing was released. Take that out of the module."
    )


def batch_of_one(records: Records, position: int) -> Any:
    """One record as a batch, in newly allocated memory; text stays text, which its
    network tokenises.
    """
    batch = records.batch(np.array([position]))
    return (
        torch.empty(batch.shape, dtype=batch.dtype).copy_(batch)
        if isinstance(batch, Tensor)
        else batch
    )


def replicate(
    module: nn.Module, probe: Callable[[nn.Module], object], count: int
) -> Replicas:
    """One replica for each thread that torch may use, if `probe`, one record's work,
    takes long enough to benefit.

    Replicas are separate modules with shared weights. A user's own module may not be
    safe to copy, so a network that contains a declared one is not replicated.
    """
    threads = torch.get_num_threads()
    if threads == 1 or count < 4 * threads or has_declared_module(module):
        return [module]
    with single_thread():
        seconds = min(timeit.repeat(lambda: probe(module), number=1, repeat=3))
    if seconds < MIN_PARALLEL_SECONDS:
        return [module]
    shared = {
        id(tensor): tensor for tensor in [*module.parameters(), *module.buffers()]
    }
    return [module, *(copy.deepcopy(module, dict(shared)) for _ in range(threads - 1))]


def parallel_apply(
    replicas: Replicas,
    work: Callable[[nn.Module, Sequence[Any]], R],
    items: Sequence[Any],
) -> list[R]:
    """Apply `work` to the items: replica i of n has i, i + n, …, in one thread. The
    assignment changes no bit.
    """
    shares = [items[first :: len(replicas)] for first in range(len(replicas))]
    jobs = [
        (replica, share)
        for replica, share in zip(replicas, shares, strict=True)
        if len(share)
    ]
    with single_thread():
        if len(jobs) <= 1:
            return [work(replica, share) for replica, share in jobs]
        with ThreadPoolExecutor(
            len(jobs), initializer=torch.set_num_threads, initargs=(1,)
        ) as pool:
            return list(pool.map(work, *zip(*jobs, strict=True)))


@contextmanager
def single_thread() -> Iterator[None]:
    """Make torch compute each operation in one thread. The setting belongs to the
    calling thread.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _row(output: Tensor) -> NDArray[np.float32]:
    if output.ndim != 2 or len(output) != 1:
        raise ValueError(
            "a network's output for one record was expected as (1, H), not "
            f"{tuple(output.shape)}"
        )
    return np.asarray(output.float().numpy())
