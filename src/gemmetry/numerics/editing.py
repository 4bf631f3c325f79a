"""Writes changes of inputs to a device's buffers, and plausible numbers to its outputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import TypeGuard

import numpy as np

from gemmetry.domain.contracts import Buffer, Device, EditableDevice
from gemmetry.domain.dtypes import DType
from gemmetry.domain.operation import TensorSpec
from gemmetry.numerics.changes import Edit
from gemmetry.numerics.storage import Array, Floats, numpy_dtype, quantize

PERIOD = 16381
"""Elements after which a fill repeats: a prime, so that no row of a result equals the previous one,
and few enough to be copied to a device quickly."""

_PLAUSIBLE_SIZE = 24.0
"""Largest number in a fill: every format has it, and results of small products are of that size."""


def prepared_edits(
    device: Device, specs: Sequence[TensorSpec], buffers: Sequence[Buffer], edits: Sequence[Edit]
) -> list[Callable[[], None]]:
    """A function that applies `edits` to `buffers` (in the order of `specs`), one after the other:
    see :class:`gemmetry.domain.contracts.EditableDevice`. For other devices it reads the whole
    buffer, changes it and writes it back."""
    return [_prepared(device, specs[e.place], buffers[e.place], e) for e in edits]


def _prepared(device: Device, spec: TensorSpec, buffer: Buffer, edit: Edit) -> Callable[[], None]:
    if _is_editable(device):
        return device.prepared_edit(buffer, edit.index, edit.contents)

    def rewrite() -> None:
        whole = np.array(device.download(buffer, spec))
        whole[edit.index] = edit.contents
        device.write(buffer, whole, spec)

    return rewrite


def _is_editable(device: Device) -> TypeGuard[EditableDevice]:
    return _has_edits(type(device))


@cache
def _has_edits(kind: type) -> bool:
    # Tested once per class: a test against a protocol checks every attribute.
    return issubclass(kind, EditableDevice)


def fill_plausibly(device: Device, buffer: Buffer, spec: TensorSpec, number: int) -> None:
    """Fill a buffer with plausible result values that differ between neighbouring elements and
    between calls with different `number`."""
    start = -101 * number % PERIOD
    values = _plausible_values(spec.dtype)[start : start + PERIOD]
    if _is_editable(device):
        device.fill_repeating(buffer, values)
    else:
        device.write(buffer, np.resize(values, spec.storage_shape), spec)


@cache
def _plausible_values(dtype: DType) -> Array:
    """Two periods, so that a period may begin at any element of the first."""
    return np.tile(_one_period(dtype), 2)


def _one_period(dtype: DType) -> Array:
    rng = np.random.default_rng(PERIOD)
    if dtype.is_integer:
        return rng.integers(-100, 100, PERIOD).astype(numpy_dtype(dtype))
    values: Floats = rng.uniform(-_PLAUSIBLE_SIZE, _PLAUSIBLE_SIZE, PERIOD)
    return quantize(values, dtype)
