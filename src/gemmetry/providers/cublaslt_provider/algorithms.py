"""Algorithms of cuBLASLt, the names of their configurations, and finding them: those that the
heuristic proposes, one by its values, or all that are legal.

A name holds what defines an algorithm for the library, so that it means the same in another run and
on another machine, which a place among the heuristic's proposals does not::

    algo66_tile128x256_stages64xauto_cluster2x1x1
    algo21_tile64x64_stages64x4_splitk3_reducecompute_swizzle1

Parts that have their usual value are left out. ``tile`` is rows x columns of cuBLASLt's
column-major result, which for a row-major C is N x M.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from functools import cache
from itertools import islice, product

from gemmetry.domain.dispatch import Configuration, Parameter
from gemmetry.domain.errors import UnsupportedError
from gemmetry.domain.operation import Layout, Operation
from gemmetry.providers.cublaslt_provider import bindings
from gemmetry.providers.cublaslt_provider.bindings import GemmProblem, Matmul, Reduction, Result


@dataclass(frozen=True, slots=True, kw_only=True)
class Algorithm:
    """The values of ``cublasLtMatmulAlgoConfigAttributes_t``; defaults are the usual values."""

    id: int
    tile: int = 0
    """``cublasLtMatmulTile_t``."""
    stages: int = 0
    """``cublasLtMatmulStages_t``: elements along K and how many such tiles are in flight."""
    split_k: int = 1
    reduction: int = 0
    """``cublasLtReductionScheme_t``."""
    swizzle: int = 0
    custom: int = 0
    inner: int = 0
    """``cublasLtMatmulInnerShape_t``."""
    cluster: int = 0
    """``cublasLtClusterShape_t``."""

    @property
    def name(self) -> str:
        """The name of its configuration."""
        texts = {name: _text(name, value) for name, value in self._unusual().items()}
        return "_".join(_WORDS[name] + text for name, text in texts.items())

    def configuration(self, operation: Operation) -> Configuration:
        """Its configuration for an operation, with the tile along M, N and K, the cluster along M
        and N, and the parts of K as ``splits``."""
        axes = "nm" if operation.signature.result_layout is Layout.ROW else "mn"
        parameters: dict[str, Parameter] = {"algorithm": self.id}
        for what in ("tile", "cluster"):
            sizes = _sizes(what, getattr(self, what))
            parameters |= {f"{what}_{axis}": size for axis, size in zip(axes, sizes, strict=False)}
        depth = _sizes("stages", self.stages)
        if depth and "tile_m" in parameters:
            parameters["tile_k"] = depth[0]
        if len(depth) == 2:
            parameters["stages"] = depth[1]
        for name, value in self._unusual().items():
            if name not in ("id", "tile", "stages", "cluster"):
                key = "splits" if name == "split_k" else name
                parameters[key] = _text(name, value) if name in _ENUMS else value
        return Configuration(self.name, parameters)

    def _unusual(self) -> dict[str, int]:
        """The values that are in the name, in its order."""
        values = {field.name: int(getattr(self, field.name)) for field in fields(self)}
        return {name: value for name, value in values.items() if value != _USUAL[name]}


_USUAL = {field.name: field.default for field in fields(Algorithm)}
_WORDS = {name: name.replace("_", "") for name in _USUAL} | {"id": "algo", "reduction": "reduce"}
"""Field -> the word in names."""
_ENUMS = {
    "tile": ("MatmulTile", "TILE_"),
    "stages": ("MatmulStages", "STAGES_"),
    "inner": ("MatmulInnerShape", ""),
    "cluster": ("ClusterShape", "SHAPE_"),
    "reduction": ("ReductionScheme", ""),
}
"""Field -> the enumeration of the bindings, and what its members begin with."""
_UNLISTED = "id"
"""Precedes a value that the bindings' enumeration does not have."""
_PART = re.compile(rf"({'|'.join(_WORDS.values())})([0-9a-z]+)", re.ASCII)
_NUMBER = re.compile(r"(m?)(0|[1-9][0-9]{0,8})", re.ASCII)


