"""Rows that could reach into others', and any company for them: what the tests of per-record work draw from."""

import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

SHAPE = (3, 8, 8)
ODD = (np.nan, np.inf, -np.inf, 3e38, -3e38, 1e-45, 0.0)
ROWS = np.stack([*np.random.default_rng(0).normal(size=(4, *SHAPE)), *(np.full(SHAPE, value) for value in ODD)]).astype(
    np.float32
)
COMPANY = st.lists(st.integers(0, 100), max_size=14)  # who else is there, modulo the number of rows
EXAMPLES = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
