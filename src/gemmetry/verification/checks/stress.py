"""Checks under stress: uninitialised memory without accidental zeros, and a busy device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol, runtime_checkable

from gemmetry.domain.contracts import Buffer, Device, StressDevice
from gemmetry.domain.errors import DispatchError
from gemmetry.verification.checks.memory import zone_problem
from gemmetry.verification.checks.repeats import judge_calls
from gemmetry.verification.checks.results import (
    CheckOutcome,
    CheckResult,
    bug_of,
    failed,
    incomplete,
    not_applicable,
    passed,
)
from gemmetry.verification.companions import Companions, whole_tile
from gemmetry.verification.context import Context
from gemmetry.verification.inputs import exact as exact_inputs
from gemmetry.verification.launching import Launch, Launcher

CALLS_UNDER_LOAD = 8

RARE_LAUNCHES = 1500
"""A bug that shows in one launch of 300 is missed in one of 150 verifications."""

_AT_ONCE = 125
"""Launches without a wait between them. Each has an output of its own."""

RARE_LAUNCHES_S = 1.0
"""Seconds that all of them may take, by the fastest launch; one of a few tiles takes about 10 µs on
a GPU. Where the fewest take longer, as in an interpreter, the check is incomplete."""

RARE_LAUNCHES_ON_HOST_S = 0.05
"""The same on a CPU, where the check makes as many as this allows, and 100 at least."""

_FEWEST_ON_HOST = 100
_FEWEST_AT_ONCE = 12
_TRIED = 5


@runtime_checkable
class BurstDevice(Protocol):
    """A device that compares many buffers with one in a single step."""

    def all_same_bytes(self, buffers: Sequence[Buffer], other: Buffer) -> bool:
        """Whether each of `buffers`, of one shape and dtype, holds the bytes of `other`."""


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
    if not (context.thorough or getattr(device, "is_gpu", False)):
        return not_applicable(name, "on a CPU only paranoid keeps the device busy")
    result = judge_calls(context, name, CALLS_UNDER_LOAD, device.load)
    if result.is_failure:
        return failed(name, f"while the device was busy: {result.detail}", result.first_bad)
    if result.outcome is CheckOutcome.INCOMPLETE:
        return result
    return passed(name, device.stress_limits())


def check_rare_launches(context: Context) -> CheckResult:
    """:data:`RARE_LAUNCHES` launches of a few tiles, most of them without a wait in between, all
    give the exact result; on a CPU as many as take a moment. Bits are compared on the device."""
    name = "rare_launches"
    companions = context.companions
    if companions is None:
        return not_applicable(name, "this configuration cannot be built for a small shape here")
    if name not in companions.known:
        result = _rare_launches(name, context, companions)
        if result.is_failure:
            return result
        companions.known[name] = result
    return companions.known[name]


def _all_right(device: Device, launches: Sequence[Launch], right: Buffer) -> bool:
    """Whether the device shows at once that all results have the bytes of `right`."""
    if not isinstance(device, BurstDevice) or any(launch.returned_type for launch in launches):
        return False
    return device.all_same_bytes([launch.result for launch in launches], right)


def _rare_launches(name: str, context: Context, companions: Companions) -> CheckResult:
    operation = whole_tile(context.operation, companions, tiles=2)
    executable = None
    try:
        executable = companions.build(operation) if operation is not None else None
        if operation is None or executable is None:
            return not_applicable(name, "no operation of a few tiles is supported")
        launcher = Launcher(executable, operation, companions.tile)
        inner = Context(launcher, operation, (), None, context.seed)
        case = inner.case(name, exact_inputs.integers)
        if case is None:
            return not_applicable(name, "sums of a few tiles are rounded in this accumulator")
        placed = launcher.place(case.inputs, keep_copies=False)
        device, right, number = launcher.device, None, 0
        is_gpu = getattr(device, "is_gpu", False)
        for _ in range(_TRIED):
            launcher.launch_again(placed, launcher.new_output())
        at_once = launcher.affordable(_AT_ONCE, RARE_LAUNCHES_S, _FEWEST_AT_ONCE)
        outputs = [launcher.new_output() for _ in range(at_once)]
        wanted = RARE_LAUNCHES
        if not is_gpu:
            wanted = launcher.affordable(wanted, RARE_LAUNCHES_ON_HOST_S, _FEWEST_ON_HOST)
        while number < min(wanted, launcher.affordable(wanted, RARE_LAUNCHES_S, at_once)):
            launches = launcher.burst(placed, outputs)
            if right is not None and _all_right(device, launches, right):
                number += len(launches)
                continue
            for launch in launches:
                number += 1
                is_typed = not launch.returned_type
                if right is not None and is_typed and device.same_bytes(launch.result, right):
                    continue
                result = inner.verdict_of_exact(name, inner.judged(case, launch), guess=False)
                if result.is_failure:
                    for evidence in inner.evidence.values():
                        context.evidence[name] = replace(evidence, check=name)
                    how = f"launch {number} of {operation} on the same inputs"
                    return failed(name, f"{how}: {result.detail}", result.first_bad)
                if right is None:
                    right = device.clone(launch.result)  # Outputs are written again.
        if number < wanted:
            return incomplete(name, f"{number} of {wanted} launches, as they take long")
        return passed(name, "" if is_gpu else f"{number} launches")
    except DispatchError as error:
        # A sticky device error ends the verification.
        context.launcher.device.synchronize()
        bug = bug_of(error)
        if bug:
            return failed(name, f"{operation}: {bug}")
        return not_applicable(name, f"it refuses {operation}: {error}")
    finally:
        if executable is not None:
            executable.close()
