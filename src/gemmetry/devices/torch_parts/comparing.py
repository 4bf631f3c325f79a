"""Compares results with float64 references on a torch device, by the same bounds as the host."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import cast

import numpy as np
import torch

from gemmetry.devices.torch_parts.storage import bits_dtype, stored_shape, torch_dtype
from gemmetry.domain.operation import Layout, TensorSpec
from gemmetry.numerics.accumulation import AccumulationError
from gemmetry.numerics.bounds import BoundRule
from gemmetry.numerics.error_sums import ErrorSums
from gemmetry.numerics.references import Reference
from gemmetry.numerics.storage import Float64Array

_PIECE = 1 << 24
"""Elements compared at a time: ten float64 temporaries of this size take 1.3 GB."""

_TEMPORARIES = 10

_EXPONENT_BITS = 0x7FF0_0000_0000_0000


def needed_bytes(reference: Reference) -> int:
    """Device memory that comparing with `reference` takes, without the result."""
    return reference.nbytes + _TEMPORARIES * 8 * min(_PIECE, reference.value.size)


class TorchComparer:
    """The reference on a device, with which results there are compared."""

    def __init__(self, reference: Reference, device: torch.device) -> None:
        """Upload `reference`, which is of floats."""
        width = reference.value.shape[-1]

        def uploaded(array: Float64Array) -> torch.Tensor:
            return torch.from_numpy(np.ascontiguousarray(array)).to(device).view(-1, width)

        self._value = uploaded(cast(Float64Array, reference.value))
        self._is_positive = reference.magnitude is reference.value
        self._magnitude = self._value if self._is_positive else uploaded(reference.magnitude)
        extra = reference.extra_rounding
        self._extra = None if extra is None else uploaded(extra)

    def error_sums(
        self, result: torch.Tensor, spec: TensorSpec, rule: BoundRule
    ) -> ErrorSums | None:
        """Errors of `result`, a tensor on the device; None unless it has the form of `spec` and all
        of its elements are numbers within their warn bounds."""
        if result.dtype != torch_dtype(spec.dtype) or tuple(result.shape) != stored_shape(spec):
            return None
        if result.numel() != self._value.numel() or result.device != self._value.device:
            return None  # two numbers share a byte, or the result was left elsewhere
        logical = result.detach()
        if spec.layout is Layout.COLUMN:
            logical = logical.view(bits_dtype(spec.dtype)).transpose(-1, -2)
        rows = logical.reshape(self._value.shape).view(torch_dtype(spec.dtype))
        rule = _for_tensors(rule)
        step = max(1, _PIECE // max(1, rows.shape[1]))
        pieces = [
            self._sums_of_rows(rows[start : start + step], slice(start, start + step), spec, rule)
            for start in range(0, rows.shape[0], step)
        ]
        return _merged(torch.stack(pieces).cpu().tolist())

    def _sums_of_rows(
        self, got: torch.Tensor, rows: slice, spec: TensorSpec, rule: BoundRule
    ) -> torch.Tensor:
        """The fields of ErrorSums of some rows; the second is not at most 1 if the host has to
        look."""
        if got.element_size() == 1:
            got = got.to(torch.float32)  # fp8 converts to float32 everywhere
        values, expected, magnitude = got.double(), self._value[rows], self._magnitude[rows]
        extra = None if self._extra is None else self._extra[rows]
        # The rule is the host's: it only adds and multiplies what it is given.
        piece = cast(Reference, _Piece(expected, magnitude, extra))
        size = cast(Float64Array, expected if self._is_positive else expected.abs())
        warn = cast(torch.Tensor, rule.warn(piece, size))
        error = values - expected
        ratio = error / warn
        magnitudes = error.abs()
        to_fail = magnitudes / cast(torch.Tensor, rule.fail(piece, size))
        bias = ratio.sum() if self._is_positive else (ratio * expected.sign()).sum()
        excess = magnitudes - _scaled_exponent(values, spec.dtype.unit_roundoff)
        excess = torch.where(magnitude > 0, excess / magnitude, excess)
        return torch.stack(
            [
                to_fail.max(), ratio.abs().max(), excess.max().clamp(min=0.0),
                error.square().sum(), expected.square().sum(), bias,
            ]
        )  # fmt: skip


class _Piece:
    """Part of a reference, as :class:`gemmetry.numerics.bounds.BoundRule` reads it."""

    def __init__(
        self, value: torch.Tensor, magnitude: torch.Tensor, extra: torch.Tensor | None
    ) -> None:
        self.value, self.magnitude, self.extra_rounding = value, magnitude, extra


def _for_tensors(rule: BoundRule) -> BoundRule:
    """`rule` with plain numbers: numpy's own try to convert the tensors that they multiply."""
    return replace(
        rule,
        relative=AccumulationError(*map(float, (rule.relative.warn, rule.relative.fail))),
        absolute=AccumulationError(*map(float, (rule.absolute.warn, rule.absolute.fail))),
        rounding=float(rule.rounding),
        extra=float(rule.extra),
        scaled_exponent=_scaled_exponent,
    )


def _merged(pieces: list[list[float]]) -> ErrorSums | None:
    to_fail, ratios, excesses, errors, references, biases = zip(*pieces, strict=True)
    # NaN compares false.
    if not all(ratio <= 1 for ratio in ratios):
        return None
    return ErrorSums(
        max(to_fail), max(ratios), max(excesses),
        math.fsum(errors), math.fsum(references), math.fsum(biases),
    )  # fmt: skip


def _scaled_exponent(values: torch.Tensor, factor: float) -> torch.Tensor:
    """:func:`gemmetry.numerics.bounds.scaled_exponent` for tensors."""
    exponents = values.contiguous().view(torch.int64) & _EXPONENT_BITS
    return exponents.view(torch.float64) * factor
