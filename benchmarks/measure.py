"""Ratios of two arms, taken in turn in one process: wall time and processor time,
minimum and median.
"""

from __future__ import annotations

import math
import os
import platform
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from statistics import median

Action = Callable[[], object]
Times = list[tuple[float, float]]  # wall and processor seconds


@dataclass(frozen=True)
class Row:
    """A line of the table: what was measured, what it may cost, and what it costs."""

    name: str  # B1 …
    setting: str
    target: str
    figures: str
    passed: bool
    # of a row that is a ratio: its value, and the largest that passes
    ratio: float = math.inf
    limit: float = 0.0

    def within(self, slack: float) -> bool:
        """Whether it passes, or is a ratio that would with so many times the limit."""
        return self.passed or self.ratio <= slack * self.limit


def seconds(action: Action) -> tuple[float, float]:
    """Wall and processor time; all threads of this process count."""
    wall = time.perf_counter()
    processor = time.process_time()
    action()
    return time.perf_counter() - wall, time.process_time() - processor


def alternate(arms: dict[str, Action], repeats: int = 7) -> dict[str, Times]:
    """The times of each arm, one after the other in turn, after a round to warm up."""
    times: dict[str, Times] = {name: [] for name in arms}
    for turn in range(repeats + 1):
        for name, action in arms.items():
            sample = seconds(action)
            if turn:
                times[name].append(sample)
    return times


def compare(
    name: str, setting: str, limit: float, ours: Action, bare: Action, repeats: int = 7
) -> Row:
    """Ours as a multiple of the bare arm. The minimum of processor time decides: other
    work does not disturb it.
    """
    times = alternate({"ours": ours, "bare": bare}, repeats)
    wall, processor = (
        [
            statistic(times["ours"], clock) / statistic(times["bare"], clock)
            for statistic in (_min, _median)
        ]
        for clock in (0, 1)
    )
    absolute = 1000 * _min(times["ours"], 0)
    figures = (
        f"processor {processor[0]:.2f} min, {processor[1]:.2f} median; wall "
        f"{wall[0]:.2f}, {wall[1]:.2f}; ours {absolute:,.3g} ms"
    )
    return Row(
        name,
        setting,
        f"≤ {limit:g}",
        figures,
        min(processor) <= limit,
        min(processor),
        limit,
    )


def _min(times: Times, clock: int) -> float:
    return min(sample[clock] for sample in times)


def _median(times: Times, clock: int) -> float:
    return median(sample[clock] for sample in times)


def machine() -> str:
    """Processor, threads and versions: what figures are worth nothing without."""
    import torch

    lines = (
        Path("/proc/cpuinfo").read_text().splitlines()
        if Path("/proc/cpuinfo").is_file()
        else []
    )
    models = [
        line.partition(":")[2].strip()
        for line in lines
        if line.startswith("model name")
    ]
    packages = ", ".join(
        f"{name} {version(name)}" for name in ("torch", "flwr", "numpy")
    )
    threads = torch.get_num_threads()
    return (
        f"{models[0] if models else platform.processor()}, {os.cpu_count()} cores, "
        f"{threads} thread{'s' if threads > 1 else ''}; Python "
        f"{platform.python_version()}, {packages}"
    )
