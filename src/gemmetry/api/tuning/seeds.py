"""Configurations to try first: what others propose, and what was fast for neighbouring shapes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from gemmetry.domain.errors import RequestError
from gemmetry.domain.names import parse_operation
from gemmetry.domain.operation import Operation
from gemmetry.domain.target import Target
from gemmetry.formats.opening import read_json
from gemmetry.tuning import heuristics
from gemmetry.tuning.space import SearchSpace, positions
from gemmetry.tuning.stored import open_space

_MOST = 8
"""Seeds of a shape from one source."""
_OF_NEIGHBOUR = 3
"""Configurations that a neighbouring shape contributes."""
_FARTHEST = 4.0
"""Octaves along M, N and K beyond which a shape is no neighbour."""

_Known = Mapping[Operation, Mapping[str, float]]
"""Operation -> configuration -> time in ns."""


def seeded(
    spaces: Sequence[SearchSpace], sources: Iterable[str], provider: str, target: Target
) -> tuple[SearchSpace, ...]:
    """`spaces` with seeds.

    Args:
        sources: ``heuristics``, files of tables or of searches, folders of experiments.
        provider: whose configurations are searched.
        target: the device.

    Raises:
        RequestError: a source cannot be read, or knows nothing of the provider.
        TableError: a table is damaged. EnvironmentFailure: the heuristics crashed.
    """
    found: list[dict[int, None]] = [{} for _ in spaces]
    for source in sources:
        for seeds, more in zip(found, _from(source, spaces, provider, target), strict=True):
            seeds.update(dict.fromkeys(more[:_MOST]))
    return tuple(replace(one, seeds=tuple(seeds)) for one, seeds in zip(spaces, found, strict=True))


def _from(
    source: str, spaces: Sequence[SearchSpace], provider: str, target: Target
) -> list[list[int]]:
    if source == heuristics.NAME:
        operations = [one.operation for one in spaces if len(one)]
        proposed = heuristics.proposals(operations, provider, target)
        return [heuristics.nearest(one, proposed.get(one.operation, ())) for one in spaces]
    known = _known(Path(source), provider)
    if not known:
        raise RequestError(
            f"{source} has no times of {provider}, from which seeds could be taken",
            hint="Give a table or an experiment with configurations of this provider.",
        )
    return [_of_neighbours(one, known) for one in spaces]


def _known(path: Path, provider: str) -> _Known:
    if path.is_file() and _is_table(path):
        from gemmetry.dispatcher.problems import operation_of, parts_of
        from gemmetry.dispatcher.table import read_table

        return {
            operation_of(entry.problem): own
            for entry in read_table(path).entries
            if (own := {parts_of(name)[1]: ns for name, ns in entry.times_ns.items()
                        if parts_of(name)[0] == provider})
        }  # fmt: skip
    stored = open_space(path)
    if stored.provider != provider:
        return {}
    return {
        parse_operation(name): {
            one.configuration: one.median_ns for one in times if one.median_ns is not None
        }
        for name, times in stored.operations.items()
    }


def _is_table(path: Path) -> bool:
    """Whether a file is a dispatcher's table, rather than a stored search."""
    try:
        return "entries" in read_json(path)
    except (RequestError, TypeError):
        return False


def _of_neighbours(space: SearchSpace, known: _Known) -> list[int]:
    """The fastest configurations of the nearest shapes, the nearest shape first."""
    mine = space.operation
    near = sorted(
        ((_distance(mine, one), str(one), one) for one in known if one.signature == mine.signature),
    )
    places = positions(space)
    found: dict[int, None] = {}
    for distance, _, other in near:
        times = known[other]
        ranked = [name for name in sorted(times, key=lambda name: times[name]) if name in places]
        if distance <= _FARTHEST:
            found |= dict.fromkeys(places[name] for name in ranked[:_OF_NEIGHBOUR])
    return list(found)


def _distance(one: Operation, other: Operation) -> float:
    """Euclidean distance in octaves of M, N, K and the batch."""
    pairs = zip(one.matmul_shape, other.matmul_shape, strict=True)
    return math.hypot(*(math.log2(a / b) for a, b in pairs))
