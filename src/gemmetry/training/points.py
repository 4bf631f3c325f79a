"""The points of a sweep: the product of its axes, their order, and the folder of each."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any
from urllib.parse import quote

from gemmetry.domain.units import counted
from gemmetry.training.axes import SweepAxis

TRACES, ROCPROF, NCU, LOG = "torch_profiler", "rocprof_traces", "ncu", "run_output.log"
"""What a point's folder contains."""

_PLAIN = "+,@:^"
"""Characters that stay as they are in folders' names, in addition to letters, digits and ``_.-~``;
others are written as in an URL."""


@dataclass(frozen=True, slots=True)
class PlannedPoint:
    """One run of a sweep."""

    threads: int | None
    """None: the library's own choice."""
    channels: int | None
    axes: tuple[tuple[str, str], ...]
    repeat: int
    """Counted from 1."""
    has_repeat_folder: bool

    @property
    def folder(self) -> str:
        """Its folder in the sweep, ``256thread/nccl_28channels/NCCL_ALGO=Ring/repeat_01``, which
        also identifies it."""
        parts = []
        if self.threads is not None:
            parts.append(f"{self.threads}thread")
        if self.channels is not None:
            parts.append(f"nccl_{self.channels}channels")
        parts += [f"{name}={quote(value, safe=_PLAIN)}" for name, value in self.axes]
        if self.has_repeat_folder or not parts:
            parts.append(f"repeat_{self.repeat:02d}")
        return "/".join(parts)

    @property
    def title(self) -> str:
        """For people: ``256 threads, 28 channels, NCCL_ALGO=Ring, repeat 2``."""
        parts = []
        if self.threads is not None:
            parts.append(counted(self.threads, "thread"))
        if self.channels is not None:
            parts.append(counted(self.channels, "channel"))
        parts += [f"{name}={value}" for name, value in self.axes]
        if self.has_repeat_folder or not parts:
            parts.append(f"repeat {self.repeat}")
        return ", ".join(parts)

    def document(self) -> dict[str, Any]:
        """What identifies the point, as JSON values."""
        return {
            "threads": self.threads,
            "channels": self.channels,
            "axes": dict(self.axes),
            "repeat": self.repeat,
        }


def plan_points(
    threads: Sequence[int],
    channels: Sequence[int],
    axes: Sequence[SweepAxis],
    *,
    repeats: int,
    first_has_folder: bool,
    seed: int | None,
) -> tuple[PlannedPoint, ...]:
    """The points in the order in which they run: each configuration once, then each again.

    Args:
        threads, channels: () for the library's own choice.
        first_has_folder: whether the first repeats have folders ``repeat_01``; they have none in a
            sweep that began with a single repeat.
        seed: of the order, which is drawn anew for each repeat, so that drift of the machine
            affects all configurations alike; None: the order of the axes.
    """
    names = [axis.name for axis in axes]
    configurations = [
        (one, other, tuple(zip(names, values, strict=True)))
        for one in threads or (None,)
        for other in channels or (None,)
        for values in product(*(axis.values for axis in axes))
    ]
    points = []
    for repeat in range(1, repeats + 1):
        order = list(configurations)
        if seed is not None:
            random.Random(f"{seed} {repeat}").shuffle(order)
        has_folder = first_has_folder or repeat > 1
        points += [PlannedPoint(*configuration, repeat, has_folder) for configuration in order]
    return tuple(points)
