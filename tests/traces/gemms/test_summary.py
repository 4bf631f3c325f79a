from __future__ import annotations

import statistics

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gemmetry.hardware.devices import find_device
from gemmetry.statistics.intervals import quantile
from gemmetry.traces.gemms import Gemms, peak_flops_per_s, quantile_of_sorted, row_major_layout

NVJET = "nvjet_sm90_tst_192x192_64x3_2x1_v_bz_coopB_NNN"
SGEMM = "volta_sgemm_64x64_tn"
S1688 = "cutlass_80_tensorop_s1688gemm_64x64_32x4_nn_align4"
SPLIT = "void cublasLt::splitKreduce_kernel<32, 16, int, float, float, float>(float*)"
NCCL = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
SHAPES = [[64, 32], [32, 16]]
FLOPS = 2 * 64 * 16 * 32


def add(made, number, at, lasts, *, kernel=NVJET, shapes=SHAPES, dtype="c10::BFloat16", **args):
    dtypes = [dtype] * len(shapes)
    made.operator(args.pop("operator", "aten::mm"), at, 50, shapes=shapes, dtypes=dtypes)
    made.call(number, at + 10)
    made.kernel(kernel, at + 100_000, lasts, correlation=number, **args)


def test_one_row_per_kernel_and_shape(recording):
    made = recording()
    times = [130, 100, 160, 110, 1000]
    for number, lasts in enumerate(times, 1):
        add(made, number, number * 2000, lasts)
    add(made, 90, 90_000, 5000, shapes=[[8, 8], [8, 8]])
    add(made, 91, 95_000, 10, kernel=S1688)
    first, second, third = Gemms([made.trace()]).rows()
    assert [first.sum_ns, second.sum_ns, third.sum_ns] == [5000, 1500, 10]
    assert second.shape is not None
    assert second.shape[:4] == (64, 16, 32, 1)
    assert (second.count, second.linked, second.inferred) == (5, 5, 0)
    assert (second.min_ns, second.max_ns) == (100, 1000)
    assert second.median_ns == statistics.median(times)
    assert second.p5_ns == quantile(times, 0.05)
    assert second.p95_ns == quantile(times, 0.95)
    assert second.mad_ns == statistics.median(abs(t - 130) for t in times)
    assert second.facts.tile == (192, 192, 64)
    assert second.names == ("aten::mm",)
    assert second.dtype == "bf16"


def test_speed_and_share_of_the_peak(recording):
    made = recording()
    add(made, 1, 2000, 130)
    (row,) = Gemms([made.trace()]).rows()
    assert row.tflops == pytest.approx(FLOPS / 130e-9 / 1e12)
    peak = find_device("NVIDIA H200").peaks["bf16"]
    assert row.peak_fraction == pytest.approx(FLOPS / 130e-9 / peak)


@pytest.mark.parametrize("devices", [[], [{"id": 0, "name": "Some GPU"}]])
def test_no_share_of_an_unknown_peak(recording, devices):
    made = recording(deviceProperties=devices)
    add(made, 1, 2000, 130)
    (row,) = Gemms([made.trace()]).rows()
    assert row.tflops is not None
    assert row.peak_fraction is None
    assert row.device == (devices[0]["name"] if devices else None)


def test_f32_is_tf32_where_the_kernels_name_says_so(recording):
    made = recording()
    add(made, 1, 2000, 130, kernel=S1688, dtype="float")
    (row,) = Gemms([made.trace()]).rows()
    assert row.dtype == "tf32"
    assert row.peak_fraction == pytest.approx(row.tflops * 1e12 / 494.7e12)


def test_f32_may_be_tf32_where_the_name_says_nothing(recording):
    made = recording()
    add(made, 1, 2000, 130, kernel="my_gemm_kernel", dtype="float")
    (row,) = Gemms([made.trace()]).rows()
    assert row.dtype == "f32"
    assert row.peak_fraction is None


