"""Kernel launches with their hardware counters, in the one form that every reader returns.

Nsight Compute and rocprofv3 write the same facts in many shapes. Readers return a
:class:`LaunchTable`: one row per launch, one column per metric, values in base units (``ns``,
``byte``, ``hz``, ``%``, ``cycle`` …), so that ten thousand launches with two thousand metrics fit
into memory. A :class:`ProfiledLaunch` is a view of one row.

Numbers as Nsight Compute writes them into CSV files.

Launches that are read one by one -> the columns of a :class:`LaunchTable`.

Units of hardware counters -> base units.

Nsight Compute scales a metric to a readable size (``--print-units auto``): ``Kbyte`` is 1000 bytes,
as ``byte`` in its reports divided by ``Kbyte`` in the CSV of the same report shows. Its base units,
which the readers return, are those of ``--print-units base``: ``byte``, ``hz``, ``ns``, and seconds
where a unit is a rate (``byte/s``). A value in a unit that is none of these is left out: as a
plain number it would be off by an unknown factor.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt

from gemmetry.domain.errors import RequestError
from gemmetry.domain.units import noun_for, plural

Float64 = npt.NDArray[np.float64]
Triple = tuple[int, int, int]
Tool = Literal["ncu", "rocprofv3", "rocprof-compute"]
SpeedupKind = Literal["local", "global"]
RuleKind = Literal["ok", "optimization", "warning", "error"]

DURATION = "gpu__time_duration.sum"
"""Id of the time on the GPU, in ns; readers of other tools use it too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleResult:
    """Conclusion of a rule of the profiler about one launch."""

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
    """Disassembly; "" where the report has none."""
    counts: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchInfo:
    """Identity of a launch. Fields that the file does not give are None or empty."""

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
        """Identity of the launch."""
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
        found = ((name, self.value(name)) for name in self.table.values)
        return {name: value for name, value in found if value is not None}

    def texts(self) -> dict[str, str]:
        """All texts that the report has about this launch."""
        found = {name: self.text(name) for name in self.table.texts}
        return {name: text for name, text in found.items() if text}


_SEPARATED = re.compile(r"[+-]?\d{1,3}(?:,\d{3})+(?:\.\d*)?")
_DECIMAL_COMMA = re.compile(r"[+-]?(?:\d+|\d{1,3}(?:\.\d{3})+),\d+")
_MISSING = frozenset(("", "n/a", "no data", "nan", "-nan", "inf", "-inf"))


@lru_cache(maxsize=4096)
def is_missing(text: str) -> bool:
    """Whether a cell states that there is no value; infinite ratios (0 as the divisor) count."""
    return text.strip().removeprefix("(!)").strip().lower() in _MISSING


def number(text: str) -> float | None:
    """The number in a cell, which may have thousands separators; None if it is none."""
    try:
        value = float(text)
    except ValueError:
        if not _SEPARATED.fullmatch(text.strip()):
            return None
        value = float(text.replace(",", ""))
    return value if math.isfinite(value) else None


@lru_cache(maxsize=4096)
def triple(text: str) -> tuple[int, int, int] | None:
    """The sizes in ``(384, 1, 1)``; None if there are no three."""
    found = re.findall(r"\d{1,18}", text)
    return (int(found[0]), int(found[1]), int(found[2])) if len(found) == 3 else None


@lru_cache(maxsize=4096)
def integer(text: str) -> int | None:
    """The whole number in a cell; None if it is none."""
    value = number(text)
    return int(value) if value is not None and value == int(value) else None


def check_decimal_point(text: str, unit: str) -> None:
    """Reject a number that a locale with a decimal comma wrote: the points in other numbers would
    be misread.

    Args:
        text: a cell that is no number.
        unit: that of the cell; without a unit it may be a list, such as that of TPCs.

    Raises:
        RequestError: `text` is such a number.
    """
    if unit and _DECIMAL_COMMA.fullmatch(text.strip()):
        raise RequestError(
            f"the numbers have a decimal comma, as in {text!r}",
            hint="Export the report again with LC_ALL=C ncu --import FILE --page raw --csv.",
        )


