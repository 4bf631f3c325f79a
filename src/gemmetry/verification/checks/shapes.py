"""Checks that build the same configuration for other operations: tails, and other factors."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from gemmetry.domain.contracts import Executable
from gemmetry.domain.errors import DispatchError, LaunchError, RequestError
from gemmetry.domain.operation import EpilogueStep, Operation, OperationKind
from gemmetry.numerics.inputs import make_inputs
from gemmetry.numerics.references import Reference, compute_reference
from gemmetry.numerics.storage import Array
from gemmetry.verification.checks import exact, memory, special, values
from gemmetry.verification.checks.results import (
    BUGS,
    CheckOutcome,
    CheckResult,
    failed,
    not_applicable,
    passed,
    raised,
)
from gemmetry.verification.companions import Companions, tail_operations
from gemmetry.verification.context import Context
from gemmetry.verification.launching import Launcher

FACTORS = ((-2.0, 0.5), (-2.0, 0.0), (0.1, -1.7), (0.5, 0.0), (0.0, 2.0), (1.0, 1.0))
"""(alpha, beta): different values expose an exchange; with beta 0 the old C must be ignored, with
alpha 0 the product; factors that are not powers of two expose a narrower format."""

LONGEST_S = {False: 15.0, True: 90.0}
"""Thorough or not -> seconds after which no further shapes are tried; the most informative shapes
come first. A handful of shapes takes 0.1 s on two cores."""

LONGEST_BUILDS_S = {False: 4.0, True: 45.0}
"""The same for building alone: a compiler that takes a second per shape would otherwise cost a
sweep over configurations more than the measurements."""

_EACH: tuple[Callable[[Context], CheckResult], ...] = (
    memory.check_form,
    memory.check_written,
    memory.check_inputs_unchanged,
    memory.check_red_zones,
    values.check_values,
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
    failure: CheckResult | None = None
    refusal: str = ""
    """Why the operation was not tried."""
    build_seconds: float = 0.0


def check_tail_shapes(context: Context) -> CheckResult:
    """Results are correct for small shapes that are not multiples of the tile, and at other edges
    of tiling."""
    name = "tail_shapes"
    companions = context.companions
    if companions is None:
        return not_applicable(name, "this configuration cannot be built for other shapes here")
    key = f"{name} {'thorough' if context.thorough else 'few'}"
    known = replace(companions, processors=_multiprocessors(context))
    options = tail_operations(context.operation, known, thorough=context.thorough)
    return _known(context, companions, name, key, options)


def _multiprocessors(context: Context) -> int | None:
    """Number of the device's multiprocessors, where it reports them."""
    count = getattr(context.launcher.device, "multiprocessors", 0)
    return count if isinstance(count, int) and count > 0 else None


def check_alpha_beta(context: Context) -> CheckResult:
    """The same configuration is correct with other factors alpha and beta. At level standard only
    where the operation itself has such factors."""
    name = "alpha_beta"
    companions, signature = context.companions, context.operation.signature
    if companions is None:
        return not_applicable(name, "this configuration cannot be built for other factors here")
    if not context.thorough and (signature.alpha, signature.beta) == (1.0, 0.0):
        return not_applicable(name, "the operation has neither alpha nor beta")
    key = f"{name} {signature.alpha} {signature.beta}"
    return _known(context, companions, name, key, _with_factors(context.operation, companions))


def _with_factors(operation: Operation, companions: Companions) -> Iterator[tuple[Operation, ...]]:
    """The first tail shape with each pair of factors, where the kind accepts them."""
    shapes = next(tail_operations(operation, companions, thorough=False))
    if operation.kind is OperationKind.CONV2D:
        return
    for alpha, beta in FACTORS:
        try:
            signature = replace(operation.signature, alpha=alpha, beta=beta)
        except RequestError:
            continue  # Integers allow only alpha 1.
        if signature != operation.signature:
            yield tuple(Operation(signature, shape.shape) for shape in shapes)


def _known(
    context: Context,
    companions: Companions,
    name: str,
    key: str,
    options: Iterator[tuple[Operation, ...]],
) -> CheckResult:
    """The result of :func:`_try_all`, which dispatches with the same `key` share."""
    if key not in companions.known:
        result = _try_all(context, companions, name, options)
        if name in context.evidence:
            # The next dispatch would have no evidence for its failure.
            return result
        companions.known[key] = result
    return companions.known[key]


