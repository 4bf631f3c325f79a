"""Remarks on changes, and which change each belongs to.

Which changes of a history are new, and which of them are alarms.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property, partial

from gemmetry.domain.errors import EmptySelectionError, RequestError, UnknownNameError, listed
from gemmetry.history.changes import ChangeCause, HistoryChanges, SeriesChange, history_changes
from gemmetry.history.folder import SCHEMA, Annotation, HistoryRun, StoredHistory
from gemmetry.history.series import DeviceHistory, device_history, name_matches
from gemmetry.statistics.comparison import Difference

_NEAR = 3
"""Runs by which the place of a change may move while further runs are added."""

_MOST_NAMED = 3


def annotation_of(
    stored: StoredHistory, pattern: str, run: str, text: str, *, acknowledged: bool
) -> Annotation:
    """The annotation that a user requests.

    Args:
        run: the beginning of the id, commit or time of the first run after the change.

    Raises:
        RequestError: there is no such run, or several; no dispatch matches; the text is empty.
    """
    if not text.strip():
        raise RequestError("the remark is empty", hint="Give a text: --text 'slower since ...'.")
    runs = [one for group in stored.runs.values() for one in group]
    found = {
        one.id: one
        for one in runs
        if run and any(known.startswith(run) for known in (one.id, one.commit, one.time))
    }
    if len(found) != 1:
        ids = [f"{one.id} ({one.time[:10]})" for one in (found or {r.id: r for r in runs}).values()]
        what = f"{len(found)} runs" if found else "no run"
        raise RequestError(
            f"{what} of the history begin with {run!r}" if found else
            f"{what} of the history begins with {run!r}",
            hint=f"Give the id of one: {listed(ids[::-1], _MOST_NAMED)}.",
        )  # fmt: skip
    keys = {point.key for one in runs for point in one.points}
    if not any(name_matches(f"{key[0]}:{key[1]}", pattern) for key in keys):
        raise EmptySelectionError(
            f"no dispatch of the history matches {pattern!r}",
            hint="Give provider:name, a part of it, or a glob; gemmetry history show lists them.",
        )
    return Annotation(
        schema=SCHEMA,
        run=next(iter(found)),
        pattern=pattern,
        text=text,
        acknowledged=acknowledged,
        time=datetime.now(UTC).isoformat(timespec="seconds"),
    )


def annotations_on(
    history: DeviceHistory, series: int, run: int, annotations: Iterable[Annotation]
) -> tuple[Annotation, ...]:
    """The annotations on a change of `series` at `run`."""
    near = {one.id for one in history.runs[max(0, run - _NEAR) : run + _NEAR + 1]}
    return tuple(
        one for one in annotations if one.run in near and history.matches(series, one.pattern)
    )


LOST = "lost"
"""What a dispatch that is no longer ok is called among the reasons for an alarm."""

FAIL_ON = (ChangeCause.KERNEL, LOST)
"""What fails by default: what the one who changed a kernel answers for."""


LATEST = 10
"""A change is new if its first run is among this many latest ones. It may take
some more runs until it is found."""

THRESHOLD = 0.02
"""Relative changes up to this count as none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeEvent:
    """A change, or a dispatch that was ok and is no longer, and whether that is an alarm."""

    found: HistoryChanges
    series: int
    place: int
    """Number of the first run after it."""
    change: SeriesChange | None
    """None: the dispatch is no longer ok."""
    is_new: bool
    """Its first run is among the latest ones."""
    remarks: tuple[Annotation, ...]
    is_alarm: bool

    @property
    def name(self) -> str:
        return self.found.history.short_names[self.series]

    @property
    def run(self) -> HistoryRun:
        """The first run after it."""
        return self.found.history.runs[self.place]

    @property
    def cause(self) -> str:
        return LOST if self.change is None else self.change.cause.value

    @property
    def is_noise(self) -> bool:
        return self.cause == ChangeCause.NOISE

    @property
    def loss(self) -> str:
        """How a dispatch was lost; "" of a change."""
        if self.change is not None:
            return ""
        history = self.found.history
        outcomes = (history.outcome(self.series, run) for run in reversed(range(len(history.runs))))
        return f"it was ok and is {next(filter(None, outcomes))} now"


