"""Checks of scale: powers of two along K, subnormal numbers, and results beyond the format."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from gemmetry.domain.operation import Operation
from gemmetry.numerics.storage import Array, same_bytes
from gemmetry.verification.checks import values
from gemmetry.verification.checks.results import (
    CheckResult,
    failed,
    not_applicable,
    passed,
    property_of,
)
from gemmetry.verification.context import INTEGERS, Context
from gemmetry.verification.inputs import exact as exact_inputs
from gemmetry.verification.inputs.exact import ExactCase
from gemmetry.verification.inputs.scaled import (
    HONEST_SPAN,
    overflowing,
    scaled_along_k,
    subnormal,
)
from gemmetry.verification.inputs.special import objection
from gemmetry.verification.launching import Launch

_NO_ROOM = "the range of these formats is too small for such inputs"


def check_scaled_along_k(context: Context) -> CheckResult:
    """(A·D)·(D⁻¹·B) equals A·B, with D powers of two as far apart as the formats allow, up to
    2^±100: exactly on integers whose sums are exact, else within the bound."""
    name = "scaled_along_k"
    reason = objection(name, context.operation, context.declared)
    if reason:
        return not_applicable(name, reason)
    base = context.exact(INTEGERS, exact_inputs.integers)
    if base is None:
        return _within_bound(name, context)
    case = _derived(context, name, _scaled_case)
    if case is None:
        return not_applicable(name, _NO_ROOM)
    run = context.run_exact(name, case)
    was_wrong = bool(context.first_errors.bad_count)
    result = context.verdict_of_exact(name, run, guess=was_wrong)
    return _explained(context, result, run.launch, base.case.inputs)


def _within_bound(name: str, context: Context) -> CheckResult:
    """Used where no sums are exact: the caller's inputs, scaled, and compared by their bounds."""
    inputs = scaled_along_k(context.operation, context.inputs)
    if inputs is None:
        return not_applicable(name, _NO_ROOM)
    launch = context.launcher.launch(
        context.put(inputs), sentinel=context.launcher.sentinels[0], check_inputs=False
    )
    if launch.same_as(context.first):
        return passed(name)
    result = context.judge_by_bound(name, launch, context.reference)
    return _explained(context, result, launch, context.inputs)


def _explained(
    context: Context, result: CheckResult, launch: Launch, unscaled: Sequence[Array]
) -> CheckResult:
    """A failure that mentions what is special about these inputs, where others gave a correct
    result; a property where scaling by the largest number, as kernels honestly do, explains it."""
    if not result.is_failure or context.first_errors.bad_count:
        return result
    evidence = context.evidence.get(result.name)
    if _is_of_scale(context, result.name, launch, unscaled):
        return property_of(
            result.name,
            f"numbers that differ by up to 2^{HONEST_SPAN} along K count (or as far as their "
            "format reaches), at either end of the range, but not all that the formats allow: they "
            "share a scale with the largest one, of a row, a block or a tensor",
        )
    if evidence is not None:
        context.evidence[result.name] = evidence
    why = (
        "columns of A times powers of two and rows of B divided by them change no product, but "
        "the result is wrong: numbers share a scale (of a block or row), have a fixed point or a "
        "narrower range, or are cut off at an epsilon"
    )
    return failed(result.name, f"{why}; {result.detail}", result.first_bad)


def _is_of_scale(context: Context, name: str, wrong: Launch, unscaled: Sequence[Array]) -> bool:
    """Whether the result of `wrong` has the errors of honest scaling, and no others: the unscaled
    inputs are computed exactly, the result is outside its bound and the same when launched again,
    and results are within their bounds if numbers differ by :data:`HONEST_SPAN` only, at both ends
    of the range, which no threshold, fixed point or narrower range allows."""
    base = context.exact(INTEGERS, exact_inputs.integers)
    if base is not None and not base.is_right:
        return False
    reference = context.reference
    if unscaled is not context.inputs:
        reference = context.reference_of(unscaled)

    def is_wrong(inputs: Sequence[Array]) -> tuple[bool, Launch]:
        launch = context.launcher.launch(
            context.put(inputs), sentinel=context.launcher.sentinels[0], check_inputs=False
        )
        return context.judge_by_bound(name, launch, reference).is_failure, launch

    output = wrong.output
    still_wrong, again = is_wrong(wrong.inputs)
    if not still_wrong or not same_bytes(output, again.output):
        return False
    narrow = [scaled_along_k(context.operation, unscaled, end=end) for end in (0, 1)]
    return not any(inputs is None or is_wrong(inputs)[0] for inputs in narrow)


def check_subnormals(context: Context) -> CheckResult:
    """Inputs below the smallest normal number of a 16- or 8-bit format are not flushed to zero."""
    return _special(context, "subnormals", subnormal, values.judge_subnormals)


def check_overflow(context: Context) -> CheckResult:
    """Rows that overflow are infinite with the correct sign, and the rows between them are
    finite."""
    return _special(context, "overflow", overflowing, values.judge_overflow)


def _special(
    context: Context,
    name: str,
    make: Callable[[Operation, ExactCase], ExactCase | None],
    thorough: Callable[[Context], CheckResult],
) -> CheckResult:
    """Check on exact inputs, which need no further product; thorough checks also try others."""
    reason = objection(name, context.operation, context.declared)
    if reason:
        return not_applicable(name, reason)
    result = not_applicable(name, _NO_ROOM)
    if context.case(INTEGERS, exact_inputs.integers) is not None:
        case = _derived(context, name, make)
        if case is not None:
            result = context.verdict_of_exact(name, context.run_exact(name, case))
    if result.is_failure or not context.thorough:
        return result
    other = thorough(context)
    return other if other.is_failure or result.outcome is not passed(name).outcome else result


def _scaled_case(operation: Operation, case: ExactCase) -> ExactCase | None:
    inputs = scaled_along_k(operation, case.inputs)
    return None if inputs is None else replace(case, inputs=inputs)


def _derived(
    context: Context, name: str, make: Callable[[Operation, ExactCase], ExactCase | None]
) -> ExactCase | None:
    """The case that `make` derives from the exact integers; kept for the next dispatch of the
    operation."""
    base = context.case(INTEGERS, exact_inputs.integers)
    assert base is not None
    return context.case(name, lambda operation, *_: make(operation, base))
