"""A simple model of a GPU's time for a product with a tile, to rank tiles.

Waves of tiles at the peak of the multiprocessors, what the tiles read through the L2 cache, and the
compulsory traffic of the memory, the largest of which bounds the kernel; and fixed times of the
launch, of each wave, and of adding up slices of K. It has the terms of DeepGEMM's heuristics
(deepseek-ai/DeepGEMM, csrc/jit_kernels/heuristics/sm90.hpp). Its absolute times are unusable.

Predicts the time of a launch on a host from smaller products of increasing size.

A single probe may be disturbed: if another program takes the processor for a few milliseconds, a
product of 0.2 ms appears to take 20 ms. So each size is timed a few times, several sizes are timed,
and the smallest prediction is used. It errs on the short side, which costs one launch under a
deadline (``gemmetry.engine.bench``), and never excludes a feasible operation.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace

from gemmetry.domain.dispatch import Configuration
from gemmetry.domain.operation import Conv2dShape, MatmulShape, Operation
from gemmetry.hardware.devices import DeviceSpec, rate_class

_PROCESSORS = 132
"""Multiprocessors of an H100 SXM and an H200 (NVIDIA H100 white paper). Other numbers change where
waves end: the model ranks worse then."""
_L2_BYTES_PER_S = 10.8e12
"""8,000,000 / 1,300 bytes per cycle (DeepGEMM, as above) at 1,755 MHz."""
_LAUNCH_NS = 2_000.0
"""Shortest kernels in a replayed graph on an H200 take 2 µs."""
_WAVE_NS = 1_250.0
"""Filling the pipeline and storing the results of a tile: 2,200 cycles, as fitted for our own
kernels (``cuda_provider/kernel.py``)."""
_SLICES_NS = 6_700.0
"""Adding up slices of K: 11,700 cycles, fitted in the same way."""


def modelled_ns(operation: Operation, configuration: Configuration, device: DeviceSpec) -> float:
    """The model's time in ns of a launch of a configuration that has a tile."""
    assert configuration.tile is not None, configuration.name
    lhs = operation.signature.lhs
    peak = device.peaks.get(rate_class(lhs)) or max(device.peaks.values())
    m, n, k, batch = operation.matmul_shape
    tile_m, tile_n, _ = configuration.tile
    slices = _count(configuration, "splits")
    # The blocks of a cluster share what they read.
    rows, columns = (_count(configuration, f"cluster_{axis}") for axis in "mn")
    tiles = -(-m // tile_m) * -(-n // tile_n) * batch
    waves = -(-tiles * slices // _PROCESSORS)
    compute_s = waves * 2 * tile_m * tile_n * (k / slices) / (peak / _PROCESSORS)
    l2_s = tiles * (tile_m / columns + tile_n / rows) * k * lhs.storage_bits / 8 / _L2_BYTES_PER_S
    memory_s = operation.bytes / device.bandwidth_bytes_per_s
    fixed_ns = _LAUNCH_NS + waves * _WAVE_NS + _SLICES_NS * (slices > 1)
    return fixed_ns + 1e9 * max(compute_s, l2_s, memory_s)


def _count(configuration: Configuration, name: str) -> int:
    value = configuration.parameters.get(name, 1)
    return value if isinstance(value, int) and value > 0 else 1


_SHARED_BYTES, _REGISTERS, _THREADS = 233_472, 65_536, 2_048
"""Limits of a Hopper multiprocessor, with 228 KiB of shared memory (CUDA C++ Programming Guide,
"Technical Specifications per Compute Capability")."""
_BLOCK_BYTES = 1_024
"""Shared memory that the system keeps of each block (the same guide)."""
_OTHER_REGISTERS = 48
"""Registers of a thread for addresses, scales and the next operands, in addition to its sums."""
_LATENCY_S, _L2_LATENCY_S = 800e-9, 270e-9
"""Latencies of memory under load and of the L2 cache: 800 and 270 ns, similar to those that Luo et
al. measured on an H800 ("Benchmarking and Dissecting the Nvidia Hopper GPU Architecture", 2024: 479
and 263 cycles without load)."""
_WIDE_ROWS, _NARROW_SHARE = 64, 0.6
"""Rows from which Hopper's wide matrix instruction is used, and the share of the peak that the
older one reaches (Luo et al.)."""
_WARPS_AT_PEAK = 8
"""Warps of a multiprocessor from which issuing instructions is hidden behind multiplying."""


def pipelined_ns(operation: Operation, configuration: Configuration, device: DeviceSpec) -> float:
    """:func:`modelled_ns` for kernels whose configurations have warps and stages, which fetch the
    operands some steps ahead: of others it is that time.

    Shared memory, registers and threads limit how many blocks share a multiprocessor; what all of
    them have in flight limits the rate of reading, by Little's law (bytes in flight = rate x
    latency); and few warps do not keep the matrix units busy.
    """
    stages, warps = (_count(configuration, name) for name in ("stages", "warps"))
    if not {"stages", "warps"} <= set(configuration.parameters):
        return modelled_ns(operation, configuration, device)
    assert configuration.tile is not None, configuration.name
    lhs = operation.signature.lhs
    peak = device.peaks.get(rate_class(lhs)) or max(device.peaks.values())
    m, n, k, batch = operation.matmul_shape
    tile_m, tile_n, tile_k = configuration.tile
    step_bytes = (tile_m + tile_n) * tile_k * lhs.storage_bits / 8
    sums = tile_m * tile_n / (32 * warps)
    tiles = -(-m // tile_m) * -(-n // tile_n) * batch
    fitting = min(
        _SHARED_BYTES / (stages * step_bytes + _BLOCK_BYTES),
        _REGISTERS / (32 * warps * (sums + _OTHER_REGISTERS)),
        _THREADS / (32 * warps),
    )
    together = min(max(1, int(fitting)), -(-tiles // _PROCESSORS))
    waves = -(-tiles // (_PROCESSORS * together))
    in_flight = min(tiles, _PROCESSORS * together) * (stages - 1) * step_bytes
    bytes_per_s = min(device.bandwidth_bytes_per_s, in_flight / _LATENCY_S)
    l2_bytes_per_s = min(_L2_BYTES_PER_S, in_flight / _L2_LATENCY_S)
    share = 1.0 if tile_m >= _WIDE_ROWS else _NARROW_SHARE
    share *= math.sqrt(min(1.0, together * warps / _WARPS_AT_PEAK))
    compute_s = waves * together * 2 * tile_m * tile_n * k / (peak / _PROCESSORS) / share
    l2_s = tiles * (step_bytes / tile_k) * k / l2_bytes_per_s
    memory_s = operation.bytes / bytes_per_s
    return _LAUNCH_NS + waves * _WAVE_NS + 1e9 * max(compute_s, l2_s, memory_s)


def filled_shares(operation: Operation, configuration: Configuration) -> tuple[float, float]:
    """The share of the multiprocessors that the waves of tiles keep busy, with one tile on each,
    and the share of the tiles' elements that lie within the result; 1 without a tile."""
    if configuration.tile is None:
        return 1.0, 1.0
    m, n, _, batch = operation.matmul_shape
    tile_m, tile_n, _ = configuration.tile
    tiles = -(-m // tile_m) * -(-n // tile_n) * batch
    waves = -(-tiles // _PROCESSORS)
    return tiles / (waves * _PROCESSORS), m * n * batch / (tiles * tile_m * tile_n)


SIZES = (128, 256, 512, 1024)
"""Largest extents of the probes. 128³ takes about 0.1 ms in BLAS and, with the conversions of
narrow types, a millisecond; large ones run at the rate of large products."""

TRIES = 3
"""Timed launches of each probe, after one that warms up caches and threads."""

LONG_S = 0.05
"""A probe that takes longer ends the search: the next one takes about eight times as long."""

SHARE = 8
"""Minimum ratio of the operation's FLOPs to those of a probe; below it, a probe saves nothing."""

Launch = Callable[[], object]


class CostProbe:
    """Predictions for the operations of one provider; timed probes are cached."""

    def __init__(
        self, prepare: Callable[[Operation], Launch], clock: Callable[[], float] = time.perf_counter
    ) -> None:
        """`prepare` creates a launch of an operation, including its inputs; `clock` returns
        seconds."""
        self._prepare, self._clock = prepare, clock
        self._seconds: dict[Operation, float] = {}

    def seconds(self, operation: Operation) -> float | None:
        """Predicted seconds of one launch: the probes' times scaled by the FLOPs, of which the
        smallest is used; None for an operation that is hardly larger than the smallest probe."""
        predicted: list[float] = []
        for size in SIZES:
            small = shrunk(operation, size)
            if small.flops * SHARE > operation.flops:
                break
            if small not in self._seconds:
                self._seconds[small] = least_seconds(self._prepare(small), self._clock)
            predicted.append(self._seconds[small] * operation.flops / small.flops)
            if self._seconds[small] > LONG_S:
                break
        return min(predicted, default=None)


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
    m, n, k, batch = (min(extent, size) for extent in shape)
    return replace(operation, shape=MatmulShape(m, n, max(1, k // slices) * slices, min(batch, 4)))
