"""What the files of a sweep's analysis are made from, whether it was read from traces or from
TraceLens' workbooks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from gemmetry.analysis.sweeps.model import GemmKind, RankFacts, SweepConfiguration
from gemmetry.analysis.sweeps.ranks.cause import Floats
from gemmetry.analysis.sweeps.ranks.gemms import GemmStatistics
from gemmetry.domain.tables import Table

Timeline = Mapping[str, tuple[float, float]]
"""Row of ``gpu_timeline`` -> its time in ms, and its share of the whole time in %."""


class TracedGemm(NamedTuple):
    """What only a trace shows of a GEMM: each of its instances."""

    facts: RankFacts
    statistics: GemmStatistics


@dataclass(frozen=True, slots=True, kw_only=True)
class RankGemm:
    """One GEMM, a kernel with a shape, on one rank of a point; times in µs."""

    rank: int | None
    kind: GemmKind
    count: int
    min_us: float
    median_us: float
    max_us: float
    durations_us: Floats
    """Of all instances from a trace; from a workbook the shortest, the median and the longest."""
    row: Mapping[str, Any] = field(default_factory=dict)
    """The row of the sheet ``GEMM`` of the operator that launched it; {} where there is none."""
    traced: TracedGemm | None = None
    """None from a workbook."""

    @property
    def spread_us(self) -> float:
        """Longest less shortest time, which the document's scripts call "time variance"."""
        return self.max_us - self.min_us


@dataclass(frozen=True, slots=True, kw_only=True)
class ProductPoint:
    """One point of a sweep."""

    configuration: SweepConfiguration
    repeat: int | None
    """Number of the repeat; None in a sweep without repeats."""
    outcome: str = "ok"
    """Like :attr:`~gemmetry.analysis.sweeps.model.Point.outcome`."""
    reason: str = ""
    gemms: tuple[RankGemm, ...] = ()
    timelines: Mapping[int | None, Timeline] = field(default_factory=dict)
    """By rank, where the rank did work on a GPU."""

    @property
    def thread_config(self) -> str:
        """``256thread``; "" where the sweep does not set the number of threads."""
        return _named(self.configuration.threads, "thread")

    @property
    def channel_config(self) -> str:
        """``28ch``; "" where the sweep does not set the number of channels."""
        return _named(self.configuration.channels, "ch")

    @property
    def folders(self) -> tuple[str, ...]:
        """The folders of its reports: ``256thread``, then one per further axis, then the repeat."""
        axes = (_file_name(f"{name}={value}") for name, value in self.configuration.axes)
        repeat = () if self.repeat is None else (f"repeat_{self.repeat:02d}",)
        return tuple(filter(None, (self.thread_config, *axes, *repeat)))

    @property
    def full_config(self) -> str:
        """``256thread_28ch``, with further axes and the repeat where there are any."""
        thread, *others = self.folders if self.thread_config else ("", *self.folders)
        return "_".join(filter(None, (thread, self.channel_config, *others))) or "all"

    @property
    def axes_text(self) -> str:
        """``NCCL_ALGO=Ring, bucket=32``; "" without further axes."""
        return ", ".join(f"{name}={value}" for name, value in self.configuration.axes)

    def rank_reports(self, folder: Path) -> str:
        """The beginning of the paths of the workbooks of single traces, which end in ``rank0.xlsx``
        or the like, below the `folder` of the analysis."""
        name = "_".join(filter(None, ("perf", self.channel_config)))
        return str(folder.joinpath(*self.folders, "individual_reports", f"{name}_"))

    def collective_report(self, folder: Path) -> Path:
        """The workbook of the collectives of all ranks below the `folder` of the analysis."""
        name = "_".join(filter(None, ("collective", self.channel_config)))
        return folder.joinpath(*self.folders, "collective_reports", f"{name}.xlsx")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProductSweep:
    """All points of a sweep."""

    points: Sequence[ProductPoint]
    collectives: Callable[[ProductPoint], list[Table]]
    """The sheets of TraceLens' report on the collectives of all ranks of a point; [] without any.
    They are made on request, because those of a thousand ranks take much memory."""
    is_traced: bool
    """Whether it was read from traces; workbooks do not show single instances."""
    problems: Sequence[str] = ()
    """What could not be read."""


def comparable_gemms(point: ProductPoint) -> list[RankGemm]:
    """The GEMMs of a point whose instances are one problem each: not those whose shape is not
    known, unless the traces record no shape at all; helper passes are left out."""
    gemms = [gemm for gemm in point.gemms if not gemm.kind.is_helper]
    return [gemm for gemm in gemms if gemm.kind.m is not None] or gemms


def _named(number: int | None, word: str) -> str:
    return "" if number is None else f"{number}{word}"


def _file_name(text: str) -> str:
    """`text` without what a name of a folder cannot have."""
    return text.replace("/", "_").replace("\\", "_")
