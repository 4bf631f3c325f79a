"""Table of GPUs (``devices.csv``): dense peaks, memory bandwidth, caches, each row with its source.

Peaks, in 10¹² operations per second, are *dense*: where a datasheet prints figures "with sparsity",
the row holds half of them. They are products of units, operations per clock and the clock that the
datasheet assumes; the tests recompute them from those three. A peak is keyed by the rate class of
the inputs (``f64``, ``f32``, ``tf32``, ``f16``, ``bf16``, ``fp8``, ``s8``) at the usual accumulator
(f32, s32).

The highest clock that a CPU can reach, so that a peak computed from it is an upper bound.

A virtual machine shows the clock of its time-stamp counter, which is about the base clock, although
the cores run faster. It usually hides the product's name too, so the bound is the highest boost
clock of any product with that family and model, from the vendors' product pages (amd.com,
ark.intel.com, amperecomputing.com, aws.amazon.com/ec2, learn.microsoft.com). Families and models as
in Linux, arch/x86/include/asm/intel-family.h and arch/x86/kernel/cpu/amd.c.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from operator import itemgetter

from gemmetry.domain.operation import DType
from gemmetry.hardware.detect import CpuFacts

_MIB = 2**20
_T, _G = 1e12, 1e9
_RATE_CLASSES = ("f64", "f32", "tf32", "f16", "bf16", "fp8", "s8")


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceSpec:
    """One product as its vendor describes it."""

    name: str
    architecture: str
    """sm_90, gfx942 ... as in :class:`gemmetry.domain.dispatch.Target`."""
    tokens: tuple[frozenset[str], ...]
    """Sets of words in a driver's product name, in addition to neutral words."""
    peaks: Mapping[str, float]
    """Rate class -> FLOP/s (s8: operations per second), dense."""
    bandwidth_bytes_per_s: float
    link_bytes_per_s: float | None
    """All links of a GPU to the others of its node (NVLink, Infinity Fabric), in one direction:
    half of the "bidirectional" figure of the row's source, which is links times GB/s of each.

    NVLink: NVIDIA's whitepapers of Volta (6 × 25 GB/s), Ampere (12 × 25), Hopper (18 × 25) and
    Blackwell (18 × 50). Infinity Fabric: AMD's datasheets of MI300X and MI325X (7 × 64 GB/s to the
    other seven) and MI350X and MI355X (7 × 76.8).

    None for products that are sold without (a bridge between two or four boards is an accessory),
    and for MI250, MI250X and MI300A, whose links serve dies, hosts and GPUs in ways that depend on
    the node."""
    l2_bytes: int
    source: str
    narrow_accumulator_peaks: Mapping[str, float] = field(default_factory=dict)
    """Rate class -> FLOP/s where f16 accumulates in f16; boards that halve the f32 rate."""
    last_level_cache_bytes: int = 0
    """Cache beyond the L2 (AMD's Infinity Cache); 0: the L2 is the last level."""


def rate_class(dtype: DType) -> str:
    """The key of `dtype` in a table of peaks."""
    return "fp8" if dtype.is_fp8 else dtype.name


def _row(cells: Mapping[str, str]) -> DeviceSpec:
    peaks = {name: float(cells[name]) * _T for name in _RATE_CLASSES if cells[name]}
    narrow = {name: cells[f"narrow_{name}"] for name in ("f16", "fp8")}
    return DeviceSpec(
        name=cells["name"],
        architecture=cells["architecture"],
        tokens=tuple(frozenset(one.split()) for one in cells["words"].split("|")),
        peaks=peaks,
        bandwidth_bytes_per_s=float(cells["gb_per_s"]) * _G,
        link_bytes_per_s=float(text) * _G if (text := cells["link_gb_per_s"]) else None,
        l2_bytes=int(cells["l2_mib"]) * _MIB,
        source=cells["source"],
        narrow_accumulator_peaks={name: float(text) * _T for name, text in narrow.items() if text},
        last_level_cache_bytes=int(cells["last_level_cache_mib"] or 0) * _MIB,
    )


_TEXT = files(__package__).joinpath("devices.csv").read_text("utf-8")
DEVICES = tuple(_row(cells) for cells in csv.DictReader(_TEXT.splitlines()))

_NEUTRAL_WORDS = frozenset({
    "nvidia", "tesla", "geforce", "tensor", "core", "gpu", "accelerator", "graphics", "device",
    "amd", "instinct", "oam", "mcm", "ac", "lc", "mba", "vf", "sxm", "sxm5", "sxm6",
    "hbm2", "hbm2e", "hbm3e", "16gb", "24gb", "32gb", "64gb", "80gb", "94gb", "141gb", "180gb",
    "192gb", "256gb", "288gb",
})  # fmt: skip
"""Words of a product name that change no figure of its row. Any other remaining word ("Laptop",
"Ti", "D", "MIG 1g.18gb") denotes another product, which has no row: no figure is better than that
of a different product."""


def find_device(product: str) -> DeviceSpec | None:
    """The row of a product name as drivers spell it ("NVIDIA A100-SXM4-80GB"); None if unsure."""
    words = frozenset(re.findall(r"[a-z0-9]+", product.lower()))
    fitting = [(len(tokens), spec) for spec in DEVICES for tokens in spec.tokens
               if tokens <= words and words - tokens <= _NEUTRAL_WORDS]  # fmt: skip
    return max(fitting, key=itemgetter(0), default=(0, None))[1]


def devices_of(architecture: str) -> tuple[DeviceSpec, ...]:
    """All rows of an architecture, which may have a suffix (``sm_90a``, ``gfx90a:xnack-``)."""
    plain = architecture.partition(":")[0]
    found = tuple(spec for spec in DEVICES if spec.architecture == plain)
    if not found and plain.startswith("sm_") and plain[-1:] in ("a", "f"):
        return devices_of(plain[:-1])
    return found


def device_or_like(product: str, architecture: str) -> DeviceSpec | None:
    """The row of a product, else the first one of its architecture, which is enough to rank
    kernels; None if neither is known."""
    return find_device(product) or next(iter(devices_of(architecture)), None)


_BOOSTS = list(csv.DictReader(files(__package__).joinpath("boosts.csv").read_text().splitlines()))
"""The fastest product of some models of a CPUID family; the first row that fits counts. Hygon's
processors are AMD's Zen."""

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
    ghz, product = _boost(facts) or (0.0, "")
    clock_hz = facts.clock_hz or 0.0
    if not product or facts.clock_is_highest or clock_hz >= ghz * 1e9:
        return None if facts.clock_hz is None else (facts.clock_hz, facts.clock_source)
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
    for row in _BOOSTS:
        first, last = int(row["first_model"], 16), int(row["last_model"], 16)
        is_family = (row["vendor"], int(row["family"], 16)) == (facts.vendor, facts.family)
        if is_family and first <= facts.model <= last:
            return float(row["ghz"]), row["product"]
    return None
