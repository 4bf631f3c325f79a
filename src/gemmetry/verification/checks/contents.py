"""Checks of what operands contain, on small shapes of the same configuration: structure, the ends
of formats, long sums of one number, and special numbers in every operand.

Each case is one launch in the same buffers; results are exact.

The optional check of a property: the bits of a row do not depend on the number of rows.

A server that batches requests gives a request other neighbours each time. Where a kernel chooses
its split of K, its tile or its library call by the number of rows, the same request then gets other
bits, each of them within its bound.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np

from gemmetry.domain.errors import DispatchError, RequestError
from gemmetry.domain.operation import MatmulShape, Operation, check_shape
from gemmetry.domain.record import Trait
from gemmetry.numerics.references import to_logical, to_storage
from gemmetry.numerics.storage import Array, as_bits, to_float64
from gemmetry.verification.checks import (
    CheckResult,
    failed,
    incomplete,
    not_applicable,
    passed,
    property_of,
    shapes,
    special,
)
from gemmetry.verification.companions import DEFAULT_TILE, Companions, Sizes, rounded_options
from gemmetry.verification.context import Context, ExactRun
from gemmetry.verification.inputs import contents
from gemmetry.verification.inputs.contents import Contents
from gemmetry.verification.inputs.special import objection
from gemmetry.verification.launching import PLAUSIBLE, Launch, Launcher, Placed

_SQUARE = (33, 63)
"""Range of the edge of the square operation on which structures are tried; drawn from the seed."""

LAUNCH_S = 0.5
"""Seconds that a launch of a longer shape may take, as the fastest ones predict: in Triton's
interpreter 65 steps take that long."""

CONTENTS_S = 0.3
"""Seconds for the launches on one shape: 300 of them take 0.1 s on two cores."""

CONTENTS_ON_GPU_S = 0.03
"""Seconds for contents on a GPU at level standard, where uploading and comparing one takes a
millisecond."""

_EVEN = (64, 64, 64)
"""Sizes whose halves are whole vectors and steps."""

_LONG = ((1030, 2000), (4100, 5500), (16400, 18000))
"""Ranges of K for sums of a single number: more than one block of any split, and of any table."""

_LONG_LINES = (3, 64)

_WITH_SPECIALS = 5
"""Shapes with special numbers, and with both ends of formats: all but the longest sums."""

_Cases = Callable[[Operation, int], Iterable[Contents]]


def check_structures(context: Context) -> CheckResult:
    """Results are exact where an operand is zero, the identity, symmetric, sparse, of equal lines
    ..., wholly, but for an element or a line, or only where a kernel might look for it."""
    looked_at = partial(contents.structures, variants=contents.VARIANTS[-1:])
    square, *others = contents_sizes(context.companions, context.seed).structures
    tried: list[tuple[Sizes, _Cases]] = [(square, contents.structures)]
    halves = [partial(looked_at, parity=parity) for parity in (0, 1)]
    tried += zip(others, halves, strict=False)
    return shapes.shared(context, "structures", partial(_try_all, context, tried))


def check_ends_of_formats(context: Context) -> CheckResult:
    """Results are exact where A, B or the results are near either end of what formats, sums and
    factors of blocks can hold, and where a long sum is one number that uses every bit."""
    tried: list[tuple[Sizes, _Cases]] = []
    by_norm = Trait.NORMWISE in context.declared
    for sizes in contents_sizes(context.companions, context.seed).ends:
        codes = "lhs" if sizes.m < sizes.n else "rhs"
        is_short = sizes.k < _LONG[1][0]
        tried.append((sizes, partial(_at_the_ends, codes, is_short, by_norm)))
    return shapes.shared(context, "ends_of_formats", partial(_try_all, context, tried))


def check_special_numbers(context: Context) -> CheckResult:
    """NaN and infinities, many at once, in every operand and at every remainder of K, show in every
    element that depends on them and in no other one, which are exact."""
    reason = objection("nan_spreads", context.operation, context.declared)
    if reason:
        return not_applicable(reason)
    sizes = contents_sizes(context.companions, context.seed).specials
    tried = [(one, contents.specials) for one in sizes]
    return shapes.shared(context, "special_numbers", partial(_try_all, context, tried))


class ContentsSizes(NamedTuple):
    """The shapes of these checks."""

    structures: tuple[Sizes, ...]
    """A square, one of whole vectors, one with tails."""
    ends: tuple[Sizes, ...]
    """The one with tails, one of a single row, one of a single column, and long sums of few rows
    and of few columns."""
    specials: tuple[Sizes, ...]
    """Special sizes at the ends, without the longest sums."""


def contents_sizes(companions: Companions | None, seed: int) -> ContentsSizes:
    """The shapes for one configuration, drawn from `seed`. Where the number of shapes is limited,
    a configuration gets the square and one of the others."""
    tile, limit, stages = DEFAULT_TILE, None, None
    if companions is not None:
        tile, limit, stages = companions.tile or tile, companions.most_shapes, companions.stages
    bm, bn, bk = tile
    rng = np.random.default_rng([seed % 2**64, 4])
    square = Sizes(*[int(rng.integers(*_SQUARE))] * 3)
    few, many = _LONG_LINES
    depths = [int(rng.integers(low, high)) for low, high in _LONG]
    long = [Sizes(m, n, k) for k in depths for m, n in ((few, many), (many, few))]
    tails = Sizes(bm + 5, bn + 3, bk + 5)
    short = [tails, Sizes(1, bn + 3, bk + 5), Sizes(bm + 5, 1, bk + 5)]
    if limit is None:
        ends = (*short, *long)
        return ContentsSizes((square, Sizes(*_EVEN), tails), ends, ends[:_WITH_SPECIALS])
    other = np.random.default_rng([seed % 2**64, *tile, stages or 0])
    drawn = (*short, *long)[other.integers(_WITH_SPECIALS)]
    return ContentsSizes((square,), (drawn,), (drawn,))


def _at_the_ends(
    codes: str, is_short: bool, by_norm: bool, operation: Operation, seed: int
) -> Iterator[Contents]:
    if is_short:
        yield from contents.ends(operation, seed, by_norm=by_norm)
    small = contents.small_factors(operation, seed)
    found = contents.one_of_many(operation, seed, codes)
    yield from (one for one in (small, found) if one is not None)


def _try_all(
    context: Context, tried: Sequence[tuple[Sizes, _Cases]], companions: Companions
) -> CheckResult:
    refused, left_out, timed = [], [], _Timed()
    for sizes, cases in tried:
        options = rounded_options(context.operation, sizes, as_batch=True)
        if options and timed.per_step_s * shapes.steps(options[0], companions) > LAUNCH_S:
            left_out.append("x".join(map(str, sizes)))
            continue
        if not options:
            continue
        each = partial(check_inputs, cases=cases, timed=timed, companions=companions)
        found = shapes.first_accepted(context, options, (each,), seed=context.seed)
        if found.failure is not None:
            return shapes.inner_failure(found.operation, found.failure)
        if found.refusal:
            refused.append(f"{found.operation}: {found.refusal}")
    if timed.left_out:
        left_out.append(f"{timed.left_out} contents")
    if timed.count:
        if left_out:
            return incomplete(f"left out, as they take long: {', '.join(left_out)}")
        return passed()
    return not_applicable(refused[0] if refused else "these formats have no such inputs")


@dataclass
class _Timed:
    """Launches of a check so far."""

    steps: int = 1
    """Steps of the shape that is being launched."""
    count: int = 0
    per_step_s: float = 0.0
    left_out: int = 0
    """Number of contents that were not drawn."""

    def add(self, seconds: float) -> None:
        """Note a launch."""
        share = seconds / self.steps
        self.per_step_s = share if not self.count else min(self.per_step_s, share)
        self.count += 1


def check_inputs(
    context: Context, *, cases: _Cases, timed: _Timed, companions: Companions
) -> CheckResult:
    """Launch on each of `cases` in the same buffers."""
    placed: Placed | None = None
    launcher, timed.steps = context.launcher, shapes.steps(context.operation, companions)
    made = list(cases(context.counted(context.operation), context.seed))
    is_gpu = getattr(launcher.device, "is_gpu", False) and not context.thorough
    affordable = shapes.Affordable(context, CONTENTS_ON_GPU_S if is_gpu else CONTENTS_S)
    for number, case in enumerate(affordable.of(made, [1.0] * len(made))):
        if Trait.FLUSHES_SUBNORMALS in context.declared and case.label == contents.BELOW_NORMAL:
            continue
        if placed is None:
            placed = launcher.place(case.inputs, keep_copies=False)
        else:
            launcher.rewrite(placed, case.inputs)
        context.inputs = case.inputs
        output = launcher.output_of(placed)
        launcher.device.fill_bytes(output, PLAUSIBLE[number % len(PLAUSIBLE)])
        launcher.device.synchronize()
        began = time.perf_counter()
        launch = launcher.launch_again(placed, output)
        timed.add((time.perf_counter() - began) / launcher.shared_by)
        result = _judged(context, case, launch)
        if result.is_failure:
            return result.because(case.label, ": ")
    timed.left_out += affordable.left_out if affordable.is_cut_short else 0
    return passed()


def _judged(context: Context, case: Contents, launch: Launch) -> CheckResult:
    operation = context.operation
    problem = context.launcher.form_problem(launch)
    if problem:
        return failed(problem)
    if case.affected is not None:
        return _judged_specials(context, case, launch)
    exact = context.case_of(operation, case.inputs, signs_are_random=False)
    return context.verdict_of_exact(context.judged(exact, launch))


def _judged_specials(context: Context, case: Contents, launch: Launch) -> CheckResult:
    """Elements that depend on special numbers show them; all others are exact."""
    operation = context.operation
    affected = case.affected
    assert affected is not None
    got = to_logical(launch.output, operation.output)
    values = to_float64(got[affected])
    signs = None if case.signs is None else case.signs[affected]
    shows, turned = special.shown(
        operation, got[affected], case.steps, signs, is_infinite=case.is_infinite
    )
    for bad, what in ((~shows, "do not show it"), (turned, "have the wrong sign")):
        if bad.any():
            where = np.zeros(affected.shape, np.bool_)
            where[affected] = bad
            context.keep_evidence(launch, None, where)
            at = [int(i) for i in np.argwhere(where)[0]]
            detail = f"{int(bad.sum())} of {bad.size} elements that depend on one {what}"
            return failed(detail, f"{at}: got {float(values[bad][0]):.9g}")
    plain = tuple(_without_specials(array) for array in case.inputs)
    exact = context.case_of(operation, plain, signs_are_random=False)
    with np.errstate(all="ignore"):
        cleaned = np.where(affected, exact.value.astype(got.dtype), got)
    errors = context.judge_exact(exact, to_storage(cleaned, operation.output))
    result = context.verdict_of_exact(ExactRun(exact, launch, "", errors), guess=False)
    return (
        result.because("elements that do not depend on one", ": ") if result.is_failure else result
    )


def _without_specials(array: Array) -> Array:
    """`array` with ones in place of NaN and infinities."""
    changed = np.array(array)
    changed[~np.isfinite(to_float64(array))] = 1
    return changed


OFF, REPORT, DEMAND = "off", "report", "demand"


def check_row_invariance(context: Context, wanted: str = REPORT) -> CheckResult:
    """The first rows of the result have the same bits where the operation has fewer rows. If they
    have not, this is a property, and a failure only if `wanted` is ``demand``."""
    companions, shape = context.companions, context.operation.shape
    if companions is None:
        return not_applicable("this configuration cannot be built for other shapes here")
    if not isinstance(shape, MatmulShape) or shape.m < 2:
        return not_applicable("the operation has no fewer rows to compare with")
    if context.may_differ:
        return not_applicable("declared to differ from launch to launch")
    tried, refused = [], []
    m = shape.m
    # Few and many, with several remainders modulo small numbers.
    wanted_rows = dict.fromkeys((m - 1, m - 2, m // 2, m // 3 + 1, 17, 8, 4, 3, 2, 1))
    for rows in (rows for rows in wanted_rows if 0 < rows < m):
        try:
            differing = _differing_rows(context, rows)
        except (DispatchError, NotImplementedError) as error:
            context.launcher.device.synchronize()
            refused.append(f"{rows} ({error})")
            continue
        if differing is None:
            refused.append(str(rows))
        elif differing.size:
            text = (
                f"the bits of a row depend on the number of rows: with {rows} instead of {shape.m} "
                f"rows, {differing.size} of the first {rows} differ (first {differing[0]})"
            )
            return failed(text) if wanted == DEMAND else property_of(text)
        else:
            tried.append(rows)
    if not tried:
        return not_applicable(f"it refuses other numbers of rows: {', '.join(refused)}")
    return passed(f"the same bits with {', '.join(map(str, tried))} rows")


def _differing_rows(context: Context, rows: int) -> Array | None:
    """Numbers of the rows that differ; None where that number of rows is not supported."""
    operation = context.operation
    assert isinstance(operation.shape, MatmulShape)
    fewer = Operation(operation.signature, operation.shape._replace(m=rows))
    try:
        check_shape(fewer.signature, fewer.shape)
    except RequestError:
        return None
    assert context.companions is not None
    with context.companions.built(fewer) as executable:
        if executable is None:
            return None
        launcher = Launcher(executable, fewer, context.companions.tile)
        placed = launcher.place(_first_rows(operation, fewer, context.inputs), keep_copies=False)
        launch = launcher.launch(placed)
        problem = launcher.form_problem(launch)
        if problem:
            raise NotImplementedError(problem)
        few = to_logical(launch.output, fewer.output)
    all_rows = to_logical(context.first.output, operation.output)[..., :rows, :]
    same = as_bits(np.ascontiguousarray(few)) == as_bits(np.ascontiguousarray(all_rows))
    by_row = same.reshape(few.shape).all(axis=-1).reshape(-1, rows).all(axis=0)
    return np.flatnonzero(~by_row)


def _first_rows(
    operation: Operation, fewer: Operation, inputs: Sequence[Array]
) -> tuple[Array, ...]:
    """The inputs of `fewer`: those of `operation` without the last rows."""
    found = []
    for spec, new, array in zip(operation.inputs, fewer.inputs, inputs, strict=True):
        part = tuple(slice(size) for size in new.shape)
        found.append(to_storage(to_logical(array, spec)[part], new))
    return tuple(found)
