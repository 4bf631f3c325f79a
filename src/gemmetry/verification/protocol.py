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

NVIDIA's compute-sanitizer: locates it, builds its command line and parses its output.

The tools instrument a launch and detect errors that no result shows: accesses outside an allocation
(memcheck), unordered accesses to shared memory (racecheck), misuse of barriers (synccheck), reads
of uninitialised global memory (initcheck). The manual, "Compute Sanitizer" at
docs.nvidia.com/compute-sanitizer, defines options and output.

Determines whether a wrong kernel would be correct for an operation with a narrower
accumulator.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial, reduce
from pathlib import Path

from gemmetry.domain.contracts import Executable
from gemmetry.domain.errors import DispatchError, UnknownNameError, Verification
from gemmetry.domain.operation import BF16, F16, Operation
from gemmetry.domain.record import Verdict
from gemmetry.domain.settings import VERIFICATION_LEVELS as LEVELS
from gemmetry.numerics.bounds import accuracy_class
from gemmetry.numerics.inputs import zero_share
from gemmetry.numerics.references import Reference
from gemmetry.numerics.storage import Array
from gemmetry.verification.after_timing import ReferenceOnDevice, judge
from gemmetry.verification.checks import (
    CheckOutcome,
    CheckResult,
    calls,
    changes,
    contents,
    exact,
    failed,
    memory,
    not_applicable,
    passed,
    shapes,
    special,
    warned,
)
from gemmetry.verification.companions import Companions
from gemmetry.verification.comparison import Evidence
from gemmetry.verification.context import Context, run_check
from gemmetry.verification.guess import error_map
from gemmetry.verification.launching import Launcher


@dataclass(frozen=True, slots=True)
class Check:
    """A check and the lowest level that runs it."""

    level: str
    run: Callable[[Context], CheckResult]
    launches: int = 0
    """Number of launches of the operation itself, in addition to those of earlier checks."""
    fewest: int | None = None
    """Number of launches where they are slow, as :func:`calls.calls` counts; None: unchanged."""
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
    Check("quick", memory.check_values),
    Check("standard", calls.check_second_launch, 1),
    Check("standard", calls.check_repeat),
    Check("standard", calls.check_spoiled_scratch, 1),
    Check("standard", exact.check_integers, 1),
    Check("standard", calls.check_every_call, calls.CALLS, calls.FEWEST_CALLS),
    Check("standard", exact.check_selects_lhs, 1),
    Check("standard", exact.check_selects_rhs, 1),
    Check("standard", exact.check_unknown_seed, 1),
    Check("standard", exact.check_scaled_along_k, 1),
    Check("standard", exact.check_subnormals, 1, more_at_paranoid=1),
    Check("standard", exact.check_overflow, 1, more_at_paranoid=1),
    Check("standard", exact.check_fp8_promotion, 1),
    Check("standard", exact.check_scale_factors, 1),
    Check("standard", exact.check_addend_cancels, 1),
    Check("standard", exact.check_in_place_change),
    Check("standard", changes.check_follows_changes, changes.MOST_CHANGES, changes.FEWEST_CHANGES),
    Check("standard", special.check_nan_spreads, 2),
    Check("standard", special.check_inf_spreads, 2),
    Check("standard", calls.check_unordered_work, 1),
    Check("standard", calls.check_other_thread, 4),
    Check("standard", memory.check_unaligned_buffers, 1),
    Check("standard", shapes.check_tail_shapes),
    Check("standard", shapes.check_many_shapes),
    Check("standard", shapes.check_long_axes),
    Check("standard", calls.check_many_calls),
    Check("standard", contents.check_structures),
    Check("standard", contents.check_ends_of_formats),
    Check("standard", contents.check_special_numbers),
    Check("standard", calls.check_rare_launches),
    Check("standard", shapes.check_alpha_beta),
    Check("paranoid", exact.check_integer_ladder, 3),
    Check("paranoid", memory.check_zero_mean, 1),
    Check("paranoid", memory.check_same_sign, 1),
    Check("paranoid", memory.check_wide_range, 1),
    Check("paranoid", memory.check_cancellation, 1),
    Check("paranoid", calls.check_many_repeats, calls.REPEATS),
    Check("standard", calls.check_under_load, 0, calls.FEWEST_CALLS, calls.CALLS_UNDER_LOAD),
    Check("standard", calls.check_results_stay),
)
"""The checks in the order in which they run; the first failure determines the reason. ``form``
comes before all of them, and ends the verification if it fails."""


def checks_of(level: str) -> list[Check]:
    """The checks that run at `level`."""
    wanted = LEVELS[: LEVELS.index(level) + 1]
    return [check for check in CHECKS if check.level in wanted]


_WITH_REASON = (CheckOutcome.NOT_APPLICABLE, CheckOutcome.INCOMPLETE, CheckOutcome.PROPERTY)


