"""Checks by value: every element is within its error bound, on inputs of several kinds."""

from __future__ import annotations

from collections.abc import Callable

from gemmetry.domain.operation import Operation
from gemmetry.numerics.inputs import make_inputs
from gemmetry.numerics.storage import Array
from gemmetry.verification.checks.results import CheckResult, not_applicable, passed
from gemmetry.verification.context import Context
from gemmetry.verification.inputs import special as special_inputs

Inputs = tuple[Array, ...]


def check_values(context: Context) -> CheckResult:
    """Every element is within its error bound of the float64 (integers: exact) reference. Without a
    reference the check is named ``freivalds`` and tests sums over rows and columns."""
    if context.reference is None:
        return context.judge_sums("freivalds", context.first, context.first_sums)
    return context.judge("values", context.first, context.reference.value, context.first_errors)


def check_zero_mean(context: Context) -> CheckResult:
    """Normal inputs: products cancel, so small errors are not hidden by a large result."""
    inputs = make_inputs(context.operation, distribution="normal", seed=context.seed + 1)
    return _judge(context, "zero_mean", inputs)


def check_same_sign(context: Context) -> CheckResult:
    """U[0, 1): nothing cancels, so truncation errors add up."""
    inputs = make_inputs(context.operation, distribution="uniform", seed=context.seed + 1)
    return _judge(context, "same_sign", inputs)


def check_wide_range(context: Context) -> CheckResult:
    """Inputs spread over up to 2^±12: products differ by a factor of 2^48."""
    return _special(context, "wide_range", special_inputs.wide_range)


def check_cancellation(context: Context) -> CheckResult:
    """Products that cancel to zero: the remainder must be small compared with |A||B|."""
    return _special(context, "cancellation", special_inputs.cancellation)


def judge_subnormals(context: Context) -> CheckResult:
    """A below the smallest normal number of a 16- or 8-bit format, compared with its own
    reference."""
    return _special(context, "subnormals", special_inputs.subnormals)


def judge_overflow(context: Context) -> CheckResult:
    """Every other row of a result of one sign overflows, compared with its own reference."""
    return _special(context, "overflow", special_inputs.overflow)


def _special(
    context: Context, name: str, make: Callable[[Operation, int], Inputs | None]
) -> CheckResult:
    reason = special_inputs.objection(name, context.operation, context.declared)
    if reason:
        return not_applicable(name, reason)
    inputs = make(context.operation, context.seed)
    if inputs is None:
        return not_applicable(name, "the range of these formats is too small for such inputs")
    # Errors on extreme inputs may be larger than usual; only wrong elements count.
    result = _judge(context, name, inputs)
    return result if result.is_failure else passed(name)


def _judge(context: Context, name: str, inputs: Inputs) -> CheckResult:
    reference = context.reference_of(inputs)
    launch = context.launcher.launch(
        context.put(inputs), sentinel=context.launcher.sentinels[0], check_inputs=False
    )
    return context.judge_by_bound(name, launch, reference)
