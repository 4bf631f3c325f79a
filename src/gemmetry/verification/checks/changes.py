"""The check that results follow small changes of the inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass

import numpy as np

from gemmetry.domain.record import Trait
from gemmetry.numerics.inputs import (
    Edit,
    InputChange,
    changed_inputs,
    changed_reference,
    part_with_lines,
    prepared_edits,
    reference_with_lines,
    result_edits,
    split_lines,
    take_lines,
    with_lines,
)
from gemmetry.numerics.references import Reference, to_logical
from gemmetry.numerics.storage import Array, same_bytes, to_float64
from gemmetry.verification.checks import CheckResult, failed, not_applicable, passed
from gemmetry.verification.checks.calls import calls, made
from gemmetry.verification.context import INTEGERS, Context, ExactRun
from gemmetry.verification.inputs import exact as exact_inputs
from gemmetry.verification.inputs.exact import ChangeStep, ExactCase, changes_of, draw_steps
from gemmetry.verification.launching import Launch

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
    returns are examined after all launches. See :mod:`gemmetry.verification.inputs.exact`
    for the changes.
    """
    run = context.exact(INTEGERS, exact_inputs.integers)
    if run is None and context.reference is None:
        return not_applicable("there is neither a reference nor an exact result")
    if run is not None and not run.is_right:
        return not_applicable("the result is wrong before anything changes")
    inputs = context.inputs if run is None else run.case.inputs
    wanted = changes_of(context.operation)
    fastest_s = context.fastest_s
    plan = _plan(context, run, calls(fastest_s, len(wanted), FEWEST_CHANGES))
    steps, answer = plan.steps, _Answer(context, run, plan)
    before = context.first if run is None else run.launch
    queued = context.launcher.queue_changes(context.put(inputs), steps)
    with closing(queued) as launches:
        for number, (step, (launch, returned)) in enumerate(
            zip(steps, launches, strict=True), start=1
        ):
            call = f"call {number} of {len(steps)}"
            if launch.returned_type:
                answer.restore()
                return failed(f"{call}: the result is a {launch.returned_type}")
            result = answer.judge(number, launch)
            if result.is_failure:
                answer.restore()
                return _explained(context, step, launch, before, result)
            is_kept = returned is None or Trait.REUSES_RESULTS in context.declared
            if not is_kept and not context.launcher.device.same_bytes(returned, launch.result):
                answer.restore()
                return failed(
                    f"the result that {call} returned was overwritten by a later call on other "
                    f"inputs: return separate memory for each (or declare {Trait.REUSES_RESULTS})"
                )
            before = launch
    answer.restore()
    return made(len(steps), len(wanted), fastest_s)


@dataclass
class _Plan:
    """Common parts of all dispatches of an operation."""

    key: tuple[object, ...]
    case: ExactCase | None
    steps: Sequence[ChangeStep]
    lines: Mapping[InputChange, ExactCase]
    """Maps each change to the lines of the result to check; none without a case."""
    answers: Mapping[InputChange, Sequence[Edit]]
    """Where every bit is known: what writes these lines to the result of the unchanged inputs."""
    restoring: Sequence[Edit]
    """Edits that undo these, in any order."""


_KEPT_BYTES = 64 << 20
"""A plan for larger inputs is not kept for the next dispatch: it would take as much memory again,
and such launches take longer than drawing the changes."""

_kept: list[_Plan] = []
"""The last plan, for the next dispatch of the same operation."""


def _plan(context: Context, run: ExactRun | None, count: int) -> _Plan:
    """The first `count` changes of the operation, and the exact results, if there are any."""
    operation, case = context.operation, None if run is None else run.case
    key = operation, count, context.seed, context.declared
    # Cases are kept as well, so that one that was made again is another.
    if case is not None and _kept and _kept[0].key == key and _kept[0].case is case:
        return _kept[0]
    # The places are the same in every process, and differ between operations.
    rng = np.random.default_rng([context.seed % 2**64, *operation.matmul_shape])
    inputs = context.inputs if case is None else case.inputs
    steps = draw_steps(operation, inputs, changes_of(operation)[:count], rng)
    lines = {} if case is None else _exact_lines(context, case, steps)
    answers, restoring = {}, []
    if case is not None and case.expected is not None:
        for step in steps:
            expected = lines[step.change].expected
            if step.change.lines and expected is not None:
                answers[step.change] = result_edits(operation, step.change, expected)
                old = take_lines(operation, case.expected, step.change)
                restoring += result_edits(operation, step.change, old)
    plan = _Plan(key, case, steps, lines, answers, restoring)
    _kept[:] = [plan] if sum(array.nbytes for array in inputs) <= _KEPT_BYTES else []
    return plan


