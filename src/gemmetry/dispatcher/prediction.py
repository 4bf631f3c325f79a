"""Predicts how a candidate's time compares with that of cuBLAS on a shape that was not measured.

A simple model of the GPU ranks tiles: waves of tiles at the peak of the multiprocessors, what the
tiles read through the L2 cache, the compulsory traffic of the memory, and the launch; the largest
of the first three bounds the kernel. It has the terms of DeepGEMM's heuristics
(deepseek-ai/DeepGEMM, csrc/jit_kernels/heuristics/sm90.hpp). Its absolute times are unusable, so
the table calibrates it: what the model misses at shapes that were measured, weighted by how near
they are, is added to its prediction.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from gemmetry.dispatcher.problems import CUBLAS, MatmulProblem, operation_of
from gemmetry.dispatcher.table import DispatchTable, TunedShape
from gemmetry.domain.dispatch import Configuration
from gemmetry.hardware.devices import DeviceSpec, devices_of, find_device, rate_class

_PROCESSORS = 132
"""Multiprocessors of an H100 SXM and an H200 (NVIDIA H100 white paper). Other numbers change where
waves end, which the calibration cannot correct: it ranks worse, never wrongly."""
_L2_BYTES_PER_S = 10.8e12
"""8,000,000 / 1,300 bytes per cycle (DeepGEMM, as above) at 1,755 MHz."""
_LAUNCH_NS = 2_000.0
"""Shortest kernels in a replayed graph on an H200 take 2 µs."""
_FEWEST = 3
"""Measured shapes that a prediction needs."""
_LEAST_WEIGHT = 0.1
"""Shapes with a lower weight are no evidence: they are more than two octaves away."""
_STANDARD_ERRORS = 1.645
"""By how many standard errors a candidate must be predicted to be faster: the 95 % point of the
normal distribution."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """The logarithm of a candidate's time over that of cuBLAS."""

    value: float
    standard_error: float

    @property
    def is_faster(self) -> bool:
        """Whether the evidence is enough to prefer the candidate to cuBLAS."""
        return self.value + _STANDARD_ERRORS * self.standard_error < 0


class Predictor:
    """Predictions from the entries of a table."""

    def __init__(self, table: DispatchTable) -> None:
        self._table = table
        device = find_device(table.device)
        architecture = table.target.partition("-")[2]
        self._device = device or next(iter(devices_of(architecture)), None)
        self._entries: dict[str, list[TunedShape]] = {}
        for entry in table.entries:
            self._entries.setdefault(entry.signature, []).append(entry)

    def entries(self, signature: str) -> Sequence[TunedShape]:
        """The measured shapes of a signature."""
        return self._entries.get(signature, ())

    def predict(self, problem: MatmulProblem, candidate: str) -> Prediction | None:
        """How `candidate` compares with cuBLAS; None where too little was measured nearby."""
        found = []
        for entry in self.entries(problem.signature):
            weight = math.exp(-(problem.distance(entry.problem) ** 2) / 2)
            if weight > _LEAST_WEIGHT and candidate in entry.times_ns and CUBLAS in entry.times_ns:
                found.append((weight, self._residual(entry, candidate)))
        if len(found) < _FEWEST:
            return None
        total = sum(weight for weight, _ in found)
        mean = sum(weight * value for weight, value in found) / total
        variance = sum(weight * (value - mean) ** 2 for weight, value in found) / total
        independent = total**2 / sum(weight**2 for weight, _ in found)
        error = math.sqrt(variance / max(independent - 1, 0.5))
        return Prediction(self.modelled(problem, candidate) + mean, error)

    def transferred(self, problem: MatmulProblem, entry: TunedShape, candidate: str) -> float:
        """The logarithm of a candidate's time over that of cuBLAS, as measured at `entry` and
        corrected by what the model expects to change."""
        return self._residual(entry, candidate) + self.modelled(problem, candidate)

    def modelled(self, problem: MatmulProblem, candidate: str) -> float:
        """The model's own logarithm of the ratio."""
        ours = self._table.configuration(candidate)
        return math.log(self._ns(problem, ours) / self._ns(problem, Configuration()))

    def _residual(self, entry: TunedShape, candidate: str) -> float:
        measured = math.log(entry.times_ns[candidate] / entry.times_ns[CUBLAS])
        return measured - self.modelled(entry.problem, candidate)

    def _ns(self, problem: MatmulProblem, configuration: Configuration) -> float:
        return 1.0 if self._device is None else modelled_ns(problem, configuration, self._device)


def modelled_ns(problem: MatmulProblem, configuration: Configuration, device: DeviceSpec) -> float:
    """The model's time of a launch in ns. Without a tile (cuBLAS, which has kernels for everything)
    only the limits of the device count."""
    operation = operation_of(problem)
    lhs = operation.signature.lhs
    peak = device.peaks.get(rate_class(lhs)) or max(device.peaks.values())
    memory_s = operation.bytes / device.bandwidth_bytes_per_s
    if configuration.tile is None:
        return _LAUNCH_NS + 1e9 * max(operation.flops / peak, memory_s)
    m, n, k = problem.shape
    tile_m, tile_n, _ = configuration.tile
    slices = _count(configuration, "splits")
    # The blocks of a cluster share what they read.
    rows, columns = (_count(configuration, f"cluster_{axis}") for axis in "mn")
    fetched = tile_m / columns + tile_n / rows
    tiles = -(-m // tile_m) * -(-n // tile_n)
    waves = -(-tiles * slices // _PROCESSORS)
    compute_s = waves * 2 * tile_m * tile_n * (k / slices) / (peak / _PROCESSORS)
    l2_s = tiles * fetched * k * lhs.storage_bits / 8 / _L2_BYTES_PER_S
    return _LAUNCH_NS + 1e9 * max(compute_s, l2_s, memory_s)


def _count(configuration: Configuration, name: str) -> int:
    value = configuration.parameters.get(name, 1)
    return value if isinstance(value, int) and value > 0 else 1
