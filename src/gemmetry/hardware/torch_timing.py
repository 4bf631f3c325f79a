"""Times launches through torch: events queued behind a backlog, captured graphs, or the host's
clock.

ROCm builds of torch have the same interface under the same names, so the same code serves HIP.

Detects work outside the order in which launches are timed: that of the current stream on a GPU,
of the calling thread on a CPU.

Stress for launches on a GPU: uninitialised memory holds NaN, and part of the device is busy.

The parts that need their own kernels (``kernels/stress.cu``) work on CUDA where ``cuda.bindings``
is installed; freed memory and copies work everywhere.
"""

from __future__ import annotations

import contextlib
import ctypes
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import torch

from gemmetry.domain.errors import CompileError, LaunchError, OutOfMemoryError
from gemmetry.hardware.host_device import SPOILED, first_line
from gemmetry.hardware.opening import WAIT_S, late_work

Call = Callable[[], object]

_CALLS_PER_BACKLOG = 64
"""Calls timed behind one backlog: with two events each they stay far below the 1024 launches after
which the driver makes the host wait."""

_FIRST_SUBMIT_NS = 100_000.0
"""Host time of one call assumed for the first backlog; later ones use measured values."""

_SUBMIT_MARGIN = 1.5

_UNTOUCHED = 0xFF
"""Byte that the result of a first replay is filled with: NaN in every float format."""


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

    def time_calls(self, calls: Sequence[Call], before: Call | None = None) -> list[float]:
        """Duration of each call in ns, by an event pair around it; `before` is submitted ahead of
        each, untimed.

        Calls are submitted while the device still runs a spinning kernel, so that they follow each
        other without waiting for the host and no host gap is timed. An event pair itself adds one
        to two microseconds, so calls should consist of enough launches.

        Raises:
            RuntimeError: whatever torch raises for a failed launch.
        """
        durations = self.time_in_load((), calls, (), 0.0, before)
        self._cuda.synchronize(self._index)
        return durations

    def time_in_load(
        self, lead: Sequence[Call], calls: Sequence[Call], tail: Sequence[Call], lead_ns: float,
        before: Call | None = None,
    ) -> list[float]:  # fmt: skip
        """See :class:`gemmetry.domain.contracts.StreamDevice`, and :meth:`time_calls` for `before`.

        Raises:
            RuntimeError: whatever torch raises for a failed launch; of `tail`, in a later call.
        """
        durations: list[float] = []
        for start in range(0, len(calls), _CALLS_PER_BACKLOG):
            chunk = calls[start : start + _CALLS_PER_BACKLOG]
            if start == 0 and lead:
                backlog_ns = self._submit_lead(lead, len(chunk), lead_ns)
            else:
                backlog_ns = self._submit_ns * len(chunk) * _SUBMIT_MARGIN
            is_last = start + len(chunk) == len(calls)
            durations += self._time_chunk(chunk, backlog_ns, tail if is_last else (), before)
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
            first = first_line(error.__context__ or error)
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

    def _time_chunk(
        self, calls: Sequence[Call], backlog_ns: float, tail: Sequence[Call],
        before: Call | None,
    ) -> list[float]:  # fmt: skip
        cuda = self._cuda
        if not self._ns_per_sleep_cycle:
            self._ns_per_sleep_cycle = self._calibrate_sleep()
        pairs = [(self._event(), self._event()) for _ in calls]
        if backlog_ns > 0:
            cuda._sleep(int(backlog_ns / self._ns_per_sleep_cycle))
        began = time.perf_counter_ns()
        for call, (start, end) in zip(calls, pairs, strict=True):
            if before is not None:
                before()
            start.record()
            call()
            end.record()
        seen_ns = (time.perf_counter_ns() - began) / len(calls)
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


_NEIGHBOUR_ELEMENTS = 32
"""Elements that a neighbour of timed launches adds to: less than a block."""


def small_kernel(device: torch.device) -> Call:
    """Submits a kernel that runs between two timed launches.

    An ordinary kernel: it lets no successor start before its end, so that none that starts early
    overlaps with its own previous launch. A fill would be a copy engine's work in a graph.
    """
    counter = torch.zeros(_NEIGHBOUR_ELEMENTS, dtype=torch.int32, device=device)

    def neighbour() -> None:
        counter.add_(1)

    neighbour()  # Loads the kernel, which a capture must not do.
    return neighbour


