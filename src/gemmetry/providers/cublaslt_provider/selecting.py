"""Finds algorithms: those that the heuristic proposes, one by its values, or all that are legal."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

from gemmetry.domain.errors import UnsupportedError
from gemmetry.domain.operation import Operation
from gemmetry.providers.cublaslt_provider.algorithms import Algorithm
from gemmetry.providers.cublaslt_provider.bindings import Matmul, Result
from gemmetry.providers.cublaslt_provider.problem import GemmProblem, Reduction

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
        found = matmul.checked(_configured(matmul, algorithm))
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


def _configured(matmul: Matmul, algorithm: Algorithm) -> Result:
    """
    Raises:
        UnsupportedError: the algorithm does not exist for these formats, or lacks a value.
    """
    result = matmul.initialised(algorithm.id)
    known = algorithm_of(matmul, result)
    for field, attribute in _ATTRIBUTES.items():
        value = getattr(algorithm, field)
        if value != getattr(known, field):
            matmul.configure(result, attribute, value)
    return result


def search(matmul: Matmul, problem: GemmProblem, operation: Operation) -> Iterator[Algorithm]:
    """All algorithms that the library accepts for an operation, those of the heuristic first: every
    identifier with every tile, stage count, custom option, swizzle and cluster that it declares,
    and with K split where it can be. :data:`MOST_CHECKED` combinations are tried at most.

    Raises:
        UnsupportedError: there is none.
    """
    first = [algorithm_of(matmul, one) for one in proposed(matmul, operation, MOST_PROPOSALS)]
    seen = dict.fromkeys(first)
    yield from seen
    clusters = tuple(dict.fromkeys([0, *(one.cluster for one in first), *_CLUSTERS]))
    checked = 0
    for algorithm_id in matmul.ids():
        try:
            usual = matmul.initialised(algorithm_id)
            combinations = list(_combinations(matmul, problem, usual, clusters))
        except UnsupportedError:
            continue
        for algorithm in combinations:
            if checked >= MOST_CHECKED:
                return
            checked += 1
            if algorithm not in seen and _is_legal(matmul, algorithm):
                seen[algorithm] = None
                yield algorithm


def _is_legal(matmul: Matmul, algorithm: Algorithm) -> bool:
    try:
        return matmul.checked(_configured(matmul, algorithm)) is not None
    except UnsupportedError:
        return False


def _combinations(
    matmul: Matmul, problem: GemmProblem, usual: Result, clusters: tuple[int, ...]
) -> Iterator[Algorithm]:
    """What an algorithm declares that it can be set to."""
    base = algorithm_of(matmul, usual)
    tiles = matmul.capability(usual, "TILE_IDS") or [0]
    stages = matmul.capability(usual, "STAGES_IDS") or [0]
    custom = range(_one(matmul, usual, "CUSTOM_OPTION_MAX") + 1)
    swizzles = range(2) if _one(matmul, usual, "CTA_SWIZZLING_SUPPORT") else (0,)
    splits = [(1, 0)]
    if _one(matmul, usual, "SPLITK_SUPPORT"):
        mask = _one(matmul, usual, "REDUCTION_SCHEME_MASK") & problem.reductions
        schemes = [int(one) for one in Reduction if one and one & mask]
        splits += list(product(_SPLITS, schemes))
    for (split, scheme), swizzle, option, cluster, tile, stage in product(
        splits, swizzles, custom, clusters, tiles, stages
    ):
        yield replace(
            base, tile=tile, stages=stage, split_k=split, reduction=scheme, swizzle=swizzle,
            custom=option, cluster=cluster,
        )  # fmt: skip


def _one(matmul: Matmul, result: Result, attribute: str) -> int:
    return next(iter(matmul.capability(result, attribute)), 0)
