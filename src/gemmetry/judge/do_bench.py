"""``do_bench`` with the signature and the results of Triton's, for any callable on any device.

What differs from ``triton.testing.do_bench`` (Triton 3.9):

* it works without Triton, and on a CPU, by the host's clock;
* calls are submitted behind a backlog: gaps where the host is slower than the device, which
  Triton's events include, are not timed;
* on a GPU the warm-up continues until the speed has settled, for at most :data:`MOST_WARMUP_S`.
  At the power limit the first 25 ms run at a clock that does not last;
* the cache that is cleared between calls has the size that the device reports.

A single function's time moves with the card's state from minute to minute. To find out which of
two functions is faster, use :func:`gemmetry.compare`, which interleaves them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np

from gemmetry.domain.errors import RequestError
from gemmetry.judge.clocks import Clock, open_clock

MOST_WARMUP_S = 2.0
"""Longest warm-up on a GPU: clocks at a power limit settle within one to three seconds."""

_TRIED, _WINDOW_NS, _SETTLED, _SETTLED_WINDOWS = 5, 50e6, 0.01, 4

ReturnMode = Literal["min", "max", "mean", "median", "all"]


def do_bench(
    fn: Callable[[], object],
    warmup: float = 25,
    rep: float = 100,
    grad_to_none: Sequence[Any] | None = None,
    quantiles: Sequence[float] | None = None,
    return_mode: ReturnMode = "mean",
    *,
    device: object = None,
) -> Any:
    """Time a function, with cold caches, call by call.

    Args:
        fn: takes no arguments.
        warmup: least duration of the warm-up in ms.
        rep: duration of the samples in ms, of which there is at least one.
        grad_to_none: tensors whose ``grad`` is set to None before each call.
        quantiles: shares, such as (0.5, 0.2, 0.8), to return in place of one figure.
        return_mode: which figure of the samples to return.
        device: see :func:`gemmetry.judge.clocks.open_clock`.

    Returns:
        Milliseconds: a float; a list for quantiles (a float for a single one); all samples for
        ``all``.

    Raises:
        RequestError: an invalid argument.
    """
    if return_mode not in ("min", "max", "mean", "median", "all"):
        raise RequestError(
            f"return_mode is {return_mode!r}", hint="It is min, max, mean, median or all."
        )
    if any(not 0 <= share <= 1 for share in quantiles or ()):
        raise RequestError(f"quantiles are {list(quantiles or ())}", hint="Each is a share.")
    clock = open_clock(device, [fn], fn())

    def before() -> None:
        for tensor in grad_to_none or ():
            tensor.grad = None
        clock.flush()

    once_ns = max(float(np.median(clock.times([fn] * _TRIED, before))), 1.0)
    _warm_up(clock, fn, before, once_ns, warmup / 1e3)
    samples = clock.times([fn] * max(1, int(rep * 1e6 / once_ns)), before)
    times = np.asarray(samples) / 1e6
    if quantiles is not None:
        found = [float(value) for value in np.quantile(times, list(quantiles))]
        return found[0] if len(found) == 1 else found
    if return_mode == "all":
        return times.tolist()
    return float(getattr(np, return_mode)(times))


def _warm_up(
    clock: Clock,
    fn: Callable[[], object],
    before: Callable[[], None],
    once_ns: float,
    least_s: float,
) -> None:
    """Run for `least_s`; on a GPU until the times of some windows agree."""
    began, windows = time.perf_counter(), list[float]()
    is_gpu = clock.method != "wall_clock"
    count = max(1, int(min(_WINDOW_NS, max(least_s * 1e9, 1.0)) / once_ns))
    while (spent_s := time.perf_counter() - began) < (MOST_WARMUP_S if is_gpu else least_s):
        windows.append(float(np.mean(clock.times([fn] * count, before))))
        last = windows[-_SETTLED_WINDOWS:]
        is_settled = len(last) == _SETTLED_WINDOWS and max(last) <= (1 + _SETTLED) * min(last)
        if is_gpu and is_settled and spent_s >= least_s:
            break
