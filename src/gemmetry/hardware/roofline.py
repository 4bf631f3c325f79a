"""Measures the memory bandwidth of the host, which no system file reports.

Theoretical peaks of this machine's CPU: cores × highest clock × operations per cycle.

Operations per cycle are those of the widest vector or matrix instructions in the processor's flags,
times how many of them its family issues per cycle. No flag shows the latter, so it comes from a
table: Intel's and AMD's optimisation manuals (the vendors' "Software Optimization Guide" of each
AMD family; "Intel 64 and IA-32 Architectures Optimization Reference Manual"), Arm's "Software
Optimization Guide" of each Neoverse core, and the instruction tables of uops.info.

The roofline of an operation on a target: the least of peak and intensity × bandwidth.

Model: S. Williams, A. Waterman, D. Patterson, "Roofline: An Insightful Visual Performance Model
for Multicore Architectures", CACM 52(4), 2009. Intensity here is FLOPs over *compulsory* bytes,
so no kernel with cold caches exceeds the roof.

The speed that no correct kernel exceeds: a shorter time is a timing error or a cheat.

The limit is the *compute* peak alone (a cache can carry more bytes than a memory), of the fastest
arithmetic that could give the promised result, times a margin for the uncertainty of the tables.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache, lru_cache

import numpy as np
import numpy.typing as npt

from gemmetry.domain.dispatch import Target, TargetKind
from gemmetry.domain.operation import F16, F32, F64, TF32, DType, Operation, OperationKind
from gemmetry.domain.record import Trait
from gemmetry.domain.units import format_bytes, plural
from gemmetry.hardware.detect import CpuFacts, cpu_facts
from gemmetry.hardware.devices import (
    DeviceSpec,
    bounding_clock,
    devices_of,
    find_device,
    highest_clock,
    rate_class,
)
from gemmetry.hardware.host import total_memory_bytes

_REPEATS = 5
_MIN_BYTES, _MAX_BYTES = 64 * 2**20, 512 * 2**20
_CACHE_FACTOR = 4
"""STREAM's rule: each array is at least four times the caches (J. McCalpin, STREAM run rules)."""

_TRAVELLING = 6
"""Number of arrays that one triad moves between caches and memory."""


@lru_cache(maxsize=1)
def measure_host_bandwidth() -> float | None:
    """Bytes per second of a triad over all usable cores; None where memory is too small for it.

    ``a = b + s·c`` as STREAM does it, in two numpy passes (numpy has no fused one): c is read and
    a written, then a and b read and a written. A cache reads a line before part of it is written,
    unless it already holds the line, so that six arrays are moved; STREAM itself counts the five
    that the program names. A product mostly reads, and its bytes must be compared with everything
    that memory moves. The result is the best of five runs, after one that touches the pages. It
    takes about a second and is measured once per process.
    """
    facts = cpu_facts()
    array_bytes = min(max(_CACHE_FACTOR * facts.total_cache_bytes, _MIN_BYTES), _MAX_BYTES)
    if total_memory_bytes() < 8 * array_bytes:
        return None
    workers = facts.physical_cores
    elements = array_bytes // 8 // workers
    parts = [tuple(np.ones(elements) for _ in range(3)) for _ in range(workers)]
    best = float("inf")
    with ThreadPoolExecutor(workers) as pool:  # numpy releases the GIL
        list(pool.map(_triad, parts))
        for _ in range(_REPEATS):
            began = time.perf_counter()
            list(pool.map(_triad, parts))
            best = min(best, time.perf_counter() - began)
    return _TRAVELLING * 8 * elements * workers / best


def _triad(arrays: tuple[npt.NDArray[np.float64], ...]) -> None:
    a, b, c = arrays
    np.multiply(c, 3.0, out=a)
    np.add(a, b, out=a)


CorePeak = dict[str, tuple[int, str]]
"""dtype name -> FLOP (s8: operations) that one core can do per cycle, and a description of the
instructions that reach that rate; missing: unknown."""


@dataclass(frozen=True, slots=True)
class _CpuFamily:
    """FMA units: how many vector multiply-adds of that width a core issues per cycle."""

    name: str
    avx2_fma: int = 2
    avx512_fma: int = 1
    bf16_dot_512: int = 1
    """VDPBF16PS on 512 bits, per cycle."""
    vnni_512: int = 1
    """VPDPBUSD on 512 bits, per cycle."""