def _try_all(
    context: Context,
    companions: Companions,
    name: str,
    options: Iterator[tuple[Operation, ...]],
) -> CheckResult:
    shapes, tried, spent, builds_s = 0, 0, Spent(), 0.0
    refused: list[str] = []
    for candidates in options:
        is_late = spent.seconds > LONGEST_S[context.thorough]
        if is_late or builds_s > LONGEST_BUILDS_S[context.thorough]:
            late = f"stopped after {tried} of them, as they take long"
            stopped = _passed(name, shapes, refused, late)
            return replace(stopped, outcome=CheckOutcome.INCOMPLETE)
        tried_last = Attempt(candidates[0], refusal="not supported")
        for operation in candidates:
            checks = _FIRST if context.thorough or not shapes else _EACH
            tried_last = attempt(context, companions, name, operation, checks)
            builds_s += tried_last.build_seconds
            if not tried_last.refusal:
                break
            if operation is candidates[0]:
                refused.append(f"{operation}: {tried_last.refusal}")
        if tried_last.failure is not None:
            return inner_failure(name, tried_last.operation, tried_last.failure)
        shapes += 1
        tried += not tried_last.refusal
    if not tried:
        why = refused[0] if refused else "there are none"
        none = not_applicable(name, f"it refuses all of them ({why})")
        return replace(none, refused=len(refused))
    return _passed(name, shapes, refused)


def inner_failure(name: str, operation: Operation, inner: CheckResult) -> CheckResult:
    """A failure of the check `name`, caused by the check `inner` of another operation."""
    return failed(name, f"{operation}: {inner.name}: {inner.detail}", inner.first_bad)


def _passed(name: str, shapes: int, refused: Sequence[str], detail: str = "") -> CheckResult:
    """A passed check; `refused` lists the rejected `shapes`, whether or not a rounded one was tried
    instead."""
    if refused:
        count = f"{len(refused)} of {shapes} shapes refused (first {refused[0]})"
        detail = f"{detail}; {count}" if detail else count
    return replace(passed(name, detail), refused=len(refused))


def attempt(
    context: Context,
    companions: Companions,
    name: str,
    operation: Operation,
    checks: Sequence[Callable[[Context], CheckResult]],
) -> Attempt:
    """Build `operation` and run `checks` on it until one fails, for the check `name` of
    `context`."""
    executable: Executable | None = None
    spent, build_seconds = Spent(), 0.0
    try:
        executable = companions.build(operation)
        build_seconds = spent.seconds
        if executable is None:
            return Attempt(operation, refusal="not supported")
        failure = _failure(context, companions, name, operation, executable, checks)
        return Attempt(operation, failure, build_seconds=build_seconds)
    except DispatchError as error:
        # Rejecting a shape is legitimate; a sticky device error ends the verification.
        context.launcher.device.synchronize()
        if isinstance(error, LaunchError) and isinstance(error.__cause__, BUGS):
            return Attempt(operation, _raised(error.__cause__))
        return Attempt(operation, refusal=error.message, build_seconds=build_seconds)
    except BUGS as error:
        return Attempt(operation, _raised(error))
    except NotImplementedError as error:
        return Attempt(operation, refusal=str(error) or "not implemented")
    finally:
        if executable is not None:
            executable.close()


def _raised(error: BaseException) -> CheckResult:
    return failed("launch", f"{raised(error)}, which is a bug, not a refusal")


def _failure(
    context: Context,
    companions: Companions,
    name: str,
    operation: Operation,
    executable: Executable,
    checks: Sequence[Callable[[Context], CheckResult]],
) -> CheckResult | None:
    inputs, reference = _answer(operation, context.seed)
    inner = Context(
        Launcher(executable, operation, companions.tile),
        operation,
        inputs,
        reference,
        context.seed,
    )
    for check in checks:
        result = check(inner)
        if result.is_failure:
            for evidence in inner.evidence.values():
                context.evidence[name] = replace(evidence, check=name)
            return result
    return None


@lru_cache(maxsize=24)
def _answer(operation: Operation, seed: int) -> tuple[tuple[Array, ...], Reference]:
    """Inputs and reference of a small operation; configurations of one tile share them."""
    # Sums of one sign are soon beyond the range where gelu is curved.
    is_bent = EpilogueStep.GELU in operation.signature.epilogue
    distribution = "uniform_signed" if is_bent else "offset_uniform"
    inputs = make_inputs(operation, distribution=distribution, seed=seed)
    return inputs, compute_reference(operation, inputs)
