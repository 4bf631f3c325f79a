from __future__ import annotations

from dataclasses import replace

import pytest

from gemmetry.domain.dispatch import Target, TargetKind, parse_operation
from gemmetry.domain.record import Trait
from gemmetry.hardware import roofline as module
from gemmetry.hardware.detect import CpuFacts
from gemmetry.hardware.roofline import CPU_MARGIN, GPU_MARGIN, SpeedLimit, speed_limit

H200 = Target(TargetKind.CUDA, "sm_90", 0, "NVIDIA H200")
CPU = Target(TargetKind.CPU)
ZEN5 = CpuFacts(
    name="x", vendor="AuthenticAMD", family=0x1A, model=2, usable_cores=2, physical_cores=2,
    clock_hz=2.5e9, clock_source="TSC; boost may exceed", flags=frozenset({"fma", "avx512f"}),
)  # fmt: skip


def limit_of(target, operands, *declared):
    found = speed_limit(target, parse_operation(f"matmul_4096x4096x4096_{operands}"), declared)
    assert isinstance(found, SpeedLimit), found
    return found


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
    found = limit_of(H200, operands, *declared)
    assert found.flops_per_s == pytest.approx(GPU_MARGIN * teraflops * 1e12, rel=1e-12)
    assert "H200" in found.source
    assert GPU_MARGIN > 1980 / 1830, "the highest clock of an H200"


def test_a_processor_of_a_known_family_has_a_limit(monkeypatch):
    monkeypatch.setattr(module, "cpu_facts", lambda: ZEN5)
    found = limit_of(CPU, "f32t_f32t_f32t")
    assert found.flops_per_s == CPU_MARGIN * ZEN5.physical_cores * 5.0e9 * 64
    assert "5.00 GHz" in found.source
    stranger = replace(ZEN5, vendor="Nobody", family=1)
    monkeypatch.setattr(module, "cpu_facts", lambda: stranger)
    assert "processor" in speed_limit(CPU, parse_operation("matmul_8x8x8_f32t_f32t_f32t"))


F32 = "matmul_64x64x64_f32t_f32t_f32t"


@pytest.mark.parametrize(("target", "name", "declared", "why"), [
    (H200, "conv2d_1x58x58x64_3x3x128_stride1x1_pad0x0_f32nhwc_f32hwcf_f32nhwc", (), "Winograd"),
    (H200, F32, (Trait.NORMWISE,), "Winograd"),
    (Target(TargetKind.CUDA, "sm_90", 0, "NVIDIA H200 Laptop"), F32, (), "no data sheet"),
    (Target(TargetKind.NULL), F32, (), "no data sheet"),
    (Target(TargetKind.CUDA, "sm_70", 0, "Tesla V100-SXM2-16GB"),
     "matmul_64x64x64_bf16t_bf16t_bf16t", (), "bf16"),
])  # fmt: skip
def test_where_nothing_is_certain_there_is_no_limit(target, name, declared, why):
    assert why in speed_limit(target, parse_operation(name), declared)
