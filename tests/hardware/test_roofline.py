from __future__ import annotations

import dataclasses
import itertools

import pytest

from gemmetry.domain.dispatch import Target, TargetKind, split_dispatch_name
from gemmetry.hardware import roofline as module
from gemmetry.hardware.detect import CpuFacts
from gemmetry.hardware.roofline import device_of, roofline

H200 = Target(TargetKind.CUDA, "sm_90", 0, "NVIDIA H200")
ZEN5 = CpuFacts(
    name="x", vendor="AuthenticAMD", family=0x1A, model=2, usable_cores=2, physical_cores=2,
    clock_hz=2.5e9, clock_source="TSC; boost may exceed",
    flags=frozenset({"fma", "avx512f", "avx512_bf16"}),
)  # fmt: skip


def _operation(name):
    return split_dispatch_name(name)[0]


def test_a_large_product_is_bound_by_compute_and_a_thin_one_by_memory():
    found = roofline(H200, _operation("matmul_8192x8192x8192_bf16t_bf16t_bf16t"))
    assert found.attainable_flops_per_s == found.peak_flops_per_s == 989.4e12
    assert found.peak_bytes_per_s == 4.8e12
    assert "H200" in found.source
    operation = _operation("matmul_1x8192x8192_bf16t_bf16t_bf16t")
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
    found = roofline(H200, _operation(f"matmul_4096x4096x4096_{operands}"))
    assert found.peak_flops_per_s == teraflops * 1e12


def test_boards_that_halve_the_f32_accumulator_have_two_rates():
    target = Target(TargetKind.CUDA, "sm_89", 0, "NVIDIA GeForce RTX 4090")
    wide = roofline(target, _operation("matmul_4096x4096x4096_f16t_f16t_f16t"))
    narrow = roofline(target, _operation("matmul_4096x4096x4096_f16t_f16t_f16t_accf16"))
    assert narrow.peak_flops_per_s == pytest.approx(2 * wide.peak_flops_per_s, rel=0.01)


@pytest.mark.parametrize("target", [
    Target(TargetKind.CUDA, "sm_90", 0, "NVIDIA H900"),
    Target(TargetKind.CUDA, "sm_90", None),  # several products
    Target(TargetKind.NULL),
    Target(TargetKind.CUDA, "sm_70", 0, "Tesla V100-SXM2-16GB"),
    Target(TargetKind.CPU),
])  # fmt: skip
def test_no_roofline_rather_than_that_of_something_else(monkeypatch, target):
    monkeypatch.setattr(module, "_facts", lambda: CpuFacts(name="x"))
    assert roofline(target, _operation("matmul_64x64x64_bf16t_bf16t_bf16t")) is None
    assert device_of(Target(TargetKind.CUDA, "sm_75", None)).name == "T4", "the only product"


def test_cpu_without_and_with_measured_bandwidth_and_with_a_cache_that_is_large(monkeypatch):
    cpu, operation = Target(TargetKind.CPU), _operation("matmul_1x4096x4096_f32t_f32t_f32t")
    of_memory = operation.flops / operation.bytes * 40e9
    peak = 2 * 5.0e9 * 64
    for bandwidth, caches, attainable, source in (
        (None, 0, peak, "memory bandwidth was not measured"),
        (40e9, 0, of_memory, "; 40.0 GB/s by a numpy triad on this machine"),
        (40e9, 1, of_memory, "; 40.0 GB/s"),
        (40e9, 3, peak, "fit into the last-level cache (101 MB)"),
    ):
        facts = dataclasses.replace(ZEN5, last_level_caches=(32 * 2**20,) * caches)
        monkeypatch.setattr(module, "_facts", lambda facts=facts: facts)
        found = roofline(cpu, operation, host_bytes_per_s=bandwidth)
        assert found.attainable_flops_per_s == attainable
        assert found.peak_flops_per_s == peak
        assert found.peak_bytes_per_s == (bandwidth if attainable == of_memory else None)
        assert source in found.source


@pytest.fixture
def _fresh():
    module.measure_host_bandwidth.cache_clear()
    yield
    module.measure_host_bandwidth.cache_clear()


@pytest.mark.usefixtures("_fresh")
def test_a_triad_moves_six_arrays_and_is_measured_once(monkeypatch):
    workers, clock = module.cpu_facts().physical_cores, itertools.count(0.0, 0.5)
    monkeypatch.setattr(module, "_MIN_BYTES", 2**20)
    monkeypatch.setattr(module, "_MAX_BYTES", 2**20)
    monkeypatch.setattr(module.time, "perf_counter", lambda: next(clock))
    expected = 6 * 8 * (2**20 // 8 // workers) * workers / 0.5
    assert module.measure_host_bandwidth() == expected
    monkeypatch.setattr(module, "_triad", lambda _arrays: pytest.fail("measured again"))
    assert module.measure_host_bandwidth() == expected


@pytest.mark.usefixtures("_fresh")
def test_too_little_memory_gives_no_bandwidth(monkeypatch):
    monkeypatch.setattr(module, "total_memory_bytes", lambda: 2**20)
    assert module.measure_host_bandwidth() is None
