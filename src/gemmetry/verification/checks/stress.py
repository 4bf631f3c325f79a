"""Checks under stress: uninitialised memory without accidental zeros, and a busy device."""

from __future__ import annotations

from gemmetry.domain.contracts import StressDevice
from gemmetry.verification.checks.memory import zone_problem
from gemmetry.verification.checks.repeats import judge_calls
from gemmetry.verification.checks.results import (
    CheckOutcome,
    CheckResult,
    failed,
    not_applicable,
    passed,
)
from gemmetry.verification.context import Context

CALLS_UNDER_LOAD = 8


def check_spoiled_scratch(context: Context) -> CheckResult:
    """A launch is correct even if all memory that it has not written itself holds NaN."""
    name = "spoiled_scratch"
    launcher, device = context.launcher, context.launcher.device
    if not isinstance(device, StressDevice):
        return not_applicable(name, "this device cannot overwrite the memory that a launch finds")
    first = context.first
    specs = (*context.operation.inputs, context.operation.output)
    launch = launcher.launch(
        context.main,
        sentinel=launcher.sentinels[0],
        check_inputs=False,
        within=device.spoiled_scratch(max(spec.bytes for spec in specs)),
    )
    problem = launcher.form_problem(launch) or zone_problem(launch)
    if problem:
        return failed(name, problem)
    if launch.same_as(first):
        return passed(name, device.stress_limits())
    result = context.judge_by_bound(name, launch, context.reference)
    if result.is_failure and context.first_errors.bad_count == 0:
        why = "the first launch was correct: " + (
            "launches differ even if memory is left as it is: a race, or state that is kept "
            "between launches"
            if context.differs_between_launches
            else "it uses memory that it never wrote (shared memory, registers or a workspace)"
        )
        return failed(name, f"{why}; {result.detail}", result.first_bad)
    return result


def check_under_load(context: Context) -> CheckResult:
    """:data:`CALLS_UNDER_LOAD` consecutive launches are correct while the device copies memory and
    has fewer free processors."""
    name = "under_load"
    device = context.launcher.device
    if not isinstance(device, StressDevice):
        return not_applicable(name, "this device cannot be kept busy in the meantime")
    result = judge_calls(context, name, CALLS_UNDER_LOAD, device.load)
    if result.is_failure:
        return failed(name, f"while the device was busy: {result.detail}", result.first_bad)
    if result.outcome is CheckOutcome.INCOMPLETE:
        return result
    return passed(name, device.stress_limits())
