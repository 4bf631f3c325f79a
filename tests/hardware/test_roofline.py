from __future__ import annotations

import dataclasses
import itertools
from functools import lru_cache

import pytest

from gemmetry.domain.dispatch import Target, TargetKind, parse_operation
from gemmetry.domain.operation import BF16, E4M3, F16, F32, F64, S8, TF32
from gemmetry.domain.record import Trait
from gemmetry.hardware import roofline as module
from gemmetry.hardware.detect import CpuFacts
from gemmetry.hardware.roofline import (
    CPU_MARGIN,
    GPU_MARGIN,
    SpeedLimit,
    core_peak,
    device_of,
    peak_flops_per_s,
    roofline,
    speed_limit,
)

AVX2 = frozenset({"fma", "avx2"})
AVX512 = AVX2 | {"avx512f", "avx512_vnni"}


def _facts(vendor, family, model, flags=frozenset(), **changes):
    return CpuFacts(**{
        "name": "x", "vendor": vendor, "family": family, "model": model, "flags": flags,
        "usable_cores": 2, "physical_cores": 2, "clock_hz": 2.6e9,
        "clock_source": "TSC; boost may exceed", **changes,
    })  # fmt: skip


ZEN5 = _facts("AuthenticAMD", 0x1A, 0x02, AVX512 | {"avx512_bf16"})  # Turin
ZEN5_F32 = 2 * 5.0e9 * 64
CPU = Target(TargetKind.CPU)
H200 = Target(TargetKind.CUDA, "sm_90", 0, "NVIDIA H200")
V100 = Target(TargetKind.CUDA, "sm_70", 0, "Tesla V100-SXM2-16GB")


