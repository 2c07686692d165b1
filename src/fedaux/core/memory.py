"""What a process does with memory that training frees: keep it, so that the next step
finds it.
"""

from __future__ import annotations

import ctypes
import os
import sys

# glibc's `mallopt` takes these numbers (malloc.h)
M_TRIM_THRESHOLD = -1
M_TOP_PAD = -2
M_MMAP_MAX = -4

LARGEST_INT = 2**31 - 1
GROWTH = 64 * 2**20  # bytes that the heap grows by at a time


def reuse_memory() -> bool:
    """Keep the memory that this process frees, and use it again.

    A step of training allocates and frees the same large arrays, again and again. glibc
    returns each of them to the kernel and asks for it again, page by page: without this
    call, that is up to half of the processor time of a pre-training. All commands that
    train call it, and so do the processes of sites, servers and sweeps. In a program or
    your notebook, call it once, before you train.

    Results are bit for bit the same. The process may keep more memory than it needs at
    the moment. Nothing happens on systems without glibc, and if the environment
    already defines how memory is allocated (`GLIBC_TUNABLES`, `MALLOC_…`).

    Returns:
        Whether this process now keeps its memory.

    Example:
        >>> import fedaux
        >>> fedaux.reuse_memory()  # doctest: +SKIP
        True
    """
    if _environment_decides() or sys.platform != "linux":
        return False
    libc = ctypes.CDLL(None)
    # other C libraries for Linux, such as musl, have other allocators
    if not hasattr(libc, "gnu_get_libc_version"):
        return False
    accepted = [
        # no array is mapped for itself: what is mapped, `free` returns to the kernel
        libc.mallopt(M_MMAP_MAX, 0),
        # nor is the end of the heap returned
        libc.mallopt(M_TRIM_THRESHOLD, LARGEST_INT),
        libc.mallopt(M_TOP_PAD, GROWTH),
    ]
    return all(accepted)


def _environment_decides() -> bool:
    """Whether whoever started this process has set glibc's allocator."""
    tunables = os.environ.get("GLIBC_TUNABLES", "")
    old_style = any(
        name.startswith("MALLOC_") and name.endswith("_") for name in os.environ
    )
    return "glibc.malloc." in tunables or old_style
