"""Kernel launches with their hardware counters, in the one form that every reader returns.

Nsight Compute and rocprofv3 write the same facts in many shapes. Readers return a
:class:`LaunchTable`: one row per launch, one column per metric, values in base units (``ns``,
``byte``, ``hz``, ``%``, ``cycle`` …), so that ten thousand launches with two thousand metrics fit
into memory. A :class:`ProfiledLaunch` is a view of one row.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

Float64 = npt.NDArray[np.float64]
Triple = tuple[int, int, int]
Tool = Literal["ncu", "rocprofv3", "rocprof-compute"]
SpeedupKind = Literal["local", "global"]
RuleKind = Literal["ok", "optimization", "warning", "error"]

DURATION = "gpu__time_duration.sum"
"""Id of the time on the GPU, in ns; readers of other tools use it too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleResult:
    """What a rule of the profiler concluded about one launch."""

    identifier: str
    section: str
    kind: RuleKind
    title: str
    message: str
    speedup_percent: float | None = None
    speedup_kind: SpeedupKind | None = None
    """Whether the estimate refers to the metric that the rule is about, or to the run time."""


@dataclass(frozen=True, slots=True)
class StallSamples:
    """Samples of the program counter at one instruction, by stall reason."""

    address: int
    instruction: str
    """Its disassembly; "" where the report has none."""
    counts: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchInfo:
    """What identifies a launch. Fields that the file does not give are None or empty."""

    name: str
    grid: Triple | None = None
    """Blocks along x, y and z (AMD: workgroups)."""
    block: Triple | None = None
    cluster: Triple | None = None
    device: str = ""
    """The product's name."""
    capability: str = ""
    """NVIDIA: compute capability, such as ``9.0``. AMD: the architecture, such as ``gfx942``."""
    number: int | None = None
    """Position within the profiled process, as the profiler counts it."""
    process: int | None = None
    context: int | None = None
    stream: int | None = None
    rules: tuple[RuleResult, ...] = ()
    samples: Sequence[StallSamples] = ()
    """Read from the file when they are first used, where that takes long."""


@dataclass(slots=True, kw_only=True)
class LaunchTable:
    """All launches of one report.

    Attributes:
        tool: what recorded them.
        infos: one per launch.
        values: metric id -> a float64 array with one value per launch; NaN where it is missing.
        units: metric id -> base unit; "" for a plain number.
        texts: metric id -> one text per launch, for metrics that are not numbers.
        version: of the profiler; "" where the file does not give it.
        source: the file.
        problems: whole sentences about what could not be read.
        sections: of Nsight Compute that a summary (the details page) shows, by their identifiers;
            the page lacks most of their metrics, which the report itself has.
    """

    tool: Tool
    infos: Sequence[LaunchInfo]
    values: dict[str, Float64]
    units: dict[str, str]
    texts: dict[str, Sequence[str]] = field(default_factory=dict)
    version: str = ""
    source: Path | None = None
    problems: list[str] = field(default_factory=list)
    sections: frozenset[str] = frozenset()

    def __len__(self) -> int:
        return len(self.infos)

    def __getitem__(self, index: int) -> ProfiledLaunch:
        return ProfiledLaunch(self, range(len(self.infos))[index])

    def __iter__(self) -> Iterator[ProfiledLaunch]:
        return (ProfiledLaunch(self, index) for index in range(len(self.infos)))


@dataclass(frozen=True, slots=True)
class ProfiledLaunch:
    """One launch of a table."""

    table: LaunchTable
    index: int

    @property
    def info(self) -> LaunchInfo:
        """What identifies it."""
        return self.table.infos[self.index]

    @property
    def name(self) -> str:
        """The kernel's name, as the profiler wrote it."""
        return self.info.name

    @property
    def duration_ns(self) -> float | None:
        """Time on the GPU."""
        return self.value(DURATION)

    def value(self, metric: str) -> float | None:
        """The metric in its base unit; None where the report does not have it, or not as a finite
        number."""
        column = self.table.values.get(metric)
        if column is None or not np.isfinite(column[self.index]):
            return None
        return float(column[self.index])

    def unit(self, metric: str) -> str:
        """The base unit of `metric`."""
        return self.table.units.get(metric, "")

    def text(self, metric: str) -> str:
        """The metric as a text; "" where the report does not have it."""
        column = self.table.texts.get(metric)
        return column[self.index] if column is not None else ""

    def metrics(self) -> dict[str, float]:
        """All numbers that the report has about this launch."""
        found: dict[str, Any] = {name: self.value(name) for name in self.table.values}
        return {name: value for name, value in found.items() if value is not None}

    def texts(self) -> dict[str, str]:
        """All texts that the report has about this launch."""
        found = {name: self.text(name) for name in self.table.texts}
        return {name: text for name, text in found.items() if text}