@pytest.mark.parametrize(("facts", "f32", "bf16", "s8"), [
    (ZEN5, 64, 128, 256),
    (_facts("AuthenticAMD", 0x1A, 0x24, AVX512 | {"avx512_bf16"}), 32, 64, 128),  # Strix Point
    (_facts("AuthenticAMD", 0x19, 0x11, AVX512 | {"avx512_bf16"}), 32, 64, 128),  # Genoa
    (_facts("AuthenticAMD", 0x19, 0x01, AVX2), 32, 32, None),  # Milan
    (_facts("AuthenticAMD", 0x17, 0x01, AVX2), 16, 16, None),  # Naples
    (_facts("GenuineIntel", 6, 0x55, AVX512), 64, 64, 256),  # Cascade Lake-SP
    (_facts("GenuineIntel", 6, 0x8F, AVX512 | {"avx512_bf16", "amx_bf16", "amx_int8"}),
     64, 1024, 2048),  # Sapphire Rapids
    (_facts("GenuineIntel", 6, 0x8C, AVX512), 32, 32, 128),  # Tiger Lake
    (_facts("GenuineIntel", 6, 0x97, AVX2 | {"avx_vnni"}), 32, 32, 128),  # Alder Lake
    (_facts("", 0, 0, {"asimd", "bf16", "i8mm"}, arm_part=0xD40), 32, 128, 256),  # Neoverse V1
    (_facts("", 0, 0, {"asimd", "asimddp"}, arm_part=0xD0C), 16, None, 64),
])  # fmt: skip
def test_rates_of_known_families(facts, f32, bf16, s8):
    per_cycle = {name: rate for name, (rate, _) in core_peak(facts).items()}
    assert (per_cycle["f32"], per_cycle["f64"]) == (f32, f32 // 2)
    assert (per_cycle.get("bf16"), per_cycle.get("s8")) == (bf16, s8)


MILAN = _facts("AuthenticAMD", 0x19, 1, AVX2, usable_cores=8, physical_cores=4)


@pytest.mark.parametrize(("facts", "dtype"), [
    (_facts("GenuineIntel", 15, 2, {"sse2"}), F32),
    (_facts("AuthenticAMD", 0x10, 2, AVX2), F32),
    (_facts("AuthenticAMD", 0x19, 1, {"sse2"}), F32),
    (_facts("", 0, 0, arm_part=0xABC), F32),
    (_facts("GenuineIntel", 19, 1, AVX512, clock_hz=None), F32), (MILAN, E4M3), (MILAN, S8),
])  # fmt: skip
def test_what_is_unknown_has_no_peak(facts, dtype):
    assert peak_flops_per_s(facts, dtype) is None


def test_the_source_says_how_the_peak_comes_about():
    peak, source = peak_flops_per_s(ZEN5, F32)
    assert peak == ZEN5_F32
    assert source.startswith("2 cores × 5.00 GHz (upper bound: ")
    assert source.endswith(") × 64 FLOP/cycle f32 (AVX-512, 2 FMA; AMD Zen 5)")
    for dtype, part in (
        (BF16, "128 FLOP/cycle bf16 (AVX512-BF16"),
        (S8, "256 operations/cycle s8"),
        (F16, "converted to f32"),
        (TF32, "computed as f32"),
    ):
        assert part in peak_flops_per_s(ZEN5, dtype)[1]
    peak, source = peak_flops_per_s(MILAN, F64)
    assert peak == pytest.approx(4 * 4.1e9 * 16)
    assert source.startswith("4 cores "), "threads of one core share its units"


def test_a_large_product_is_bound_by_compute_and_a_thin_one_by_memory():
    found = roofline(H200, parse_operation("matmul_8192x8192x8192_bf16t_bf16t_bf16t"))
    assert found.attainable_flops_per_s == found.peak_flops_per_s == 989.4e12
    assert found.peak_bytes_per_s == 4.8e12
    assert "H200" in found.source
    operation = parse_operation("matmul_1x8192x8192_bf16t_bf16t_bf16t")
    found = roofline(H200, operation)
    assert found.attainable_flops_per_s == pytest.approx(
        operation.flops / operation.bytes * 4.8e12, rel=1e-12
    )
    assert found.attainable_flops_per_s < 0.01 * found.peak_flops_per_s


@pytest.mark.parametrize(("operands", "teraflops"), [
    ("f64t_f64t_f64t", 66.9),
    ("f32t_f32t_f32t", 66.9),
    ("tf32t_tf32t_f32t", 494.7),
    ("e4m3t_e5m2n_bf16t", 1978.9),
    ("s8t_s8t_s32t", 1978.9),
    ("f16t_f32t_f32t", 66.9),  # the wider input decides
    ("f32t_f32t_f32t_accf64", 66.9),
])  # fmt: skip
def test_each_format_has_its_rate(operands, teraflops):
    found = roofline(H200, parse_operation(f"matmul_4096x4096x4096_{operands}"))
    assert found.peak_flops_per_s == teraflops * 1e12


def test_boards_that_halve_the_f32_accumulator_have_two_rates():
    target = Target(TargetKind.CUDA, "sm_89", 0, "NVIDIA GeForce RTX 4090")
    wide = roofline(target, parse_operation("matmul_4096x4096x4096_f16t_f16t_f16t"))
    narrow = roofline(target, parse_operation("matmul_4096x4096x4096_f16t_f16t_f16t_accf16"))
    assert narrow.peak_flops_per_s == pytest.approx(2 * wide.peak_flops_per_s, rel=0.01)


@pytest.mark.parametrize("target", [
    Target(TargetKind.CUDA, "sm_90", 0, "NVIDIA H900"),
    Target(TargetKind.CUDA, "sm_90", None),  # several products
    Target(TargetKind.NULL), V100, CPU,
])  # fmt: skip
def test_no_roofline_rather_than_that_of_something_else(monkeypatch, target):
    monkeypatch.setattr(module, "_facts", lambda: CpuFacts(name="x"))
    assert roofline(target, parse_operation("matmul_64x64x64_bf16t_bf16t_bf16t")) is None
    assert device_of(Target(TargetKind.CUDA, "sm_75", None)).name == "T4", "the only product"


def test_cpu_without_and_with_measured_bandwidth_and_with_a_cache_that_is_large(monkeypatch):
    operation = parse_operation("matmul_1x4096x4096_f32t_f32t_f32t")
    of_memory = operation.flops / operation.bytes * 40e9
    for bandwidth, caches, attainable, source in (
        (None, 0, ZEN5_F32, "memory bandwidth was not measured"),
        (40e9, 0, of_memory, "; 40.0 GB/s by a numpy triad on this machine"),
        (40e9, 1, of_memory, "; 40.0 GB/s"),
        (40e9, 3, ZEN5_F32, "fit into the last-level cache (101 MB)"),
    ):
        facts = dataclasses.replace(ZEN5, last_level_caches=(32 * 2**20,) * caches)
        monkeypatch.setattr(module, "_facts", lambda facts=facts: facts)
        found = roofline(CPU, operation, host_bytes_per_s=bandwidth)
        assert found.attainable_flops_per_s == attainable
        assert found.peak_flops_per_s == ZEN5_F32
        assert found.peak_bytes_per_s == (bandwidth if attainable == of_memory else None)
        assert source in found.source


def test_a_triad_moves_six_arrays_and_is_measured_once_where_memory_suffices(monkeypatch):
    measure = lru_cache(module.measure_host_bandwidth.__wrapped__)
    workers, clock = module.cpu_facts().physical_cores, itertools.count(0.0, 0.5)
    monkeypatch.setattr(module, "_MIN_BYTES", 2**20)
    monkeypatch.setattr(module, "_MAX_BYTES", 2**20)
    monkeypatch.setattr(module.time, "perf_counter", lambda: next(clock))
    expected = 6 * 8 * (2**20 // 8 // workers) * workers / 0.5
    assert measure() == expected
    monkeypatch.setattr(module, "_triad", lambda _arrays: pytest.fail("measured again"))
    assert measure() == expected
    monkeypatch.setattr(module, "total_memory_bytes", lambda: 2**20)
    assert module.measure_host_bandwidth.__wrapped__() is None


@pytest.mark.parametrize(("operands", "declared", "teraflops"), [
    ("bf16t_bf16t_bf16t", (), 989.4),
    ("e4m3t_e4m3n_bf16t", (), 1978.9),
    ("e4m3fnuzt_e4m3fnuzn_bf16t", (), 1978.9),
    ("s8t_s8t_s32t", (), 1978.9),
    # Speeds that narrower formats could reach are not called impossible.
    ("f32t_f32t_f32t", (), 989.4 / 3),
    ("f32t_f32t_f32t", (Trait.TF32,), 989.4),
    ("tf32t_tf32t_f32t", (), 989.4),
    ("f64t_f64t_f64t", (), 1978.9 / 28),
])  # fmt: skip
def test_the_limit_is_the_data_sheets_peak_times_a_margin(operands, declared, teraflops):
    operation = parse_operation(f"matmul_4096x4096x4096_{operands}")
    found = speed_limit(H200, operation, declared)
    assert isinstance(found, SpeedLimit), found
    assert found.flops_per_s == pytest.approx(GPU_MARGIN * teraflops * 1e12, rel=1e-12)
    assert "H200" in found.source
    assert GPU_MARGIN > 1980 / 1830, "the highest clock of an H200"


def test_a_processor_of_a_known_family_has_a_limit(monkeypatch):
    operation = parse_operation("matmul_4096x4096x4096_f32t_f32t_f32t")
    monkeypatch.setattr(module, "cpu_facts", lambda: ZEN5)
    found = speed_limit(CPU, operation, ())
    assert found.flops_per_s == CPU_MARGIN * ZEN5_F32
    assert "5.00 GHz" in found.source
    stranger = dataclasses.replace(ZEN5, vendor="Nobody", family=1)
    monkeypatch.setattr(module, "cpu_facts", lambda: stranger)
    assert "processor" in speed_limit(CPU, operation)


PRODUCT = "matmul_64x64x64_f32t_f32t_f32t"


@pytest.mark.parametrize(("target", "name", "declared", "why"), [
    (H200, "conv2d_1x58x58x64_3x3x128_stride1x1_pad0x0_f32nhwc_f32hwcf_f32nhwc", (), "Winograd"),
    (H200, PRODUCT, (Trait.NORMWISE,), "Winograd"),
    (Target(TargetKind.CUDA, "sm_90", 0, "NVIDIA H200 Laptop"), PRODUCT, (), "no data sheet"),
    (Target(TargetKind.NULL), PRODUCT, (), "no data sheet"),
    (V100,
     "matmul_64x64x64_bf16t_bf16t_bf16t", (), "bf16"),
])  # fmt: skip
def test_where_nothing_is_certain_there_is_no_limit(target, name, declared, why):
    assert why in speed_limit(target, parse_operation(name), declared)
