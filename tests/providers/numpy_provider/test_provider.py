from __future__ import annotations

import numpy as np
import pytest

from gemmetry.domain.dispatch import Configuration, Dispatch, Target, TargetKind, parse_operation
from gemmetry.domain.errors import RequestError
from gemmetry.hardware.host_device import blas_threads, set_blas_threads
from gemmetry.providers.numpy_provider.provider import NumpyProvider, _launch_on_ones
from gemmetry.testing import EVERY_KIND, ProviderConformance

CPU = Target(TargetKind.CPU)


class TestConformance(ProviderConformance):
    """Layouts, formats, factors and epilogues; every kind at a higher level: test_testing.py."""

    provider_class = NumpyProvider
    operations = (
        *(f"matmul_37x29x41_f32{a}_f32{b}_f32{c}" for a in "tn" for b in "tn" for c in "tn"),
        *(
            f"matmul_37x29x41_{formats}"
            for formats in (
                "f64n_f64n_f64n_alpha0p5_betam2_bias_gelu_residual", "f32t_f32t_f32n_bias_relu",
                "f32t_f32t_f32t_accf64", "f16t_f16n_f16t_residual_relu", "f16t_f16n_f32t",
                "bf16n_bf16t_bf16n_beta1", "e4m3t_e5m2n_bf16t_scaletensor",
                "e4m3fnuzt_e4m3fnuzn_f32n_scalerow_alpha2", "s8n_s8t_s32n_beta1_bias_relu_residual",
            )
        ),
        "batch_matmul_3x17x5x19_bf16t_bf16n_bf16t_scalerow_bias",
        "matmul_splitk_16x8x60_f16t_f16t_f16t_slices4_bias",
        "conv2d_1x8x8x16_1x1x4_stride1x1_pad0x0_f16nhwc_f16hwcf_f16nhwc_bias_relu",
    )  # fmt: skip
    refused = ("matmul_8x8x8_s32t_s32t_s32t",)
    level = "quick"


@pytest.mark.parametrize(("m", "k", "expected"), [(4, 1024, 1024 * 2**14), (1, 2**18, 0)])
def test_extreme_integers_are_exact_and_s32_sums_wrap_around(launch, m, k, expected):
    """2^18 products of 2^14 are 2^32, which is 0 in 32 bits."""
    low, name = np.full((m, k), -128, np.int8), f"matmul_{m}x{m}x{k}_s8t_s8t_s32t"
    launched = launch(NumpyProvider(), name, "default", CPU, inputs=(low, low.T.copy()))
    assert (launched.host_result == expected).all()


def test_nan_passes_through_relu(launch):
    name = "matmul_2x2x2_f32t_f32t_f32t_bias_relu"
    inputs = (np.full((2, 2), np.nan, "f"), np.ones((2, 2), "f"), np.zeros(2, "f"))
    launched = launch(NumpyProvider(), name, "default", CPU, inputs=inputs)
    assert np.isnan(launched.host_result).all()


def test_notes_say_what_a_launch_includes(build):
    cases = {
        "matmul_8x8x8_f32t_f32t_f32t": "",
        "matmul_8x8x8_f16t_f16t_f16t": "converted to float32",
        "matmul_8x8x8_s8t_s8t_s32t": "exact",
        "matmul_splitk_8x8x8_f32t_f32t_f32t_slices2": "2 products",
        "conv2d_1x8x8x4_3x3x4_stride1x1_pad0x0_f32nhwc_f32hwcf_f32nhwc": "im2col",
    }
    for name, words in cases.items():
        notes = build(NumpyProvider(), name, "default", CPU).facts.notes
        assert words in " ".join(notes)
        assert bool(notes) == bool(words)


def test_threads_option_sets_the_blas_and_larger_products_are_predicted():
    before = blas_threads()
    if before is None:
        pytest.skip("this BLAS does not report its number of threads")

    def predicted(size: int, threads: int) -> float | None:
        operation = parse_operation(f"matmul_{size}x{size}x{size}_f32t_f32t_f32t")
        dispatch = Dispatch(operation, Configuration(), "numpy", CPU)
        return NumpyProvider({"threads": threads}).seconds_per_launch(dispatch)

    try:
        assert set_blas_threads(2)
        assert predicted(64, threads=1) is None, "it is no larger than a probe"
        assert blas_threads() == 1
        assert predicted(300, threads=0) > 0
        assert blas_threads() == 1
    finally:
        set_blas_threads(before)


@pytest.mark.parametrize("threads", [-1, "two", True, 1.5])
def test_bad_thread_counts_are_refused(build, threads):
    with pytest.raises(RequestError, match="threads must be a number"):
        build(NumpyProvider({"threads": threads}), "matmul_8x8x8_f32t_f32t_f32t", "default", CPU)


@pytest.mark.parametrize("name", EVERY_KIND[::3])
def test_every_kind_can_be_probed(name):
    result = np.asarray(_launch_on_ones(parse_operation(name))(), dtype=np.float64)
    assert np.isfinite(result).all()
    assert result.any(), "products of ones are no zeros"
