"""Proves an executable right: runs the checks of a level and forms the verdict.

=========  ====================================================  ================================
level      checks                                                cost, besides the reference
=========  ====================================================  ================================
quick      form, written, inputs_unchanged, red_zones, values    one launch, one comparison
standard   … second_launch, repeat, integers, selects_lhs,       four more launches, one float32
           selects_rhs                                           product on the host (cached)
paranoid   … zero_mean, many_repeats                             21 more launches, one reference
=========  ====================================================  ================================
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from gemmetry.domain.contracts import Executable
from gemmetry.domain.errors import UnknownNameError
from gemmetry.domain.operation import Operation
from gemmetry.domain.outcome import Verification
from gemmetry.domain.record import Verdict
from gemmetry.numerics.accuracy import accuracy_class
from gemmetry.numerics.inputs import zero_share
from gemmetry.numerics.references import Reference
from gemmetry.numerics.storage import Array, numpy_dtype
from gemmetry.verification import checks
from gemmetry.verification.checks import CheckFunction, CheckOutcome, CheckResult, Context
from gemmetry.verification.comparison import compare
from gemmetry.verification.diagnosis import guess_bug
from gemmetry.verification.launching import Launcher

LEVELS = ("quick", "standard", "paranoid")


@dataclass(frozen=True, slots=True)
class Check:
    """A check and the least level that runs it."""

    level: str
    run: CheckFunction


CHECKS: tuple[Check, ...] = (
    Check("quick", checks.check_written),
    Check("quick", checks.check_inputs_unchanged),
    Check("quick", checks.check_red_zones),
    Check("quick", checks.check_values),
    Check("standard", checks.check_second_launch),
    Check("standard", checks.check_repeat),
    Check("standard", checks.check_integers),
    Check("standard", checks.check_selects_lhs),
    Check("standard", checks.check_selects_rhs),
    Check("paranoid", checks.check_zero_mean),
    Check("paranoid", checks.check_many_repeats),
)
"""In order of running, which is the order in which the first failure gives the reason."""

LAUNCHES = {"quick": 1, "standard": 5, "paranoid": 6 + checks.REPEATS}
"""Level -> launches that it makes, where all of its checks apply."""


def verify(
    executable: Executable,
    operation: Operation,
    inputs: Sequence[Array],
    reference: Reference,
    *,
    level: str = "standard",
    seed: int = 42,
) -> Verdict:
    """Launch `executable` and judge what comes out.

    Args:
        inputs: host arrays of ``operation.inputs``; they are uploaded anew for each launch.
        reference: of these inputs.
        level: one of :data:`LEVELS`.
        seed: of the inputs that checks make themselves.

    Raises:
        UnknownNameError: no such level.
        LaunchError, OutOfMemoryError, DeviceLostError: a launch did not end; no verdict then.
    """
    if level not in LEVELS:
        raise UnknownNameError("verification level", level, LEVELS)
    context = Context(Launcher(executable, operation), operation, inputs, reference, seed)
    results = [checks.check_form(context)]
    share = zero_share(inputs)
    if results[0].outcome is CheckOutcome.FAILED:
        return _verdict(results, zero_share=share)
    wanted = LEVELS.index(level)
    results += [check.run(context) for check in CHECKS if LEVELS.index(check.level) <= wanted]
    errors = context.first_errors
    if not errors.has_finite_errors:
        return _verdict(results, zero_share=share)
    return replace(
        _verdict(results, zero_share=share),
        max_error_ratio=errors.max_ratio,
        relative_frobenius_error=errors.relative_frobenius,
        signed_bias=errors.signed_bias,
        accuracy_class=accuracy_class(operation, errors.largest_error),
    )


def recheck(
    operation: Operation, outputs: Iterable[tuple[str, Array]], reference: Reference
) -> CheckResult:
    """Judge what timed launches left behind: every output, not just the last one.

    Args:
        outputs: (name, host array in storage shape) pairs.

    Returns:
        The check ``after_timing``; :func:`with_check` adds it to the verdict.
    """
    name = "after_timing"
    spec = operation.output
    for label, output in outputs:
        if output.dtype != numpy_dtype(spec.dtype) or output.shape != spec.storage_shape:
            return checks.failed(name, f"{label}: it is {output.dtype} of shape {output.shape}")
        errors = compare(operation, output, reference)
        if errors.bad is not None:
            guess = guess_bug(operation, output, reference.value, errors.bad)
            share = f"{errors.bad_count} of {errors.elements} elements are wrong ({guess})"
            return checks.failed(name, f"{label}: {share}", errors.first_bad)
    return checks.passed(name)


def with_check(verdict: Verdict, result: CheckResult) -> Verdict:
    """`verdict` with one more check; a failure makes it failed, and is the reason if the verdict
    had not failed before."""
    updated = replace(verdict, checks={**verdict.checks, result.name: result.text})
    if result.outcome is not CheckOutcome.FAILED or verdict.status is Verification.FAILED:
        return updated
    return replace(
        updated,
        status=Verification.FAILED,
        reason=_reason(result),
        first_bad=result.first_bad or None,
    )


def _verdict(results: Sequence[CheckResult], *, zero_share: float) -> Verdict:
    decisive = next(
        (
            result
            for outcome in (CheckOutcome.FAILED, CheckOutcome.WARNED)
            for result in results
            if result.outcome is outcome
        ),
        None,
    )
    status = Verification.PASSED
    if decisive is not None:
        is_failure = decisive.outcome is CheckOutcome.FAILED
        status = Verification.FAILED if is_failure else Verification.WARNED
    return Verdict(
        status=status,
        checks={result.name: result.text for result in results},
        zero_share=zero_share,
        first_bad=(decisive.first_bad or None) if decisive else None,
        reason=_reason(decisive) if decisive else "",
    )


def _reason(result: CheckResult) -> str:
    where = f"; first at {result.first_bad}" if result.first_bad else ""
    return f"{result.name}: {result.detail}{where}"
