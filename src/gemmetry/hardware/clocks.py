"""The highest clock that a CPU can reach, so that a peak computed from it is an upper bound.

A virtual machine shows the clock of its time-stamp counter, which is about the base clock, although
the cores run faster. It usually hides the product's name too, so the bound is the highest boost
clock of any product with that family and model, from the vendors' product pages (amd.com,
ark.intel.com, amperecomputing.com, aws.amazon.com/ec2, learn.microsoft.com). Families and models as
in Linux, arch/x86/include/asm/intel-family.h and arch/x86/kernel/cpu/amd.c.
"""

from __future__ import annotations

from dataclasses import dataclass

from gemmetry.hardware.detect import CpuFacts


@dataclass(frozen=True, slots=True)
class _Boost:
    """The fastest product of some models, `first` to `last`, of one CPUID family."""

    family: int
    first: int
    last: int
    ghz: float
    product: str


_AMD = (
    _Boost(0x17, 0x00, 0x2F, 4.4, "AMD Ryzen Threadripper 2950X"),  # Zen, Zen+
    _Boost(0x18, 0x00, 0xFF, 4.4, "AMD Ryzen Threadripper 2950X"),  # Hygon's Zen
    _Boost(0x17, 0x31, 0x31, 4.5, "AMD Ryzen Threadripper 3970X"),  # Rome, Castle Peak
    _Boost(0x17, 0x30, 0xFF, 4.7, "AMD Ryzen 9 3950X"),  # other Zen 2
    _Boost(0x19, 0x00, 0x01, 4.1, "AMD EPYC 72F3"),  # Milan
    _Boost(0x19, 0x10, 0x17, 4.4, "AMD EPYC 9174F"),  # Genoa
    _Boost(0x19, 0x18, 0x1F, 5.3, "AMD Ryzen Threadripper 7970X"),  # Storm Peak
    _Boost(0x19, 0xA0, 0xAF, 3.1, "AMD EPYC 9754"),  # Bergamo, Siena
    _Boost(0x19, 0x60, 0x7F, 5.7, "AMD Ryzen 9 7950X"),  # other Zen 4
    _Boost(0x19, 0x02, 0x5F, 5.0, "AMD Ryzen 9 6980HX"),  # Chagall, other Zen 3 and 3+
    _Boost(0x1A, 0x00, 0x07, 5.0, "AMD EPYC 9575F"),  # Turin
    _Boost(0x1A, 0x08, 0x0F, 5.4, "AMD Ryzen Threadripper 9980X"),  # Shimada Peak
    _Boost(0x1A, 0x10, 0x1F, 3.7, "AMD EPYC 9965"),  # Turin Dense
    _Boost(0x1A, 0x20, 0x7F, 5.7, "AMD Ryzen 9 9950X"),  # other Zen 5
)
_INTEL = (
    _Boost(6, 0x55, 0x55, 5.1, "Intel Core i9-9990XE"),  # Skylake-SP and -X, Cascade, Cooper Lake
    _Boost(6, 0x6A, 0x6C, 4.0, "Intel Xeon W-3375"),  # Ice Lake-SP and -D
    _Boost(6, 0x8F, 0x8F, 4.8, "Intel Xeon w9-3495X"),  # Sapphire Rapids
    _Boost(6, 0xCF, 0xCF, 4.2, "Intel Xeon Gold 6534"),  # Emerald Rapids
    _Boost(6, 0xAD, 0xAE, 4.9, "Intel Xeon 678X"),  # Granite Rapids
    _Boost(6, 0x00, 0xFF, 6.2, "Intel Core i9-14900KS"),  # everything else in that family
)
_TABLES = {"AuthenticAMD": _AMD, "HygonGenuine": _AMD, "GenuineIntel": _INTEL}

_ARM = {
    0xD0C: (3.3, "Ampere Altra Q80-33"), 0xD49: (3.4, "Microsoft Cobalt 100"),
    0xD40: (2.6, "AWS Graviton3"), 0xD4F: (3.51, "NVIDIA Grace"),
}  # fmt: skip
"""CPU part -> GHz and product; Grace as cpufreq shows it on a GH200."""


def highest_clock(facts: CpuFacts) -> tuple[float, str] | None:
    """The clock in Hz that the cores do not exceed, and its source; None if it is unknown.

    This is the processor's own highest clock where cpufreq reports it, else the larger of the clock
    that the system reports and that of the fastest product of its kind. For an unknown kind it is
    the clock that the system reports, with a remark where the cores may exceed it.
    """
    reported = None if facts.clock_hz is None else (facts.clock_hz, facts.clock_source)
    boost = _boost(facts)
    if boost is None or facts.clock_is_highest:
        return reported
    ghz, product = boost
    if reported is not None and reported[0] >= ghz * 1e9:
        return reported
    note = f"upper bound: the highest boost of {product}; this machine may run slower"
    return ghz * 1e9, note


def bounding_clock(facts: CpuFacts) -> float | None:
    """The clock in Hz where it is certain that no core runs faster; None where it is not."""
    found = highest_clock(facts)
    is_certain = facts.clock_is_highest or _boost(facts) is not None
    return found[0] if found is not None and is_certain else None


def _boost(facts: CpuFacts) -> tuple[float, str] | None:
    if facts.arm_part is not None:
        return _ARM.get(facts.arm_part)
    for row in _TABLES.get(facts.vendor, ()):
        if row.family == facts.family and row.first <= facts.model <= row.last:
            return row.ghz, row.product
    return None
