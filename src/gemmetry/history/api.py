"""Histories of many runs, for scripts and the command line: which changes are new, which of them
are alarms, and remarks on them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property, partial
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from gemmetry.domain.errors import EmptySelectionError, RequestError, UnknownNameError, listed
from gemmetry.domain.rows import table
from gemmetry.domain.tables import grouped
from gemmetry.engine.experiment import Experiment
from gemmetry.history.changes import (
    ChangeCause,
    HistoryChanges,
    SeriesChange,
    Values,
    device_history,
    history_changes,
    measured_again,
    name_matches,
)
from gemmetry.history.folder import (
    SCHEMA,
    Annotation,
    HistoryRun,
    StoredHistory,
    read_history,
    runs_of,
    writing,
)
from gemmetry.results.tables import frame
from gemmetry.statistics.comparison import Difference

if TYPE_CHECKING:
    import polars


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
        begin = (
            f"{len(found)} runs of the history begin" if found else "no run of the history begins"
        )
        raise RequestError(
            f"{begin} with {run!r}", hint=f"Give the id of one: {listed(ids[::-1], _MOST_NAMED)}."
        )
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


LOST = "lost"
"""Name of a lost dispatch among the reasons for an alarm."""

FAIL_ON = (ChangeCause.KERNEL, LOST)
"""Causes that fail by default: those that the author of a kernel answers for."""


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
    """Change; None: the dispatch is no longer ok."""
    is_new: bool
    """Whether the first run is among the latest ones."""
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
        """Former and current outcome of a lost dispatch; "" for a change."""
        if self.change is not None:
            return ""
        history = self.found.history
        outcomes = (history.outcome(self.series, run) for run in reversed(range(len(history.runs))))
        return f"it was ok and is {next(filter(None, outcomes))} now"


@dataclass(frozen=True, kw_only=True, repr=False)
class History:
    """The series of a history, their changes, and which of them are alarms; one entry of `devices`
    for each device class.

    Data frames are of polars (the extra ``analysis``); ``.to_pandas()`` converts them.
    """

    devices: Sequence[HistoryChanges]
    events: Sequence[ChangeEvent]
    """Changes, the latest first."""
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
        """Events within the latest runs, alarms first."""
        new = (one for one in (*self.lost, *self.events) if one.is_new)
        return sorted(new, key=lambda one: not one.is_alarm)

    @property
    def has_alarm(self) -> bool:
        return any(one.is_alarm for one in self.new)

    @cached_property
    def _by_series(self) -> dict[tuple[str, int], list[ChangeEvent]]:
        events = sorted(self.events, key=lambda one: one.place)
        return grouped(events, lambda one: (one.found.history.device, one.series))

    def changes_of(self, found: HistoryChanges, series: int) -> list[ChangeEvent]:
        """The changes of a series, in the order of time."""
        return self._by_series.get((found.history.device, series), [])

    def level_of(self, found: HistoryChanges, series: int) -> Values:
        """The medians (ns) of a series since its last change that is not noise."""
        real = [one for one in self.changes_of(found, series) if not one.is_noise]
        return found.history.level_of(series, real[-1].place if real else 0)

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

    def series(self, pattern: str = "*") -> polars.DataFrame:
        """A row for each series: its latest median and interval in ns, its level, its changes.

        Args:
            pattern: ``provider:name`` of dispatches, a part of it, or a glob.

        Raises:
            EmptySelectionError: no dispatch matches. RequestError: polars is missing.
        """
        from gemmetry.history.rows import SeriesRow, series_row

        rows = [series_row(self, *one) for one in self.chosen(pattern)]
        return frame(table("series", SeriesRow, rows))

    def points(self, pattern: str = "*") -> polars.DataFrame:
        """A row for each run of each series, in the order of time: median and interval in ns, the
        outcome, the median of the reference in the same run, and the ratio to it.

        Args:
            pattern: as for :meth:`series`.

        Raises:
            EmptySelectionError: no dispatch matches. RequestError: polars is missing.
        """
        from gemmetry.history.rows import PointRow, point_rows

        return frame(table("points", PointRow, point_rows(self.chosen(pattern))))

    def changes(self) -> polars.DataFrame:
        """A row for each change, with its cause, and for each dispatch that is no longer ok; alarms
        and new ones first.

        Raises:
            RequestError: polars is missing.
        """
        from gemmetry.history.rows import check_result

        return check_result(self).frame("changes")

    def chosen(self, pattern: str = "*") -> list[tuple[HistoryChanges, int]]:
        """The series that `pattern` stands for.

        Raises:
            EmptySelectionError: no series matches.
        """
        found = [
            (device, series)
            for device in self.devices
            for series in range(len(device.history.keys))
            if device.history.matches(series, pattern)
        ]
        if not found:
            raise EmptySelectionError(
                f"no dispatch of the history matches {pattern!r}",
                hint="Give provider:name, a part of it, or a glob such as 'torch:*'.",
            )
        return found

    def document(self) -> dict[str, Any]:
        """Document that ``gemmetry history check --json`` prints."""
        from gemmetry.history.rows import check_document

        return check_document(self)

    def write(self, path: str | PathLike[str]) -> None:
        """Write the check as JUnit (.xml), a comment for a pull request (.md), the document
        (.json), or a table of changes.

        Raises:
            RequestError: unknown suffix, or a library is missing. StorageError: not writable.
        """
        from gemmetry.history.rows import check_result

        check_result(self).write(path)

    def write_site(self, folder: str | PathLike[str], title: str = "GEMM history") -> None:
        """Write the static site; its first page is ``index.html``.

        Raises:
            StorageError: not writable.
        """
        from gemmetry.history.show import write_site

        write_site(self, Path(folder), title)

    def __repr__(self) -> str:
        runs = sum(len(one.history.runs) for one in self.devices)
        return (
            f"History(devices={len(self.devices)}, runs={runs}, changes={len(self.events)}, "
            f"has_alarm={self.has_alarm})"
        )


def load(
    store: str | PathLike[str] | StoredHistory,
    *,
    latest: int = LATEST,
    threshold: float = THRESHOLD,
    baseline: str | None = None,
    fail_on: Collection[str] = FAIL_ON,
    undecided_fails: bool | None = None,
) -> History:
    """Read the history in the folder `store`, find the changes of all device classes, and judge
    which are alarms: new, slower, of a cause in `fail_on`, and not acknowledged.

    Args:
        latest: a change is new if its first run is among this many latest runs of its device class.
        threshold: relative changes up to this count as none.
        baseline: provider, or ``provider:configuration``, that is the reference; None: the best
            vendor library that each problem was measured with.
        fail_on: causes of slower changes that are alarms, and ``lost``.
        undecided_fails: whether :attr:`History.has_failed` while "no change" is no verdict; None:
            only where a device class has :data:`gemmetry.history.changes.ENOUGH_RUNS`.

    Raises:
        UnknownNameError: no device class has that baseline, or `fail_on` has another name.
        RequestError: there is no history, or no line of it can be used.
    """
    stored = store if isinstance(store, StoredHistory) else read_history(Path(store))
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
    lost = [event(found, *place, None) for found in devices for place in found.history.lost.items()]
    return History(
        devices=devices, events=changes, lost=lost, latest=latest, fail_on=tuple(fail_on),
        problems=stored.problems, undecided_fails=undecided_fails,
    )  # fmt: skip


def _event(
    found: HistoryChanges, series: int, place: int, change: SeriesChange | None, *,
    annotations: Iterable[Annotation], latest: int, fail_on: Collection[str],
) -> ChangeEvent:  # fmt: skip
    near = {one.id for one in found.history.runs[max(0, place - _NEAR) : place + _NEAR + 1]}
    remarks = tuple(one for one in annotations
                    if one.run in near and found.history.matches(series, one.pattern))  # fmt: skip
    is_new = place >= found.history.first_new(latest)
    cause = LOST if change is None else change.cause
    is_slower = (
        change is None
        or change.direction is Difference.SLOWER
        or (cause is ChangeCause.UNDECIDED and change.direction is Difference.UNDECIDED)
    )
    is_open = not any(one.acknowledged for one in remarks)
    return ChangeEvent(
        found=found, series=series, place=place, change=change, is_new=is_new, remarks=remarks,
        is_alarm=is_new and is_slower and cause in fail_on and is_open,
    )  # fmt: skip


def add(
    *experiments: str | PathLike[str],
    store: str | PathLike[str],
    commit: str = "",
    label: str = "",
    time: str = "",
) -> tuple[list[AddedRun], list[str]]:
    """Append the results of experiments to the history in the folder `store`, which is created
    where it does not exist: all of them or, if one fails, none.

    Args:
        commit: of what was measured; "": the one in which each run was started.
        label: names the runs, such as ``nightly``.
        time: ISO 8601, by which the runs are ordered; "": when each run began.

    Returns:
        What became of each run, and the lines of the history that cannot be read.

    Raises:
        RequestError: an experiment cannot be read or has no results.
        StorageError: the history cannot be written.
    """
    read = []
    for path in map(Path, experiments):
        with Experiment.open(path) as opened:
            runs = runs_of(opened.result_set(), commit=commit, label=label, time=time)
        read += [(path, run) for run in runs]
    with writing(Path(store)) as append_runs:
        try:
            history = read_history(Path(store))
        except RequestError:
            history = StoredHistory()
        added = [_added(path, run, history) for path, run in read]
        append_runs([one.run for one in added if one.state != "same"])
    return added, history.problems


def _added(path: Path, run: HistoryRun, history: StoredHistory) -> AddedRun:
    """Add a run to `history`, and report the result."""
    known = history.runs.setdefault(run.device, [])
    digests = {one.digest for one in known if one.id == run.id}
    state = "same" if run.digest in digests else "replaced" if digests else "added"
    is_older = any(run.time < one.time for one in known)
    if state != "same":
        known.append(run)
    ordered = sorted(known, key=lambda one: one.time)
    is_again = any(ordered[place] is run for place in measured_again(ordered))
    before = next(one for one in ordered if one.commit == run.commit) if is_again else None
    return AddedRun(path, run, state, is_older, before)


class AddedRun(NamedTuple):
    """Result of adding one experiment's results for one device class."""

    experiment: Path
    run: HistoryRun
    state: str
    """``added``; ``replaced`` if fewer or other results of the experiment were stored before;
    ``same`` if the stored results were the same."""
    is_older: bool
    """A later run is in the history already: this one is placed by its time."""
    measured_before: HistoryRun | None = None
    """The earlier run of its commit, where another commit was measured in between: no change is
    looked for in this one."""