def missing_checks(verdict: Verdict, level: str) -> tuple[str, ...]:
    """Names of the checks of `level` without a result in `verdict`, which has not failed: each must
    be listed as passed or warned, or as not applicable, incomplete or a property with a reason."""
    names = ("form", *(one.name for one in checks_of(level)))
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
    total = 0
    for check in checks_of(level):
        most = check.launches + (check.more_at_paranoid if level == LEVELS[-1] else 0)
        if most and check.fewest is not None:
            most = calls.calls(seconds_per_launch, most, check.fewest)
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
    row_invariance: str = contents.OFF,
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
        row_invariance: see :mod:`gemmetry.verification.checks.contents`; ``off``, ``report`` or
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
    launcher, is_thorough = Launcher(executable, operation, tile), level == LEVELS[-1]
    context = Context(launcher, operation, tuple(inputs), reference, seed, companions, is_thorough)
    context.on_device = on_device or context.on_device
    context.wants_digest = on_right is not None
    results = [run_check(context, memory.check_form)]
    if not results[0].is_failure:
        results += [run_check(context, check.run) for check in checks_of(level)]
        if row_invariance != contents.OFF:
            check = partial(contents.check_row_invariance, wanted=row_invariance)
            results.append(run_check(context, check))
    verdict = reduce(with_check, results, Verdict(status=Verification.PASSED))
    refused = sum(result.refused for result in results)
    verdict = replace(verdict, zero_share=zero_share(inputs), refused_shapes=refused)
    if judge_rivals and reference is not None:
        verdict = replace(verdict, rivals=judge(operation, context.first.output, reference))
    if not results[0].is_failure and context.first_errors.has_finite_errors:
        errors = context.first_errors
        verdict = replace(
            verdict,
            max_error_ratio=errors.max_ratio,
            relative_frobenius_error=errors.relative_frobenius,
            signed_bias=errors.signed_bias,
            accuracy_class=accuracy_class(operation, errors.largest_error),
        )
    if on_right is not None and verdict.status is not Verification.FAILED:
        on_right(context.first_digest)
    kept = (context.evidence.get(result.name) for result in results if result.is_failure)
    evidence = next(filter(None, kept), None)
    if evidence is not None and evidence.bad is not None:
        drawn = error_map(evidence.operation, evidence.bad, tile=tile)
        verdict = replace(verdict, error_map=drawn)
    if evidence is not None and on_failure is not None:
        verdict = replace(verdict, evidence_path=on_failure(evidence))
    return verdict


def with_check(verdict: Verdict, result: CheckResult) -> Verdict:
    """`verdict` with one more check; a failed check makes it failed, a warning makes a passed one
    warned, and either is the reason then."""
    updated = replace(verdict, checks={**verdict.checks, result.name: result.text})
    where = f"; first at {result.first_bad}" if result.first_bad else ""
    reason = f"{result.name}: {result.detail}{where}"
    if result.outcome is CheckOutcome.WARNED and verdict.status is Verification.PASSED:
        return replace(updated, status=Verification.WARNED, reason=reason)
    if not result.is_failure or verdict.status is Verification.FAILED:
        return updated
    first_bad = result.first_bad or None
    return replace(updated, status=Verification.FAILED, reason=reason, first_bad=first_bad)


PROGRAM = "compute-sanitizer"

ERROR_EXIT_STATUS = 86
"""Exit status requested of the tool when it has findings; no other program here uses it."""

PRINTED_ERRORS = 20
"""Findings that the tool prints; it counts all of them."""

_PREFIX = "========="
_SUMMARY = re.compile(
    r"^=+ (?:ERROR|RACECHECK) SUMMARY: (?P<count>\d+) "
    r"(?:errors?|hazards? displayed(?: \((?P<errors>\d+) errors?, \d+ warnings?\))?)"
)
_REFUSED = re.compile(r"device not supported|not supported on this|InitializationError", re.I)
_NOT_A_FINDING = re.compile(r"^(COMPUTE-SANITIZER|Program hit |Target application returned|$)")
_DETAILS = ("at ", "and ", "by thread", "Address ", "Access at ")
_MAX_FINDING = 300


def find_sanitizer(environment: Mapping[str, str]) -> Path | None:
    """The program on PATH, or in ``bin`` of CUDA_HOME or CUDA_PATH; None if it is not found."""
    roots = filter(None, map(environment.get, ("CUDA_HOME", "CUDA_PATH")))
    folders = [environment.get("PATH", os.defpath), *(str(Path(root) / "bin") for root in roots)]
    found = shutil.which(PROGRAM, path=os.pathsep.join(folders))
    return Path(found) if found else None


