from __future__ import annotations

import dataclasses

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


def test_a_large_product_is_bound_by_compute():
    found = roofline(H200, _operation("matmul_8192x8192x8192_bf16t_bf16t_bf16t"))
    assert found is not None
    assert found.attainable_flops_per_s == found.peak_flops_per_s == 989.4e12
    assert found.peak_bytes_per_s == 4.8e12
    assert "H200" in found.source


def test_a_thin_product_is_bound_by_memory():
    operation = _operation("matmul_1x8192x8192_bf16t_bf16t_bf16t")
    found = roofline(H200, operation)
    assert found is not None
    assert found.attainable_flops_per_s == pytest.approx(
        operation.flops / operation.bytes * 4.8e12, rel=1e-12
    )
    assert found.attainable_flops_per_s < 0.01 * found.peak_flops_per_s


@pytest.mark.parametrize(
    ("operands", "teraflops"),
    [
        ("f64t_f64t_f64t", 66.9),
        ("f32t_f32t_f32t", 66.9),
        ("tf32t_tf32t_f32t", 494.7),
        ("e4m3t_e5m2n_bf16t", 1978.9),
        ("s8t_s8t_s32t", 1978.9),
        ("f16t_f32t_f32t", 66.9),  # the wider input decides
        ("f32t_f32t_f32t_accf64", 66.9),
    ],
)
def test_each_format_has_its_rate(operands, teraflops):
    found = roofline(H200, _operation(f"matmul_4096x4096x4096_{operands}"))
    assert found is not None
    assert found.peak_flops_per_s == teraflops * 1e12


def test_boards_that_halve_the_f32_accumulator_have_two_rates():
    target = Target(TargetKind.CUDA, "sm_89", 0, "NVIDIA GeForce RTX 4090")
    wide = roofline(target, _operation("matmul_4096x4096x4096_f16t_f16t_f16t"))
    narrow = roofline(target, _operation("matmul_4096x4096x4096_f16t_f16t_f16t_accf16"))
    assert wide is not None
    assert narrow is not None
    assert narrow.peak_flops_per_s == pytest.approx(2 * wide.peak_flops_per_s, rel=0.01)


def test_no_roofline_rather_than_that_of_something_else():
    operation = _operation("matmul_64x64x64_f16t_f16t_f16t")
    assert roofline(Target(TargetKind.CUDA, "sm_90", 0, "NVIDIA H900"), operation) is None
    assert roofline(Target(TargetKind.CUDA, "sm_90", None), operation) is None, "several products"
    assert roofline(Target(TargetKind.NULL), operation) is None
    v100 = Target(TargetKind.CUDA, "sm_70", 0, "Tesla V100-SXM2-16GB")
    assert roofline(v100, _operation("matmul_64x64x64_bf16t_bf16t_bf16t")) is None


def test_an_architecture_with_one_product_is_enough():
    found = device_of(Target(TargetKind.CUDA, "sm_75", None))
    assert found is not None
    assert found.name == "T4"


def test_cpu_without_and_with_measured_bandwidth(monkeypatch):
    monkeypatch.setattr(module, "_facts", lambda: ZEN5)
    cpu, operation = Target(TargetKind.CPU), _operation("matmul_1x4096x4096_f32t_f32t_f32t")
    plain = roofline(cpu, operation)
    assert plain is not None
    assert plain.attainable_flops_per_s == plain.peak_flops_per_s == 2 * 5.0e9 * 64
    assert plain.peak_bytes_per_s is None
    assert "memory bandwidth was not measured" in plain.source
    measured = roofline(cpu, operation, host_bytes_per_s=40e9)
    assert measured is not None
    assert measured.attainable_flops_per_s == operation.flops / operation.bytes * 40e9
    assert measured.source.endswith("; 40.0 GB/s by a numpy triad on this machine")


def test_memory_does_not_bound_what_fits_into_the_cache(monkeypatch):
    cpu, operation = Target(TargetKind.CPU), _operation("matmul_1x4096x4096_f32t_f32t_f32t")
    for caches, fits in ((1, False), (3, True)):
        facts = dataclasses.replace(ZEN5, last_level_caches=(32 * 2**20,) * caches)
        monkeypatch.setattr(module, "_facts", lambda facts=facts: facts)
        found = roofline(cpu, operation, host_bytes_per_s=40e9)
        assert found is not None
        assert (found.attainable_flops_per_s == found.peak_flops_per_s) is fits
        assert ("fit into the last-level cache (101 MB)" in found.source) is fits


def test_cpu_of_unknown_peak_has_no_roofline(monkeypatch):
    monkeypatch.setattr(module, "_facts", lambda: CpuFacts(name="x"))
    operation = _operation("matmul_64x64x64_f32t_f32t_f32t")
    assert roofline(Target(TargetKind.CPU), operation) is None