@dataclass(frozen=True, kw_only=True)
class HistoryCheck:
    """All that a history shows, one entry of `devices` for each device class."""

    devices: Sequence[HistoryChanges]
    changes: Sequence[ChangeEvent]
    """The latest first."""
    lost: Sequence[ChangeEvent]
    """Dispatches that are no longer ok."""
    latest: int
    fail_on: tuple[str, ...]
    problems: Sequence[str]
    """Lines of the history that were skipped."""
    undecided_fails: bool | None = None
    """Whether the check fails where "no change" is no verdict; None: only where there are runs
    enough, which then differ too much."""

    @property
    def new(self) -> list[ChangeEvent]:
        """What happened within the latest runs, alarms first."""
        new = (one for one in (*self.lost, *self.changes) if one.is_new)
        return sorted(new, key=lambda one: not one.is_alarm)

    @property
    def has_alarm(self) -> bool:
        return any(one.is_alarm for one in self.new)

    @cached_property
    def undecided(self) -> list[HistoryChanges]:
        """Device classes with too little for "no change" to be a verdict, of those that one of the
        latest runs measured."""
        ends = sorted((run.time for one in self.devices for run in one.history.runs), reverse=True)
        since = ends[min(self.latest, len(ends)) - 1]
        return [one for one in self.devices
                if one.is_undecided and one.history.runs[-1].time >= since]  # fmt: skip

    @property
    def has_failed(self) -> bool:
        """Whether ``gemmetry history check`` ends with status 1."""
        return self.has_alarm or any(map(self.fails_on, self.undecided))

    def fails_on(self, found: HistoryChanges) -> bool:
        """Whether a device class fails the check because it is undecided."""
        if found not in self.undecided:
            return False
        return not found.is_young if self.undecided_fails is None else self.undecided_fails


def check_history(
    stored: StoredHistory,
    *,
    latest: int,
    threshold: float,
    baseline: str | None = None,
    fail_on: Collection[str] = FAIL_ON,
    undecided_fails: bool | None = None,
) -> HistoryCheck:
    """Find the changes of all device classes, and judge which are alarms: new, slower, of a cause
    in `fail_on`, and not acknowledged.

    Args:
        latest: a change is new if its first run is among this many latest runs of its device class.
        threshold: relative changes up to this count as none.
        baseline: provider, or ``provider:configuration``, that is the reference; None: the best
            vendor library that each problem was measured with.
        undecided_fails: whether the check fails while "no change" is no verdict; None: only where
            a device class has :data:`gemmetry.history.changes.ENOUGH_RUNS`.

    Raises:
        UnknownNameError: no device class has that baseline, or `fail_on` has another name.
        RequestError: no line of the history can be used.
    """
    for name in fail_on:
        if name not in (known := (*ChangeCause, LOST)):
            raise UnknownNameError("cause", name, known, where="--fail-on")
    if not stored.runs:
        raise RequestError(
            "no line of the history can be used", hint="Add experiments: gemmetry history add."
        )
    devices = []
    unknown: list[UnknownNameError] = []
    for device, runs in stored.runs.items():
        try:
            history = device_history(device, runs, baseline)
        except UnknownNameError as error:
            unknown.append(error)
            history = device_history(device, runs)
        devices.append(history_changes(history, threshold=threshold))
    if len(unknown) == len(devices):
        raise unknown[0]
    event = partial(_event, annotations=stored.annotations, latest=latest, fail_on=fail_on)
    changes = [event(found, one.series, one.run, one) for found in devices for one in found.changes]
    changes.sort(key=lambda one: one.run.time, reverse=True)
    lost = [
        event(found, series, found.history.lost_at(series), None)
        for found in devices
        for series in found.history.lost
    ]
    return HistoryCheck(
        devices=devices, changes=changes, lost=lost, latest=latest, fail_on=tuple(fail_on),
        problems=stored.problems, undecided_fails=undecided_fails,
    )  # fmt: skip


def _event(
    found: HistoryChanges, series: int, place: int, change: SeriesChange | None, *,
    annotations: Iterable[Annotation], latest: int, fail_on: Collection[str],
) -> ChangeEvent:  # fmt: skip
    remarks = annotations_on(found.history, series, place, annotations)
    is_new = place >= found.history.first_new(latest)
    cause = LOST if change is None else change.cause
    is_slower = (
        change is None
        or change.direction is Difference.SLOWER
        or (cause is ChangeCause.UNDECIDED and change.direction is Difference.UNDECIDED)
    )
    is_acknowledged = any(one.acknowledged for one in remarks)
    return ChangeEvent(
        found=found, series=series, place=place, change=change, is_new=is_new, remarks=remarks,
        is_alarm=is_new and is_slower and cause in fail_on and not is_acknowledged,
    )  # fmt: skip
