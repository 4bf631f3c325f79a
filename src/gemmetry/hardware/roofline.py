"""The roofline of an operation on a target: the least of peak and intensity × bandwidth.

Model: S. Williams, A. Waterman, D. Patterson, "Roofline: An Insightful Visual Performance Model
for Multicore Architectures", CACM 52(4), 2009. Intensity here is FLOPs over *compulsory* bytes,
so no kernel with cold caches exceeds the roof.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from gemmetry.domain.dtypes import F16, F64, DType
from gemmetry.domain.operation import Operation
from gemmetry.domain.target import Target, TargetKind
from gemmetry.domain.units import format_bytes
from gemmetry.hardware.cpu import peak_flops_per_s
from gemmetry.hardware.detect import CpuFacts, cpu_facts
from gemmetry.hardware.devices import DeviceSpec, devices_of, find_device, rate_class


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
