"""Clocks for calls of any function: the host's, and that of a GPU's stream.

Each call is timed apart: before it, outside the timed region, runs what the caller passes as
`before`: a flush of the caches, or on a GPU a small kernel. Calls of several functions are given in
one sequence. No function follows itself, and none that starts early overlaps with another.

``do_bench`` with the signature and the results of Triton's, for any callable on any device.

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

import functools
import inspect
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from gemmetry.domain.errors import RequestError
from gemmetry.hardware.host import last_level_cache_bytes

if TYPE_CHECKING:
    from gemmetry.domain.contracts import Observer

Call = Callable[[], object]
Function = Callable[..., object]

FLUSHES = 2
"""Caches are flushed by writing this many times their size."""

MOST_FLUSH_BYTES = 512 * 2**20
"""A flush writes at most this much: caches of servers' processors reach a gigabyte, which no core
has to itself."""


class HostClock:
    """Clock of calls on one device: the host's monotonic clock, where nothing else is written."""

    method = "wall_clock"
    """``wall_clock``, ``events`` or ``graph``."""

    def __init__(self) -> None:
        self.device = "cpu"
        """The device's name, for people."""
        self.cache_bytes = last_level_cache_bytes()
        """Size of the last-level cache in bytes."""
        self._flushed: Any = None

    def times(self, calls: Sequence[Call], before: Call | None = None) -> list[float]:
        """Run each call once, in order, with `before` untimed ahead of each. Durations in ns."""
        clock, durations = time.perf_counter_ns, []
        for call in calls:
            if before is not None:
                before()
            start = clock()
            call()
            durations.append(float(clock() - start))
        return durations

    def flush(self) -> None:
        """Overwrite the last-level cache; on a GPU in the order of its stream."""
        if self._flushed is None:
            size = min(FLUSHES * self.cache_bytes, MOST_FLUSH_BYTES)
            self._flushed = np.zeros(max(size, 2**20) // 8, np.int64)
        self._flushed += 1  # reads and writes: stores alone may bypass the caches

    def neighbour(self) -> Call | None:
        """Call ahead of each call where nothing is flushed; None on a host, where a call ends
        before the next one begins."""
        return None

    def captured(self, call: Call) -> Call:
        """The replay of what `call` submits.

        Raises:
            LaunchError: `call` cannot be captured; the message states why.
        """
        return call

    def observer(self) -> Observer:
        """Reads clocks, power and reasons of throttling."""
        from gemmetry.hardware.monitors import CpuObserver

        return CpuObserver()

    def overhead_ns(self) -> float:
        """Duration of an empty call."""
        return float(np.median(self.times([lambda: None] * 32)))


class StreamClock(HostClock):
    """Events on the current stream of a GPU, behind a backlog that hides the host's work.

    Args:
        index: the GPU, as torch counts.
    """

    method = "events"

    def __init__(self, index: int) -> None:
        import torch

        from gemmetry.hardware.torch_timing import StreamTimer

        properties = torch.cuda.get_device_properties(index)
        self.device = f"cuda:{index} ({properties.name})"
        self.cache_bytes = int(getattr(properties, "L2_cache_size", 0)) or 64 * 2**20
        self._index, self._product, self._torch = index, properties.name, torch
        self._timer = StreamTimer(index)
        self._flushed: Any = None

    def times(self, calls: Sequence[Call], before: Call | None = None) -> list[float]:
        return self._timer.time_calls(calls, before)

    def flush(self) -> None:
        if self._flushed is None:
            size = min(FLUSHES * self.cache_bytes, MOST_FLUSH_BYTES)
            self._flushed = self._torch.empty(
                size // 4, dtype=self._torch.int32, device=f"cuda:{self._index}"
            )
        self._flushed.zero_()

    def neighbour(self) -> Call:
        from gemmetry.hardware.torch_timing import small_kernel

        return small_kernel(self._torch.device("cuda", self._index))

    def captured(self, call: Call) -> Call:
        return self._timer.captured(call)

    def observer(self) -> Observer:
        from gemmetry.hardware import monitors

        if self._torch.version.hip:
            return monitors.AmdSmiObserver(self._index)
        return monitors.NvmlObserver(self._index, self._product)


def open_clock(device: object, functions: Iterable[Function], used: object) -> HostClock:
    """The clock for `functions`.

    Args:
        device: ``cpu``, ``cuda``, ``cuda:1`` or a torch device; None: the GPU of the first tensor
            among `used` and what the functions reach, else the host. Functions reach closures,
            globals, bound arguments and modules.
        used: arguments and results of the functions.

    Raises:
        RequestError: unknown device, or no such GPU.
    """
    if device is None:
        reached = [used, *(_reached(function) for function in functions)]
        indices = (index for found in reached for index in _gpus(found, set()))
        index = next(indices, None)
        return HostClock() if index is None else StreamClock(index)
    kind, _, number = str(device).partition(":")
    if kind == "cpu":
        return HostClock()
    if kind not in ("cuda", "hip") or not (number or "0").isdigit():
        raise RequestError(
            f"no device is called {str(device)!r}", hint="Names are cpu, cuda and cuda:<number>."
        )
    count = gpu_count()
    index = int(number or 0)
    if index >= count:
        raise RequestError(
            f"there is no {device}: torch sees {count} GPUs",
            hint="Name cpu, or run on a machine with that GPU and a build of torch for it.",
        )
    return StreamClock(index)


def gpu_count() -> int:
    """GPUs that torch sees; 0 where torch is not installed."""
    try:
        import torch
    except ImportError:
        return 0
    return int(torch.cuda.device_count()) if torch.cuda.is_available() else 0


def _reached(function: Any) -> list[object]:
    """The values that a function uses and is not passed."""
    if isinstance(function, functools.partial):
        return [function.args, function.keywords, *_reached(function.func)]
    owner = getattr(function, "__self__", None)
    found: list[object] = [] if owner is None else [owner]
    plain = inspect.unwrap(getattr(function, "__func__", function))
    if inspect.isfunction(plain):
        variables = inspect.getclosurevars(plain)
        found += [*variables.nonlocals.values(), *variables.globals.values()]
    elif not inspect.isbuiltin(function):
        found.append(function)
    return found


def _gpus(value: object, seen: set[int]) -> Iterator[int]:
    """Indices of the GPUs that hold the tensors in `value`, looked for in containers and in the
    parameters of modules."""
    torch = sys.modules.get("torch")
    if torch is None or id(value) in seen:
        return
    seen.add(id(value))
    if isinstance(value, torch.Tensor):
        if value.is_cuda:
            yield value.device.index
    elif isinstance(value, torch.nn.Module):
        yield from _gpus([*value.parameters(), *value.buffers()], seen)
    elif isinstance(value, Mapping):
        yield from _gpus(list(value.values()), seen)
    elif isinstance(value, (list, tuple, set)):
        for one in value:
            yield from _gpus(one, seen)


MOST_WARMUP_S = 2.0
"""Longest warm-up on a GPU: clocks at a power limit settle within one to three seconds."""

_TRIED, _WINDOW_NS = 5, 50e6

SETTLED_TIMES, SETTLED = 4, 0.01
"""The speed has settled when this many times in succession differ by at most 1 %."""

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
        warmup: minimum duration of the warm-up in ms.
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
    clock: HostClock,
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
        if is_gpu and is_settled(windows) and spent_s >= least_s:
            break


def is_settled(times: Sequence[float]) -> bool:
    """Whether the last of some times agree."""
    last = times[-SETTLED_TIMES:]
    return len(last) == SETTLED_TIMES and max(last) <= (1 + SETTLED) * min(last)