_INTEL_SERVER = _CpuFamily("Intel Xeon", avx512_fma=2, vnni_512=2)
_INTEL_CLIENT = _CpuFamily("Intel Core")
_ZEN1 = _CpuFamily("AMD Zen/Zen+", avx2_fma=1)
_ZEN2_3 = _CpuFamily("AMD Zen 2/3")
_ZEN4 = _CpuFamily("AMD Zen 4")  # 512 bits in two halves: half of Zen 5's rates
_ZEN5 = _CpuFamily("AMD Zen 5", avx512_fma=2, bf16_dot_512=2, vnni_512=2)
_ZEN5_MOBILE = _CpuFamily("AMD Zen 5 (256-bit)")

_INTEL_SERVER_MODELS = frozenset({0x55, 0x6A, 0x6C, 0x8F, 0xCF, 0xAD, 0xAE})
"""Skylake/Cascade/Cooper Lake-SP, Ice Lake-SP and -D, Sapphire and Emerald Rapids, Granite Rapids
and Granite Rapids-D (Linux arch/x86/include/asm/intel-family.h)."""

_NEOVERSE: dict[int, tuple[str, int]] = {
    0xD0C: ("Neoverse N1", 2), 0xD49: ("Neoverse N2", 2), 0xD8E: ("Neoverse N3", 2),
    0xD40: ("Neoverse V1", 4), 0xD4F: ("Neoverse V2", 4), 0xD84: ("Neoverse V3", 4),
}  # fmt: skip
"""CPU part (Linux arch/arm64/include/asm/cputype.h) -> name, 128-bit FMAs issued per cycle."""


def core_peak(facts: CpuFacts) -> CorePeak | None:
    """Operations per cycle of one core; None where the family or its vector width is unknown."""
    if facts.arm_part in _NEOVERSE:
        return _neoverse(facts)
    family = _x86_family(facts)
    return _x86(family, facts.flags) if family is not None and "fma" in facts.flags else None


def peak_flops_per_s(facts: CpuFacts, dtype: DType) -> tuple[float, str] | None:
    """Peak of all usable cores in FLOP/s with its source, or None where it is unknown.

    This is an upper bound: all cores at the highest clock that one of them can reach. An example of
    the source: ``2 cores × 5.00 GHz (upper bound: the highest boost of AMD EPYC 9575F; this machine
    may run slower) × 64 FLOP/cycle f32 (AVX-512, 2 FMA; AMD Zen 5)``.
    """
    peak, clock = core_peak(facts), highest_clock(facts)
    if peak is None or dtype.name not in peak or clock is None:
        return None
    clock_hz, clock_source = clock
    rate, instructions = peak[dtype.name]
    cores = facts.physical_cores
    unit = "operations" if dtype.is_integer else "FLOP"
    source = (
        f"{plural(cores, 'core')} × {clock_hz / 1e9:.2f} GHz ({clock_source}) × "
        f"{rate} {unit}/cycle {dtype.name} ({instructions})"
    )
    return cores * clock_hz * rate, source


def _x86_family(facts: CpuFacts) -> _CpuFamily | None:
    model = facts.model
    if facts.vendor == "GenuineIntel" and facts.family in (6, 19):
        is_server = facts.family == 19 or model in _INTEL_SERVER_MODELS
        return _INTEL_SERVER if is_server else _INTEL_CLIENT
    if facts.vendor in ("AuthenticAMD", "HygonGenuine"):
        if facts.family in (0x17, 0x18):
            return _ZEN2_3 if model >= 0x30 else _ZEN1
        if facts.family == 0x19:
            return _ZEN4 if "avx512f" in facts.flags else _ZEN2_3
        if facts.family == 0x1A:
            is_mobile = 0x20 <= model <= 0x2F or 0x60 <= model <= 0x6F
            return _ZEN5_MOBILE if is_mobile else _ZEN5
    return None