def _exact_lines(
    context: Context, case: ExactCase, steps: Sequence[ChangeStep]
) -> dict[InputChange, ExactCase]:
    """Maps each change to the lines of the result to check. Where every bit is known, a single
    product computes the lines of all changes of an operand, as widening the other operand takes
    longer than the product."""
    operation = context.operation

    def lines_of(some: Sequence[ChangeStep]) -> ExactCase:
        part = part_with_lines(operation, some[0].inputs, [step.seen for step in some])
        return context.case_of(*part)

    if case.expected is None:
        return {step.change: lines_of([step]) for step in steps}
    found: dict[InputChange, ExactCase] = {}
    for place in range(len(operation.inputs)):
        of_place = [step for step in steps if step.change.place == place]
        expected = lines_of(of_place).expected if of_place else None
        if expected is not None:
            parts = split_lines(operation, [step.seen for step in of_place], expected)
            for step, (_, lines) in zip(of_place, parts, strict=True):
                found[step.change] = _known(lines)
    return found


class _Answer:
    """The expected results, one after the other.

    Where every bit is known, results are compared on the device, in the memory of the result of the
    unchanged inputs; zeros of either sign are correct, and are checked on the host.
    """

    def __init__(self, context: Context, run: ExactRun | None, plan: _Plan) -> None:
        self._context = context
        self._run = run
        self._plan = plan
        self._reference = context.reference if run is None else run.case.reference
        """Reference with all changes so far; None where every bit of the results is known."""

    def judge(self, number: int, launch: Launch) -> CheckResult:
        """Verify `launch`, which followed the change with this number, counted from 1; to be called
        in order."""
        step, context = self._plan.steps[number - 1], self._context
        case = self._plan.lines.get(step.change)
        if self._run is not None and case is not None and case.expected is not None:
            if step.change.lines:
                self._put(self._plan.answers[step.change])
                due = self._run.launch.result
                if context.launcher.device.same_bytes(launch.result, due):
                    return passed()
            launch.inputs = self._inputs(number)
            expected = self._expected(number, launch)
            return context.verdict_of_exact(context.judged(_known(expected), launch))
        assert self._reference is not None
        launch.inputs = self._inputs(number)
        operation, whole = context.operation, self._reference
        if not step.change.lines:
            result = to_float64(to_logical(launch.output, operation.output))
            whole = Reference(result, whole.magnitude, whole.extra_rounding)
        if self._run is None or case is None:
            whole = changed_reference(operation, step.inputs, whole, step.seen)
        else:
            assert case.reference is not None
            whole = reference_with_lines(operation, whole, step.seen, case.reference)
        if step.change.lines:
            self._reference = whole
        if self._run is None:
            return context.judge_by_bound(launch, whole)
        judged = ExactCase((), None, whole, self._run.case.folded_terms)
        return context.verdict_of_exact(context.judged(judged, launch))

    def restore(self) -> None:
        """Restore the result of the unchanged inputs."""
        self._put(self._plan.restoring)

    def _put(self, edits: Sequence[Edit]) -> None:
        if self._run is None:
            return
        device, output = self._context.launcher.device, self._context.operation.output
        for edit in prepared_edits(device, (output,), (self._run.launch.result,), edits):
            edit()

    def _expected(self, number: int, launch: Launch) -> Array:
        """The whole result after the given number of changes. After the change of a scalar factor
        it is `launch`'s own result except for the checked line."""
        assert self._run is not None and self._run.case.expected is not None
        operation, steps = self._context.operation, self._plan.steps[:number]
        whole = self._run.case.expected
        if not steps[-1].change.lines:
            whole, steps = to_logical(launch.output, operation.output), steps[-1:]
        for step in steps:
            lines = self._plan.lines[step.change].expected
            assert lines is not None
            whole = with_lines(operation, whole, step.seen, lines)
        return whole

    def _inputs(self, number: int) -> tuple[Array, ...]:
        """The inputs of the launch with this number."""
        context, run = self._context, self._run
        inputs = tuple(context.inputs if run is None else run.case.inputs)
        for step in self._plan.steps[:number]:
            inputs = changed_inputs(context.operation, inputs, step.change)
        return inputs


def _known(lines: Array) -> ExactCase:
    return ExactCase((), lines, None)


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
            how += ", that line of the result is unchanged: something is kept between launches and "
            how += "found again by what did not change"
    return result.because(how, ": ")
