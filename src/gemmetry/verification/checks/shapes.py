"""Checks that build the same configuration for other operations: tails, and other factors.

The check of shapes that are long along one axis and tiny along the others.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import TypeVar

import numpy as np

from gemmetry.domain.contracts import Executable
from gemmetry.domain.errors import DispatchError, RequestError
from gemmetry.domain.operation import EpilogueStep, Operation, OperationKind
from gemmetry.numerics.inputs import make_inputs
from gemmetry.numerics.references import Reference, compute_reference
from gemmetry.numerics.storage import Array
from gemmetry.verification.checks import (
    BUGS,
    LIMITS,
    CheckOutcome,
    CheckResult,
    bug_of,
    exact,
    failed,
    incomplete,
    memory,
    not_applicable,
    passed,
    special,
)
from gemmetry.verification.companions import (
    DEFAULT_TILE,
    Companions,
    Sizes,
    covering_operations,
    rounded_options,
    tail_operations,
    whole_tile,
)
from gemmetry.verification.context import INTEGERS, Context, run_check
from gemmetry.verification.inputs import exact as exact_inputs
from gemmetry.verification.launching import Launcher

Item = TypeVar("Item")

FACTORS = ((-2.0, 0.5), (-2.0, 0.0), (0.1, -1.7), (0.5, 0.0), (0.0, 2.0), (1.0, 1.0))
"""(alpha, beta): different values expose an exchange; with beta 0 the old C must be ignored, with
alpha 0 the product; factors that are not powers of two expose a narrower format."""

_OTHER = -1.5

SIGNS = (-1.0, 0.0, 1.0)
"""Every pair of these, and of these and another number, is tried once on exact integers: kernels
have paths of their own for them."""

MANY_S = {False: 1.0, True: 30.0}
"""Thorough or not -> seconds for shapes with one launch each: all take 0.1 s on two cores, and 1 s
where a build takes 10 ms."""

_FIRST_FEW = 8
"""Attempts by which the others are priced."""

FEWEST = 32
"""Attempts, drawn from the seed, with which a check counts as complete."""

LONGEST_S = {False: 15.0, True: 90.0}
"""Thorough or not -> seconds after which no further shapes are tried; the most informative shapes
come first. A handful of shapes takes 0.1 s on two cores."""

LONGEST_BUILDS_S = {False: 4.0, True: 45.0}
"""Seconds for building alone: a compiler that takes a second per shape would otherwise cost a sweep
more than the measurements."""

_EACH: tuple[Callable[[Context], CheckResult], ...] = (
    memory.check_form,
    memory.check_written,
    memory.check_inputs_unchanged,
    memory.check_red_zones,
    memory.check_values,
    exact.check_integers,
)
"""Checks that every one of the other operations must pass."""

_FIRST = (*_EACH, special.check_nan_spreads)
"""Checks for the first of them, which has a remainder along every axis, and for all thorough ones:
two more launches each."""


class Spent:
    """The time since it was created, less what a busy machine adds: by the clock, or by the
    processor time of this process and of what it has waited for, whichever is shorter."""

    def __init__(self) -> None:
        self._began = time.monotonic(), _processor_s()

    @property
    def seconds(self) -> float:
        """Seconds spent so far."""
        began, processor_began = self._began
        return min(time.monotonic() - began, _processor_s() - processor_began)


def _processor_s() -> float:
    return sum(os.times()[:4])


@dataclass(frozen=True)
class Attempt:
    """Result of one other operation."""

    operation: Operation
    result: CheckResult | None = None
    """Result of the first check that failed, or of the last one."""
    refusal: str = ""
    """Reason why the operation was not tried."""
    build_seconds: float = 0.0
    first_refusal: str = ""
    """Reason why the first of several operations was not tried."""

    @property
    def failure(self) -> CheckResult | None:
        """The failed check, if any."""
        return self.result if self.result is not None and self.result.is_failure else None


def shared(
    context: Context, name: str, find: Callable[[Companions], CheckResult], *variant: object
) -> CheckResult:
    """The result of `find` for the check `name`, which all dispatches of a configuration share
    unless it failed, as the next one would have no evidence.

    Args:
        variant: what else the result depends on.
    """
    companions = context.companions
    if companions is None:
        return not_applicable("this configuration cannot be built for other shapes here")
    key = " ".join(map(str, (name, "thorough" if context.thorough else "few", *variant)))
    if key in companions.known:
        return companions.known[key]
    result = find(companions)
    if not result.is_failure:
        companions.known[key] = result
    return result


def on_whole_tiles(
    context: Context, name: str, tiles: int, check: Callable[[Context], CheckResult]
) -> CheckResult:
    """The result of `check` on the operation of so many whole tiles along each axis."""

    def find(companions: Companions) -> CheckResult:
        operation = whole_tile(context.operation, companions, tiles)
        if operation is None:
            return not_applicable("the operation has no shape of whole tiles")
        found = attempt(context, operation, (check,), seed=context.seed)
        if found.result is None:
            return not_applicable(f"it refuses {operation}: {found.refusal}")
        if found.result.name == "launch":
            return inner_failure(operation, found.result)
        return replace(found.result, name="")

    return shared(context, name, find)


def check_tail_shapes(context: Context) -> CheckResult:
    """Results are correct for small shapes that are not multiples of the tile, and at other edges
    of tiling."""

    def find(companions: Companions) -> CheckResult:
        options = tail_operations(context.operation, companions, thorough=context.thorough)
        return _try_all(context, options)

    return shared(context, "tail_shapes", find)


def steps(operation: Operation, companions: Companions) -> int:
    """Total number of steps along K over all tiles."""
    *sizes, batch = operation.matmul_shape
    return batch * _steps(sizes, companions.tile or DEFAULT_TILE)


class Affordable:
    """Draws as many of a number of attempts as a time allows, by the fastest of those made.

    How many there are depends on what one costs at least, as in an interpreter, or where each shape
    is compiled, but not on what else the machine does.
    """

    def __init__(self, context: Context, limit_s: float) -> None:
        """`limit_s`: seconds that all attempts may take together."""
        self._rng = np.random.default_rng([context.seed % 2**64, 7])
        self._limit_s = limit_s
        self._shared_by = context.launcher.shared_by
        self._made = self.left_out = 0

    def of(self, attempts: Iterable[Item], costs: Sequence[float]) -> Iterator[Item]:
        """The drawn ones of `attempts`; the caller makes each before it takes the next.

        Args:
            costs: relative costs of all of them.
        """
        least_s = per_cost_s = math.inf
        for number, (item, cost) in enumerate(zip(attempts, costs, strict=False)):
            if number >= _FIRST_FEW:
                each_s = np.maximum(least_s, per_cost_s * np.asarray(costs))
                share = self._limit_s / float(each_s.sum())
                # Launches that cost more, as those that compile, are fewer.
                fewest = FEWEST if FEWEST * each_s.mean() <= 2 * self._limit_s else 0
                is_needed = fewest - self._made >= len(costs) - number
                is_drawn = is_needed or self._rng.random() < max(share, fewest / len(costs))
                if not is_drawn or each_s[number] > self._limit_s / 3:
                    self.left_out += 1
                    continue
            self._made += 1
            began = time.monotonic()
            yield item
            # The fastest decide, so that a busy machine does not; waiting counts.
            seconds = max((time.monotonic() - began) / self._shared_by, 1e-6)
            least_s, per_cost_s = min(least_s, seconds), min(per_cost_s, seconds / cost)

    def stated(self, result: CheckResult) -> CheckResult:
        """`result`, which states how many attempts were drawn if these are not all; incomplete if
        they are fewer than :data:`FEWEST`."""
        if not self.left_out or result.detail or result.outcome is not CheckOutcome.PASSED:
            return result
        text = f"{self._made} of {self._made + self.left_out}, drawn as time allows"
        return (incomplete if self.is_cut_short else passed)(text)

    @property
    def is_cut_short(self) -> bool:
        """Whether fewer than :data:`FEWEST` attempts were made, and others left out."""
        return bool(self.left_out) and self._made < FEWEST


def check_many_shapes(context: Context) -> CheckResult:
    """One launch on exact integers at each of a covering set of shapes, drawn from the seed: see
    :func:`~gemmetry.verification.companions.covering_operations`."""

    def find(companions: Companions) -> CheckResult:
        processors = getattr(context.launcher.device, "multiprocessors", None) or None
        known = replace(companions, processors=processors)
        options = list(covering_operations(context.operation, known, context.seed))
        affordable = Affordable(context, MANY_S[context.thorough])
        costs = [float(steps(candidates[0], companions)) for candidates in options]
        drawn = affordable.of(options, costs)
        return affordable.stated(_try_all(context, drawn, (check_integers,)))

    return shared(context, "many_shapes", find)


def check_integers(context: Context) -> CheckResult:
    """One launch on integers whose sums are exact; the result has its form, and nothing outside of
    it was written."""
    case = context.case(INTEGERS, exact_inputs.integers, keep=False)
    if case is None:
        return not_applicable("sums round")
    context.inputs = case.inputs
    run = context.run_exact(INTEGERS, case)
    result = context.verdict_of_exact(run)
    problem = memory.zone_problem(run.launch)
    return failed(problem) if problem and not result.is_failure else result


def check_alpha_beta(context: Context) -> CheckResult:
    """The same configuration is correct with other factors alpha and beta. At level standard only
    where the operation itself has such factors."""
    operation, signature = context.operation, context.operation.signature
    if not context.thorough and (signature.alpha, signature.beta) == (1.0, 0.0):
        return not_applicable("the operation has neither alpha nor beta")

    def find(companions: Companions) -> CheckResult:
        result = _try_all(context, _with_factors(operation, companions, FACTORS))
        if result.outcome is not CheckOutcome.PASSED:
            return result
        of_one = [(one, other) for one in SIGNS for other in (*SIGNS, _OTHER)]
        each = [*of_one, *((other, one) for one, other in of_one if other == _OTHER)]
        signs = _with_factors(operation, companions, each)
        exactly = _try_all(context, signs, (check_integers,))
        return exactly if exactly.is_failure else result

    return shared(context, "alpha_beta", find, signature.alpha, signature.beta)


def _with_factors(
    operation: Operation, companions: Companions, pairs: Iterable[tuple[float, float]]
) -> Iterator[tuple[Operation, ...]]:
    """The first tail shape with each pair of factors, where the kind accepts them."""
    shapes = next(tail_operations(operation, companions, thorough=False))
    for alpha, beta in pairs if operation.kind is not OperationKind.CONV2D else ():
        try:
            signature = replace(operation.signature, alpha=alpha, beta=beta)
        except RequestError:
            continue  # Integers allow only alpha 1.
        if signature != operation.signature:
            yield tuple(Operation(signature, shape.shape) for shape in shapes)


def _try_all(
    context: Context,
    options: Iterator[tuple[Operation, ...]],
    only: Sequence[Callable[[Context], CheckResult]] = (),
) -> CheckResult:
    """Try the first of each of `options` that is not refused, with the checks `only`, each time on
    other inputs, or with :data:`_EACH`."""
    shapes, tried, spent, builds_s = 0, 0, Spent(), 0.0
    refused: list[str] = []
    for candidates in options:
        shared_by = context.launcher.shared_by
        is_late = spent.seconds > LONGEST_S[context.thorough] * shared_by
        if is_late or builds_s > LONGEST_BUILDS_S[context.thorough] * shared_by:
            late = f"stopped after {tried} of them, as they take long"
            return replace(_passed(shapes, refused, late), outcome=CheckOutcome.INCOMPLETE)
        checks = only or (_FIRST if context.thorough or not shapes else _EACH)
        seed = context.seed + shapes if only else None
        tried_last = first_accepted(context, candidates, checks, seed=seed)
        builds_s += tried_last.build_seconds
        if tried_last.first_refusal:
            refused.append(f"{candidates[0]}: {tried_last.first_refusal}")
        if tried_last.failure is not None:
            return inner_failure(tried_last.operation, tried_last.failure)
        shapes += 1
        tried += not tried_last.refusal
    if not tried:
        none = not_applicable(f"it refuses all of them ({[*refused, 'there are none'][0]})")
        return replace(none, refused=len(refused))
    return _passed(shapes, refused)


def inner_failure(operation: Operation, inner: CheckResult) -> CheckResult:
    """A failure of a check, caused by the check `inner` of another operation."""
    return failed(f"{operation}: {inner.name}: {inner.detail}", inner.first_bad)


def _passed(shapes: int, refused: Sequence[str], detail: str = "") -> CheckResult:
    """A passed check; `refused` lists the rejected `shapes`, whether or not a rounded one was tried
    instead."""
    if refused:
        count = f"{len(refused)} of {shapes} shapes refused (first {refused[0]})"
        detail = f"{detail}; {count}" if detail else count
    return replace(passed(detail), refused=len(refused))


def attempt(
    context: Context,
    operation: Operation,
    checks: Sequence[Callable[[Context], CheckResult]],
    *,
    seed: int | None = None,
) -> Attempt:
    """Build `operation` and run `checks` on it until one fails.

    Args:
        seed: that of the inputs that checks make; there are no others, and no reference. None:
            inputs and reference as of the operation under test.
    """
    companions = context.companions
    assert companions is not None
    executable: Executable | None = None
    spent, build_seconds = Spent(), 0.0
    try:
        executable = companions.build(operation)
        build_seconds = spent.seconds
        if executable is None:
            return Attempt(operation, refusal="not supported")
        launcher = Launcher(executable, operation, companions.tile)
        inputs, reference = _answer(operation, context.seed) if seed is None else ((), None)
        own_seed = context.seed if seed is None else seed
        inner = Context(launcher, operation, inputs, reference, own_seed, thorough=context.thorough)
        result = None
        for check in checks:
            result = run_check(inner, check)
            if result.is_failure:
                for evidence in inner.evidence.values():
                    context.evidence[context.check] = replace(evidence, check=context.check)
                break
        return Attempt(operation, result, build_seconds=build_seconds)
    except (DispatchError, *LIMITS, *BUGS) as error:
        is_kernels = isinstance(error, DispatchError) or Launcher.raised_by_run(error)
        if executable is not None and not is_kernels:
            raise
        # Rejecting a shape is legitimate; a sticky device error ends the verification.
        context.launcher.device.synchronize()
        bug = bug_of(error)
        if bug:
            return Attempt(operation, failed(bug, name="launch"))
        text = error.message if isinstance(error, DispatchError) else str(error)
        refusal = text or type(error).__name__
        return Attempt(operation, refusal=refusal, build_seconds=build_seconds)
    finally:
        if executable is not None:
            executable.close()


def first_accepted(
    context: Context,
    options: Sequence[Operation],
    checks: Sequence[Callable[[Context], CheckResult]],
    *,
    seed: int | None = None,
) -> Attempt:
    """:func:`attempt` of the first of `options` that is not refused, else of the last one; the
    build time is that of all."""
    builds_s, refusals = 0.0, [""]
    for operation in options:
        found = attempt(context, operation, checks, seed=seed)
        builds_s += found.build_seconds
        if not found.refusal:
            break
        refusals.append(found.refusal)
    return replace(found, build_seconds=builds_s, first_refusal=refusals[:2][-1])


@lru_cache(maxsize=24)
def _answer(operation: Operation, seed: int) -> tuple[tuple[Array, ...], Reference]:
    """Inputs and reference of a small operation; configurations of one tile share them."""
    # Sums of one sign are soon beyond the range where gelu is curved.
    is_bent = EpilogueStep.GELU in operation.signature.epilogue
    distribution = "uniform_signed" if is_bent else "offset_uniform"
    inputs = make_inputs(operation, distribution=distribution, seed=seed)
    return inputs, compute_reference(operation, inputs)


FOUR_BITS, EIGHT_BITS, TEN_BITS, SIXTEEN_BITS = 2**4, 2**8, 2**10, 2**16
"""Numbers of tiles and elements at which narrow counters wrap around; 1024 is also the maximum
number of threads per block (CUDA C++ Programming Guide, compute capabilities)."""

LONG_AXES_S = {False: 1.0, True: 10.0}
"""Thorough or not -> seconds that a launch may take, predicted from the operation's fastest launch
or, if that is too long, from a shorter shape of the same kind. A launch of 65536 products takes 20
ms in numpy, 4 s in Triton's interpreter and a few milliseconds on a GPU."""

