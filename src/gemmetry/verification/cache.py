"""Caches references across dispatches (in memory) and across runs (on disk).

Float64 products that a device computes, checked on the host: no device vouches for itself.

A product C of the device is tested by Freivalds' method: C·x and A·(B·x) agree, for vectors x of
random signs that only the host knows, within what float64 rounds. It costs O(MN + MK + KN)
operations instead of MNK. A single wrong element is found with certainty; several errors in one row
escape only if they cancel for every vector.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import tokenize
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path

import numpy as np

from gemmetry.domain.files import completed
from gemmetry.domain.operation import Operation, operation_name
from gemmetry.numerics.inputs import GENERATOR_VERSION
from gemmetry.numerics.references import REFERENCE_VERSION, Matmul, OperandSizes, Reference
from gemmetry.numerics.storage import Array, Float64Array, absolute, to_float64
from gemmetry.verification.freivalds import Vectors, scan

MAX_FILE_BYTES = 2**30
"""References above 1 GiB are not written: recomputing them takes about as long as reading them."""

FEWEST_FILE_FLOPS = 10**7
"""References of smaller operations are not written: a reference of 128³ is computed in 0.2 ms, and
written or read in 0.4 ms (one core of an x86 server)."""

MEMORY_BYTES = 2**30
"""Memory limit; the newest reference is always kept, whatever its size."""

_MAGNITUDE_IS_VALUE = "magnitude_is_value"

_Key = tuple[Operation, str, int]
"""Operation, distribution and seed."""

_DAMAGE = (OSError, ValueError, TypeError, KeyError, EOFError, zipfile.BadZipFile,
           tokenize.TokenError)  # fmt: skip
"""Exceptions that numpy raises for a missing or invalid file; it reads array headers with Python's
tokenizer."""


class ReferenceCache:
    """References by operation, distribution and seed; one ``.npz`` file each.

    A file is written under a temporary name and renamed, and every array in it has a CRC, so a
    reader finds a complete file or recomputes. An unwritable folder costs time, not results, and is
    silently ignored.

    Args:
        directory: folder of the files, created when first needed; None: memory only.
    """

    def __init__(self, directory: Path | None = None) -> None:
        self._directory = directory
        self._memory: OrderedDict[_Key, Reference] = OrderedDict()
        self._held_bytes = 0

    def get(
        self, operation: Operation, distribution: str, seed: int, compute: Callable[[], Reference]
    ) -> Reference:
        """The reference of `operation` for these inputs: from memory, from disk, or computed."""
        key = (operation, distribution, seed)
        if key in self._memory:
            self._memory.move_to_end(key)
            return self._memory[key]
        if self._directory is None or operation.flops < FEWEST_FILE_FLOPS:
            reference = compute()
        else:
            reference = _stored(self._directory, key, compute)
        self._memory[key] = reference
        self._held_bytes += reference.nbytes
        while len(self._memory) > 1 and self._held_bytes > MEMORY_BYTES:
            self._held_bytes -= self._memory.popitem(last=False)[1].nbytes
        return reference


def _stored(directory: Path, key: _Key, compute: Callable[[], Reference]) -> Reference:
    """The reference read from disk, or computed and written there."""
    operation, distribution, seed = key
    header = {
        "operation": operation_name(operation),
        "distribution": distribution,
        "seed": seed,
        "generator_version": GENERATOR_VERSION,
        "reference_version": REFERENCE_VERSION,
        "numpy": np.__version__,
    }
    text = json.dumps(header, sort_keys=True)
    path = directory / f"{hashlib.sha256(text.encode()).hexdigest()[:20]}.npz"
    reference = _read(path, text, operation.output.shape)
    if reference is None:
        reference = compute()
        _write(path, text, reference)
    return reference


def _read(path: Path, header: str, shape: tuple[int, ...]) -> Reference | None:
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            if str(arrays["header"]) != header:
                return None
            value = arrays["value"]
            magnitude = value if _MAGNITUDE_IS_VALUE in arrays else arrays["magnitude"]
            extra = arrays.get("extra_rounding")
            sizes = OperandSizes(*map(float, arrays["sizes"])) if "sizes" in arrays else None
    except _DAMAGE:
        # Missing, truncated or damaged: zip members have a CRC that reading checks.
        return None
    parts = [value, magnitude, *([] if extra is None else [extra])]
    if any(part.shape != shape for part in parts):
        return None
    return Reference(value, magnitude, extra, sizes)


def _write(path: Path, header: str, reference: Reference) -> None:
    if reference.nbytes > MAX_FILE_BYTES:
        return
    arrays: dict[str, Array] = {"header": np.array(header), "value": reference.value}
    if reference.magnitude is reference.value:
        arrays[_MAGNITUDE_IS_VALUE] = np.array(True)
    else:
        arrays["magnitude"] = reference.magnitude
    if reference.extra_rounding is not None:
        arrays["extra_rounding"] = reference.extra_rounding
    if reference.sizes is not None:
        arrays["sizes"] = np.array(reference.sizes)
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        with completed(path) as temporary, temporary.open("wb") as file:
            np.savez(file, allow_pickle=False, **arrays)


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
