"""The roofline of an operation on a target: the least of peak and intensity × bandwidth.

Model: S. Williams, A. Waterman, D. Patterson, "Roofline: An Insightful Visual Performance Model
for Multicore Architectures", CACM 52(4), 2009. Intensity here is FLOPs over *compulsory* bytes,
so no kernel with cold caches exceeds the roof.

The speed that no correct kernel exceeds: a shorter time is a timing error or a cheat.

The limit is the *compute* peak alone (a cache can carry more bytes than a memory), of the fastest
arithmetic that could give the promised result, times a margin for the uncertainty of the tables.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import lru_cache

from gemmetry.domain.dispatch import Target, TargetKind
from gemmetry.domain.operation import F16, F32, F64, TF32, DType, Operation, OperationKind
from gemmetry.domain.record import Trait
from gemmetry.domain.units import counted, format_bytes
from gemmetry.hardware.cpu import core_peak, peak_flops_per_s
from gemmetry.hardware.detect import CpuFacts, cpu_facts
from gemmetry.hardware.devices import (
    DeviceSpec,
    bounding_clock,
    devices_of,
    find_device,
    rate_class,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Roofline:
    """Roofs of one operation on one target."""

    attainable_flops_per_s: float
    peak_flops_per_s: float
    peak_bytes_per_s: float | None
    """Memory bandwidth; None where it is unknown, so that only the peak is a bound."""
    source: str
    """Sources of the peaks, for display."""


def roofline(
    target: Target, operation: Operation, *, host_bytes_per_s: float | None = None
) -> Roofline | None:
    """Roofs of `operation` on `target`; None where its peak is unknown.

    A GPU's row is found by the product name, or by the architecture if only one product has it.

    Args:
        host_bytes_per_s: memory bandwidth of this host, for CPU targets, as measured by
            ``bandwidth.measure_host_bandwidth``; None: unknown, so that only the peak is a bound.
    """
    if target.kind is TargetKind.CPU:
        return _cpu_roofline(operation, host_bytes_per_s)
    spec = device_of(target)
    if spec is None:
        return None
    peak = _gpu_peak(spec, operation)
    if peak is None:
        return None
    return Roofline(
        attainable_flops_per_s=attainable(operation, peak, spec.bandwidth_bytes_per_s),
        peak_flops_per_s=peak,
        peak_bytes_per_s=spec.bandwidth_bytes_per_s,
        source=f"{spec.name}, dense: {spec.source}",
    )


def device_of(target: Target) -> DeviceSpec | None:
    """The row of the table for a GPU target; None if there is no certain one."""
    if target.product:
        return find_device(target.product)
    rows = devices_of(target.architecture)
    return rows[0] if len(rows) == 1 else None


def attainable(operation: Operation, peak: float, bytes_per_s: float | None) -> float:
    """min(peak, FLOPs / compulsory bytes × bandwidth), in FLOP/s."""
    if bytes_per_s is None or operation.bytes == 0:
        return peak
    return min(peak, operation.flops / operation.bytes * bytes_per_s)


def limiting_dtype(operation: Operation) -> DType:
    """The format whose rate bounds the product: the wider input, or f64 where it accumulates in
    f64."""
    signature = operation.signature
    if signature.accumulator is F64:
        return F64
    lhs, rhs = signature.lhs, signature.rhs
    return lhs if lhs.storage_bits >= rhs.storage_bits else rhs


def _gpu_peak(spec: DeviceSpec, operation: Operation) -> float | None:
    key = rate_class(limiting_dtype(operation))
    if operation.signature.accumulator is F16 and key in spec.narrow_accumulator_peaks:
        return spec.narrow_accumulator_peaks[key]
    return spec.peaks.get(key)


def _cpu_roofline(operation: Operation, bytes_per_s: float | None) -> Roofline | None:
    facts = _facts()
    found = peak_flops_per_s(facts, limiting_dtype(operation))
    if found is None:
        return None
    peak, source = found
    if bytes_per_s is None:
        source += "; memory bandwidth was not measured, so only the peak limits it"
    elif operation.bytes <= facts.total_cache_bytes:
        bytes_per_s = None  # data that stays in the caches is not transferred
        cache = format_bytes(facts.total_cache_bytes)
        source += f"; its data fit into the last-level cache ({cache}), so only the peak limits it"
    else:
        source += f"; {bytes_per_s / 1e9:.1f} GB/s by a numpy triad on this machine"
    return Roofline(
        attainable_flops_per_s=attainable(operation, peak, bytes_per_s),
        peak_flops_per_s=peak,
        peak_bytes_per_s=bytes_per_s,
        source=source,
    )


@lru_cache(maxsize=1)
def _facts() -> CpuFacts:
    return cpu_facts()


GPU_MARGIN = 1.3
"""Data sheets assume a boost clock, and boards may run above it: an H200 at up to 1980 MHz where
its data sheet's figures need 1830 (8 %), GeForce boards up to 28 % (RTX 5090: 3090 and 2407 MHz;
``nvidia-smi -q -d CLOCK``, "Max Clocks")."""

CPU_MARGIN = 2.0
"""The clock is the highest that the product reaches, but a hypervisor may show two cores as the
two threads of one, and the operations per cycle come from a table of families."""

_EMULATIONS: Mapping[str, tuple[tuple[str, int], ...]] = {
    "f64": (("s8", 28),),
    "f32": (("tf32", 3), ("f16", 3), ("bf16", 6)),
    "tf32": (("f16", 1), ("bf16", 3)),
    "f16": (("bf16", 3),),
}
"""Rate class -> (narrower class, fewest products of it that give the wider one's accuracy).

f64 by seven slices of 8-bit integers needs 7·8/2 products (Ootomo, Ozaki, Yokota, "DGEMM on
Integer Matrix Multiplication Unit", IJHPCA 2024); f32 by two f16 or tf32 parts needs 3 (Ootomo &
Yokota, "Recovering Single Precision Accuracy from Tensor Cores", IJHPCA 2022), by three bf16 parts
6 (Henry, Tang, Heinecke, "Leveraging the bfloat16 Artificial Intelligence Datatype", ARITH 2019).
tf32 and f16 have the same 11 significand bits, two bf16 parts have 16."""


@dataclass(frozen=True, slots=True)
class SpeedLimit:
    """Speed that no correct kernel exceeds."""

    flops_per_s: float
    """The limit, margin included."""
    source: str
    """Peak, margin and their sources, for display."""


def speed_limit(
    target: Target, operation: Operation, declared: Collection[Trait] = ()
) -> SpeedLimit | str:
    """The limit for `operation` on `target`, or why there is none.

    Args:
        declared: traits of the executable; one that declares tf32 is compared with the tf32 peak.
    """
    if operation.signature.kind is OperationKind.CONV2D or Trait.NORMWISE in declared:
        return "algorithms like Winograd's need fewer multiplications than are counted"
    if operation.flops == 0:
        return "there is nothing to compute"
    dtype = limiting_dtype(operation)
    if dtype is F32 and Trait.TF32 in declared:
        dtype = TF32
    peaks, margin, source = _peaks(target)
    if not peaks:
        return source
    wanted = rate_class(dtype)
    candidates = [(peaks[wanted], wanted)] if wanted in peaks else []
    if not candidates:
        return f"the {wanted} peak of this device is unknown"
    for narrow, products in _EMULATIONS.get(wanted, ()):
        if narrow in peaks:
            candidates.append((peaks[narrow] / products, f"{wanted} by {products} × {narrow}"))
    peak, how = max(candidates)
    return SpeedLimit(
        margin * peak, f"{margin:g} × the peak of {peak / 1e12:.4g} TFLOP/s ({how}; {source})"
    )


def _peaks(target: Target) -> tuple[Mapping[str, float], float, str]:
    """Rate class -> FLOP/s, the margin, and the source; without peaks the source states why."""
    if target.kind is TargetKind.CPU:
        peaks, source = _cpu_peaks(cpu_facts())
        return peaks, CPU_MARGIN, source
    spec = device_of(target)
    if spec is None:
        return {}, GPU_MARGIN, f"no data sheet of {target.product or target.name} is known"
    peaks = {
        key: max(peak, spec.narrow_accumulator_peaks.get(key, 0.0))
        for key, peak in spec.peaks.items()
    }
    return peaks, GPU_MARGIN, f"{spec.name}, {spec.source}"


def _cpu_peaks(facts: CpuFacts) -> tuple[Mapping[str, float], str]:
    per_core, clock_hz = core_peak(facts), bounding_clock(facts)
    if per_core is None or clock_hz is None:
        return {}, "the peak of this processor is unknown"
    cores = facts.physical_cores
    text = f"{counted(cores, 'core')} at {clock_hz / 1e9:.2f} GHz"
    return {name: cores * clock_hz * rate for name, rate in per_core.per_cycle.items()}, text