def _x86(family: _CpuFamily, flags: frozenset[str]) -> CorePeak:
    """An FMA is 2 FLOP per lane; f16 and bf16 without instructions of their own are computed in
    f32."""
    wide = "avx512f" in flags
    units, lanes, isa = (family.avx512_fma, 16, "AVX-512") if wide else (family.avx2_fma, 8, "AVX2")
    how = f"{isa}, {units} FMA; {family.name}"
    f32 = 2 * lanes * units
    rates = {
        "f64": (f32 // 2, how), "f32": (f32, how), "tf32": (f32, f"computed as f32; {how}"),
        "f16": (f32, f"converted to f32; {how}"), "bf16": (f32, f"converted to f32; {how}"),
    }  # fmt: skip
    bf16, s8, amx = family.bf16_dot_512, family.vnni_512, "AMX tile product in 16 cycles"
    for wanted, name, rate, what in (
        ("avx512_fp16", "f16", 2 * f32, f"AVX512-FP16, {units} FMA"),
        # 16 lanes × 2 products, of s8 4 × multiply and add
        ("avx512_bf16", "bf16", 64 * bf16, f"AVX512-BF16, {bf16} dot"),
        ("avx_vnni", "s8", 64 * family.avx2_fma, f"AVX-VNNI, {family.avx2_fma} dot"),
        ("avx512f avx512_vnni", "s8", 128 * s8, f"AVX512-VNNI, {s8} dot"),
        ("amx_bf16", "bf16", 1024, amx), ("amx_int8", "s8", 2048, amx),
        ("amx_fp16", "f16", 1024, amx),
    ):  # fmt: skip
        if flags.issuperset(wanted.split()):
            rates[name] = (rate, f"{what}; {family.name}")
    return rates


def _neoverse(facts: CpuFacts) -> CorePeak:
    """128-bit pipes: 4 f32 lanes; BFMMLA and SMMLA do 4 and 8 times the f32 work of an FMLA."""
    name, pipes = _NEOVERSE[facts.arm_part or 0]
    how = f"{pipes} × 128-bit FMA; {name}"
    f32 = 8 * pipes
    rates = {
        "f64": (f32 // 2, how), "f32": (f32, how), "tf32": (f32, f"computed as f32; {how}"),
    }  # fmt: skip
    for flag, format_name, factor, what in (
        ("asimdhp", "f16", 2, "FP16 "), ("bf16", "bf16", 4, "BFMMLA, "),
        ("asimddp", "s8", 4, "SDOT, "), ("i8mm", "s8", 8, "SMMLA, "),
    ):  # fmt: skip
        if flag in facts.flags:
            rates[format_name] = (factor * f32, f"{what}{how}")
    return rates


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
    found = (
        _cpu_roofs(operation, host_bytes_per_s) if target.kind is TargetKind.CPU
        else _gpu_roofs(target, operation)
    )  # fmt: skip
    if found is None:
        return None
    peak, bytes_per_s, source = found
    return Roofline(
        attainable_flops_per_s=attainable(operation, peak, bytes_per_s),
        peak_flops_per_s=peak,
        peak_bytes_per_s=bytes_per_s,
        source=source,
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
    s = operation.signature
    wider = s.lhs if s.lhs.storage_bits >= s.rhs.storage_bits else s.rhs
    return F64 if s.accumulator is F64 else wider


_Roofs = tuple[float, float | None, str]
"""Peak, memory bandwidth and source of :class:`Roofline`."""


def _gpu_roofs(target: Target, operation: Operation) -> _Roofs | None:
    if (spec := device_of(target)) is None:
        return None
    key = rate_class(limiting_dtype(operation))
    peak = spec.peaks.get(key)
    if operation.signature.accumulator is F16:
        peak = spec.narrow_accumulator_peaks.get(key, peak)
    source = f"{spec.name}, dense: {spec.source}"
    return None if peak is None else (peak, spec.bandwidth_bytes_per_s, source)


def _cpu_roofs(operation: Operation, bytes_per_s: float | None) -> _Roofs | None:
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
    return peak, bytes_per_s, source


_facts = cache(cpu_facts)


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
    """The limit, including the margin."""
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
    if wanted not in peaks:
        return f"the {wanted} peak of this device is unknown"
    emulated = [(peaks[narrow] / products, f"{wanted} by {products} × {narrow}")
                for narrow, products in _EMULATIONS.get(wanted, ()) if narrow in peaks]  # fmt: skip
    peak, how = max([(peaks[wanted], wanted), *emulated])
    return SpeedLimit(
        margin * peak, f"{margin:g} × the peak of {peak / 1e12:.4g} TFLOP/s ({how}; {source})"
    )


def _peaks(target: Target) -> tuple[Mapping[str, float], float, str]:
    """Rate class -> FLOP/s, the margin, and the source; without peaks the source states why."""
    if target.kind is TargetKind.CPU:
        facts = cpu_facts()
        per_core, clock_hz, cores = core_peak(facts), bounding_clock(facts), facts.physical_cores
        if per_core is None or clock_hz is None:
            return {}, CPU_MARGIN, "the peak of this processor is unknown"
        text = f"{plural(cores, 'core')} at {clock_hz / 1e9:.2f} GHz"
        peaks = {name: cores * clock_hz * rate for name, (rate, _) in per_core.items()}
        return peaks, CPU_MARGIN, text
    spec = device_of(target)
    if spec is None:
        return {}, GPU_MARGIN, f"no data sheet of {target.product or target.name} is known"
    peaks = {
        key: max(peak, spec.narrow_accumulator_peaks.get(key, 0.0))
        for key, peak in spec.peaks.items()
    }
    return peaks, GPU_MARGIN, f"{spec.name}, {spec.source}"
