"""Table of GPUs: dense peaks, memory bandwidth, caches, each row with its source.

Peaks are *dense*: where a datasheet prints figures "with sparsity", the row holds half of them.
They are products of units, operations per clock and the clock that the datasheet assumes; the
tests recompute them from those three. A peak is keyed by the rate class of the inputs (``f64``,
``f32``, ``tf32``, ``f16``, ``bf16``, ``fp8``, ``s8``) at the usual accumulator (f32, s32).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from gemmetry.domain.dtypes import DType

_MIB = 2**20
_T, _G = 1e12, 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceSpec:
    """One product as its vendor describes it."""

    name: str
    architecture: str
    """sm_90, gfx942 ... as in :class:`gemmetry.domain.target.Target`."""
    tokens: tuple[frozenset[str], ...]
    """Each is a set of words in a driver's product name, in addition to neutral words."""
    peaks: Mapping[str, float]
    """Rate class -> FLOP/s (s8: operations per second), dense."""
    bandwidth_bytes_per_s: float
    l2_bytes: int
    source: str
    narrow_accumulator_peaks: Mapping[str, float] = field(default_factory=dict)
    """Rate class -> FLOP/s where f16 accumulates in f16; boards that halve the f32 rate."""
    last_level_cache_bytes: int = 0
    """Cache beyond the L2 (AMD's Infinity Cache); 0: the L2 is the last level."""
    note: str = ""


def rate_class(dtype: DType) -> str:
    """The key of `dtype` in a table of peaks."""
    return "fp8" if dtype.is_fp8 else dtype.name


def _words(*names: str) -> tuple[frozenset[str], ...]:
    return tuple(frozenset(name.split()) for name in names)


def _tera(**peaks: float) -> dict[str, float]:
    return {name: value * _T for name, value in peaks.items()}


_HOPPER_SXM = _tera(f64=66.9, f32=66.9, tf32=494.7, f16=989.4, bf16=989.4, fp8=1978.9, s8=1978.9)
_CDNA3 = _tera(f64=163.4, f32=163.4, tf32=653.7, f16=1307.4, bf16=1307.4, fp8=2614.9, s8=2614.9)
_A100 = _tera(f64=19.5, f32=19.5, tf32=155.9, f16=311.9, bf16=311.9, s8=623.7)
_ONE_DIE = "One of the two dies (GCDs): the runtime shows each as a device of its own."

