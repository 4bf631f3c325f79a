"""Algorithms of cuBLASLt and the names of their configurations.

A name holds what defines an algorithm for the library, so that it means the same in another run and
on another machine, which a place among the heuristic's proposals does not::

    algo66_tile128x256_stages64xauto_cluster2x1x1
    algo21_tile64x64_stages64x4_splitk3_reducecompute_swizzle1

Parts that have their usual value are left out. ``tile`` is rows x columns of cuBLASLt's
column-major result, which for a row-major C is N x M.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from functools import cache

from gemmetry.domain.dispatch import Configuration, Parameter
from gemmetry.domain.operation import Layout, Operation
from gemmetry.providers.cublaslt_provider import bindings
from gemmetry.providers.cublaslt_provider.bindings import Reduction


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
        is_turned = operation.signature.result_layout is Layout.ROW
        axes = "nm" if is_turned else "mn"
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
_WORDS = {
    "id": "algo", "tile": "tile", "stages": "stages", "split_k": "splitk", "reduction": "reduce",
    "swizzle": "swizzle", "custom": "custom", "inner": "inner", "cluster": "cluster",
}  # fmt: skip
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
    if "id" not in values:
        return None
    found = Algorithm(**values)
    return found if found.name == name else None


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