_BLOCK_CYCLES = 24_000_000
"""Clock cycles for which the stream is kept busy: 12 ms at 2 GHz, longer than submitting a launch
takes. The exact time does not matter: an event shows whether the stream was still blocked."""
_LONGER = 4
"""Factor by which the next trial blocks longer where a trial ended unblocked: the clock of a
preempted kernel runs on during the time slices of other programs."""

_LEAD_S = 0.003
"""Time given to work that runs ahead; a bf16 kernel of 8192³ takes 1.6 ms on an H200."""


_ATTEMPTS = 3
"""Number of trials: work on another stream races with the copy that must come first, and is
unlikely to go unnoticed three times."""

_OTHER_STREAM = 1
"""The trial that uses a new stream as the current one."""


def unordered_on_host(launch: Callable[[], object], output: torch.Tensor) -> str:
    """For a CPU: whether a launch keeps writing after it has returned."""
    _bytes(output).fill_(_UNTOUCHED)
    return late_work(launch, lambda given: _result(given, output).detach().clone(), same_bits)


def unordered_on_stream(launch: Callable[[], object], output: torch.Tensor) -> str:
    """For a GPU: whether a launch runs ahead of the current stream or is not waited for by it.

    A spinning kernel blocks the current stream. Anything that a launch queued after it writes
    meanwhile does not follow the stream. A copy of the result queued after the launch must then
    hold the final result; where it does not, the stream continued before the work was done, and so
    do events. A launch that itself waits for the device cannot be caught running ahead. One trial
    uses a new stream as the current one, as callers may use any stream: work on the default stream
    is then on another stream, and does not wait for it.
    """
    cycles = _BLOCK_CYCLES
    for attempt in range(_ATTEMPTS):
        where, current = "", contextlib.nullcontext()
        if attempt == _OTHER_STREAM:
            where = "launched while another stream than the default one is current: "
            current = torch.cuda.stream(torch.cuda.Stream(output.device))
        with current:
            problem, was_blocked = _look(launch, output, cycles, 0.0 if attempt else WAIT_S)
        if problem:
            return where + problem
        cycles *= 1 if was_blocked else _LONGER
    return ""


def _look(launch: Call, output: torch.Tensor, cycles: int, wait_s: float) -> tuple[str, bool]:
    """What is wrong with the order of a launch, "" if nothing was seen; and whether the stream was
    still blocked when the output was compared."""
    stream = torch.cuda.current_stream(output.device)
    other = torch.cuda.Stream(output.device)
    _bytes(output).fill_(_UNTOUCHED)
    before, copy = output.clone(), torch.empty_like(output)
    torch.cuda.synchronize(output.device)
    with torch.cuda.stream(other):
        same_bits(output, before)  # Allocates what the trial below needs, while nothing is blocked.
    torch.cuda.synchronize(output.device)

    torch.cuda._sleep(cycles)
    unblocked = torch.cuda.Event()
    unblocked.record(stream)
    result = _result(launch(), output)
    is_given = result.data_ptr() == output.data_ptr()
    copy = copy.copy_(result) if is_given else result.detach().clone()
    was_blocked, problem = not is_given, ""
    if is_given and not unblocked.query():
        time.sleep(_LEAD_S)
        with torch.cuda.stream(other):
            is_early = not same_bits(output, before)
        was_blocked = not unblocked.query()
        if is_early and was_blocked:
            problem = (
                "the result was written while the timed stream was still blocked: the work runs on "
                "another stream that does not wait for it"
            )
    torch.cuda.synchronize(output.device)
    if not problem and not same_bits(copy, result):
        problem = (
            "the result changed after the timed stream had finished: it does not wait for all of "
            "the work, which runs on another stream"
        )
    if not problem:
        time.sleep(wait_s)
        torch.cuda.synchronize(output.device)
        if not same_bits(copy, result):
            problem = (
                "the result changed after the device was idle: another thread continues to launch"
            )
    return problem, was_blocked


def _result(returned: object, output: torch.Tensor) -> torch.Tensor:
    """The tensor that a launch returned, if it is on the same device, else the output passed to the
    launch."""
    if isinstance(returned, torch.Tensor) and returned.device == output.device:
        return returned
    return output


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().contiguous().view(torch.uint8)


def same_bits(left: torch.Tensor, right: torch.Tensor) -> bool:
    """Whether two tensors of one shape and dtype hold the same bytes; compared eight bytes at a
    time where possible, which is several times faster on a CPU."""
    pair = [_bytes(part).reshape(-1) for part in (left, right)]
    if all(part.numel() % 8 == 0 and part.data_ptr() % 8 == 0 for part in pair):
        pair = [part.view(torch.int64) for part in pair]
    return bool(torch.equal(*pair))