SHORTER = 16
"""A shape that seems to take too long is predicted again from one that is shorter by this
factor."""

TRIES = 3
"""Number of launches of the shorter shape; the fastest counts."""


def check_long_axes(context: Context) -> CheckResult:
    """More than 1024 rows, more than 1024 columns (16 tiles at least) and more than 65536 products,
    each with minimal sizes along the other axes; paranoid: more than 65536 rows and columns as well
    (256 tiles at least). Inputs are integers whose sums are exact; each shape takes one launch."""
    return shared(context, "long_axes", partial(_long_axes_try_all, context))


def long_sizes(tile: tuple[int, int, int], *, thorough: bool = False) -> Iterator[Sizes]:
    """The long and thin shapes of the check."""
    bm, bn, _ = tile
    yield Sizes(max(FOUR_BITS * bm, TEN_BITS) + 5, 3, 5)
    yield Sizes(3, max(FOUR_BITS * bn, TEN_BITS) + 5, 5)
    yield Sizes(3, 8, SIXTEEN_BITS + 6)
    if thorough:
        yield Sizes(max(EIGHT_BITS * bm, SIXTEEN_BITS) + 5, 3, 5)
        yield Sizes(3, max(EIGHT_BITS * bn, SIXTEEN_BITS) + 5, 5)


