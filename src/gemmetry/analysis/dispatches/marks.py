"""Which marks distinguish a measurement from its neighbours, and which describe the whole run.

A mark that nearly every row of a run carries describes the machine and not the row. Records keep
all of their marks; this module decides which of them a report shows in the row and which it states
once.
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
"""Least number of measured rows of a device that are compared with each other: with fewer rows
nothing is usual."""

COMMON_SHARE = 0.5
"""A kind of mark on more than this share of a device's measured rows describes the state of the
run."""

LENGTHENED = frozenset({"busy", "load average", "stalled", "two modes"})
"""Kinds of marks for samples that something other than the kernel made longer, or may have."""

DISTURBED = LENGTHENED | {"noisy"}
"""Kinds that other programs cause. They have one cause in many forms, so rows with any of them are
counted together: where these exceed :data:`COMMON_SHARE`, every such kind on at least
:data:`PART_SHARE` of the rows describes the state of the run."""

PART_SHARE = 0.25
"""A smaller share lies above the upper quartile, by which readings are judged, in any case."""

FENCE = 1.5
"""A reading above the upper quartile by more than this many interquartile ranges stands out (Tukey,
"Exploratory Data Analysis", 1977): a quarter of the rows may be arbitrarily bad without moving this
limit."""

LEAST_RATIO = 2.0
"""It must also be this many times the median, because the quartiles of a steady run are so close
that small differences would lie above the limit."""

_OF_THE_KERNEL = ("remembers", "runs on", "host work")
"""Kinds that call the row's time into question whatever the marks of its neighbours."""

_LOAD = "load average"


def mark_kind(mark: str) -> str:
    """The kind of a mark: the text before its colon; ``load average`` has none."""
    return _LOAD if mark.startswith(_LOAD) else mark.partition(":")[0]


def relative_half_width(measurement: Measurement) -> float | None:
    """Half the width of the median's interval divided by the median, which sampling narrows and
    which the mark ``noisy`` reports; None without an interval."""
    low, high = measurement.ci_low_ns, measurement.ci_high_ns
    interval = None if low is None or high is None else (low, high)
    return half_width(interval, measurement.median_ns)


_READINGS: Mapping[str, Callable[[Measurement], float | None]] = {
    "noisy": relative_half_width,
    "busy": lambda m: max(m.telemetry.run_delay_share or 0.0, m.telemetry.others_cpu_share or 0.0),
    _LOAD: lambda m: m.telemetry.load_average,
    "stalled": lambda m: m.median_ns / m.min_ns if m.min_ns else None,
    "processes differ": lambda m: m.process_spread,
}
"""Kind -> how strong the mark is, by a reading of the measurement; marks of kinds without a reading
are all alike."""

_LIMITS = {"noisy": WIDE}
"""Kind -> the reading above which a row keeps its mark however bad its neighbours are: where many
rows have wide intervals, no limit would separate the widest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunState:
    """What most measurements of one device have in common."""

    target: str
    device: str
    measured: int
    common: Mapping[str, int]
    """Kind of mark -> number of measured rows that have it, the most frequent first."""
    usual_half_width: float | None
    """Median over the rows; None where no interval is known."""
    fences: Mapping[str, float] = field(default_factory=dict)
    """Kind -> the reading above which a row stands out from its neighbours nevertheless."""


@dataclass(frozen=True, slots=True)
class RunMarks:
    """The marks of a run, divided into those that are common and those that stand out."""

    states: Mapping[tuple[str, str], RunState]
    """(target, device) -> what its measured rows have in common, if anything."""

    def of(self, record: Record) -> tuple[str, ...]:
        """The record's marks that distinguish it from its neighbours."""
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
        """Kind -> number of `records` on which such a mark stands out, the most frequent first."""
        return _counted({mark_kind(mark) for mark in self.of(record)} for record in records)


def find_run_marks(records: Iterable[Record]) -> RunMarks:
    """Divide the marks of `records`, separately for each device."""
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
    """The kinds of marks that describe the state of the rows' run."""
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
