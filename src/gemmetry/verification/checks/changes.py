"""The check on inputs that change a little, and on results that must follow."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gemmetry.domain.contracts import Buffer
from gemmetry.domain.operation import Operation
from gemmetry.domain.traits import Trait
from gemmetry.numerics.changes import (
    Change,
    ChangeKind,
    changeable,
    changed_inputs,
    changed_reference,
    draw_change,
    part_with_lines,
    reference_with_lines,
    result_edits,
    split_lines,
    take_lines,
    with_lines,
)
from gemmetry.numerics.editing import prepared_edits
from gemmetry.numerics.references import to_logical
from gemmetry.numerics.storage import Array, same_bytes
from gemmetry.verification import exact_inputs
from gemmetry.verification.checks.repeats import calls
from gemmetry.verification.checks.results import CheckResult, failed, not_applicable, passed
from gemmetry.verification.context import INTEGERS, Context, ExactRun
from gemmetry.verification.exact_inputs import ExactCase
from gemmetry.verification.launching import Launch

NAME = "follows_changes"

MOST_CHANGES = 8
"""Launches of the check."""

FEWEST_CHANGES = 2
"""Where launches are slow: one of A, one of B."""


def changes_of(operation: Operation) -> list[tuple[ChangeKind, int]]:
    """What changes before each launch, and in which operand. Whatever short of all contents a
    kernel looks at to know its inputs again, one of these leaves it as it was: any operand, sums
    over all of A or B or over a line, magnitudes, any few elements or lines, addresses, the version
    that a library counts, how often and when it was called."""
    others = [(ChangeKind.NEGATED, place) for place in changeable(operation) if place > 1]
    kinds = ChangeKind.SWAPPED, ChangeKind.NEGATED, ChangeKind.ELEMENTS_SWAPPED
    both = [(kind, place) for kind in kinds for place in (0, 1)]
    first = [(ChangeKind.ONE_ELEMENT, place) for place in (0, 1)]
    return [*first, *others, *both][:MOST_CHANGES]


def check_follows_changes(context: Context) -> CheckResult:
    """Launches behind each other without waiting are right although before each of them a little of
    one operand changes in place, by a copy in memory, and nothing else does.

    Inputs are integers whose sums are exact, so that each result is known to the bit: it is that of
    the unchanged inputs but for the lines that the change goes into, which are computed apart. All
    launches write the same output, which holds the result before; results that a function returns
    are looked at when all have run.
    """
    run = context.exact(INTEGERS, exact_inputs.integers)
    if run is None and context.reference is None:
        return not_applicable(NAME, "there is neither a reference nor an exact one")
    if run is not None and not run.is_right:
        return not_applicable(NAME, "the result is wrong before anything changes")
    inputs = context.inputs if run is None else run.case.inputs
    # At the same places in every process, elsewhere for each operation.
    rng = np.random.default_rng([context.seed % 2**64, *context.operation.matmul_shape])
    count = calls(context.first.seconds, MOST_CHANGES, FEWEST_CHANGES)
    wanted = changes_of(context.operation)[:count]
    changes = [draw_change(context.operation, inputs, kind, place, rng) for kind, place in wanted]
    lines = {} if run is None else _exact_lines(context, run.case, changes)
    launches = context.launcher.queue_changes(context.put(inputs), changes)
    for number, (change, (launch, returned)) in enumerate(
        zip(changes, launches, strict=True), start=1
    ):
        case = lines.get(change)
        if launch.returned_type:
            return failed(NAME, f"call {number} of {count}: the result is a {launch.returned_type}")
        if run is None or case is None or not _is_wanted(context, run, change, case, launch):
            result = _judge(context, run, change, case, launch)
            if result.is_failure:
                return _explained(context, run, change, launch, result)
        if returned is not None and _is_overwritten(context, returned, launch):
            return failed(
                NAME,
                f"the result that call {number} of {count} returned was overwritten by a later "
                "call, on other inputs: return memory of its own for each (or declare "
                f"{Trait.REUSES_RESULTS})",
            )
    return passed(NAME)


def _exact_lines(
    context: Context, case: ExactCase, changes: Sequence[Change]
) -> dict[Change, ExactCase]:
    """Change -> the lines of the result that it goes into. Where they are known to the bit, one
    product gives those of an operand, as widening the other one takes longer than multiplying."""
    operation = context.operation

    def lines_of(some: Sequence[Change]) -> ExactCase:
        return context.case_of(*part_with_lines(operation, case.inputs, some))

    if case.expected is None:
        return {change: lines_of([change]) for change in changes}
    found: dict[Change, ExactCase] = {}
    for place in range(len(operation.inputs)):
        of_place = [change for change in changes if change.place == place]
        expected = lines_of(of_place).expected if of_place else None
        if expected is not None:
            for change, lines in split_lines(operation, of_place, expected):
                found[change] = ExactCase((), lines, None)
    return found


def _is_wanted(
    context: Context, run: ExactRun, change: Change, case: ExactCase, launch: Launch
) -> bool:
    """Whether the result is, bit for bit, the one before with new lines; compared on the device, in
    the memory of the one before. Zeros of the other sign are right too, and looked at on the
    host."""
    operation, device = context.operation, context.launcher.device
    if case.expected is None or run.case.expected is None:
        return False

    def put(lines: Array) -> None:
        spec, before = operation.output, run.launch.result
        edits = result_edits(operation, change, lines)
        for edit in prepared_edits(device, (spec,), (before,), edits):
            edit()

    put(case.expected)
    is_same = device.same_bytes(launch.result, run.launch.result)
    put(take_lines(operation, run.case.expected, change))
    return is_same


def _judge(
    context: Context, run: ExactRun | None, change: Change, case: ExactCase | None, launch: Launch
) -> CheckResult:
    """On the host, element by element."""
    operation = context.operation
    launch.inputs = changed_inputs(operation, launch.inputs, change)
    if run is None or case is None:
        assert context.reference is not None
        reference = changed_reference(operation, context.inputs, context.reference, change)
        return context.judge_by_bound(NAME, launch, reference)
    if case.reference is None or run.case.reference is None:
        assert case.expected is not None and run.case.expected is not None
        expected = with_lines(operation, run.case.expected, change, case.expected)
        whole = ExactCase((), expected, None)
    else:
        joined = reference_with_lines(operation, run.case.reference, change, case.reference)
        whole = ExactCase((), None, joined, run.case.folded_terms)
    return context.verdict_of_exact(NAME, context.judged(whole, launch))


def _explained(
    context: Context, run: ExactRun | None, change: Change, launch: Launch, result: CheckResult
) -> CheckResult:
    """`result`, a failure, with a word on results that do not follow at all."""
    before = (context.first if run is None else run.launch).output
    spec = context.operation.output
    how = f"with {change} in place, all else as before"
    if launch.output.shape == before.shape:
        got, kept = (
            take_lines(context.operation, to_logical(array, spec), change)
            for array in (launch.output, before)
        )
        if same_bytes(got, kept):
            how += (
                ", that line of the result is what it was: something is kept between launches and "
                "found again by what did not change"
            )
    return failed(NAME, f"{how}: {result.detail}", result.first_bad)


def _is_overwritten(context: Context, returned: Buffer, launch: Launch) -> bool:
    if Trait.REUSES_RESULTS in context.declared:
        return False
    return not context.launcher.device.same_bytes(returned, launch.result)
