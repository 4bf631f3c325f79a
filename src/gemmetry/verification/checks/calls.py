"""The check of hundreds of launches, on inputs that change before each of them.

Some kernels are correct until they have been called often enough: they replay what they recorded,
or fill a table. Others mistake inputs that are only close to earlier ones for those. At a small
shape of the same configuration a launch costs almost nothing, so that hundreds are possible.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from gemmetry.domain.contracts import Buffer, ThreadDevice
from gemmetry.domain.errors import DispatchError
from gemmetry.verification.checks.repeats import made
from gemmetry.verification.checks.results import (
    BUGS,
    CheckOutcome,
    CheckResult,
    bug_of,
    failed,
    not_applicable,
    passed,
)
from gemmetry.verification.companions import whole_tile
from gemmetry.verification.context import Context
from gemmetry.verification.inputs import exact as exact_inputs
from gemmetry.verification.inputs import selections
from gemmetry.verification.inputs.exact import ExactCase
from gemmetry.verification.launching import Launch, Launcher, Placed
from gemmetry.verification.threads import StandingThreads

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

_SETS: tuple[tuple[str, ...], ...] = (
    ("first",),
    ("second",),
    ("lhs", "lhs nudged"),
    ("rhs", "rhs nudged"),
)
"""A sequence of inputs: fixed sets in random order."""


def check_many_calls(context: Context) -> CheckResult:
    """A few hundred launches of one tile, each with different inputs in the same buffers, are
    correct: independently drawn integers, and numbers that are all one unit in the last place
    larger than at the previous launch. Some are made from threads that stay."""
    companions = context.companions
    if companions is None:
        return not_applicable(NAME, "this configuration cannot be built for a small shape here")
    key = f"{NAME} {'thorough' if context.thorough else 'few'}"
    if key not in companions.known:
        result = _built(context)
        if result.outcome is CheckOutcome.FAILED:
            return result
        companions.known[key] = result
    return companions.known[key]


def _built(context: Context) -> CheckResult:
    companions = context.companions
    assert companions is not None
    operation = whole_tile(context.operation, companions)
    if operation is None:
        return not_applicable(NAME, "the operation has no shape of one tile")
    executable = None
    try:
        executable = companions.build(operation)
        if executable is None:
            return not_applicable(NAME, f"{operation} is not supported")
        inner = Context(
            Launcher(executable, operation, companions.tile),
            operation,
            (),
            None,
            context.seed,
            thorough=context.thorough,
        )
        result = _calls(inner)
        for evidence in inner.evidence.values():
            context.evidence[NAME] = replace(evidence, check=NAME)
        return result
    except (DispatchError, NotImplementedError, *BUGS) as error:
        # A sticky device error ends the verification.
        context.launcher.device.synchronize()
        bug = bug_of(error)
        if bug:
            return failed(NAME, f"{operation}: {bug}")
        return not_applicable(NAME, f"it refuses {operation}: {error}")
    finally:
        if executable is not None:
            executable.close()


def _calls(context: Context) -> CheckResult:
    cases = _cases(context)
    if "first" not in cases:
        return not_applicable(NAME, "sums of one tile are rounded in this accumulator")
    rng = np.random.default_rng([context.seed % 2**64, *context.operation.matmul_shape])
    count = int(rng.integers(FEWEST, MOST)) * (THOROUGH if context.thorough else 1)
    launcher = context.launcher
    placed = launcher.place(cases["first"].inputs, keep_copies=False)
    output = launcher.output_of(placed)
    right: dict[str, Buffer] = {}
    limit_s = LONGEST_S[context.thorough]
    with _Threads(launcher, rng) as threads:
        for number, name in enumerate(_order(list(cases), count, rng), start=1):
            # Counted again each time: a busy machine may delay many launches, but not all.
            if number > launcher.affordable(count, limit_s, TRIED):
                return made(NAME, number - 1, count, launcher.fastest_s)
            case = cases[name]
            launcher.rewrite(placed, case.inputs)
            launch, where = threads.launch_somewhere(placed, output)
            if name in right and launcher.device.same_bytes(launch.result, right[name]):
                continue
            context.inputs = case.inputs
            result = context.verdict_of_exact(NAME, context.judged(case, launch))
            if result.is_failure:
                call = f"call {number} of {count}{where}"
                return _explained(context, result, right, launch, call, name)
            right[name] = launcher.device.clone(launch.result)
    return passed(NAME, f"{count} calls")


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

        def launch() -> Launch:
            return self._launcher.launch_again(placed, output)

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
        makers[role] = partial(selections.nudged, role, 0)
        makers[f"{role} nudged"] = partial(selections.nudged, role, 1)
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


def _explained(
    context: Context,
    result: CheckResult,
    right: dict[str, Buffer],
    launch: Launch,
    call: str,
    name: str,
) -> CheckResult:
    how = f"{call} of {context.operation}, inputs changed in place before each"
    if name.endswith("nudged"):
        how += f", here all of {'A' if name.startswith('lhs') else 'B'} by its last bits"
    device = context.launcher.device
    if any(device.same_bytes(launch.result, other) for other in right.values()):
        how += (
            ", holds the result for an earlier call's inputs: something is kept, and found again "
            "by the number of calls or by similar inputs"
        )
    return failed(NAME, f"{how}: {result.detail}", result.first_bad)
