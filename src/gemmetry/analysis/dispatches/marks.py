"""Which marks distinguish a measurement from its neighbours, and which describe the whole run.

A mark that nearly every row of a run carries says something about the machine and nothing about the
row. Records keep all of their marks; this module decides which of them a report shows in the row
and which it states once.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field

from gemmetry.domain.record import Measurement, Record
from gemmetry.measurement.marks import WIDE
from gemmetry.statistics.intervals import half_width
from gemmetry.statistics.quantiles import quantile

LEAST_ROWS = 4
"""Measured rows of a device from which on they are neighbours: among fewer nothing is usual."""

COMMON_SHARE = 0.5
"""A kind of mark on more than this share of a device's measured rows is a state of the run."""

LENGTHENED = frozenset({"busy", "load average", "stalled", "two modes"})
"""Kinds of samples that something else than the kernel made longer, or may have."""

DISTURBED = LENGTHENED | {"noisy"}
"""Kinds that other programs cause. They have one cause and many forms, so rows that have any of
them are counted together: where these are more than :data:`COMMON_SHARE`, every such kind that
:data:`PART_SHARE` of the rows have is a state of the run."""

PART_SHARE = 0.25
"""Fewer are what the upper quartile, by which readings are judged, leaves out anyway."""

FENCE = 1.5
"""A reading above the upper quartile by more than this many interquartile ranges stands out (Tukey,
"Exploratory Data Analysis", 1977): a quarter of the rows may be arbitrarily bad without moving the
fence."""

LEAST_RATIO = 2.0
"""It must also be this many times the median, because quartiles of a steady run are so close that
small differences would lie beyond the fence."""

_OF_THE_KERNEL = ("remembers", "runs on", "host work")
"""Kinds that call the row's time into question whatever its neighbours do."""

_LOAD = "load average"


def mark_kind(mark: str) -> str:
    """What kind of mark it is: what stands before its colon; ``load average`` has none."""
    return _LOAD if mark.startswith(_LOAD) else mark.partition(":")[0]


def relative_half_width(measurement: Measurement) -> float | None:
    """Half the width of the median's interval over the median, which is what sampling goes on for
    and what the mark ``noisy`` is about; None without an interval."""
    low, high = measurement.ci_low_ns, measurement.ci_high_ns
    interval = None if low is None or high is None else (low, high)
    return half_width(interval, measurement.median_ns)


_READINGS: Mapping[str, Callable[[Measurement], float | None]] = {
    "noisy": relative_half_width,
    "busy": lambda m: max(m.telemetry.run_delay_share or 0.0, m.telemetry.others_cpu_share or 0.0),
    _LOAD: lambda m: m.telemetry.load_average,
    "stalled": lambda m: m.median_ns / m.min_ns if m.min_ns > 0 else None,
    "processes differ": lambda m: m.process_spread,
}
"""Kind -> how strongly a measurement has it; kinds without a reading are all alike."""

_LIMITS = {"noisy": WIDE}
"""Kind -> the reading above which a row keeps its mark however bad its neighbours are: where many
rows have wide intervals, there is no fence that the widest would lie beyond."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunState:
    """What most measurements of one device have in common."""

    target: str
    device: str
    measured: int
    common: Mapping[str, int]
    """Kind of mark -> on how many of the measured rows, most first."""
    usual_half_width: float | None
    """Median over the rows; None where no interval is known."""
    fences: Mapping[str, float] = field(default_factory=dict)
    """Kind -> the reading above which a row stands out from its neighbours all the same."""


@dataclass(frozen=True, slots=True)
class RunMarks:
    """The marks of a run, divided into what is common and what stands out."""

    states: Mapping[tuple[str, str], RunState]
    """(target, device) -> what its measured rows have in common, which may be nothing."""

    def of(self, record: Record) -> tuple[str, ...]:
        """The record's marks that its neighbours do not have in the same way."""
        m = record.measurement
        if m is None:
            return ()
        state = self.states.get((record.target, record.device))
        return tuple(mark for mark in m.marks if _stands_out(m, mark_kind(mark), state))

    @property
    def has_common(self) -> bool:
        """Whether the rows of any device share marks."""
        return any(state.common for state in self.states.values())

    def counts(self, records: Iterable[Record]) -> dict[str, int]:
        """Kind -> how many of `records` have such a mark of their own, most first."""
        return _counted({mark_kind(mark) for mark in self.of(record)} for record in records)


def find_run_marks(records: Iterable[Record]) -> RunMarks:
    """Divide the marks of `records`, each device's rows by themselves."""
    groups: dict[tuple[str, str], list[Measurement]] = {}
    for record in records:
        if record.measurement is not None:
            groups.setdefault((record.target, record.device), []).append(record.measurement)
    return RunMarks({place: _state(*place, group) for place, group in groups.items()})


def _state(target: str, device: str, measured: list[Measurement]) -> RunState:
    kinds = [{mark_kind(mark) for mark in m.marks} for m in measured]
    common = _common(kinds) if len(measured) >= LEAST_ROWS else {}
    widths = _known(relative_half_width, measured)
    fences = {
        kind: _fence(readings)
        for kind in common
        if kind in _READINGS and (readings := _known(_READINGS[kind], measured))
    }
    return RunState(
        target=target,
        device=device,
        measured=len(measured),
        common=common,
        usual_half_width=quantile(widths, 0.5) if widths else None,
        fences=fences,
    )


def _common(kinds: Sequence[Set[str]]) -> dict[str, int]:
    """The kinds of the rows that are a state of their run."""
    rows = len(kinds)
    is_disturbed = sum(bool(found & DISTURBED) for found in kinds) > COMMON_SHARE * rows
    return {
        kind: count
        for kind, count in _counted(kinds).items()
        if kind not in _OF_THE_KERNEL
        and (
            count > COMMON_SHARE * rows
            or (is_disturbed and kind in DISTURBED and count >= PART_SHARE * rows)
        )
    }


def _stands_out(measurement: Measurement, kind: str, state: RunState | None) -> bool:
    if state is None or kind not in state.common:
        return True
    if kind not in state.fences:
        return False
    reading = _READINGS[kind](measurement)
    limit = min(state.fences[kind], _LIMITS.get(kind, math.inf))
    return reading is not None and reading > limit


def _fence(readings: list[float]) -> float:
    low, middle, high = (quantile(readings, share) for share in (0.25, 0.5, 0.75))
    return max(high + FENCE * (high - low), LEAST_RATIO * middle)


def _known(
    reading: Callable[[Measurement], float | None], measured: Iterable[Measurement]
) -> list[float]:
    return [value for m in measured if (value := reading(m)) is not None]


def _counted(kinds: Iterable[Iterable[str]]) -> dict[str, int]:
    counts = Counter(kind for found in kinds for kind in found)
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))
