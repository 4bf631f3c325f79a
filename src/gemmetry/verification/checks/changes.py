"""The check that results follow small changes of the inputs."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing

import numpy as np

from gemmetry.domain.contracts import Buffer
from gemmetry.domain.traits import Trait
from gemmetry.numerics.changes import (
    InputChange,
    changed_inputs,
    changed_reference,
    part_with_lines,
    reference_with_lines,
    result_edits,
    split_lines,
    take_lines,
    with_lines,
)
from gemmetry.numerics.editing import prepared_edits
from gemmetry.numerics.references import Reference, to_logical
from gemmetry.numerics.storage import Array, same_bytes, to_float64
from gemmetry.verification.checks.repeats import calls
from gemmetry.verification.checks.results import CheckResult, failed, not_applicable, passed
from gemmetry.verification.context import INTEGERS, Context, ExactRun
from gemmetry.verification.inputs import exact as exact_inputs
from gemmetry.verification.inputs.exact import ExactCase
from gemmetry.verification.inputs.small_changes import ChangeStep, changes_of, draw_steps
from gemmetry.verification.launching import Launch

NAME = "follows_changes"

MOST_CHANGES = 12
"""Number of launches of the check if nothing is added to the product and nothing scales it; each
operand that does so adds up to three."""

FEWEST_CHANGES = 2
"""Number of changes where launches are slow: one of A, one of B."""


def check_follows_changes(context: Context) -> CheckResult:
    """Launches queued without waiting are correct even though a small part of one operand, and
    nothing else, changes in place by a memory copy before each of them.

    Inputs are integers whose sums are exact, so that every bit of each result is known: it equals
    the previous result except for the lines that the change affects, which are computed separately.
    All launches write the same output, which holds the previous result; results that a function
    returns are examined after all launches. See :mod:`gemmetry.verification.inputs.small_changes`
    for the changes.
    """
    run = context.exact(INTEGERS, exact_inputs.integers)
    if run is None and context.reference is None:
        return not_applicable(NAME, "there is neither a reference nor an exact result")
    if run is not None and not run.is_right:
        return not_applicable(NAME, "the result is wrong before anything changes")
    inputs = context.inputs if run is None else run.case.inputs
    # The places are the same in every process, and differ between operations.
    rng = np.random.default_rng([context.seed % 2**64, *context.operation.matmul_shape])
    wanted = changes_of(context.operation)
    wanted = wanted[: calls(context.first.seconds, len(wanted), FEWEST_CHANGES)]
    steps = draw_steps(context.operation, inputs, wanted, rng)
    answer = _Answer(context, run, steps)
    before = context.first if run is None else run.launch
    queued = context.launcher.queue_changes(context.put(inputs), [step.change for step in steps])
    with closing(queued) as launches:
        for number, (step, (launch, returned)) in enumerate(
            zip(steps, launches, strict=True), start=1
        ):
            call = f"call {number} of {len(steps)}"
            if launch.returned_type:
                answer.restore()
                return failed(NAME, f"{call}: the result is a {launch.returned_type}")
            result = answer.judge(number, launch)
            if result.is_failure:
                answer.restore()
                return _explained(context, step, launch, before, result)
            if returned is not None and _is_overwritten(context, returned, launch):
                answer.restore()
                return failed(
                    NAME,
                    f"the result that {call} returned was overwritten by a later call on other "
                    "inputs: return separate memory for each (or declare "
                    f"{Trait.REUSES_RESULTS})",
                )
            before = launch
    answer.restore()
    return passed(NAME)


class _Answer:
    """The expected results, one after the other.

    Where every bit is known, results are compared on the device, in the memory of the result of the
    unchanged inputs; zeros of either sign are correct, and are checked on the host.
    """

    def __init__(self, context: Context, run: ExactRun | None, steps: Sequence[ChangeStep]) -> None:
        self._context = context
        self._run = run
        self._steps = steps
        self._lines = {} if run is None else self._exact_lines(run.case)
        self._reference = context.reference if run is None else run.case.reference
        """Reference with all changes so far; None where every bit of the results is known."""

    def judge(self, number: int, launch: Launch) -> CheckResult:
        """Verify `launch`, which followed the change with this number, counted from 1; to be called
        in order."""
        step, context = self._steps[number - 1], self._context
        case = self._lines.get(step.change)
        if self._run is not None and case is not None and case.expected is not None:
            if step.change.lines and self._is_as_on_device(step, case.expected, launch):
                return passed(NAME)
            launch.inputs = self._inputs(number)
            expected = self._expected(number, launch)
            return context.verdict_of_exact(NAME, context.judged(_known(expected), launch))
        assert self._reference is not None
        launch.inputs = self._inputs(number)
        operation = context.operation
        whole = self._reference
        if not step.change.lines:
            whole = _of_result(whole, to_logical(launch.output, operation.output))
        if self._run is None or case is None:
            whole = changed_reference(operation, step.inputs, whole, step.seen)
        else:
            assert case.reference is not None
            whole = reference_with_lines(operation, whole, step.seen, case.reference)
        if step.change.lines:
            self._reference = whole
        if self._run is None:
            return context.judge_by_bound(NAME, launch, whole)
        judged = ExactCase((), None, whole, self._run.case.folded_terms)
        return context.verdict_of_exact(NAME, context.judged(judged, launch))

    def restore(self) -> None:
        """Restore the result of the unchanged inputs."""
        if self._run is None or self._run.case.expected is None:
            return
        for step in self._steps:
            if step.change.lines:
                lines = take_lines(self._context.operation, self._run.case.expected, step.change)
                self._put(step, lines)

    def _exact_lines(self, case: ExactCase) -> dict[InputChange, ExactCase]:
        """Maps each change to the lines of the result to check. Where every bit is known, a single
        product computes the lines of all changes of an operand, as widening the other operand takes
        longer than the product."""
        operation, steps = self._context.operation, self._steps

        def lines_of(some: Sequence[ChangeStep]) -> ExactCase:
            part = part_with_lines(operation, some[0].inputs, [step.seen for step in some])
            return self._context.case_of(*part)

        if case.expected is None:
            return {step.change: lines_of([step]) for step in steps}
        found: dict[InputChange, ExactCase] = {}
        for place in range(len(operation.inputs)):
            of_place = [step for step in steps if step.change.place == place]
            expected = lines_of(of_place).expected if of_place else None
            if expected is not None:
                seen = [step.seen for step in of_place]
                parts = split_lines(operation, seen, expected)
                for step, (_, lines) in zip(of_place, parts, strict=True):
                    found[step.change] = _known(lines)
        return found

    def _is_as_on_device(self, step: ChangeStep, lines: Array, launch: Launch) -> bool:
        assert self._run is not None
        self._put(step, lines)
        return self._context.launcher.device.same_bytes(launch.result, self._run.launch.result)

    def _put(self, step: ChangeStep, lines: Array) -> None:
        assert self._run is not None
        operation, device = self._context.operation, self._context.launcher.device
        edits = result_edits(operation, step.change, lines)
        for edit in prepared_edits(device, (operation.output,), (self._run.launch.result,), edits):
            edit()

    def _expected(self, number: int, launch: Launch) -> Array:
        """The whole result after the given number of changes. After the change of a scalar factor
        it is `launch`'s own result except for the checked line."""
        assert self._run is not None and self._run.case.expected is not None
        operation, steps = self._context.operation, self._steps[:number]
        whole = self._run.case.expected
        if not steps[-1].change.lines:
            whole, steps = to_logical(launch.output, operation.output), steps[-1:]
        for step in steps:
            lines = self._lines[step.change].expected
            assert lines is not None
            whole = with_lines(operation, whole, step.seen, lines)
        return whole

    def _inputs(self, number: int) -> tuple[Array, ...]:
        """The inputs of the launch with this number."""
        context, run = self._context, self._run
        inputs = tuple(context.inputs if run is None else run.case.inputs)
        for step in self._steps[:number]:
            inputs = changed_inputs(context.operation, inputs, step.change)
        return inputs


def _known(lines: Array) -> ExactCase:
    return ExactCase((), lines, None)


def _of_result(reference: Reference, result: Array) -> Reference:
    """A reference that accepts `result`."""
    return Reference(to_float64(result), reference.magnitude, reference.extra_rounding)


def _explained(
    context: Context, step: ChangeStep, launch: Launch, before: Launch, result: CheckResult
) -> CheckResult:
    """`result`, a failure, with a remark where results do not follow the inputs at all."""
    spec = context.operation.output
    how = f"with {step.change} in place, everything else unchanged"
    if launch.output.shape == before.output.shape:
        got, kept = (
            take_lines(context.operation, to_logical(one.output, spec), step.seen)
            for one in (launch, before)
        )
        if same_bytes(got, kept):
            how += (
                ", that line of the result is unchanged: something is kept between launches and "
                "found again by what did not change"
            )
    return failed(NAME, f"{how}: {result.detail}", result.first_bad)


def _is_overwritten(context: Context, returned: Buffer, launch: Launch) -> bool:
    if Trait.REUSES_RESULTS in context.declared:
        return False
    return not context.launcher.device.same_bytes(returned, launch.result)
