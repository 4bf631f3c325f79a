"""Times launches through torch: events queued behind a backlog, captured graphs, or the host's
clock.

ROCm builds of torch have the same interface under the same names, so the same code serves HIP.
"""

from __future__ import annotations

import contextlib
import time
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch

from gemmetry.domain.errors import LaunchError, OutOfMemoryError

Call = Callable[[], object]

_CALLS_PER_BACKLOG = 64
"""Calls timed behind one backlog: with two events each they stay far below the 1024 launches after
which the driver makes the host wait."""

_FIRST_SUBMIT_NS = 100_000.0
"""Host time of one call assumed for the first backlog; later ones use measured values."""

_SUBMIT_MARGIN = 1.5

_UNTOUCHED = 0xFF
"""Byte that the result of a first replay is filled with: NaN in every float format."""


def time_on_host(calls: Sequence[Call]) -> list[float]:
    """Duration of each call in ns by the host's monotonic clock."""
    durations = []
    clock = time.perf_counter_ns
    for call in calls:
        before = clock()
        call()
        durations.append(float(clock() - before))
    return durations


class StreamTimer:
    """Times work submitted to the current stream of one GPU.

    Args:
        index: which GPU.
        cuda: replaces ``torch.cuda`` in tests.
    """

    def __init__(self, index: int, cuda: Any = torch.cuda) -> None:
        self._index = index
        self._cuda = cuda
        self._ns_per_sleep_cycle = 0.0
        self._submit_ns = _FIRST_SUBMIT_NS
        self._pool: Any = None
        self._stream: Any = None
        self._graphs: weakref.WeakSet[Any] = weakref.WeakSet()

    def time_calls(self, calls: Sequence[Call]) -> list[float]:
        """Duration of each call in ns, by an event pair around it.

        Calls are submitted while the device still runs a spinning kernel, so that they follow each
        other without waiting for the host and no host gap is timed. An event pair itself adds one
        to two microseconds, so calls should consist of enough launches.

        Raises:
            RuntimeError: whatever torch raises for a failed launch.
        """
        durations: list[float] = []
        for start in range(0, len(calls), _CALLS_PER_BACKLOG):
            chunk = calls[start : start + _CALLS_PER_BACKLOG]
            durations += self._time_chunk(chunk, self._usual_backlog_ns(len(chunk)))
        self._cuda.synchronize(self._index)
        return durations

    def time_in_load(
        self, lead: Sequence[Call], calls: Sequence[Call], tail: Sequence[Call], lead_ns: float
    ) -> list[float]:
        """See :class:`gemmetry.domain.contracts.StreamDevice`.

        Raises:
            RuntimeError: whatever torch raises for a failed launch; of `tail`, in a later call.
        """
        durations: list[float] = []
        for start in range(0, len(calls), _CALLS_PER_BACKLOG):
            chunk = calls[start : start + _CALLS_PER_BACKLOG]
            if start == 0 and lead:
                backlog_ns = self._submit_lead(lead, len(chunk), lead_ns)
            else:
                backlog_ns = self._usual_backlog_ns(len(chunk))
            is_last = start + len(chunk) == len(calls)
            durations += self._time_chunk(chunk, backlog_ns, tail if is_last else ())
        return durations

    def stream_and_wall_ns(self, calls: Sequence[Call]) -> tuple[float, float]:
        """See :class:`gemmetry.domain.contracts.StreamDevice`; nothing is queued before the calls,
        so that host work that a backlog would hide is visible."""
        cuda = self._cuda
        start, end = self._event(), self._event()
        cuda.synchronize(self._index)
        before = time.perf_counter_ns()
        start.record()
        for call in calls:
            call()
        end.record()
        cuda.synchronize(self._index)
        wall_ns = float(time.perf_counter_ns() - before)
        return float(start.elapsed_time(end)) * 1e6, wall_ns

    def captured(self, call: Call, *, keeps_result: bool = False) -> Call:
        """The replay of a graph that holds the launches of `call`; it returns what `call` returned
        where `keeps_result`, which keeps that memory out of the other graphs.

        Graphs share one memory pool, which is correct as long as they are replayed one after the
        other, and avoids allocating a library's workspace once per graph. The pool ends with the
        last graph in it (torch 2.11 rejects captures into it from then on).

        Raises:
            LaunchError: something in the call cannot be captured, or the call does its work
                elsewhere.
            RuntimeError: the device failed.
        """
        cuda = self._cuda
        graph, current = cuda.CUDAGraph(), cuda.current_stream(self._index)
        if not self._graphs:
            self._pool = cuda.graph_pool_handle()
        if self._stream is None:
            self._stream = cuda.Stream(self._index)
        cuda.synchronize(self._index)
        result: object = None
        try:
            with cuda.stream(self._stream):
                # Not `with torch.cuda.graph(...)`: it collects garbage and empties the cache before
                # every capture, and leaves its stream current when the capture fails.
                graph.capture_begin(pool=self._pool)
                try:
                    result = call()
                finally:
                    graph.capture_end()
        except (RuntimeError, ValueError, LaunchError, OutOfMemoryError) as error:
            self._forget_capture(current)
            # Ending a failed capture fails too; the first error is more informative.
            first = _first_line(error.__context__ or error)
            raise LaunchError(f"its launches cannot be captured: {first}") from error
        self._graphs.add(graph)
        self._check_replay(graph, result)
        kept = result if keeps_result else None

        def replay() -> object:
            graph.replay()
            return kept

        return replay

    def _forget_capture(self, stream: Any) -> None:
        """Clean up after a failed capture: the allocator keeps using the pool until it is
        explicitly stopped, which a failed capture does not do."""
        stop = getattr(torch._C, "_cuda_endAllocateToPool", None)
        if stop is not None:
            with contextlib.suppress(RuntimeError):
                stop(self._index, self._pool)
        self._graphs.clear()
        self._pool = self._stream = None
        self._cuda.set_stream(stream)
        self._cuda.synchronize(self._index)

    def _check_replay(self, graph: Any, result: object) -> None:
        """Check that a replay fills the result; work submitted to another stream would be missing
        from it."""
        if not isinstance(result, torch.Tensor) or not result.is_contiguous():
            return
        content = result.view(torch.uint8)
        content.fill_(_UNTOUCHED)
        self._cuda.synchronize(self._index)
        graph.replay()
        self._cuda.synchronize(self._index)
        if bool((content == _UNTOUCHED).all()):
            raise LaunchError("a captured launch writes no result when it is replayed")

    def _submit_lead(self, lead: Sequence[Call], following: int, lead_ns: float) -> float:
        """Submit untimed calls. Returns the backlog in ns that the `following` calls need in
        addition. None where the device works on the lead for longer than submitting them takes,
        which keeps its power up, as spinning does not. The time is taken from the lead itself: what
        was timed before may have been another candidate."""
        before = time.perf_counter_ns()
        for call in lead:
            call()
        spent_ns = time.perf_counter_ns() - before
        needed_ns = spent_ns / len(lead) * following * _SUBMIT_MARGIN
        return needed_ns - max(0.0, lead_ns - spent_ns)

    def _usual_backlog_ns(self, count: int) -> float:
        return self._submit_ns * count * _SUBMIT_MARGIN

    def _time_chunk(
        self, calls: Sequence[Call], backlog_ns: float, tail: Sequence[Call] = ()
    ) -> list[float]:
        cuda = self._cuda
        if not self._ns_per_sleep_cycle:
            self._ns_per_sleep_cycle = self._calibrate_sleep()
        pairs = [(self._event(), self._event()) for _ in calls]
        if backlog_ns > 0:
            cuda._sleep(int(backlog_ns / self._ns_per_sleep_cycle))
        before = time.perf_counter_ns()
        for call, (start, end) in zip(calls, pairs, strict=True):
            start.record()
            call()
            end.record()
        seen_ns = (time.perf_counter_ns() - before) / len(calls)
        for call in tail:
            call()
        pairs[-1][1].synchronize()
        # Host time spent waiting for the device (a full launch queue, an allocation that
        # synchronises) would let the backlog grow without limit, so growth is bounded.
        self._submit_ns = min(max(seen_ns, 2_000.0), 2 * self._submit_ns)
        return [start.elapsed_time(end) * 1e6 for start, end in pairs]

    def _calibrate_sleep(self) -> float:
        """ns per unit of ``torch.cuda._sleep``, which counts clock cycles that differ by device."""
        cycles = 1_000_000
        start, end = self._event(), self._event()
        self._cuda._sleep(cycles)
        start.record()
        self._cuda._sleep(cycles)
        end.record()
        self._cuda.synchronize(self._index)
        return max(float(start.elapsed_time(end)) * 1e6 / cycles, 1e-3)

    def _event(self) -> Any:
        return self._cuda.Event(enable_timing=True)


def _first_line(error: BaseException) -> str:
    lines = (line.strip() for line in str(error).splitlines())
    return next((line for line in lines if line), type(error).__name__)