_SPOILED_WORD = int.from_bytes([SPOILED] * 4, "big")

_GRAIN_BYTES, _SMALL_BYTES = 512, 2**20
"""Rounding of torch's allocator, and the largest request that gets a small block
(c10/cuda/CUDACachingAllocator)."""
_ORDINARY_POOL = (0, 0)
"""The pool that is not private to graphs."""

_SPOIL_THREADS, _SPOIL_ROUNDS = 256, 2
"""THREADS of stress.cu, and iterations of its loop over all registers."""
_WAVES = 4
"""Average number of blocks per multiprocessor, so that none is left out."""

_SLICE_NS = 250_000
"""Time slice on a multiprocessor."""
_SLICES, _COPIES, _BATCHES_AHEAD = 64, 192, 2
"""Contents of one batch of 16 ms: slices, and copies of twice the L2 cache (on an H200 120 MB in
both directions at 4.3 TB/s, 56 µs)."""
_MOST_LOAD_S = 2.0
"""Time after which no more load is submitted, even if launches do not end."""
_POLL_S = 0.0005

_Pair: TypeAlias = tuple[torch.Tensor, torch.Tensor]
"""Source and destination."""


@dataclass(frozen=True)
class StressKernels:
    """The kernels of ``kernels/stress.cu``, loaded."""

    spoil: Any
    occupy: Any
    shared_bytes: int
    """The most shared memory that a block may have, which leaves none for other blocks."""
    processors: int