def parse_algorithm(name: str) -> Algorithm | None:
    """The algorithm called `name`; None if no algorithm has exactly that name."""
    words = {word: field for field, word in _WORDS.items()}
    values: dict[str, int] = {}
    for part in name.split("_"):
        match = _PART.fullmatch(part)
        value = None if match is None else _value(words[match[1]], match[2])
        if match is None or value is None:
            return None
        values[words[match[1]]] = value
    found = Algorithm(**values) if "id" in values else None
    return found if found is not None and found.name == name else None


def _text(field: str, value: int) -> str:
    if field in _ENUMS:
        return _members(field).get(value, f"{_UNLISTED}{value}")
    return f"m{-value}" if value < 0 else str(value)


def _value(field: str, text: str) -> int | None:
    if field in _ENUMS:
        listed = {text: value for value, text in _members(field).items()}
        if text in listed:
            return listed[text]
        if not text.startswith(_UNLISTED):
            return None
        text = text.removeprefix(_UNLISTED)
    match = _NUMBER.fullmatch(text)
    if match is None:
        return None
    return -int(match[2]) if match[1] else int(match[2])


@cache
def _members(field: str) -> dict[int, str]:
    if field == "reduction":
        return {int(scheme): str(scheme.name).lower() for scheme in Reduction if scheme.name}
    enumeration, prefix = _ENUMS[field]
    return {
        value: name.removeprefix(prefix).lower()
        for name, value in bindings.members(enumeration).items()
    }


def _sizes(field: str, value: int) -> list[int]:
    """``128x256`` -> [128, 256]; ``64xauto`` -> [64]; [] where the sizes are the library's."""
    text = _text(field, value)
    if not value or text.startswith(_UNLISTED):
        return []
    return [int(part) for part in text.split("x") if part.isdigit()]


MOST_PROPOSALS = 256
"""Of the heuristic, which has far fewer."""
MOST_CHECKED = 100_000
"""Combinations of values that a search asks the library about: some seconds."""

_ATTRIBUTES = {
    "tile": "TILE_ID", "stages": "STAGES_ID", "split_k": "SPLITK_NUM",
    "reduction": "REDUCTION_SCHEME", "swizzle": "CTA_SWIZZLING", "custom": "CUSTOM_OPTION",
    "inner": "INNER_SHAPE_ID", "cluster": "CLUSTER_SHAPE_ID",
}  # fmt: skip
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
        UnsupportedError: the heuristic has none.
    """
    if found := matmul.proposals(count):
        return found
    raise UnsupportedError(
        f"cuBLASLt has no algorithm for {operation}",
        hint="Try another layout, or sizes that are multiples of 16.",
    )


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
        UnsupportedError: the algorithm does not compute the operation, or not in its accumulator.
    """
    if algorithm.reduction & ~problem.reductions:
        raise UnsupportedError(
            f"{algorithm.name} rounds partial sums to {operation.signature.result}, and "
            f"{operation} accumulates in {operation.signature.accumulator}"
        )
    try:
        usual, reason = matmul.initialised(algorithm.id), ""
        base = algorithm_of(matmul, usual)
        if found := matmul.checked(_configured(matmul, usual, base, algorithm)):
            return found
    except UnsupportedError as error:
        reason = f": {error.message}"
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
        UnsupportedError: no algorithm is accepted.
    """
    results = proposed(matmul, operation, MOST_PROPOSALS)
    seen = dict.fromkeys(algorithm_of(matmul, one) for one in results)
    yield from seen
    clusters = tuple(dict.fromkeys([0, *(one.cluster for one in seen), *_CLUSTERS]))
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
    matmul: Matmul, problem: GemmProblem, usual: Result, base: Algorithm, clusters: tuple[int, ...]
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
        splits += product(_SPLITS, [int(one) for one in Reduction if one and one & mask])
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
