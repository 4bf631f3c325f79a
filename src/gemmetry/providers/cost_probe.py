"""Predicts the time of a launch on a host from smaller products of increasing size.

A single probe may be disturbed: if another program takes the processor for a few milliseconds, a
product of 0.2 ms appears to take 20 ms. So each size is timed a few times, several sizes are timed,
and the smallest prediction is used. It errs on the short side, which costs one launch under a
deadline (``gemmetry.engine.dispatches.launch_budget``), and never excludes a feasible operation.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from gemmetry.domain.operation import Conv2dShape, MatmulShape, Operation

SIZES = (128, 256, 512, 1024)
"""Largest extents of the probes. 128³ takes about 0.1 ms in BLAS and, with the conversions of
narrow types, a millisecond; large ones run at the rate of large products."""

TRIES = 3
"""Timed launches of each probe, after one that warms up caches and threads."""

LONG_S = 0.05
"""A probe that takes longer ends the search: the next one takes about eight times as long."""

SHARE = 8
"""Least ratio of the operation's FLOPs to those of a probe; below it, a probe saves nothing."""

Launch = Callable[[], object]


class CostProbe:
    """Predictions for the operations of one provider; timed probes are cached."""

    def __init__(
        self,
        prepare: Callable[[Operation], Launch],
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """`prepare` creates a launch of an operation, including its inputs; `clock` returns
        seconds."""
        self._prepare = prepare
        self._clock = clock
        self._seconds: dict[Operation, float] = {}

    def seconds(self, operation: Operation) -> float | None:
        """Predicted seconds of one launch: the probes' times scaled by the FLOPs, of which the
        smallest is used; None for an operation that is hardly larger than the smallest probe."""
        predicted: float | None = None
        for size in SIZES:
            small = shrunk(operation, size)
            if small.flops * SHARE > operation.flops:
                break
            took = self._time(small)
            scaled = took * operation.flops / small.flops
            predicted = scaled if predicted is None else min(predicted, scaled)
            if took > LONG_S:
                break
        return predicted

    def _time(self, small: Operation) -> float:
        if small not in self._seconds:
            self._seconds[small] = least_seconds(self._prepare(small), self._clock)
        return self._seconds[small]


def least_seconds(launch: Launch, clock: Callable[[], float] = time.perf_counter) -> float:
    """The shortest of :data:`TRIES` times of `launch` in seconds, after an untimed one; after two
    long ones there is no third."""
    launch()
    times: list[float] = []
    while len(times) < TRIES and not (len(times) > 1 and min(times) > LONG_S):
        began = clock()
        launch()
        times.append(clock() - began)
    return min(times)


def shrunk(operation: Operation, size: int) -> Operation:
    """`operation` with every extent at most `size` (batch and image side less)."""
    shape = operation.shape
    if isinstance(shape, Conv2dShape):
        side = size // 8
        smaller = shape._replace(
            n=1,
            h=min(shape.h, max(side, shape.r)),
            w=min(shape.w, max(side, shape.s)),
            c=min(shape.c, size),
            f=min(shape.f, size),
        )
        return replace(operation, shape=smaller)
    slices = operation.signature.split_k_slices
    depth = max(1, min(shape.k, size) // slices) * slices
    rows, columns = min(shape.m, size), min(shape.n, size)
    return replace(operation, shape=MatmulShape(rows, columns, depth, min(shape.batch, 4)))