class GpuStress:
    """Stress on one GPU.

    Args:
        cuda: replaces ``torch.cuda`` in tests.
    """

    def __init__(self, device: torch.device, cuda: Any = torch.cuda) -> None:
        self._device = device
        self._cuda = cuda

    @property
    def limits(self) -> str:
        """The parts that are left out here, and why; "" if none."""
        return self._kernels_or_reason[1]

    def spoil(self, size_bytes: int, free_bytes: int) -> None:
        """Fill freed memory, shared memory and registers with the byte 0xFF, and wait.

        The freed memory is what torch's allocator returns to the next requests on the current
        stream: all its cached memory, and blocks of up to twice `size_bytes`, if that is an eighth
        of `free_bytes` or less, so that it does not need new memory from the device.

        Raises:
            RuntimeError: whatever torch or the driver raises.
        """
        size = min(2 * max(size_bytes, _SMALL_BYTES), free_bytes // 8)
        sizes = []
        while size >= _GRAIN_BYTES:
            sizes += [size, size]
            size //= 2
        self._fill_and_free(sizes)
        self._fill_and_free(self._kept_sizes())
        self._write_processors(_SPOILED_WORD)

    def clean(self) -> None:
        """Set shared memory and registers to zero, so that their contents do not affect other work.

        Raises:
            RuntimeError: whatever torch or the driver raises.
        """
        self._write_processors(0)

    def _write_processors(self, word: int) -> None:
        """Write `word` to shared memory and registers of all multiprocessors."""
        kernels, _ = self._kernels_or_reason
        if kernels is not None:
            arguments = (
                ctypes.c_uint32(word),
                ctypes.c_uint32(0),
                ctypes.c_int(_SPOIL_ROUNDS),
                ctypes.c_int(kernels.shared_bytes // 4),
            )
            stream = self._cuda.current_stream(self._device).cuda_stream
            blocks = _WAVES * kernels.processors
            kernels.spoil.launch(blocks, _SPOIL_THREADS, kernels.shared_bytes, stream, arguments)
        self._cuda.synchronize(self._device)

    def _fill_and_free(self, sizes: Iterable[int]) -> None:
        blocks = [self._bytes(size) for size in sizes]
        for block in blocks:
            block.fill_(SPOILED)

    def _kept_sizes(self) -> list[int]:
        """Request sizes that together use all free memory cached by the allocator for launches on
        the current stream. Large ones come first: each finds a free block of exactly its size."""
        if self._cuda.get_allocator_backend() != "native":
            return []
        stream = self._cuda.current_stream(self._device).cuda_stream
        sizes = []
        for segment in self._cuda.memory_snapshot():
            place = segment["device"], segment["stream"], tuple(segment["segment_pool_id"])
            if place != (self._device.index, stream, _ORDINARY_POOL):
                continue
            is_small = segment["segment_type"] == "small"
            for block in segment["blocks"]:
                size = block["size"] if block["state"] == "inactive" else 0
                if is_small:  # Larger requests would go elsewhere.
                    sizes += [_SMALL_BYTES] * (size // _SMALL_BYTES)
                    size %= _SMALL_BYTES
                if size and is_small == (size <= _SMALL_BYTES):
                    sizes.append(size)
        return sorted(sizes, reverse=True)

    @contextmanager
    def load(self, copy_bytes: int) -> Iterator[None]:
        """Within the context, other streams copy `copy_bytes` repeatedly and occupy half of the
        multiprocessors, in slices of 0.25 ms. Load is queued ahead, and more is added until the
        work submitted to the current stream meanwhile is done; then the load is cancelled.

        Raises:
            RuntimeError: whatever torch or the driver raises.
        """
        cuda, (copying, _) = self._cuda, self._streams
        stop = _pinned_word()
        with cuda.stream(copying):
            pair = self._bytes(copy_bytes), self._bytes(copy_bytes)
        try:
            batches = deque(self._submit(pair, stop) for _ in range(_BATCHES_AHEAD))
            yield
            self._outlast_launches(batches, pair, stop)
        finally:
            stop.fill_(1)
            for stream in self._streams:
                stream.synchronize()

    def _submit(self, pair: _Pair, stop: torch.Tensor) -> Any:
        """Submit one batch of load. Returns the event of its end."""
        cuda, (copying, occupying) = self._cuda, self._streams
        kernels, _ = self._kernels_or_reason
        if kernels is not None:
            arguments = (ctypes.c_void_p(stop.data_ptr()), ctypes.c_uint64(_SLICE_NS))
            blocks = max(1, kernels.processors // 2)
            for _ in range(_SLICES):
                kernels.occupy.launch(
                    blocks, 32, kernels.shared_bytes, occupying.cuda_stream, arguments
                )
        with cuda.stream(copying):
            for _ in range(_COPIES):
                pair[1].copy_(pair[0], non_blocking=True)
            copying.wait_stream(occupying)
            end = cuda.Event()
            end.record(copying)
        return end

    def _outlast_launches(self, batches: deque[Any], pair: _Pair, stop: torch.Tensor) -> None:
        done = self._cuda.Event()
        done.record(self._cuda.current_stream(self._device))
        began = time.monotonic()
        while not done.query() and time.monotonic() - began < _MOST_LOAD_S:
            if batches[0].query():
                batches.popleft()
                batches.append(self._submit(pair, stop))
            time.sleep(_POLL_S)

    def _bytes(self, size: int) -> torch.Tensor:
        return torch.empty(size, dtype=torch.uint8, device=self._device)

    @cached_property
    def _streams(self) -> tuple[Any, Any]:
        """Streams for copies, and for the kernel that occupies multiprocessors; neither waits for
        others."""
        return self._cuda.Stream(self._device), self._cuda.Stream(self._device)

    @cached_property
    def _kernels_or_reason(self) -> tuple[StressKernels | None, str]:
        without = "only freed memory is spoiled, and only copies are the load"
        if torch.version.hip:
            return None, f"on ROCm {without}"
        try:
            from gemmetry.hardware import cuda_driver as driver
            from gemmetry.hardware.cuda_compiler import compile_source

            major, minor = self._cuda.get_device_capability(self._device)
            cubin = compile_source("stress", (), f"sm_{major}{minor}")
        except (ImportError, CompileError, RuntimeError) as error:
            # RuntimeError: the bindings do not find the compiler's library.
            return None, f"without cuda-bindings and NVRTC {without} ({first_line(error)})"
        self._cuda.synchronize(self._device)  # Makes torch's context the current one.
        shared_bytes = driver.device_attribute("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN")
        spoil, occupy = driver.Kernel(cubin, "spoil"), driver.Kernel(cubin, "occupy")
        for kernel in (spoil, occupy):
            kernel.allow_shared_memory(shared_bytes)
        processors = driver.device_attribute("MULTIPROCESSOR_COUNT")
        return StressKernels(spoil, occupy, shared_bytes, processors), ""


def _pinned_word() -> torch.Tensor:
    """A zero in host memory that the device reads at the same address (CUDA C++ Programming Guide,
    unified virtual address space)."""
    return torch.zeros(1, dtype=torch.int32, pin_memory=True)
