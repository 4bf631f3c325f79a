"""A simple model of how long a GPU takes for a product with a tile, which ranks tiles.

Waves of tiles at the peak of the multiprocessors, what the tiles read through the L2 cache, and the
compulsory traffic of the memory, the largest of which bounds the kernel; and fixed times of the
launch, of each wave, and of adding up slices of K. It has the terms of DeepGEMM's heuristics
(deepseek-ai/DeepGEMM, csrc/jit_kernels/heuristics/sm90.hpp). Its absolute times are unusable.
"""

from __future__ import annotations

from gemmetry.domain.dispatch import Configuration
from gemmetry.domain.operation import Operation
from gemmetry.hardware.devices import DeviceSpec, rate_class

_PROCESSORS = 132
"""Multiprocessors of an H100 SXM and an H200 (NVIDIA H100 white paper). Other numbers change where
waves end, which the calibration cannot correct: it ranks worse, never wrongly."""
_L2_BYTES_PER_S = 10.8e12
"""8,000,000 / 1,300 bytes per cycle (DeepGEMM, as above) at 1,755 MHz."""
_LAUNCH_NS = 2_000.0
"""Shortest kernels in a replayed graph on an H200 take 2 µs."""
_WAVE_NS = 1_250.0
"""Filling the pipeline and storing the results of a tile: 2,200 cycles, as fitted for our own
kernels (``cuda_provider/launching/tiling.py``)."""
_SLICES_NS = 6_700.0
"""Adding up slices of K: 11,700 cycles, likewise."""


def modelled_ns(operation: Operation, configuration: Configuration, device: DeviceSpec) -> float:
    """The model's time of a launch in ns. Without a tile (cuBLAS, which chooses among many kernels)
    it is that of the best of some usual tiles."""
    if configuration.tile is None:
        return min(modelled_ns(operation, one, device) for one in _USUAL)
    lhs = operation.signature.lhs
    peak = device.peaks.get(rate_class(lhs)) or max(device.peaks.values())
    m, n, k, batch = operation.matmul_shape
    tile_m, tile_n, _ = configuration.tile
    slices = _count(configuration, "splits")
    # The blocks of a cluster share what they read.
    rows, columns = (_count(configuration, f"cluster_{axis}") for axis in "mn")
    fetched = tile_m / columns + tile_n / rows
    tiles = -(-m // tile_m) * -(-n // tile_n) * batch
    waves = -(-tiles * slices // _PROCESSORS)
    compute_s = waves * 2 * tile_m * tile_n * (k / slices) / (peak / _PROCESSORS)
    l2_s = tiles * fetched * k * lhs.storage_bits / 8 / _L2_BYTES_PER_S
    memory_s = operation.bytes / device.bandwidth_bytes_per_s
    fixed_ns = _LAUNCH_NS + waves * _WAVE_NS + _SLICES_NS * (slices > 1)
    return fixed_ns + 1e9 * max(compute_s, l2_s, memory_s)


_USUAL = tuple(
    Configuration("", {"tile_m": m, "tile_n": n, "tile_k": 64, "cluster_m": 2, "splits": splits})
    for m, n in ((64, 64), (64, 128), (128, 128), (128, 192), (128, 256), (256, 128))
    for splits in (1, 2, 4)
)


def _count(configuration: Configuration, name: str) -> int:
    value = configuration.parameters.get(name, 1)
    return value if isinstance(value, int) and value > 0 else 1
