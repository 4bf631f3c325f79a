"""Applies the checks of other harnesses to a result, for comparison with gemmetry's verdict.

Each is implemented from its published definition; none of them affects the verdict.
"""

from __future__ import annotations

import math

import numpy as np

from gemmetry.domain.operation import Operation
from gemmetry.numerics.references import Reference, to_logical
from gemmetry.numerics.storage import Array, Float64Array, numpy_dtype, quantize, to_float64

ALLCLOSE = "allclose(1e-2)"
NORMALISED_DIFFERENCE = "normalised difference < 1e-3"
ABSOLUTE_DIFFERENCE = "absolute difference <= 0.1"

RIVALS = (ALLCLOSE, NORMALISED_DIFFERENCE, ABSOLUTE_DIFFERENCE)
"""Names, as used in ``Verdict.rivals``."""

_ROWS = 256
"""Rows compared at a time, which bounds the temporaries."""


def judge(operation: Operation, output: Array, reference: Reference) -> dict[str, bool]:
    """Maps each check's name to whether it accepts `output` (host array in storage shape).

    No check accepts a result of another shape or dtype. The other harnesses compare with a
    reference computed in the result's precision, so gemmetry's reference is rounded to the result's
    format for them.
    """
    spec = operation.output
    if output.shape != spec.storage_shape or output.dtype != numpy_dtype(spec.dtype):
        return dict.fromkeys(RIVALS, False)
    got = to_logical(output, spec)
    width = got.shape[-1]
    got = got.reshape(-1, width)
    wanted = reference.value.reshape(-1, width)
    sums = np.zeros(2)
    is_close = is_near = True
    with np.errstate(invalid="ignore", over="ignore"):
        for start in range(0, got.shape[0], _ROWS):
            x = to_float64(got[start : start + _ROWS])
            y = _rounded(operation, wanted[start : start + _ROWS])
            is_close = is_close and allclose(x, y)
            is_near = is_near and absolute_difference(x, y)
            sums += [2 * np.vdot(x, y), np.vdot(x, x) + np.vdot(y, y)]
    return {
        ALLCLOSE: is_close,
        NORMALISED_DIFFERENCE: normalised_difference(*sums),
        ABSOLUTE_DIFFERENCE: is_near,
    }


def allclose(got: Float64Array, wanted: Float64Array) -> bool:
    """KernelBench (src/eval.py, ``get_tolerance_for_precision`` for bf16 and fp16, passed to
    ``torch.allclose``): |got - wanted| ≤ 1e-2 + 1e-2·|wanted| everywhere; NaN is close to nothing,
    infinity only to itself. Applied here to every format."""
    close = np.abs(got - wanted) <= 1e-2 + 1e-2 * np.abs(wanted)
    close &= np.isfinite(wanted)
    close |= got == wanted
    return bool(close.all())


def normalised_difference(twice_product: float, squares: float) -> bool:
    """DeepGEMM (deep_gemm/testing/numeric.py, ``calc_diff``, and its limit in tests/test_fp8.py):
    1 - 2⟨x, y⟩ / (‖x‖² + ‖y‖²) < 1e-3 over the whole result; NaN is below nothing, and two results
    of zeros are equal."""
    if squares == 0:
        return True
    return math.isfinite(squares) and bool(1 - twice_product / squares < 1e-3)


def absolute_difference(got: Float64Array, wanted: Float64Array) -> bool:
    """fast.cu (matmul.cu, ``verify_matrix``): a loop over the elements that fails at the first with
    |got - wanted| > 0.1. NaN is accepted, as no comparison with NaN is true."""
    return not bool((np.abs(got - wanted) > 0.1).any())


def _rounded(operation: Operation, values: Array) -> Float64Array:
    if operation.signature.result.is_integer:
        return to_float64(values)
    return to_float64(quantize(to_float64(values), operation.signature.result))
