"""Checks of how NaN and infinity propagate through a kernel."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from gemmetry.domain.operation import EpilogueStep, Operation, TensorSpec
from gemmetry.numerics.references import to_logical, to_storage
from gemmetry.numerics.storage import Array, as_bits, to_float64
from gemmetry.verification.checks import (
    CheckOutcome,
    CheckResult,
    failed,
    not_applicable,
    passed,
)
from gemmetry.verification.comparison import outside_bound
from gemmetry.verification.context import Context
from gemmetry.verification.inputs.special import Positions, Spread, objection, spread
from gemmetry.verification.launching import Launch

Mask = npt.NDArray[np.bool_]

_PIECE = 1 << 18
"""Elements compared at a time."""


def check_nan_spreads(context: Context) -> CheckResult:
    """One NaN in a row of A and one in a column of B make that row and that column of the result
    NaN, and nothing else: all other elements are within their bounds, the inputs are unchanged, and
    the next launch has none. Where blocks have factors, these are NaN. After relu zero is accepted
    too, as the maximum of NaN and 0 is 0 by IEEE 754-2008 (maxNum) and NaN by IEEE 754-2019
    (maximum)."""
    result, _, _ = _check(context, "nan_spreads", math.nan)
    if result.outcome is not CheckOutcome.PASSED:
        return result
    # A launch on the caller's inputs immediately after one with NaN is as correct as before.
    launch = context.launcher.launch(context.main, sentinel=context.launcher.sentinels[1])
    if launch.same_as(context.first) or context.launcher.form_problem(launch):
        return passed()
    result = context.judge_by_bound(launch, context.reference)
    if not result.is_failure or context.first_errors.bad_count:
        return passed()
    return result.because("the launch after one on inputs with NaN is wrong: part of it was kept")


def check_inf_spreads(context: Context) -> CheckResult:
    """One infinity in a row of A and one in a column of B make that row and that column of the
    result infinite with the correct sign, or NaN (∞ · 0, ∞ - ∞), and nothing else. fp8 results may
    be the largest number instead, as casts may saturate; after relu and gelu zero is accepted for
    -∞. After relu the check is repeated with the signs exchanged, and where ∞ resulted in an
    infinity, -∞ must not result in NaN.
    """
    found = _check(context, "inf_spreads", math.inf)
    has_relu = EpilogueStep.RELU in context.operation.signature.epilogue
    if found[0].outcome is not CheckOutcome.PASSED or not has_relu:
        return found[0]
    other = _check(context, "inf_spreads", -math.inf)
    if other[0].outcome is not CheckOutcome.PASSED:
        return other[0]
    clamped = (_clamped(context, *pair) for pair in ((found, other), (other, found)))
    return next((result for result in clamped if result.is_failure), found[0])


_Found = tuple[CheckResult, Launch | None, Spread | None]
"""The result of a launch on inputs with NaN or infinity; the launch and its inputs, where it was
made."""


def _clamped(context: Context, found: _Found, opposite: _Found) -> CheckResult:
    """No element that should be a clamped -∞ is NaN, if the opposite ∞ resulted in an infinity: a
    sum with an intermediate NaN (as in products of parts) is NaN for both signs."""
    (_, launch, case), (_, other, _) = found, opposite
    assert launch is not None and case is not None and other is not None
    if case.signs is None:
        return passed()
    must = case.must
    outputs = launch.output, other.output
    here, there = (to_float64(output.reshape(-1)[must]) for output in outputs)
    is_large = np.abs(there) >= context.operation.signature.result.maximum
    bad = must[(case.signs < 0) & is_large & np.isnan(here)]
    if not bad.size:
        return passed()
    detail = (
        f"minus infinity becomes NaN after relu in {bad.size} elements, in which infinity stayed "
        "infinite: relu is not computed as the maximum with zero"
    )
    return _failed(context, launch, bad, detail)


def _check(context: Context, name: str, value: float) -> _Found:
    operation = context.operation
    reason = objection(name, operation, context.declared)
    if reason:
        return not_applicable(reason), None, None
    case = spread(operation, context.inputs, value)
    placed = context.put(case.inputs)
    context.launcher.keep_copies(placed)
    launch = context.launcher.launch(placed, check_inputs=True)
    problem = context.launcher.form_problem(launch)
    what = "NaN" if math.isnan(value) else "infinity"
    if not problem and launch.changed_inputs and not context.first.changed_inputs:
        problem = f"the launch changed {', '.join(launch.changed_inputs)}, which contained {what}"
    if problem:
        return failed(problem), None, None
    return _judge(context, launch, case, what), launch, case


def _judge(context: Context, launch: Launch, case: Spread, what: str) -> CheckResult:
    got, before = launch.output.reshape(-1), context.first.output.reshape(-1)
    steps, is_infinite = context.operation.signature.epilogue, what == "infinity"
    shows, is_turned = shown(
        context.operation, got[case.must], steps, case.signs, is_infinite=is_infinite
    )
    # Bits may differ between launches, but there must be no new NaN or infinity.
    others = _without(_different(got, before), case.may)
    is_new = ~np.isfinite(to_float64(got[others])) & np.isfinite(to_float64(before[others]))
    count = case.must.size
    for at, where in (
        (case.must[~shows], f"{what} is swallowed: {{}} of {count} elements that depend on it do "
         "not show it"),
        (case.must[is_turned], f"{{}} of {count} infinite elements have the wrong sign"),
        (others[is_new], f"{what} leaks: {{}} elements that do not depend on it show it"),
    ):  # fmt: skip
        if at.size:
            return _failed(context, launch, at, where.format(at.size))
    return _others_right(context, launch, others, what)


def _others_right(context: Context, launch: Launch, others: Positions, what: str) -> CheckResult:
    """Elements that differ from those of the first launch, and are not affected by NaN or infinity,
    are still within their bounds."""
    reference = context.reference
    if not others.size or reference is None or context.first_errors.bad_count:
        return passed()
    operation = context.operation
    where = _marked(operation.output, others)
    bad = outside_bound(operation, launch.output, reference, where, declared=context.declared)
    if not bad.any():
        return passed()
    stored = to_storage(bad.reshape(operation.output.shape), operation.output)
    detail = f"{bad.sum()} elements that do not depend on the {what} among the inputs are wrong"
    return _failed(context, launch, np.flatnonzero(stored), detail)


def _marked(spec: TensorSpec, positions: Positions) -> Mask:
    """`positions` in the flattened stored result, as a mask in its shape."""
    stored: Mask = np.zeros(spec.storage_shape, dtype=np.bool_)
    stored.reshape(-1)[positions] = True
    return stored


def _failed(context: Context, launch: Launch, positions: Positions, detail: str) -> CheckResult:
    """`positions` in the flattened stored result are wrong."""
    spec = context.operation.output
    bad = to_logical(_marked(spec, positions), spec)
    context.keep_evidence(launch, None, bad)
    index = np.unravel_index(int(bad.argmax()), bad.shape)
    value = to_float64(to_logical(launch.output, spec)[index].reshape(1))[0]
    return failed(detail, f"{[int(i) for i in index]}: got {float(value):.9g}")


def _different(left: Array, right: Array) -> Positions:
    """Positions where two flat arrays differ in their bits, found in pieces that stay in cache."""
    left, right = as_bits(left), as_bits(right)
    pieces = [slice(start, start + _PIECE) for start in range(0, left.size, _PIECE)]
    found = [one.start + np.flatnonzero(left[one] != right[one]) for one in pieces]
    return np.concatenate(found)


def _without(positions: Positions, left_out: Positions) -> Positions:
    """The `positions` that are not in `left_out`, which is sorted and not empty."""
    nearest: Positions = np.take(left_out, np.searchsorted(left_out, positions), mode="clip")
    is_other: Mask = nearest != positions
    return positions[is_other]


def shown(
    operation: Operation,
    values: Array,
    steps: Sequence[EpilogueStep],
    signs: npt.NDArray[np.int8] | None,
    *,
    is_infinite: bool,
) -> tuple[Mask, Mask]:
    """Which of the elements that depend on NaN, or on infinities of these `signs`, show it, and
    which show an infinity of the wrong sign.

    Args:
        steps: of the epilogue that follow where the special number enters.
        signs: 0: not known; None: none is known.
    """
    wide, dtype = to_float64(values), operation.signature.result
    shows: Mask = np.isnan(wide)
    turned = np.zeros_like(shows)
    clamps = {EpilogueStep.RELU}
    if is_infinite:
        is_large = np.isinf(wide) | (dtype.is_fp8 & (np.abs(wide) == dtype.maximum))
        shows |= is_large
        clamps.add(EpilogueStep.GELU)
        if signs is not None:
            turned = is_large & (signs != 0) & (np.sign(wide) != signs)
            if EpilogueStep.RELU in steps:
                turned |= np.isinf(wide) & (signs < 0)
    if clamps.isdisjoint(steps):
        return shows, turned
    # Zero for NaN by maxNum, for minus infinity, and for their sum with what follows.
    last = max(at for at, step in enumerate(steps) if step in clamps)
    is_clamped = wide == 0 if last == len(steps) - 1 else np.isfinite(wide)
    return shows | (is_clamped & (True if signs is None else signs <= 0)), turned