def test_helper_passes_have_no_speed_of_their_own(recording):
    made = recording()
    add(made, 1, 2000, 130)
    made.call(2, 2020)
    made.kernel(SPLIT, 104_000, 40, correlation=2)
    main, helper = Gemms([made.trace()]).rows()
    assert main.tflops is not None
    assert helper.shape == main.shape
    assert helper.tflops is None
    assert helper.peak_fraction is None


def test_time_that_overlaps_communication(recording):
    made = recording()
    add(made, 1, 0, 1000)
    add(made, 2, 2000, 1000)
    add(made, 3, 4000, 1000)
    # Until 600 ns into the second one; two kernels at once count once.
    made.kernel(NCCL, 101_500, 1100, stream=9)
    made.kernel(NCCL, 102_100, 200, stream=10)
    (row,) = Gemms([made.trace()]).rows()
    assert (row.overlapped, row.overlapped_ns) == (1, 600)


def test_unknown_shapes_keep_their_time(recording):
    made = recording()
    made.kernel(SGEMM, 100, 7)
    made.kernel(SGEMM, 200, 9)
    add(made, 1, 2000, 130)
    unknown = Gemms([made.trace()]).rows()[1]
    assert unknown.shape is None
    assert (unknown.count, unknown.linked, unknown.sum_ns) == (2, 0, 16)
    assert (unknown.dtype, unknown.layout, unknown.tflops) == ("f32", "tn", None)


def test_several_traces_are_one_table(recording):
    traces = []
    for name in ("a", "b"):
        made = recording()
        add(made, 1, 2000, 130)
        made.kernel(NVJET, 500_000, 170, correlation=7)
        traces.append(made.trace(name))
    other = recording(deviceProperties=[{"id": 0, "name": "NVIDIA A100-SXM4-80GB"}])
    add(other, 1, 2000, 50)
    both, alone = Gemms([*traces, other.trace()]).rows()
    assert (both.count, both.linked, both.inferred, both.sum_ns) == (4, 2, 2, 600)
    assert (alone.device, alone.sum_ns) == ("NVIDIA A100-SXM4-80GB", 50)


def test_devices_of_one_product_need_no_number(recording):
    made = recording(deviceProperties=[{"id": i, "name": "NVIDIA H200"} for i in range(2)])
    add(made, 1, 2000, 130, device=9)
    assert Gemms([made.trace()]).rows()[0].device == "NVIDIA H200"
    names = [{"id": 0, "name": "NVIDIA H200"}, {"id": 1, "name": "Tesla T4"}]
    made = recording(deviceProperties=names)
    add(made, 1, 2000, 130, device=9)
    assert Gemms([made.trace()]).rows()[0].device is None


def test_no_time_no_speed(recording):
    made = recording()
    add(made, 1, 2000, 0)
    (row,) = Gemms([made.trace()]).rows()
    assert (row.median_ns, row.tflops) == (0, None)


def test_letters_of_a_blas_are_those_of_the_transposed_product():
    # torch's linear: y = x · Wᵀ with W as (n, k) rows, for which cuBLAS runs its TN kernels.
    assert row_major_layout("tn") == "tn"
    assert row_major_layout("nn") == "tt"
    assert row_major_layout("nt") == "nt"
    assert row_major_layout("tt") == "nn"
    assert row_major_layout("nhwc") is None


def test_peaks_are_found_by_product_and_format():
    assert peak_flops_per_s("NVIDIA H200", "e4m3") == 1978.9e12
    assert peak_flops_per_s("NVIDIA H200", "e2m1") is None
    assert peak_flops_per_s("NVIDIA H200", None) is None
    assert peak_flops_per_s("", "bf16") is None


@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=50), st.floats(0, 1))
@settings(deadline=None, max_examples=100)
def test_quantiles_are_those_of_the_statistics(samples, share):
    found = quantile_of_sorted(np.sort(np.array(samples)), share)
    assert found == pytest.approx(quantile(samples, share), rel=1e-12, abs=1e-9)
