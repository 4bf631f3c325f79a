"""Checks of further launches: state, races, and work outside the timed order."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial

from gemmetry.domain.contracts import OrderedDevice, ThreadDevice
from gemmetry.domain.errors import DispatchError
from gemmetry.domain.record import Trait
from gemmetry.numerics.storage import Array, to_float64
from gemmetry.verification.checks.memory import zone_problem
from gemmetry.verification.checks.results import (
    BUGS,
    CheckResult,
    bug_of,
    failed,
    incomplete,
    not_applicable,
    passed,
    warned,
)
from gemmetry.verification.context import INTEGERS, Context, ExactRun
from gemmetry.verification.inputs import exact as exact_inputs
from gemmetry.verification.launching import Launch
from gemmetry.verification.threads import StandingThreads, on_one_processor

CALLS = 12
"""Number of consecutive launches at level standard, which exposes errors in every second to twelfth
launch."""

FEWEST_CALLS = 3
CALLS_S = 3.0
"""Seconds that these launches may take; with slow launches there are fewer, but at least
:data:`FEWEST_CALLS`."""

REPEATS = 20
"""Number of launches at level paranoid that must agree bit for bit."""


def calls(seconds: float, most: int = CALLS, fewest: int = FEWEST_CALLS) -> int:
    """Number of consecutive launches, at most `most`, if one takes `seconds`."""
    return max(fewest, min(most, int(CALLS_S / max(seconds, 1e-9))))


def check_second_launch(context: Context) -> CheckResult:
    """A launch over another sentinel, in another output, is correct too."""
    name = "second_launch"
    problem = context.launcher.form_problem(context.second)
    if not problem and context.second.changed_inputs:
        problem = f"the launch changed {', '.join(context.second.changed_inputs)}"
    problem = problem or zone_problem(context.second)
    if problem:
        return failed(name, problem)
    if context.second.same_as(context.first):
        return passed(name)
    result = context.judge_by_bound(name, context.second, context.reference)
    was_right = context.first_errors.bad_count == 0
    if result.is_failure and was_right:
        why = "the first launch was correct: " + (
            "launches on the same inputs differ"
            if context.differs_between_launches
            else "it adds to the old output, or keeps state"
        )
        return failed(name, f"{why}; {result.detail}", result.first_bad)
    return result


def check_repeat(context: Context) -> CheckResult:
    """Two launches on the same inputs agree bit for bit. Reports a difference, and a result that
    the next launch overwrites."""
    name = "repeat"
    shares_memory = context.second.shares_memory(context.first)
    may_share = context.executable.writes_output or Trait.REUSES_RESULTS in context.declared
    if shares_memory and not may_share:
        return warned(
            name, "every launch returns the same memory, so that the previous result is overwritten"
        )
    if context.second.same_as(context.first):
        return passed(name)
    return _undetermined(context, name, context.second)


def check_every_call(context: Context) -> CheckResult:
    """All launches queued without waiting, each into its own output, are correct, not only the
    first or the last.

    On integers whose sums are exact every correct result has the same bits, whatever the order of
    summation, so this exposes races that otherwise hide among rounding errors.
    """
    return judge_calls(context, "every_call", CALLS)


def judge_calls(
    context: Context,
    name: str,
    most: int,
    within: Callable[[], AbstractContextManager[object]] = nullcontext,
) -> CheckResult:
    """At most `most` consecutive launches, all of which must be correct, on exact integers where
    the operation has them.

    Args:
        name: name of the check.
        within: see :meth:`gemmetry.verification.launching.Launcher.queue`.
    """
    launcher = context.launcher
    run = context.exact(INTEGERS, exact_inputs.integers)
    count = calls(context.fastest_s, most)
    placed = context.main if run is None else context.put(run.case.inputs)
    launcher.keep_copies(placed)
    model = context.first if run is None else run.launch
    launches = launcher.queue(placed, count, within=within)
    for number, launch in enumerate(launches, start=1):
        problem = launch.returned_type or zone_problem(launch)
        if problem:
            return failed(name, f"call {number} of {count}: {problem}")
        if launch.same_as(model) and (run is None or run.is_right):
            continue
        result = _judge_call(context, name, run, launch)
        if result.is_failure:
            return failed(name, f"call {number} of {count}: {result.detail}", result.first_bad)
    changed = launcher.changed_inputs(placed)
    if changed:
        return failed(name, f"the launches changed {', '.join(changed)}")
    return made(name, count, most, context.fastest_s)


def made(name: str, count: int, wanted: int, fastest_s: float) -> CheckResult:
    """The result of a check whose `count` launches were correct, of which it wanted `wanted`."""
    if count >= wanted:
        return passed(name)
    return incomplete(name, f"{count} of {wanted} launches, as one takes {fastest_s:.2g} s")


def _judge_call(context: Context, name: str, run: ExactRun | None, launch: Launch) -> CheckResult:
    if run is None:
        return context.judge_by_bound(name, launch, context.reference)
    return context.verdict_of_exact(name, context.judged(run.case, launch))


def check_many_repeats(context: Context) -> CheckResult:
    """:data:`REPEATS` launches agree bit for bit."""
    name = "many_repeats"
    for _ in range(REPEATS):
        launch = context.launcher.launch(
            context.main, sentinel=context.launcher.sentinels[0], check_inputs=False
        )
        if launch.same_as(context.first):
            continue
        result = context.judge_by_bound(name, launch, context.reference)
        if result.is_failure:
            return result
        if not context.may_differ:
            return _undetermined(context, name, launch)
    return passed(name)


def check_unordered_work(context: Context) -> CheckResult:
    """All work of a launch runs within the timed order: none runs ahead, none runs later."""
    name = "unordered_work"
    device, executable = context.launcher.device, context.executable
    if not isinstance(device, OrderedDevice):
        return not_applicable(name, "the order of work cannot be observed on this device")
    buffers, output = context.main.buffers, context.launcher.output_of(context.main)
    problem = device.unordered_work(lambda: executable.run(buffers, output), output)
    return failed(name, problem) if problem else passed(name)


def check_other_thread(context: Context) -> CheckResult:
    """Launches from three threads of the process are correct, one of which stays and launches
    again, and so is one from a thread that is allowed on one processor only: thread-local state
    (variables, the rounding mode) and the number of processors are not part of an operation."""
    name = "other_thread"
    launcher = context.launcher
    device = launcher.device
    if not isinstance(device, ThreadDevice):
        return not_applicable(name, "launches from other threads cannot be tested on this device")
    run = context.exact(INTEGERS, exact_inputs.integers)
    placed = context.main if run is None else context.put(run.case.inputs)
    model = context.first if run is None else run.launch

    def call() -> Launch:
        return launcher.launch(placed, sentinel=launcher.sentinels[0], check_inputs=False)

    try:
        with StandingThreads(device.enter_thread) as threads:
            places: list[tuple[str, Callable[[], Launch]]] = [
                ("another thread than the one that built it", partial(threads.run, 0, call)),
                ("a third thread", partial(threads.run, 1, call)),
                ("another thread that launches again", partial(threads.run, 0, call)),
                (
                    "a thread that is allowed on one processor only",
                    partial(on_one_processor, call, device.enter_thread),
                ),
            ]
            for place, launch_there in places:
                launch = launch_there()
                if launch.same_as(model) and (run is None or run.is_right):
                    continue
                result = _judge_call(context, name, run, launch)
                if result.is_failure:
                    if not _judge_call(context, name, run, launch_there()).is_failure:
                        why = "one launch was wrong and the same one right the next time"
                        return failed(name, f"{why}: {result.detail}", result.first_bad)
                    if not _judge_call(context, name, run, call()).is_failure:
                        why = f"from {place}; something belongs to a thread"
                        return failed(name, f"{why}: {result.detail}", result.first_bad)
                    return result
    except (DispatchError, *BUGS) as error:
        # A sticky device error ends the verification.
        launcher.device.synchronize()
        bug = bug_of(error)
        if bug:
            return failed(name, f"from another thread than the one that built it: {bug}")
        return not_applicable(name, f"launches from another thread are refused: {error}")
    return passed(name)


def check_results_stay(context: Context) -> CheckResult:
    """The results of the first launches, looked at again when all other checks have run, are what
    they were: no later launch, and no work that one left behind, wrote to them."""
    name = "results_stay"
    if Trait.REUSES_RESULTS in context.declared:
        return not_applicable(name, "declared to reuse the memory of results")
    for launch, copy, what in context.kept_results():
        if not context.launcher.device.same_bytes(launch.result, copy):
            return failed(name, f"the result of {what} was overwritten after it was verified")
    return passed(name)


def _undetermined(context: Context, name: str, other: Launch) -> CheckResult:
    if context.may_differ:
        return passed(name, "launches differ in their bits, as declared")
    difference = _difference(context.first.output, other.output)
    return warned(name, difference) if difference else passed(name)


def _difference(first: Array, other: Array) -> str:
    if first.shape != other.shape or first.dtype != other.dtype:
        return "another launch returned another shape or dtype"
    count = int((to_float64(first) != to_float64(other)).sum())
    return f"not deterministic: {count} of {first.size} elements differ between launches"
