"""A made-up exhaustive run with the costs of a real GPU, unlike the model searches start from.

A block is limited by shared memory, registers and threads; blocks of a wave run together on a
multiprocessor; its bytes in flight have to cover the latency of the memory (Little's law); tiles
below 64 rows miss the wide matrix instruction; sums above 128 a thread spill; persistent programs
hide the store of a tile behind the next one, but share their multiprocessor with fewer others.
Every configuration also has a part of its own on all shapes, one on each shape, and noise. The
constants are of the order of an H200's; no measurement went into them. As a file for
``gemmetry tune --simulate``:

    python -m tests.tuning.synthetic_gpu FILE.json
"""

from __future__ import annotations

import math
import sys
from pathlib import Path

import numpy as np

from gemmetry.domain.dispatch import Configuration
from gemmetry.domain.operation import Operation
from gemmetry.tuning.simulation import MeasuredSpace, StoredSpace, StoredTime, compact

from .synthetic import spaces

SHAPES = (
    (16, 6144, 4096), (16, 4096, 14336), (32, 8192, 8192), (64, 4096, 4096), (64, 7168, 2048),
    (128, 6144, 4096), (256, 4096, 2048), (512, 4096, 4096), (1024, 1024, 4096), (2048, 2048, 2048),
)  # fmt: skip
_PROCESSORS = 132
_SHARED_BYTES = 227 * 1024
_REGISTERS = 65_536
_THREADS = 2_048
_FLOPS = 990e12 / _PROCESSORS
_BYTES_PER_S = 4.0e12
_L2_BYTES_PER_S = 5.5e12
_LATENCY_S = 900e-9


def planted_ns(operation: Operation, configuration: Configuration) -> float:
    """The time of a launch in ns, without noise."""
    m, n, k, _ = operation.matmul_shape
    own = dict(configuration.parameters)
    tile_m, tile_n, tile_k = configuration.tile or (1, 1, 1)
    warps, stages = int(own["warps"]), int(own["stages"])
    is_persistent = configuration.name.startswith("persistent")
    step_bytes = 2 * (tile_m + tile_n) * tile_k
    sums = tile_m * tile_n / (32 * warps)
    registers = min(255, 40 + 1.15 * sums + (0 if is_persistent else 24))
    resident = max(
        1,
        min(
            _SHARED_BYTES // (stages * step_bytes + 1024),
            _REGISTERS // int(32 * warps * registers),
            _THREADS // (32 * warps),
        ),
    )
    if is_persistent:
        resident = min(resident, 2)
    tiles = math.ceil(m / tile_m) * math.ceil(n / tile_n)
    waves = math.ceil(tiles / (_PROCESSORS * resident))
    together = min(resident, math.ceil(tiles / _PROCESSORS))
    rate = 0.82 if tile_m >= 64 else 0.45
    rate *= min(1.0, 0.55 + 0.15 * together * warps / 4) * (1 - 0.12 * (tile_n < 128))
    rate *= 0.6 if sums > 120 and not is_persistent else 1.0
    compute_s = together * 2 * tile_m * tile_n * k / (_FLOPS * rate)
    busy = min(1.0, tiles / _PROCESSORS)
    in_flight = together * (stages - 1) * step_bytes
    bandwidth = min(_BYTES_PER_S * busy**0.3, _PROCESSORS * busy * in_flight / _LATENCY_S)
    reads = tiles * step_bytes / tile_k * k
    memory_s = operation.bytes / bandwidth / waves
    l2_s = reads / min(_L2_BYTES_PER_S, 2 * bandwidth) / waves
    step_s = 35e-9 * (k / tile_k) * (1.0 if tile_k > 32 else 0.8)
    edges_s = (0.5e-6 if is_persistent else 1.1e-6) + stages * 60e-9
    return 1e9 * (1.8e-6 + waves * (max(compute_s, memory_s, l2_s, step_s) + edges_s))


def measured_gpu(
    shapes=SHAPES, seed: int = 0, noise: float = 0.004, own: float = 0.04
) -> list[MeasuredSpace]:
    """Every configuration of Triton's space of `shapes`; what needs more shared memory than there
    is fails, and so does one in fifty."""
    rng = np.random.default_rng(seed)
    common: dict[str, float] = {}
    result = []
    for space in spaces(shapes):
        times: list[float | None] = []
        for one in space.configurations:
            taste = common.setdefault(one.name, own * rng.standard_normal())
            ns = planted_ns(space.operation, one)
            ns *= math.exp(taste + own / 2 * rng.standard_normal() + noise * rng.standard_normal())
            times.append(None if rng.random() < 0.02 else ns)
        result.append(MeasuredSpace(space, tuple(times), (noise,) * len(space)))
    return result


def stored_gpu(seed: int = 1, noise: float = 0.004) -> StoredSpace:
    """The same as a stored search."""
    found = measured_gpu(seed=seed, noise=noise)
    interval = 1.96 * noise
    return StoredSpace(
        provider="triton",
        target="cuda-sm_90",
        device="made-up times",
        parameters={c.name: dict(c.parameters) for one in found for c in one.space.configurations},
        operations={
            str(one.space.operation): tuple(
                StoredTime(configuration=c.name, outcome="crash")
                if ns is None
                else StoredTime(
                    configuration=c.name,
                    median_ns=ns,
                    low_ns=ns * (1 - interval),
                    high_ns=ns * (1 + interval),
                )
                for c, ns in zip(one.space.configurations, one.times_ns, strict=True)
            )
            for one in found
        },
    )


if __name__ == "__main__":
    Path(sys.argv[1]).write_bytes(compact(stored_gpu()))
