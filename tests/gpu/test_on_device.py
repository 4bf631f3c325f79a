"""What a GPU finds about results is what the host finds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gemmetry.domain.contracts import DigestingDevice
from gemmetry.domain.dispatch import parse_operation
from gemmetry.numerics.bounds import bound_rule
from gemmetry.numerics.inputs import make_inputs
from gemmetry.numerics.references import compute_reference, to_storage
from gemmetry.numerics.storage import quantize
from gemmetry.verification.after_timing import ComparingDevice
from gemmetry.verification.comparison import compare

pytestmark = pytest.mark.gpu

OPERATIONS = [
    "matmul_513x257x129_f32t_f32t_f32n",
    "matmul_257x129x65_f64t_f64n_f64t",
    "batch_matmul_3x130x65x64_f16t_f16t_f16n",
    "matmul_1030x513x129_bf16t_bf16t_bf16n_alpha0p5_beta2_bias_gelu_residual",
    "matmul_257x129x64_e4m3t_e4m3n_e4m3n_scaletensor",
]


@pytest.mark.parametrize("name", OPERATIONS)
def test_a_gpu_compares_as_the_host_does(device: Any, name: str) -> None:
    operation = parse_operation(name)
    spec = operation.output
    reference = compute_reference(operation, make_inputs(operation, distribution="normal", seed=1))
    right = np.array(to_storage(quantize(reference.value, spec.dtype), spec))
    rule = bound_rule(operation, reference)
    has_methods = isinstance(device, ComparingDevice)
    assert has_methods
    uploaded = device.upload_reference(reference)
    assert uploaded is not None
    found = device.error_sums(device.upload(right, spec), spec, uploaded, rule)
    host = compare(operation, right, reference)
    assert found is not None
    for field, value in found._asdict().items():
        assert value == pytest.approx(getattr(host, field), rel=1e-9, abs=1e-9), field
    wrong = right.copy()
    wrong.reshape(-1)[-1] = np.nan
    assert device.error_sums(device.upload(wrong, spec), spec, uploaded, rule) is None


@pytest.mark.parametrize("name", OPERATIONS)
def test_a_digest_is_that_of_the_bytes(device: Any, name: str) -> None:
    spec = parse_operation(name).output
    rng = np.random.default_rng(1)
    values = quantize(rng.standard_normal(spec.storage_shape), spec.dtype)
    negated = np.array(values)
    negated[..., 3, :] = -negated[..., 3, :]
    line = (*[slice(None)] * (values.ndim - 2), slice(3, 4), slice(None))
    has_methods = isinstance(device, DigestingDevice)
    assert has_methods
    known = device.digest(device.upload(values, spec))
    assert known is not None
    assert device.digest(device.upload(np.array(values), spec)) == known
    other = device.upload(negated, spec)
    assert device.digest(other) != known
    assert device.digest(other, [line]) == known
