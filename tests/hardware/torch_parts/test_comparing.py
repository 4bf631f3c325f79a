"""What a device finds about results is what the host finds, and digests; a CPU stands in for the
device."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from gemmetry.domain.dispatch import parse_operation  # noqa: E402
from gemmetry.domain.operation import BF16, E4M3, E4M3FNUZ, E5M2, F16, F32, F64  # noqa: E402
from gemmetry.domain.record import Trait  # noqa: E402
from gemmetry.hardware import torch_device as comparing  # noqa: E402
from gemmetry.hardware.torch_device import (  # noqa: E402
    TorchComparer,
    digest,
    to_tensor,
    torch_dtype,
)
from gemmetry.numerics.bounds import bound_rule  # noqa: E402
from gemmetry.numerics.inputs import make_inputs  # noqa: E402
from gemmetry.numerics.references import compute_reference, to_storage  # noqa: E402
from gemmetry.numerics.storage import quantize  # noqa: E402
from gemmetry.verification.comparison import compare  # noqa: E402

OPERATIONS = [
    "matmul_33x17x129_f32t_f32t_f32t", "matmul_33x17x129_f64t_f64n_f64n",
    "matmul_33x17x129_tf32t_tf32t_f32n", "batch_matmul_3x20x30x64_f16t_f16t_f16n",
    "matmul_33x17x129_bf16t_bf16t_bf16n_alpha0p5_beta2_bias_gelu_residual",
    "matmul_48x32x64_e4m3t_e4m3n_e4m3n_scaletensor", "matmul_48x32x64_e5m2t_e4m3n_bf16t_scalerow",
    "conv2d_2x9x7x3_3x2x5_stride2x1_pad1x0_f32nhwc_f32hwcf_f32nhwc_bias_relu",
]  # fmt: skip


def _case(name, distribution="normal"):
    operation = parse_operation(name)
    reference = compute_reference(
        operation, make_inputs(operation, distribution=distribution, seed=1)
    )
    right = to_storage(quantize(reference.value, operation.output.dtype), operation.output)
    return operation, reference, np.array(right)


def _on_device(operation, reference, result, declared=()):
    comparer = TorchComparer(reference, torch.device("cpu"))
    rule = bound_rule(operation, reference, declared=declared)
    tensor = to_tensor(result, operation.output.dtype)
    return comparer.error_sums(tensor, operation.output, rule)


def _same_as_host(operation, reference, result, declared=()):
    """Whether the device judged the result, and then found what the host finds."""
    host = compare(operation, result, reference, declared=declared)
    found = _on_device(operation, reference, result, declared)
    assert (found is None) == (host.warned_count > 0 or host.bad_count > 0)
    if found is None:
        return False
    for name in ("max_ratio", "max_warn_ratio", "largest_error"):
        assert getattr(found, name) == getattr(host, name)
    for name in ("squared_error", "squared_reference", "bias_sum"):
        near = pytest.approx(getattr(host, name), rel=1e-9, abs=1e-9)
        assert getattr(found, name) == near
    return True


@pytest.mark.parametrize("distribution", ["normal", "offset_uniform"])
@pytest.mark.parametrize("name", OPERATIONS)
def test_right_results_have_the_errors_that_the_host_finds(name, distribution, monkeypatch):
    case = _case(name, distribution)
    assert _same_as_host(*case)
    monkeypatch.setattr(comparing, "_PIECE", 64)
    assert _same_as_host(*case)


@pytest.mark.parametrize("name", OPERATIONS)
def test_whatever_the_host_objects_to_the_device_leaves_to_it(name):
    operation, reference, right = _case(name)
    rng = np.random.default_rng(1)
    judged = 0
    for number in range(60):
        result = right.copy()
        flat = result.reshape(-1)
        at = int(rng.integers(flat.size))
        # From one ulp, which is within the bound, to far outside of it.
        factor = 1 + 2.0 ** -float(rng.integers(1, 30))
        flat[at] = np.float64(flat[at]) * factor if number % 6 else (np.nan, np.inf, 0)[number % 3]
        judged += _same_as_host(operation, reference, result)
    assert judged < 60


def test_declarations_widen_the_same_bounds():
    operation, reference, result = _case("matmul_33x17x129_f32t_f32t_f32t")
    result *= 1 + 2.0**-12
    assert not _same_as_host(operation, reference, result)
    assert _same_as_host(operation, reference, result, {Trait.TF32})


def test_overflow_and_form_are_left_to_the_host():
    operation, reference, right = _case("matmul_33x17x129_f32t_f32t_f32t")
    reference.value[0, 0] = np.inf
    right[0, 0] = np.inf
    assert _on_device(operation, reference, right) is None
    comparer, rule = TorchComparer(reference, torch.device("cpu")), bound_rule(operation, reference)
    for wrong in (torch.zeros(33, 17, dtype=torch.float16), torch.zeros(17, 33)):
        assert comparer.error_sums(wrong, operation.output, rule) is None
    elsewhere = torch.zeros(33, 17, device="meta")
    assert comparer.error_sums(elsewhere, operation.output, rule) is None


VALUES = np.random.default_rng(1).standard_normal((37, 53))


def _tensor(dtype, values=VALUES):
    return to_tensor(quantize(values, dtype), dtype)


SIGNED = pytest.mark.parametrize("dtype", [F64, F32, F16, BF16, E4M3, E5M2], ids=str)


@SIGNED
def test_equal_bytes_have_equal_digests_and_others_do_not(dtype, monkeypatch):
    tensor = _tensor(dtype, VALUES[:7, :11])
    known = digest(tensor)
    assert digest(tensor.clone()) == known
    monkeypatch.setattr(comparing, "_DIGEST_PIECE", 32)
    assert digest(tensor) == known, "pieces change nothing"
    found = {known}
    bits = tensor.view(torch.uint8).reshape(-1)
    for at in range(bits.numel()):  # Every byte counts.
        bits[at] ^= 1
        found.add(digest(tensor))
        bits[at] ^= 1
    assert len(found) == bits.numel() + 1
    rows = tensor.view(torch.uint8)
    assert digest(rows.flip(0).contiguous()) not in found, "so does every place"
    assert digest(torch.zeros(4, dtype=torch.uint8)) != digest(torch.zeros(8, dtype=torch.uint8))


@SIGNED
def test_negated_lines_count_with_the_opposite_sign(dtype):
    tensor, values = _tensor(dtype), VALUES.copy()
    values[5] *= -1
    lines = [(slice(5, 6), slice(None))]
    assert digest(_tensor(dtype, values), lines) == digest(tensor)
    assert digest(tensor, lines) == digest(_tensor(dtype, values))
    assert digest(tensor, lines) != digest(tensor)
    assert torch.equal(tensor.view(torch.uint8), _tensor(dtype).view(torch.uint8)), "only read"


def test_formats_without_a_sign_bit_are_left_to_the_host():
    for tensor in (
        torch.zeros(3, 4, dtype=torch_dtype(E4M3FNUZ)),
        torch.zeros(3, 4, dtype=torch.int32),
    ):
        assert digest(tensor, [(slice(0, 1),)]) is None
        assert digest(tensor) is not None
