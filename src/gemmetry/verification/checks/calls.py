"""Checks of further launches: state, races, and work outside the timed order.

The check of hundreds of launches, on inputs that change before each of them.

Some kernels are correct until they have been called often enough: they replay what they recorded,
or fill a table. Others mistake inputs that are only close to earlier ones for those. At a small
shape of the same configuration a launch costs almost nothing, so that hundreds are possible.

Checks under stress: uninitialised memory without accidental zeros, and a busy device.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Protocol, runtime_checkable

import numpy as np

from gemmetry.domain.contracts import Buffer, Device, OrderedDevice, StressDevice, ThreadDevice
from gemmetry.domain.errors import DispatchError
from gemmetry.domain.record import Trait
from gemmetry.numerics.storage import to_float64
from gemmetry.verification.checks import (
    BUGS,
    CheckOutcome,
    CheckResult,
    bug_of,
    failed,
    incomplete,
    not_applicable,
    passed,
    shapes,
    warned,
)
from gemmetry.verification.checks.memory import zone_problem
from gemmetry.verification.comparison import StandingThreads, on_one_processor
from gemmetry.verification.context import INTEGERS, Context, ExactRun
from gemmetry.verification.inputs import exact as exact_inputs
from gemmetry.verification.inputs import scaled
from gemmetry.verification.inputs.exact import ExactCase
from gemmetry.verification.launching import Launch, Launcher, Placed

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
    how = "launches on the same inputs differ", "it adds to the old output, or keeps state"
    return _judge_again(context, context.second, how)


def _judge_again(
    context: Context, launch: Launch, how: tuple[str, str], detail: str = ""
) -> CheckResult:
    """The result of another launch on the caller's inputs.

    Args:
        how: why it may be wrong after a correct first launch, where launches differ and where not.
        detail: what a passed check left out.
    """
    problem = context.launcher.form_problem(launch)
    if not problem and launch.changed_inputs:
        problem = f"the launch changed {', '.join(launch.changed_inputs)}"
    problem = problem or zone_problem(launch)
    if problem:
        return failed(problem)
    if launch.same_as(context.first):
        return passed(detail)
    result = context.judge_by_bound(launch, context.reference)
    if not result.is_failure or context.first_errors.bad_count:
        return result
    why = how[0] if context.differs_between_launches else how[1]
    return result.because(f"the first launch was correct: {why}")


def check_repeat(context: Context) -> CheckResult:
    """Two launches on the same inputs agree bit for bit. Reports a difference, and a result that
    the next launch overwrites."""
    shares_memory = context.second.shares_memory(context.first)
    may_share = context.executable.writes_output or Trait.REUSES_RESULTS in context.declared
    if shares_memory and not may_share:
        return warned(
            "every launch returns the same memory, so that the previous result is overwritten"
        )
    if context.second.same_as(context.first):
        return passed()
    return _undetermined(context, context.second)


def check_every_call(context: Context) -> CheckResult:
    """All launches queued without waiting, each into its own output, are correct, not only the
    first or the last.

    On integers whose sums are exact every correct result has the same bits, whatever the order of
    summation, so this exposes races that otherwise hide among rounding errors.
    """
    return judge_calls(context, CALLS)


def judge_calls(
    context: Context, most: int, within: Callable[[], AbstractContextManager[object]] = nullcontext
) -> CheckResult:
    """At most `most` consecutive launches, all of which must be correct, on exact integers where
    the operation has them.

    Args:
        within: see :meth:`gemmetry.verification.launching.Launcher.queue`.
    """
    launcher = context.launcher
    run = context.exact(INTEGERS, exact_inputs.integers)
    count = calls(context.fastest_s, most)
    placed = context.main if run is None else context.put(run.case.inputs)
    launcher.keep_copies(placed)
    launches = launcher.queue(placed, count, within=within)
    for number, launch in enumerate(launches, start=1):
        problem = launch.returned_type or zone_problem(launch)
        result = failed(problem) if problem else _judge_unless_same(context, run, launch)
        if result.is_failure:
            return result.because(f"call {number} of {count}", ": ")
    changed = launcher.changed_inputs(placed)
    if changed:
        return failed(f"the launches changed {', '.join(changed)}")
    return made(count, most, context.fastest_s)


def made(count: int, wanted: int, fastest_s: float) -> CheckResult:
    """The result of a check whose `count` launches were correct, of which it wanted `wanted`."""
    if count >= wanted:
        return passed()
    return incomplete(f"{count} of {wanted} launches, as one takes {fastest_s:.2g} s")


def _judge_unless_same(context: Context, run: ExactRun | None, launch: Launch) -> CheckResult:
    model = context.first if run is None else run.launch
    if launch.same_as(model) and (run is None or run.is_right):
        return passed()
    return _judge_call(context, run, launch)


def _judge_call(context: Context, run: ExactRun | None, launch: Launch) -> CheckResult:
    if run is None:
        return context.judge_by_bound(launch, context.reference)
    return context.verdict_of_exact(context.judged(run.case, launch))


def check_many_repeats(context: Context) -> CheckResult:
    """:data:`REPEATS` launches agree bit for bit."""
    for _ in range(REPEATS):
        launch = context.launcher.launch(context.main)
        if launch.same_as(context.first):
            continue
        result = context.judge_by_bound(launch, context.reference)
        if result.is_failure:
            return result
        if not context.may_differ:
            return _undetermined(context, launch)
    return passed()


def check_unordered_work(context: Context) -> CheckResult:
    """All work of a launch runs within the timed order: none runs ahead, none runs later."""
    device, executable = context.launcher.device, context.executable
    if not isinstance(device, OrderedDevice):
        return not_applicable("the order of work cannot be observed on this device")
    buffers, output = context.main.buffers, context.launcher.output_of(context.main)
    problem = device.unordered_work(lambda: executable.run(buffers, output), output)
    return failed(problem) if problem else passed()


def check_other_thread(context: Context) -> CheckResult:
    """Launches from three threads of the process are correct, one of which stays and launches
    again, and so is one from a thread that is allowed on one processor only: thread-local state
    (variables, the rounding mode) and the number of processors are not part of an operation."""
    launcher = context.launcher
    device = launcher.device
    if not isinstance(device, ThreadDevice):
        return not_applicable("launches from other threads cannot be tested on this device")
    run = context.exact(INTEGERS, exact_inputs.integers)
    placed = context.main if run is None else context.put(run.case.inputs)

    def call() -> Launch:
        return launcher.launch(placed)

    try:
        with StandingThreads(device.enter_thread) as threads:
            in_first = partial(threads.run, 0, call)
            alone = partial(on_one_processor, call, device.enter_thread)
            places: list[tuple[str, Callable[[], Launch]]] = [
                ("another thread than the one that built it", in_first),
                ("a third thread", partial(threads.run, 1, call)),
                ("another thread that launches again", in_first),
                ("a thread that is allowed on one processor only", alone),
            ]
            for place, launch_there in places:
                result = _judge_unless_same(context, run, launch_there())
                if result.is_failure:
                    if not _judge_call(context, run, launch_there()).is_failure:
                        why = "one launch was wrong and the same one right the next time"
                        return result.because(why, ": ")
                    if not _judge_call(context, run, call()).is_failure:
                        why = f"from {place}; something belongs to a thread"
                        return result.because(why, ": ")
                    return result
    except (DispatchError, *BUGS) as error:
        # A sticky device error ends the verification.
        launcher.device.synchronize()
        bug = bug_of(error)
        if bug:
            return failed(f"from another thread than the one that built it: {bug}")
        return not_applicable(f"launches from another thread are refused: {error}")
    return passed()


def check_results_stay(context: Context) -> CheckResult:
    """The results of the first launches, looked at again when all other checks have run, are what
    they were: no later launch, and no work that one left behind, wrote to them."""
    if Trait.REUSES_RESULTS in context.declared:
        return not_applicable("declared to reuse the memory of results")
    for launch, copy, what in context.kept_results():
        if not context.launcher.device.same_bytes(launch.result, copy):
            return failed(f"the result of {what} was overwritten after it was verified")
    return passed()


def _undetermined(context: Context, other: Launch) -> CheckResult:
    if context.may_differ:
        return passed("launches differ in their bits, as declared")
    first, again = context.first.output, other.output
    if first.shape != again.shape or first.dtype != again.dtype:
        return warned("another launch returned another shape or dtype")
    count = int((to_float64(first) != to_float64(again)).sum())
    return warned(f"not deterministic: {count} of {first.size} elements differ between launches")


NAME = "many_calls"

FEWEST, MOST = 100, 200
"""Range of the number of launches at level standard, which is drawn at random so that no kernel can
rely on it."""

THOROUGH = 8
"""Factor for the number of launches at level paranoid."""

LONGEST_S = {False: 2.0, True: 16.0}
"""Thorough or not -> seconds that the launches may take if each is as fast as the fastest;
otherwise there are fewer. 150 launches of one tile of a numpy kernel take 15 ms."""

TRIED = 8
"""Number of launches that are always made."""

THREADS = 3
"""Number of threads that stay, besides the one that built the kernel."""

ELSEWHERE = 0.3
"""Share of the launches that one of these threads makes."""

_SETS = (("first",), ("second",), ("lhs", "lhs nudged"), ("rhs", "rhs nudged"))
"""A sequence of inputs: fixed sets in random order."""


def check_many_calls(context: Context) -> CheckResult:
    """A few hundred launches of one tile, each with different inputs in the same buffers, are
    correct: independently drawn integers, and numbers that are all one unit in the last place
    larger than at the previous launch. Some are made from threads that stay."""
    return shapes.on_whole_tiles(context, NAME, 1, _calls)


def _calls(context: Context) -> CheckResult:
    cases = _cases(context)
    if "first" not in cases:
        return not_applicable("sums of one tile are rounded in this accumulator")
    rng = np.random.default_rng([context.seed % 2**64, *context.operation.matmul_shape])
    count = int(rng.integers(FEWEST, MOST)) * (THOROUGH if context.thorough else 1)
    launcher = context.launcher
    placed = launcher.place(cases["first"].inputs, keep_copies=False)
    output = launcher.output_of(placed)
    right: dict[str, Buffer] = {}
    with _Threads(launcher, rng) as threads:
        for number, name in enumerate(_order(list(cases), count, rng), start=1):
            # Counted again each time: a busy machine may delay many launches, but not all.
            if number > launcher.affordable(count, LONGEST_S[context.thorough], TRIED):
                return made(number - 1, count, launcher.fastest_s)
            case = cases[name]
            launcher.rewrite(placed, case.inputs)
            launch, where = threads.launch_somewhere(placed, output)
            if name in right and launcher.device.same_bytes(launch.result, right[name]):
                continue
            context.inputs = case.inputs
            result = context.verdict_of_exact(context.judged(case, launch))
            if result.is_failure:
                how = f"call {number} of {count}{where} of {context.operation}, inputs changed in "
                how += "place before each"
                if name.endswith("nudged"):
                    how += f", here all of {'A' if name.startswith('lhs') else 'B'} by its last "
                    how += "bits"
                same = launcher.device.same_bytes
                if any(same(launch.result, other) for other in right.values()):
                    how += ", holds the result for an earlier call's inputs: something is kept, "
                    how += "and found again by the number of calls or by similar inputs"
                return result.because(how, ": ")
            right[name] = launcher.device.clone(launch.result)
    return passed(f"{count} calls")


class _Threads(StandingThreads):
    """Launches from the thread that built the kernel, and from threads that stay; only from the
    former where others cannot launch."""

    def __init__(self, launcher: Launcher, rng: np.random.Generator) -> None:
        device = launcher.device
        self._others = isinstance(device, ThreadDevice)
        super().__init__(device.enter_thread if isinstance(device, ThreadDevice) else lambda: None)
        self._launcher = launcher
        self._rng = rng

    def launch_somewhere(self, placed: Placed, output: Buffer) -> tuple[Launch, str]:
        """A launch, and where it was made."""
        launch = partial(self._launcher.launch_again, placed, output)
        if not self._others or self._rng.random() > ELSEWHERE:
            return launch(), ""
        number = int(self._rng.integers(THREADS))
        try:
            return self.run(number, launch), f" (from thread {number + 2} of {THREADS + 1})"
        except DispatchError as error:
            if bug_of(error):
                raise
            self._others = False  # which is for the check other_thread to report
            return launch(), ""


def _cases(context: Context) -> dict[str, ExactCase]:
    """Maps names of inputs to the inputs and their result, as far as the formats allow."""
    makers = {
        "first": exact_inputs.integers,
        "second": lambda operation, seed, *how: exact_inputs.integers(operation, seed + 1, *how),
    }
    for role in ("lhs", "rhs"):
        makers[role] = partial(scaled.selection, role, 0)
        makers[f"{role} nudged"] = partial(scaled.selection, role, 1)
    made = {name: context.case(f"{NAME} {name}", make) for name, make in makers.items()}
    return {name: case for name, case in made.items() if case is not None}


def _order(names: Sequence[str], count: int, rng: np.random.Generator) -> Iterator[str]:
    """`count` names without immediate repetitions."""
    sets = [some for some in _SETS if some[0] in names]
    last, left = -1, count
    while left > 0:
        at = int(rng.integers(len(sets)))
        if at == last and len(sets[at]) == 1:
            continue
        last = at
        yield from sets[at][:left]
        left -= len(sets[at])


RARE = "rare_launches"

CALLS_UNDER_LOAD = 8

RARE_LAUNCHES = 1500
"""A bug that shows in one launch of 300 is missed in one of 150 verifications."""

_AT_ONCE = 125
"""Launches without a wait between them. Each has an output of its own."""

RARE_LAUNCHES_S = 1.0
"""Seconds that all of them may take, by the fastest launch; one of a few tiles takes about 10 µs on
a GPU. Where the fewest take longer, as in an interpreter, the check is incomplete."""

RARE_LAUNCHES_ON_HOST_S = 0.05
"""Seconds for rare launches on a CPU, where the check makes as many as fit, and 100 at least."""

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
    launcher, device = context.launcher, context.launcher.device
    if not isinstance(device, StressDevice):
        return not_applicable("this device cannot overwrite the memory that a launch finds")
    assert context.first is not None  # it is made before memory is overwritten
    size = max(spec.bytes for spec in (*context.operation.inputs, context.operation.output))
    launch = launcher.launch(context.main, within=device.spoiled_scratch(size))
    how = (
        "launches differ even if memory is left as it is: a race, or state that is kept between "
        "launches",
        "it uses memory that it never wrote (shared memory, registers or a workspace)",
    )
    return _judge_again(context, launch, how, device.stress_limits())


def check_under_load(context: Context) -> CheckResult:
    """:data:`CALLS_UNDER_LOAD` consecutive launches are correct while the device copies memory and
    has fewer free processors."""
    device = context.launcher.device
    if not isinstance(device, StressDevice):
        return not_applicable("this device cannot be kept busy in the meantime")
    if not (context.thorough or getattr(device, "is_gpu", False)):
        return not_applicable("on a CPU only paranoid keeps the device busy")
    result = judge_calls(context, CALLS_UNDER_LOAD, device.load)
    if result.is_failure:
        return result.because("while the device was busy", ": ")
    is_passed = result.outcome is CheckOutcome.PASSED
    return passed(device.stress_limits()) if is_passed else result


def check_rare_launches(context: Context) -> CheckResult:
    """:data:`RARE_LAUNCHES` launches of a few tiles, most of them without a wait in between, all
    give the exact result, bit for bit; on a CPU as many as take a moment. One bug in 300 launches
    is missed in one of 150 verifications."""
    return shapes.on_whole_tiles(context, RARE, 2, _rare_launches)


def _all_right(device: Device, launches: Sequence[Launch], right: Buffer) -> bool:
    """Whether the device shows at once that all results have the bytes of `right`."""
    if not isinstance(device, BurstDevice) or any(launch.returned_type for launch in launches):
        return False
    return device.all_same_bytes([launch.result for launch in launches], right)


def _rare_launches(context: Context) -> CheckResult:
    launcher, operation = context.launcher, context.operation
    case = context.case(RARE, exact_inputs.integers)
    if case is None:
        return not_applicable("sums of a few tiles are rounded in this accumulator")
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
            result = context.verdict_of_exact(context.judged(case, launch), guess=False)
            if result.is_failure:
                return result.because(f"launch {number} of {operation} on the same inputs", ": ")
            if right is None:
                right = device.clone(launch.result)  # Outputs are written again.
    if number < wanted:
        return incomplete(f"{number} of {wanted} launches, as they take long")
    return passed("" if is_gpu else f"{number} launches")
