from __future__ import annotations

import pytest

from gemmetry.domain.operation import BF16, E4M3, F16, F32, F64, S8, TF32
from gemmetry.hardware.detect import CpuFacts
from gemmetry.hardware.roofline import core_peak, peak_flops_per_s

AVX2 = frozenset({"fma", "avx2"})
AVX512 = AVX2 | {"avx512f", "avx512_vnni"}


def _facts(vendor, family, model, flags, **changes):
    values = {"name": "x", "vendor": vendor, "family": family, "model": model, "flags": flags,
              "usable_cores": 2, "physical_cores": 2, "clock_hz": 2.6e9,
              "clock_source": "TSC; boost may exceed", **changes}  # fmt: skip
    return CpuFacts(**values)


@pytest.mark.parametrize(
    ("facts", "f32", "bf16", "s8"),
    [
        (_facts("AuthenticAMD", 0x1A, 0x02, AVX512 | {"avx512_bf16"}), 64, 128, 256),  # Turin
        (_facts("AuthenticAMD", 0x1A, 0x24, AVX512 | {"avx512_bf16"}), 32, 64, 128),  # Strix Point
        (_facts("AuthenticAMD", 0x19, 0x11, AVX512 | {"avx512_bf16"}), 32, 64, 128),  # Genoa
        (_facts("AuthenticAMD", 0x19, 0x01, AVX2), 32, 32, None),  # Milan
        (_facts("AuthenticAMD", 0x17, 0x01, AVX2), 16, 16, None),  # Naples
        (_facts("GenuineIntel", 6, 0x55, AVX512), 64, 64, 256),  # Cascade Lake-SP
        (
            _facts("GenuineIntel", 6, 0x8F, AVX512 | {"avx512_bf16", "amx_bf16", "amx_int8"}),
            64, 1024, 2048,
        ),  # Sapphire Rapids
        (_facts("GenuineIntel", 6, 0x8C, AVX512), 32, 32, 128),  # Tiger Lake
        (_facts("GenuineIntel", 6, 0x97, AVX2 | {"avx_vnni"}), 32, 32, 128),  # Alder Lake
        (
            _facts("", 0, 0, frozenset({"asimd", "bf16", "i8mm"}), arm_part=0xD40), 32, 128, 256,
        ),  # Neoverse V1
        (_facts("", 0, 0, frozenset({"asimd", "asimddp"}), arm_part=0xD0C), 16, None, 64),
    ],
)  # fmt: skip
def test_rates_of_known_families(facts, f32, bf16, s8):
    peak = core_peak(facts)
    assert peak is not None
    per_cycle = {name: rate for name, (rate, _) in peak.items()}
    assert per_cycle["f32"] == f32
    assert per_cycle["f64"] == f32 // 2
    assert per_cycle.get("bf16") == bf16
    assert per_cycle.get("s8") == s8


@pytest.mark.parametrize("facts", [
    _facts("GenuineIntel", 15, 2, frozenset({"sse2"})),
    _facts("AuthenticAMD", 0x10, 2, AVX2),
    _facts("AuthenticAMD", 0x19, 1, frozenset({"sse2"})),
    _facts("", 0, 0, frozenset(), arm_part=0xABC),
])  # fmt: skip
def test_an_unknown_family_has_no_peak(facts):
    assert core_peak(facts) is None
    assert peak_flops_per_s(facts, F32) is None


def test_the_source_says_how_the_peak_comes_about():
    facts = _facts("AuthenticAMD", 0x1A, 2, AVX512 | {"avx512_bf16"})
    peak, source = peak_flops_per_s(facts, F32)
    assert peak == 2 * 5.0e9 * 64
    assert source.startswith("2 cores × 5.00 GHz (upper bound: ")
    assert source.endswith(") × 64 FLOP/cycle f32 (AVX-512, 2 FMA; AMD Zen 5)")
    for dtype, part in (
        (BF16, "128 FLOP/cycle bf16 (AVX512-BF16"),
        (S8, "256 operations/cycle s8"),
        (F16, "converted to f32"),
        (TF32, "computed as f32"),
    ):
        assert part in peak_flops_per_s(facts, dtype)[1]


def test_threads_of_one_core_share_its_units_and_what_is_unknown_has_no_peak():
    milan = _facts("AuthenticAMD", 0x19, 1, AVX2, usable_cores=8, physical_cores=4)
    peak, source = peak_flops_per_s(milan, F64)
    assert peak == pytest.approx(4 * 4.1e9 * 16)
    assert source.startswith("4 cores ")
    assert peak_flops_per_s(milan, E4M3) is peak_flops_per_s(milan, S8) is None
    assert peak_flops_per_s(_facts("GenuineIntel", 19, 1, AVX512, clock_hz=None), F32) is None
