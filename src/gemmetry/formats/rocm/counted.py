"""Dispatches with their hardware counters, as every format of rocprofv3 records them."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from math import isclose, prod
from typing import Any

from gemmetry.formats.events import MISSING
from gemmetry.formats.rocm.rows import rank_of

_AGREE = 0.1
"""Relative difference of a counter between two passes that is taken for their noise: cycles vary
from one execution to the next, and figures that mix passes vary as much."""

_RANK_ARGUMENT = re.compile(r"--rank(?:=|\s+)(\d{1,9})(?:\s|\Z)")


@dataclass(slots=True)
class CountedDispatch:
    """One execution of a kernel. Whole numbers are ``MISSING`` where the file does not have
    them."""

    number: int
    """Of the dispatch, in its process."""
    kernel: str
    device: int
    """Number of the GPU."""
    grid: tuple[int, ...]
    """Workgroups by dimension, or in all where the file has the product only; () where it has
    neither."""
    block: tuple[int, ...]
    """Work-items of a workgroup, likewise."""
    lds_bytes: int
    """Of a workgroup."""
    scratch_bytes: int
    """Of a work-item."""
    vgprs: int
    accum_vgprs: int
    sgprs: int
    start_ns: int
    end_ns: int
    values: dict[str, float] = field(default_factory=dict)
    """Counter -> sum over its instances (XCCs, shader engines, channels of a cache); empty where
    no counters were collected."""

    @property
    def workgroups(self) -> int:
        """Of the grid."""
        return prod(self.grid) if self.grid else MISSING

    @property
    def workgroup_size(self) -> int:
        """Work-items of a workgroup."""
        return prod(self.block) if self.block else MISSING

    @property
    def duration_ns(self) -> int | None:
        """Duration; None where the file has no times."""
        if self.start_ns < 0 or self.end_ns < self.start_ns:
            return None
        return self.end_ns - self.start_ns


@dataclass(frozen=True, slots=True, kw_only=True)
class CountedGpu:
    """What rocprofv3 records of a GPU; fields as in
    :class:`~gemmetry.hardware.amd_metrics.AmdGpu`."""

    chip: str
    product: str
    units: int
    simds: int
    xccs: int
    waves_per_unit: int


@dataclass(slots=True, kw_only=True)
class CountedProcess:
    """The dispatches of one process."""

    pid: int | None = None
    rank: int | None = None
    rank_source: str = ""
    """``environment`` or ``command line``, as the file has them; "" where the rank is not known."""
    host: str = ""
    gpus: dict[int, CountedGpu] = field(default_factory=dict)
    """By number."""
    dispatches: list[CountedDispatch] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    @property
    def has_counters(self) -> bool:
        """Whether counters were collected."""
        return any(one.values for one in self.dispatches)

    def join_replays(self) -> None:
        """Make one dispatch of those that rocprofv3 replayed, once for each group of counters.

        A replay has the number, GPU, kernel and grid of the first execution, and another time.
        Time and counters are those of the first pass that has them.
        """
        kept: dict[tuple[object, ...], CountedDispatch] = {}
        differing: set[str] = set()
        for place, one in enumerate(self.dispatches):
            key = one.device, one.number, one.kernel, one.grid, one.block
            first = kept.setdefault(key if one.number >= 0 else (place,), one)
            if first is not one:
                first.values = joined_values(first.values, one.values, differing)
        self.dispatches = list(kept.values())
        self.problems += disagreement(differing)

    def take_rank(self, environment: Mapping[str, Any], command: str) -> None:
        """The rank according to the process's environment, else its command line."""
        rank, _ = rank_of([environment])
        found = _RANK_ARGUMENT.search(command)
        if rank is not None:
            self.rank, self.rank_source = rank, "environment"
        elif found:
            self.rank, self.rank_source = int(found[1]), "command line"


def joined_values(
    values: Mapping[str, float], more: Mapping[str, float], differing: set[str]
) -> dict[str, float]:
    """The counters of two passes over the same dispatch; of a counter that both have, the first.

    Args:
        differing: the names of counters on which the passes disagree are added to it.
    """
    differing |= {
        name
        for name in values.keys() & more.keys()
        if not isclose(values[name], more[name], rel_tol=_AGREE)
    }
    return {**more, **values}


def disagreement(differing: Collection[str]) -> list[str]:
    """The problem that passes disagree on counters; [] if they do not."""
    if not differing:
        return []
    named = ", ".join(sorted(differing))
    return [f"passes over the same launch differ by more than {_AGREE:.0%} in {named}: the first "
            "pass is shown, and figures that mix passes are as uncertain"]  # fmt: skip


def counted_gpu(value: Callable[[str], Any]) -> CountedGpu | None:
    """The GPU that rocprofv3 describes; None where the description lacks a number.

    Args:
        value: a property by its name, such as ``cu_count``.
    """
    numbers = [_positive(value(name)) for name in ("cu_count", "simd_count", "num_xcc",
                                                   "max_waves_per_cu")]  # fmt: skip
    units, simds, xccs, waves = numbers
    if units is None or simds is None or xccs is None or waves is None:
        return None
    return CountedGpu(
        chip=str(value("name") or ""),
        product=str(value("product_name") or ""),
        units=units,
        simds=simds,
        xccs=xccs,
        waves_per_unit=waves,
    )


def grid_and_block(
    work_items: Sequence[int], sizes: Sequence[int]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Workgroups, and work-items of each, by dimension; rocprofv3 records grids in work-items.

    Args:
        work_items: of the grid, by dimension.
        sizes: of a workgroup, by dimension.
    """
    if min(sizes) <= 0:
        return (), ()
    if min(work_items) < 0:
        return (), tuple(sizes)
    grid = tuple(-(-items // size) for items, size in zip(work_items, sizes, strict=True))
    return grid, tuple(sizes)


def _positive(value: object) -> int | None:
    try:
        number = int(str(value))
    except ValueError:
        return None
    return number if number > 0 else None
