"""Rows that could reach into others', and any company for them: what the tests of
per-record work draw from.
"""

from collections.abc import Callable

import numpy as np
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn

from fedaux.data.records import Records
from fedaux.privacy import per_record

SHAPE = (3, 8, 8)
ODD = (np.nan, np.inf, -np.inf, 3e38, -3e38, 1e-45, 0.0)
ROWS = np.stack(
    [
        *np.random.default_rng(0).normal(size=(4, *SHAPE)),
        *(np.full(SHAPE, value) for value in ODD),
    ]
).astype(np.float32)
RNG = np.random.default_rng(0)
PICTURES = np.stack(
    [*RNG.integers(0, 256, (4, 8, 8, 3)), np.zeros((8, 8, 3)), np.full((8, 8, 3), 255)]
).astype(np.uint8)
STRINGS = [
    "the team was new",
    "oil",
    "rocket launch in the old league",
    "",
    "the " * 100,
    "[PAD] [PAD] [PAD]",
    "é\x00 😀 star",
]
TEXT_ROWS = np.array(STRINGS, dtype=object)
# who else is there, modulo the number of rows
COMPANY = st.lists(st.integers(0, 100), max_size=6)
EXAMPLES = settings(
    max_examples=12,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


def collected(module: nn.Module, records: Records) -> np.ndarray:
    return np.concatenate([block for _, block in per_record.outputs(module, records)])


def keeps_its_bits(module: nn.Module, pool: np.ndarray) -> Callable[[], None]:
    """Alone, with 1 thread, against: anywhere among any neighbours, as a view or not,
    with 1 or 2 threads.
    """
    alone = [collected(module, Records(pool[[i]])).tobytes() for i in range(len(pool))]

    @EXAMPLES
    @given(
        st.integers(0, len(pool) - 1),
        COMPANY,
        COMPANY,
        st.sampled_from([1, 2]),
        st.booleans(),
    )
    def check(
        own: int, before: list[int], after: list[int], threads: int, view: bool
    ) -> None:
        positions = np.array([*before, own, *after]) % len(pool)
        torch.set_num_threads(threads)
        found = collected(
            module, Records(pool).take(positions) if view else Records(pool[positions])
        )
        assert [row.tobytes() for row in found] == [
            alone[position] for position in positions
        ]

    return check
