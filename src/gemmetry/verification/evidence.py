"""Evidence of a failed verification: the inputs, the output and the expected output.

:func:`save` writes them as ``arrays.npz`` (numpy's format, no pickle), :func:`load` reads them
back. Formats that numpy does not support (bf16, fp8) are stored as bits, with their names.
"""

from __future__ import annotations

import json
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import ml_dtypes
import numpy as np

from gemmetry.domain.errors import RequestError, StorageError
from gemmetry.domain.names import operation_name, parse_operation
from gemmetry.domain.operation import Operation
from gemmetry.formats.files import completed
from gemmetry.numerics.storage import as_bits

Array: TypeAlias = Any
Mask: TypeAlias = Any

ARRAYS_NAME = "arrays.npz"

_OUR_DTYPES = ml_dtypes.__name__
_HEADER = "header"


@dataclass(frozen=True)
class Evidence:
    """The failure of one check, as arrays on the host.

    The check may have used a different shape (tail shapes), so the operation is stored too.
    """

    check: str
    operation: Operation
    inputs: tuple[Array, ...]
    """In the order of ``operation.inputs``, storage shapes, each in its dtype."""
    output: Array
    """The dispatch's output, of ``operation.output.storage_shape`` unless the shape itself is
    wrong."""
    expected: Array | None
    """The exact or float64 expectation; None where only its checksums are known (Freivalds)."""
    bad: Mask | None
    """True where an element is wrong; None where the check does not identify single elements."""

    @property
    def nbytes(self) -> int:
        """Total bytes of all arrays."""
        return sum(int(array.nbytes) for array in self._named().values())

    def _named(self) -> dict[str, Array]:
        roles = [spec.role for spec in self.operation.inputs]
        named = {
            f"input_{role}": np.asarray(array)
            for role, array in zip(roles, self.inputs, strict=True)
        }
        named["output"] = np.asarray(self.output)
        if self.expected is not None:
            named["expected"] = np.asarray(self.expected)
        if self.bad is not None:
            named["bad"] = np.asarray(self.bad)
        return named


def save(folder: Path, evidence: Evidence) -> Path:
    """Write the arrays atomically to ``<folder>/arrays.npz``. Returns its path.

    Raises:
        OSError: the folder or the file cannot be written.
    """
    named = evidence._named()
    header = {
        "check": evidence.check,
        "operation": operation_name(evidence.operation),
        "dtypes": {name: array.dtype.name for name, array in named.items()},
    }
    stored = {name: _storable(array) for name, array in named.items()}
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / ARRAYS_NAME
    with completed(path) as temporary, temporary.open("wb") as file:
        np.savez(file, allow_pickle=False, **{_HEADER: np.array(json.dumps(header))}, **stored)
    return path


def load(folder: Path) -> Evidence:
    """Load the evidence that :func:`save` wrote into `folder`.

    Raises:
        RequestError: there is no evidence. StorageError: the file is damaged.
    """
    path = folder / ARRAYS_NAME
    if not path.is_file():
        raise RequestError(
            f"{folder} contains no {ARRAYS_NAME}",
            hint="Give the folder that `gemmetry show` lists as the evidence of a dispatch.",
        )
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
            header = json.loads(str(stored[_HEADER]))
            arrays = {
                name: _restored(stored[name], dtype) for name, dtype in header["dtypes"].items()
            }
    except (OSError, ValueError, KeyError, TypeError, zipfile.BadZipFile) as error:
        raise StorageError(
            f"{path} cannot be read: {error}", hint="Run the dispatch again to create it."
        ) from error
    operation = parse_operation(header["operation"])
    return Evidence(
        check=header["check"],
        operation=operation,
        inputs=tuple(arrays[f"input_{spec.role}"] for spec in operation.inputs),
        output=arrays["output"],
        expected=arrays.get("expected"),
        bad=arrays.get("bad"),
    )


def _storable(array: Array) -> Array:
    """`array`, or its bits in the same shape where the file format does not support its dtype."""
    if array.dtype.type.__module__ == _OUR_DTYPES or array.dtype.kind == "V":
        return as_bits(array).reshape(array.shape)
    return array


def _restored(array: Array, dtype: str) -> Array:
    wanted = np.dtype(dtype)
    return array if array.dtype == wanted else array.view(wanted)