class Columns:
    """The values of `count` launches.

    Args:
        metrics: ids of those to keep; None for all.
    """

    def __init__(self, count: int, metrics: Collection[str] | None = None) -> None:
        self._count = count
        self._metrics = metrics
        self._values: dict[str, Float64] = {}
        self._units: dict[str, str] = {}
        self._texts: dict[str, list[str]] = {}

    def put(self, row: int, metric: str, value: float | str | None, unit: str = "") -> None:
        """Store one value, a number in the base unit `unit` or a text; None where it is missing."""
        if self._metrics is not None and metric not in self._metrics:
            return
        if isinstance(value, str):
            if value:
                self._texts.setdefault(metric, [""] * self._count)[row] = value
            return
        column = self._values.get(metric)
        if column is None:
            column = self._values[metric] = np.full(self._count, np.nan)
            self._units[metric] = unit
        # Damaged files have whole numbers that no float64 holds.
        if value is not None and abs(value) <= sys.float_info.max:
            column[row] = value

    def unit(self, metric: str) -> str | None:
        """The unit of a metric that was stored; None if none was."""
        return self._units.get(metric)

    def table(
        self,
        tool: Tool,
        infos: Sequence[LaunchInfo],
        *,
        version: str = "",
        source: Path | None = None,
        problems: Sequence[str] = (),
    ) -> LaunchTable:
        """All of them."""
        return LaunchTable(
            tool=tool, infos=infos, values=self._values, units=self._units,
            texts=dict(self._texts), version=version, source=source, problems=list(problems),
        )  # fmt: skip


_SIZES = {"": 0, "k": 3, "m": 6, "g": 9, "t": 12, "p": 15, "e": 18}
_TIMES = {
    "ns": -9, "nsecond": -9, "us": -6, "usecond": -6, "µs": -6, "μs": -6, "ms": -3, "msecond": -3,
    "s": 0, "second": 0,
}  # fmt: skip
"""Spelling -> power of ten, in seconds; versions before 2023 wrote ``nsecond``."""

_COUNTED = frozenset((
    "", "%", "access", "attribute", "batch", "block", "branch", "cluster", "conflict", "cta",
    "cycle", "gpc", "inst", "instruction", "interrupt", "launch", "operation", "packet", "pass",
    "pixel", "primitive", "process", "quad", "register", "request", "sample", "sector", "sm",
    "texel", "thread", "tpc", "transaction", "vertex", "vertice", "warp", "wave",
    "wavefront", "workload",
))  # fmt: skip
"""Counted things, in the singular: units that are not scaled. From reports of compute capabilities
7.5 to 10.0, and the dimensions of CUPTI's metrics."""
_PLURAL = re.compile(r"(?<=ss)es$|(?<=ch)es$|(?<=[^s])s$")

_SCALED = re.compile(r"([kmgtpe]?)(byte|hz|bit)", re.IGNORECASE)
_FREQUENCY = "cycle/s"


@cache
def base_unit(unit: str) -> tuple[str, float] | None:
    """The base unit of `unit`, and the factor from a value in `unit` to one in the base unit; None
    if `unit` is unknown. A unit that is not scaled is its own base unit: (`unit`, 1)."""
    over, slash, under = unit.strip().partition("/")
    found, divisor = _part(over), _part(under)
    if found is None or divisor is None:
        return None
    base, power = found
    if over in _TIMES:
        base, power = "ns", power + 9
    if slash:
        base = f"{base}/{divisor[0]}"
        # Nsight Compute shortens 8190 %/byte to 8.19 %/Kbyte: only times divide.
        power += -divisor[1] if divisor[0] == "s" else divisor[1]
    # Not 10.0**power, whose negative powers differ in the last digit.
    return ("hz" if base == _FREQUENCY else base), float(f"1e{power}")


class UnknownUnits:
    """The metrics of a report that are in unknown units, by unit."""

    def __init__(self) -> None:
        self._metrics: dict[str, dict[str, None]] = {}

    def add(self, metric: str, unit: str) -> None:
        """Note a metric whose value is left out."""
        self._metrics.setdefault(unit, {})[metric] = None

    def problems(self) -> list[str]:
        """A sentence for each unit."""
        return [
            f"the unit {unit!r} is unknown: {next(iter(metrics))}"
            + (f" and {plural(len(metrics) - 1, 'other metric')}" if len(metrics) > 1 else "")
            + f" {noun_for(len(metrics), 'is', 'are')} left out"
            for unit, metrics in self._metrics.items()
        ]


def _part(name: str) -> tuple[str, int] | None:
    """The base unit and the power of ten of what is over or under the line; None: unknown."""
    if name in _TIMES:
        return "s", _TIMES[name]
    if scaled := _SCALED.fullmatch(name):
        return scaled[2].lower(), _SIZES[scaled[1].lower()]
    return (name, 0) if _PLURAL.sub("", name.lower()) in _COUNTED else None
