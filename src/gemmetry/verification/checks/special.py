"""Checks of how NaN and infinity go through a kernel."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from gemmetry.domain.operation import EpilogueStep
from gemmetry.numerics.references import to_logical
from gemmetry.numerics.storage import Array, as_bits, to_float64
from gemmetry.verification.checks.results import CheckResult, failed, not_applicable, passed
from gemmetry.verification.context import Context
from gemmetry.verification.launching import Launch
from gemmetry.verification.special_inputs import Positions, Spread, objection, spread

Mask = npt.NDArray[np.bool_]

_PIECE = 1 << 18
"""Elements compared at a time."""


def check_nan_spreads(context: Context) -> CheckResult:
    """One NaN in a row of A and one in a column of B make that row and that column of the result
    NaN, and nothing else. Behind relu zero is accepted too, as the maximum of NaN and 0 is 0 by
    IEEE 754-2008 (maxNum) and NaN by IEEE 754-2019 (maximum)."""
    return _check(context, "nan_spreads", math.nan)


def check_inf_spreads(context: Context) -> CheckResult:
    """One infinity in a row of A and one in a column of B make that row and that column of the
    result infinite or NaN (∞ · 0, ∞ - ∞), and nothing else. fp8 results may be the largest number
    instead, as casts may saturate; behind relu and gelu zero is accepted for -∞."""
    return _check(context, "inf_spreads", math.inf)


def _check(context: Context, name: str, value: float) -> CheckResult:
    operation = context.operation
    reason = objection(name, operation, context.declared)
    if reason:
        return not_applicable(name, reason)
    case = spread(operation, context.inputs, value)
    launch = context.launcher.launch(
        context.put(case.inputs), sentinel=context.launcher.sentinels[0], check_inputs=False
    )
    problem = context.launcher.form_problem(launch)
    if problem:
        return failed(name, problem)
    return _judge(context, name, launch, case, value)


def _judge(context: Context, name: str, launch: Launch, case: Spread, value: float) -> CheckResult:
    got, before = launch.output.reshape(-1), context.first.output.reshape(-1)
    what = "NaN" if math.isnan(value) else "infinity"
    swallowed = case.must[~_shows(context, got[case.must], value)]
    if swallowed.size:
        detail = (
            f"{what} is swallowed: {swallowed.size} of {case.must.size} elements that it goes into "
            "do not show it"
        )
        return _failed(context, name, launch, swallowed, detail)
    # Bits may differ between launches; what may not is that NaN or infinity is new.
    others = _without(_different(got, before), case.may)
    is_new = ~np.isfinite(to_float64(got[others])) & np.isfinite(to_float64(before[others]))
    leaked = others[is_new]
    if leaked.size:
        detail = f"{what} leaks: {leaked.size} elements show it that are no sum of it"
        return _failed(context, name, launch, leaked, detail)
    return passed(name)


def _failed(
    context: Context, name: str, launch: Launch, positions: Positions, detail: str
) -> CheckResult:
    """`positions` in the flattened stored result are wrong."""
    spec = context.operation.output
    stored = np.zeros(spec.storage_shape, dtype=np.bool_)
    stored.reshape(-1)[positions] = True
    bad = to_logical(stored, spec)
    context.keep_evidence(name, launch, None, bad)
    index = np.unravel_index(int(bad.argmax()), bad.shape)
    value = to_float64(to_logical(launch.output, spec)[index].reshape(1))[0]
    return failed(name, detail, f"{[int(i) for i in index]}: got {float(value):.9g}")


def _different(left: Array, right: Array) -> Positions:
    """Where two flat arrays differ in their bits, in pieces that stay in cache."""
    left, right = as_bits(left), as_bits(right)
    found = [
        start + np.flatnonzero(left[start : start + _PIECE] != right[start : start + _PIECE])
        for start in range(0, left.size, _PIECE)
    ]
    return np.concatenate(found)


def _without(positions: Positions, left_out: Positions) -> Positions:
    """`positions` that are not in `left_out`, which is sorted and not empty."""
    nearest: Positions = np.take(left_out, np.searchsorted(left_out, positions), mode="clip")
    is_other: Mask = nearest != positions
    return positions[is_other]


def _shows(context: Context, values: Array, value: float) -> Mask:
    s = context.operation.signature
    wide = to_float64(values)
    shows: Mask = np.isnan(wide)
    clamps = {EpilogueStep.RELU}
    if math.isinf(value):
        shows |= np.isinf(wide)
        clamps.add(EpilogueStep.GELU)
        if s.result.is_fp8:
            shows |= np.abs(wide) == s.result.maximum
    if clamps.intersection(s.epilogue):
        shows |= wide == 0
    return shows
