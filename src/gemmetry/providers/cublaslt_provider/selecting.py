"""Finds algorithms: those that the heuristic proposes, one by its values, or all that are legal."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice, product

from gemmetry.domain.errors import UnsupportedError
from gemmetry.domain.operation import Operation
from gemmetry.providers.cublaslt_provider.algorithms import Algorithm
from gemmetry.providers.cublaslt_provider.bindings import GemmProblem, Matmul, Reduction, Result

MOST_PROPOSALS = 256
"""Of the heuristic, which has far fewer."""
MOST_CHECKED = 100_000
"""Combinations of values that a search asks the library about: some seconds."""

_ATTRIBUTES = {
    "tile": "TILE_ID",
    "stages": "STAGES_ID",
    "split_k": "SPLITK_NUM",
    "reduction": "REDUCTION_SCHEME",
    "swizzle": "CTA_SWIZZLING",
    "custom": "CUSTOM_OPTION",
    "inner": "INNER_SHAPE_ID",
    "cluster": "CLUSTER_SHAPE_ID",
}
"""Field of an algorithm -> ``cublasLtMatmulAlgoConfigAttributes_t``."""
_SPLITS = (2, 3, 4, 6, 8, 12, 16, 32)
"""Parts of K that a search tries."""
_MOST_CUSTOM = 63
"""The highest custom option that a search tries."""
_CLUSTERS = (3, 5, 6, 2, 4, 8)
"""Shapes of clusters that a search tries besides those proposed: 2x1, 1x2, 2x2, 1x1, 4x1, 1x4
(``cublasLtClusterShape_t``)."""


def proposed(matmul: Matmul, operation: Operation, count: int) -> list[Result]:
    """The heuristic's proposals, at most `count`.

    Raises:
        UnsupportedError: it has none.
    """
    found = matmul.proposals(count)
    if not found:
        raise UnsupportedError(
            f"cuBLASLt has no algorithm for {operation}",
            hint="Try another layout, or sizes that are multiples of 16.",
        )
    return found


def algorithm_of(matmul: Matmul, result: Result) -> Algorithm:
    """The values of an algorithm."""
    values = {}
    for field, attribute in _ATTRIBUTES.items():
        try:
            values[field] = matmul.configured(result, attribute)
        except UnsupportedError:
            continue  # Older versions of the library lack some values.
    values["split_k"] = values.get("split_k", 1) or 1
    return Algorithm(id=matmul.configured(result, "ID"), **values)


def result_of(
    matmul: Matmul, problem: GemmProblem, operation: Operation, algorithm: Algorithm
) -> Result:
    """The algorithm, ready to launch.

    Raises:
        UnsupportedError: it does not compute the operation, or not in its accumulator.
    """
    if algorithm.reduction & ~problem.reductions:
        raise UnsupportedError(
            f"{algorithm.name} rounds partial sums to {operation.signature.result}, and "
            f"{operation} accumulates in {operation.signature.accumulator}"
        )
    try:
        usual = matmul.initialised(algorithm.id)
        base = algorithm_of(matmul, usual)
        found = matmul.checked(_configured(matmul, usual, base, algorithm))
        reason = ""
    except UnsupportedError as error:
        found, reason = None, f": {error.message}"
    if found is not None:
        return found
    # The library's structure is opaque: a proposal may hold more than its attributes show.
    for one in matmul.proposals(MOST_PROPOSALS):
        if algorithm_of(matmul, one) == algorithm:
            return one
    raise UnsupportedError(f"cuBLASLt rejects {algorithm.name} for {operation}{reason}")


def _configured(matmul: Matmul, usual: Result, base: Algorithm, algorithm: Algorithm) -> Result:
    """`usual`, whose values are `base`, with those of `algorithm`.

    Raises:
        UnsupportedError: the algorithm lacks a value.
    """
    result = usual.copy()
    for field, attribute in _ATTRIBUTES.items():
        value = getattr(algorithm, field)
        if value != getattr(base, field):
            matmul.configure(result, attribute, value)
    return result


def search(matmul: Matmul, problem: GemmProblem, operation: Operation) -> Iterator[Algorithm]:
    """All algorithms that the library accepts for an operation, those of the heuristic first: every
    identifier with every tile, stage count, custom option, swizzle and cluster that it declares,
    and with K split where it can be. Identifiers take turns, so that the first algorithms are of
    all of them; :data:`MOST_CHECKED` combinations are tried at most.

    Raises:
        UnsupportedError: there is none.
    """
    first = [algorithm_of(matmul, one) for one in proposed(matmul, operation, MOST_PROPOSALS)]
    seen = dict.fromkeys(first)
    yield from seen
    clusters = tuple(dict.fromkeys([0, *(one.cluster for one in first), *_CLUSTERS]))
    ids = matmul.ids()
    turns = [
        islice(_checked(matmul, problem, one, clusters), MOST_CHECKED // len(ids)) for one in ids
    ]
    while turns:
        for turn in list(turns):
            found = next(filter(None, turn), None)
            if found is None:
                turns.remove(turn)
            elif found not in seen:
                seen[found] = None
                yield found


def _checked(
    matmul: Matmul, problem: GemmProblem, algorithm_id: int, clusters: tuple[int, ...]
) -> Iterator[Algorithm | None]:
    """Each combination of an algorithm, or None where the library rejects it."""
    try:
        usual = matmul.initialised(algorithm_id)
        base = algorithm_of(matmul, usual)
        combinations = _combinations(matmul, problem, usual, base, clusters)
    except UnsupportedError:
        return
    for algorithm in combinations:
        try:
            result = matmul.checked(_configured(matmul, usual, base, algorithm))
        except UnsupportedError:
            result = None
        yield None if result is None else algorithm


def _combinations(
    matmul: Matmul,
    problem: GemmProblem,
    usual: Result,
    base: Algorithm,
    clusters: tuple[int, ...],
) -> Iterator[Algorithm]:
    """What an algorithm declares that it can be set to.

    Raises:
        UnsupportedError: it declares nothing.
    """
    tiles = matmul.capability(usual, "TILE_IDS") or [0]
    stages = matmul.capability(usual, "STAGES_IDS") or [0]
    custom = range(min(max(_one(matmul, usual, "CUSTOM_OPTION_MAX"), 0), _MOST_CUSTOM) + 1)
    swizzles = range(2) if _one(matmul, usual, "CTA_SWIZZLING_SUPPORT") else (0,)
    splits = [(1, 0)]
    if _one(matmul, usual, "SPLITK_SUPPORT"):
        mask = _one(matmul, usual, "REDUCTION_SCHEME_MASK") & problem.reductions
        schemes = [int(one) for one in Reduction if one and one & mask]
        splits += list(product(_SPLITS, schemes))
    every = product(splits, swizzles, custom, clusters, tiles, stages)
    return (
        replace(
            base, tile=tile, stages=stage, split_k=split, reduction=scheme, swizzle=swizzle,
            custom=option, cluster=cluster,
        )
        for (split, scheme), swizzle, option, cluster, tile, stage in every
    )  # fmt: skip


def _one(matmul: Matmul, result: Result, attribute: str) -> int:
    return next(iter(matmul.capability(result, attribute)), 0)
