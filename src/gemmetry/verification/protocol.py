"""Verifies an executable: runs the checks of a level and forms the verdict.

=========  ==================================================  ==================================
level      checks                                              cost, besides the reference
=========  ==================================================  ==================================
quick      form, written, inputs_unchanged, red_zones, values  one launch, one comparison
standard   ... second_launch, repeat, spoiled_scratch,         46 more launches, one float32
           integers, every_call, selects_lhs, selects_rhs,     product on the host (cached), a
           unknown_seed, scaled_along_k, subnormals,           dozen small shapes, 100 to 200
           overflow, fp8_promotion, scale_factors,             launches of one tile, hundreds of
           addend_cancels, in_place_change, follows_changes,   two (on a GPU 8 more under load, and
           nan_spreads, inf_spreads, unordered_work,           1500 of a few tiles)
           other_thread, unaligned_buffers, tail_shapes,       about 120 shapes with a launch
           many_shapes, long_axes, many_calls, structures,     each, and about 400 contents of
           ends_of_formats, special_numbers, rare_launches,    small shapes
           alpha_beta, results_stay; on a GPU under_load
paranoid   ... integer_ladder, zero_mean, same_sign,           37 more launches, six references,
           wide_range, cancellation, many_repeats,             about fifty small shapes, 800 to
           under_load on a CPU too                             1600 launches of one tile
=========  ==================================================  ==================================
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from gemmetry.domain.contracts import Executable
from gemmetry.domain.errors import UnknownNameError
from gemmetry.domain.operation import Operation
from gemmetry.domain.outcome import Verification
from gemmetry.domain.record import Verdict
from gemmetry.domain.settings import VERIFICATION_LEVELS as LEVELS
from gemmetry.numerics.accuracy import accuracy_class
from gemmetry.numerics.inputs import zero_share
from gemmetry.numerics.references import Reference
from gemmetry.numerics.storage import Array
from gemmetry.verification.checks import (
    calls,
    changes,
    contents,
    exact,
    long_axes,
    memory,
    repeats,
    rows,
    scale,
    shapes,
    special,
    stress,
    values,
)
from gemmetry.verification.checks.results import CheckOutcome, CheckResult
from gemmetry.verification.companions import Companions
from gemmetry.verification.context import Context
from gemmetry.verification.diagnosis.error_map import error_map
from gemmetry.verification.evidence import Evidence
from gemmetry.verification.launching import Launcher
from gemmetry.verification.on_device import ReferenceOnDevice
from gemmetry.verification.rivals import judge


@dataclass(frozen=True, slots=True)
class Check:
    """A check and the lowest level that runs it."""

    level: str
    run: Callable[[Context], CheckResult]
    launches: int = 0
    """Number of launches of the operation itself, in addition to those of earlier checks."""
    fewest: int | None = None
    """Number of launches where they are slow, as :func:`repeats.calls` counts; None: unchanged."""
    more_at_paranoid: int = 0
    """Additional launches at level paranoid; those under load are made at standard on a GPU."""

    @property
    def name(self) -> str:
        """Name in verdicts."""
        return self.run.__name__.removeprefix("check_")


CHECKS: tuple[Check, ...] = (
    Check("quick", memory.check_written, 1),
    Check("quick", memory.check_inputs_unchanged),
    Check("quick", memory.check_red_zones),
    Check("quick", values.check_values),
    Check("standard", repeats.check_second_launch, 1),
    Check("standard", repeats.check_repeat),
    Check("standard", stress.check_spoiled_scratch, 1),
    Check("standard", exact.check_integers, 1),
    Check("standard", repeats.check_every_call, repeats.CALLS, repeats.FEWEST_CALLS),
    Check("standard", exact.check_selects_lhs, 1),
    Check("standard", exact.check_selects_rhs, 1),
    Check("standard", exact.check_unknown_seed, 1),
    Check("standard", scale.check_scaled_along_k, 1),
    Check("standard", scale.check_subnormals, 1, more_at_paranoid=1),
    Check("standard", scale.check_overflow, 1, more_at_paranoid=1),
    Check("standard", exact.check_fp8_promotion, 1),
    Check("standard", exact.check_scale_factors, 1),
    Check("standard", exact.check_addend_cancels, 1),
    Check("standard", exact.check_in_place_change),
    Check("standard", changes.check_follows_changes, changes.MOST_CHANGES, changes.FEWEST_CHANGES),
    Check("standard", special.check_nan_spreads, 2),
    Check("standard", special.check_inf_spreads, 2),
    Check("standard", repeats.check_unordered_work, 1),
    Check("standard", repeats.check_other_thread, 4),
    Check("standard", memory.check_unaligned_buffers, 1),
    Check("standard", shapes.check_tail_shapes),
    Check("standard", shapes.check_many_shapes),
    Check("standard", long_axes.check_long_axes),
    Check("standard", calls.check_many_calls),
    Check("standard", contents.check_structures),
    Check("standard", contents.check_ends_of_formats),
    Check("standard", contents.check_special_numbers),
    Check("standard", stress.check_rare_launches),
    Check("standard", shapes.check_alpha_beta),
    Check("paranoid", exact.check_integer_ladder, 3),
    Check("paranoid", values.check_zero_mean, 1),
    Check("paranoid", values.check_same_sign, 1),
    Check("paranoid", values.check_wide_range, 1),
    Check("paranoid", values.check_cancellation, 1),
    Check("paranoid", repeats.check_many_repeats, repeats.REPEATS),
    Check(
        "standard",
        stress.check_under_load,
        fewest=repeats.FEWEST_CALLS,
        more_at_paranoid=stress.CALLS_UNDER_LOAD,
    ),
    Check("standard", repeats.check_results_stay),
)
"""The checks in the order in which they run; the first failure determines the reason. ``form``
comes before all of them, and ends the verification if it fails."""


_WITH_REASON = (CheckOutcome.NOT_APPLICABLE, CheckOutcome.INCOMPLETE, CheckOutcome.PROPERTY)


def missing_checks(verdict: Verdict, level: str) -> tuple[str, ...]:
    """Names of the checks of `level` without a result in `verdict`, which has not failed: each must
    be listed as passed or warned, or as not applicable, incomplete or a property with a reason."""
    wanted = LEVELS.index(level)
    names = ("form", *(one.name for one in CHECKS if LEVELS.index(one.level) <= wanted))
    return tuple(name for name in names if not _has_result(verdict, name))


def _has_result(verdict: Verdict, name: str) -> bool:
    # Without a reference, Freivalds' test replaces the comparison.
    names = (name, "freivalds") if name == "values" else (name,)
    texts = [verdict.checks[one] for one in names if one in verdict.checks]
    return any(
        outcome in (CheckOutcome.PASSED, CheckOutcome.WARNED)
        or (outcome in _WITH_REASON and reason.strip() != "")
        for outcome, _, reason in (text.partition(":") for text in texts)
    )


def launches(level: str, seconds_per_launch: float = 0.0) -> int:
    """The largest number of launches of the operation itself at `level`, if a launch takes
    `seconds_per_launch`; 0 for an unknown level."""
    if level not in LEVELS:
        return 0
    wanted, total = LEVELS.index(level), 0
    for check in CHECKS:
        if LEVELS.index(check.level) <= wanted:
            most = check.launches + (check.more_at_paranoid if level == LEVELS[-1] else 0)
            if most and check.fewest is not None:
                most = repeats.calls(seconds_per_launch, most, check.fewest)
            total += most
    return total


def verify(
    executable: Executable,
    operation: Operation,
    inputs: Sequence[Array],
    reference: Reference | None,
    *,
    level: str = "standard",
    seed: int = 42,
    companions: Companions | None = None,
    on_device: ReferenceOnDevice | None = None,
    judge_rivals: bool = False,
    row_invariance: str = rows.OFF,
    on_failure: Callable[[Evidence], str | None] | None = None,
    on_right: Callable[[str], None] | None = None,
) -> Verdict:
    """Launch `executable` and verify its results.

    Args:
        inputs: host arrays of ``operation.inputs``; they are uploaded once.
        reference: the reference of these inputs; None: the operation is too large for one, and
            Freivalds' test is used.
        level: one of :data:`LEVELS`.
        seed: seed of the inputs that checks create themselves.
        companions: builds the same configuration for other operations; None: checks that need it
            do not apply.
        on_device: keeps `reference` on the device for the next dispatch of the operation.
        row_invariance: see :mod:`gemmetry.verification.checks.rows`; ``off``, ``report`` or
            ``demand``.
        judge_rivals: also apply the checks of other harnesses to the first result.
        on_failure: called with the arrays of the first failed check that has any; returns the path
            of the saved arrays, for the verdict.
        on_right: called with the digest of the first result unless a check failed.

    Raises:
        UnknownNameError: there is no such level.
        LaunchError, OutOfMemoryError, DeviceLostError: a launch did not complete; there is no
            verdict.
    """
    if level not in LEVELS:
        raise UnknownNameError("verification level", level, LEVELS)
    tile = companions.tile if companions is not None else None
    context = Context(
        Launcher(executable, operation, tile),
        operation,
        tuple(inputs),
        reference,
        seed,
        companions,
        thorough=level == LEVELS[-1],
        on_device=on_device or ReferenceOnDevice(),
        wants_digest=on_right is not None,
    )
    results = [memory.check_form(context)]
    if not results[0].is_failure:
        wanted = LEVELS.index(level)
        results += [check.run(context) for check in CHECKS if LEVELS.index(check.level) <= wanted]
        if row_invariance != rows.OFF:
            results.append(rows.check_row_invariance(context, row_invariance))
    verdict = replace(_verdict(results), zero_share=zero_share(inputs))
    if judge_rivals and reference is not None:
        verdict = replace(verdict, rivals=judge(operation, context.first.output, reference))
    if not results[0].is_failure:
        verdict = _with_errors(verdict, context)
    if on_right is not None and verdict.status is not Verification.FAILED:
        on_right(context.first_digest)
    return _with_evidence(verdict, results, context, on_failure)


def _with_errors(verdict: Verdict, context: Context) -> Verdict:
    errors = context.first_errors
    if not errors.has_finite_errors:
        return verdict
    return replace(
        verdict,
        max_error_ratio=errors.max_ratio,
        relative_frobenius_error=errors.relative_frobenius,
        signed_bias=errors.signed_bias,
        accuracy_class=accuracy_class(context.operation, errors.largest_error),
    )


def _with_evidence(
    verdict: Verdict,
    results: Sequence[CheckResult],
    context: Context,
    on_failure: Callable[[Evidence], str | None] | None,
) -> Verdict:
    kept = (context.evidence.get(result.name) for result in results if result.is_failure)
    evidence = next((found for found in kept if found is not None), None)
    if evidence is None:
        return verdict
    if evidence.bad is not None:
        tile = context.companions.tile if context.companions is not None else None
        drawn = error_map(evidence.operation, evidence.bad, tile=tile)
        verdict = replace(verdict, error_map=drawn)
    path = on_failure(evidence) if on_failure is not None else None
    return replace(verdict, evidence_path=path)


def with_check(verdict: Verdict, result: CheckResult) -> Verdict:
    """`verdict` with one more check; a failed check makes it failed, a warning makes a passed one
    warned, and either is the reason then."""
    updated = replace(verdict, checks={**verdict.checks, result.name: result.text})
    if result.outcome is CheckOutcome.WARNED and verdict.status is Verification.PASSED:
        return replace(updated, status=Verification.WARNED, reason=_reason(result))
    if result.outcome is not CheckOutcome.FAILED or verdict.status is Verification.FAILED:
        return updated
    return replace(
        updated,
        status=Verification.FAILED,
        reason=_reason(result),
        first_bad=result.first_bad or None,
    )


def _verdict(results: Sequence[CheckResult]) -> Verdict:
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
        first_bad=(decisive.first_bad or None) if decisive else None,
        reason=_reason(decisive) if decisive else "",
        refused_shapes=sum(result.refused for result in results),
    )


def _reason(result: CheckResult) -> str:
    where = f"; first at {result.first_bad}" if result.first_bad else ""
    return f"{result.name}: {result.detail}{where}"
