"""Theoretical peaks of this machine's CPU: cores × highest clock × operations per cycle.

Operations per cycle are those of the widest vector or matrix instructions in the processor's flags,
times how many of them its family issues per cycle. No flag shows the latter, so it comes from a
table: Intel's and AMD's optimisation manuals (the vendors' "Software Optimization Guide" of each
AMD family; "Intel 64 and IA-32 Architectures Optimization Reference Manual"), Arm's "Software
Optimization Guide" of each Neoverse core, and the instruction tables of uops.info.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gemmetry.domain.operation import DType
from gemmetry.hardware.detect import CpuFacts
from gemmetry.hardware.devices import highest_clock


@dataclass(frozen=True, slots=True)
class CorePeak:
    """What one core can do per cycle."""

    per_cycle: Mapping[str, int]
    """dtype name -> FLOP (s8: operations) per cycle and core; missing: unknown."""
    instructions: Mapping[str, str]
    """dtype name -> description of the instructions that reach that rate."""


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
    if family is None or "fma" not in facts.flags:
        return None
    return _x86(family, facts.flags)


def peak_flops_per_s(facts: CpuFacts, dtype: DType) -> tuple[float, str] | None:
    """Peak of all usable cores in FLOP/s with its source, or None where it is unknown.

    This is an upper bound: all cores at the highest clock that one of them can reach. An example of
    the source: ``2 cores × 5.00 GHz (upper bound: the highest boost of AMD EPYC 9575F; this machine
    may run slower) × 64 FLOP/cycle f32 (AVX-512, 2 FMA; AMD Zen 5)``.
    """
    peak, clock = core_peak(facts), highest_clock(facts)
    if peak is None or dtype.name not in peak.per_cycle or clock is None:
        return None
    clock_hz, clock_source = clock
    rate = peak.per_cycle[dtype.name]
    cores = facts.physical_cores
    noun = "core" if cores == 1 else "cores"
    unit = "operations" if dtype.is_integer else "FLOP"
    source = (
        f"{cores} {noun} × {clock_hz / 1e9:.2f} GHz ({clock_source}) × "
        f"{rate} {unit}/cycle {dtype.name} ({peak.instructions[dtype.name]})"
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
    rates: dict[str, tuple[int, str]] = {
        "f64": (f32 // 2, how), "f32": (f32, how), "tf32": (f32, f"computed as f32; {how}"),
        "f16": (f32, f"converted to f32; {how}"), "bf16": (f32, f"converted to f32; {how}"),
    }  # fmt: skip
    if "avx512_fp16" in flags:
        rates["f16"] = (2 * f32, f"AVX512-FP16, {units} FMA; {family.name}")
    if "avx512_bf16" in flags:
        dot = 64 * family.bf16_dot_512  # 16 lanes × 2 products × multiply and add
        rates["bf16"] = (dot, f"AVX512-BF16, {family.bf16_dot_512} dot; {family.name}")
    if wide and "avx512_vnni" in flags:
        dot = 128 * family.vnni_512  # 16 lanes × 4 products × multiply and add
        rates["s8"] = (dot, f"AVX512-VNNI, {family.vnni_512} dot; {family.name}")
    elif "avx_vnni" in flags:
        rates["s8"] = (64 * family.avx2_fma, f"AVX-VNNI, {family.avx2_fma} dot; {family.name}")
    if "amx_bf16" in flags:
        rates["bf16"] = (1024, f"AMX tile product in 16 cycles; {family.name}")
    if "amx_int8" in flags:
        rates["s8"] = (2048, f"AMX tile product in 16 cycles; {family.name}")
    if "amx_fp16" in flags:
        rates["f16"] = (1024, f"AMX tile product in 16 cycles; {family.name}")
    return _core_peak(rates)


def _neoverse(facts: CpuFacts) -> CorePeak:
    """128-bit pipes: 4 f32 lanes; BFMMLA and SMMLA do 4 and 8 times the f32 work of an FMLA."""
    name, pipes = _NEOVERSE[facts.arm_part or 0]
    how = f"{pipes} × 128-bit FMA; {name}"
    f32 = 8 * pipes
    rates: dict[str, tuple[int, str]] = {
        "f64": (f32 // 2, how), "f32": (f32, how), "tf32": (f32, f"computed as f32; {how}"),
    }  # fmt: skip
    if "asimdhp" in facts.flags:
        rates["f16"] = (2 * f32, f"FP16 {how}")
    if "bf16" in facts.flags:
        rates["bf16"] = (4 * f32, f"BFMMLA, {how}")
    if "i8mm" in facts.flags:
        rates["s8"] = (8 * f32, f"SMMLA, {how}")
    elif "asimddp" in facts.flags:
        rates["s8"] = (4 * f32, f"SDOT, {how}")
    return _core_peak(rates)


def _core_peak(rates: Mapping[str, tuple[int, str]]) -> CorePeak:
    return CorePeak(
        {name: rate for name, (rate, _) in rates.items()},
        {name: how for name, (_, how) in rates.items()},
    )