DEVICES: tuple[DeviceSpec, ...] = (
    DeviceSpec(
        name="V100 SXM2", architecture="sm_70", tokens=_words("v100 sxm2"),
        peaks=_tera(f64=7.8, f32=15.7, f16=125.3),
        bandwidth_bytes_per_s=900 * _G, l2_bytes=6 * _MIB,
        source="NVIDIA Tesla V100 datasheet; Volta architecture whitepaper",
    ),
    DeviceSpec(
        name="V100 PCIe", architecture="sm_70", tokens=_words("v100 pcie"),
        peaks=_tera(f64=7.0, f32=14.1, f16=113.0),
        bandwidth_bytes_per_s=900 * _G, l2_bytes=6 * _MIB,
        source="NVIDIA Tesla V100 datasheet; Volta architecture whitepaper",
    ),
    DeviceSpec(
        name="T4", architecture="sm_75", tokens=_words("t4"),
        peaks=_tera(f64=0.254, f32=8.1, f16=65.1, s8=130.3),
        bandwidth_bytes_per_s=320 * _G, l2_bytes=4 * _MIB,
        source="NVIDIA T4 datasheet; Turing architecture whitepaper",
    ),
    DeviceSpec(
        name="A100 SXM4 40GB", architecture="sm_80",
        tokens=_words("a100 sxm4 40gb", "a100 sxm 40gb"),
        peaks=_A100, bandwidth_bytes_per_s=1555 * _G, l2_bytes=40 * _MIB,
        source="NVIDIA A100 Tensor Core GPU datasheet; Ampere architecture whitepaper",
    ),
    DeviceSpec(
        name="A100 PCIe 40GB", architecture="sm_80", tokens=_words("a100 pcie 40gb"),
        peaks=_A100, bandwidth_bytes_per_s=1555 * _G, l2_bytes=40 * _MIB,
        source="NVIDIA A100 Tensor Core GPU datasheet; Ampere architecture whitepaper",
    ),
    DeviceSpec(
        name="A100 SXM4 80GB", architecture="sm_80",
        tokens=_words("a100 sxm4 80gb", "a100 sxm 80gb"),
        peaks=_A100, bandwidth_bytes_per_s=2039 * _G, l2_bytes=40 * _MIB,
        source="NVIDIA A100 80GB datasheet; Ampere architecture whitepaper",
    ),
    DeviceSpec(
        name="A100 PCIe 80GB", architecture="sm_80", tokens=_words("a100 pcie 80gb"),
        peaks=_A100, bandwidth_bytes_per_s=1935 * _G, l2_bytes=40 * _MIB,
        source="NVIDIA A100 80GB datasheet; Ampere architecture whitepaper",
    ),
    DeviceSpec(
        name="A10", architecture="sm_86", tokens=_words("a10"),
        peaks=_tera(f64=0.488, f32=31.2, tf32=62.5, f16=125.0, bf16=125.0, s8=250.0),
        bandwidth_bytes_per_s=600 * _G, l2_bytes=6 * _MIB,
        source="NVIDIA A10 datasheet; GA102 architecture whitepaper",
    ),
    DeviceSpec(
        name="RTX 3090", architecture="sm_86", tokens=_words("rtx 3090"),
        peaks=_tera(f64=0.556, f32=35.6, tf32=35.6, f16=71.2, bf16=71.2, s8=284.7),
        narrow_accumulator_peaks=_tera(f16=142.3),
        bandwidth_bytes_per_s=936 * _G, l2_bytes=6 * _MIB,
        source="NVIDIA GA102 architecture whitepaper, appendix A",
    ),
    DeviceSpec(
        name="RTX 4090", architecture="sm_89", tokens=_words("rtx 4090"),
        peaks=_tera(f64=1.29, f32=82.6, tf32=82.6, f16=165.2, bf16=165.2, fp8=330.3, s8=660.6),
        narrow_accumulator_peaks=_tera(f16=330.3, fp8=660.6),
        bandwidth_bytes_per_s=1008 * _G, l2_bytes=72 * _MIB,
        source="NVIDIA Ada GPU architecture whitepaper, appendix A",
    ),
    DeviceSpec(
        name="L4", architecture="sm_89", tokens=_words("l4"),
        peaks=_tera(f64=0.473, f32=30.3, tf32=60.6, f16=121.2, bf16=121.2, fp8=242.5, s8=242.5),
        bandwidth_bytes_per_s=300 * _G, l2_bytes=48 * _MIB,
        source="NVIDIA L4 datasheet (its figures with sparsity, halved); Ada whitepaper",
    ),
    DeviceSpec(
        name="L40S", architecture="sm_89", tokens=_words("l40s"),
        peaks=_tera(f64=1.43, f32=91.6, tf32=183.2, f16=366.4, bf16=366.4, fp8=732.9, s8=732.9),
        bandwidth_bytes_per_s=864 * _G, l2_bytes=96 * _MIB,
        source="NVIDIA L40S datasheet; Ada GPU architecture whitepaper",
    ),
    DeviceSpec(
        name="H100 PCIe", architecture="sm_90", tokens=_words("h100 pcie"),
        peaks=_tera(f64=51.2, f32=51.2, tf32=378.2, f16=756.4, bf16=756.4, fp8=1512.9, s8=1512.9),
        bandwidth_bytes_per_s=2039 * _G, l2_bytes=50 * _MIB,
        source="NVIDIA H100 datasheet; Hopper architecture whitepaper",
    ),
    DeviceSpec(
        name="H100 SXM5", architecture="sm_90", tokens=_words("h100 hbm3", "h100 sxm5"),
        peaks=_HOPPER_SXM, bandwidth_bytes_per_s=3352 * _G, l2_bytes=50 * _MIB,
        source="NVIDIA H100 datasheet; Hopper architecture whitepaper",
    ),
    DeviceSpec(
        name="H100 NVL", architecture="sm_90", tokens=_words("h100 nvl"),
        peaks=_tera(f64=60.3, f32=60.3, tf32=417.5, f16=835.5, bf16=835.5, fp8=1670.5, s8=1670.5),
        bandwidth_bytes_per_s=3938 * _G, l2_bytes=50 * _MIB,
        source="NVIDIA H100 NVL datasheet (its figures with sparsity, halved)",
    ),
    DeviceSpec(
        name="H200 SXM", architecture="sm_90", tokens=_words("h200"),
        peaks=_HOPPER_SXM, bandwidth_bytes_per_s=4800 * _G, l2_bytes=60 * _MIB,
        source="NVIDIA H200 datasheet; L2 as the driver of an H200 reports it",
    ),
    DeviceSpec(
        name="H200 NVL", architecture="sm_90", tokens=_words("h200 nvl"),
        peaks=_tera(f64=60.3, f32=60.3, tf32=417.5, f16=835.5, bf16=835.5, fp8=1670.5, s8=1670.5),
        bandwidth_bytes_per_s=4800 * _G, l2_bytes=60 * _MIB,
        source="NVIDIA H200 datasheet (NVL column; figures with sparsity, halved)",
    ),
    DeviceSpec(
        name="GH200 96GB", architecture="sm_90", tokens=_words("gh200 480gb", "gh200 120gb"),
        peaks=_HOPPER_SXM, bandwidth_bytes_per_s=4000 * _G, l2_bytes=50 * _MIB,
        source="NVIDIA GH200 Grace Hopper Superchip datasheet",
        note="The driver names it after its LPDDR5X memory (480GB or 120GB).",
    ),
    DeviceSpec(
        name="GH200 144GB", architecture="sm_90", tokens=_words("gh200 144g", "gh200 144gb"),
        peaks=_HOPPER_SXM, bandwidth_bytes_per_s=4900 * _G, l2_bytes=60 * _MIB,
        source="NVIDIA GH200 Grace Hopper Superchip datasheet (HBM3e)",
    ),
    DeviceSpec(
        name="B200", architecture="sm_100", tokens=_words("b200"),
        peaks=_tera(f64=37.0, f32=75.0, tf32=1125.0, f16=2250.0, bf16=2250.0,
                    fp8=4500.0, s8=4500.0),
        bandwidth_bytes_per_s=8000 * _G, l2_bytes=126 * _MIB,
        source="NVIDIA HGX B200 and DGX B200 datasheets, one eighth",
    ),
    DeviceSpec(
        name="GB200", architecture="sm_100", tokens=_words("gb200"),
        peaks=_tera(f64=40.0, f32=80.0, tf32=1250.0, f16=2500.0, bf16=2500.0,
                    fp8=5000.0, s8=5000.0),
        bandwidth_bytes_per_s=8000 * _G, l2_bytes=126 * _MIB,
        source="NVIDIA GB200 NVL72 datasheet, one seventy-second",
    ),
    DeviceSpec(
        name="RTX 5090", architecture="sm_120", tokens=_words("rtx 5090"),
        peaks=_tera(f64=1.64, f32=104.8, tf32=104.8, f16=209.5, bf16=209.5, fp8=419.0, s8=838.0),
        narrow_accumulator_peaks=_tera(f16=419.0, fp8=838.0),
        bandwidth_bytes_per_s=1792 * _G, l2_bytes=96 * _MIB,
        source="NVIDIA RTX Blackwell GPU architecture whitepaper, appendix A",
    ),
    DeviceSpec(
        name="MI210", architecture="gfx90a", tokens=_words("mi210"),
        peaks=_tera(f64=45.3, f32=45.3, f16=181.0, bf16=181.0, s8=181.0),
        bandwidth_bytes_per_s=1638.4 * _G, l2_bytes=8 * _MIB,
        source="AMD Instinct MI210 datasheet (matrix rates)",
    ),
    DeviceSpec(
        name="MI250X (one die)", architecture="gfx90a", tokens=_words("mi250x"),
        peaks=_tera(f64=47.9, f32=47.9, f16=191.5, bf16=191.5, s8=191.5),
        bandwidth_bytes_per_s=1638.4 * _G, l2_bytes=8 * _MIB,
        source="AMD Instinct MI250X datasheet (matrix rates), half of the module",
        note=_ONE_DIE,
    ),
    DeviceSpec(
        name="MI250 (one die)", architecture="gfx90a", tokens=_words("mi250"),
        peaks=_tera(f64=45.3, f32=45.3, f16=181.0, bf16=181.0, s8=181.0),
        bandwidth_bytes_per_s=1638.4 * _G, l2_bytes=8 * _MIB,
        source="AMD Instinct MI250 datasheet (matrix rates), half of the module",
        note=_ONE_DIE,
    ),
    DeviceSpec(
        name="MI300A", architecture="gfx942", tokens=_words("mi300a"),
        peaks=_tera(f64=122.6, f32=122.6, tf32=490.3, f16=980.6, bf16=980.6, fp8=1961.2, s8=1961.2),
        bandwidth_bytes_per_s=5300 * _G, l2_bytes=24 * _MIB, last_level_cache_bytes=256 * _MIB,
        source="AMD Instinct MI300A datasheet (matrix rates)",
    ),
    DeviceSpec(
        name="MI300X", architecture="gfx942", tokens=_words("mi300x"),
        peaks=_CDNA3, bandwidth_bytes_per_s=5300 * _G,
        l2_bytes=32 * _MIB, last_level_cache_bytes=256 * _MIB,
        source="AMD Instinct MI300X datasheet (matrix rates)",
    ),
    DeviceSpec(
        name="MI325X", architecture="gfx942", tokens=_words("mi325x"),
        peaks=_CDNA3, bandwidth_bytes_per_s=6000 * _G,
        l2_bytes=32 * _MIB, last_level_cache_bytes=256 * _MIB,
        source="AMD Instinct MI325X datasheet (matrix rates)",
    ),
    DeviceSpec(
        name="MI350X", architecture="gfx950", tokens=_words("mi350x"),
        peaks=_tera(f64=72.1, f32=144.2, f16=2306.9, bf16=2306.9, fp8=4613.7, s8=4613.7),
        bandwidth_bytes_per_s=8000 * _G, l2_bytes=32 * _MIB, last_level_cache_bytes=256 * _MIB,
        source="AMD Instinct MI350X datasheet (matrix rates)",
    ),
    DeviceSpec(
        name="MI355X", architecture="gfx950", tokens=_words("mi355x"),
        peaks=_tera(f64=78.6, f32=157.3, f16=2516.6, bf16=2516.6, fp8=5033.2, s8=5033.2),
        bandwidth_bytes_per_s=8000 * _G, l2_bytes=32 * _MIB, last_level_cache_bytes=256 * _MIB,
        source="AMD Instinct MI355X datasheet (matrix rates)",
    ),
)  # fmt: skip

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
    best: tuple[int, DeviceSpec] | None = None
    for spec in DEVICES:
        for tokens in spec.tokens:
            fits = tokens <= words and words - tokens <= _NEUTRAL_WORDS
            if fits and (best is None or len(tokens) > best[0]):
                best = (len(tokens), spec)
    return None if best is None else best[1]


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