def sanitizer_command(program: Path, tool: str, command: Sequence[str]) -> list[str]:
    """`command` under `tool`. Failing calls of the CUDA API are not findings: libraries probe for
    features by calls that may fail."""
    return [
        str(program),
        "--tool", tool,
        "--error-exitcode", str(ERROR_EXIT_STATUS),
        "--print-limit", str(PRINTED_ERRORS),
        "--report-api-errors", "no",
        *command,
    ]  # fmt: skip


def sanitizer_result(
    name: str, output: str, status: int | None, *, launched: bool, seconds: float
) -> CheckResult:
    """The findings of one launch under the tool `name`, as the result of the check with its name.

    Only findings fail the check. If the tool could not do its work (unsupported device, time limit
    reached, launch failed for another reason), the check does not apply.

    Args:
        output: standard output and error together.
        status: exit status; None: the launch was stopped when it had taken `seconds`.
        launched: whether the program got as far as launching the dispatch.
    """
    if status is None:
        return not_applicable(f"it did not end within {seconds:g} s", name)
    lines = [line.rstrip() for line in output.splitlines()]
    reported = [line for line in lines if line.startswith(_PREFIX)]
    refusal = next((line for line in reported if _REFUSED.search(line)), "")
    if refusal:
        return not_applicable(f"the tool failed: {_strip(refusal)}", name)
    summary = next((match for line in reported if (match := _SUMMARY.match(line))), None)
    if summary is None or not launched:
        return not_applicable(f"no launch under the tool: {_why(reported, lines, status)}", name)
    count = int(summary["count"])
    if count == 0:
        if status not in (0, ERROR_EXIT_STATUS):
            return not_applicable(f"the launch failed: {_why([], lines, status)}", name)
        return passed(name=name)
    finding = f"{count} found, first: {_first_finding(reported)}"
    if int(summary["errors"] or count) == 0:
        return warned(finding, name)
    return failed(finding, name=name)


def _first_finding(reported: Sequence[str]) -> str:
    """The first finding's headline and location, on one line."""
    parts: list[str] = []
    for line in reported:
        text = _strip(line)
        is_finding = not _SUMMARY.match(line) and not _NOT_A_FINDING.match(text)
        if parts and not (is_finding and text.startswith(_DETAILS)):
            break
        if is_finding:
            parts.append(text)
    return " ".join(parts)[:_MAX_FINDING] or "it printed no details"


def _why(reported: Sequence[str], lines: Sequence[str], status: int) -> str:
    """The most informative line of a run without a summary."""
    errors = [_strip(line) for line in reported if "Error" in line]
    if errors:
        return errors[0][:_MAX_FINDING]
    own = [line.strip() for line in lines if line.strip() and not line.startswith(_PREFIX)]
    return own[-1][:_MAX_FINDING] if own else f"the program ended with status {status}"


def _strip(line: str) -> str:
    return line.removeprefix(_PREFIX).strip()


_CLASSES = ("fp16-accumulated", "bf16-accumulated")
"""Accuracy classes whose errors a 16-bit accumulator causes; smaller errors have another cause, and
no accumulator explains larger ones."""


def with_accumulator_hint(
    verdict: Verdict,
    operation: Operation,
    inputs: Sequence[Array],
    reference: Reference | None,
    companions: Companions | None,
    *,
    level: str,
    seed: int,
) -> Verdict:
    """`verdict`, whose reason names the option ``--accumulator`` where that option makes the kernel
    correct.

    A kernel that keeps its sums in bf16 or f16 is wrong for an operation that accumulates in f32,
    and correct for one that accumulates in that format. The bounds of such sums are so wide that
    many bugs stay within them, so nothing is concluded from the errors alone: the same
    configuration is built for the operation with the narrower accumulator and verified at the same
    `level`, and the option is named only if it passes.

    Args:
        inputs, reference: of `operation`; they are the same whatever the accumulator.
        companions: builds other operations; None: nothing is tried.

    Raises:
        DeviceLostError: the device was lost during the attempt.
    """
    is_tried = verdict.status is Verification.FAILED and verdict.accuracy_class in _CLASSES
    if not is_tried or companions is None:
        return verdict
    own, s = replace(companions, known={}), operation.signature
    narrower = [one for one in (F16, BF16) if one.significand_bits < s.accumulator.significand_bits]
    # Each 16-bit format among the tensors that is narrower than the accumulator.
    for accumulator in dict.fromkeys((s.result, s.lhs, s.rhs)):
        if accumulator not in narrower:
            continue
        narrow = Operation(replace(s, accumulator=accumulator), operation.shape)
        with suppress(DispatchError), companions.built(narrow) as executable:
            if executable is None:
                continue
            found = verify(
                executable, narrow, inputs, reference, level=level, seed=seed, companions=own
            )
            if found.status is not Verification.FAILED:
                hint = f"it is correct as a kernel that accumulates in {accumulator}: --accumulator"
                return replace(verdict, reason=f"{verdict.reason}; {hint} {accumulator}")
    return verdict
