"""The check of shapes that are long along one axis and tiny along the others."""

from __future__ import annotations

import math
from collections.abc import Iterator

from gemmetry.verification.checks import exact, shapes
from gemmetry.verification.checks.results import CheckResult, incomplete, not_applicable, passed
from gemmetry.verification.companions import DEFAULT_TILE, Companions, Sizes, rounded_options
from gemmetry.verification.context import Context

NAME = "long_axes"

FOUR_BITS, EIGHT_BITS, TEN_BITS, SIXTEEN_BITS = 2**4, 2**8, 2**10, 2**16
"""Numbers of tiles and elements at which narrow counters wrap around; 1024 is also the maximum
number of threads per block (CUDA C++ Programming Guide, compute capabilities)."""

LONGEST_S = {False: 1.0, True: 10.0}
"""Thorough or not -> seconds that a launch may take, predicted from the operation's fastest launch
or, if that is too long, from a shorter shape of the same kind. A launch of 65536 products takes 20
ms in numpy, 4 s in Triton's interpreter and a few milliseconds on a GPU."""

SHORTER = 16
"""A shape that seems to take too long is predicted again from one that is shorter by this
factor."""

TRIES = 3
"""Number of launches of the shorter shape, of which the fastest counts."""


def check_long_axes(context: Context) -> CheckResult:
    """More than 1024 rows, more than 1024 columns (16 tiles at least) and more than 65536 products,
    each with minimal sizes along the other axes; thorough: more than 65536 rows and columns as well
    (256 tiles at least). Inputs are integers whose sums are exact; each shape takes one launch."""
    companions = context.companions
    if companions is None:
        return not_applicable(NAME, "this configuration cannot be built for other shapes here")
    key = f"{NAME} {'thorough' if context.thorough else 'few'}"
    if key not in companions.known:
        result = _try_all(context, companions)
        if result.is_failure:
            return result
        companions.known[key] = result
    return companions.known[key]


def long_sizes(tile: tuple[int, int, int], *, thorough: bool = False) -> Iterator[Sizes]:
    """The long and thin shapes of the check."""
    bm, bn, _ = tile
    yield Sizes(max(FOUR_BITS * bm, TEN_BITS) + 5, 3, 5)
    yield Sizes(3, max(FOUR_BITS * bn, TEN_BITS) + 5, 5)
    yield Sizes(3, 8, SIXTEEN_BITS + 6)
    if thorough:
        yield Sizes(max(EIGHT_BITS * bm, SIXTEEN_BITS) + 5, 3, 5)
        yield Sizes(3, max(EIGHT_BITS * bn, SIXTEEN_BITS) + 5, 5)


def _try_all(context: Context, companions: Companions) -> CheckResult:
    tile = companions.tile or DEFAULT_TILE
    own = context.operation.matmul_shape
    seconds = context.fastest_s / (own.batch * _steps(Sizes(*own[:3]), tile))
    tried, refused, too_long = 0, [], []
    for sizes in long_sizes(tile, thorough=context.thorough):
        predicted_s = seconds * _steps(sizes, tile)
        if predicted_s > LONGEST_S[context.thorough]:
            predicted_s = min(predicted_s, _by_shorter_s(context, companions, sizes))
        if predicted_s > LONGEST_S[context.thorough]:
            text = "x".join(map(str, sizes))
            too_long.append(f"{text}, which would take {predicted_s:.1f} s")
            continue
        found = None
        for operation in rounded_options(context.operation, sizes):
            found = shapes.attempt(context, companions, NAME, operation, (exact.check_integers,))
            if not found.refusal:
                break
        if found is None:
            continue
        if found.failure is not None:
            return shapes.inner_failure(NAME, found.operation, found.failure)
        if found.refusal:
            refused.append(f"{found.operation}: {found.refusal}")
        tried += not found.refusal
    left_out = [*too_long, *refused]
    detail = f"left out: {'; '.join(left_out)}" if left_out else ""
    if too_long:
        return incomplete(NAME, detail)
    return passed(NAME, detail) if tried else not_applicable(NAME, detail or "there are none")


def _by_shorter_s(context: Context, companions: Companions, sizes: Sizes) -> float:
    """Seconds that a launch of `sizes` takes, as the fastest of some launches of a shorter shape
    predicts; infinity where that is refused."""
    longest = max(sizes)
    shorter = Sizes(*(size // SHORTER if size == longest else size for size in sizes))
    seconds = math.inf

    def timed(inner: Context) -> CheckResult:
        nonlocal seconds
        for _ in range(TRIES):
            inner.launcher.launch(inner.main, sentinel=0, check_inputs=False)
        seconds = inner.launcher.fastest_s
        return passed(NAME)

    for operation in rounded_options(context.operation, shorter):
        if not shapes.attempt(context, companions, NAME, operation, (timed,)).refusal:
            break
    return SHORTER * seconds


def _steps(sizes: Sizes, tile: tuple[int, int, int]) -> int:
    """Total number of steps along K over all tiles."""
    return math.prod(-(-size // step) for size, step in zip(sizes, tile, strict=True))
