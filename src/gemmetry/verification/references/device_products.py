"""Float64 products that a device computes, checked on the host: no device vouches for itself.

A product C of the device is tested by Freivalds' method: C·x and A·(B·x) agree, for vectors x of
random signs that only the host knows, within what float64 rounds. It costs O(MN + MK + KN)
operations instead of MNK. A single wrong element is found with certainty; several errors in one row
escape only if they cancel for every vector.
"""

from __future__ import annotations

import numpy as np

from gemmetry.numerics.references import Matmul
from gemmetry.numerics.storage import Array, Float64Array, absolute, to_float64
from gemmetry.verification.references.vector_sums import Vectors, scan

VECTORS = 4
"""Number of random vectors: errors that cancel for one with probability 1/2 cancel for all of them
with 1/16, in each row that has any."""

_ROUNDOFF = 2.0**-53


def checked(product: Matmul) -> Matmul:
    """`product`, whose results are replaced by those of the host where they are wrong."""

    def multiply(lhs: Array, rhs: Array) -> Array:
        found = product(lhs, rhs)
        if not is_product(lhs, rhs, found):
            found = to_float64(lhs) @ to_float64(rhs)
        return found

    return multiply


def is_product(lhs: Array, rhs: Array, found: Array) -> bool:
    """Whether `found` is the product of (…, M, K) `lhs` and (…, K, N) `rhs` in float64, as far as
    random vectors show. Rows with numbers that are not finite are not tested.

    The tolerance of row i is (3K + 2N)·2⁻⁵³·(|A||B|·1)_i: at most K roundings in each element of
    the device's sums, and at most N + K on the host on either side (Higham, *Accuracy and Stability
    of Numerical Algorithms*, section 3.1).
    """
    if lhs.ndim > 2:
        return all(is_product(*each) for each in zip(lhs, rhs, found, strict=True))
    depth, columns = rhs.shape
    signs = np.random.default_rng().integers(0, 2, (columns, VECTORS)) * 2.0 - 1.0
    expected = _times(lhs, _times(rhs, signs))
    ones = np.ones((columns, 1))
    magnitude = _times(absolute(lhs), _times(absolute(rhs), ones))
    tolerance = (3 * depth + 2 * columns) * _ROUNDOFF * magnitude
    with np.errstate(invalid="ignore"):
        differs = ~(np.abs(_times(found, signs) - expected) <= tolerance)
    return not differs[np.isfinite(tolerance[:, 0]) & np.isfinite(expected).all(axis=1)].any()


def _times(matrix: Array, x: Vectors) -> Float64Array:
    with np.errstate(invalid="ignore", over="ignore"):
        right: Float64Array = scan(matrix, x=x).right
    return right
