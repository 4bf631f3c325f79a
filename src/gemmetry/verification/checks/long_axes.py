"""The check of shapes that are long along one axis, and tiny along the others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from gemmetry.verification.checks import exact, shapes
from gemmetry.verification.checks.results import CheckResult, not_applicable, passed
from gemmetry.verification.companions import DEFAULT_TILE, Companions, Sizes, rounded_options
from gemmetry.verification.context import Context

NAME = "long_axes"

FOUR_BITS, EIGHT_BITS, TEN_BITS, TWELVE_BITS, SIXTEEN_BITS = 2**4, 2**8, 2**10, 2**12, 2**16
"""Tiles and elements that a counter of so many bits begins anew after; 1024 is also the most
threads of a block (CUDA C++ Programming Guide, compute capabilities)."""

LONGEST_S = {False: 1.0, True: 10.0}
"""Thorough or not -> seconds that a launch of one of the longest shapes may take, as shorter ones
predict it. A kernel in numpy takes 20 ms for 65536 products, a GPU a few milliseconds."""


class _Step(NamedTuple):
    """A shape, and one that is so much longer; None: none."""

    sizes: Sizes
    longer: Sizes | None = None
    times: float = 0.0


def check_long_axes(context: Context) -> CheckResult:
    """More than 1024 rows, more than 1024 columns (16 tiles at least) and more than 65536 products,
    each with next to nothing along the other axes; thorough: more than 65536 rows and columns as
    well (256 tiles at least). On whole numbers whose sums are exact: one launch each."""
    companions = context.companions
    if companions is None:
        return not_applicable(NAME, "nothing builds this configuration for other shapes here")
    key = f"{NAME} {'thorough' if context.thorough else 'few'}"
    if key not in companions.known:
        result = _try_all(context, companions)
        if result.is_failure:
            return result
        companions.known[key] = result
    return companions.known[key]


def _steps(tile: tuple[int, int, int], *, thorough: bool) -> Sequence[_Step]:
    bm, bn, _ = tile
    rows, columns = (max(FOUR_BITS * size, TEN_BITS) + 5 for size in (bm, bn))
    more_rows, more_columns = (max(EIGHT_BITS * size, SIXTEEN_BITS) + 5 for size in (bm, bn))
    few, many = TWELVE_BITS + 6, SIXTEEN_BITS + 6
    found = [
        _Step(Sizes(rows, 3, 5), Sizes(more_rows, 3, 5), more_rows / rows),
        _Step(Sizes(3, columns, 5), Sizes(3, more_columns, 5), more_columns / columns),
    ]
    if not thorough:
        found = [_Step(step.sizes) for step in found]
    return [*found, _Step(Sizes(3, 8, few), Sizes(3, 8, many), many / few)]


def _try_all(context: Context, companions: Companions) -> CheckResult:
    tried, left_out = 0, []
    for step in _steps(companions.tile or DEFAULT_TILE, thorough=context.thorough):
        found, seconds = _try(context, companions, step.sizes, is_timed=step.longer is not None)
        if found is not None and found.failure is None and not found.refusal and step.longer:
            tried += 1
            predicted_s = seconds * step.times
            if predicted_s > LONGEST_S[context.thorough]:
                left_out.append(f"{_text(step.longer)}, which would take {predicted_s:.1f} s")
                continue
            found, _ = _try(context, companions, step.longer)
        if found is None:
            continue
        if found.failure is not None:
            return shapes.inner_failure(NAME, found.operation, found.failure)
        if found.refusal:
            left_out.append(f"{found.operation}: {found.refusal}")
        tried += not found.refusal
    detail = f"left out: {'; '.join(left_out)}" if left_out else ""
    return passed(NAME, detail) if tried else not_applicable(NAME, detail or "there are none")


def _text(sizes: Sizes) -> str:
    return "x".join(map(str, sizes))


def _try(
    context: Context, companions: Companions, sizes: Sizes, *, is_timed: bool = False
) -> tuple[shapes.Attempt | None, float]:
    """What became of the first shape that is not refused, and, if `is_timed`, the least seconds of
    a few more launches of it: a first one may compile, and others may have been disturbed."""
    seconds = [0.0]

    def timed(inner: Context) -> CheckResult:
        launches = (inner.first, *(inner.launcher.launch(inner.main, sentinel=0) for _ in range(2)))
        seconds.append(min(launch.seconds for launch in launches))
        return passed("timed")

    found = None
    for operation in rounded_options(context.operation, sizes):
        checks = (exact.check_integers, *([timed] if is_timed else []))
        found = shapes.attempt(context, companions, NAME, operation, checks)
        if not found.refusal:
            break
    return found, seconds[-1]
