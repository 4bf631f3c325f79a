"""Blocks with scale factors on a GPU: torch's ``_scaled_mm`` and our Triton kernel.

By hand, on an H200: ``pytest -m gpu tests/gpu/test_block_scaled.py``; to verify and time both,
``gemmetry profile --shapes 4096x4096x4096 --dtypes e4m3:e4m3:bf16 --layouts tn --scaling vs1x128
--providers torch,triton``.
"""

from __future__ import annotations

import pytest

from gemmetry.domain.contracts import Workspace
from gemmetry.domain.dispatch import Dispatch, parse_operation
from gemmetry.domain.errors import Verification
from gemmetry.numerics.inputs import make_inputs
from gemmetry.numerics.references import compute_reference
from gemmetry.providers.torch_provider.provider import TorchProvider
from gemmetry.providers.triton_provider.provider import TritonProvider
from gemmetry.verification.protocol import verify

torch = pytest.importorskip("torch", reason="torch is not installed")

pytestmark = pytest.mark.gpu

CASES = [
    "matmul_256x384x1024_e4m3t_e4m3n_bf16t_vs1x128",
    "matmul_256x384x1024_e4m3t_e4m3n_f32t_vs1x128_vs128x128",
    "matmul_257x129x640_e4m3t_e4m3n_bf16t_vs1x128",
    "matmul_129x130x672_e5m2t_e4m3n_bf16t_vs32_e8m0",
    "matmul_256x256x1024_e4m3t_e4m3n_f32t_vs32_e8m0_alpha0p5_bias",
    "matmul_256x256x1024_e2m1t_e2m1n_bf16t_vs32_e8m0",
    "matmul_256x256x1024_e2m1t_e2m1n_f16t_vs16_e4m3",
    "matmul_130x200x1024_e2m1t_e2m1n_f16t_vs16_e8m0",
    "batch_matmul_3x128x128x256_e4m3t_e4m3n_bf16t_vs1x128",
]


def _verified(provider, operation, target, tmp_path, count):
    reason = provider.supports(operation, target)
    if reason:
        pytest.skip(reason)
    configurations = list(provider.configurations(operation, target))
    methods = {c.parameters.get("method", ""): c for c in reversed(configurations)}
    chosen = [configurations[0], *methods.values()][:count]
    inputs = make_inputs(operation, distribution="offset_uniform", seed=3)
    reference = compute_reference(operation, inputs)
    for configuration in chosen:
        dispatch = Dispatch(operation, configuration, provider.name, target)
        executable = provider.build(dispatch, Workspace(generated=tmp_path / "generated"))
        verdict = verify(executable, operation, inputs, reference)
        executable.close()
        assert verdict.status is Verification.PASSED, f"{dispatch}: {verdict.reason}"


@pytest.mark.parametrize("name", CASES)
def test_the_triton_kernel_is_right_by_every_method(name, gpu, tmp_path):
    pytest.importorskip("triton", reason="triton is not installed")
    _verified(TritonProvider(), parse_operation(name), gpu, tmp_path, 4)


@pytest.mark.parametrize("name", CASES[:2])
def test_scaled_mm_is_right(name, gpu, tmp_path):
    _verified(TorchProvider(), parse_operation(name), gpu, tmp_path, 1)
