"""Caches references across dispatches (in memory) and across runs (on disk)."""

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

from gemmetry.domain.names import operation_name
from gemmetry.domain.operation import Operation
from gemmetry.formats.files import completed
from gemmetry.numerics.inputs import GENERATOR_VERSION
from gemmetry.numerics.references import REFERENCE_VERSION, OperandSizes, Reference
from gemmetry.numerics.storage import Array

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
        self,
        operation: Operation,
        distribution: str,
        seed: int,
        compute: Callable[[], Reference],
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
        self._remember(key, reference)
        return reference

    def _remember(self, key: _Key, reference: Reference) -> None:
        self._memory[key] = reference
        self._held_bytes += reference.nbytes
        while len(self._memory) > 1 and self._held_bytes > MEMORY_BYTES:
            self._held_bytes -= self._memory.popitem(last=False)[1].nbytes


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
        with (
            path.open("rb") as file,
            np.load(file, allow_pickle=False) as arrays,
        ):
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