def _long_axes_try_all(context: Context, companions: Companions) -> CheckResult:
    tile = companions.tile or DEFAULT_TILE
    seconds = context.fastest_s / steps(context.operation, companions)
    tried, refused, too_long = 0, [], []
    for sizes in long_sizes(tile, thorough=context.thorough):
        predicted_s = seconds * _steps(sizes, tile)
        if predicted_s > LONG_AXES_S[context.thorough]:
            predicted_s = min(predicted_s, _by_shorter_s(context, sizes))
        if predicted_s > LONG_AXES_S[context.thorough]:
            too_long.append(f"{'x'.join(map(str, sizes))}, which would take {predicted_s:.1f} s")
            continue
        options = rounded_options(context.operation, sizes)
        if not options:
            continue
        found = first_accepted(context, options, (exact.check_integers,))
        if found.failure is not None:
            return inner_failure(found.operation, found.failure)
        if found.refusal:
            refused.append(f"{found.operation}: {found.refusal}")
        tried += not found.refusal
    detail = f"left out: {'; '.join([*too_long, *refused])}" if too_long or refused else ""
    if too_long:
        return incomplete(detail)
    return passed(detail) if tried else not_applicable(detail or "there are none")


def _by_shorter_s(context: Context, sizes: Sizes) -> float:
    """Seconds that a launch of `sizes` takes, as the fastest of some launches of a shorter shape
    predicts; infinity where that is refused."""
    longest = max(sizes)
    shorter = Sizes(*(size // SHORTER if size == longest else size for size in sizes))
    seconds = math.inf

    def timed(inner: Context) -> CheckResult:
        nonlocal seconds
        for _ in range(TRIES):
            inner.launcher.launch(inner.main, sentinel=0)
        seconds = inner.launcher.fastest_s
        return passed()

    options = rounded_options(context.operation, shorter)
    if options:
        first_accepted(context, options, (timed,))
    return SHORTER * seconds


def _steps(sizes: Sequence[int], tile: tuple[int, int, int]) -> int:
    """Total number of steps along K over all tiles of a matrix."""
    return math.prod(-(-size // step) for size, step in zip(sizes, tile, strict=True))
