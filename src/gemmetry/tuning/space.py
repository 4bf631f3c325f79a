"""What is searched: for each operation, the configurations of one provider with what is known of
them before anything is measured."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from gemmetry.domain.contracts import Provider
from gemmetry.domain.dispatch import DEFAULT_CONFIGURATION, Configuration, Parameter
from gemmetry.domain.operation import Operation
from gemmetry.domain.target import Target
from gemmetry.hardware.devices import device_or_like
from gemmetry.providers.launch_model import filled_shares, pipelined_ns

Matrix = NDArray[np.float64]

_ALIKE = 1e-9
"""Standard deviation up to which the values of a feature are the same, but for rounding."""


@dataclass(frozen=True, slots=True, eq=False)
class SearchSpace:
    """The configurations of one operation among which a search chooses."""

    operation: Operation
    configurations: tuple[Configuration, ...]
    predicted: Matrix
    """Logarithm of the predicted time of each, shape (configurations,); equal where no model
    knows the device or the tiles."""
    filled: Matrix
    """Logarithms of :func:`filled_shares`, shape (configurations, 2): what a time may owe to the
    sizes of the operation, and not to the configuration. 0 where no model knows the device."""
    seeds: tuple[int, ...] = field(default=())
    """Configurations to try first, the most promising one first."""

    def __len__(self) -> int:
        return len(self.configurations)

    @property
    def order(self) -> list[int]:
        """All configurations, the seeds first, then by predicted time, then as they are listed."""
        known = set(self.seeds)
        ranked = np.argsort(self.predicted, kind="stable").tolist()
        return [*self.seeds, *(one for one in ranked if one not in known)]


def space_of(provider: Provider, operation: Operation, target: Target) -> SearchSpace:
    """The space of `operation`, empty where the provider does not support it."""
    if provider.supports(operation, target) is not None:
        return make_space(operation, (), target)
    return make_space(operation, provider.search_space(operation, target), target)


def make_space(
    operation: Operation, configurations: Iterable[Configuration], target: Target
) -> SearchSpace:
    """The space with these configurations, without a ``default`` that only names another one."""
    found = list(dict.fromkeys(configurations))
    others = [one.parameters for one in found if one.name != DEFAULT_CONFIGURATION]
    kept = tuple(
        one
        for one in found
        if one.name != DEFAULT_CONFIGURATION or dict(one.parameters) not in map(dict, others)
    )
    device = device_or_like(target.product, target.architecture) if target.is_gpu else None
    # Without a tile the model's time is that of the best tiles, which says nothing about this one.
    times = [
        math.log(pipelined_ns(operation, one, device)) if device and one.tile else math.nan
        for one in kept
    ]
    predicted = np.array(times, dtype=np.float64)
    usual = np.nanmedian(predicted) if np.isfinite(predicted).any() else 0.0
    shares = [filled_shares(operation, one) if device else (1.0, 1.0) for one in kept]
    return SearchSpace(
        operation,
        kept,
        np.where(np.isnan(predicted), usual, predicted),
        np.log(np.array(shares, dtype=np.float64).reshape(len(kept), 2)),
    )


def features(spaces: Sequence[SearchSpace]) -> list[Matrix]:
    """What distinguishes the configurations of each space, as numbers with a standard deviation of
    about one over all spaces: logarithms of positive parameters, one column for each other value,
    and the logarithms of the predicted time and of the filled shares, where they differ. Each array
    has the shape (configurations, columns)."""
    tables = [[dict(one.parameters) for one in space.configurations] for space in spaces]
    names: dict[str, None] = {}
    values: dict[tuple[str, Parameter], None] = {}
    for table in tables:
        for row in table:
            for name, value in row.items():
                if _is_size(value):
                    names.setdefault(name)
                else:
                    values.setdefault((name, value))
    known = [
        np.array(
            [
                [*(_log2(row.get(name)) for name in names),
                 *(float(row.get(name) == value) for name, value in values)]
                for row in table
            ],
            dtype=np.float64,
        ).reshape(len(table), len(names) + len(values))
        for table in tables
    ]  # fmt: skip
    joined = [
        np.column_stack([own, space.predicted - _mean(space.predicted), space.filled])
        for own, space in zip(known, spaces, strict=True)
    ]
    every = np.concatenate(joined) if joined else np.empty((0, 0))
    if not len(every):
        return joined
    scale, center = every.std(axis=0), every.mean(axis=0)
    differ = scale > _ALIKE
    return [((one - center) / np.where(differ, scale, 1.0))[:, differ] for one in joined]


def _mean(values: Matrix) -> float:
    return float(values.mean()) if len(values) else 0.0


def positions(space: SearchSpace) -> Mapping[str, int]:
    """Name of each configuration -> its index."""
    return {one.name: index for index, one in enumerate(space.configurations)}


def _is_size(value: Parameter) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value > 0


def _log2(value: Parameter | None) -> float:
    """The logarithm of a size; of what has none, one step below that of 1."""
    return math.log2(value) if value is not None and _is_size(value) else -1.0  # type: ignore[arg-type]
