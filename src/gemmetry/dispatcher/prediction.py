"""Predicts how a candidate's time compares with that of cuBLAS on a shape that was not measured.

A simple model of the GPU ranks tiles: waves of tiles at the peak of the multiprocessors, what the
tiles read through the L2 cache, and the compulsory traffic of the memory, the largest of which
bounds the kernel; and fixed times of the launch, of each wave, and of adding up slices of K. It has
the terms of DeepGEMM's heuristics (deepseek-ai/DeepGEMM, csrc/jit_kernels/heuristics/sm90.hpp). Its
absolute times are unusable, so the table calibrates it: what the model misses at shapes that were
measured, weighted by how near they are, is added to its prediction. A candidate that was measured
at few of them borrows from the others of its provider.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from gemmetry.dispatcher.problems import CUBLAS, MatmulProblem, operation_of, parts_of
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
_WAVE_NS = 1_250.0
"""Filling the pipeline and storing the results of a tile: 2,200 cycles, as fitted for our own
kernels (``providers/cuda_provider/launching/tiling.py``)."""
_SLICES_NS = 6_700.0
"""Adding up slices of K: 11,700 cycles, likewise."""
_OCTAVES = (1.0, 2.0, 2.0)
"""Distances along M, N and K at which a measured shape counts for 0.6 of one at the shape itself.
How a kernel does depends on the number of rows first of all."""
_FEWEST = 3
"""Measured shapes that a prediction needs."""
_LEAST_WEIGHT = 0.1
"""Shapes with a lower weight are no evidence."""
_PRIOR = 0.5
"""Weight of what all candidates of a provider have in common, in measured shapes."""
_STANDARD_ERRORS = 1.0
"""By how many standard errors a candidate must be predicted to be faster: what is hardly known
loses to what is known, and to cuBLAS."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """The logarithm of a candidate's time over that of cuBLAS."""

    value: float
    standard_error: float

    @property
    def cautious(self) -> float:
        """What it may be at worst; candidates are ranked by it."""
        return self.value + _STANDARD_ERRORS * self.standard_error

    @property
    def is_faster(self) -> bool:
        """Whether the evidence is enough to prefer the candidate to cuBLAS."""
        return self.cautious < 0


class Predictor:
    """Predictions from the entries of a table."""

    def __init__(self, table: DispatchTable) -> None:
        self._table = table
        device = find_device(table.device)
        architecture = table.target.partition("-")[2]
        self._device = device or next(iter(devices_of(architecture)), None)
        self._missed: dict[MatmulProblem, dict[str, float]] = {}
        self._entries: dict[str, list[TunedShape]] = {}
        for entry in table.entries:
            self._entries.setdefault(entry.signature, []).append(entry)
        self._candidates = {
            signature: sorted({name for one in entries for name in one.times_ns} - {CUBLAS})
            for signature, entries in self._entries.items()
        }

    def entries(self, signature: str) -> Sequence[TunedShape]:
        """The measured shapes of a signature."""
        return self._entries.get(signature, ())

    def predictions(self, problem: MatmulProblem) -> dict[str, Prediction]:
        """How the candidates compare with cuBLAS; without those about which too little was
        measured nearby."""
        near = [
            (weight, self._missed_at(entry))
            for entry in self.entries(problem.signature)
            if (weight := _weight(problem, entry.problem)) >= _LEAST_WEIGHT
            and CUBLAS in entry.times_ns
        ]
        own: dict[str, list[tuple[float, float]]] = {}
        alike: dict[str, list[tuple[float, float]]] = {}
        shapes: Counter[str] = Counter()
        for weight, missed in near:
            shapes.update({parts_of(name)[0] for name in missed})
            for name, value in missed.items():
                own.setdefault(name, []).append((weight, value))
                alike.setdefault(parts_of(name)[0], []).append((weight, value))
        common = {provider: _mean(values) for provider, values in alike.items()}
        spreads = {name: _variance(values, common[name]) for name, values in alike.items()}
        library = self._ns(problem, Configuration())
        found = {}
        for name in self._candidates.get(problem.signature, ()):
            provider = parts_of(name)[0]
            if shapes[provider] < _FEWEST:
                continue
            mine = own.get(name, [])
            usual = _mean([*mine, (_PRIOR, common[provider])])
            spread = _variance(mine, usual) if len(mine) >= _FEWEST else spreads[provider]
            error = math.sqrt(spread / (_independent(mine) + _PRIOR))
            ratio = self._ns(problem, self._table.configuration(name)) / library
            found[name] = Prediction(math.log(ratio) + usual, error)
        return found

    def transferred(self, problem: MatmulProblem, entry: TunedShape, candidate: str) -> float:
        """The logarithm of a candidate's time over that of cuBLAS, as measured at `entry` and
        corrected by what the model expects to change."""
        return self._missed_at(entry)[candidate] + self.modelled(problem, candidate)

    def modelled(self, problem: MatmulProblem, candidate: str) -> float:
        """The model's own logarithm of the ratio."""
        ours = self._table.configuration(candidate)
        return math.log(self._ns(problem, ours) / self._ns(problem, Configuration()))

    def _missed_at(self, entry: TunedShape) -> dict[str, float]:
        """Candidate -> what the model misses at a shape where cuBLAS was measured, too."""
        problem, times = entry.problem, entry.times_ns
        if problem not in self._missed:
            self._missed[problem] = {
                name: math.log(ns / times[CUBLAS]) - self.modelled(problem, name)
                for name, ns in times.items()
                if name != CUBLAS
            }
        return self._missed[problem]

    def _ns(self, problem: MatmulProblem, configuration: Configuration) -> float:
        return 1.0 if self._device is None else modelled_ns(problem, configuration, self._device)


_Weighted = Sequence[tuple[float, float]]
"""Weights and values."""


def _weight(problem: MatmulProblem, measured: MatmulProblem) -> float:
    pairs = zip(problem.shape, measured.shape, _OCTAVES, strict=True)
    return math.exp(-sum((math.log2(a / b) / scale) ** 2 for a, b, scale in pairs) / 2)


def _mean(values: _Weighted) -> float:
    return sum(weight * value for weight, value in values) / sum(weight for weight, _ in values)


def _variance(values: _Weighted, mean: float) -> float:
    return _mean([(weight, (value - mean) ** 2) for weight, value in values])


def _independent(values: _Weighted) -> float:
    """Number of equally weighted values that are worth as much (Kish's effective size)."""
    squares = sum(weight**2 for weight, _ in values)
    return sum(weight for weight, _ in values) ** 2 / squares if squares else 0.0


def modelled_ns(problem: MatmulProblem, configuration: Configuration, device: DeviceSpec) -> float:
    """The model's time of a launch in ns. Without a tile (cuBLAS, which chooses among many kernels)
    it is that of the best of some usual tiles."""
    if configuration.tile is None:
        return min(modelled_ns(problem, one, device) for one in _USUAL)
    operation = operation_of(problem)
    lhs = operation.signature.lhs
    peak = device.peaks.get(rate_class(lhs)) or max(device.peaks.values())
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
